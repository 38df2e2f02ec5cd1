//! Buffers that wait to be used again.
//!
//! wgpu clears each new buffer before its first use and drivers allocate slowly, so arrays hand their buffers back
//! here. Sizes are rounded up to classes of one mantissa bit (2^k and 3 * 2^(k-1)), so that nearly equal sizes meet;
//! large ones only to whole MiB, so that they do not waste memory.

use std::collections::HashMap;

use super::array::Memory;

#[derive(Default)]
pub(super) struct Pool {
    free: HashMap<(Memory, u64), Vec<wgpu::Buffer>>,
}

impl Pool {
    /// The size class of `bytes`: the smallest 2^k or 3 * 2^(k-1) that holds it, at least 256; above 32 MiB whole MiB.
    pub fn class(bytes: u64) -> u64 {
        if bytes > 32 << 20 {
            return bytes.next_multiple_of(1 << 20);
        }
        let power = bytes.max(256).next_power_of_two();
        if bytes <= power / 4 * 3 { power / 4 * 3 } else { power }
    }

    pub fn take(&mut self, memory: Memory, size: u64) -> Option<wgpu::Buffer> {
        self.free.get_mut(&(memory, size))?.pop()
    }

    pub fn put(&mut self, memory: Memory, buffer: wgpu::Buffer) {
        self.free.entry((memory, buffer.size())).or_default().push(buffer);
    }

    /// Gives everything back to the driver; returns how many bytes that was.
    pub fn empty(&mut self) -> u64 {
        self.free.drain().flat_map(|(_, buffers)| buffers).map(|buffer| buffer.size()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;

    #[test]
    fn classes_hold_their_size_and_waste_at_most_a_half() {
        for bytes in [1u64, 255, 256, 257, 384, 385, 512, 1000, 1536, 1537, 1 << 30, (1 << 30) + 1] {
            let class = Pool::class(bytes);
            assert!(class >= bytes, "{bytes} in {class}");
            assert!(bytes <= 256 || class <= bytes * 3 / 2 + 1, "{bytes} in {class}");
            assert_eq!(class % 64, 0, "{bytes} in {class}");
        }
    }
}
