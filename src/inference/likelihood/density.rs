//! The density of data as a function of the values of a model.

use super::data::{Data, NoiseLevel};
use super::energy::Energy;
use super::local_root::{Categorical, LocalRoot, Score};
use crate::host_memory;
use crate::inference::error::InferenceError;
use crate::operators::{Contents, Fingerprint, Model, OperatorError, PointwiseOperator, Space, Vector};
use crate::rank::Rank;

/// A density of data. Its domain and the space of its noise are one leaf with the name of the data.
pub(super) struct Density {
    pub name: String,
    pub space: Space,
    pub energy: Energy,
    /// The gradient of the energy.
    pub score: Box<dyn Score>,
    /// The derivative is the right square root of the metric; the value may not exist.
    pub root: Model,
    /// Coordinates whose derivative is the right square root of the metric.
    pub coordinates: Option<Coordinates>,
    /// Data minus model over the standard deviation of noise.
    pub residual: Option<Model>,
    /// Distribution of the squares for a right model.
    pub squares: Squares,
    /// Number of data that count.
    pub count: u64,
    /// The kind of density with its settings.
    pub kind: String,
    weighted: Weighted,
    /// Exposures of counts.
    exposure: Option<Vector>,
}

/// Coordinates of the values of a model, along which samples are curved.
#[derive(Clone)]
pub(super) enum Coordinates {
    /// A function whose derivative is the right square root of the metric everywhere.
    Fixed(Model),
    /// A function of the leaves [`EXPANSION`] and [`SIGNAL`]. The derivative by the signal is the
    /// right square root where the two are equal.
    About(Model),
}

/// Leaves of the values of the model at the expansion point and elsewhere, in order of names.
const EXPANSION: &str = "expansion";
const SIGNAL: &str = "signal";

impl Density {
    /// Writes the density, its data, mask and noise into fingerprints. Collective.
    pub fn identify(
        &self,
        rank: &mut Rank,
        [density, data, mask, noise]: [&mut Fingerprint; 4],
    ) -> Result<(), InferenceError> {
        density.text(&self.name);
        density.text(&self.kind);
        let Weighted { data: values, weights, uniform, .. } = &self.weighted;
        data.field(rank, values)?;
        let Some((_, leaf)) = values.space().only() else { return Ok(()) };
        let weights = match weights {
            Some(weights) => {
                let weights = weights.single()?;
                rank.recorder.download(weights, 0, weights.len())?
            }
            None => vec![*uniform as f32; leaf.entries() as usize],
        };
        let counts: Vec<u32> = weights.iter().map(|weight| u32::from(*weight != 0.0)).collect();
        mask.words(rank, leaf, &counts)?;
        noise.words(rank, leaf, bytemuck::cast_slice(&weights))?;
        Ok(self.exposure.as_ref().map_or(Ok(()), |exposure| noise.field(rank, exposure))?)
    }
}

/// The distribution of the squares of residuals for a right model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Squares {
    /// Squares of standard normal numbers.
    Normal,
    /// Mean 1, but far below it for rare counts.
    Counts,
    /// A few outliers decide the mean.
    Wild,
}

impl Squares {
    fn of(kind: &str) -> Self {
        match kind {
            "gaussian" | "gaussian_inferred" => Squares::Normal,
            "poisson" => Squares::Counts,
            _ => Squares::Wild,
        }
    }
}

/// Data on the device with their weights.
struct Weighted {
    data: Vector,
    weights: Option<Vector>,
    uniform: f64,
    /// Data that count, on all ranks.
    count: u64,
}

impl Weighted {
    /// Creates weights of 1, and 0 for data that do not count. Collective.
    fn masked(rank: &mut Rank, data: &Data<'_>, checked: Result<(), String>) -> Result<Self, InferenceError> {
        let count = data.total(rank, checked)?;
        let weights = data.mask.map(|_| data.field(rank, "weight", |_| 1.0)).transpose()?;
        Ok(Weighted { data: data.field(rank, "data", |at| data.values[at])?, weights, uniform: 1.0, count })
    }

