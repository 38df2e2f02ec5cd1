//! Painting by tiles and by additions to memory: the same bits, however particles lie.

use std::num::NonZeroUsize;

use super::reference_pm::uniform;
use meshloom::gpu::{Gpu, Options, Painting, Recorder};
use meshloom::grid::{Mesh, MeshOptions};
use meshloom::mesh::{Lattice, MeshParticles, Painter, Window};
use meshloom::pm::{Config, Migrate, Noise, Simulation};
use meshloom::points::{Domain, Particles};
use meshloom::{Error, Launch, launch};

const FORMS: [Painting; 2] = [Painting::Memory, Painting::Tiles];

fn options(painting: Painting) -> Options {
    Options { painting: Some(painting), ..meshloom_sanitizer::options().unwrap() }
}

/// A lattice of particles with displacements, and the rank's part of a mesh.
struct Case {
    lattice: Lattice,
    displacement: [Vec<f32>; 3],
    mesh: Mesh,
}

fn mesh_part(shape: [u64; 3], grid: [usize; 2], rank: usize, ghosts: [[u64; 2]; 3]) -> Mesh {
    let options = MeshOptions { size: shape.map(|n| n as f64), ghosts, grid: Some(grid), ..MeshOptions::new(shape) };
    Mesh::new(&options, grid[0] * grid[1], rank).unwrap()
}

/// Returns what the particles of a case paint: painted cells and faults. Sites are listed in
/// reverse order if `listed`.
fn painted(options: &Options, window: Window, case: &Case, listed: bool) -> (Vec<u32>, u32) {
    let gpu = Gpu::open(options, 0).unwrap();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let [_, n1, n2] = case.lattice.sites;
    let mut order: Vec<u64> = (0..case.lattice.len()).collect();
    if listed {
        order.reverse();
    }
    let sites: Vec<[u32; 2]> =
        order.iter().map(|n| [(((n / n2 / n1) << 16) | (n / n2 % n1)) as u32, (n % n2) as u32]).collect();
    let site = gpu.array::<[u32; 2]>("site", sites.len() as u64).unwrap();
    recorder.upload(&site, 0, &sites).unwrap();
    let displacement = case.displacement.each_ref().map(|values| {
        let array = gpu.array::<f32>("displacement", values.len() as u64).unwrap();
        let values: Vec<f32> = order.iter().map(|&n| values[n as usize]).collect();
        recorder.upload(&array, 0, &values).unwrap();
        array
    });
    let displacement = displacement.each_ref();
    let particles = match listed {
        true => MeshParticles::Listed { sites: case.lattice.sites, site: &site, displacement },
        false => MeshParticles::Displaced { lattice: &case.lattice, displacement },
    };
    let faults = gpu.array::<u32>("faults", 1).unwrap();
    recorder.clear(&faults);
    let cells = Painter::new(window).cells(&mut recorder, particles, &case.mesh, &faults).unwrap();
    let cells = recorder.download(&cells, 0, cells.len()).unwrap();
    (cells, recorder.download(&faults, 0, 1).unwrap()[0])
}

/// Checks that both forms paint the same, and returns it.
fn same(window: Window, case: &Case, listed: bool) -> (Vec<u32>, u32) {
    let [memory, tiles] = FORMS.map(|painting| painted(&options(painting), window, case, listed));
    let differ: Vec<usize> =
        (0..memory.0.len() / 2).filter(|c| memory.0[2 * c..][..2] != tiles.0[2 * c..][..2]).collect();
    let shape = case.mesh.shape();
    assert!(differ.is_empty(), "{window}, {shape:?}, listed {listed}: {} cells, {:?}", differ.len(), differ[0]);
    assert_eq!(memory.1, tiles.1, "{window}, {shape:?}");
    tiles
}

fn case(sites: [u64; 3], shape: [u64; 3], displaced: impl Fn(usize, u64) -> f32) -> Case {
    let lattice = Lattice { sites, own: sites.map(|n| 0..n) };
    let displacement = [0, 1, 2].map(|axis| (0..lattice.len()).map(|n| displaced(axis, n)).collect());
    Case { lattice, displacement, mesh: mesh_part(shape, [1, 1], 0, [[0; 2]; 3]) }
}

/// Displacements over several boxes; every third particle stays at its site, on a node, and some
/// of these on faces of tiles.
fn scattered(axis: usize, n: u64) -> f32 {
    if n.is_multiple_of(3) { 0.0 } else { ((uniform(7 + axis as u64, n) - 0.5) * 200.0) as f32 }
}

#[test]
fn tiles_paint_the_bits_of_additions_to_memory() {
    // Whole tiles; odd and prime numbers of cells; fewer cells than a tile, and than a window.
    for shape in [[16, 24, 64], [17, 9, 67], [5, 8, 33], [1, 2, 3]] {
        let case = case([8, 12, 16], shape, scattered);
        for window in Window::ALL {
            for listed in [false, true] {
                let (cells, faults) = same(window, &case, listed);
                let sum: u64 = cells.chunks(2).map(|word| u64::from(word[0]) | u64::from(word[1]) << 32).sum();
                assert_eq!((sum, faults), ((8 * 12 * 16) << 28, 0), "{window}, {shape:?}");
            }
        }
    }
}

