//! Particles on a mesh: where they are, and what the kernels over them have in common.

use super::window::Window;
use crate::gpu::{
    Array, Capabilities, DeviceError, JointParams, Kernel, KernelParams, KernelSource, Profile, RawArray, Recorder,
};
use crate::grid::{Box3, FieldLayout, Grid, Mesh, extent, volume};

/// Cells of a mesh along an axis at most: kernels count nodes around it in 32 bits with a sign.
const MOST_CELLS: u64 = 1 << 30;
/// Sites of a lattice along an axis at most: twice a site takes one word.
const MOST_SITES: u64 = 1 << 31;
/// Sites of a lattice along an axis at most for particles that are listed: two share a word.
const MOST_LISTED_SITES: u64 = 1 << 16;

/// Sites along each axis of the blocks in which kernels take particles, so that those that share
/// cells come close together: the cells of a block in a mesh twice as fine take 4 MB as painted
/// integers and 8 MB as vectors, which stay in the cache of a GPU.
const BLOCK: u64 = 32;

/// A box of sites of a regular lattice, one particle each. A particle's place is its site plus a
/// displacement, so that `f32` resolves it equally well in any box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lattice {
    /// Sites along each axis of the whole lattice.
    pub sites: [u64; 3],
    /// The sites of this rank.
    pub own: Box3,
}

impl Lattice {
    /// Creates the part of a lattice that `rank` of `grid` owns.
    #[must_use]
    pub fn new(sites: [u64; 3], grid: Grid, rank: usize) -> Self {
        Lattice { sites, own: grid.part(sites, rank) }
    }

    /// Returns the number of this rank's particles.
    #[must_use]
    pub fn len(&self) -> u64 {
        volume(&self.own)
    }

    /// Returns `true` if this rank has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Returns the axes along which kernels wrap cells at the end of the array: those that are not cut
/// and have no ghost cells.
pub(super) fn wrapped_axes(mesh: &Mesh) -> [bool; 3] {
    [0, 1, 2].map(|a| mesh.grid().along(a) == 1 && mesh.layout().ghosts[a] == [0, 0])
}

/// Returns the first cell along each axis of the period of `mesh` that has this rank's own cells in
/// its middle: all cells from 0 on where the axis is not cut. It does not depend on ghost cells, so
/// that kernels with and without them place a particle alike.
fn period_of(mesh: &Mesh) -> [i32; 3] {
    [0, 1, 2].map(|axis| {
        let (own, cells) = (&mesh.own()[axis], mesh.shape()[axis]);
        let others = cells - (own.end - own.start);
        own.start as i32 - (others / 2) as i32
    })
}

/// Refuses a mesh with open faces or more cells than kernels can count.
pub(super) fn check_mesh(what: &str, mesh: &Mesh) -> Result<(), DeviceError> {
    let misuse = |why: String| Err(DeviceError::misuse(what, why));
    for axis in 0..3 {
        let (cells, ghosts) = (mesh.shape()[axis], mesh.layout().ghosts[axis]);
        if cells > MOST_CELLS || ghosts.iter().any(|&width| width > MOST_CELLS) {
            return misuse(format!(
                "expected at most 2^30 cells and ghost cells along axis {axis}, got {cells} and {ghosts:?}"
            ));
        }
        if !mesh.periodic()[axis] {
            return misuse(format!("expected a mesh that is periodic along all axes, axis {axis} is open"));
        }
    }
    Ok(())
}

/// The particles of one rank, on the device.
#[derive(Clone, Copy)]
pub enum MeshParticles<'a> {
    /// Sites of a lattice with displacements in box units.
    Displaced {
        /// Which sites.
        lattice: &'a Lattice,
        /// Their displacements, by axis.
        displacement: [&'a Array<f32>; 3],
    },
    /// Particles of any sites of a lattice, with displacements in box units: those that came to the
    /// rank of their cells. Their nodes are counted modulo the mesh, as near to the rank's own
    /// cells as possible.
    Listed {
        /// Sites along each axis of the whole lattice, at most 2^16.
        sites: [u64; 3],
        /// The site of each particle: `[x << 16 | y, z]`.
        site: &'a Array<[u32; 2]>,
        /// Their displacements, by axis.
        displacement: [&'a Array<f32>; 3],
    },
    /// Points given by a cell of the rank's array (ghosts included) and the offset from its node in
    /// cells.
    InCells {
        /// Index of the cell.
        cell: &'a Array<u32>,
        /// Offset in cells, by axis.
        offset: [&'a Array<f32>; 3],
    },
}

/// A variant of [`MeshParticles`].
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Displaced,
    Listed,
    InCells,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Displaced, Kind::Listed, Kind::InCells];

    pub fn of(particles: &MeshParticles<'_>) -> Self {
        match particles {
            MeshParticles::Displaced { .. } => Kind::Displaced,
            MeshParticles::Listed { .. } => Kind::Listed,
            MeshParticles::InCells { .. } => Kind::InCells,
        }
    }

    /// Sets the flags of a kernel over such particles.
    pub fn flags(self, source: KernelSource) -> KernelSource {
        source.flag("in_cells", self == Kind::InCells).flag("listed", self == Kind::Listed)
    }
}

impl MeshParticles<'_> {
    /// Returns the number of particles.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.parts().0
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns their number, the array of their sites or cells if there is one, and their
    /// displacements or offsets along each axis.
    fn parts(&self) -> (u64, Option<&RawArray>, &[&Array<f32>; 3]) {
        match self {
            MeshParticles::Displaced { lattice, displacement } => (lattice.len(), None, displacement),
            MeshParticles::Listed { site, displacement, .. } => (site.len(), Some(site.raw()), displacement),
            MeshParticles::InCells { cell, offset } => (cell.len(), Some(cell.raw()), offset),
        }
    }

