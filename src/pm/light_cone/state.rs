//! A run's state at an end of a step, kept on the device.

use crate::comm::Op;
use crate::gpu::primitives::{Count, Reduce};
use crate::gpu::{Array, Recorder};
use crate::pm::SimulationError;

/// Displacements and momenta at an end of a step, in one array each: along x, then y, then z.
pub(super) struct State {
    pub a: f64,
    pub position: Array<f32>,
    pub momentum: Array<f32>,
    /// The greatest displacement along an axis, and the greatest component of a momentum.
    pub most: [f64; 2],
}

impl State {
    /// Copies of `arrays`. Waits for two words of each.
    pub fn new(recorder: &mut Recorder, a: f64, arrays: [&[Array<f32>; 3]; 2]) -> Result<Self, SimulationError> {
        let gpu = recorder.gpu().clone();
        let count = arrays[0][0].len();
        let mut joined = |label: &str, arrays: &[Array<f32>; 3]| {
            let all = gpu.array::<f32>(label, 3 * count)?;
            for (axis, array) in (0..).zip(arrays) {
                recorder.copy(array, 0, &all, axis * count, count)?;
            }
            Ok::<_, SimulationError>(all)
        };
        let position = joined("pm::cone_position", arrays[0])?;
        let momentum = joined("pm::cone_momentum", arrays[1])?;
        let (reduce, mut most) = (Reduce::new(), [0.0f64; 2]);
        for (most, array) in most.iter_mut().zip([&position, &momentum]) {
            let ends = [gpu.array::<f32>("pm::cone_least", 1)?, gpu.array::<f32>("pm::cone_most", 1)?];
            reduce.record(recorder, Op::Min, array, &ends[0], Count::All)?;
            reduce.record(recorder, Op::Max, array, &ends[1], Count::All)?;
            for end in ends {
                *most = most.max(f64::from(recorder.download(&end, 0, 1)?[0].abs()));
            }
        }
        // Of no particles the least is infinite.
        let most = if count == 0 { [0.0; 2] } else { most };
        Ok(State { a, position, momentum, most })
    }
}
