//! Multiplication of spectra: operators as hooks, and radial amplitudes.

use super::hook::Hook;
use super::operator::Tables;
use crate::gpu::{Access, Array, DeviceError, Element, Kernel, KernelSource, Recorder};
use crate::grid::{Box3, extent, volume};

/// [`Operator`](super::Operator)s in device memory, for an inverse [`Transform`](super::Transform) or a
/// [`Filter`](super::Filter): as many results as operators.
pub struct Spectral {
    tables: Array<f32>,
    params: Params,
    part: Box3,
}

/// Multiplies a mode by the factors of an operator. `table` holds, for each result, the factors of the three axes, then
/// once the terms of the Laplacian.
const TEXT: &str = "\
fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
    let starts = params.table_starts;
    let local = at.xyz - params.table_first.xyz + vec3<u32>(0u, starts.x, starts.y);
    let one = result * starts.z + local;
    let top = load_table(one.x) * load_table(one.y) * load_table(one.z);
    let two = starts.w + local;
    let low = load_table(two.x) + load_table(two.y) + load_table(two.z);
    let constant = params.table_constant;
    let turned = multiply(Complex(Real(constant.x), Real(constant.y)), value);
    return turned * Real(select(top / low, 0.0, low == 0.0));
}
";

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    starts: [u32; 4],
    first: [u32; 4],
    constant: [f32; 4],
}

impl Spectral {
    /// Uploads tables made for the part of the spectrum that this rank multiplies:
    /// [`Transform::spectrum_part`](super::Transform::spectrum_part) or
    /// [`Filter::spectrum_part`](super::Filter::spectrum_part). All have the same part, constant and Laplacian.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`]; [`DeviceError::Misuse`] without tables, for tables of another part, or when they differ in what
    /// they share.
    pub fn new(recorder: &mut Recorder, tables: &[Tables], part: &Box3) -> Result<Self, DeviceError> {
        let misuse = |why: &str| DeviceError::Misuse { what: "Spectral::new".into(), why: why.into() };
        let first = tables.first().ok_or_else(|| misuse("no tables"))?;
        let half = first.starts[2] as usize;
        let [i, j, k] = extent(part);
        let fits = |of: &Tables| {
            of.starts.map(u64::from) == [i, i + j, i + j + k] && of.values.len() as u64 == 2 * (i + j + k)
        };
        if !tables.iter().all(fits) {
            return Err(misuse("the tables are for another part of the spectrum"));
        }
        let alike = |other: &Tables| {
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
        let params = Params {
            starts: [first.starts[0], first.starts[1], first.starts[2], laplacian],
            first: [part[0].start as u32, part[1].start as u32, part[2].start as u32, 0],
            constant: [x, y, 0.0, 0.0],
        };
        Ok(Spectral { tables: array, params, part: part.clone() })
    }

    /// The modes that its tables are for.
    pub fn part(&self) -> &Box3 {
        &self.part
    }

    /// The hook that multiplies.
    pub fn hook(&self) -> Hook {
        // Where it is used must have the part that its tables are for, which nobody has looked at.
        self.with(Hook::new(TEXT))
    }

    /// The same for those who use it with its own part.
    pub(crate) fn own_hook(&self) -> Hook {
        self.with(Hook::trusted(TEXT))
    }

    fn with(&self, hook: Hook) -> Hook {
        let fields = "table_starts: vec4<u32>, table_first: vec4<u32>, table_constant: vec4<f32>";
        hook.array("table", &self.tables).params(fields, &self.params)
    }
}

/// Multiplies modes by a table over the square of the mode number.
pub(super) struct Radial {
    kernel: Kernel,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct RadialParams {
    shape: [u32; 4],
    first: [u32; 4],
    local: [u32; 4],
}

impl Default for Radial {
    fn default() -> Self {
        let source = KernelSource::new("fft::radial", include_str!("../../shaders/fft/radial.wgsl"))
            .fields("shape: vec4<u32>, first: vec4<u32>, local: vec4<u32>")
            .array("spectrum", Element::Complex32, Access::ReadWrite)
            .array("amplitudes", Element::F32, Access::Read);
        Radial { kernel: Kernel::trusted(source) }
    }
}

impl Radial {
    /// The kernel's text.
    #[doc(hidden)]
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
        if spectrum.len() < volume(part) {
            let why = format!("a spectrum of {} elements, this rank's part has {}", spectrum.len(), volume(part));
            return Err(DeviceError::Misuse { what: "Transform::scale_radially".into(), why });
        }
        let table = recorder.gpu().array("fft::amplitudes", amplitudes.len() as u64)?;
        recorder.upload(&table, 0, amplitudes)?;
        let word = |v: [u64; 3]| [v[0], v[1], v[2], 0].map(|n| n as u32);
        let params = RadialParams {
            shape: word(shape),
            first: word([0, 1, 2].map(|a| part[a].start)),
            local: word(extent(part)),
        };
        recorder.each(&self.kernel, &[spectrum.raw(), table.raw()], &params, volume(part))
    }
}

/// The kernel of [`Transform::scale_radially`](super::Transform::scale_radially), for tests that go over all of the
/// library's kernels.
#[doc(hidden)]
pub fn radial_source() -> KernelSource {
    Radial::default().source().clone()
}
