//! Painting with derivatives by positions and weights, against f64 on the host.

use super::ranks::{cells, host, mesh, number, on_grid, options, own};
use meshloom::Rank;
use meshloom::mesh::Window;
use meshloom::operators::{Leaf, Model, OperatorError, Paint, Space, Vector};
use meshloom::pm::{Config, Observable, SimulationOperator};

const SHAPE: [u64; 3] = [8, 16, 12];
const SIZE: [f64; 3] = [4.0, 8.0, 6.0];

/// Returns the share of a cell `x` cells away (Hockney & Eastwood 1981, chapter 5).
fn share(window: Window, x: f64) -> f64 {
    let x = x.abs();
    match window {
        Window::Cic => (1.0 - x).max(0.0),
        Window::Tsc if x < 0.5 => 0.75 - x * x,
        Window::Tsc => 0.5 * (1.5 - x).max(0.0).powi(2),
        Window::Pcs if x < 1.0 => (4.0 - 6.0 * x * x + 3.0 * x * x * x) / 6.0,
        Window::Pcs => (2.0 - x).max(0.0).powi(3) / 6.0,
    }
}

/// Returns the density of particles with weights at all cells, by its definition.
fn painted(window: Window, positions: &[[f64; 3]], weights: &[f64]) -> Vec<f64> {
    let shape = SHAPE.map(|n| n as usize);
    let total: usize = shape.iter().product();
    let mut density = vec![0.0; total];
    for (position, weight) in positions.iter().zip(weights) {
        let along = |axis: usize| -> Vec<f64> {
            let n = shape[axis] as f64;
            let at = position[axis] / SIZE[axis] * n;
            (0..shape[axis]).map(|cell| share(window, (at - cell as f64 + 0.5 * n).rem_euclid(n) - 0.5 * n)).collect()
        };
        let [x, y, z] = [along(0), along(1), along(2)];
        for (cell, value) in density.iter_mut().enumerate() {
            let share = x[cell / shape[2] / shape[1]] * y[cell / shape[2] % shape[1]] * z[cell % shape[2]];
            *value += weight * share * total as f64 / positions.len() as f64;
        }
    }
    density
}

/// Particles anywhere in the box and beyond, some at one place.
fn particles() -> (Vec<[f64; 3]>, Vec<f64>) {
    let at = |n: u64, axis: usize| f64::from((SIZE[axis] * 1.7 * number(n, 20 + axis as u64)) as f32);
    let mut positions: Vec<[f64; 3]> = (0..38).map(|n| [at(n, 0), at(n, 1), at(n, 2)]).collect();
    positions.extend([positions[3]; 2]);
    (positions, (0..40).map(|n| f64::from((1.0 + 2.0 * number(n, 30)) as f32)).collect())
}

/// Rows as the part of a rank: ranks in the middle have none.
fn part<T: Copy>(rank: &Rank, rows: &[T]) -> Vec<T> {
    let (size, index) = (rank.comm.size(), rank.comm.rank());
    match index {
        0 if size > 1 => rows[..13].to_vec(),
        _ if index == size - 1 => rows[if size > 1 { 13 } else { 0 }..].to_vec(),
        _ => Vec::new(),
    }
}

/// Returns a vector of the domain: positions and weights of this rank.
fn vector(rank: &mut Rank, space: &Space, positions: &[[f64; 3]], weights: &[f64]) -> Result<Vector, OperatorError> {
    let mut x = Vector::new(&rank.gpu, space)?;
    let rows = part(rank, positions);
    let along: Vec<f64> = (0..3).flat_map(|axis| rows.iter().map(move |row| row[axis])).collect();
    x.set(&mut rank.recorder, "positions", &along)?;
    let own = part(rank, weights);
    x.set(&mut rank.recorder, "weights", &own)?;
    Ok(x)
}

