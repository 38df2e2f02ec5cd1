//! Leaves of spaces: values at the cells or modes of a mesh, at points, or in a small vector; and
//! which of all points a rank's are, however they are dealt to ranks.

use std::fmt;
use std::sync::Arc;

use crate::fft::Values;
use crate::gpu::{Array, DeviceError, Recorder};
use crate::grid::{Mesh, volume};
use crate::hash::{START, fnv1a};
use crate::host_memory::{self, HostMemoryError};
use crate::random::philox4x32;

/// The order of a rank's points among those of all ranks, which determines their noise.
#[derive(Clone, Debug, PartialEq)]
pub enum PointOrder {
    /// Rank by rank; the order of all points does not depend on the number of ranks.
    Ranks,
    /// By number.
    Numbers(PointNumbers),
}

/// Unique numbers of a rank's points, independent of the number of ranks; any u64.
#[derive(Clone)]
pub struct PointNumbers {
    host: Arc<[u64]>,
    /// Two words per number, low word first.
    device: Array<u32>,
    fingerprint: u64,
}

impl PointNumbers {
    /// Creates the numbers of this rank's points; submits.
    ///
    /// # Errors
    /// - [`DeviceError`] if the device fails.
    pub fn new(recorder: &mut Recorder, numbers: Vec<u64>) -> Result<Self, DeviceError> {
        let mut words: Vec<u32> = host_memory::reserve("numbers of points", 2 * numbers.len())?;
        words.extend(numbers.iter().flat_map(|&number| [number as u32, (number >> 32) as u32]));
        let device = recorder.uploaded("operators::numbers", &words)?;
        let fingerprint = fnv1a(START, bytemuck::cast_slice(&numbers));
        Ok(PointNumbers { host: numbers.into(), device, fingerprint })
    }

    /// Creates numbers from positions; points at one position are also told apart by their order.
    pub(super) fn of_positions(recorder: &mut Recorder, positions: &[[f64; 3]]) -> Result<Self, DeviceError> {
        let mut seen = std::collections::HashMap::new();
        host_memory::handled(|| seen.try_reserve(positions.len()))
            .map_err(|_| HostMemoryError { what: "numbers of points", bytes: size_of_val(positions) as u64 })?;
        let mut number = |position: &[f64; 3]| {
            let bits = position.map(f64::to_bits);
            let times: &mut u32 = seen.entry(bits).or_default();
            *times += 1;
            let [x, y, z] = bits.map(|bits| [bits as u32, (bits >> 32) as u32]);
            let words = philox4x32(philox4x32([x[0], x[1], y[0], y[1]], z), [*times, 0]);
            u64::from(words[1]) << 32 | u64::from(words[0])
        };
        let numbers = host_memory::collect("numbers of points", positions.iter().map(&mut number))?;
        PointNumbers::new(recorder, numbers)
    }

    /// Returns the numbers.
    #[must_use]
    pub fn get(&self) -> &[u64] {
        &self.host
    }

    /// Returns the numbers on the device, two words each, low word first.
    #[must_use]
    pub fn array(&self) -> &Array<u32> {
        &self.device
    }
}

impl PartialEq for PointNumbers {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.host, &other.host) || self.fingerprint == other.fingerprint && self.host == other.host
    }
}

impl fmt::Debug for PointNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PointNumbers({} of {:x})", self.host.len(), self.fingerprint)
    }
}

/// The places of the values of a leaf.
#[derive(Clone, Debug, PartialEq)]
pub enum Support {
    /// The cells of a mesh and its ghost cells.
    Cells {
        /// The mesh.
        mesh: Mesh,
    },
    /// The modes of a mesh ([`Mesh::modes`]); mode `m` has index `m mod n`.
    Modes {
        /// The mesh, without ghost cells.
        mesh: Mesh,
        /// Whether the last axis has only the modes `0..=n/2` of a real field.
        half: bool,
    },
    /// Points, each on one rank.
    Points {
        /// Number of points of this rank.
        own: u64,
        /// Number of points of all ranks.
        total: u64,
        /// The order among the points of all ranks.
        order: PointOrder,
    },
    /// A small vector on the device, the same on every rank.
    Vector {
        /// Number of entries.
        len: u64,
    },
    /// Parameters in f64 on the host, the same on every rank.
    Parameters {
        /// Number of parameters.
        len: u64,
    },
}

