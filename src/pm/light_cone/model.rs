//! The crossing of a light cone between two snapshots, as a function of these.

use super::cone::polynomial;
use crate::cosmology::Cosmology;
use crate::fft::Values;
use crate::operators::{Contents, Leaf, Model, OperatorError, PointwiseOperator, Space, Support, Vector};
use crate::pm::operator::{observed_leaf, snapshot_names};
use crate::rank::Rank;

const NAME: &str = "light cone";

/// A part of a light cone: between two snapshots, in one of the periodic images of the box.
#[derive(Clone, Debug)]
pub struct ConeSection<'a> {
    /// Numbers of the snapshots among those of the run.
    pub snapshots: [usize; 2],
    /// Their scale factors, ascending, up to 1.
    pub a: [f64; 2],
    /// The place of the observer, who looks at a = 1, in Mpc/h.
    pub observer: [f64; 3],
    /// The image of the box, in sides of it: `[0, 0, 0]` is the box itself.
    pub image: [i64; 3],
    /// The cosmology of distances and of the motion between the snapshots.
    pub cosmology: &'a Cosmology,
}

/// Returns the particles of a run where they cross the past light cone of an observer, as a
/// function of the snapshots before and after. Collective.
///
/// `observed` is the target of a [`SimulationOperator`](super::super::SimulationOperator) with
/// these snapshots. The result has three leaves at the sites of the particles:
///
/// | leaf | value |
/// |---|---|
/// | `displacement` | the displacement when the particle crosses |
/// | `distance` | its comoving distance from the observer then, in Mpc/h |
/// | `weight` | 1 if it crosses between the snapshots, else 0 |
///
/// The path between the snapshots is the cubic in the scale factor through their positions and
/// velocities, as for [`LightCone`](super::LightCone); tests at the snapshots alone decide whether
/// a particle crosses, so that it does in one section. [`Paint`](crate::operators::Paint) makes a
/// density of displacements and weights, or with a function of the distance times the weight a
/// lens plane; densities of sections add. Derivatives follow the place of the crossing; distances
/// are constants. Derivatives need a device that binds 13 arrays in a kernel.
///
/// # Errors
/// - [`OperatorError::Invalid`] if scale factors do not ascend up to 1, or a number is not finite.
/// - [`OperatorError::Fit`] if `observed` lacks a leaf of the snapshots.
pub fn light_cone_section(
    rank: &mut Rank,
    observed: &Space,
    section: &ConeSection<'_>,
) -> Result<Model, OperatorError> {
    let ConeSection { snapshots, a, observer, image, cosmology } = section;
    let invalid = |why: String| OperatorError::Invalid { operator: NAME.into(), why };
    if !(a[0] > 0.0 && a[0] < a[1] && a[1] <= 1.0) {
        return Err(invalid(format!("scale factors: expected two that ascend, above 0 and up to 1, got {a:?}")));
    }
    if !observer.iter().all(|x| x.is_finite()) {
        return Err(invalid(format!("observer: expected three finite numbers, got {observer:?}")));
    }
    let names: Vec<String> = snapshots.iter().flat_map(|&number| snapshot_names(number)).collect();
    let expected = format!("snapshots {snapshots:?} of a run");
    let leaf = |name: &String| observed_leaf(observed, NAME, name, &expected);
    let leaves = names.iter().map(leaf).collect::<Result<Vec<_>, _>>()?;
    let failed = |error| OperatorError::failed(NAME, error);
    let distance = polynomial(cosmology, |t| a[0] + t * (a[1] - a[0])).map_err(failed)?;
    let mut ends = [0.0; 2];
    for (end, a) in ends.iter_mut().zip(a) {
        *end = cosmology.comoving_distance(*a).map_err(failed)? as f32;
    }
    let slopes = a.map(|at| (a[1] - a[0]) / (at.powi(3) * cosmology.expansion_rate(at)));
    let sites = sites(rank, &leaves[0], *observer, *image)?;
    let domain = Space::new(ARGUMENTS.into_iter().zip(leaves))?;
    let function = |(result, body): (&str, &str)| {
        let text = text((&distance, ends), slopes, body);
        PointwiseOperator::wgsl_with(&text, "crossing_of", &domain, &sites, result).map(Model::new)
    };
    let [displacement, distance_to, weight] = RESULTS.map(function);
    let renamed: Vec<(&str, &str)> = ARGUMENTS.into_iter().zip(names.iter().map(String::as_str)).collect();
    displacement?.zip(&distance_to?)?.zip(&weight?)?.renamed(&renamed, &[])
}

/// Arguments of the functions: displacements and momenta at both ends.
const ARGUMENTS: [&str; 4] = ["x0", "p0", "x1", "p1"];

