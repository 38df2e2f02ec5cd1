//! Multiplication of spectra: operators on the device, and radial amplitudes.

use super::operator::Tables;
use crate::device::{Access, Array, DeviceError, Element, Kernel, KernelSource, Recorder};
use crate::layout::{Box3, extent, volume};

/// An [`Operator`](super::Operator)'s tables in device memory, for an inverse
/// [`Transform`](super::Transform).
pub struct Spectral {
    tables: Array<f32>,
    starts: [u32; 3],
    constant: [f32; 2],
}

impl Spectral {
    /// Uploads tables made for [`Transform::spectrum_part`](super::Transform::spectrum_part).
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn new(recorder: &mut Recorder, tables: &Tables) -> Result<Self, DeviceError> {
        let array = recorder.gpu().array("fft::tables", tables.values.len() as u64)?;
        recorder.upload(&array, 0, &tables.values)?;
        Ok(Spectral { tables: array, starts: tables.starts, constant: tables.constant })
    }

    pub(super) fn table(&self) -> &Array<f32> {
        &self.tables
    }

    pub(super) fn starts(&self) -> [u32; 3] {
        self.starts
    }

    pub(super) fn constant(&self) -> [f32; 2] {
        self.constant
    }
}

/// Multiplies modes by a table over the square of the mode number.
pub(super) struct Radial {
    kernel: Kernel,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    shape: [u32; 4],
    first: [u32; 4],
    local: [u32; 4],
}

impl Default for Radial {
    fn default() -> Self {
        let source = KernelSource::new("fft::radial", include_str!("../../shaders/fft/radial.wgsl"))
            .params("shape: vec4<u32>, first: vec4<u32>, local: vec4<u32>")
            .array("spectrum", Element::Complex32, Access::ReadWrite)
            .array("amplitudes", Element::F32, Access::Read);
        Radial { kernel: Kernel::new(source) }
    }
}

impl Radial {
    /// The kernel's text.
    pub fn source(&self) -> &KernelSource {
        self.kernel.source()
    }

    pub fn scale(
        &self,
        recorder: &mut Recorder,
        spectrum: &Array<[f32; 2]>,
        shape: [u64; 3],
        part: &Box3,
        amplitudes: &[f32],
    ) -> Result<(), DeviceError> {
        let needed = shape.iter().map(|n| (n / 2) * (n / 2)).sum::<u64>() + 1;
        if (amplitudes.len() as u64) < needed {
            let why = format!("{} amplitudes for modes up to |m|^2 = {}", amplitudes.len(), needed - 1);
            return Err(DeviceError::Misuse { what: "Transform::scale_radially".into(), why });
        }
        let table = recorder.gpu().array("fft::amplitudes", amplitudes.len() as u64)?;
        recorder.upload(&table, 0, amplitudes)?;
        let word = |v: [u64; 3]| [v[0], v[1], v[2], 0].map(|n| n as u32);
        let params =
            Params { shape: word(shape), first: word([0, 1, 2].map(|a| part[a].start)), local: word(extent(part)) };
        recorder.each(&self.kernel, &[spectrum.raw(), table.raw()], &params, volume(part))
    }
}

/// The kernel of [`Transform::scale_radially`](super::Transform::scale_radially), for tests that go over all of the
/// library's kernels.
pub fn radial_source() -> KernelSource {
    Radial::default().source().clone()
}
