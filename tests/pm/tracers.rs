//! Particles of a run as tracers: redshift space, Lagrangian bias, and lens planes.

use std::f64::consts::PI;

use super::ranks::{cells, on_grid, own};
use super::reference_pm::white;
use meshloom::Rank;
use meshloom::cosmology::{Cosmology, Growth, LptOrder};
use meshloom::mesh::Window;
use meshloom::operators::{Leaf, Model, OperatorError, Paint, PointwiseOperator, Space, Vector, check_adjoint};
use meshloom::pm::{Config, LinearDensity, Observable, SimulationOperator, redshift_space};

const N: usize = 32;
/// Bias of the tracers in Lagrangian space.
const B1: f64 = 0.8;

/// A run of the linear regime, in the Zel'dovich approximation.
fn config() -> Config {
    let base =
        Config { cosmology: Cosmology::simple(), lpt: LptOrder::First, window: Window::Tsc, ..Config::default() };
    Config { particles: N as u64, mesh: N as u64, box_size: 1000.0, a_start: 0.09, a_end: 0.1, steps: 1, ..base }
}

/// Returns the model of the density of a run, in redshift space along z, and with bias.
fn models(rank: &mut Rank, config: &Config) -> Result<[Model; 3], OperatorError> {
    let config = &Config { grid: Some(crate::process_grid::of(rank).parts()), ..config.clone() };
    let observables = [Observable::Displacement, Observable::Momentum];
    let run = Model::new(SimulationOperator::new(rank, config.clone(), 1, &observables)?);
    let moved = redshift_space(run.target(), [0.0, 0.0, 2.0], config.a_end, &config.cosmology)?;
    let (mesh, window) = (run.target().leaf("momentum").and_then(Leaf::mesh).unwrap().clone(), config.window);
    let linear = LinearDensity::new(rank, config, config.a_end)?;
    let text = format!(
        "fn weight(delta: f32) -> f32 {{ return 1.0 + {B1:?} * delta + 0.3 * (delta * delta - {:?}); }}",
        linear.variance(rank)? as f32
    );
    let linear = Model::new(linear);
    let weight = Model::new(PointwiseOperator::wgsl(&text, "weight", linear.target(), "weight")?);
    let place = run.giving(moved.target())?;
    let biased = place.zip(&linear.then(&weight)?)?;
    let paint = Model::new(Paint::new(rank, moved.target(), &mesh, window)?);
    let weigh = Model::new(Paint::new(rank, biased.target(), &mesh, window)?);
    Ok([place.then(&paint)?, run.then(&moved)?.then(&paint)?, biased.then(&weigh)?])
}

/// Returns the mode `m` of a density on `N^3` cells, as real and imaginary part.
fn mode(density: &[f64], m: [i64; 3]) -> [f64; 2] {
    let table: Vec<[f64; 2]> = (0..N).map(|n| 2.0 * PI * n as f64 / N as f64).map(|x| [x.cos(), -x.sin()]).collect();
    let turn = |m: i64, x: usize| table[(m * x as i64).rem_euclid(N as i64) as usize];
    let mut sum = [0.0; 2];
    for i in 0..N {
        for j in 0..N {
            let [mut re, mut im] = [0.0; 2];
            for k in 0..N {
                let ([c, s], value) = (turn(m[2], k), density[(i * N + j) * N + k]);
                (re, im) = (re + value * c, im + value * s);
            }
            for [c, s] in [turn(m[0], i), turn(m[1], j)] {
                (re, im) = (re * c - im * s, re * s + im * c);
            }
            sum = [sum[0] + re, sum[1] + im];
        }
    }
    sum
}

