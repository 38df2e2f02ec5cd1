//! A run's state at an end of a step, kept on the device.

use crate::exchange::ExactSum;
use crate::gpu::{Array, Recorder};
use crate::pm::gradient::vectors::pack;
use crate::pm::{Result, SimulationError};

/// Displacements and momenta at an end of a step, in one array each: along x, then y, then z.
pub(super) struct State {
    pub a: f64,
    pub position: Array<f32>,
    pub momentum: Array<f32>,
    /// The greatest displacement along an axis, and the greatest component of a momentum.
    pub most: [f64; 2],
}

impl State {
    /// Copies of `arrays`. Waits for a word of each.
    pub fn new(recorder: &mut Recorder, a: f64, arrays: [&[Array<f32>; 3]; 2]) -> Result<Self> {
        let gpu = recorder.gpu().clone();
        let mut joined = |label: &str, arrays: &[Array<f32>; 3]| {
            let all = gpu.array::<f32>(label, 3 * arrays[0].len())?;
            pack(recorder, arrays, &all, 0)?;
            Ok::<_, SimulationError>(all)
        };
        let position = joined("pm::cone_position", arrays[0])?;
        let momentum = joined("pm::cone_momentum", arrays[1])?;
        let (sum, bits) = (ExactSum::default(), gpu.array::<u32>("pm::cone_most", 1)?);
        let mut most = |array: &Array<f32>| {
            sum.magnitude(recorder, None, array, &bits)?;
            Ok::<_, SimulationError>(f64::from(f32::from_bits(recorder.download(&bits, 0, 1)?[0])))
        };
        let most = [most(&position)?, most(&momentum)?];
        Ok(State { a, position, momentum, most })
    }
}