    /// Creates weights of 1 over the standard deviation of the noise. Collective.
    fn by_noise(
        rank: &mut Rank,
        data: &Data<'_>,
        noise: NoiseLevel<'_>,
        checked: Result<(), String>,
    ) -> Result<Self, InferenceError> {
        let count = data.total(rank, checked.and_then(|()| noise.check(data)))?;
        let (weights, uniform) = match noise {
            NoiseLevel::Uniform(sigma) => {
                (data.mask.map(|_| data.field(rank, "weight", |_| 1.0 / sigma)).transpose()?, 1.0 / sigma)
            }
            NoiseLevel::Each(sigmas) => (Some(data.field(rank, "weight", |at| 1.0 / sigmas[at])?), 1.0),
        };
        Ok(Weighted { data: data.field(rank, "data", |at| data.values[at])?, weights, uniform, count })
    }

    /// Returns the function `name` of the leaves of `space`, and of `data` and `weight` if its body
    /// uses them, as the leaf `target`.
    fn function(
        &self,
        (space, target): (&Space, &str),
        name: &str,
        [given, result]: [&str; 2],
        body: &str,
    ) -> Result<Model, OperatorError> {
        let uses_data = body.contains("data");
        let weights = self.weights.as_ref().filter(|_| body.contains("weight"));
        let constants: Vec<&Vector> = uses_data.then_some(&self.data).into_iter().chain(weights).collect();
        let arguments: String =
            constants.iter().flat_map(|field| field.space().names()).map(|name| format!(", {name}: f32")).collect();
        let fixed = if self.weights.is_none() {
            format!("let weight = f32({:?}); ", self.uniform as f32)
        } else {
            String::new()
        };
        let text = format!("fn {name}({given}{arguments}) -> {result} {{ {fixed}return {body}; }}");
        let all = constants.iter().flat_map(|field| field.space().leaves());
        let all = Space::new(all.map(|(name, leaf)| (name, leaf.clone())))?;
        let arrays = constants.iter().flat_map(|field| field.contents().to_vec()).collect::<Vec<Contents>>();
        let constants = Vector::over(&all, arrays)?;
        Ok(Model::new(PointwiseOperator::wgsl_with(&text, name, space, &constants, target)?))
    }
}

/// Functions of `s`, `data` and `weight` for a density with coordinates.
struct Texts {
    score: String,
    transformation: String,
    residual: String,
}

fn space_of(data: &Data<'_>, components: u32) -> Result<Space, OperatorError> {
    if components > 1 && data.leaf.batch > 1 {
        let why =
            format!("expected data of one field where the model has {components} numbers for each, got {}", data.leaf);
        return Err(OperatorError::Invalid { operator: data.name.into(), why });
    }
    Space::of(data.name, data.leaf.clone().components(components))
}

/// Creates a density of one number at each place.
fn with_coordinates(
    data: &Data<'_>,
    (kind, dof): (&str, f64),
    weighted: Weighted,
    texts: &Texts,
) -> Result<Density, InferenceError> {
    let space = space_of(data, 1)?;
    let function = |name: &str, body: &str| weighted.function((&space, data.name), name, ["s: f32", "f32"], body);
    let transformation = function("transformation", &texts.transformation)?;
    let uniform = (dof, weighted.uniform, 1);
    Ok(Density {
        kind: format!("{kind} {dof}"),
        exposure: None,
        name: data.name.into(),
        energy: Energy::new((data.name, kind), data.leaf, &weighted.data, weighted.weights.as_ref(), uniform)?,
        score: Box::new(function("score", &texts.score)?),
        root: transformation.clone(),
        coordinates: Some(Coordinates::Fixed(transformation)),
        residual: Some(function("residual", &texts.residual)?),
        squares: Squares::of(kind),
        count: weighted.count,
        space,
        weighted,
    })
}

/// Creates `exp(-(s - d)^2 / (2 sigma^2))`.
pub(super) fn gaussian(rank: &mut Rank, data: &Data<'_>, noise: NoiseLevel<'_>) -> Result<Density, InferenceError> {
    let checked = data.check("data are finite numbers", |_| true);
    let weighted = Weighted::by_noise(rank, data, noise, checked)?;
    let texts = Texts {
        score: "weight * (weight * (s - data))".into(),
        transformation: "weight * s".into(),
        residual: "weight * (data - s)".into(),
    };
    with_coordinates(data, ("gaussian", 1.0), weighted, &texts)
}

