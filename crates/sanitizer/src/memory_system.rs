//! Model of the memory behind a kernel's accesses: a cache of sectors, rows of DRAM, and a cache of
//! address translations. Pure.
//!
//! [`MemorySystem::replay`] returns a [`Replay`], to which a test feeds accesses in the order of a
//! dispatch; [`Replay::finish`] returns what they move. Workgroups that run at the same time are
//! taken one after the other: the model shows what an order of work costs, and no time.

use std::collections::HashMap;

/// The memory of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemorySystem {
    /// Bytes of the cache in front of the memory.
    pub cache: u64,
    /// Lines of a set of the cache, of which the least recently used makes room.
    pub ways: usize,
    /// Bytes of a line, which is one entry of the cache.
    pub line: u64,
    /// Bytes of a sector: parts of a line are read and written by themselves.
    pub sector: u64,
    /// Bytes of a row of a bank. A bank has one row open; to open another costs time.
    pub row: u64,
    /// Banks of all channels.
    pub banks: u64,
    /// Bytes of a page, whose translation is kept.
    pub page: u64,
    /// Translations that are kept: those that were used last.
    pub pages: usize,
}

/// Memory of an NVIDIA H100: 50 MB of L2, lines of 128 bytes; five stacks of HBM3 with 32
/// pseudo-channels of 16 banks and rows of 1 KiB each (JESD238). Translations: its times of strided
/// passes fit pages of 32 MiB and more than 256, fewer than 504 of them.
pub const H100_MEMORY: MemorySystem = MemorySystem {
    cache: 50_000_000,
    ways: 16,
    line: 128,
    sector: 32,
    row: 1024,
    banks: 5 * 32 * 16,
    page: 32 << 20,
    pages: 300,
};

/// Bytes, rows and translations of accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes read from memory.
    pub read: u64,
    /// Bytes written to memory.
    pub written: u64,
    /// Rows that were opened.
    pub rows: u64,
    /// Pages whose translation was not there.
    pub translations: u64,
}

#[derive(Clone, Default)]
struct Line {
    /// Number of the line in memory.
    number: u64,
    /// Sectors that are there, and those of them that memory does not have yet, by bits.
    valid: u32,
    dirty: u32,
    used: u64,
}

/// Accesses so far.
pub struct Replay {
    system: MemorySystem,
    lines: Vec<Line>,
    sets: u64,
    /// Row that each bank has open.
    open: Vec<u64>,
    /// When the translation of a page was used last.
    pages: HashMap<u64, u64>,
    clock: u64,
    moved: Moved,
}

impl MemorySystem {
    /// Returns a system for a problem whose planes are `fraction` of those of a larger one: cache
    /// and translations reach as far into it.
    #[must_use]
    pub fn scaled(self, fraction: f64) -> Self {
        MemorySystem { cache: (self.cache as f64 * fraction) as u64, ..self }
    }

    /// Begins with empty caches.
    #[must_use]
    pub fn replay(self) -> Replay {
        let sets = (self.cache / (self.line * self.ways as u64)).max(1);
        Replay {
            system: self,
            lines: vec![Line::default(); sets as usize * self.ways],
            sets,
            open: vec![u64::MAX; self.banks as usize],
            pages: HashMap::new(),
            clock: 0,
            moved: Moved::default(),
        }
    }
}

/// Spreads neighbors over sets and banks, as hashes of addresses do.
fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

impl Replay {
    /// Reads the byte at an address; writes it, too, if `writes`.
    pub fn access(&mut self, address: u64, writes: bool) {
        self.touch(address, true, writes);
    }

    /// Writes the whole sector at an address, which is not read before.
    pub fn overwrite(&mut self, address: u64) {
        self.touch(address, false, true);
    }

    fn touch(&mut self, address: u64, reads: bool, writes: bool) {
        self.clock += 1;
        let MemorySystem { ways, line, sector, .. } = self.system;
        let (number, bit) = (address / line, 1 << (address % line / sector));
        let first = (spread(number) % self.sets) as usize * ways;
        let set = first..first + ways;
        let found = set.clone().find(|&way| self.lines[way].valid > 0 && self.lines[way].number == number);
        let way = found.unwrap_or_else(|| {
            let way = set.min_by_key(|&way| if self.lines[way].valid > 0 { self.lines[way].used } else { 0 });
            let way = way.unwrap_or(first);
            self.evict(way);
            self.lines[way] = Line { number, ..Line::default() };
            way
        });
        if reads && self.lines[way].valid & bit == 0 {
            self.moved.read += sector;
            self.open(address);
        }
        let line = &mut self.lines[way];
        (line.valid, line.used) = (line.valid | bit, self.clock);
        if writes {
            line.dirty |= bit;
        }
        self.translate(address);
    }

