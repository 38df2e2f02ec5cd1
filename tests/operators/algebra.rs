//! Sums, products, powers, functions, constants and new names of models, against f64 on the host.

use super::ranks::{host, mesh, on_grid, options, own};
use meshloom::Rank;
use meshloom::operators::{
    Adjoint, Gather, Interpolation, Join, Leaf, Model, OperatorError, PointwiseOperator, Space, StencilOperator,
    Vector, check_adjoint, check_derivative, random_field,
};

/// Returns the identities of two leaves at the same cells, and their values.
fn two(rank: &mut Rank) -> Result<([Model; 2], Vector), OperatorError> {
    let leaf = Leaf::cells(&mesh(rank, [4, 5, 6]));
    let x = random_field(rank, &Space::new([("a", leaf.clone()), ("b", leaf.clone())])?, 1)?;
    let [a, b] = ["a", "b"].map(|name| Model::identity(&Space::of(name, leaf.clone())?));
    Ok(([a?, b?], x))
}

fn check(rank: &mut Rank, model: &Model, x: &Vector) -> Result<(), OperatorError> {
    check_adjoint(rank, model, x)?;
    let direction = random_field(rank, x.space(), 9)?;
    check_derivative(rank, model, x, &direction).map(|_| ())
}

/// Compares the only leaf of the value with a function of the values at each place.
fn compare(rank: &mut Rank, model: &Model, x: &Vector, wanted: impl Fn(f64, f64) -> f64) -> Result<(), OperatorError> {
    let (y, values) = (model.value(rank, x)?, host(rank, x)?);
    let y = host(rank, &y)?.into_values().next().unwrap();
    for ((y, a), b) in y.iter().zip(&values["a"]).zip(&values["b"]) {
        let wanted = wanted(*a, *b);
        assert!((y - wanted).abs() <= 4e-6 * wanted.abs().max(1e-3), "{model:?} at {a}, {b}: {y} {wanted}");
    }
    Ok(())
}

#[test]
fn arguments_are_replaced_by_the_results_of_a_model() {
    on_grid([1, 1], &options()[0], |rank| {
        let ([a, b], x) = two(rank)?;
        let quotient = a.over(&b.times(&b)?.shifted(1.5)?)?;
        // The other argument remains; one that both take is one.
        let model = quotient.substitute(&b.exp()?.named("b")?)?;
        assert_eq!(model.domain().names().collect::<Vec<_>>(), ["a", "b"]);
        compare(rank, &model, &x, |a, b| a / (1.5 + b.exp().powi(2)))?;
        check(rank, &model, &x)?;
        let model = quotient.substitute(&a.exp()?.named("b")?)?;
        assert_eq!(model.domain().names().collect::<Vec<_>>(), ["a"]);
        let error = quotient.substitute(&a.exp()?.named("c")?).unwrap_err().to_string();
        assert!(error.contains("`c`") && error.contains("has no such leaf"), "{error}");
        Ok(())
    });
}