/// The least normal number of f32; some devices round smaller rates to 0.
const LEAST_RATE: &str = "1.1754944e-38";

/// Creates the density of counts for a rate, or for a rate times an exposure.
pub(super) fn poisson(rank: &mut Rank, data: &Data<'_>, exposure: Option<Vector>) -> Result<Density, InferenceError> {
    let checked = data.check("counts are whole numbers from 0 on", |count| count >= 0.0 && count.fract() == 0.0);
    let weighted = Weighted::masked(rank, data, checked)?;
    // Rates may underflow to 0. The derivatives of the rate are 0 there, so finite factors keep the
    // gradient 0. With counts the energy is infinite, which is an error.
    let texts = Texts {
        score: format!("weight * select(max((s - data) / max(s, {LEAST_RATE}), -3e38), 1.0, data == 0.0)"),
        transformation: format!("2.0 * weight * sqrt(max(s, {LEAST_RATE}))"),
        residual: format!("weight * ((data - s) / sqrt(max(s, {LEAST_RATE})))"),
    };
    let density = with_coordinates(data, ("poisson", 1.0), weighted, &texts)?;
    Ok(Density { exposure, ..density })
}

/// Refuses invalid data and degrees of freedom.
fn check_student_t(data: &Data<'_>, dof: f64) -> Result<(), String> {
    data.check("data are finite numbers", |_| true)?;
    if dof.is_finite() && dof > 0.0 {
        return Ok(());
    }
    Err(format!("{dof} degrees of freedom of Student's t distribution; they must be positive"))
}

/// Creates Student's t distribution; see [`Likelihood::student_t`](super::Likelihood::student_t).
pub(super) fn student_t(
    rank: &mut Rank,
    data: &Data<'_>,
    noise: NoiseLevel<'_>,
    dof: f64,
) -> Result<Density, InferenceError> {
    let weighted = Weighted::by_noise(rank, data, noise, check_student_t(data, dof))?;
    let (root, t) = (((dof + 1.0) / (dof + 3.0)).sqrt() as f32, dof as f32);
    let away = "(weight * (s - data))";
    let texts = Texts {
        score: format!("f32({:?}) * weight * {away} / (f32({t:?}) + {away} * {away})", t + 1.0),
        transformation: format!("f32({root:?}) * weight * s"),
        residual: format!("f32({root:?}) * weight * (data - s)"),
    };
    with_coordinates(data, ("student", dof), weighted, &texts)
}

/// Creates a density of two numbers at each place, the second of which is a width.
///
/// `root` has the two factors of the square root of the metric, which is diagonal.
fn of_two(
    data: &Data<'_>,
    (kind, dof): (&str, f64),
    weighted: Weighted,
    [score, residual, root]: [&str; 3],
    coordinates: Option<&str>,
) -> Result<Density, InferenceError> {
    let space = space_of(data, 2)?;
    let vector =
        |name: &str, body: &str| weighted.function((&space, data.name), name, ["s: vec2<f32>", "vec2<f32>"], body);
    let pair = Space::new([EXPANSION, SIGNAL].map(|name| (name, data.leaf.clone().components(2))))?;
    let about = |body: &str| {
        let arguments = format!("{EXPANSION}: vec2<f32>, {SIGNAL}: vec2<f32>");
        let model = weighted.function((&pair, data.name), "coordinates", [&arguments, "vec2<f32>"], body)?;
        Ok::<_, OperatorError>(Coordinates::About(model))
    };
    let factors = vector("root_factors", root)?;
    let uniform = (dof, 1.0, 2);
    Ok(Density {
        kind: format!("{kind} {dof}"),
        exposure: None,
        name: data.name.into(),
        energy: Energy::new((data.name, kind), data.leaf, &weighted.data, weighted.weights.as_ref(), uniform)?,
        score: Box::new(vector("score", score)?),
        root: Model::new(LocalRoot::diagonal(factors)),
        coordinates: coordinates.map(about).transpose()?,
        residual: Some(weighted.function((&space, data.name), "residual", ["s: vec2<f32>", "f32"], residual)?),
        squares: Squares::of(kind),
        count: weighted.count,
        space,
        weighted,
    })
}

