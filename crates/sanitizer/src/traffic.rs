//! Cost of the accesses of a dispatch on a GPU: sectors of memory, and conflicts in workgroup
//! memory.

use crate::machine::H100;

/// Accesses of a dispatch, counted by subgroup. An access to a buffer costs the sectors that its
/// lanes touch. An access to workgroup memory costs the cycles of its busiest bank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Accesses to buffers, those to parameters left out.
    pub requests: u64,
    /// Bytes that these want, each once for an access.
    pub wanted: u64,
    /// Bytes of the sectors of an H100 that they move, caches left out.
    pub moved: u64,
    /// Accesses to workgroup memory, as cycles that their bytes need.
    pub needed: f64,
    /// Cycles that they take.
    pub cycles: f64,
}

impl Traffic {
    /// Counts an access of a subgroup to a buffer: `bytes` bytes from each of `places` on.
    pub fn buffer(&mut self, places: &[u64], bytes: u64) {
        let mut words: Vec<u64> = places.iter().flat_map(|at| at / 4..(at + bytes).div_ceil(4)).collect();
        words.sort_unstable();
        words.dedup();
        let sector = u64::from(H100.sector);
        let sectors = words.chunk_by(|a, b| a * 4 / sector == b * 4 / sector).count() as u64;
        self.requests += 1;
        self.wanted += 4 * words.len() as u64;
        self.moved += sector * sectors;
    }

    /// Counts an access of a subgroup to workgroup memory: 4, 8 or 16 bytes from each of `places`
    /// on.
    pub fn workgroup(&mut self, places: &[u64], bytes: u64) {
        let elements: Vec<u64> = places.iter().map(|at| at / bytes).collect();
        let needed = (places.len() as u64 * bytes).div_ceil(4 * u64::from(H100.banks)) as f64;
        self.needed += needed;
        self.cycles += needed * H100.conflicts(&elements, bytes as u32);
    }
}
