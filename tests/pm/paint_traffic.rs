//! Memory traffic of painting on an H100, by additions to memory and by tiles, by the model of its
//! memory and the positions of a run.

use std::io::Write as _;

use meshloom_sanitizer::memory_system::{Moved, Replay};

use super::memory_traffic::{CELLS, LATE, SITES, cells_of, particle_of, system};

const TILE: [u64; 3] = [8, 8, 32];
const TILES: [u64; 3] = [CELLS[0] / TILE[0], CELLS[1] / TILE[1], CELLS[2] / TILE[2]];
const PARTICLES: u64 = SITES[0] * SITES[1] * SITES[2];
const ALL_CELLS: u64 = CELLS[0] * CELLS[1] * CELLS[2];

/// Bytes between arrays in the model's memory.
const APART: u64 = 1 << 32;

/// Arrays of the kernels that paint by tiles.
#[derive(Clone, Copy)]
enum Memory {
    Positions,
    Counts,
    Lists,
    Order,
    Density,
}

impl Memory {
    /// Returns the address of an element of `bytes` bytes.
    fn at(self, element: u64, bytes: u64) -> u64 {
        self as u64 * 4 * APART + element * bytes
    }
}

fn read_position(replay: &mut Replay, particle: u64) {
    (0..3).for_each(|axis| replay.access(Memory::Positions.at(particle, 4) + axis * APART, false));
}

/// Returns the tile where a window begins, and the axes along which it reaches the next, by bits.
fn list_of(first: u64) -> (u64, u64) {
    let place = [first / CELLS[2] / CELLS[1], first / CELLS[2] % CELLS[1], first % CELLS[2]];
    let tile = (0..3).fold(0, |tile, axis| tile * TILES[axis] + place[axis] / TILE[axis]);
    (tile, (0..3).fold(0, |bits, axis| 2 * bits + u64::from(place[axis] % TILE[axis] == TILE[axis] - 1)))
}

/// Returns the tiles that take the particles of a list.
fn takers(tile: u64, bits: u64) -> impl Iterator<Item = u64> {
    let place = [tile / TILES[2] / TILES[1], tile / TILES[2] % TILES[1], tile % TILES[2]];
    (0..8).filter(move |taken| taken & !bits == 0).map(move |taken| {
        (0..3).fold(0, |tile, axis| tile * TILES[axis] + (place[axis] + (taken >> (2 - axis) & 1)) % TILES[axis])
    })
}

/// Traffic of painting by tiles; for each particle the sectors of counters that its warp adds to,
/// and runs of lanes with one counter; and the most particles of a tile.
struct Tiled {
    moved: Moved,
    sectors: f64,
    runs: f64,
    entries: u64,
    most: usize,
}

