//! What the accesses of a dispatch cost a GPU: sectors of memory, and conflicts in workgroup memory.

use super::interpreter::Interpreter;
use super::memory::{NOWHERE, Pointer, Root};
use super::program::Leaf;
use crate::gpu::machine::H100;

/// Accesses of a dispatch, by subgroups: each takes the sectors that its lanes touch together, or as many cycles as the busiest bank.
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

impl Interpreter<'_> {
    /// Counts an access.
    pub(super) fn count(&mut self, pointer: &Pointer, leaves: &[Leaf], mask: &[u32]) {
        let Some(traffic) = &mut self.report.traffic else { return };
        let places = |part: &[u32]| -> Vec<u64> {
            part.iter().map(|&lane| pointer.offset.get(0, lane)).filter(|&at| at < NOWHERE).collect()
        };
        let parts = mask.chunk_by(|a, b| a / self.subgroup == b / self.subgroup).map(places);
        let bytes: u64 = leaves.iter().map(|leaf| u64::from(leaf.scalar.width)).sum();
        match pointer.root {
            Root::Buffer(binding) if binding > 0 && bytes > 0 => {
                for places in parts {
                    let mut words: Vec<u64> = places.iter().flat_map(|at| at / 4..(at + bytes).div_ceil(4)).collect();
                    words.sort_unstable();
                    words.dedup();
                    let sector = u64::from(H100.sector);
                    let sectors = words.chunk_by(|a, b| a * 4 / sector == b * 4 / sector).count() as u64;
                    traffic.requests += 1;
                    traffic.wanted += 4 * words.len() as u64;
                    traffic.moved += sector * sectors;
                }
            }
            Root::Workgroup(_) if matches!(bytes, 4 | 8 | 16) => {
                for places in parts.filter(|places| !places.is_empty()) {
                    let elements: Vec<u64> = places.iter().map(|at| at / bytes).collect();
                    let needed = (places.len() as u64 * bytes).div_ceil(4 * u64::from(H100.banks)) as f64;
                    traffic.needed += needed;
                    traffic.cycles += needed * H100.conflicts(&elements, bytes as u32);
                }
            }
            _ => {}
        }
    }
}
