
use std::fmt;

use super::operator::OperatorTables;
use crate::gpu::{Array, Callback, DeviceError, Kernel, KernelSource, Recorder};
use crate::grid::{Box3, extent, volume};

/// [`Operator`]s in device memory, for an inverse [`Transform`](super::Transform) or a
/// [`Filter`](super::Filter) with as many results as operators.
pub struct Spectral {
    tables: Array<f32>,
    params: OperatorParams,
    part: Box3,
}

crate::gpu::kernel_params! {
    struct OperatorParams {
        /// The starts of the second and third axis, the next result and the Laplacian in the table.
        table_starts: [u32; 4],
        /// The first mode of this rank, and the number of operators.
        table_first: [u32; 4],
        /// The complex constant.
        table_constant: [f32; 4],
    }
}

const OPERATOR: &str = include_str!("../../shaders/fft/operator.wgsl");
const MODE: &str = include_str!("../../shaders/fft/operator_mode.wgsl");
const SUM: &str = include_str!("../../shaders/fft/operator_sum.wgsl");

impl fmt::Debug for Spectral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spectral").field("part", &self.part).finish_non_exhaustive()
    }
}

impl Spectral {
    /// Uploads tables for the part of the spectrum that this rank multiplies:
    /// [`Transform::spectrum_part`](super::Transform::spectrum_part) or
    /// [`Filter::spectrum_part`](super::Filter::spectrum_part). All tables must have the same part, constant
    /// and Laplacian.
    ///
    /// # Errors
    /// - [`DeviceError::Misuse`] without tables, for tables of another part, or if they differ in what they share.
    /// - [`DeviceError::OutOfMemory`] if the device is out of memory.
    pub fn new(recorder: &mut Recorder, tables: &[OperatorTables], part: &Box3) -> Result<Self, DeviceError> {
        let misuse = |why: &str| DeviceError::Misuse { what: "Spectral::new".into(), why: why.into() };
        let first = tables.first().ok_or_else(|| misuse("no tables"))?;
        let half = first.starts[2] as usize;
        let [i, j, k] = extent(part);
        let fits = |of: &OperatorTables| {
            of.starts.map(u64::from) == [i, i + j, i + j + k] && of.values.len() as u64 == 2 * (i + j + k)
        };
        if !tables.iter().all(fits) {
            return Err(misuse("the tables are for another part of the spectrum"));
        }
        let alike = |other: &OperatorTables| {
            other.starts == first.starts
                && other.constant == first.constant
                && other.values[half..] == first.values[half..]
        };
        if !tables.iter().all(alike) {
            return Err(misuse("operators that are applied together share constant and Laplacian"));
        }
        let mut values: Vec<f32> = tables.iter().flat_map(|tables| tables.values[..half].to_vec()).collect();
        let laplacian = values.len() as u32;
        values.extend(&first.values[half..]);
        let array = recorder.gpu().array("fft::operator", values.len() as u64)?;
        recorder.upload(&array, 0, &values)?;
        let [x, y] = first.constant;
        let params = OperatorParams {
            table_starts: [first.starts[0], first.starts[1], first.starts[2], laplacian],
            table_first: [part[0].start as u32, part[1].start as u32, part[2].start as u32, tables.len() as u32],
            table_constant: [x, y, 0.0, 0.0],
        };
        Ok(Spectral { tables: array, params, part: part.clone() })
    }

    /// Returns the modes of the tables.
    pub fn part(&self) -> &Box3 {
        &self.part
    }

    /// Returns the callback that multiplies modes. It has run-time checks, since a transform may have other
    /// modes than the tables.
    pub fn callback(&self) -> Callback {
        self.with(Callback::new([OPERATOR, MODE].concat()))
    }

    /// Same as [`callback`](Self::callback), without checks, for transforms of the modes of the tables.
    pub(crate) fn trusted_callback(&self) -> Callback {
        self.with(Callback::trusted([OPERATOR, MODE].concat()))
    }

    /// Returns the callback of a filter of the last of several fields, whose result is the sum over all
    /// fields times their operators. `others` are the spectra of the fields before, one after the other, for
    /// the modes of the tables.
    pub(crate) fn trusted_sum(&self, others: &Array<[f32; 2]>) -> Callback {
        self.with(Callback::trusted([OPERATOR, SUM].concat())).read("others", others)
    }

    fn with(&self, callback: Callback) -> Callback {
        callback.read("table", &self.tables).params(&self.params)
    }
}

/// Multiplies modes by a table over the square of the mode number.
pub(super) struct Radial {
    kernel: Kernel,
}

crate::gpu::kernel_params! {
    struct RadialParams {
        shape: [u32; 4],
        first: [u32; 4],
        local: [u32; 4],
    }
}

/// Returns the kernel of [`Radial`].
pub(super) fn radial() -> KernelSource {
    KernelSource::new("fft::radial", include_str!("../../shaders/fft/radial.wgsl")).params::<RadialParams>()
}

impl Default for Radial {
    fn default() -> Self {
        Radial { kernel: Kernel::trusted(radial()) }
    }
}

impl Radial {
    /// See [`Transform::scale_radially`](super::Transform::scale_radially).
    pub fn scale(
        &self,
        recorder: &mut Recorder,
        spectrum: &Array<[f32; 2]>,
        shape: [u64; 3],
        part: &Box3,
        amplitudes: &Array<f32>,
    ) -> Result<(), DeviceError> {
        let needed = shape.iter().map(|n| (n / 2) * (n / 2)).sum::<u64>() + 1;
        if amplitudes.len() < needed {
            let why = format!("{} amplitudes for modes up to |m|^2 = {}", amplitudes.len(), needed - 1);
            return Err(DeviceError::Misuse { what: "Transform::scale_radially".into(), why });
        }
        if spectrum.len() < volume(part) {
            let why = format!("a spectrum of {} elements, this rank's part has {}", spectrum.len(), volume(part));
            return Err(DeviceError::Misuse { what: "Transform::scale_radially".into(), why });
        }
        let word = |v: [u64; 3]| [v[0], v[1], v[2], 0].map(|n| n as u32);
        let params = RadialParams {
            shape: word(shape),
            first: word([0, 1, 2].map(|a| part[a].start)),
            local: word(extent(part)),
        };
        recorder.each(&self.kernel, &[spectrum.raw(), amplitudes.raw()], &params, volume(part))
    }
}
