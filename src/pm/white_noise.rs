//! White noise of a lattice on the device: the values of [`fill_white_noise`](crate::cosmology::fill_white_noise), to the last bit.

use crate::cosmology::white_noise;
use crate::gpu::primitives::{Count, Permute};
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};
use crate::grid::{Box3, extent, volume};

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

/// The kernel.
pub(super) fn kernel() -> KernelSource {
    KernelSource::new("pm::white_noise", include_str!("../../shaders/pm/white_noise.wgsl")).params::<NoiseParams>()
}

/// Rows of a lattice, and sites of a row, at most: the number of each takes one word.
const MOST: u64 = 1 << 32;

/// Fills `out` with the white noise of `seed` on the sites `own`, C order, of a lattice of this shape: the values of
/// [`fill_white_noise`](crate::cosmology::fill_white_noise) for this host by the site's number in the lattice, to the last bit. The device computes them but for some 15 in a
/// million, which it cannot decide and the host does. Waits for the device once.
///
/// # Errors
/// [`DeviceError::Misuse`] for a lattice with more than 2^32 rows or sites of a row, sites outside of it, or an array of another length; other
/// [`DeviceError`]s.
pub fn device_white_noise(
    recorder: &mut Recorder,
    seed: u64,
    shape: [u64; 3],
    own: &Box3,
    out: &Array<f32>,
) -> Result<(), DeviceError> {
    let (gpu, count) = (recorder.gpu().clone(), volume(own));
    let rows = shape[0].saturating_mul(shape[1]);
    let outside = own.iter().zip(shape).any(|(range, side)| range.end > side);
    if rows > MOST || shape[2] >= MOST || outside || out.len() != count {
        let why = format!("sites {own:?} of {shape:?}, 2^32 rows at most, and {} values", out.len());
        return Err(DeviceError::Misuse { what: "device_white_noise".into(), why });
    }
    let words = logarithms();
    let table = gpu.array::<u32>("pm::logarithms", words.len() as u64)?;
    recorder.upload(&table, 0, &words)?;
    // Sixteen times as many as are to be expected.
    let room = count / 4096 + 64;
    let unsure = gpu.array::<u32>("pm::unsure", room + 1)?;
    recorder.clear(&unsure);
    let [first, local] = [own.each_ref().map(|range| range.start), extent(own)].map(|n| n.map(|n| n as u32));
    let params = NoiseParams {
        first: [first[0], first[1], first[2], count as u32],
        local: [local[0], local[1], local[2], 0],
        seed: [seed as u32, (seed >> 32) as u32],
        shape: [shape[1] as u32, shape[2] as u32],
        room: room as u32,
    };
    recorder.each(&Kernel::trusted(kernel()), &[table.raw(), out.raw(), unsure.raw()], &params, count)?;
    let found = u64::from(recorder.download(&unsure, 0, 1)?[0]);
    // A list that is too short is none.
    let sites = if found > room { (0..count as u32).collect() } else { recorder.download(&unsure, 1, found)? };
    decide(recorder, seed, shape, own, &sites, out)
}

/// Computes the values of some sites on the host.
fn decide(
    recorder: &mut Recorder,
    seed: u64,
    shape: [u64; 3],
    own: &Box3,
    sites: &[u32],
    out: &Array<f32>,
) -> Result<(), DeviceError> {
    let [_, n1, n2] = extent(own).map(|n| n.max(1));
    let value = |&site: &u32| {
        let site = u64::from(site);
        let [i, j, k] = [site / n2 / n1 + own[0].start, site / n2 % n1 + own[1].start, site % n2 + own[2].start];
        white_noise(seed, (i * shape[1] + j) * shape[2] + k) as f32
    };
    let gpu = recorder.gpu().clone();
    let (index, values) = (gpu.array("pm::sites", sites.len() as u64)?, gpu.array("pm::values", sites.len() as u64)?);
    recorder.upload(&index, 0, sites)?;
    recorder.upload(&values, 0, &sites.iter().map(value).collect::<Vec<f32>>())?;
    Permute::new().scatter(recorder, &values, &index, out, 1, Count::All)
}

/// For each 128th `x` from 1 to 2: a number c of 16 bits behind the point, the least that is not below 1 / x, and `-ln c` times 2^63, low
/// word first.
fn logarithms() -> Vec<u32> {
    let entry = |n: u32| {
        let c = (128u32 << 16).div_ceil(128 + n);
        let ln = minus_ln(c);
        [c, ln as u32, (ln >> 32) as u32]
    };
    (0..128).flat_map(entry).collect()
}

/// `-ln(c / 2^16)` times 2^63, for `c` from 2^15 to 2^16: `2 artanh((1 - x) / (1 + x))` by its series in integers.
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
    fn logarithms_are_those_of_the_host() {
        for entry in logarithms().chunks(3) {
            let (c, ln) = (f64::from(entry[0]) / 65536.0, u64::from(entry[1]) | u64::from(entry[2]) << 32);
            assert!((ln as f64 * (-63f64).exp2() + c.ln()).abs() < 2e-16, "{entry:?}");
        }
    }
}
