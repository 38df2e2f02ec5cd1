//! Gradients of particle-mesh runs: against golden values, differences of an f64 reference, and
//! themselves on other numbers of ranks.

use super::reference_pm::{Setup, displacements, linear_density, power_spectrum, rms, start, white};
use meshloom::comm::Op;
use meshloom::cosmology::{Amplitude, Cosmology, LinearPower, LptOrder, Parameters, Scheme, TransferKind, schedule};
use meshloom::gpu::{DeviceError, Options};
use meshloom::grid::Grid;
use meshloom::mesh::Window;
use meshloom::pm::{Config, CosmologyGradient, Gradient, Noise, NoiseBy, Observer, SimulationError};
use meshloom::{Error, Launch, Rank, launch};

fn golden() -> Config {
    let base = Config { scheme: Scheme::FastPm, noise_by: NoiseBy::Site, ..Config::default() };
    Config { particles: 16, mesh: 32, box_size: 64.0, cosmology: Cosmology::simple(), steps: 8, ..base }
}

/// Half the mean square of the density contrast.
fn variance(observer: &mut Observer<'_>, context: &mut Rank) -> Result<f64, SimulationError> {
    let mut by = observer.run().density(context)?;
    let density = context.download(&by)?;
    let cells = (observer.run().config().mesh as f64).powi(3);
    let contrast: Vec<f64> = density.iter().map(|&d| f64::from(d) - 1.0).collect();
    let mut sum = [contrast.iter().map(|d| d * d).sum::<f64>()];
    context.comm.all_reduce(&mut sum, Op::Sum)?;
    context.upload(&mut by, &contrast.iter().map(|d| (d / cells) as f32).collect::<Vec<_>>())?;
    observer.add_density(context, &by)?;
    Ok(0.5 * sum[0] / cells)
}

/// Returns the power in the third bin.
fn third_bin(observer: &mut Observer<'_>, context: &mut Rank) -> Result<f64, SimulationError> {
    let spectrum = observer.run().power(context)?;
    let by: Vec<f64> = (0..spectrum.len()).map(|bin| f64::from(u8::from(bin == 2))).collect();
    observer.add_power(context, &spectrum, &by)?;
    Ok(spectrum[2].power)
}