/// Results and their bodies.
const RESULTS: [(&str, &str); 3] = [
    ("displacement", "-> vec3<f32> { let t = crossing(x0, p0, x1, p1, site); return path(x0, p0, x1, p1, t); }"),
    ("distance", "-> f32 { return chi(crossing(x0, p0, x1, p1, site)); }"),
    (
        "weight",
        "-> f32 { let crosses = radius(site + x0) < chi(0.0) && radius(site + x1) >= chi(1.0); \
         return select(0.0, 1.0, crosses); }",
    ),
];

/// Returns the text of a function of the state at both ends and the site relative to the observer.
///
/// The distance falls by far more than particles move, so that two steps of Newton's method find
/// the time to rounding. Between them the time stays within the section.
fn text((distance, ends): (&[f64], [f32; 2]), slopes: [f64; 2], body: &str) -> String {
    let horner = |terms: &[f64]| {
        terms.iter().rev().fold("0.0".to_string(), |sum, term| format!("({sum} * t + f32({:?}))", *term as f32))
    };
    let derived: Vec<f64> = distance.iter().enumerate().skip(1).map(|(power, term)| power as f64 * term).collect();
    let [v0, v1] = slopes.map(|slope| slope as f32);
    let step = "t = clamp(t - closer(x0, p0, x1, p1, site, t), 0.0, 1.0);\n";
    format!(
        "fn radius(r: vec3<f32>) -> f32 {{ return sqrt(dot(r, r) + 1e-12); }}
        fn chi(t: f32) -> f32 {{
            return select(select({}, f32({:?}), t >= 1.0), f32({:?}), t <= 0.0);
        }}
        fn approach(t: f32) -> f32 {{ return {}; }}
        fn path(x0: vec3<f32>, p0: vec3<f32>, x1: vec3<f32>, p1: vec3<f32>, t: f32) -> vec3<f32> {{
            let s = 1.0 - t;
            return s * s * (1.0 + 2.0 * t) * x0 + t * t * (3.0 - 2.0 * t) * x1
                + t * s * (s * f32({v0:?}) * p0 - t * f32({v1:?}) * p1);
        }}
        fn velocity(x0: vec3<f32>, p0: vec3<f32>, x1: vec3<f32>, p1: vec3<f32>, t: f32) -> vec3<f32> {{
            let s = 1.0 - t;
            return 6.0 * s * t * (x1 - x0) + s * (1.0 - 3.0 * t) * f32({v0:?}) * p0
                + t * (3.0 * t - 2.0) * f32({v1:?}) * p1;
        }}
        fn closer(x0: vec3<f32>, p0: vec3<f32>, x1: vec3<f32>, p1: vec3<f32>, site: vec3<f32>, t: f32) -> f32 {{
            let r = site + path(x0, p0, x1, p1, t);
            let speed = dot(r, velocity(x0, p0, x1, p1, t)) / radius(r);
            return (radius(r) - chi(t)) / (speed - approach(t));
        }}
        fn crossing(x0: vec3<f32>, p0: vec3<f32>, x1: vec3<f32>, p1: vec3<f32>, site: vec3<f32>) -> f32 {{
            let before = radius(site + x0) - chi(0.0);
            let after = radius(site + x1) - chi(1.0);
            var t = clamp(before / (before - after), 0.0, 1.0);
            {step}{step}return t;
        }}
        fn crossing_of(x0: vec3<f32>, p0: vec3<f32>, x1: vec3<f32>, p1: vec3<f32>, site: vec3<f32>) {body}",
        horner(distance),
        ends[1],
        ends[0],
        horner(&derived),
    )
}

/// Returns the sites of the particles relative to the observer.
fn sites(rank: &mut Rank, leaf: &Leaf, observer: [f64; 3], image: [i64; 3]) -> Result<Vector, OperatorError> {
    let Support::Cells { mesh } = &leaf.support else {
        return Err(OperatorError::Invalid {
            operator: NAME.into(),
            why: format!("expected sites of a lattice, got {leaf}"),
        });
    };
    let place = Leaf { components: 3, batch: 1, values: Values::Real, ..leaf.clone() };
    let (own, size, shape) = (mesh.own(), mesh.size(), mesh.shape());
    let at = |axis: usize, cell: u64| {
        let cell = cell as f64 / shape[axis] as f64 + image[axis] as f64;
        (size[axis] * cell - observer[axis]) as f32
    };
    let mut values = crate::host_memory::reserve("sites", place.len() as usize)?;
    for axis in 0..3 {
        for i in own[0].clone() {
            for j in own[1].clone() {
                values.extend(own[2].clone().map(|k| at(axis, [i, j, k][axis])));
            }
        }
    }
    let array = rank.recorder.uploaded("pm::sites", &values)?;
    Vector::over(&Space::of("site", place)?, vec![Contents::Device(array)])
}
