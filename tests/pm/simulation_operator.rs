//! A run as an operator: both derivatives against each other, against the run itself, and on other
//! numbers of ranks.

use std::collections::BTreeMap;

use super::ranks::{cells, host, on_grid, own};
use super::reference_pm::white;
use meshloom::Rank;
use meshloom::cosmology::{Amplitude, Cosmology, LptOrder, Parameters, Scheme};
use meshloom::gpu::{Array, Options};
use meshloom::mesh::Window;
use meshloom::operators::{
    Linearization, Model, OperatorError, PointwiseOperator, Vector, check_adjoint, check_derivative,
};
use meshloom::pm::{Config, Gradient, Noise, Observable, Simulation, SimulationError, SimulationOperator};

const GRIDS: [[usize; 2]; 4] = [[1, 1], [2, 1], [3, 1], [2, 2]];
const ALL: [Observable; 3] = [Observable::Momentum, Observable::Density, Observable::Displacement];

/// Returns the operator on the process grid of the test.
fn operator(
    rank: &mut Rank,
    config: Config,
    every: usize,
    observables: &[Observable],
) -> Result<SimulationOperator, OperatorError> {
    let grid = Some(crate::process_grid::of(rank).parts());
    SimulationOperator::new(rank, Config { grid, ..config }, every, observables)
}

fn config() -> Config {
    let base = Config { scheme: Scheme::FastPm, cosmology: Cosmology::simple(), ..Config::default() };
    Config { particles: 8, mesh: 16, box_size: 64.0, steps: 3, ..base }
}

/// Returns the other scheme, order and window.
fn other() -> Config {
    Config { scheme: Scheme::BullFrog, lpt: LptOrder::First, window: Window::Tsc, ..config() }
}

/// Numbers at the cells of the leaf `name`, the same on all grids, times `scale`.
fn set(rank: &mut Rank, field: &mut Vector, name: &str, salt: u64, scale: f64) -> Result<(), OperatorError> {
    let leaf = field.space().leaf(name).unwrap().clone();
    let mesh = leaf.mesh().unwrap().clone();
    let count = mesh.total_cells() as usize;
    let all = white(count * leaf.components as usize, salt);
    let values: Vec<f64> = all.chunks(count).flat_map(|one| own(&mesh, one)).map(|value| scale * value).collect();
    field.set(&mut rank.recorder, name, &values)
}

/// A field of noise, and of parameters where there are any.
fn point(
    rank: &mut Rank,
    model: &Model,
    (salt, scale): (u64, f64),
    parameters: [f64; 7],
) -> Result<Vector, OperatorError> {
    let mut x = Vector::new(&rank.gpu, model.domain())?;
    set(rank, &mut x, "white_noise", salt, scale)?;
    if model.domain().len() > 1 {
        x.set(&mut rank.recorder, "cosmology", &parameters)?;
    }
    Ok(x)
}

fn cotangent(rank: &mut Rank, model: &Model, salt: u64) -> Result<Vector, OperatorError> {
    let mut dy = Vector::new(&rank.gpu, model.target())?;
    let names: Vec<String> = model.target().names().map(Into::into).collect();
    for (at, name) in names.iter().enumerate() {
        // Momenta and displacements are of another size than densities.
        set(rank, &mut dy, name, salt + at as u64, if name == "density" { 1.0 } else { 0.1 })?;
    }
    Ok(dy)
}

const SIMPLE: [f64; 7] = [0.3, 0.05, 0.7, 0.96, 2e-9, -1.0, 0.0];
const CHANGE: [f64; 7] = [0.02, 0.004, 0.03, 0.05, 2e-10, 0.1, -0.2];

/// `<J dx, dy>` and `<dx, J^T dy>` to 16 roundings of the product of norms.
fn transposes(rank: &mut Rank, at: &Linearization, dx: &Vector, dy: &Vector) -> Result<(), OperatorError> {
    let mut forward = Vector::new(&rank.gpu, dy.space())?;
    let mut reverse = Vector::new(&rank.gpu, dx.space())?;
    at.jvp(rank, dx, &mut forward)?;
    at.vjp(rank, dy, &mut reverse)?;
    let scale = (rank.vector_dot(&forward, &forward)? * rank.vector_dot(dy, dy)?).sqrt();
    let [there, back] = [rank.vector_dot(&forward, dy)?, rank.vector_dot(dx, &reverse)?];
    assert!(there.abs() > 1e-4 * scale, "a product that says nothing: {there} of {scale}");
    assert!((there - back).abs() <= 16.0 * f64::from(f32::EPSILON) * scale, "{there} {back}, scale {scale}");
    Ok(())
}