/// Creates a Gaussian of mean and inverse standard deviation.
pub(super) fn gaussian_inferred(rank: &mut Rank, data: &Data<'_>) -> Result<Density, InferenceError> {
    let weighted = Weighted::masked(rank, data, data.check("data are finite numbers", |_| true))?;
    let texts = [
        "weight * vec2<f32>(s.y * s.y * (s.x - data), s.y * (s.x - data) * (s.x - data) - 1.0 / s.y)",
        "weight * s.y * (data - s.x)",
        "weight * vec2<f32>(s.y, f32(1.4142135) / s.y)",
    ];
    // With the data in place of the mean at the expansion point, the derivative by the width would
    // contain the residual and would not be the root of the metric.
    let coordinates = "weight * vec2<f32>(signal.y * (signal.x - expansion.x), f32(1.4142135) * log(signal.y))";
    of_two(data, ("gaussian_inferred", 1.0), weighted, texts, Some(coordinates))
}

/// Creates Student's t distribution of mean and standard deviation.
pub(super) fn student_t_inferred(rank: &mut Rank, data: &Data<'_>, dof: f64) -> Result<Density, InferenceError> {
    let weighted = Weighted::masked(rank, data, check_student_t(data, dof))?;
    let (t, more) = (dof as f32, dof as f32 + 1.0);
    let (first, second) = (((dof + 1.0) / (dof + 3.0)).sqrt() as f32, (2.0 * dof / (dof + 3.0)).sqrt() as f32);
    let away = "((s.x - data) / s.y)";
    let share = format!("f32({more:?}) * {away} / (f32({t:?}) + {away} * {away})");
    let score = format!("weight / s.y * vec2<f32>({share}, 1.0 - {share} * {away})");
    let residual = format!("weight * f32({first:?}) * (data - s.x) / s.y");
    let root = format!("weight * vec2<f32>(f32({first:?}) / s.y, f32({second:?}) / s.y)");
    of_two(data, ("student_inferred", dof), weighted, [&score, &residual, &root], None)
}

/// Creates the density of classes by their logits.
pub(super) fn categorical(rank: &mut Rank, data: &Data<'_>, classes: u32) -> Result<Density, InferenceError> {
    let checked = if classes < 2 {
        Err(format!("{classes} classes; there must be two at least"))
    } else {
        let wanted = format!("classes are whole numbers from 0 to {}", classes - 1);
        data.check(&wanted, |class| class >= 0.0 && class.fract() == 0.0 && class < f64::from(classes))
    };
    let weighted = Weighted::masked(rank, data, checked)?;
    let space = space_of(data, classes)?;
    let Weighted { data: numbers, weights, .. } = &weighted;
    let uniform = (1.0, 1.0, classes);
    let step = |flag| Categorical::new(flag, &space, numbers, weights.as_ref());
    Ok(Density {
        kind: format!("categorical {classes}"),
        exposure: None,
        name: data.name.into(),
        energy: Energy::new((data.name, "categorical"), data.leaf, numbers, weights.as_ref(), uniform)?,
        score: Box::new(step("score")?),
        root: Model::new(LocalRoot::categorical(step("right")?, step("left")?)),
        coordinates: None,
        residual: None,
        squares: Squares::Wild,
        count: weighted.count,
        space,
        weighted,
    })
}

/// Returns the exposures of a rank's places; 1 where nothing counts.
pub(super) fn exposures(rank: &mut Rank, data: &Data<'_>, exposure: &[f64]) -> Result<Vector, InferenceError> {
    let values = (0..exposure.len()).map(|at| if data.counts(at) { exposure[at] as f32 } else { 1.0 });
    let array = rank.recorder.uploaded("inference::exposure", &host_memory::collect("exposures", values)?)?;
    Ok(Vector::over(&Space::of("exposure", data.leaf.clone())?, vec![Contents::Device(array)])?)
}

/// Returns the rate that counts have of a signal, by an exposure for each place.
pub(super) fn exposed(data: &Data<'_>, exposures: &Vector) -> Result<Model, InferenceError> {
    let text = "fn expose(s: f32, exposure: f32) -> f32 { return exposure * s; }";
    let space = space_of(data, 1)?;
    Ok(Model::new(PointwiseOperator::wgsl_with(text, "expose", &space, exposures, data.name)?))
}
