//! The density along the last axis, for a picture.

use super::{Result, Simulation};
use crate::gpu::{Kernel, KernelSource};
use crate::grid::extent;
use crate::rank::Rank;

crate::gpu::kernel_params! {
    struct ColumnParams {
        columns: u32,
        /// Cells of a column.
        depth: u32,
    }
}

/// Invocations of a workgroup.
const GROUP: u32 = 64;

/// Returns the kernel of means.
pub(super) fn kernel() -> KernelSource {
    KernelSource::new("pm::column_means", include_str!("../../shaders/pm/column_means.wgsl"))
        .params::<ColumnParams>()
        .group(GROUP)
}

impl Simulation {
    /// Returns the mean of the [density](Self::density) over the cells of each column along the
    /// last axis, which no rank shares: those of this rank's own cells, in C order. Only the means
    /// come to the host. Collective. Waits for the device.
    ///
    /// # Errors
    /// Same as [`density`](Self::density).
    pub fn projected_density(&mut self, rank: &mut Rank) -> Result<Vec<f32>> {
        let [rows, width, depth] = extent(&self.force.layout().own);
        let columns = rows * width;
        let density = rank.gpu.array::<f32>("pm::density", columns * depth)?;
        self.record_density(rank, &density)?;
        let means = rank.gpu.array::<f32>("pm::columns", columns)?;
        let params = ColumnParams { columns: columns as u32, depth: depth as u32 };
        let groups = columns.div_ceil(u64::from(GROUP));
        rank.recorder.dispatch(&Kernel::trusted(kernel()), &[density.raw(), means.raw()], &params, groups)?;
        self.force.check(&mut rank.recorder, &self.comms)?;
        Ok(rank.recorder.download(&means, 0, columns)?)
    }
}
