//! Which of all points a rank's are, however they are dealt to ranks.

use std::fmt;
use std::sync::Arc;

use crate::gpu::{Array, DeviceError, Recorder};
use crate::hash::{START, fnv1a};
use crate::host_memory::{self, HostMemoryError};
use crate::random::philox4x32;

/// The order of a rank's points among those of all ranks, which determines their noise.
#[derive(Clone, Debug, PartialEq)]
pub enum PointOrder {
    /// Rank by rank; the order of all points does not depend on the number of ranks.
    Ranks,
    /// By number.
    Numbers(PointNumbers),
}

/// Unique numbers of a rank's points, independent of the number of ranks; any u64.
#[derive(Clone)]
pub struct PointNumbers {
    host: Arc<[u64]>,
    /// Two words per number, low word first.
    device: Array<u32>,
    fingerprint: u64,
}

impl PointNumbers {
    /// Creates the numbers of this rank's points; submits.
    ///
    /// # Errors
    /// - [`DeviceError`] if the device fails.
    pub fn new(recorder: &mut Recorder, numbers: Vec<u64>) -> Result<Self, DeviceError> {
        let mut words: Vec<u32> = host_memory::reserve("numbers of points", 2 * numbers.len())?;
        words.extend(numbers.iter().flat_map(|&number| [number as u32, (number >> 32) as u32]));
        let device = recorder.uploaded("operators::numbers", &words)?;
        let fingerprint = fnv1a(START, bytemuck::cast_slice(&numbers));
        Ok(PointNumbers { host: numbers.into(), device, fingerprint })
    }

    /// Creates numbers from positions; points at one position are also told apart by their order.
    pub(super) fn of_positions(recorder: &mut Recorder, positions: &[[f64; 3]]) -> Result<Self, DeviceError> {
        let mut seen = std::collections::HashMap::new();
        host_memory::handled(|| seen.try_reserve(positions.len()))
            .map_err(|_| HostMemoryError { what: "numbers of points", bytes: size_of_val(positions) as u64 })?;
        let mut number = |position: &[f64; 3]| {
            let bits = position.map(f64::to_bits);
            let times: &mut u32 = seen.entry(bits).or_default();
            *times += 1;
            let [x, y, z] = bits.map(|bits| [bits as u32, (bits >> 32) as u32]);
            let words = philox4x32(philox4x32([x[0], x[1], y[0], y[1]], z), [*times, 0]);
            u64::from(words[1]) << 32 | u64::from(words[0])
        };
        let numbers = host_memory::collect("numbers of points", positions.iter().map(&mut number))?;
        PointNumbers::new(recorder, numbers)
    }

    /// Returns the numbers.
    #[must_use]
    pub fn get(&self) -> &[u64] {
        &self.host
    }

    /// Returns the numbers on the device, two words each, low word first.
    #[must_use]
    pub fn array(&self) -> &Array<u32> {
        &self.device
    }
}

impl PartialEq for PointNumbers {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.host, &other.host) || self.fingerprint == other.fingerprint && self.host == other.host
    }
}

impl fmt::Debug for PointNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PointNumbers({} of {:x})", self.host.len(), self.fingerprint)
    }
}