#[test]
fn both_derivatives_are_the_transposes_of_each_other() {
    for parts in GRIDS {
        on_grid(parts, &meshloom_sanitizer::options().unwrap(), |rank| {
            for (config, every) in [(config(), 1), (other(), 2)] {
                let run = operator(rank, config, every, &ALL)?.with_cosmology()?;
                assert_eq!(run.own_cosmology()?, SIMPLE);
                let model = Model::new(run);
                let x = point(rank, &model, (1, 1.0), SIMPLE)?;
                let at = model.at(rank, &x)?;
                let dy = cotangent(rank, &model, 4)?;
                let both = point(rank, &model, (2, 1.0), CHANGE)?;
                transposes(rank, &at, &both, &dy)?;
                // Of parameters alone.
                let dx = point(rank, &model, (2, 0.0), CHANGE)?;
                transposes(rank, &at, &dx, &dy)?;
            }
            let run = operator(rank, other(), 1, &ALL)?.with_sigma8()?;
            let (own, change) = (run.own_cosmology()?, [0.02, 0.004, 0.03, 0.05, 0.1, 0.1, -0.2]);
            let model = Model::new(run);
            let x = point(rank, &model, (1, 1.0), own)?;
            let (at, dy) = (model.at(rank, &x)?, cotangent(rank, &model, 4)?);
            let dx = point(rank, &model, (2, 0.0), change)?;
            transposes(rank, &at, &dx, &dy)?;
            // The run is that of the A_s which has this sigma_8, and the derivative that of the
            // run.
            let by_amplitude = Model::new(operator(rank, other(), 1, &ALL)?.with_cosmology()?);
            let there = point(rank, &by_amplitude, (1, 1.0), SIMPLE)?;
            let there = by_amplitude.value(rank, &there)?;
            let (here, there) = (host(rank, &at.value)?, host(rank, &there)?);
            let apart = here["density"].iter().zip(&there["density"]).map(|(a, b)| (a - b).abs());
            assert!(apart.fold(0.0, f64::max) < 1e-5);
            let step = |by: f64| std::array::from_fn(|which| own[which] + by * change[which]);
            let [above, below] = [1e-2, -1e-2].map(step).map(|parameters| {
                let x = point(rank, &model, (1, 1.0), parameters)?;
                let value = model.value(rank, &x)?;
                host(rank, &value)
            });
            let mut product = Vector::new(&rank.gpu, model.target())?;
            at.jvp(rank, &dx, &mut product)?;
            let (above, below, product) = (above?, below?, host(rank, &product)?);
            for name in ["displacement", "momentum"] {
                let want: Vec<f64> = above[name].iter().zip(&below[name]).map(|(a, b)| (a - b) / 2e-2).collect();
                let apart: f64 = want.iter().zip(&product[name]).map(|(a, b)| (a - b).powi(2)).sum();
                let size: f64 = want.iter().map(|a| a * a).sum();
                assert!(apart.sqrt() < 1e-2 * size.sqrt(), "{name}: {apart} of {size}");
            }
            Ok(())
        });
    }
}

/// Memory that is forecast before anything is computed is what an operator with one linearization
/// takes, and little more, in both products.
#[test]
fn an_operator_takes_the_memory_that_it_said() {
    // No other test of the process has these windows, so no other test allocates on the device.
    for (window, mesh) in [(1 << 22, 32), (1 << 23, 16)] {
        let options = Options { window_bytes: Some(window), ..meshloom_sanitizer::options().unwrap() };
        on_grid([1, 1], &options, |rank| {
            let before = rank.gpu.most_used();
            let config = Config { particles: 16, mesh, ..config() };
            let run = operator(rank, config, 2, &[Observable::Density])?.with_cosmology()?;
            let said = run.memory();
            let model = Model::new(run);
            let x = point(rank, &model, (1, 1.0), SIMPLE)?;
            let at = model.at(rank, &x)?;
            let (dx, dy) = (point(rank, &model, (2, 1.0), CHANGE)?, cotangent(rank, &model, 4)?);
            let mut forward = Vector::new(&rank.gpu, dy.space())?;
            let mut reverse = Vector::new(&rank.gpu, dx.space())?;
            for _ in 0..2 {
                at.jvp(rank, &dx, &mut forward)?;
                at.vjp(rank, &dy, &mut reverse)?;
            }
            // What is the caller's: the noise of two fields beside that of the point, and three
            // densities.
            let fields = 4 * (2 * 16u64.pow(3) + 3 * mesh.pow(3));
            let (taken, total) = (rank.gpu.most_used() - before - fields, said.total());
            assert!(taken <= total && total <= taken + taken / 7, "{taken} bytes were taken, {total} said: {said:?}");
            Ok(())
        });
    }
}