fn tiled() -> Tiled {
    let mut replay = system().replay();
    let lists: Vec<(u64, u64)> = (0..PARTICLES).map(|i| list_of(cells_of(&LATE.displacements, i, true)[0])).collect();
    let (mut sectors, mut runs) = (0, 0);
    for warp in lists.chunks(32) {
        let mut wanted: Vec<u64> = warp.iter().map(|(tile, _)| *tile).collect();
        wanted.sort_unstable();
        wanted.dedup();
        sectors += wanted.len();
        runs += 1 + warp.windows(2).filter(|pair| pair[0] != pair[1]).count();
    }
    // The order of a list is that of the additions.
    let mut order: Vec<u64> = (0..PARTICLES).collect();
    order.sort_by_key(|&i| lists[i as usize]);
    let mut place = vec![0; PARTICLES as usize];
    order.iter().enumerate().for_each(|(at, &i)| place[i as usize] = at as u64);
    for (i, (tile, bits)) in (0..PARTICLES).zip(&lists) {
        let particle = particle_of(i, true);
        read_position(&mut replay, particle);
        replay.access(Memory::Counts.at(8 * tile + bits, 4), true);
        (0..2).for_each(|word| replay.access(Memory::Lists.at(particle, 4) + word * APART, true));
    }
    let mut by_particle: Vec<u64> = (0..PARTICLES).collect();
    by_particle.sort_unstable_by_key(|&i| particle_of(i, true));
    for i in by_particle {
        let (tile, bits) = lists[i as usize];
        (0..2).for_each(|word| replay.access(Memory::Lists.at(particle_of(i, true), 4) + word * APART, false));
        replay.access(Memory::Counts.at(8 * tile + bits, 4), false);
        replay.access(Memory::Order.at(place[i as usize], 4), true);
    }
    let mut of_tile = vec![Vec::new(); TILES.iter().product::<u64>() as usize];
    for (at, &i) in order.iter().enumerate() {
        let (tile, bits) = lists[i as usize];
        takers(tile, bits).for_each(|taker| of_tile[taker as usize].push((at as u64, particle_of(i, true))));
    }
    for (tile, particles) in (0..).zip(&of_tile) {
        for &(at, particle) in particles {
            replay.access(Memory::Order.at(at, 4), false);
            read_position(&mut replay, particle);
        }
        let [x, y, z] = [tile / TILES[2] / TILES[1], tile / TILES[2] % TILES[1], tile % TILES[2]];
        for row in 0..TILE[0] * TILE[1] {
            let first = (x * TILE[0] + row / TILE[1]) * CELLS[1] + y * TILE[1] + row % TILE[1];
            let cell = first * CELLS[2] + z * TILE[2];
            (0..4).for_each(|sector| replay.access(Memory::Density.at(cell + 8 * sector, 4), true));
        }
    }
    let mut moved = replay.finish();
    // Whole sectors are written without being read: densities, lists and places.
    moved.read -= 4 * ALL_CELLS + 8 * PARTICLES;
    let of_particle = |count: usize| count as f64 / PARTICLES as f64;
    Tiled {
        moved,
        sectors: of_particle(sectors),
        runs: of_particle(runs),
        entries: of_tile.iter().map(|particles| particles.len() as u64).sum(),
        most: of_tile.iter().map(Vec::len).max().unwrap(),
    }
}

/// Returns the bytes of painting by additions to memory: cells are cleared, and positions read.
fn added() -> Moved {
    let mut replay = system().replay();
    for i in 0..PARTICLES {
        read_position(&mut replay, particle_of(i, true));
        let cells = cells_of(&LATE.displacements, i, true);
        cells.into_iter().for_each(|cell| replay.access(Memory::Density.at(cell, 8), true));
    }
    let moved = replay.finish();
    Moved { written: moved.written + 8 * ALL_CELLS, ..moved }
}

#[test]
fn tiles_move_less_than_additions_to_memory() {
    let (tiles, added) = (tiled(), added());
    // What the transform reads then is 4 bytes of a density, or a cell.
    let [of_tiles, of_added] = [(tiles.moved, 4.0), (added, 8.0)]
        .map(|(moved, read)| (moved.read + moved.written) as f64 / ALL_CELLS as f64 + read);
    let found = format!(
        "{of_tiles:.2} bytes a cell by tiles ({:.2} read), {of_added:.2} by additions ({:.2} read); rows {} {}; {:.3} \
         sectors of counters a particle, {:.3} runs; {:.3} entries a particle, at most {} in a tile",
        tiles.moved.read as f64 / ALL_CELLS as f64,
        added.read as f64 / ALL_CELLS as f64,
        tiles.moved.rows,
        added.rows,
        tiles.sectors,
        tiles.runs,
        tiles.entries as f64 / PARTICLES as f64,
        tiles.most,
    );
    let _ = writeln!(std::io::stdout(), "{found}");
    assert!(of_tiles < 0.75 * of_added, "{found}");
    // A particle takes 4.8 sectors of additions otherwise.
    assert!(tiles.sectors < 0.5 && (tiles.entries as f64) < 1.4 * PARTICLES as f64, "{found}");
}