/// Monopole and quadrupole in redshift space are those of Kaiser (1987, MNRAS 227, 1) within the
/// scatter of the modes (Hamilton 1992, ApJ 385, L5), each mode has grown by `1 + f mu^2`, and
/// tracers with a Lagrangian bias have the bias `1 + b1`.
#[test]
fn linear_runs_have_the_multipoles_of_kaiser_and_the_bias_of_their_weights() {
    let noise = white(N * N * N, 5);
    let found = on_grid([2, 1], &meshloom_sanitizer::options().unwrap(), |rank| {
        let mut densities = Vec::new();
        for model in models(rank, &config())? {
            let mut x = Vector::new(&rank.gpu, model.domain())?;
            let mesh = model.target().leaf("density").and_then(Leaf::mesh).unwrap().clone();
            x.set(&mut rank.recorder, "white_noise", &own(&mesh, &noise))?;
            let density = model.value(rank, &x)?.get(&mut rank.recorder, "density")?;
            densities.push(cells(&mesh).into_iter().zip(density).collect::<Vec<_>>());
        }
        Ok(densities)
    });
    let whole = |which: usize| {
        let mut density = vec![0.0; N * N * N];
        for (cell, value) in found.iter().flat_map(|densities| &densities[which]) {
            density[*cell as usize] = *value;
        }
        density
    };
    let [real, redshift, biased] = [whole(0), whole(1), whole(2)];
    let f = Growth::new(Cosmology::simple()).at(0.1).unwrap().f1();
    assert!(f > 0.9);
    let (mut power, mut residual, mut bias) = ([0.0; 3], 0.0, [0.0; 2]);
    // Of each independent mode: what the estimates of both multipoles weigh its power with.
    let mut factors: Vec<[f64; 2]> = Vec::new();
    for m in (0..729).map(|at| [at / 81 - 4, at / 9 % 9 - 4, at % 9 - 4]) {
        let square: i64 = m.iter().map(|m| m * m).sum();
        if !(1..=16).contains(&square) || m < [0, 0, 0] {
            continue;
        }
        let mu2 = (m[2] * m[2]) as f64 / square as f64;
        let (growth, legendre) = (1.0 + f * mu2, 1.5 * mu2 - 0.5);
        let [r, s, b] = [&real, &redshift, &biased].map(|density| mode(density, m));
        let norm = |x: [f64; 2]| x[0] * x[0] + x[1] * x[1];
        let apart = |x: [f64; 2], by: f64| norm([x[0] - by * r[0], x[1] - by * r[1]]);
        // Each mode counts by the mean of its power, so that few large modes do not rule.
        power = [power[0] + norm(r), power[1] + norm(s), power[2] + 5.0 * norm(s) * legendre];
        residual += apart(s, growth);
        bias = [bias[0] + apart(b, 1.0 + B1), bias[1] + norm(b)];
        factors.push([growth * growth, 5.0 * growth * growth * legendre]);
    }
    assert!(residual < 0.05f64.powi(2) * power[1], "{residual} of {}", power[1]);
    assert!(bias[0] < 0.05f64.powi(2) * bias[1], "{bias:?}");
    let kaiser = [1.0 + 2.0 / 3.0 * f + f * f / 5.0, 4.0 / 3.0 * f + 4.0 / 7.0 * f * f];
    for which in 0..2 {
        let (estimate, count) = (power[which + 1] / power[0], factors.len() as f64);
        // Powers of modes are exponential numbers: a ratio of sums scatters as the mean of the
        // factors around their own.
        let mean = factors.iter().map(|factor| factor[which]).sum::<f64>() / count;
        let scatter = factors.iter().map(|factor| (factor[which] - mean).powi(2)).sum::<f64>().sqrt() / count;
        assert!(scatter < 0.35 * kaiser[which], "{scatter}: an estimate that says nothing");
        assert!((estimate - kaiser[which]).abs() < 3.0 * scatter, "{estimate} of {}, {scatter}", kaiser[which]);
    }
}

/// Both derivatives of the whole models are each other's transposes, on several ranks.
#[test]
fn models_of_tracers_have_their_adjoints() {
    for parts in [[1, 1], [3, 1]] {
        on_grid(parts, &meshloom_sanitizer::options().unwrap(), |rank| {
            let config = Config { particles: 8, mesh: 8, box_size: 80.0, a_end: 1.0, steps: 2, ..config() };
            for model in models(rank, &config)? {
                let noise = meshloom::operators::random_field(rank, model.domain(), 3)?;
                let found = check_adjoint(rank, &model, &noise)?;
                assert!(found.tolerance > 0.0);
            }
            Ok(())
        });
    }
}

/// Convergence in the Born approximation: particles of a plane wave `delta = -A cos(k x)`,
/// painted onto a mesh of one cell along the line of sight with the lensing kernel as weights, give
/// the integral of kernel and wave.
#[test]
fn a_lens_plane_has_the_convergence_of_a_plane_wave() {
    on_grid([2, 1], &meshloom_sanitizer::options().unwrap(), |rank| {
        let sites = crate::process_grid::mesh(rank, [32; 3], [64.0; 3]);
        let plane = crate::process_grid::mesh(rank, [32, 32, 1], [64.0; 3]);
        let (amplitude, wave) = (0.02, 2.0 * PI / 32.0);
        let at = |cell: u64, axis: u32| 2.0 * (cell / 32u64.pow(2 - axis) % 32) as f64;
        // The sources are behind the box: the kernel is chi (1 - chi / 100).
        let kernel = |chi: f64| chi * (1.0 - chi / 100.0);
        let own = cells(&sites);
        // delta = -d(displacement)/dx.
        let moved: Vec<f64> = own.iter().map(|&cell| amplitude / wave * (wave * at(cell, 0)).sin()).collect();
        let weights: Vec<f64> = own.iter().map(|&cell| kernel(at(cell, 2))).collect();
        let leaf = Leaf::cells(&sites);
        let domain = Space::new([("moved", leaf.clone().components(3)), ("weight", leaf)])?;
        let mut x = Vector::zeros(&mut rank.recorder, &domain)?;
        let still = vec![0.0; 2 * own.len()];
        x.set(&mut rank.recorder, "moved", &[moved, still].concat())?;
        x.set(&mut rank.recorder, "weight", &weights)?;
        let paint = Model::new(Paint::new(rank, &domain, &plane, Window::Pcs)?);
        let convergence = paint.value(rank, &x)?.get(&mut rank.recorder, "density")?;
        let mean = (0..32).map(|k| kernel(2.0 * f64::from(k))).sum::<f64>() / 32.0;
        // The window PCS damps a mode of wavelength 16 cells by sinc^4.
        let half: f64 = PI / 16.0;
        let damped = (half.sin() / half).powi(4);
        for (cell, found) in cells(&plane).into_iter().zip(convergence) {
            let x = 2.0 * (cell / 32) as f64;
            let wanted = mean * (1.0 - damped * amplitude * (wave * x).cos());
            // Terms of second order in the amplitude.
            assert!((found - wanted).abs() < 2.0 * mean * amplitude * amplitude, "{x}: {found}, not {wanted}");
        }
        Ok(())
    });
}
