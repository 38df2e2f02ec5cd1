//! Checks of adjoints, derivatives and finite values.

use std::fmt;

use super::fingerprint::for_each_place;
use super::{Leaf, Model, OperatorError, Result, Space, Support, Vector};
use crate::hash::{START, fnv1a, mix};
use crate::rank::Rank;

/// The result of [`check_adjoint`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdjointCheck {
    /// `<J dx, dy>`.
    pub forward: f64,
    /// `<dx, J^T dy>`.
    pub reverse: f64,
    /// Largest allowed difference: 16 roundings of f32 of the product of norms.
    pub tolerance: f64,
}

impl fmt::Display for AdjointCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AdjointCheck { forward, reverse, tolerance } = self;
        let difference = (forward - reverse).abs();
        write!(
            f,
            "<J dx, dy> {forward:.6e}, <dx, J^T dy> {reverse:.6e}, difference {difference:.1e} of {tolerance:.1e}"
        )
    }
}

/// The relative rounding of f32.
const ROUNDING: f64 = f32::EPSILON as f64;

/// Compares `<J dx, dy>` and `<dx, J^T dy>` at `x` for pseudo-random `dx` and `dy` in -1..1.
/// Collective; blocks.
///
/// # Errors
/// - [`OperatorError::Check`] if the products differ by more than rounding.
/// - The errors of the operator.
pub fn check_adjoint(rank: &mut Rank, model: &Model, x: &Vector) -> Result<AdjointCheck> {
    let dx = random_field(rank, model.domain(), 1)?;
    let dy = random_field(rank, model.target(), 2)?;
    let at = model.at(rank, x)?;
    let mut forward = Vector::new(&rank.gpu, model.target())?;
    at.jvp(rank, &dx, &mut forward)?;
    let mut reverse = Vector::new(&rank.gpu, model.domain())?;
    at.vjp(rank, &dy, &mut reverse)?;
    let mut norm = |field: &Vector| Ok::<_, OperatorError>(rank.vector_dot(field, field)?.sqrt());
    let scale = (norm(&forward)? * norm(&dy)?).max(norm(&dx)? * norm(&reverse)?);
    let found = AdjointCheck {
        forward: rank.vector_dot(&forward, &dy)?,
        reverse: rank.vector_dot(&dx, &reverse)?,
        tolerance: 16.0 * ROUNDING * scale,
    };
    if (found.forward - found.reverse).abs() <= found.tolerance {
        return Ok(found);
    }
    let AdjointCheck { forward, reverse, tolerance } = found;
    let mut why = format!(
        "the jvp and the vjp disagree: <J dx, dy> = {forward:e} and <dx, J^T dy> = {reverse:e} differ by more than {tolerance:e}"
    );
    // The value decides which of them is wrong.
    if let Ok(slope) = slope(rank, model, x, &dx, &dy) {
        let [forward, reverse] = [forward, reverse].map(|product| (product - slope).abs());
        let wrong = match () {
            () if forward < 0.1 * reverse => "the vjp is",
            () if reverse < 0.1 * forward => "the jvp is",
            () => "the jvp and the vjp may be",
        };
        why = format!("{why}; differences of values give {slope:e}, so {wrong} wrong");
    }
    Err(OperatorError::Check { operator: model.name().into(), why })
}

/// Returns `<J dx, dy>` by central differences of the value.
fn slope(rank: &mut Rank, model: &Model, x: &Vector, dx: &Vector, dy: &Vector) -> Result<f64> {
    let step = ROUNDING.cbrt();
    let (mut moved, mut value) = (Vector::new(&rank.gpu, x.space())?, Vector::new(&rank.gpu, model.target())?);
    let mut along = |steps: f64| {
        moved.copy_from(&mut rank.recorder, x)?;
        rank.vector_axpby(steps * step, dx, 1.0, &mut moved)?;
        model.apply(rank, &moved, &mut value)?;
        rank.vector_dot(&value, dy)
    };
    Ok((along(1.0)? - along(-1.0)?) / (2.0 * step))
}

/// The result of [`check_derivative`]: remainders of Taylor's formula for halved steps.
#[derive(Clone, Debug, PartialEq)]
pub struct TaylorCheck {
    /// The steps `h` and the remainders `|f(x + h dx) - f(x) - h J dx|`.
    pub remainders: Vec<[f64; 2]>,
    /// The rounding error of a remainder.
    pub rounding: f64,
    /// The order with which remainders fall: 2 for a right derivative; `None` if the function is
    /// linear up to rounding.
    pub order: Option<f64>,
}

impl fmt::Display for TaylorCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for [step, remainder] in &self.remainders {
            writeln!(f, "step {step:8.2e}: remainder {remainder:.3e}")?;
        }
        match self.order {
            Some(order) => write!(f, "order {order:.2}, rounding {:.1e}", self.rounding),
            None => write!(f, "linear within rounding {:.1e}", self.rounding),
        }
    }
}

/// Number of steps of [`check_derivative`]; the first is 1.
const STEPS: usize = 10;