#[test]
fn the_tangent_is_the_derivative_of_the_value() {
    on_grid([2, 1], &meshloom_sanitizer::options().unwrap(), |rank| {
        for config in [Config { window: Window::Pcs, ..config() }, other()] {
            let model = Model::new(operator(rank, config, 2, &ALL)?.with_cosmology()?);
            let x = point(rank, &model, (1, 1.0), SIMPLE)?;
            let noise = point(rank, &model, (2, 0.3), [0.0; 7])?;
            let found = check_derivative(rank, &model, &x, &noise)?;
            assert!(found.order.is_some(), "{found}");
            let parameters = point(rank, &model, (2, 0.0), CHANGE)?;
            let found = check_derivative(rank, &model, &x, &parameters)?;
            assert!(found.order.is_some(), "{found}");
        }
        Ok(())
    });
}

#[test]
fn a_run_composes_with_other_operators() {
    on_grid([1, 2], &meshloom_sanitizer::options().unwrap(), |rank| {
        let config = Config { window: Window::Tsc, steps: 2, ..config() };
        let run = Model::new(operator(rank, config, 1, &[Observable::Density])?);
        let text = "fn f(density: f32) -> f32 { return log(0.5 + density * density); }";
        let model = run.then(&Model::new(PointwiseOperator::wgsl(text, "f", run.target(), "signal")?))?;
        let x = point(rank, &model, (1, 1.0), SIMPLE)?;
        check_adjoint(rank, &model, &x)?;
        let dx = point(rank, &model, (2, 0.3), SIMPLE)?;
        check_derivative(rank, &model, &x, &dx)?;
        let cost = model.cost();
        assert!(
            cost.apply.dispatches > 0
                && cost.jvp.dispatches > cost.apply.dispatches
                && cost.vjp.dispatches > cost.jvp.dispatches
        );
        // Points have arrays of their own: another one in between changes nothing.
        let at = model.at(rank, &x)?;
        let mut first = Vector::new(&rank.gpu, model.target())?;
        at.jvp(rank, &dx, &mut first)?;
        let elsewhere = model.at(rank, &dx)?;
        let (mut unused, mut second) = (Vector::new(&rank.gpu, model.target())?, first.clone());
        elsewhere.jvp(rank, &x, &mut unused)?;
        second = Vector::new(&rank.gpu, second.space())?;
        at.jvp(rank, &dx, &mut second)?;
        assert_eq!(host(rank, &first)?, host(rank, &second)?);
        Ok(())
    });
}

/// Values by leaf, component and cell.
type Whole = BTreeMap<String, BTreeMap<(usize, u64), u64>>;

fn gather(rank: &mut Rank, field: &Vector, whole: &mut Whole) -> Result<(), OperatorError> {
    for (name, values) in host(rank, field)? {
        let leaf = field.space().leaf(&name).unwrap().clone();
        let of_leaf = whole.entry(name).or_default();
        match leaf.mesh() {
            None => of_leaf.extend(values.iter().enumerate().map(|(at, value)| ((at, 0), value.to_bits()))),
            Some(mesh) => {
                let cells = cells(mesh);
                for (at, value) in values.into_iter().enumerate() {
                    of_leaf.insert((at / cells.len(), cells[at % cells.len()]), value.to_bits());
                }
            }
        }
    }
    Ok(())
}

