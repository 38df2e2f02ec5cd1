//! Memory traffic of a particle-mesh step on an H100, by the model of its memory and the positions
//! of a run.

use meshloom::gpu::Options;
use meshloom::pm::{Config, Noise, Simulation};
use meshloom::{Error, Launch, launch};
use meshloom_sanitizer::memory_system::{H100_MEMORY, Moved};

/// Particles of an axis of the run.
const N: u64 = 64;
/// Particles of each axis of the replay: copies of the periodic run side by side along y and z.
const SITES: [u64; 3] = [N, 2 * N, 4 * N];
/// Steps of the run.
const STEPS: usize = 6;

/// Returns the displacements of particles at a = 1, in cells of a mesh of twice as many, in C order
/// of their sites; and the bytes of a step that kernels read and write for a cell.
fn late_displacements() -> (Vec<f32>, f64) {
    let config = Config { particles: N, mesh: 2 * N, box_size: N as f64, steps: STEPS, ..Config::default() };
    let parts = launch(Launch::Threads(1), &Options::from_env().unwrap(), |rank| {
        let mut simulation = Simulation::new(rank, config.clone(), Noise::Seed)?;
        let bytes = simulation.traffic();
        simulation.run(rank, |_, _, _| Ok::<_, Error>(()))?;
        Ok::<_, Error>((simulation.phase_space(rank)?[0].clone(), bytes))
    });
    let (displacements, bytes) = parts.unwrap().remove(0);
    let of_cell = bytes as f64 / STEPS as f64 / (2 * N).pow(3) as f64;
    (displacements.iter().map(|displacement| displacement * 2.0).collect(), of_cell)
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

/// Returns the bytes of a cell that painting moves, with cells of 8 bytes, and the readout of three
/// fields of 4 bytes; and the rows of memory that both open.
fn replayed(displacements: &[f32], bricks: bool) -> ([f64; 2], u64) {
    let cells = SITES.map(|sites| 2 * sites);
    // Planes of a force mesh of 1024^3 are eight times as large. All fields are read alike, so that
    // one of them is read through a third of the cache.
    let system = H100_MEMORY.scaled((cells[1] * cells[2]) as f64 / 1024.0f64.powi(2));
    let (mut paint, mut readout) = (system.replay(), system.scaled(1.0 / 3.0).replay());
    for i in 0..SITES.iter().product() {
        let site = site(i, bricks);
        let number = ((site[0] % N * N + site[1] % N) * N + site[2] % N) as usize;
        let first = [0, 1, 2].map(|axis| {
            let place = (2 * site[axis]) as f32 + displacements[3 * number + axis];
            place.floor().rem_euclid(cells[axis] as f32) as u64 % cells[axis]
        });
        for corner in 0..8 {
            let [x, y, z] = [0, 1, 2].map(|axis| (first[axis] + (corner >> (2 - axis) & 1)) % cells[axis]);
            let cell = (x * cells[1] + y) * cells[2] + z;
            paint.access(8 * cell, true);
            readout.access(4 * cell, false);
        }
    }
    let [paint, readout] = [paint.finish(), readout.finish()];
    let of_cell = |moved: Moved| (moved.read + moved.written) as f64 / cells.iter().product::<u64>() as f64;
    ([of_cell(paint), 3.0 * of_cell(readout)], paint.rows + 3 * readout.rows)
}

#[test]
fn bricks_of_particles_keep_their_cells_in_the_cache() {
    let (displacements, step) = late_displacements();
    let [(rows, opened), (bricks, opened_by_bricks)] = [false, true].map(|bricks| replayed(&displacements, bricks));
    // Every cell is moved once at least, if a particle touches it: the count of a step has 16 bytes
    // for painting and 12 for the readout.
    let ratio = |[paint, readout]: [f64; 2]| (step - 28.0 + paint + readout) / step;
    let found = format!("{rows:.2?} in rows, {bricks:.2?} in bricks, {step:.1} of a step");
    assert!(bricks[0] < rows[0] && bricks[1] < 0.75 * rows[1] && opened_by_bricks < opened, "{found}");
    assert!(ratio(bricks) <= 1.15 && ratio(bricks) < ratio(rows), "{found}");
}
