//! Gradients and both products of a run between MPI processes: the bits of one process alone. Every
//! operator's adjoint and derivative there.

use super::every_operator;
use super::{Case, Inner, Outcome};

use meshloom::comm::Communicator;
use meshloom::gpu::{Array, Gpu};
use meshloom::grid::{Box3, Grid};
use meshloom::operators::{Model, Vector};
use meshloom::pm::{Config, Gradient, Noise, Observable, SimulationError, SimulationOperator};
use meshloom::random::white_noise;
use meshloom::{Error, Rank};

pub const CASE: Case = Case {
    name: "gradient::gradients",
    ranks: &[1, 2, 3, 4],
    inner: Inner::Device(|comm| Ok(rank(comm)?)),
    outcome: Outcome::Passes,
};

const N: u64 = 8;

/// Grids of processes on which every operator is checked. `tests/operators` checks more grids, of
/// threads.
const EVERY_OPERATOR: [[usize; 2]; 2] = [[3, 1], [2, 2]];

/// White noise at this rank's cells of a cube of `n`.
fn noise(part: &Box3, n: u64, seed: u64) -> Vec<f32> {
    let [x, y, z] = part;
    let mut values = Vec::new();
    for i in x.clone() {
        for j in y.clone() {
            values.extend(z.clone().map(|k| white_noise(seed, (i * n + j) * n + k) as f32));
        }
    }
    values
}

/// Returns this rank's part of a field of a cube of `n` cells.
fn part_of(whole: &[f32], part: &Box3, n: u64) -> Vec<f32> {
    let [x, y, z] = part;
    let mut values = Vec::new();
    for i in x.clone() {
        for j in y.clone() {
            values.extend(z.clone().map(|k| whole[((i * n + j) * n + k) as usize]));
        }
    }
    values
}

/// Results of a run: the tangent of the density, and the cotangent of the noise; the derivative by
/// parameters.
#[derive(PartialEq)]
struct Found {
    jvp: Vec<f32>,
    vjp: Vec<f32>,
    gradient: Vec<f32>,
    parameters: [f64; 2],
}

fn evaluate(comm: &Communicator, gpu: &Gpu, grid: Grid) -> Result<Found, Error> {
    let mut rank = Rank::new(comm.clone(), gpu.clone())?;
    let config = Config { particles: N, mesh: 2 * N, box_size: 40.0, steps: 2, ..Config::default() };
    let config = Config { grid: Some(grid.parts()), ..config };
    let (sites, cells) = (grid.part([N; 3], comm.rank()), grid.part([2 * N; 3], comm.rank()));
    let model = Model::new(SimulationOperator::new(&mut rank, config.clone(), 2, &[Observable::Density])?);
    let field = |rank: &mut Rank, space, values: &[f32]| {
        let field = Vector::new(&rank.gpu, space)?;
        rank.recorder.upload(field.array(space.names().next().unwrap_or_default())?, 0, values)?;
        Ok::<_, Error>(field)
    };
    let x = field(&mut rank, model.domain(), &noise(&sites, N, 1))?;
    let dx = field(&mut rank, model.domain(), &noise(&sites, N, 2))?;
    let dy = field(&mut rank, model.target(), &noise(&cells, 2 * N, 3))?;
    let at = model.at(&mut rank, &x)?;
    let (mut jvp, mut vjp) = (Vector::new(&rank.gpu, model.target())?, Vector::new(&rank.gpu, model.domain())?);
    at.jvp(&mut rank, &dx, &mut jvp)?;
    at.vjp(&mut rank, &dy, &mut vjp)?;
    let get = |rank: &mut Rank, array: &Array<f32>| rank.recorder.download(array, 0, array.len());
    let (jvp, vjp) = (get(&mut rank, jvp.array("density")?)?, get(&mut rank, vjp.array("white_noise")?)?);

    let by = dy.field("density")?;
    let mut gradient = Gradient::new(&mut rank, config, 1)?;
    let found = gradient.evaluate(&mut rank, Noise::Seed, |observer, context| {
        observer.add_density(context, &by)?;
        Ok::<_, SimulationError>(1.0)
    })?;
    let gradient = get(&mut rank, found.white_noise.array())?;
    Ok(Found { jvp, vjp, gradient, parameters: [found.cosmology.omega_m, found.cosmology.h] })
}

/// On all grids of these ranks, the same bits as on one.
fn rank(comm: &Communicator) -> Result<(), Error> {
    let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
    let whole = evaluate(&Communicator::solo(), &gpu, Grid::new([1, 1], 1)?)?;
    let ranks = comm.size();
    for p in (1..=ranks).filter(|p| ranks.is_multiple_of(*p)) {
        let grid = Grid::new([p, ranks / p], ranks)?;
        let own = evaluate(comm, &gpu, grid)?;
        let (sites, cells) = (grid.part([N; 3], comm.rank()), grid.part([2 * N; 3], comm.rank()));
        let wanted = Found {
            jvp: part_of(&whole.jvp, &cells, 2 * N),
            vjp: part_of(&whole.vjp, &sites, N),
            gradient: part_of(&whole.gradient, &sites, N),
            parameters: whole.parameters,
        };
        assert!(own == wanted, "rank {} of {grid}", comm.rank());
        if EVERY_OPERATOR.contains(&grid.parts()) {
            crate::process_grid::set(grid);
            every_operator::check(&mut Rank::new(comm.clone(), gpu.clone())?, |_| true)?;
        }
    }
    comm.barrier()?;
    Ok(())
}