#[test]
fn expressions_of_models_are_one_kernel_with_the_values_of_f64() {
    for parts in [[1, 1], [3, 1]] {
        on_grid(parts, &options()[0], |rank| {
            let ([a, b], x) = two(rank)?;
            let half = Vector::over(b.target(), vec![x.contents()[1].clone()])?;
            let half = Model::constant(&half)?;
            type Wanted = fn(f64, f64) -> f64;
            let all: Vec<(Model, Wanted)> = vec![
                (a.plus(&b.scaled(2.0)?)?.exp()?, |a, b| (a + 2.0 * b).exp()),
                (a.minus(&b)?.over(&b.times(&b)?.shifted(1.5)?)?, |a, b| (a - b) / (1.5 + b * b)),
                (a.times(&half)?.plus(&b)?, |a, b| a * b + b),
                (half.minus(&a)?.plus(&b)?, |a, b| 2.0 * b - a),
                (a.shifted(2.0)?.to_power(&b)?, |a, b| (a + 2.0).powf(b)),
                (a.power(3.0)?.plus(&b.power(0.0)?)?, |a, _| a.powi(3) + 1.0),
                (a.shifted(3.0)?.power(-7.0)?.times(&b)?, |a, b| b * (a + 3.0).powi(-7)),
                (a.shifted(3.0)?.power(1.5)?.plus(&b)?, |a, b| b + (a + 3.0).powf(1.5)),
                (a.shifted(3.0)?.power(0.5)?.plus(&b)?, |a, b| b + (a + 3.0).sqrt()),
                (a.plus(&b)?.scaled(9.0)?.sigmoid()?, |a, b| 1.0 / (1.0 + (-9.0 * (a + b)).exp())),
                (a.plus(&b)?.scaled(9.0)?.softplus()?, |a, b| (9.0 * (a + b)).exp().ln_1p()),
                (a.tanh()?.plus(&b.sin()?)?.plus(&a.cos()?)?, |a, b| a.tanh() + b.sin() + a.cos()),
                (a.shifted(2.0)?.log()?.plus(&b.abs()?)?, |a, b| (a + 2.0).ln() + b.abs()),
            ];
            for (model, wanted) in all {
                assert!(model.is_pointwise() && model.cost().apply.dispatches == 1, "{model:?}");
                compare(rank, &model, &x.part_of(&model)?, wanted)?;
                // The magnitude has a kink.
                if !model.name().contains("abs") {
                    check(rank, &model, &x.part_of(&model)?)?;
                }
            }
            Ok(())
        });
    }
}

#[test]
fn functions_keep_their_derivative_at_zero_and_far_from_it() {
    on_grid([1, 1], &options()[0], |rank| {
        let space = Space::of("x", Leaf::vector(5))?;
        let x = [-200.0, -20.0, 0.0, 20.0, 200.0];
        let mut at = Vector::new(&rank.gpu, &space)?;
        at.set(&mut rank.recorder, "x", &x)?;
        let mut one = Vector::new(&rank.gpu, &space)?;
        one.set(&mut rank.recorder, "x", &[1.0; 5])?;
        let identity = Model::identity(&space)?;
        let decay = (-20.0f64).exp();
        for (model, values, slopes) in [
            (identity.sigmoid()?, [0.0, decay, 0.5, 1.0, 1.0], [0.0, decay, 0.25, decay, 0.0]),
            (identity.softplus()?, [0.0, decay, 2f64.ln(), 20.0, 200.0], [0.0, decay, 0.5, 1.0, 1.0]),
            (identity.tanh()?, [-1.0, -1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.0, 0.0]),
        ] {
            let found = model.at(rank, &at)?;
            let mut slope = Vector::new(&rank.gpu, &space)?;
            found.jvp(rank, &one, &mut slope)?;
            for (vector, wanted) in [(&found.value, values), (&slope, slopes)] {
                for (found, wanted) in vector.get(&mut rank.recorder, "x")?.into_iter().zip(wanted) {
                    assert!((found - wanted).abs() <= 1e-5 * wanted.abs() + 1e-30, "{model:?}: {found} {wanted}");
                }
            }
        }
        Ok(())
    });
}

#[test]
fn common_steps_are_computed_once_and_last_functions_meet() {
    on_grid([1, 1], &options()[0], |rank| {
        let cells = Space::of("x", Leaf::cells(&mesh(rank, [4, 5, 6])))?;
        let mut stencil =
            |weight| Ok::<_, OperatorError>(Model::new(StencilOperator::new(rank, &cells, &[([0, 0, 1], weight)])?));
        let (first, second) = (stencil(0.5)?, stencil(0.25)?);
        let own = first.cost().apply.dispatches;
        let (a, b) = (first.exp()?, second.named("other")?.exp()?);
        let x = random_field(rank, &cells, 1)?;
        for (model, dispatches) in [
            (a.times(&first)?.over(&a.shifted(1.0)?)?, own + 1),
            (first.times(&first)?, own + 1),
            (a.plus(&b.scaled(2.0)?)?.log()?, 2 * own + 1),
            (first.plus(&Model::constant(&x)?)?.exp()?, own + 1),
        ] {
            assert_eq!(model.cost().apply.dispatches, dispatches, "{model:?}");
            assert_eq!(model.target().names().collect::<Vec<_>>(), ["x"]);
            check(rank, &model, &x)?;
        }
        let sum = a.plus(&b.scaled(2.0)?)?.log()?;
        let [sum, first, second] = [&sum, &first, &second].map(|model| model.value(rank, &x));
        let [sum, first, second] = [&sum?, &first?, &second?].map(|value| host(rank, value));
        for ((sum, a), b) in sum?["x"].iter().zip(&first?["x"]).zip(&second?["x"]) {
            let wanted = (a.exp() + 2.0 * b.exp()).ln();
            assert!((sum - wanted).abs() < 1e-5, "{sum} {wanted}");
        }
        Ok(())
    });
}

