//! Memory traffic of a particle-mesh step on an H100, by the model of its memory and the positions
//! of a run.

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::LazyLock;

use meshloom::gpu::Options;
use meshloom::pm::{Config, Noise, Simulation};
use meshloom::{Error, Launch, launch};
use meshloom_sanitizer::memory_system::{H100_MEMORY, MemorySystem, Moved, Replay};

/// Particles of an axis of the run.
const N: u64 = 64;
/// Particles of each axis of the replay: copies of the periodic run side by side along y and z.
pub const SITES: [u64; 3] = [N, 2 * N, 4 * N];
/// Cells of the mesh of the replay.
pub const CELLS: [u64; 3] = [2 * SITES[0], 2 * SITES[1], 2 * SITES[2]];
/// Steps of the run.
const STEPS: usize = 6;

/// A run at a = 1.
pub struct Late {
    /// Displacements in cells of a mesh with twice as many cells as sites, in C order of the sites.
    pub displacements: Vec<f32>,
    /// Bytes of a step that kernels read and write for a cell.
    step: f64,
}

pub static LATE: LazyLock<Late> = LazyLock::new(late);

fn late() -> Late {
    let config = Config { particles: N, mesh: 2 * N, box_size: N as f64, steps: STEPS, ..Config::default() };
    let parts = launch(Launch::Threads(1), &Options::from_env().unwrap(), |rank| {
        let mut simulation = Simulation::new(rank, config.clone(), Noise::Seed)?;
        let bytes = simulation.traffic();
        simulation.run(rank, |_, _, _| Ok::<_, Error>(()))?;
        Ok::<_, Error>((simulation.phase_space(rank)?[0].clone(), bytes))
    });
    let (displacements, bytes) = parts.unwrap().remove(0);
    let of_cell = bytes as f64 / STEPS as f64 / (2 * N).pow(3) as f64;
    Late { displacements: displacements.iter().map(|displacement| displacement * 2.0).collect(), step: of_cell }
}

/// Returns the site of the particle that invocation `i` takes: in C order, or block by block in
/// bricks of 4 x 2 x 32 as `mesh::each_particle` does.
fn site(i: u64, bricks: bool) -> [u64; 3] {
    let [_, n1, n2] = SITES;
    if !bricks {
        return [i / (n1 * n2), i / n2 % n1, i % n2];
    }
    let (block, brick, lane) = (i / 32_768, i % 32_768 / 256, i % 256);
    let (b1, b2) = (n1 / 32, n2 / 32);
    let corner = [block / (b1 * b2), block / b2 % b1, block % b2].map(|b| b * 32);
    [corner[0] + brick / 16 * 4 + lane / 64, corner[1] + brick % 16 * 2 + lane / 32 % 2, corner[2] + lane % 32]
}

/// Returns the particle of invocation `i`: the number of its site in C order.
pub fn particle_of(i: u64, bricks: bool) -> u64 {
    let [x, y, z] = site(i, bricks);
    (x * SITES[1] + y) * SITES[2] + z
}

/// Returns the cells that the particle of invocation `i` reads, along z in pairs.
pub fn cells_of(displacements: &[f32], i: u64, bricks: bool) -> [u64; 8] {
    let (cells, site) = (CELLS, site(i, bricks));
    let number = ((site[0] % N * N + site[1] % N) * N + site[2] % N) as usize;
    let first = [0, 1, 2].map(|axis| {
        let place = (2 * site[axis]) as f32 + displacements[3 * number + axis];
        place.floor().rem_euclid(cells[axis] as f32) as u64 % cells[axis]
    });
    std::array::from_fn(|corner| {
        let [x, y, z] = [0, 1, 2].map(|axis| (first[axis] + (corner as u64 >> (2 - axis) & 1)) % cells[axis]);
        (x * cells[1] + y) * cells[2] + z
    })
}

/// Bytes of a cell that a step moves, and the rows of memory that it opens for them.
struct Replayed {
    /// Painting, with cells of 8 bytes.
    paint: f64,
    /// Reading three fields of 4 bytes.
    fields: f64,
    /// Reading vectors of 16 bytes.
    vectors: f64,
    /// Rows that painting and reading vectors open.
    rows: u64,
}

