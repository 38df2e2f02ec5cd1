//! Algebra of models: sums, products, powers, functions of their values, numbers and constants.

use std::rc::Rc;

use super::compose::Arranged;
use super::pointwise::Binary;
use super::pointwise_operator::width;
use super::{Leaf, Model, OperatorError, Pointwise, PointwiseOperator, Result, Space, Support, Vector, refuse};
use crate::fft::Values;

/// Exponents up to this magnitude are computed by products, for numbers of both signs.
const MOST_PRODUCTS: f64 = 64.0;

/// Exponential of minus the magnitude, with the derivative of `exp` at 0.
const DECAY: &str = "let e = exp(select(x, -x, x > 0.0));";

/// Defines functions of one number by the body of a function of `x` in WGSL.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = [$($body:expr),*];)*) => {
        impl Model {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// - [`OperatorError::Fit`] if a result is complex.
                pub fn $name(&self) -> Result<Model> {
                    let text = ["fn f(x: f32) -> f32 { ", $($body,)* " }"].concat();
                    let function = Pointwise::new(&text, "f");
                    let failed = |error| OperatorError::Pointwise { operator: stringify!($name).into(), error };
                    self.mapped(stringify!($name), &function.map_err(failed)?, false)
                }
            )*

            /// Returns a function of the results by the name of its method, such as `exp`.
            ///
            /// # Errors
            /// - [`OperatorError::Invalid`] for an unknown name.
            /// - [`OperatorError::Fit`] if a result is complex.
            pub fn function(&self, name: &str) -> Result<Model> {
                match name {
                    $(stringify!($name) => self.$name(),)*
                    _ => refuse(name, concat!("unknown function: expected one of", $(" ", stringify!($name)),*)),
                }
            }
        }
    };
}

functions! {
    /// Returns the magnitude of the results; the derivative at 0 is 0.
    abs = ["return abs(x);"];
    /// Returns the exponential of the results.
    exp = ["return exp(x);"];
    /// Returns the natural logarithm of the results.
    log = ["return log(x);"];
    /// Returns the square root of the results.
    sqrt = ["return sqrt(x);"];
    /// Returns the sine of the results.
    sin = ["return sin(x);"];
    /// Returns the cosine of the results.
    cos = ["return cos(x);"];
    // Some devices divide infinities for large arguments.
    /// Returns the hyperbolic tangent of the results.
    tanh = ["return tanh(clamp(x, -15.0, 15.0));"];
    /// Returns the logistic function `1 / (1 + exp(-x))` of the results.
    sigmoid = [DECAY, "return select(e, 1.0, x > 0.0) / (1.0 + e);"];
    // ln(1 + e) = 2 artanh(e / (2 + e)), whose series is exact to 1e-8 for e <= 1.
    /// Returns `ln(1 + exp(x))` of the results.
    softplus = [
        DECAY,
        "let z = e / (2.0 + e); let s = z * z;",
        "let series = 1.0 + s * (1.0 / 3.0 + s * (0.2 + s * (1.0 / 7.0 + s * (1.0 / 9.0 + s * (1.0 / 11.0 + s / 13.0)))));",
        "return select(0.0, x, x > 0.0) + 2.0 * z * series;"
    ];
}

impl Model {
    /// Returns the model without arguments whose value is `values`. It keeps handles: later changes
    /// of the values change the model. Sums and products with it are one kernel.
    ///
    /// ```
    /// use meshloom::operators::{Leaf, Model, Space, Vector};
    ///
    /// meshloom::run(|rank| {
    ///     let space = Space::of("x", Leaf::vector(2))?;
    ///     let mut mean = Vector::new(&rank.gpu, &space)?;
    ///     mean.set(&mut rank.recorder, "x", &[1.0, 2.0])?;
    ///     let rate = Model::identity(&space)?.scaled(0.5)?.plus(&Model::constant(&mean)?)?.exp()?;
    ///     assert!(rate.is_pointwise());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] without leaves.
    /// - [`OperatorError::Fit`] for complex vectors.
    pub fn constant(values: &Vector) -> Result<Model> {
        let nothing = Space::new(Vec::<(String, Leaf)>::new())?;
        side_by_side("constant", values.space(), |(name, leaf)| {
            let own = Space::of(name, leaf.clone())?;
            let one = values.part(&own, "constant")?;
            let Some(identity) = PointwiseOperator::identity(&own) else {
                return refuse("constant", format!("{own} is not a real or complex field"));
            };
            PointwiseOperator::bound("constant", identity.function, &nothing, Some(&one), &own)
        })
    }

    /// Returns the sum of both models, leaf by leaf.
    ///
    /// Models of one leaf each may have leaves of different names; the result has the name of the
    /// first one. A [`Leaf::vector`] of one number counts for all places of the other operand, and
    /// one component for all components. Pointwise functions become one kernel, and the steps that
    /// both models begin with are computed once.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if the targets differ, or arguments of one name differ.
    pub fn plus(&self, other: &Model) -> Result<Model> {
        self.joined(other, "sum", Binary::Add)
    }

