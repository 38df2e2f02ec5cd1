//! Random numbers of a transition.

use crate::inference::vector_space::Stream;
use crate::random::philox4x32;

/// Uniform numbers of a stream, one after the other.
pub(super) struct Uniforms {
    key: [u32; 2],
    next: u32,
}

impl Uniforms {
    pub fn new(stream: Stream) -> Self {
        Uniforms { key: [stream.0 as u32, (stream.0 >> 32) as u32], next: 0 }
    }

    /// Returns a number in [0, 1).
    pub fn next(&mut self) -> f64 {
        // White noise never uses this counter, since the last two words of its counters are 0.
        let words = philox4x32([self.next, 0, 0, u32::MAX - 1], self.key);
        self.next += 1;
        let bits = (u64::from(words[0]) << 32 | u64::from(words[1])) >> 11;
        bits as f64 * (-53.0_f64).exp2()
    }
}
