//! White noise of a lattice on the device, of sites or of modes: the values of [`white_noise`] and
//! [`mode_noise`], to the last bit.

use std::f64::consts::SQRT_2;

use super::Result;
use super::moves::box_words;
use crate::field::Field;
use crate::gpu::primitives::{Count, Permute};
use crate::gpu::{Array, DeviceError, Kernel, KernelParams, KernelSource, RawArray, Recorder};
use crate::grid::{Box3, Mesh, extent, volume};
use crate::host_memory;
use crate::random::{mode_noise, white_noise};
use crate::rank::Rank;

crate::gpu::kernel_params! {
    struct NoiseParams {
        /// First site, and number of sites of this rank.
        first: [u32; 4],
        /// Sites of this rank along each axis.
        local: [u32; 4],
        seed: [u32; 2],
        /// Sites along the second and third axis of the whole lattice.
        shape: [u32; 2],
        /// Sites that the list for the host has room for.
        room: u32,
    }
}

crate::gpu::kernel_params! {
    struct ModeNoiseParams {
        /// First mode, and twice the number of modes of this rank.
        first: [u32; 4],
        /// Modes of this rank along each axis.
        local: [u32; 4],
        seed: [u32; 2],
        /// Factor of the numbers, and factor for modes that are their own twins.
        scale: [f32; 2],
        /// Sites along each axis of the whole lattice.
        side: u32,
        /// Numbers that the list for the host has room for.
        room: u32,
    }
}

/// Returns the kernels: of sites, of modes, and of points.
pub(super) fn kernels() -> [KernelSource; 3] {
    let noise = |label: &str, text: &'static str| {
        KernelSource::new(label, text).module("pm::normal", include_str!("../../shaders/pm/normal.wgsl"))
    };
    let numbered = |numbered: bool| {
        let source = noise("pm::white_noise", include_str!("../../shaders/pm/white_noise.wgsl"));
        source.params::<NoiseParams>().flag("numbered", numbered)
    };
    let modes = noise("pm::mode_noise", include_str!("../../shaders/pm/mode_noise.wgsl"));
    [numbered(false), modes.params::<ModeNoiseParams>(), numbered(true)]
}

/// Rows of a lattice, and sites of a row, at most: the number of each takes one word.
const MOST: u64 = 1 << 32;

/// Checks that `own` lies in a lattice of `shape` and has `values` sites.
fn check(what: &str, shape: [u64; 3], own: &Box3, values: u64) -> Result<(), DeviceError> {
    let inside = own.iter().zip(shape).all(|(range, n)| range.end <= n);
    if inside && shape[0].saturating_mul(shape[1]) <= MOST && shape[2] < MOST && values == volume(own) {
        return Ok(());
    }
    let why = format!("{own:?} of {shape:?}, 2^32 rows at most, and {values} values");
    Err(DeviceError::Misuse { what: what.into(), why })
}

impl Rank {
    /// Creates a field of white noise: normal numbers of mean 0 and variance 1, functions of `seed`
    /// and the cell. Ghost cells are 0 until they are [exchanged](Self::exchange_ghosts).
    ///
    /// [Collective](Self); blocks. Same bits on any number of ranks, and the values of
    /// [`random::white_noise`](crate::random::white_noise) for the number of the cell in C order,
    /// rounded to f32.
    ///
    /// ```
    /// meshloom::run(|rank| {
    ///     let mesh = rank.mesh([16, 16, 16]).periodic([1.0; 3]).build()?;
    ///     let noise = rank.fill_white_noise(&mesh, 42)?;
    ///     let variance = rank.dot(&noise, &noise)? / 4096.0;
    ///     assert!((variance - 1.0).abs() < 0.1);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`Comm`](super::SimulationError::Comm) if ranks pass different seeds or meshes, or another
    ///   rank fails.
    /// - [`Device`](super::SimulationError::Device) if device memory is short, or the mesh has more
    ///   than 2^32 rows or cells of a row.
    pub fn fill_white_noise(&mut self, mesh: &Mesh, seed: u64) -> Result<Field> {
        self.comm.agree("Rank::fill_white_noise", &[("mesh", &mesh.to_string()), ("seed", &seed)])?;
        let values = self.gpu.array::<f32>("white_noise", mesh.own_cells())?;
        device_white_noise(&mut self.recorder, seed, mesh.shape(), mesh.own(), &values)?;
        if !mesh.has_ghosts() {
            return Ok(Field::from_array(mesh, values, 1)?);
        }
        let field = self.new_field(mesh, 1)?;
        self.set_own_cells(&values, &field)?;
        Ok(field)
    }
}