    /// Returns the difference of both models, leaf by leaf.
    ///
    /// # Errors
    /// Same as [`plus`](Self::plus).
    pub fn minus(&self, other: &Model) -> Result<Model> {
        self.joined(other, "difference", Binary::Sub)
    }

    /// Returns the product of both models, leaf by leaf. One operand may be complex.
    ///
    /// # Errors
    /// Same as [`plus`](Self::plus).
    pub fn times(&self, other: &Model) -> Result<Model> {
        self.joined(other, "product", Binary::Mul)
    }

    /// Returns the quotient of both models, leaf by leaf. The divisor is real.
    ///
    /// # Errors
    /// Same as [`plus`](Self::plus).
    pub fn over(&self, other: &Model) -> Result<Model> {
        self.joined(other, "quotient", Binary::Div)
    }

    /// Returns this model to the power of the other one, leaf by leaf, for real values of 0 or
    /// more.
    ///
    /// # Errors
    /// Same as [`plus`](Self::plus).
    pub fn to_power(&self, exponent: &Model) -> Result<Model> {
        self.joined(exponent, "power", Binary::Pow)
    }

    /// Returns the sum of the results and a number.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if the number is not finite in f32.
    /// - [`OperatorError::Fit`] if a result is complex.
    pub fn shifted(&self, by: f64) -> Result<Model> {
        self.mapped("shift", &Pointwise::with_number(Binary::Add, finite("shift", by)?), false)
    }

    /// Returns the product of the results and a number.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if the number is not finite in f32.
    pub fn scaled(&self, by: f64) -> Result<Model> {
        self.mapped("scale", &Pointwise::with_number(Binary::Mul, finite("scale", by)?), true)
    }

    /// Returns the results to the power of a number.
    ///
    /// Results may have any sign if the exponent is an integer up to 64. For other exponents they
    /// must be positive, or 0 if the exponent is.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if the number is not finite in f32.
    /// - [`OperatorError::Fit`] if a result is complex.
    pub fn power(&self, exponent: f64) -> Result<Model> {
        let exponent = finite("power", exponent)?;
        if exponent == 0.5 {
            return self.sqrt();
        }
        let is_product = exponent.fract() == 0.0 && exponent.abs() <= MOST_PRODUCTS;
        let function = match is_product {
            true => Pointwise::power(exponent as i32),
            false => Pointwise::with_number(Binary::Pow, exponent),
        };
        self.mapped("power", &function, false)
    }

    /// Returns a function of one number of each component of the results.
    fn mapped(&self, name: &'static str, function: &Pointwise, is_linear: bool) -> Result<Model> {
        self.then(&side_by_side(name, self.target(), |(leaf_name, leaf)| {
            if leaf.values == Values::Complex && !is_linear {
                let why = format!("it is {leaf}, the function takes real values; write it as a pointwise function");
                return Err(OperatorError::Fit { operator: name.into(), leaf: leaf_name.into(), why });
            }
            let space = Space::of(leaf_name, leaf.clone())?;
            PointwiseOperator::bound(name, function.repeated(width(leaf)), &space, None, &space)
        })?)
    }

    /// Returns a function of the values of both, component by component.
    fn joined(&self, other: &Model, name: &'static str, function: Binary) -> Result<Model> {
        let (own, others) = (self.target(), other.target());
        let both = self.both(other);
        if let (Some(first), Some(second)) = (own.only(), others.only()) {
            let joined = pair(name, function, first, second)?;
            return both?.then(&Model::new(joined));
        }
        if let Some(leaf) = others.names().find(|leaf| own.position(leaf).is_none()) {
            return Err(OperatorError::surplus(name, leaf, own));
        }
        let joined = side_by_side(name, own, |(leaf_name, leaf)| match others.leaf(leaf_name) {
            Some(other) => pair(name, function, (leaf_name, leaf), (leaf_name, other)),
            None => Err(OperatorError::missing(name, leaf_name, others)),
        })?;
        both?.then(&joined)
    }