fn space(own: u64) -> Result<Space, OperatorError> {
    let points = Leaf::points(own, 40);
    Space::new([("positions", points.clone().components(3)), ("weights", points)])
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn painting_and_its_derivatives_are_those_of_the_host() {
    let (positions, weights) = particles();
    let total: u64 = SHAPE.iter().product();
    let bar: Vec<f64> = (0..total).map(|cell| number(cell, 40)).collect();
    let change: Vec<[f64; 3]> = (0..40).map(|n| [0, 1, 2].map(|axis| number(n, 50 + axis))).collect();
    let heavier: Vec<f64> = (0..40).map(|n| number(n, 60)).collect();
    for window in Window::ALL {
        let at = |by: f64| {
            let moved: Vec<[f64; 3]> =
                positions.iter().zip(&change).map(|(x, d)| [0, 1, 2].map(|axis| x[axis] + by * d[axis])).collect();
            let weights: Vec<f64> = weights.iter().zip(&heavier).map(|(w, d)| w + by * d).collect();
            painted(window, &moved, &weights)
        };
        let step = 1e-6;
        let density = painted(window, &positions, &weights);
        let tangent: Vec<f64> = at(step).iter().zip(at(-step)).map(|(a, b)| (a - b) / (2.0 * step)).collect();
        // The cotangents of all particles, one number after the other.
        let gradient = |axis: usize, n: usize| {
            let loss = |by: f64| {
                let (mut position, mut weight) = (positions[n], weights[n]);
                if axis < 3 {
                    position[axis] += by
                } else {
                    weight += by
                }
                dot(&bar, &painted(window, &[position], &[weight])) / 40.0
            };
            (loss(step) - loss(-step)) / (2.0 * step)
        };
        let gradients: Vec<Vec<f64>> = (0..4).map(|axis| (0..40).map(|n| gradient(axis, n)).collect()).collect();
        let mut bits = Vec::new();
        for parts in [[1, 1], [3, 1], [1, 2], [2, 2]] {
            let found = on_grid(parts, &options()[0], |rank| {
                let mesh = mesh(rank, SHAPE);
                let space = space(part(rank, &weights).len() as u64)?;
                let paint = Model::new(Paint::new(rank, &space, &mesh, window)?);
                let x = vector(rank, &space, &positions, &weights)?;
                let dx = vector(rank, &space, &change, &heavier)?;
                let at = paint.at(rank, &x)?;
                let (mut dy, mut back) =
                    (Vector::new(&rank.gpu, paint.target())?, Vector::new(&rank.gpu, paint.domain())?);
                at.jvp(rank, &dx, &mut dy)?;
                let close = |what: &str, found: &[f64], wanted: &[f64], most: f64| {
                    for (found, wanted) in found.iter().zip(wanted) {
                        assert!((found - wanted).abs() < most, "{window} {what}: {found}, not {wanted}");
                    }
                };
                // Shares are up to 100, and offsets in cells are rounded to 6e-8.
                let value = host(rank, &at.value)?.remove("density").unwrap();
                close("value", &value, &own(&mesh, &density), 1e-4);
                let product = host(rank, &dy)?.remove("density").unwrap();
                close("jvp", &product, &own(&mesh, &tangent), 4e-4);
                let mut by = Vector::new(&rank.gpu, paint.target())?;
                by.set(&mut rank.recorder, "density", &own(&mesh, &bar))?;
                at.vjp(rank, &by, &mut back)?;
                let back = host(rank, &back)?;
                let wanted: Vec<f64> = gradients[..3].iter().flat_map(|along| part(rank, along)).collect();
                close("vjp by positions", &back["positions"], &wanted, 4e-4);
                close("vjp by weights", &back["weights"], &part(rank, &gradients[3]), 1e-4);
                let places = cells(&mesh);
                let values: Vec<(u64, [u64; 2])> =
                    (0..places.len()).map(|n| (places[n], [value[n].to_bits(), product[n].to_bits()])).collect();
                let rows = part(rank, &weights).len();
                let numbers = (0..rows).map(|n| [0, 1, 2].map(|axis| back["positions"][axis * rows + n].to_bits()));
                let weights = back["weights"].iter().map(|value| value.to_bits());
                Ok((values, numbers.zip(weights).collect::<Vec<_>>()))
            });
            let (values, numbers): (Vec<_>, Vec<_>) = found.into_iter().unzip();
            let (mut values, numbers) = (values.concat(), numbers.concat());
            values.sort_unstable();
            bits.push((values, numbers));
        }
        assert!(bits.iter().all(|one| *one == bits[0]), "{window}: the bits depend on the ranks");
    }
}

/// Particles on the faces of the box, on nodes and at one place; the mass is that of the particles.
#[test]
fn mass_is_conserved_at_faces() {
    let faces = [[0.0, 0.0, 0.0], [4.0, 8.0, 6.0], [-4.0, 16.0, -1e-9], [0.5, 7.75, 3.0], [0.5, 7.75, 3.0]];
    for window in Window::ALL {
        for parts in [[1, 1], [3, 1]] {
            let sums = on_grid(parts, &options()[0], |rank| {
                let mesh = mesh(rank, SHAPE);
                let own = if rank.comm.rank() == 0 { faces.len() } else { 0 };
                let space = Space::of("x", Leaf::points(own as u64, faces.len() as u64).components(3))?;
                let paint = Model::new(Paint::new(rank, &space, &mesh, window)?);
                let mut x = Vector::new(&rank.gpu, &space)?;
                let along: Vec<f64> = (0..3).flat_map(|axis| faces[..own].iter().map(move |row| row[axis])).collect();
                x.set(&mut rank.recorder, "x", &along)?;
                let density = paint.value(rank, &x)?.get(&mut rank.recorder, "density")?;
                // Each cell has been rounded to f32 once.
                let rounding: f64 = density.iter().map(|value| value * 2f64.powi(-24)).sum();
                Ok((density.iter().sum::<f64>(), rounding))
            });
            let (sum, rounding) = sums.iter().fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
            let cells = SHAPE.iter().product::<u64>() as f64;
            assert!((sum - cells).abs() <= rounding + 2f64.powi(-22), "{window} {parts:?}: {sum} of {cells}");
        }
    }
}

/// Displacements of a run painted again are its density; of particles that share a rank or not.
#[test]
fn displacements_of_a_run_paint_its_density() {
    for window in [Window::Cic, Window::Pcs] {
        on_grid([2, 1], &options()[0], |rank| {
            let config = Config { particles: 8, mesh: 12, box_size: 40.0, steps: 2, window, ..Config::default() };
            let grid = Some(crate::process_grid::of(rank).parts());
            let observables = [Observable::Density, Observable::Displacement];
            let run = SimulationOperator::new(rank, Config { grid, ..config }, 1, &observables)?;
            let run = Model::new(run);
            let noise = meshloom::operators::random_field(rank, run.domain(), 3)?;
            let value = run.value(rank, &noise)?;
            let moved = Space::of("displacement", run.target().leaf("displacement").unwrap().clone())?;
            let mesh = run.target().leaf("density").and_then(Leaf::mesh).unwrap().clone();
            let paint = Model::new(Paint::new(rank, &moved, &mesh, window)?);
            let x = Vector::over(&moved, vec![value.contents()[1].clone()])?;
            let found = paint.value(rank, &x)?.get(&mut rank.recorder, "density")?;
            for (found, wanted) in found.iter().zip(value.get(&mut rank.recorder, "density")?) {
                assert!((found - wanted).abs() < 1e-5, "{window}: {found}, not {wanted}");
            }
            Ok(())
        });
    }
}

#[test]
fn what_cannot_be_painted_is_an_error_on_all_ranks() {
    on_grid([3, 1], &options()[0], |rank| {
        let mesh = mesh(rank, SHAPE);
        let own = if rank.comm.rank() == 1 { 2 } else { 0 };
        let points = |components| Leaf::points(own, 2).components(components);
        let mut refused = |domain: Space, what: &str| {
            let error = Paint::new(rank, &domain, &mesh, Window::Cic).err().map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|error| error.contains(what)), "{error:?}");
        };
        refused(Space::of("x", points(2))?, "expected one real leaf of three components");
        refused(Space::new([("x", points(3)), ("y", points(3))])?, "at most one of one component");
        refused(Space::new([("x", points(3)), ("w", Leaf::vector(2))])?, "at points or cells");
        refused(Space::new([("x", points(3)), ("w", Leaf::cells(&mesh))])?, "at the same places");
        let larger = crate::process_grid::mesh(rank, [8; 3], [5.0; 3]);
        let error = Paint::new(rank, &Space::of("x", Leaf::cells(&larger).components(3))?, &mesh, Window::Cic).err();
        assert!(error.unwrap().to_string().contains("with the same sides"));

        let space = Space::new([("x", points(3)), ("w", points(1))])?;
        let paint = Model::new(Paint::new(rank, &space, &mesh, Window::Tsc)?);
        let mut x = Vector::zeros(&mut rank.recorder, &space)?;
        for wrong in [f64::NAN, f64::INFINITY, 1e9] {
            x.set(&mut rank.recorder, "x", &[0.0, 1.0, wrong, 0.0, 0.0, 0.0][..3 * own as usize])?;
            let error = paint.at(rank, &x).err().map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|error| error.contains("1 positions of all ranks")), "{error:?}");
        }
        // A weight that is not finite makes the density NaN, as painting of values does.
        x.set(&mut rank.recorder, "x", &[0.0; 6][..3 * own as usize])?;
        x.set(&mut rank.recorder, "w", &[1.0, f64::NAN][..own as usize])?;
        let density = paint.value(rank, &x)?.get(&mut rank.recorder, "density")?;
        assert!(density.iter().all(|value| value.is_nan()));
        Ok(())
    });
}