#[test]
fn one_number_and_one_component_count_for_all() {
    for parts in [[1, 1], [3, 1]] {
        on_grid(parts, &options()[0], |rank| {
            let leaf = Leaf::cells(&mesh(rank, [4, 5, 6]));
            let leaves = [
                ("c", leaf.clone().complex()),
                ("s", Leaf::vector(1)),
                ("v", leaf.clone().components(3)),
                ("w", leaf.clone()),
            ];
            let space = Space::new(leaves)?;
            let x = random_field(rank, &space, 1)?;
            let of = |name: &str| Model::identity(&Space::of(name, space.leaf(name).unwrap().clone())?);
            let (c, s, v, w) = (of("c")?, of("s")?, of("v")?, of("w")?);
            let values = host(rank, &x)?;
            let places = leaf.places() as usize;
            for (model, name, wanted) in [
                (s.times(&v)?, "v", (0..3 * places).map(|n| values["s"][0] * values["v"][n]).collect::<Vec<_>>()),
                (v.minus(&w)?, "v", (0..3 * places).map(|n| values["v"][n] - values["w"][n % places]).collect()),
                (c.times(&w)?, "c", (0..2 * places).map(|n| values["c"][n] * values["w"][n / 2]).collect()),
                (c.plus(&c)?.scaled(0.5)?, "c", values["c"].clone()),
            ] {
                let x = x.part_of(&model)?;
                let y = model.value(rank, &x)?;
                for (found, wanted) in host(rank, &y)?[name].iter().zip(wanted) {
                    assert!((found - wanted).abs() < 1e-6, "{model:?}: {found} {wanted}");
                }
                check(rank, &model, &x)?;
            }
            let fails = |what: Result<Model, OperatorError>, wanted: &[&str]| {
                let error = what.unwrap_err().to_string();
                assert!(wanted.iter().all(|part| error.contains(part)), "{error}\n{wanted:?}");
            };
            fails(c.exp(), &["`c`", "complex", "real"]);
            fails(c.times(&c), &["`c`", "complex", "product"]);
            fails(w.plus(&c), &["`w`", "complex"]);
            fails(w.scaled(f64::NAN), &["finite", "NaN"]);
            fails(w.shifted(1e300), &["finite", "e300"]);
            fails(w.function("cbrt"), &["`cbrt`", "exp", "softplus"]);
            let vector = Model::identity(&Space::of("x", Leaf::vector(3))?)?;
            fails(w.plus(&vector), &["`x`", "vector of 3", "cells of 4 x 5 x 6"]);
            fails(v.zip(&w)?.plus(&v), &["`w`"]);
            fails(v.plus(&v.zip(&w)?), &["`w`"]);
            Ok(())
        });
    }
}