#[test]
fn values_and_products_have_the_same_bits_on_all_ranks() {
    let found = GRIDS.map(|parts| {
        let ranks = on_grid(parts, &meshloom_sanitizer::options().unwrap(), |rank| {
            let model = Model::new(operator(rank, config(), 2, &ALL)?.with_cosmology()?);
            let x = point(rank, &model, (1, 1.0), SIMPLE)?;
            let at = model.at(rank, &x)?;
            let (dx, dy) = (point(rank, &model, (2, 1.0), CHANGE)?, cotangent(rank, &model, 4)?);
            let (mut jvp, mut vjp) = (Vector::new(&rank.gpu, dy.space())?, Vector::new(&rank.gpu, dx.space())?);
            at.jvp(rank, &dx, &mut jvp)?;
            at.vjp(rank, &dy, &mut vjp)?;
            let mut own = [Whole::new(), Whole::new(), Whole::new()];
            for (field, whole) in [&at.value, &jvp, &vjp].into_iter().zip(&mut own) {
                gather(rank, field, whole)?;
            }
            Ok(own)
        });
        ranks.into_iter().fold([Whole::new(), Whole::new(), Whole::new()], |mut all, own| {
            for (all, own) in all.iter_mut().zip(own) {
                own.into_iter().for_each(|(name, values)| all.entry(name).or_default().extend(values));
            }
            all
        })
    });
    assert_eq!(found[0][0]["density"].len(), 4096);
    assert_eq!(found[0][2]["white_noise"].len(), 512);
    for (parts, other) in GRIDS.iter().zip(&found) {
        assert!(*other == found[0], "{parts:?}");
    }
}

fn download(rank: &mut Rank, array: &Array<f32>) -> Vec<f32> {
    rank.recorder.download(array, 0, array.len()).unwrap()
}

/// Snapshots of the operator are those of the run, and have their derivatives.
#[test]
fn runs_are_observed_at_several_times() {
    for (parts, every) in [([1, 1], 1), ([3, 1], 2)] {
        on_grid(parts, &meshloom_sanitizer::options().unwrap(), |rank| {
            let config = Config { snapshots: vec![0.7, 0.3, 0.0625], ..other() };
            let model = Model::new(operator(rank, config.clone(), every, &ALL)?.with_snapshots()?.with_cosmology()?);
            let x = point(rank, &model, (1, 1.0), SIMPLE)?;
            let at = model.at(rank, &x)?;
            let dy = cotangent(rank, &model, 4)?;
            let dx = point(rank, &model, (2, 1.0), CHANGE)?;
            transposes(rank, &at, &dx, &dy)?;
            let small = point(rank, &model, (2, 0.1), CHANGE.map(|value| 0.1 * value))?;
            assert!(check_derivative(rank, &model, &x, &small)?.order.is_some());

            let noise = download(rank, x.array("white_noise")?);
            let grid = Some(crate::process_grid::of(rank).parts());
            let failed = |error: SimulationError| OperatorError::failed("test", error);
            let mut run =
                Simulation::new(rank, Config { grid, ..config.clone() }, Noise::Values(&noise)).map_err(failed)?;
            let mut found = 0;
            let rows = |columns: Vec<f32>| -> Vec<f32> {
                let count = columns.len() / 3;
                (0..3 * count).map(|at| columns[at % 3 * count + at / 3]).collect()
            };
            let observed = run.run(rank, |run, rank, reached| {
                let numbers = config.snapshots.iter().enumerate().filter(|(_, a)| **a == reached.a);
                for (number, _) in numbers {
                    let [displacement, momentum] = run.phase_space(rank)?;
                    for (name, wanted) in [("displacement", displacement), ("momentum", momentum)] {
                        let array = at.value.array(&format!("snapshot_{number}/{name}")).unwrap();
                        assert_eq!(rows(download(rank, array)), wanted, "{number} {name}");
                    }
                    found += 1;
                }
                Ok::<_, SimulationError>(())
            });
            observed.map_err(failed)?;
            assert_eq!(found, 3);
            Ok(())
        });
    }
}