impl Support {
    /// Returns the kind of places.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Support::Cells { .. } => "cells",
            Support::Modes { half: true, .. } => "half spectrum",
            Support::Modes { half: false, .. } => "modes",
            Support::Points { order: PointOrder::Ranks, .. } => "points",
            Support::Points { order: PointOrder::Numbers(_), .. } => "numbered points",
            Support::Vector { .. } => "vector",
            Support::Parameters { .. } => "parameters",
        }
    }
}

/// One named field of a space.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    /// The places of the values.
    pub support: Support,
    /// Whether a value is real or complex.
    pub values: Values,
    /// Number of values at one place.
    pub components: u32,
    /// Number of fields in sequence, such as samples.
    pub batch: u64,
}

impl Leaf {
    fn real(support: Support) -> Self {
        Leaf { support, values: Values::Real, components: 1, batch: 1 }
    }

    /// Creates a real leaf at the cells and ghost cells of a mesh. Most operators need a mesh
    /// without ghost cells ([`Mesh::without_ghosts`]) and add those that they need.
    #[must_use]
    pub fn cells(mesh: &Mesh) -> Self {
        Leaf::real(Support::Cells { mesh: mesh.clone() })
    }

    /// Creates a complex leaf at the half spectrum of real fields on a mesh.
    #[must_use]
    pub fn half_spectrum(mesh: &Mesh) -> Self {
        Leaf::real(Support::Modes { mesh: mesh.without_ghosts(), half: true }).complex()
    }

    /// Creates a real leaf at all modes of a mesh, for Hartley transforms.
    #[must_use]
    pub fn modes(mesh: &Mesh) -> Self {
        Leaf::real(Support::Modes { mesh: mesh.without_ghosts(), half: false })
    }

    /// Creates a real leaf at `own` of `total` points, in the order of ranks
    /// ([`PointOrder::Ranks`]). [`Readout`](super::Readout) and [`Select`](super::Select) have
    /// numbered points: take the leaf of their target.
    #[must_use]
    pub fn points(own: u64, total: u64) -> Self {
        Leaf::real(Support::Points { own, total, order: PointOrder::Ranks })
    }

    /// Creates a real leaf at numbered points of this rank, of `total` on all ranks.
    #[must_use]
    pub fn numbered_points(numbers: PointNumbers, total: u64) -> Self {
        Leaf::real(Support::Points { own: numbers.get().len() as u64, total, order: PointOrder::Numbers(numbers) })
    }

    /// Creates a vector on the device that is equal on all ranks.
    #[must_use]
    pub fn vector(len: u64) -> Self {
        Leaf::real(Support::Vector { len })
    }

    /// Creates parameters on the host that are equal on all ranks.
    #[must_use]
    pub fn parameters(len: u64) -> Self {
        Leaf::real(Support::Parameters { len })
    }

    /// Makes the values complex.
    #[must_use]
    pub fn complex(mut self) -> Self {
        self.values = Values::Complex;
        self
    }

    /// Sets the number of components at each place; each is a whole field in memory.
    #[must_use]
    pub fn components(mut self, components: u32) -> Self {
        self.components = components;
        self
    }

    /// Sets the number of fields in sequence.
    #[must_use]
    pub fn batch(mut self, batch: u64) -> Self {
        self.batch = batch;
        self
    }

    /// Returns the mesh of cells or modes.
    #[must_use]
    pub fn mesh(&self) -> Option<&Mesh> {
        match &self.support {
            Support::Cells { mesh } | Support::Modes { mesh, .. } => Some(mesh),
            _ => None,
        }
    }