/// Fills `out` with the white noise of `seed` on the sites `own`, C order, of a lattice of this
/// shape: the same bits as [`fill_white_noise`](crate::random::fill_white_noise) on this host, by
/// the site's number in the lattice. The device computes all but some 15 in a million, which it
/// cannot decide and leaves to the host. Waits for the device once.
///
/// # Errors
/// [`DeviceError::Misuse`] for a lattice with more than 2^32 rows or sites of a row, sites outside
/// of it, or an array of another length; other [`DeviceError`]s.
pub fn device_white_noise(
    recorder: &mut Recorder,
    seed: u64,
    shape: [u64; 3],
    own: &Box3,
    out: &Array<f32>,
) -> Result<(), DeviceError> {
    check("device_white_noise", shape, own, out.len())?;
    let params = |room: u32| NoiseParams::new(seed, shape, own, room);
    let value = |site: u64| {
        let [i, j, k] = place(own, site);
        white_noise(seed, (i * shape[1] + j) * shape[2] + k) as f32
    };
    let [sites, ..] = kernels();
    fill(recorder, (sites, None), params, out, value)
}

impl NoiseParams {
    fn new(seed: u64, shape: [u64; 3], own: &Box3, room: u32) -> Self {
        let ([first, local], shape) = (box_words(own, volume(own)), [shape[1] as u32, shape[2] as u32]);
        NoiseParams { first, local, seed: words(seed), shape, room }
    }
}