#[test]
fn functions_of_parameters_are_computed_in_f64() {
    for parts in [[1, 1], [3, 1]] {
        on_grid(parts, &options()[0], |rank| {
            let space = Space::of("x", Leaf::parameters(3))?;
            let mut mean = Vector::new(&rank.gpu, &space)?;
            mean.set(&mut rank.recorder, "x", &[0.1, 0.2, 0.3])?;
            let x = Model::identity(&space)?;
            let model = x.scaled(0.7)?.plus(&Model::constant(&mean)?)?.exp()?.times(&x)?;
            let text = "fn f(x: f32) -> f32 { return x * x; }";
            let square = Model::new(PointwiseOperator::wgsl(text, "f", &space, "y")?);
            let model = model.then(&square)?;
            let at = [0.5, -0.25, 3.0];
            let mut point = Vector::new(&rank.gpu, &space)?;
            point.set(&mut rank.recorder, "x", &at)?;
            let value = model.value(rank, &point)?;
            for (n, found) in value.parameters("y")?.iter().enumerate() {
                let wanted = ((0.7 * at[n] + [0.1, 0.2, 0.3][n]).exp() * at[n]).powi(2);
                assert!((found - wanted).abs() <= 1e-14 * wanted, "{found} {wanted}");
            }
            check(rank, &model, &point)?;
            let mixed = Space::new([("x", Leaf::parameters(3)), ("y", Leaf::vector(3))])?;
            let text = "fn f(x: f32, y: f32) -> f32 { return x * y; }";
            let error = PointwiseOperator::wgsl(text, "f", &mixed, "z").err().unwrap().to_string();
            assert!(error.contains("`y`") && error.contains("not the same places"), "{error}");
            Ok(())
        });
    }
}

#[test]
fn leaves_change_their_names_and_their_order() {
    on_grid([1, 1], &options()[0], |rank| {
        let ([a, b], x) = two(rank)?;
        let cells = Space::of("a", x.space().leaf("a").unwrap().clone())?;
        let stencil = Model::new(StencilOperator::new(rank, &cells, &[([0, 0, 1], 0.5)])?);
        for model in [a.zip(&b.exp()?)?, stencil.zip(&b.exp()?)?] {
            let other = model.renamed(&[("a", "z")], &[("a", "b"), ("b", "a")])?;
            assert_eq!(other.domain().names().collect::<Vec<_>>(), ["b", "z"]);
            let moved = Vector::over(other.domain(), vec![x.contents()[1].clone(), x.contents()[0].clone()])?;
            let (wanted, found) = (model.value(rank, &x)?, other.value(rank, &moved)?);
            let (wanted, found) = (host(rank, &wanted)?, host(rank, &found)?);
            assert_eq!((&wanted["a"], &wanted["b"]), (&found["b"], &found["a"]));
            check(rank, &other, &moved)?;
            let error = model.renamed(&[("c", "d")], &[]).unwrap_err().to_string();
            assert!(error.contains("`c`") && error.contains("cells of 4 x 5 x 6"), "{error}");
            let error = model.renamed(&[], &[("a", "b")]).unwrap_err().to_string();
            assert!(error.contains("`b`") && error.contains("two leaves"), "{error}");
        }
        Ok(())
    });
}

/// The leaves of a model's domain.
trait PartOf {
    fn part_of(&self, model: &Model) -> Result<Vector, OperatorError>;
}

impl PartOf for Vector {
    fn part_of(&self, model: &Model) -> Result<Vector, OperatorError> {
        let contents = model.domain().names().filter_map(|name| self.space().position(name));
        Vector::over(model.domain(), contents.map(|at| self.contents()[at].clone()).collect())
    }
}