#[test]
fn the_operator_is_the_run_and_its_gradient() {
    on_grid([1, 1], &meshloom_sanitizer::options().unwrap(), |rank| {
        let model = Model::new(operator(rank, config(), 1, &ALL)?.with_cosmology()?);
        let x = point(rank, &model, (1, 1.0), SIMPLE)?;
        let at = model.at(rank, &x)?;
        let noise = download(rank, x.array("white_noise")?);
        let failed = |error: SimulationError| OperatorError::failed("test", error);
        let values = |rank: &mut Rank, config: Config| {
            let mut run = Simulation::new(rank, config, Noise::Values(&noise))?;
            run.run(rank, |_, _, _| Ok::<_, SimulationError>(()))?;
            Ok::<_, SimulationError>((run.density(rank)?, run.phase_space(rank)?))
        };
        let (density, [displacement, momentum]) = values(rank, config()).map_err(failed)?;
        let density = download(rank, density.array());
        assert_eq!(download(rank, at.value.array("density")?), density);
        // Columns, one for each axis, as rows.
        let rows = |columns: Vec<f32>| -> Vec<f32> {
            let count = columns.len() / 3;
            (0..3 * count).map(|at| columns[at % 3 * count + at / 3]).collect()
        };
        assert_eq!(rows(download(rank, at.value.array("displacement")?)), displacement);
        assert_eq!(rows(download(rank, at.value.array("momentum")?)), momentum);

        // With another cosmology, to rounding: the force is the configuration's, with stronger
        // kicks.
        let elsewhere = [0.2, 0.03, 0.6, 1.0, 2.5e-9, -0.9, 0.2];
        let there = point(rank, &model, (1, 1.0), elsewhere)?;
        let value = model.value(rank, &there)?;
        let [omega_m, omega_b, h, n_s, amplitude, w0, wa] = elsewhere;
        let amplitude = Amplitude::Primordial(amplitude);
        let cosmology =
            Cosmology::new(Parameters { amplitude, n_s, omega_m, omega_b, h, w0, wa, ..Parameters::default() });
        let (density, _) = values(rank, Config { cosmology: cosmology.unwrap(), ..config() }).map_err(failed)?;
        let (found, density) = (download(rank, value.array("density")?), download(rank, density.array()));
        let apart = found.iter().zip(&density).map(|(a, b)| (a - b).abs());
        // A rounding of positions of 64 Mpc/h times the slope of the density in cells of 4 Mpc/h,
        // over the steps.
        assert!(apart.fold(0.0, f32::max) < 1e-4);

        let mut by = Vector::zeros(&mut rank.recorder, model.target())?;
        set(rank, &mut by, "density", 4, 1.0)?;
        let mut found = Vector::new(&rank.gpu, model.domain())?;
        at.vjp(rank, &by, &mut found)?;
        let mut gradient = Gradient::new(rank, config(), 2).map_err(failed)?;
        let cotangent = by.field("density")?;
        let same = gradient.evaluate(rank, Noise::Field(&x.field("white_noise")?), |observer, context| {
            observer.add_density(context, &cotangent)?;
            Ok::<_, SimulationError>(0.0)
        });
        let same = same.map_err(failed)?;
        assert_eq!(download(rank, found.array("white_noise")?), download(rank, same.white_noise.array()));
        let cosmology = same.cosmology;
        let [omega_m, omega_b, h] = [cosmology.omega_m, cosmology.omega_b, cosmology.h];
        let [n_s, amplitude, w0, wa] = [cosmology.n_s, cosmology.primordial_amplitude, cosmology.w0, cosmology.wa];
        assert_eq!(found.parameters("cosmology")?, [omega_m, omega_b, h, n_s, amplitude, w0, wa]);
        Ok(())
    });
}

#[test]
fn what_does_not_fit_is_an_error() {
    on_grid([2, 1], &meshloom_sanitizer::options().unwrap(), |rank| {
        let refused = |found: Result<SimulationOperator, OperatorError>, what: &str| {
            let error = found.unwrap_err();
            assert!(matches!(error, OperatorError::Failed { .. }) && error.to_string().contains(what), "{error}");
        };
        refused(operator(rank, config(), 0, &ALL), "checkpoint_every");
        refused(operator(rank, config(), 1, &[]), "observables");
        refused(operator(rank, config(), 1, &[Observable::Density; 2]), "observables");
        refused(operator(rank, Config { mesh: 4, ..config() }, 1, &ALL), "mesh");

        let model = Model::new(operator(rank, config(), 1, &ALL)?.with_cosmology()?);
        let matter = point(rank, &model, (1, 1.0), [31.0, 0.05, 0.7, 0.96, 2e-9, -1.0, 0.0])?;
        let error = model.value(rank, &matter).unwrap_err();
        assert!(error.to_string().contains("Omega_m = 31"), "{error}");
        let lost = point(rank, &model, (1, f64::NAN), SIMPLE)?;
        let error = model.at(rank, &lost).unwrap_err();
        assert!(error.to_string().contains("no finite position"), "{error}");
        let x = point(rank, &model, (1, 1.0), SIMPLE)?;
        let at = model.at(rank, &x)?;
        let (mut dx, mut dy) = (Vector::new(&rank.gpu, model.domain())?, cotangent(rank, &model, 4)?);
        assert!(matches!(at.vjp(rank, &x, &mut dx), Err(OperatorError::Fit { .. })));
        set(rank, &mut dy, "momentum", 1, f64::INFINITY)?;
        let error = at.vjp(rank, &dy, &mut dx).unwrap_err();
        assert!(matches!(error, OperatorError::NotFinite { .. }), "{error}");
        Ok(())
    });
}