    pub(super) fn arrays(&self) -> Vec<&RawArray> {
        let (_, places, along) = self.parts();
        places.into_iter().chain(along.iter().map(|array| array.raw())).collect()
    }

    /// Refuses lattices beyond the range of the kernels' arithmetic, and arrays that are too short.
    fn check(&self, what: &str) -> Result<(), DeviceError> {
        let misuse = |why: String| Err(DeviceError::misuse(what, why));
        match self {
            MeshParticles::Displaced { lattice, .. } => {
                let is_wrong = |&a: &usize| lattice.sites[a] > MOST_SITES || lattice.own[a].end > lattice.sites[a];
                if let Some(axis) = (0..3).find(is_wrong) {
                    return misuse(format!(
                        "sites {:?} of axis {axis} of a lattice of {}, which has 2^31 at most",
                        lattice.own[axis], lattice.sites[axis]
                    ));
                }
            }
            MeshParticles::Listed { sites, .. } => {
                if let Some(axis) = (0..3).find(|&axis| sites[axis] > MOST_LISTED_SITES) {
                    return misuse(format!("expected at most 2^16 sites along axis {axis}, got {}", sites[axis]));
                }
            }
            MeshParticles::InCells { .. } => {}
        }
        let (count, _, along) = self.parts();
        match along.iter().find(|array| array.len() < count) {
            None => Ok(()),
            Some(array) => misuse(format!("{} values along an axis for {count} particles", array.len())),
        }
    }

    /// Returns `true` if kernels take particles in blocks of sites: a block fits a whole number of
    /// times along each axis.
    fn is_in_blocks(&self) -> bool {
        matches!(self, MeshParticles::Displaced { lattice, .. }
            if extent(&lattice.own).into_iter().all(|sites| sites.is_multiple_of(BLOCK)))
    }

    pub(super) fn geometry(&self, mesh: &Mesh, layout: &FieldLayout) -> ParticleParams {
        let real = |values: [f64; 3]| [values[0] as f32, values[1] as f32, values[2] as f32, 0.0];
        let wrapped = wrapped_axes(mesh);
        let wraps = (0..3).map(|a| u64::from(wrapped[a]) << a).sum();
        let base =
            [0, 1, 2].map(|a| if wrapped[a] { 0 } else { layout.own[a].start as i32 - layout.ghosts[a][0] as i32 });
        let mut geometry = ParticleParams {
            first: four([0; 3], self.len()),
            local: four([1; 3], 0),
            sites: four([1; 3], 0),
            mesh: four(mesh.shape(), wraps),
            shape: four(layout.shape(), 0),
            base: [base[0], base[1], base[2], i32::from(self.is_in_blocks())],
            per_site: [0.0; 4],
            per_cell: real(mesh.cell_size().map(|cell| 1.0 / cell)),
        };
        match self {
            MeshParticles::Displaced { lattice, .. } => {
                geometry.first = four([0, 1, 2].map(|a| lattice.own[a].start), self.len());
                geometry.local = four(extent(&lattice.own), 0);
                geometry.sites = four(lattice.sites, 0);
                geometry.per_site = real(lattice.sites.map(|n| 1.0 / n as f64));
            }
            MeshParticles::Listed { sites, .. } => {
                let [x, y, z] = period_of(mesh).map(|first| first as u32);
                geometry.first = [x, y, z, self.len() as u32];
                geometry.sites = four(*sites, 0);
                geometry.per_site = real(sites.map(|n| 1.0 / n as f64));
            }
            MeshParticles::InCells { .. } => {}
        }
        geometry
    }
}

crate::gpu::kernel_params! {
    /// Geometry of particles and the mesh; see `shaders/mesh/particle.wgsl`.
    pub(super) struct ParticleParams {
        /// First site, or first cell of the period of listed particles, and number of particles.
        pub first: [u32; 4],
        /// Sites of this rank.
        pub local: [u32; 4],
        /// Sites of the lattice.
        pub sites: [u32; 4],
        /// Cells of the mesh, and a bit for each axis that closes on itself.
        pub mesh: [u32; 4],
        /// Cells of this rank's array, and the element at which the field begins.
        pub shape: [u32; 4],
        /// The array's first cell, and 1 where sites come in blocks.
        pub base: [i32; 4],
        pub per_site: [f32; 4],
        pub per_cell: [f32; 4],
    }
}