/// Returns the memory of an H100 for planes of an eighth of those of a force mesh of 1024^3.
pub fn system() -> MemorySystem {
    H100_MEMORY.scaled((CELLS[1] * CELLS[2]) as f64 / 1024.0f64.powi(2))
}

fn replayed(displacements: &[f32], bricks: bool) -> Replayed {
    // All fields are read alike, so that one of them is read through a third of the cache.
    let system = system();
    let (mut paint, mut field, mut vectors) = (system.replay(), system.scaled(1.0 / 3.0).replay(), system.replay());
    for i in 0..SITES.iter().product() {
        for cell in cells_of(displacements, i, bricks) {
            paint.access(8 * cell, true);
            field.access(4 * cell, false);
            vectors.access(16 * cell, false);
        }
    }
    let [paint, field, vectors] = [paint, field, vectors].map(Replay::finish);
    let of_cell = |moved: Moved| (moved.read + moved.written) as f64 / CELLS.iter().product::<u64>() as f64;
    Replayed {
        paint: of_cell(paint),
        fields: 3.0 * of_cell(field),
        vectors: of_cell(vectors),
        rows: paint.rows + vectors.rows,
    }
}

/// Returns the tags of lines of 128 bytes that the readout of a particle looks up, and the sectors
/// of 32 bytes: of three fields, and of vectors. Lanes in pairs read the two cells of a row of one
/// particle. A request of 32 words of 4 bytes is served at once, of 16 bytes by eight lanes each.
fn lookups(displacements: &[f32]) -> [[f64; 2]; 2] {
    let warps = (0..SITES.iter().product::<u64>() / 32).step_by(37);
    let (mut found, mut particles) = ([[0; 2]; 2], 0);
    for warp in warps {
        let cells: Vec<[u64; 8]> = (0..32).map(|lane| cells_of(displacements, 32 * warp + lane, true)).collect();
        particles += 32;
        for (row, own) in (0..4).flat_map(|row| [(row, 0), (row, 1)]) {
            let pairs = (own..32).step_by(2).map(|lane| &cells[lane][2 * row..2 * row + 2]);
            let wanted: Vec<u64> = pairs.flatten().copied().collect();
            let distinct = |cells: &[u64], size: u64, unit: u64| {
                cells.iter().map(|cell| size * cell / unit).collect::<HashSet<u64>>().len()
            };
            for (which, unit) in [128, 32].into_iter().enumerate() {
                found[0][which] += 3 * distinct(&wanted, 4, unit);
                found[1][which] += wanted.chunks(8).map(|lanes| distinct(lanes, 16, unit)).sum::<usize>();
            }
        }
    }
    found.map(|of| of.map(|count| count as f64 / f64::from(particles)))
}

#[test]
fn bricks_of_particles_keep_their_cells_in_the_cache() {
    let Late { displacements, step } = &*LATE;
    let [rows, bricks] = [false, true].map(|bricks| replayed(displacements, bricks));
    // Every cell is moved once at least, if a particle touches it: the count of a step has 16 bytes
    // for painting and 16 for the readout.
    let ratio = |found: &Replayed| (step - 32.0 + found.paint + found.vectors) / step;
    let of = |Replayed { paint, fields, vectors, .. }: &Replayed| format!("{paint:.2} {fields:.2} {vectors:.2}");
    let [tags, sectors] = [0, 1].map(|unit| lookups(displacements).map(|of| of[unit]));
    let found = format!(
        "{} in rows, {} in bricks, {step:.1} of a step; tags {tags:.2?}, sectors {sectors:.2?} of fields and vectors",
        of(&rows),
        of(&bricks)
    );
    let _ = writeln!(std::io::stdout(), "{found}");
    assert!(bricks.paint < rows.paint && bricks.vectors < 0.75 * rows.vectors && bricks.rows < rows.rows, "{found}");
    assert!(ratio(&bricks) <= 1.15 && ratio(&bricks) < ratio(&rows), "{found}");
    // A vector is one request of 16 bytes, which eight lanes at a time look up.
    assert!(tags[1] < 0.5 * tags[0] && sectors[1] < sectors[0], "{found}");
}