    /// Returns the number of places of this rank: cells, modes, points or entries.
    #[must_use]
    pub fn places(&self) -> u64 {
        match &self.support {
            Support::Cells { mesh } => mesh.array_len(),
            Support::Modes { mesh, half } => volume(&mesh.modes(*half)),
            Support::Points { own, .. } => *own,
            Support::Vector { len } | Support::Parameters { len } => *len,
        }
    }

    /// Returns the number of fields with one value per place: components times batch.
    #[must_use]
    pub fn fields(&self) -> u64 {
        self.batch.saturating_mul(u64::from(self.components))
    }

    /// Returns the number of values of one component: places times batch.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.places().saturating_mul(self.batch)
    }

    /// Returns the numbers per value: 1 for real, 2 for complex values.
    #[must_use]
    pub fn numbers(&self) -> u64 {
        if self.values == Values::Complex { 2 } else { 1 }
    }

    /// Returns the number of real numbers of this rank.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.places().saturating_mul(self.fields()).saturating_mul(self.numbers())
    }

    /// Returns `true` if this rank has no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of real numbers of all ranks, ghost cells included.
    #[must_use]
    pub fn total(&self) -> u64 {
        let product = |n: [u64; 3]| n.into_iter().fold(1, u64::saturating_mul);
        let places = match &self.support {
            Support::Cells { mesh } => product([0, 1, 2].map(|a| {
                let [below, above] = mesh.options().ghosts[a];
                mesh.shape()[a] + mesh.grid().along(a) as u64 * (below + above)
            })),
            Support::Modes { mesh, half } => {
                let [n0, n1, n2] = mesh.shape();
                product([n0, n1, if *half { n2 / 2 + 1 } else { n2 }])
            }
            Support::Points { total, .. } => *total,
            Support::Vector { len } | Support::Parameters { len } => *len,
        };
        places.saturating_mul(self.fields()).saturating_mul(self.numbers())
    }

    /// Returns `true` for parameters, which are on the host in f64.
    #[must_use]
    pub fn is_on_host(&self) -> bool {
        matches!(self.support, Support::Parameters { .. })
    }

    /// Returns `true` if each rank has a part, `false` if each has the whole.
    #[must_use]
    pub fn is_distributed(&self) -> bool {
        !matches!(self.support, Support::Vector { .. } | Support::Parameters { .. })
    }

    /// Returns the reason why the leaf is invalid, if it is.
    pub(super) fn fault(&self) -> Option<String> {
        (self.components == 0 || self.batch == 0).then(|| {
            format!("{} components in a batch of {}; expected at least 1 of each", self.components, self.batch)
        })
    }
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.support {
            Support::Cells { mesh } => {
                let ([i, j, k], ghosts) = (mesh.shape(), mesh.layout().ghosts);
                write!(f, "cells of {i} x {j} x {k} over {} ranks", mesh.grid())?;
                if ghosts != [[0; 2]; 3] {
                    write!(f, " with ghosts {ghosts:?}")?;
                }
            }
            Support::Modes { mesh, .. } => {
                let [i, j, k] = mesh.shape();
                write!(f, "{} of {i} x {j} x {k} over {} ranks", self.support.kind(), mesh.grid())?;
            }
            Support::Points { own, total, .. } => write!(f, "{own} of {total} {}", self.support.kind())?,
            Support::Vector { len } => write!(f, "vector of {len}")?,
            Support::Parameters { len } => write!(f, "{len} parameters")?,
        }
        match (self.values, self.components) {
            (Values::Real, 1) => {}
            (Values::Real, components) => write!(f, ", {components} components")?,
            (Values::Complex, 1) => write!(f, ", complex")?,
            (Values::Complex, components) => write!(f, ", {components} complex components")?,
        }
        if self.batch > 1 { write!(f, ", batch of {}", self.batch) } else { Ok(()) }
    }
}