/// Returns three numbers and `w` as words for a kernel.
pub(super) fn four([x, y, z]: [u64; 3], w: u64) -> [u32; 4] {
    [x, y, z, w].map(|n| n as u32)
}

/// Returns the own cells of `mesh` along each axis, and the place of the first one in an array with
/// a step along each axis.
pub(super) fn own_and_origin(mesh: &Mesh) -> [[u32; 4]; 2] {
    let [i, j, k] = mesh.layout().strides();
    [four(extent(mesh.own()), 0), [mesh.layout().offset(), i, j, k].map(|n| n as u32)]
}

/// The geometry of particles, and what a kernel takes besides.
pub(super) type ParticlesAnd<P> = JointParams<ParticleParams, P>;

/// Refuses particles and a mesh that the kernels cannot treat.
pub(super) fn checked(what: &str, particles: &MeshParticles<'_>, mesh: &Mesh) -> Result<(), DeviceError> {
    particles.check(what)?;
    check_mesh(what, mesh)?;
    if matches!(particles, MeshParticles::InCells { .. }) && !particles.is_empty() && mesh.layout().is_empty() {
        return Err(DeviceError::misuse(what, "points in a mesh without cells"));
    }
    Ok(())
}

/// Returns the kernel for particles of a lattice, of those for all sites of a box and for listed
/// ones.
pub(super) fn of_lattice<'k, K>(
    what: &str,
    particles: &MeshParticles<'_>,
    kernels: &'k [K; 2],
) -> Result<&'k K, DeviceError> {
    kernels
        .get(Kind::of(particles) as usize)
        .ok_or_else(|| DeviceError::misuse(what, "expected particles of a lattice, got points in cells"))
}

/// Nodes that an invocation reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lanes {
    /// All nodes of its particle.
    Alone,
    /// Half of its particle's and half of its neighbor's in the subgroup: on GPUs, where requests
    /// of memory limit these kernels. On the positions of a late run a particle takes 4.8 requests
    /// for eight additions then, and 7.8 otherwise. Four nodes along an axis would take too many
    /// registers.
    Paired,
}

impl Lanes {
    /// Returns the windows for which kernels have this form.
    pub fn windows(self) -> impl Iterator<Item = Window> {
        Window::ALL.into_iter().filter(move |&window| self == Lanes::Alone || window != Window::Pcs)
    }
}

/// A kernel over particles in the forms for its window, which have the same results.
pub(super) struct ParticleKernel {
    alone: Kernel,
    paired: Option<Kernel>,
}

impl ParticleKernel {
    pub fn new(window: Window, source: impl Fn(Lanes) -> KernelSource) -> Self {
        let is_paired = Lanes::Paired.windows().any(|paired| paired == window);
        let paired = is_paired.then(|| Kernel::trusted(source(Lanes::Paired)));
        ParticleKernel { alone: Kernel::trusted(source(Lanes::Alone)), paired }
    }

    /// Records it over `count` particles, in the form of the device.
    pub fn record<P: KernelParams>(
        &self,
        recorder: &mut Recorder,
        arrays: &[&RawArray],
        params: &P,
        count: u64,
    ) -> Result<(), DeviceError> {
        let &Capabilities { profile, subgroup_least, .. } = recorder.gpu().capabilities();
        let group = u64::from(recorder.gpu().workgroup_shape().group);
        match self.paired.as_ref().filter(|_| profile == Profile::Gpu && subgroup_least >= 2) {
            Some(paired) => recorder.dispatch(paired, arrays, params, count.div_ceil(group)),
            None => recorder.each(&self.alone, arrays, params, count),
        }
    }
}

/// Returns a kernel over particles that are not listed, whose invocations have no partners, without
/// its parameters and further inputs.
pub(super) fn particle_kernel(label: &str, text: &'static str, window: Window) -> KernelSource {
    particle_kernel_of(label, text, window, Lanes::Alone).flag("listed", false)
}

/// Returns a kernel over particles, without its parameters and further inputs.
pub(super) fn particle_kernel_of(label: &str, text: &'static str, window: Window, lanes: Lanes) -> KernelSource {
    // Rows that are painted at once; with more of wider windows GPUs would run fewer subgroups.
    let rows = if window == Window::Cic { 2 } else { 1 };
    KernelSource::new(label, text)
        .module("mesh::particle", include_str!("../../shaders/mesh/particle.wgsl"))
        .module("mesh::each_particle", include_str!("../../shaders/mesh/each_particle.wgsl"))
        .module("mesh::interpolate", include_str!("../../shaders/mesh/interpolate.wgsl"))
        .module("mesh::shares", include_str!("../../shaders/mesh/shares.wgsl"))
        .module("mesh::slope", include_str!("../../shaders/mesh/slope.wgsl"))
        .module("mesh::window", include_str!("../../shaders/mesh/window.wgsl"))
        .flag("tsc", window == Window::Tsc)
        .flag("pcs", window == Window::Pcs)
        .flag("pairs", lanes == Lanes::Paired)
        .repeat('@', window.order())
        .repeat('$', rows)
        .constant("ROWS", rows)
}