/// Returns the two words of a number, low word first.
fn words(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

/// Returns the place of the element with this number in `own`, C order.
fn place(own: &Box3, number: u64) -> [u64; 3] {
    let [_, n1, n2] = extent(own);
    [number / n2 / n1 + own[0].start, number / n2 % n1 + own[1].start, number % n2 + own[2].start]
}

/// Fills `out` with the white noise of `seed` at points of these numbers: as
/// [`device_white_noise`], for which a site's number is its place in the lattice. The numbers are
/// given on the device, two words each, low word first, and on the host. Waits for the device once.
///
/// # Errors
/// [`DeviceError::Misuse`] for arrays of other lengths; other [`DeviceError`]s.
pub fn device_point_noise(
    recorder: &mut Recorder,
    seed: u64,
    (device, host): (&Array<u32>, &[u64]),
    out: &Array<f32>,
) -> Result<(), DeviceError> {
    let count = host.len() as u64;
    if device.len() != 2 * count || out.len() != count || count >= MOST / 2 {
        let why = format!(
            "{} words of {count} numbers, {} values; two words for each value, of less than 2^31",
            device.len(),
            out.len()
        );
        return Err(DeviceError::Misuse { what: "device_point_noise".into(), why });
    }
    // The points are the sites of a row.
    let params = |room: u32| NoiseParams::new(seed, [1, 1, count], &[0..1, 0..1, 0..count], room);
    let [.., points] = kernels();
    fill(recorder, (points, Some(device.raw())), params, out, |point| white_noise(seed, host[point as usize]) as f32)
}

/// Fills `out` with the modes `part` of the half spectrum of the white noise of `seed` on a lattice
/// with `side` sites along each axis: those of [`mode_noise`], times sqrt(side^3 / 2), so that the
/// transform back, with its factor of 1 / side^3, is white noise of unit variance. The last bits
/// are those of this host. Waits for the device once.
///
/// # Errors
/// Same as [`device_white_noise`], for modes.
pub fn device_mode_noise(
    recorder: &mut Recorder,
    seed: u64,
    side: u64,
    part: &Box3,
    out: &Array<[f32; 2]>,
) -> Result<(), DeviceError> {
    check("device_mode_noise", [side, side, side / 2 + 1], part, out.len())?;
    let [first, local] = box_words(part, 2 * out.len());
    let plain = (side as f64).powi(3).sqrt() / SQRT_2;
    let scale = [plain, plain * SQRT_2].map(|scale| scale as f32);
    let params = |room: u32| ModeNoiseParams { first, local, seed: words(seed), scale, side: side as u32, room };
    let value = |number: u64| mode_value(seed, side, place(part, number / 2), scale)[(number % 2) as usize];
    let [_, modes, _] = kernels();
    fill(recorder, (modes, None), params, &out.cast()?, value)
}

/// Returns the mode at this place of the half spectrum of a lattice: by its wave vector, or that of
/// its twin.
fn mode_value(seed: u64, side: u64, at: [u64; 3], [plain, own_twin]: [f32; 2]) -> [f32; 2] {
    let signed = at.map(|index| index as i64 - if 2 * index > side { side as i64 } else { 0 });
    let nyquist = at.map(|index| 2 * index == side);
    let sign = (0..3).rev().filter(|&axis| !nyquist[axis]).map(|axis| signed[axis].signum()).find(|&sign| sign != 0);
    let wave = [0, 1, 2].map(|axis| (signed[axis] * if nyquist[axis] { 1 } else { sign.unwrap_or(1) }) as i32);
    let [re, im] = mode_noise(seed, wave).map(|value| value as f32);
    match sign {
        None => [re * own_twin, 0.0],
        Some(sign) => [re * plain, im * plain * sign as f32],
    }
}

/// Runs a kernel of noise, which may read an array, and has the host compute by `value` the numbers
/// that it cannot decide.
fn fill<P: KernelParams>(
    recorder: &mut Recorder,
    (kernel, read): (KernelSource, Option<&RawArray>),
    params: impl Fn(u32) -> P,
    out: &Array<f32>,
    value: impl Fn(u64) -> f32,
) -> Result<(), DeviceError> {
    let count = out.len();
    let table = recorder.uploaded("pm::logarithms", &logarithms())?;
    // Sixteen times as many as are to be expected.
    let room = count / 4096 + 64;
    let unsure = recorder.gpu().array::<u32>("pm::unsure", room + 1)?;
    recorder.clear(&unsure);
    let arrays: Vec<&RawArray> = [table.raw()].into_iter().chain(read).chain([out.raw(), unsure.raw()]).collect();
    recorder.each(&Kernel::trusted(kernel), &arrays, &params(room as u32), count)?;
    let found = u64::from(recorder.download(&unsure, 0, 1)?[0]);
    // A list that is too short is none.
    let numbers = if found > room {
        host_memory::collect("white noise", 0..count as u32)?
    } else {
        recorder.download(&unsure, 1, found)?
    };
    let index = recorder.uploaded("pm::numbers", &numbers)?;
    let exact = host_memory::collect("white noise", numbers.iter().map(|&number| value(number.into())))?;
    let values = recorder.uploaded("pm::values", &exact)?;
    Permute::new().scatter(recorder, &values, &index, out, 1, Count::All)
}

/// For each 128th `x` from 1 to 2: a number c of 16 bits behind the point, the least that is not
/// below 1 / x, and `-ln c` times 2^63, low word first.
fn logarithms() -> Vec<u32> {
    let entry = |n: u32| {
        let c = (128u32 << 16).div_ceil(128 + n);
        let ln = minus_ln(c);
        [c, ln as u32, (ln >> 32) as u32]
    };
    (0..128).flat_map(entry).collect()
}

/// `-ln(c / 2^16)` times 2^63, for `c` from 2^15 to 2^16: `2 artanh((1 - x) / (1 + x))` by its
/// series in integers.
fn minus_ln(c: u32) -> u64 {
    const ONE: u128 = 1 << 16;
    let x = ((ONE - u128::from(c)) << 63) / (ONE + u128::from(c));
    let square = (x * x) >> 63;
    let (mut power, mut sum) = (x, 0);
    // x is at most a third: powers end before the 21st.
    for n in 0..21 {
        sum += power / (2 * n + 1);
        power = (power * square) >> 63;
    }
    (2 * sum) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins_are_conjugate_and_modes_do_not_depend_on_the_lattice() {
        for side in [1u64, 2, 5, 6] {
            let scale = [1.0, std::f32::consts::SQRT_2];
            for at in (0..side.pow(3)).map(|i| [i / side / side, i / side % side, i % side]) {
                let twin = at.map(|index| (side - index) % side);
                let ([a, b], [c, d]) = (mode_value(3, side, at, scale), mode_value(3, side, twin, scale));
                assert_eq!((a, b), (c, -d), "{side} {at:?}");
                assert_eq!(b == 0.0, at == twin, "{side} {at:?}");
                // The same wave vector in a lattice of three times as many sites, except the
                // Nyquist frequency.
                if at.iter().all(|&index| 2 * index != side) {
                    let there = at.map(|index| if 2 * index > side { index + 2 * side } else { index });
                    assert_eq!(mode_value(3, 3 * side, there, scale), [a, b], "{side} {at:?}");
                }
            }
        }
    }

    #[test]
    fn logarithms_are_those_of_the_host() {
        for entry in logarithms().chunks(3) {
            let (c, ln) = (f64::from(entry[0]) / 65536.0, u64::from(entry[1]) | u64::from(entry[2]) << 32);
            assert!((ln as f64 * (-63f64).exp2() + c.ln()).abs() < 2e-16, "{entry:?}");
        }
    }
}