#[test]
fn tables_are_interpolated_and_constant_beyond() {
    for options in options() {
        on_grid([1, 1], &options, |rank| {
            let nodes: Vec<f64> = (0..301).map(|n| f64::from(n).powi(2) / 64.0 - 3.0).collect();
            let values: Vec<f64> = nodes.iter().map(|x| (x * 0.5).sin()).collect();
            let x: Vec<f64> = (0..2000).map(|n| f64::from(n) * 1.5 - 500.0).chain(nodes.iter().copied()).collect();
            let space = Space::of("x", Leaf::vector(x.len() as u64 + 1))?;
            let mut at = Vector::new(&rank.gpu, &space)?;
            at.set(&mut rank.recorder, "x", &[&x[..], &[f64::NAN]].concat())?;
            let model = Model::new(Interpolation::new(rank, &space, &nodes, &values)?);
            let found = model.at(rank, &at)?;
            let (mut one, mut slope) = (Vector::new(&rank.gpu, &space)?, Vector::new(&rank.gpu, &space)?);
            one.set(&mut rank.recorder, "x", &vec![1.0; x.len() + 1])?;
            found.jvp(rank, &one, &mut slope)?;
            let (found, slope) = (host(rank, &found.value)?, host(rank, &slope)?);
            for ((x, found), slope) in x.iter().zip(&found["x"]).zip(&slope["x"]) {
                let above = nodes.partition_point(|node| node <= x);
                let (wanted, wanted_slope) = match above {
                    0 => (values[0], 0.0),
                    above if above == nodes.len() => (values[above - 1], 0.0),
                    above => {
                        let slope = (values[above] - values[above - 1]) / (nodes[above] - nodes[above - 1]);
                        (values[above - 1] + slope * (x - nodes[above - 1]), slope)
                    }
                };
                assert!((found - wanted).abs() < 1e-4 && (slope - wanted_slope).abs() < 1e-3, "{x}: {found} {wanted}");
            }
            assert!(found["x"][x.len()].is_nan());
            for (x, y, wanted) in [
                (&[0.0, 0.0][..], &[1.0, 2.0][..], "ascending"),
                (&[0.0], &[1.0], "two or more"),
                (&[0.0, 1.0], &[1.0], "1 ordinates"),
                (&[0.0, f64::INFINITY], &[1.0, 2.0], "node 1"),
            ] {
                let error = Interpolation::new(rank, &space, x, y).err().unwrap().to_string();
                assert!(error.contains(wanted), "{error}");
            }
            Ok(())
        });
    }
}

#[test]
fn vectors_are_joined_split_and_repeated_along_axes() {
    for parts in [[1, 1], [3, 1], [2, 2]] {
        on_grid(parts, &options()[0], |rank| {
            let space = Space::new([("a", Leaf::vector(2)), ("b", Leaf::vector(3))])?;
            let mut x = Vector::new(&rank.gpu, &space)?;
            x.set(&mut rank.recorder, "a", &[1.0, 2.0])?;
            x.set(&mut rank.recorder, "b", &[3.0, 4.0, 5.0])?;
            let join = Model::new(Join::new(&space, &["b", "a"], "all")?);
            let all = join.value(rank, &x)?;
            assert_eq!(all.get(&mut rank.recorder, "all")?, [3.0, 4.0, 5.0, 1.0, 2.0]);
            let split = Model::new(Adjoint::new(Join::new(&space, &["b", "a"], "all")?));
            let again = split.value(rank, &all)?;
            assert_eq!(host(rank, &again)?, host(rank, &x)?);
            for (order, wanted) in [(&["a"][..], "every leaf"), (&["a", "c"], "`c`"), (&["a", "a"], "every leaf")] {
                let error = Join::new(&space, order, "all").err().unwrap().to_string();
                assert!(error.contains(wanted), "{error}");
            }
            // Fields of other grids do not stand in one batch.
            let grids =
                [("a", [4, 5, 6]), ("b", [4, 5, 7])].map(|(name, shape)| (name, Leaf::cells(&mesh(rank, shape))));
            let error = Join::new(&Space::new(grids)?, &["a", "b"], "all").err().unwrap().to_string();
            assert!(error.contains("at the same places"), "{error}");
            // A block of 3 x 2 numbers that begins at cell (1, ., -1) of 4 x 5 x 6 cells.
            let mesh = mesh(rank, [4, 5, 6]);
            let (from, to) = (Space::of("x", Leaf::vector(6))?, Space::of("y", Leaf::cells(&mesh))?);
            let block = Model::new(Gather::block(rank, &from, &to, [Some((1, 3)), None, Some((-1, 2))])?);
            let mut x = Vector::new(&rank.gpu, &from)?;
            x.set(&mut rank.recorder, "x", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
            let y = block.value(rank, &x)?;
            let all: Vec<f64> = (0..120)
                .map(|n| (n / 30, n % 6))
                .map(|(i, k)| if i > 0 && k == 0 { 2.0 * i as f64 } else { 0.0 })
                .collect();
            assert_eq!(host(rank, &y)?["y"], own(&mesh, &all));
            let error = Gather::block(rank, &from, &to, [None, None, Some((0, 5))]).err().unwrap().to_string();
            assert!(error.contains("6 entries") && error.contains("[1, 1, 5]"), "{error}");
            Ok(())
        });
    }
}