/// Compares the function along `dx` with its derivative for halved steps. The remainder must fall
/// with the square of the step; the function must be smooth between `x` and `x + dx`. Collective;
/// blocks.
///
/// # Errors
/// - [`OperatorError::Check`] if the order is less than 1.8.
/// - The errors of the operator.
pub fn check_derivative(rank: &mut Rank, model: &Model, x: &Vector, dx: &Vector) -> Result<TaylorCheck> {
    let at = model.at(rank, x)?;
    let mut slope = Vector::new(&rank.gpu, model.target())?;
    at.jvp(rank, dx, &mut slope)?;
    let value = rank.vector_dot(&at.value, &at.value)?.sqrt();
    // Rounding of values, differences and steps.
    let rounding = 8.0 * ROUNDING * (value + rank.vector_dot(&slope, &slope)?.sqrt());
    let (mut moved, mut there) = (Vector::new(&rank.gpu, x.space())?, Vector::new(&rank.gpu, model.target())?);
    let mut remainders = Vec::new();
    for halved in 0..STEPS {
        let step = 0.5f64.powi(halved as i32);
        moved.copy_from(&mut rank.recorder, x)?;
        rank.vector_axpby(step, dx, 1.0, &mut moved)?;
        model.apply(rank, &moved, &mut there)?;
        rank.vector_axpby(-1.0, &at.value, 1.0, &mut there)?;
        rank.vector_axpby(-step, &slope, 1.0, &mut there)?;
        remainders.push([step, rank.vector_dot(&there, &there)?.sqrt()]);
    }
    let order = order_of(&remainders, rounding);
    let check = TaylorCheck { remainders, rounding, order };
    match check.order {
        Some(order) if order < 1.8 => {
            let why = format!("the value and the jvp disagree: the order of the remainders is less than 1.8\n{check}");
            Err(OperatorError::Check { operator: model.name().into(), why })
        }
        _ => Ok(check),
    }
}

/// Returns the value of a model at `x`, computed part by part, and checks that every part is
/// finite. Collective; blocks after each part.
///
/// # Errors
/// - [`OperatorError::NotFinite`] with the name of the first part that gives NaN or infinity, on
///   all ranks.
/// - The errors of the operators.
pub fn check_finite(rank: &mut Rank, model: &Model, x: &Vector) -> Result<Vector> {
    if let Some([first, last]) = model.0.parted() {
        let between = check_finite(rank, &first, x)?;
        return check_finite(rank, &last, &between);
    }
    let value = model.value(rank, x)?;
    match rank.vector_sums(&[(&value, None)]) {
        Err(OperatorError::NotFinite { what, value, .. }) => {
            Err(OperatorError::NotFinite { operator: model.name().into(), what, value })
        }
        found => found.map(|_| value),
    }
}

/// Returns the order between the two smallest steps whose remainders are more than rounding.
fn order_of(remainders: &[[f64; 2]], rounding: f64) -> Option<f64> {
    let large = remainders.iter().take_while(|[_, remainder]| *remainder > 16.0 * rounding).count();
    match large {
        0 => None,
        // One step only: the next is rounding.
        1 => Some((remainders[0][1] / remainders[1][1].max(rounding)).log2()),
        large => Some((remainders[large - 2][1] / remainders[large - 1][1]).log2()),
    }
}

/// Returns a vector of pseudo-random numbers in -1..1 with the same bits on any number of ranks,
/// except in ghost cells. Collective.
///
/// # Errors
/// - [`OperatorError::Device`] or [`OperatorError::Comm`] if the device or a rank fails.
pub fn random_field(rank: &mut Rank, space: &Space, seed: u64) -> Result<Vector> {
    let mut field = Vector::new(&rank.gpu, space)?;
    for (name, leaf) in space.leaves() {
        let places = places(rank, leaf)?;
        let of_leaf = fnv1a(fnv1a(START, name.as_bytes()), &seed.to_le_bytes());
        let mut values = Vec::with_capacity(leaf.len() as usize);
        for number in 0..leaf.fields() {
            let starts: Vec<u64> = (0..leaf.numbers())
                .map(|part| fnv1a(of_leaf, &[number.to_le_bytes(), part.to_le_bytes()].concat()))
                .collect();
            values.extend(places.iter().flat_map(|&place| starts.iter().map(move |&start| uniform(start, place))));
        }
        field.set(&mut rank.recorder, name, &values)?;
    }
    Ok(field)
}

/// Returns the global number of each place of this rank. Ghost cells are numbered after all cells.
fn places(rank: &Rank, leaf: &Leaf) -> Result<Vec<u64>> {
    let first_ghost = match &leaf.support {
        Support::Cells { mesh } => mesh.total_cells().wrapping_add((mesh.rank() as u64) << 40),
        _ => 0,
    };
    let mut places: Vec<u64> = (0..leaf.places()).map(|at| first_ghost.wrapping_add(at)).collect();
    for_each_place(rank, leaf, &mut |at, place| places[at as usize] = place)?;
    Ok(places)
}

/// Returns a number between -1 and 1: that of a place in the sequence that begins at `start`.
fn uniform(start: u64, place: u64) -> f64 {
    let bits = mix(start.wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    (bits >> 11) as f64 * 2f64.powi(-52) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_before_rounding_sets_in() {
        let steps = |f: &dyn Fn(f64) -> f64| (0..8).map(|n| 0.5f64.powi(n)).map(|h| [h, f(h)]).collect::<Vec<_>>();
        let close = |found: Option<f64>, wanted: f64| assert!((found.unwrap() - wanted).abs() < 1e-6, "{found:?}");
        close(order_of(&steps(&|h| h * h), 1e-9), 2.0);
        close(order_of(&steps(&|h| 1e-3 * h), 1e-9), 1.0);
        close(order_of(&steps(&|h| h * h + if h < 0.1 { 1e-2 } else { 0.0 }), 1e-3), 2.0);
        assert_eq!(order_of(&steps(&|_| 1e-9), 1e-9), None);
    }
}