type Loss = fn(&mut Observer<'_>, &mut Rank) -> Result<f64, SimulationError>;

/// A sensitivity, gathered in Lagrangian order.
#[derive(Clone, Debug, PartialEq)]
struct Found {
    loss: f64,
    noise: Vec<f32>,
    positions: Vec<[f32; 3]>,
    momenta: Vec<[f32; 3]>,
    cosmology: CosmologyGradient,
}

fn evaluate(ranks: usize, config: &Config, every: usize, noise: &[f64], loss: Loss) -> Found {
    evaluate_with(&meshloom_sanitizer::options().unwrap(), ranks, config, every, (noise, loss))
}

fn evaluate_with(
    options: &Options,
    ranks: usize,
    config: &Config,
    every: usize,
    (noise, loss): (&[f64], Loss),
) -> Found {
    let n = config.particles;
    let noise: Vec<f32> = noise.iter().map(|&v| v as f32).collect();
    let parts = launch(Launch::Threads(ranks), options, |context| {
        let rows: Vec<u64> = config.rows(ranks, context.comm.rank())?.collect();
        let own: Vec<f32> = rows.iter().flat_map(|&row| noise[row as usize..(row + n) as usize].to_vec()).collect();
        let mut gradient = Gradient::new(context, config.clone(), every)?;
        let mut found = Vec::new();
        // An evaluation leaves nothing behind that the next would see.
        for _ in 0..2 {
            let of = gradient.evaluate(context, Noise::Values(&own), loss)?;
            let [noise, positions, momenta] = [of.white_noise.array(), &of.positions, &of.momenta]
                .map(|array| context.recorder.download(array, 0, array.len()));
            found.push((of.loss, noise?, positions?, momenta?, of.cosmology));
        }
        let [first, second] = [0, 1].map(|at| &found[at]);
        assert!(first == second, "a second evaluation differs");
        Ok::<_, Error>((rows, found.swap_remove(0)))
    })
    .unwrap();
    let count = (n * n * n) as usize;
    let (loss, cosmology) = (parts[0].1.0, parts[0].1.4);
    let (positions, momenta) = (vec![[f32::NAN; 3]; count], vec![[f32::NAN; 3]; count]);
    let mut whole = Found { loss, noise: vec![f32::NAN; count], positions, momenta, cosmology };
    for (rows, (_, noise, positions, momenta, cosmology)) in parts {
        assert_eq!(cosmology, whole.cosmology, "the same on all ranks");
        let own = noise.len();
        for (r, row) in rows.into_iter().enumerate() {
            for k in 0..n as usize {
                let (i, at) = (r * n as usize + k, row as usize + k);
                whole.noise[at] = noise[i];
                whole.positions[at] = [0, 1, 2].map(|axis| positions[axis * own + i]);
                whole.momenta[at] = [0, 1, 2].map(|axis| momenta[axis * own + i]);
            }
        }
    }
    whole
}

fn dot(gradient: &[f32], direction: &[f64]) -> f64 {
    gradient.iter().zip(direction).map(|(&g, d)| f64::from(g) * d).sum()
}

fn wide(vectors: &[[f32; 3]]) -> Vec<[f64; 3]> {
    vectors.iter().map(|vector| vector.map(f64::from)).collect()
}

/// Within `tolerance` of the scale of the values that `what` is one of.
fn close(what: &str, got: f64, want: f64, tolerance: f64) {
    assert!(
        (got - want).abs() <= tolerance,
        "{what}: {got} for {want}, {:e} apart of {tolerance:e}",
        (got - want).abs()
    );
}

/// Golden gradient of 8 steps of 16^3 particles: an f64 program's, which automatic
/// differentiation and differences confirm. `f32` kernels of the same run are 5.8e-6 of the rms
/// away from f64 ones; sums are compared at 1e-5.
#[test]
fn a_run_has_the_golden_gradient() {
    let noise = white(4096, 0);
    let found = evaluate(1, &golden(), 1, &noise, variance);
    close("the loss", found.loss, 4.839955383143339, 1e-5 * 4.84);
    let [positions, momenta] = [&found.positions, &found.momenta].map(|vectors| wide(vectors));
    close("rms of positions", rms(&positions), 0.017381899640107484, 1e-5 * 0.0174);
    close("rms of momenta", rms(&momenta), 0.03657374274236652, 1e-5 * 0.0366);
    let at = [(-0.002811131934, -0.009483388134), (0.002919566853, 0.020767467261), (0.022665373185, 0.035248635131)];
    for (axis, (position, momentum)) in at.into_iter().enumerate() {
        close("a position", positions[291][axis], position, 3e-5 * 0.0174);
        close("a momentum", momenta[291][axis], momentum, 3e-5 * 0.0366);
    }
    let square: f64 = found.noise.iter().map(|&g| f64::from(g).powi(2)).sum();
    close("rms of the noise", (square / 4096.0).sqrt(), 0.027893411716921057, 1e-5 * 0.0279);
    for (row, value) in [(0, 0.005388648203), (1, -0.00136389852), (2, -0.01238295334), (291, 0.00887206876756235)] {
        close("the noise", f64::from(found.noise[row]), value, 3e-5 * 0.0279);
    }
    close("along the noise", dot(&found.noise, &noise), 10.664483383150749, 1e-5 * 10.66);
    close("across", dot(&found.noise, &white(4096, 99)), -1.3511327350802549, 1e-5 * 1.79);
}

/// Bits do not depend on ranks, their grid, the states that are kept, or the windows of arrays.
#[test]
fn the_gradient_has_the_same_bits_everywhere() {
    let noise = white(4096, 0);
    let config = Config { steps: 3, ..golden() };
    let first = evaluate(1, &config, 1, &noise, third_bin);
    for every in [2, 3, 100] {
        assert!(evaluate(1, &config, every, &noise, third_bin) == first, "a state for every {every} forces");
    }
    for (ranks, grid, every) in [(2, None, 2), (3, None, 1), (4, Some([2, 2]), 3), (5, Some([1, 5]), 1)] {
        let config = Config { grid, ..config.clone() };
        assert!(evaluate(ranks, &config, every, &noise, third_bin) == first, "{ranks} ranks, {grid:?}");
    }
    // Of the force mesh, 384 KiB, a window holds one component, and of the spectra of the adjoint
    // two thirds of one; smaller ones ask for more bindings than some devices have.
    let small = Options { window_bytes: Some(128 << 10), ..meshloom_sanitizer::options().unwrap() };
    for ranks in [1, 2] {
        assert!(evaluate_with(&small, ranks, &config, 2, (&noise, third_bin)) == first, "{ranks} ranks, small windows");
    }
}

/// A gradient that ran once plans nothing, allocates nothing, compiles nothing, and uploads nothing
/// more.
#[test]
fn a_warmed_gradient_only_computes() {
    // No other test of the process has this window, so no other test allocates on this device
    // meanwhile.
    let options = Options { window_bytes: Some(1 << 20), kernels: 403, ..meshloom_sanitizer::options().unwrap() };
    let config = Config { particles: 8, mesh: 16, steps: 2, ..golden() };
    launch(Launch::Threads(1), &options, |context| {
        let own: Vec<f32> = white(512, 3).iter().map(|&v| v as f32).collect();
        let grid = Grid::new([1, 1], 1)?;
        let mut noise = context.zeros(&config.site_mesh(grid, 0)?)?;
        context.upload(&mut noise, &own)?;
        let by = context.fill(&config.cell_mesh(grid, 0)?, |_| 0.5)?;
        let mut gradient = Gradient::new(context, config.clone(), 2)?;
        let mut seen = Vec::new();
        for _ in 0..3 {
            let found = gradient.evaluate(context, Noise::Field(&noise), |observer, context| {
                observer.add_density(context, &by)?;
                Ok::<_, SimulationError>(1.0)
            })?;
            assert!(found.cosmology.omega_m.is_finite());
            seen.push((context.gpu.allocations(), context.gpu.compiled(), context.recorder.counts()));
        }
        let [_, (allocations, compiled, before), (later_allocations, later_compiled, after)] = seen[..] else {
            unreachable!()
        };
        assert_eq!((later_allocations, later_compiled), (allocations, compiled));
        // Of what a caller is given on the host: whether particles were lost, the parameters'
        // products, whether the results are finite.
        assert_eq!((after.uploads - before.uploads, after.downloads - before.downloads), (0, 1));
        Ok::<_, Error>(())
    })
    .unwrap();
}

/// Memory that is forecast before anything is computed is as much as is taken and little more, as
/// far as one array of one value for each cell.
#[test]
fn memory_is_what_was_said() {
    // A rank of its own device each: no other test of the process has these windows, so no other
    // allocates there.
    for (window, [particles, mesh], every, lpt) in [
        (1 << 21, [8, 16], 1, LptOrder::Second),
        (1 << 22, [16, 32], 3, LptOrder::First),
        (1 << 23, [16, 16], 1, LptOrder::Second),
        (1 << 24, [15, 27], 2, LptOrder::Second),
        (1 << 26, [16, 16], 1, LptOrder::Third),
    ] {
        let config = Config { particles, mesh, steps: 6, lpt, ..golden() };
        let options = Options { window_bytes: Some(window), ..meshloom_sanitizer::options().unwrap() };
        launch(Launch::Threads(1), &options, |context| {
            let before = context.gpu.most_used();
            let mut gradient = Gradient::new(context, config.clone(), every)?;
            for _ in 0..2 {
                gradient.evaluate(context, Noise::Seed, third_bin)?;
            }
            let (taken, said) = (context.gpu.most_used() - before, gradient.memory().total());
            assert!(
                taken <= said && said <= taken + taken / 7,
                "{taken} bytes were taken, {said} said: {:?}",
                gradient.memory()
            );
            Ok::<_, Error>(())
        })
        .unwrap();
    }
}

/// Memory of ranks that share a device: each says its own, with ghost cells as wide as is typical.
#[test]
fn ranks_take_no_more_memory_than_each_said() {
    let config = Config { particles: 16, mesh: 32, steps: 4, ..golden() };
    let options = Options { window_bytes: Some(1 << 25), ..meshloom_sanitizer::options().unwrap() };
    launch(Launch::Threads(2), &options, |context| {
        context.comm.barrier()?;
        let before = context.gpu.most_used();
        context.comm.barrier()?;
        let mut gradient = Gradient::new(context, config.clone(), 2)?;
        gradient.evaluate(context, Noise::Seed, third_bin)?;
        context.comm.barrier()?;
        let (taken, said) = (context.gpu.most_used() - before, 2 * gradient.memory().total());
        // Ranks need not have their most at one time. Where arrays cannot be mapped, exchanges may
        // hold staging buffers besides.
        let staging = 2 * context.exchange.staging_bytes(&context.gpu);
        assert!(
            taken <= said + staging && said <= taken + taken / 2,
            "{taken} bytes were taken, {said} said and {staging} for staging: {:?}",
            gradient.memory()
        );
        Ok::<_, Error>(())
    })
    .unwrap();
}

/// A device that cannot bind the windows of what a derivative reads says so, by the kernel's name,
/// and goes on working.
#[test]
fn windows_too_small_for_a_gradient_are_an_error() {
    let config = Config { particles: 16, mesh: 32, steps: 1, ..golden() };
    let options = Options { window_bytes: Some(128 << 10), floor: true, ..meshloom_sanitizer::options().unwrap() };
    launch(Launch::Threads(1), &options, |context| {
        let mut gradient = Gradient::new(context, config.clone(), 1)?;
        let refused = gradient.evaluate(context, Noise::Seed, |_, _| Ok::<_, SimulationError>(1.0)).err();
        let Some(SimulationError::Device(DeviceError::TooManyWindows { kernel, needed, limit, .. })) = refused else {
            panic!("{refused:?}")
        };
        assert!(!kernel.is_empty() && needed > limit, "{kernel}: {needed} of {limit}");
        let small = Config { particles: 4, mesh: 8, ..config.clone() };
        let mut small = Gradient::new(context, small, 1)?;
        assert!(small.evaluate(context, Noise::Seed, variance)?.loss > 0.0);
        Ok::<_, Error>(())
    })
    .unwrap();
}

/// More particles than sums can have terms are refused before anything is planned.
#[test]
fn more_particles_than_sums_have_terms_are_refused() {
    let config = Config { particles: 4509, mesh: 4509, ..golden() };
    launch(Launch::Threads(1), &meshloom_sanitizer::options().unwrap(), |context| {
        for refused in [Gradient::new(context, config.clone(), 1).map(drop), config.gradient_memory(64, 1).map(drop)] {
            assert!(matches!(refused, Err(SimulationError::OutOfRange { what: "particles", .. })), "{refused:?}");
        }
        Ok::<_, Error>(())
    })
    .unwrap();
}

/// Downloads of an evaluation on each of two ranks.
fn downloads(every: usize) -> Vec<u64> {
    let config = Config { particles: 8, mesh: 16, steps: 4, ..golden() };
    launch(Launch::Threads(2), &meshloom_sanitizer::options().unwrap(), |context| {
        let mut gradient = Gradient::new(context, config.clone(), every)?;
        gradient.evaluate(context, Noise::Seed, third_bin)?;
        let before = context.recorder.counts().downloads;
        gradient.evaluate(context, Noise::Seed, third_bin)?;
        Ok::<_, Error>(context.recorder.counts().downloads - before)
    })
    .unwrap()
}

/// States that are computed again ask no rank how far its particles reach: ghost cells have been
/// wide enough for them before.
#[test]
fn the_way_back_asks_nobody_for_widths() {
    let kept = downloads(1);
    assert_eq!(downloads(100), kept);
    assert!(kept[0] > 0);
}

/// Particles that one evaluation lost are not held against the next, whose noise is another.
#[test]
fn a_lost_run_does_not_spoil_the_next() {
    let config = Config { particles: 8, mesh: 16, steps: 2, ..golden() };
    for ranks in [1, 2] {
        launch(Launch::Threads(ranks), &meshloom_sanitizer::options().unwrap(), |context| {
            let mut gradient = Gradient::new(context, config.clone(), 1)?;
            let sites = config.site_mesh(gradient.config().grid(ranks)?, context.index())?;
            let mut bad = context.zeros(&sites)?;
            context.upload(&mut bad, &vec![f32::NAN; sites.own_cells() as usize])?;
            let lost = gradient.evaluate(context, Noise::Field(&bad), |_, _| Ok::<_, SimulationError>(1.0));
            assert!(matches!(lost.err(), Some(SimulationError::Lost { particles: 1.. })));
            assert!(gradient.evaluate(context, Noise::Seed, variance)?.loss > 0.0);
            Ok::<_, Error>(())
        })
        .unwrap();
    }
}

/// Returns a run of the f64 reference, and a loss of its density.
fn reference(config: &Config, noise: &[f64], loss: &dyn Fn(&[f64]) -> f64) -> f64 {
    let n = config.particles as usize;
    let power = LinearPower::new(config.cosmology, TransferKind::Full).unwrap();
    let delta = linear_density(&power, noise, n, config.box_size);
    let growth = power.growth();
    let mut state = start(&displacements(&delta, n, config.box_size), &growth.at(config.a_start).unwrap(), config.lpt);
    let setup = Setup {
        particles: n,
        mesh: config.mesh as usize,
        box_size: config.box_size,
        omega_m: config.cosmology.omega_m(),
    };
    let ops = schedule(growth, config.scheme, config.a_start, config.a_end, config.steps, &[]).unwrap();
    setup.run(&mut state, &ops, |_, _, _| {});
    loss(&setup.paint(&setup.positions(&state.s)))
}

fn variance_of(density: &[f64]) -> f64 {
    0.5 * density.iter().map(|d| (d - 1.0).powi(2)).sum::<f64>() / density.len() as f64
}

fn third_bin_of(density: &[f64]) -> f64 {
    let m = (density.len() as f64).cbrt().round() as usize;
    power_spectrum(density, m, 64.0, m / 2)[2].power
}

/// Sizes of changes of parameters that matter.
const SIZES: [f64; 7] = [0.3, 0.05, 0.7, 0.96, 2e-9, 1.0, 1.0];

fn with(cosmology: &Cosmology, which: usize, factor: f64) -> Cosmology {
    let ([w0, wa], amplitude) = (cosmology.dark_energy(), cosmology.primordial_amplitude());
    let mut values = [cosmology.omega_m(), cosmology.omega_b(), cosmology.h(), cosmology.n_s(), amplitude, w0, wa];
    values[which] += (factor - 1.0) * SIZES[which];
    let [omega_m, omega_b, h, n_s, amplitude, w0, wa] = values;
    let amplitude = Amplitude::Primordial(amplitude);
    Cosmology::new(Parameters { amplitude, n_s, omega_m, omega_b, h, w0, wa, ..cosmology.parameters() }).unwrap()
}

/// Derivatives along directions of the noise and by each parameter are central differences of the
/// f64 reference. These have an error of their own where particles cross nodes, since cloud in cell
/// has kinks: with steps of 1e-6 some 1e-6 of the value.
#[test]
fn derivatives_are_differences_of_the_reference() {
    let noise = white(512, 3);
    let direction = white(512, 4);
    let losses: [(Loss, &dyn Fn(&[f64]) -> f64); 2] = [(variance, &variance_of), (third_bin, &third_bin_of)];
    // The third order matters at a late start.
    for (scheme, lpt, [a_start, steps], (loss, of_density)) in [
        (Scheme::BullFrog, LptOrder::Second, [0.0625, 4.0], losses[0]),
        (Scheme::FastPm, LptOrder::First, [0.0625, 4.0], losses[1]),
        (Scheme::FastPm, LptOrder::Third, [0.3, 1.0], losses[0]),
    ] {
        let config = Config { particles: 8, mesh: 16, steps: steps as usize, a_start, scheme, lpt, ..golden() };
        let found = evaluate(2, &config, 2, &noise, loss);
        let value = reference(&config, &noise, of_density);
        close("the loss", found.loss, value, 2e-5 * value);
        let step = 1e-6;
        let along = |by: f64| {
            let noise: Vec<f64> = noise.iter().zip(&direction).map(|(w, d)| w + by * d).collect();
            reference(&config, &noise, of_density)
        };
        let want = (along(step) - along(-step)) / (2.0 * step);
        let scale = found.noise.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        close("along a direction", dot(&found.noise, &direction), want, 1e-4 * scale);
        let CosmologyGradient { omega_m, omega_b, h, n_s, primordial_amplitude, w0, wa, .. } = found.cosmology;
        for (which, derivative) in [omega_m, omega_b, h, n_s, primordial_amplitude, w0, wa].into_iter().enumerate() {
            let at = |by: f64| {
                let cosmology = with(&config.cosmology, which, 1.0 + by);
                reference(&Config { cosmology, ..config.clone() }, &noise, of_density)
            };
            let want = (at(step) - at(-step)) / (2.0 * step);
            let one = SIZES[which];
            // Changes of the loss by a change of a parameter by its own size: of the order of the
            // loss.
            close(&format!("{scheme:?}, parameter {which}"), derivative * one, want, 1e-4 * (want.abs() + value));
        }
    }
}

/// A gradient predicts how the loss itself changes with windows that have no kinks; the error of
/// the prediction falls with the square of the step.
#[test]
fn losses_with_smooth_windows_follow_their_gradient() {
    for window in [Window::Tsc, Window::Pcs] {
        let config = Config { particles: 8, mesh: 16, steps: 2, window, ..golden() };
        let (noise, direction) = (white(512, 3), white(512, 4));
        let found = evaluate(1, &config, 1, &noise, variance);
        let slope = dot(&found.noise, &direction);
        let rest = |by: f64| {
            let moved: Vec<f64> = noise.iter().zip(&direction).map(|(w, d)| w + by * d).collect();
            (evaluate(1, &config, 1, &moved, variance).loss - found.loss - by * slope).abs()
        };
        let [wide, narrow] = [0.2, 0.1].map(rest);
        // Of second order: a quarter, except for terms of third order.
        assert!(wide < 0.2 * (0.2 * slope).abs().max(found.loss), "{window}: {wide} {slope}");
        assert!((2.5..6.0).contains(&(wide / narrow)), "{window}: {wide} {narrow}");
    }
}

#[test]
fn losses_of_positions_and_momenta() {
    // Without a step of length the end is the start: the cotangents come back as they are.
    let config = Config { particles: 8, mesh: 8, steps: 1, a_start: 0.5, a_end: 0.5 + 1e-9, ..golden() };
    let found = evaluate(2, &config, 1, &white(512, 3), |observer, context| {
        let count = observer.cotangents().positions().len() as usize;
        let values: Vec<f32> = (0..count).map(|i| (i % 7) as f32 - 3.0).collect();
        context.recorder.upload(observer.cotangents().positions(), 0, &values)?;
        context.recorder.upload(observer.cotangents().momenta(), 0, &values)?;
        Ok(1.0)
    });
    assert_eq!(found.loss, 1.0);
    let half = 256;
    for (i, (x, p)) in found.positions.iter().zip(&found.momenta).enumerate() {
        for axis in 0..3 {
            let want = ((axis * half + i % half) % 7) as f32 - 3.0;
            assert!((x[axis] - want).abs() < 1e-5 && (p[axis] - want).abs() < 1e-5, "{i} {axis}: {x:?} {p:?} {want}");
        }
    }
}

#[test]
fn what_has_no_gradient_is_an_error() {
    let config = Config { particles: 4, mesh: 8, steps: 1, ..golden() };
    launch(Launch::Threads(2), &meshloom_sanitizer::options().unwrap(), |context| {
        assert!(Gradient::new(context, config.clone(), 0).unwrap_err().to_string().contains("checkpoint_every"));
        let mut gradient = Gradient::new(context, config.clone(), 1)?;
        let memory = gradient.memory();
        assert_eq!((memory.forces, memory.states, memory.state), (2, 2, 24 * 32));
        assert!(memory.total() > 2 * memory.state && memory.to_string().contains("2 states"), "{memory}");
        let nan = gradient.evaluate(context, Noise::Seed, |_, _| Ok::<_, SimulationError>(f64::NAN));
        assert!(matches!(nan.err(), Some(SimulationError::Loss { what: "the loss" })));
        let wrong = gradient.evaluate(context, Noise::Seed, |observer, context| {
            // One rank's cotangent is enough.
            if context.comm.rank() == 1 {
                context.recorder.upload(observer.cotangents().momenta(), 0, &[f32::NAN])?;
            }
            Ok::<_, SimulationError>(0.0)
        });
        assert!(matches!(wrong.err(), Some(SimulationError::Loss { .. })));
        // The noise has a finite cotangent, the amplitude does not: A_s is some 1e-9, and products
        // are f32.
        let steep = gradient.evaluate(context, Noise::Seed, |observer, context| {
            let count = observer.cotangents().positions().len() as usize;
            let steep: Vec<f32> = (0..count).map(|i| 1e31 * (i % 7) as f32).collect();
            context.recorder.upload(observer.cotangents().positions(), 0, &steep)?;
            Ok::<_, SimulationError>(0.0)
        });
        assert!(matches!(steep.err(), Some(SimulationError::Loss { what: "a derivative of the loss" })));
        let few = gradient.evaluate(context, Noise::Seed, |observer, context| {
            let spectrum = observer.run().power(context)?;
            observer.add_power(context, &spectrum, &[1.0])?;
            Ok::<_, SimulationError>(0.0)
        });
        assert!(few.err().is_some_and(|error| error.to_string().contains("bins")));
        let again = gradient.evaluate(context, Noise::Seed, variance)?;
        assert!(again.loss > 0.0);
        Ok::<_, Error>(())
    })
    .unwrap();
}