#[test]
fn tiles_leave_out_what_reaches_beyond_ghost_cells() {
    // Parts of a mesh; ghost cells on axes that are cut and on others; more ranks than planes.
    for (grid, ghosts) in
        [([2, 1], [[2, 3], [0; 2], [0; 2]]), ([2, 2], [[1, 2], [2, 3], [1; 2]]), ([23, 1], [[2; 2], [0; 2], [0; 2]])]
    {
        for rank in [0, 1, grid[0] * grid[1] - 1] {
            let mut case =
                case([7, 6, 10], [19, 11, 35], |axis, n| if n % 5 == 0 { f32::NAN } else { scattered(axis, n) / 9.0 });
            case.mesh = mesh_part([19, 11, 35], grid, rank, ghosts);
            for window in [Window::Cic, Window::Tsc] {
                let (_, faults) = same(window, &case, false);
                assert!(faults >= 420 / 5, "{faults}");
                same(window, &case, true);
            }
        }
    }
}

#[test]
fn crowded_tiles_are_split() {
    // All particles in one cell: at the corner of eight tiles, which they all reach; in the middle
    // of a tile; and in a mesh of one tile.
    let sites = [40, 40, 41];
    for (shape, cell) in
        [([16, 16, 64], [7.25f32, 7.5, 31.75]), ([16, 16, 64], [3.5, 11.25, 40.0]), ([8, 4, 16], [7.5, 3.5, 15.5])]
    {
        let case = case(sites, shape, |axis, n| {
            let site = [n / 41 / 40, n / 41 % 40, n % 41][axis];
            cell[axis] - (site * shape[axis]) as f32 / sites[axis] as f32
        });
        let (cells, faults) = same(Window::Cic, &case, false);
        let sum: u64 = cells.chunks(2).map(|word| u64::from(word[0]) | u64::from(word[1]) << 32).sum();
        assert_eq!((sum, faults), ((40 * 40 * 41) << 28, 0));
    }
}

/// Kernels can bind the arrays of additions to memory here, but not those of tiles.
#[test]
fn few_bindings_are_enough() {
    let case = case([16, 16, 32], [8; 3], scattered);
    let bindings = u64::from(Gpu::open(&options(Painting::Tiles), 0).unwrap().capabilities().bindings);
    let window_bytes = Some((4 * 8192 / ((bindings - 2) / 3)).next_power_of_two());
    let [memory, tiles] =
        FORMS.map(|painting| painted(&Options { window_bytes, ..options(painting) }, Window::Cic, &case, false));
    assert!(memory == tiles);
}

#[test]
fn no_particles_paint_empty_cells() {
    let case = case([0, 4, 4], [10, 9, 8], scattered);
    assert!(same(Window::Cic, &case, false).0.iter().all(|&word| word == 0));
}

/// Particles that come to the ranks of their cells, on any number of ranks, some without any.
#[test]
fn points_are_painted_alike_on_any_number_of_ranks() {
    let mut wanted: Option<Vec<f32>> = None;
    for ranks in [1, 2, 3] {
        for painting in FORMS {
            let cells = launch(Launch::Threads(ranks), &options(painting), |rank| {
                let mesh = rank.mesh([9, 10, 35]).periodic([9.0, 10.0, 35.0]).build()?;
                // All on a third of the mesh, from the first rank.
                let count = if rank.index() == 0 { 300 } else { 0 };
                let points: Vec<f32> =
                    (0..3 * count).map(|i| (uniform(3, i) * [3.0, 10.0, 35.0][(i % 3) as usize]) as f32).collect();
                let particles = Particles::from_host(rank, &Domain::new(&[9.0, 10.0, 35.0])?, &points)?;
                let density = rank.paint(&particles, &mesh, Window::Tsc)?;
                Ok::<_, Error>(rank.gather(&density, 0)?)
            })
            .unwrap();
            let cells = cells.into_iter().flatten().next().unwrap();
            assert_eq!(*wanted.get_or_insert_with(|| cells.clone()), cells, "{ranks} ranks, {painting:?}");
        }
    }
}

/// A run by tiles ends where one by additions does: on one rank by densities, on several by
/// painted cells with ghost cells, and with particles that move between ranks.
#[test]
fn runs_have_the_same_bits() {
    let base = Config { particles: 16, mesh: 32, box_size: 16.0, steps: 3, ..Config::default() };
    for (ranks, migrate) in [(1, Migrate::Never), (4, Migrate::Never), (2, Migrate::Every(NonZeroUsize::MIN))] {
        let config = Config { migrate, ..base.clone() };
        let [memory, tiles] = FORMS.map(|painting| {
            launch(Launch::Threads(ranks), &options(painting), |rank| {
                let mut simulation = Simulation::new(rank, config.clone(), Noise::Seed)?;
                simulation.run(rank, |_, _, _| Ok::<_, Error>(()))?;
                let power: Vec<f64> = simulation.power(rank)?.iter().map(|bin| bin.power).collect();
                Ok::<_, Error>((simulation.phase_space(rank)?, power))
            })
            .unwrap()
        });
        assert!(memory == tiles, "{ranks} ranks, {migrate:?}");
    }
}
