//! Positions of particles in redshift space.

use super::operator::observed_leaf;
use crate::cosmology::Cosmology;
use crate::operators::{Model, OperatorError, PointwiseOperator, Space};

const NAME: &str = "redshift space";

/// Returns the displacements of particles in redshift space as a function of those of a run and its
/// momenta.
///
/// `observed` is the target of a [`SimulationOperator`](super::SimulationOperator) that observes
/// both at scale factor `a`, with or without other leaves. The result is the leaf `displacement`:
/// `x + (p . n) n / (a^2 E(a))` with the unit vector `n` along `line_of_sight` of a distant
/// observer, and `E = H/H0` of `cosmology` (Kaiser 1987, MNRAS 227, 1). It is one pointwise
/// function, which [`Paint`](crate::operators::Paint) takes. `E(1) = 1`, so at `a = 1` the result
/// is right for every cosmology of the run, and at other times for `cosmology`.
///
/// ```no_run
/// use meshloom::operators::{Model, Paint};
/// use meshloom::pm::{Config, Observable, SimulationOperator, redshift_space};
///
/// # fn example(rank: &mut meshloom::Rank) -> Result<(), meshloom::Error> {
/// let config = Config { particles: 32, mesh: 32, ..Config::default() };
/// let observables = [Observable::Displacement, Observable::Momentum];
/// let run = Model::new(SimulationOperator::new(rank, config.clone(), 1, &observables)?);
/// let moved = redshift_space(run.target(), [0.0, 0.0, 1.0], config.a_end, &config.cosmology)?;
/// let mesh = run.target().leaf("momentum").and_then(|leaf| leaf.mesh()).expect("cells").clone();
/// let paint = Model::new(Paint::new(rank, moved.target(), &mesh, config.window)?);
/// let density = run.then(&moved)?.then(&paint)?;
/// # let _ = density;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// - [`OperatorError::Invalid`] if `line_of_sight` is not a finite vector other than 0, or `a` is
///   not finite and positive.
/// - [`OperatorError::Fit`] if `observed` lacks one of the leaves.
pub fn redshift_space(
    observed: &Space,
    line_of_sight: [f64; 3],
    a: f64,
    cosmology: &Cosmology,
) -> Result<Model, OperatorError> {
    let invalid = |why: String| OperatorError::Invalid { operator: NAME.into(), why };
    let length = line_of_sight.iter().fold(0.0, |length: f64, x| length.hypot(*x));
    if !(length.is_finite() && length > 0.0) {
        return Err(invalid(format!("line of sight: expected a finite vector other than 0, got {line_of_sight:?}")));
    }
    if !(a.is_finite() && a > 0.0) {
        return Err(invalid(format!("scale factor: expected a positive number, got {a}")));
    }
    let expected = "a run that observes displacements and momenta";
    let leaf = |name| Ok::<_, OperatorError>((name, observed_leaf(observed, NAME, name, expected)?));
    let domain = Space::new([leaf("displacement")?, leaf("momentum")?])?;
    let [x, y, z] = line_of_sight.map(|x| (x / length) as f32);
    let factor = (1.0 / (a * a * cosmology.expansion_rate(a))) as f32;
    let text = format!(
        "fn redshift(displacement: vec3<f32>, momentum: vec3<f32>) -> vec3<f32> {{
            let n = vec3<f32>({x:?}, {y:?}, {z:?});
            return displacement + {factor:?} * dot(momentum, n) * n;
        }}"
    );
    Ok(Model::new(PointwiseOperator::wgsl(&text, "redshift", &domain, "displacement")?))
}