    /// Writes the sectors of a line that memory does not have.
    fn evict(&mut self, way: usize) {
        let Line { number, dirty, .. } = self.lines[way];
        if dirty > 0 {
            self.moved.written += u64::from(dirty.count_ones()) * self.system.sector;
            self.open(number * self.system.line);
        }
    }

    fn open(&mut self, address: u64) {
        let row = address / self.system.row;
        let bank = &mut self.open[(spread(row) % self.system.banks) as usize];
        if *bank != row {
            *bank = row;
            self.moved.rows += 1;
        }
    }

    fn translate(&mut self, address: u64) {
        let page = address / self.system.page;
        if self.pages.insert(page, self.clock).is_none() {
            self.moved.translations += 1;
            if self.pages.len() > self.system.pages {
                let oldest = self.pages.iter().min_by_key(|(_, used)| **used).map(|(page, _)| *page);
                oldest.map(|page| self.pages.remove(&page));
            }
        }
    }

    /// Writes what memory does not have, and returns what was moved in all.
    #[must_use]
    pub fn finish(mut self) -> Moved {
        (0..self.lines.len()).for_each(|way| self.evict(way));
        self.moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache of 8 lines of 4 sectors in one set, banks of two rows, and two translations.
    const SMALL: MemorySystem =
        MemorySystem { cache: 1024, ways: 8, line: 128, sector: 32, row: 256, banks: 1, page: 4096, pages: 2 };

    fn moved(accesses: impl IntoIterator<Item = (u64, bool)>) -> Moved {
        let mut replay = SMALL.replay();
        accesses.into_iter().for_each(|(address, writes)| replay.access(address, writes));
        replay.finish()
    }

    #[test]
    fn sectors_are_read_once_while_they_stay() {
        // Bytes of one sector, of another of the line, and the first again.
        let found = moved([(0, false), (31, false), (32, false), (0, false)]);
        assert_eq!(found, Moved { read: 64, written: 0, rows: 1, translations: 1 });
        // The ninth line takes the place of the one that was used least recently, the second.
        let lines = (0..8).chain([0, 8]).map(|line| (128 * line, false));
        assert_eq!(moved(lines.clone()).read, 9 * 32);
        assert_eq!(moved(lines.clone().chain([(0, false)])).read, 9 * 32);
        assert_eq!(moved(lines.chain([(128, false)])).read, 10 * 32);
    }

    #[test]
    fn what_was_written_returns_once() {
        // Two sectors of a line, one of them twice; and one that is pushed out.
        assert_eq!(moved([(0, true), (40, true), (44, true)]).written, 64);
        let pushed_out = (0..9).map(|line| (128 * line, line == 0));
        assert_eq!(moved(pushed_out.clone()).written, 32);
        assert_eq!(moved(pushed_out.chain([(0, true)])).written, 64);
        // A sector that is written whole is not read, and is there for those who read it.
        let mut replay = SMALL.replay();
        replay.overwrite(64);
        replay.access(80, false);
        assert_eq!(replay.finish(), Moved { read: 0, written: 32, rows: 1, translations: 1 });
    }

    #[test]
    fn rows_and_pages_are_opened_when_others_were() {
        let rows = |addresses: &[u64]| moved(addresses.iter().map(|&address| (address, false))).rows;
        assert_eq!(rows(&[0, 32, 64, 224, 256, 288]), 2);
        assert_eq!(rows(&[0, 256, 64, 320]), 4);
        let pages = |addresses: &[u64]| moved(addresses.iter().map(|&address| (address, false))).translations;
        assert_eq!(pages(&[0, 4096, 0, 4096]), 2);
        assert_eq!(pages(&[0, 4096, 8192, 4096, 0]), 4);
    }

    #[test]
    fn strided_rows_open_a_row_of_memory_each() {
        // 64 MiB as planes of 1 MiB, read by tiles of 64 or 128 bytes across all planes.
        let rows = |tile: u64| {
            let mut replay = H100_MEMORY.replay();
            for column in 0..(1 << 20) / tile / 64 {
                for plane in 0..64 {
                    for at in (0..tile).step_by(32) {
                        replay.access((plane << 20) + column * tile + at, false);
                    }
                }
            }
            replay.finish()
        };
        let [narrow, wide] = [64, 128].map(rows);
        assert_eq!((narrow.read, wide.read), (1 << 20, 1 << 20));
        // Neighboring tiles find the row open, as there are more banks than planes.
        assert!(narrow.rows < 2 * wide.rows && wide.rows >= 64, "{narrow:?} {wide:?}");
    }
}