    /// Returns both side by side, with `a/` and `b/` before the names of their results. A common
    /// part before the last pointwise functions is computed once, and these become one kernel.
    fn both(&self, other: &Model) -> Result<Model> {
        let whole = || self.below("a/")?.zip(&other.below("b/")?);
        let ([own, own_tail], [others, others_tail]) = (self.parted(), other.parted());
        let identity = |head: &Model| PointwiseOperator::identity(head.target());
        let tail = |head: &Model, tail: Option<Model>| match tail {
            Some(tail) => Some(tail),
            None => identity(head).map(Model::new),
        };
        match (own, others) {
            // A constant is an argument of the last function.
            (Some(head), None) if other.domain().is_empty() => match tail(&head, own_tail) {
                Some(tail) => head.then(&tail.below("a/")?.zip(&other.below("b/")?)?),
                None => whole(),
            },
            (None, Some(head)) if self.domain().is_empty() => match tail(&head, others_tail) {
                Some(tail) => head.then(&self.below("a/")?.zip(&tail.below("b/")?)?),
                None => whole(),
            },
            (Some(head), Some(others)) => {
                let is_common = Rc::ptr_eq(&head.0, &others.0);
                if !is_common && own_tail.is_none() && others_tail.is_none() {
                    return whole();
                }
                let (Some(first), Some(second)) = (tail(&head, own_tail), tail(&others, others_tail)) else {
                    return whole();
                };
                // Arguments get the names of the results before them.
                let [before_first, before_second] = if is_common { ["", ""] } else { ["a/", "b/"] };
                let first = first.between(head.target(), before_first, "a/")?;
                let second = second.between(others.target(), before_second, "b/")?;
                let tails = first.zip(&second)?;
                match (is_common, tails.is_pointwise()) {
                    (true, _) => head.then(&tails),
                    (false, true) => head.below(before_first)?.zip(&others.below(before_second)?)?.then(&tails),
                    (false, false) => whole(),
                }
            }
            _ => whole(),
        }
    }

    /// Puts `branch` before the names of the results.
    fn below(&self, branch: &str) -> Result<Model> {
        self.between(self.domain(), "", branch)
    }

    /// Gives the arguments the names of the leaves of `space` below the branch `before`, and puts
    /// `branch` before the names of the results.
    fn between(&self, space: &Space, before: &str, branch: &str) -> Result<Model> {
        let names = |space: &Space, branch: &str| space.names().map(|name| format!("{branch}{name}")).collect();
        let domain = Arranged::new(self.domain(), names(space, before))?;
        self.arranged(domain, Arranged::new(self.target(), names(self.target(), branch))?)
    }
}

/// Returns a number that must be finite in f32.
fn finite(operator: &str, number: f64) -> Result<f64> {
    match (number as f32).is_finite() {
        true => Ok(number),
        false => refuse(operator, format!("expected a finite number of f32, got {number:?}")),
    }
}

/// Returns a function of each leaf of `space`, side by side.
fn side_by_side(name: &str, space: &Space, make: impl Fn((&str, &Leaf)) -> Result<PointwiseOperator>) -> Result<Model> {
    let mut all: Option<Model> = None;
    for leaf in space.leaves() {
        let one = Model::new(make(leaf)?);
        all = Some(match all {
            None => one,
            Some(before) => before.zip(&one)?,
        });
    }
    all.ok_or_else(|| OperatorError::invalid(name, "models without leaves"))
}

/// Returns `true` for a leaf that counts for all places of other leaves.
fn is_number(leaf: &Leaf) -> bool {
    matches!(leaf.support, Support::Vector { len: 1 }) && leaf.components == 1 && leaf.values == Values::Real
}

/// Returns a function of two numbers for each component of the leaves `a/first` and `b/second`.
fn pair(
    name: &'static str,
    function: Binary,
    (first, a): (&str, &Leaf),
    (second, b): (&str, &Leaf),
) -> Result<PointwiseOperator> {
    let takes_complex = matches!(
        (function, [a, b].map(|leaf| leaf.values == Values::Complex)),
        (_, [false, false])
            | (Binary::Add | Binary::Sub, [true, true])
            | (Binary::Mul | Binary::Div, [true, false])
            | (Binary::Mul, [false, true])
    );
    if !takes_complex {
        let why = format!("it is {a}, and the other operand is {b}; write the {name} as a pointwise function");
        return Err(OperatorError::Fit { operator: name.into(), leaf: first.into(), why });
    }
    let widths = [width(a), width(b)];
    let at_same_places = a.support == b.support || is_number(a) || is_number(b);
    let alike = widths[0] == widths[1] || widths.contains(&1);
    if !at_same_places || !alike || a.batch != b.batch {
        return Err(OperatorError::fit(name, second, a, b));
    }
    let (result, main) = if is_number(a) && !is_number(b) { (second, b) } else { (first, a) };
    let is_complex = [a, b].iter().any(|leaf| leaf.values == Values::Complex);
    let values = if is_complex { Values::Complex } else { Values::Real };
    let target = Leaf { values, components: a.components.max(b.components), ..main.clone() };
    let target = Space::of(result, target)?;
    let own = Space::new([("a", a.clone()), ("b", b.clone())])?;
    let map = PointwiseOperator::bound(name, Pointwise::componentwise(function, widths), &own, None, &target)?;
    let domain = Space::new([(format!("a/{first}"), a.clone()), (format!("b/{second}"), b.clone())])?;
    Ok(map.renamed([&domain, &target], [&[0, 1], &[0]]))
}
