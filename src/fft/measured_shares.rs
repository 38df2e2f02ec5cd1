//! Shares of ranks in proportion to the speeds of their devices.

use std::time::Instant;

use super::{FftError, Transform, TransformError};
use crate::comm::Communicator;
use crate::exchange::GridComms;
use crate::gpu::primitives::{Count, Keys, Sort};
use crate::grid::{Grid, Shares};
use crate::host_memory;
use crate::rank::Rank;

/// Sides of the first and the last mesh that is transformed.
const SIDES: [u64; 2] = [32, 256];
/// Seconds of the fastest device with which the mesh is large enough.
const ENOUGH: f64 = 0.02;
/// Timed runs, of which the fastest counts.
const RUNS: usize = 5;
/// Devices whose seconds differ from the next faster one by less than this factor have one speed.
const ALIKE: f64 = 1.2;

impl Rank {
    /// Measures the devices of all ranks at the same time and returns shares in proportion to their
    /// speeds, the same on all ranks. [Collective](Self); blocks.
    ///
    /// Each rank transforms a complex mesh of its own forward and back and sorts as many keys: work
    /// on floats and on integers, of which drivers may be good at one. The side of the mesh doubles
    /// from 32 until the fastest device takes 20 ms, at most to 256, which takes 1 GB of device
    /// memory. The fastest of five runs counts, and the mean of the ranks that share an open
    /// device. Devices whose times differ by less than a fifth from the next faster one have equal
    /// shares, and shares are rounded to a tenth of the smallest one. This method does not set
    /// them: pass them to [`set_shares`](Self::set_shares).
    ///
    /// # Errors
    /// - [`TransformError::Fft`] if a device is out of memory.
    /// - [`TransformError::Exchange`] if a device or another rank fails.
    pub fn measured_shares(&mut self) -> Result<Shares, TransformError> {
        let mut side = SIDES[0];
        loop {
            let own = self.work_seconds(side)?.to_bits();
            let all = self.comm.all_gather(&[[self.device_number(), own]])?;
            let seconds =
                of_devices(&all.iter().map(|&[device, bits]| (device, f64::from_bits(bits))).collect::<Vec<_>>());
            let fastest = seconds.iter().copied().fold(f64::INFINITY, f64::min);
            if fastest >= ENOUGH || side >= SIDES[1] {
                tracing::debug!(rank = self.index(), side, ?seconds, "devices measured");
                return Ok(Shares::new(&in_proportion(&seconds)).map_err(FftError::from)?);
            }
            side *= 2;
        }
    }

    /// Returns the least seconds of a transform, its inverse and a sort on this device. Collective,
    /// so that ranks that share a device work at the same time.
    fn work_seconds(&mut self, side: u64) -> Result<f64, TransformError> {
        let grid = Grid::new([1, 1], 1).map_err(FftError::from)?;
        let mut comms = GridComms::new(&Communicator::solo(), grid)?;
        let transform = Transform::<[f32; 2]>::new(&self.gpu, [side; 3], grid, 0)?;
        let layout = transform.field_layout();
        let (field, spectrum) = (transform.field(&self.gpu, &layout)?, transform.spectrum(&self.gpu)?);
        self.recorder.clear(&field);
        let (sort, count) = (Sort::new(&self.gpu), side.pow(3));
        let mixed = (0..count as u32).map(|i| i.wrapping_mul(2_654_435_761));
        let keys = self.recorder.uploaded("fft::keys", &host_memory::collect("keys of a measurement", mixed)?)?;
        let order = self.gpu.array("fft::order", count)?;
        let mut least = f64::INFINITY;
        // The first run compiles the kernels.
        for run in 0..=RUNS {
            self.recorder.wait()?;
            self.comm.barrier()?;
            let start = Instant::now();
            transform.forward(&mut self.recorder, &mut comms, &field, &layout, &spectrum)?;
            transform.inverse(&mut self.recorder, &mut comms, &spectrum, &field, &layout)?;
            sort.order(&mut self.recorder, Keys::U32(&keys), &order, Count::All)?;
            self.recorder.wait()?;
            if run > 0 {
                least = least.min(start.elapsed().as_secs_f64());
            }
        }
        Ok(least.max(1e-9))
    }
}

/// Returns the seconds of each rank, given with the number of its device: the mean of the ranks on
/// the device.
fn of_devices(ranks: &[(u64, f64)]) -> Vec<f64> {
    let mean = |device: u64| {
        let alike = ranks.iter().filter(|rank| rank.0 == device).map(|rank| rank.1);
        alike.clone().sum::<f64>() / alike.count() as f64
    };
    ranks.iter().map(|rank| mean(rank.0)).collect()
}

/// Returns the shares of ranks that take these seconds for equal work.
fn in_proportion(seconds: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..seconds.len()).collect();
    order.sort_by(|&a, &b| seconds[a].total_cmp(&seconds[b]));
    let mut means = vec![0.0; seconds.len()];
    for alike in order.chunk_by(|&fast, &slow| seconds[slow] < ALIKE * seconds[fast]) {
        let mean = alike.iter().map(|&rank| seconds[rank]).sum::<f64>() / alike.len() as f64;
        alike.iter().for_each(|&rank| means[rank] = mean);
    }
    let slowest = means.iter().copied().fold(0.0, f64::max);
    means.iter().map(|mean| (10.0 * slowest / mean).round() / 10.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_one_speed_have_equal_shares() {
        let shares = |seconds: &[f64]| Shares::new(&in_proportion(seconds)).unwrap();
        assert_eq!(shares(&[0.010, 0.011, 0.0105]), Shares::from(3));
        assert_eq!(shares(&[0.3]), Shares::from(1));
        assert_eq!(shares(&[0.010, 0.040, 0.011, 0.044]), Shares::new(&[4.0, 1.0, 4.0, 1.0]).unwrap());
        assert_eq!(of_devices(&[(7, 1.0), (8, 5.0), (7, 3.0)]), [2.0, 5.0, 2.0]);
        // Exactly equal shares within a group, rounded to a tenth between groups.
        assert_eq!(shares(&[0.02, 0.031]), Shares::new(&[1.6, 1.0]).unwrap());
    }
}
