//! Creation of likelihoods of each kind of data.

use super::Likelihood;
use super::data::{Coordinates, Data, Density, EXPANSION, Functions, NoiseLevel, SIGNAL, Weighted};
use super::local_root::{Categorical, LocalRoot};
use crate::comm::Op;
use crate::host_memory;
use crate::inference::error::Result;
use crate::operators::{Model, OperatorError, PointwiseOperator, Space, Vector};
use crate::rank::Rank;

/// The least normal number of f32; some devices round smaller rates to 0.
const LEAST_RATE: &str = "1.1754944e-38";

impl Likelihood {
    /// Creates the likelihood of data with Gaussian noise around the values of a model. Collective.
    ///
    /// # Errors
    /// - [`InferenceError::Invalid`](crate::inference::InferenceError::Invalid) for another
    ///   number of data than places, values that are not finite, noise that is not positive, or if
    ///   no datum counts.
    pub fn gaussian(rank: &mut Rank, data: &Data<'_>, noise: NoiseLevel<'_>) -> Result<Self> {
        let checked = data.check("data are finite numbers", |_| true);
        let weighted = Weighted::new(rank, data, noise, checked)?;
        let texts =
            Texts { score: "weight * (weight * (s - data))", root: "weight * s", residual: "weight * (data - s)" };
        of_one(data, ("gaussian", 1.0), weighted, &texts).map(Self::of)
    }

    /// Creates the likelihood of counts with a positive rate. Collective.
    ///
    /// With `exposure` the model gives the rate for an exposure of 1; counts at exposure 0 do not
    /// count.
    ///
    /// # Errors
    /// - Same as [`gaussian`](Self::gaussian).
    /// - [`InferenceError::Invalid`](crate::inference::InferenceError::Invalid) for invalid
    ///   counts or exposures, or counts at exposure 0.
    pub fn poisson(rank: &mut Rank, data: &Data<'_>, exposure: Option<&[f64]>) -> Result<Self> {
        let Some(exposure) = exposure else { return counts(rank, data).map(Self::of) };
        data.total(rank, check_exposed(data, exposure))?;
        let mask = (0..exposure.len()).map(|at| data.counts(at) && exposure[at] > 0.0);
        let mask = host_memory::collect("the mask of data", mask)?;
        // Ranks have kernels alike, so a mask that one needs all have.
        let own = u64::from(data.mask.is_some() || mask.contains(&false));
        let mut any = [own];
        rank.comm.all_reduce(&mut any, Op::Max)?;
        let masked = Data { mask: (any[0] == 1).then_some(&mask[..]), ..*data };
        let exposures = masked.field(rank, ("exposure", 1.0), |at| exposure[at])?;
        let exposed = exposed(&masked, &exposures)?;
        let mut density = counts(rank, &masked)?;
        density.exposure = Some(exposures);
        Self::of(density).amend(&exposed)
    }

    /// Creates the likelihood of data with outliers: Student's t distribution with `dof` degrees of
    /// freedom.
    ///
    /// Normalized residuals are `sqrt((t + 1) / (t + 3)) (d - s) / sigma` as in NIFTy. For a right
    /// model their mean square is `(t + 1) / (t + 3) * t / (t - 2)`; it is infinite for `t <= 2`.
    /// Collective.
    ///
    /// # Errors
    /// - Same as [`gaussian`](Self::gaussian).
    /// - [`InferenceError::Invalid`](crate::inference::InferenceError::Invalid) for degrees
    ///   of freedom that are not positive.
    pub fn student_t(rank: &mut Rank, data: &Data<'_>, noise: NoiseLevel<'_>, dof: f64) -> Result<Self> {
        let weighted = Weighted::new(rank, data, noise, check_student_t(data, dof))?;
        let (root, t) = (((dof + 1.0) / (dof + 3.0)).sqrt() as f32, dof as f32);
        let away = "(weight * (s - data))";
        let texts = Texts {
            score: &format!("f32({:?}) * weight * {away} / (f32({t:?}) + {away} * {away})", t + 1.0),
            root: &format!("f32({root:?}) * weight * s"),
            residual: &format!("f32({root:?}) * weight * (data - s)"),
        };
        of_one(data, ("student", dof), weighted, &texts).map(Self::of)
    }

    /// Creates the likelihood of data whose noise the model gives: mean and inverse standard
    /// deviation.
    ///
    /// The two are the components of the leaf. Collective.
    ///
    /// # Errors
    /// Same as [`gaussian`](Self::gaussian).
    pub fn gaussian_inferred(rank: &mut Rank, data: &Data<'_>) -> Result<Self> {
        let weighted =
            Weighted::new(rank, data, NoiseLevel::Uniform(1.0), data.check("data are finite numbers", |_| true))?;
        let texts = Texts {
            score: "weight * vec2<f32>(s.y * s.y * (s.x - data), s.y * (s.x - data) * (s.x - data) - 1.0 / s.y)",
            root: "weight * vec2<f32>(s.y, f32(1.4142135) / s.y)",
            residual: "weight * s.y * (data - s.x)",
        };
        // With the data in place of the mean at the expansion point, the derivative by the width
        // would contain the residual and would not be the root of the metric.
        let coordinates = "weight * vec2<f32>(signal.y * (signal.x - expansion.x), f32(1.4142135) * log(signal.y))";
        of_two(data, ("gaussian_inferred", 1.0), weighted, &texts, Some(coordinates)).map(Self::of)
    }

    /// Creates the likelihood of Student's t distribution of which the model gives mean and
    /// standard deviation.
    ///
    /// # Errors
    /// Same as [`student_t`](Self::student_t).
    pub fn student_t_inferred(rank: &mut Rank, data: &Data<'_>, dof: f64) -> Result<Self> {
        let weighted = Weighted::new(rank, data, NoiseLevel::Uniform(1.0), check_student_t(data, dof))?;
        let (t, more) = (dof as f32, dof as f32 + 1.0);
        let (first, second) = (((dof + 1.0) / (dof + 3.0)).sqrt() as f32, (2.0 * dof / (dof + 3.0)).sqrt() as f32);
        let away = "((s.x - data) / s.y)";
        let share = format!("f32({more:?}) * {away} / (f32({t:?}) + {away} * {away})");
        let texts = Texts {
            score: &format!("weight / s.y * vec2<f32>({share}, 1.0 - {share} * {away})"),
            root: &format!("weight * vec2<f32>(f32({first:?}) / s.y, f32({second:?}) / s.y)"),
            residual: &format!("weight * f32({first:?}) * (data - s.x) / s.y"),
        };
        of_two(data, ("student_inferred", dof), weighted, &texts, None).map(Self::of)
    }

    /// Creates the likelihood of classes `0..classes`, of which the model gives the logits as
    /// components.
    ///
    /// # Errors
    /// - Same as [`gaussian`](Self::gaussian).
    /// - [`InferenceError::Invalid`](crate::inference::InferenceError::Invalid) for fewer
    ///   than two classes, or data that are not a class.
    pub fn categorical(rank: &mut Rank, data: &Data<'_>, classes: u32) -> Result<Self> {
        let checked = if classes < 2 {
            Err(format!("{classes} classes; there must be two at least"))
        } else {
            let wanted = format!("classes are whole numbers from 0 to {}", classes - 1);
            data.check(&wanted, |class| class >= 0.0 && class.fract() == 0.0 && class < f64::from(classes))
        };
        let weighted = Weighted::new(rank, data, NoiseLevel::Uniform(1.0), checked)?;
        let space = space_of(data, classes)?;
        let categorical = Categorical::new(&space, &weighted)?;
        let root = Model::new(LocalRoot::categorical(&categorical));
        let score = move |rank: &mut Rank, s: &Vector, y: &mut Vector| categorical.score(rank, s, y);
        let functions = Functions { score: Box::new(score), root, coordinates: None, residual: None };
        Ok(Self::of(Density::new(data, ("categorical", classes.into()), space, weighted, functions)))
    }
}

/// Functions of `s`, `data` and `weight`.
struct Texts<'a> {
    score: &'a str,
    /// The coordinates, whose derivative is the root of the metric; for two numbers the factors of
    /// the root, which is diagonal.
    root: &'a str,
    residual: &'a str,
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
fn of_one(data: &Data<'_>, kind: (&str, f64), weighted: Weighted, texts: &Texts<'_>) -> Result<Density> {
    let space = space_of(data, 1)?;
    let function = |name: &str, body: &str| weighted.function((&space, data.name), name, ["s: f32", "f32"], body);
    let (score, root) = (function("score", texts.score)?, function("transformation", texts.root)?);
    let functions = Functions {
        score: Box::new(move |rank, s, y| score.apply(rank, s, y)),
        root: root.clone(),
        coordinates: Some(Coordinates::Fixed(root)),
        residual: Some(function("residual", texts.residual)?),
    };
    Ok(Density::new(data, kind, space, weighted, functions))
}

/// Creates a density of two numbers at each place, the second of which is a width.
fn of_two(
    data: &Data<'_>,
    kind: (&str, f64),
    weighted: Weighted,
    texts: &Texts<'_>,
    coordinates: Option<&str>,
) -> Result<Density> {
    let space = space_of(data, 2)?;
    let function = |name: &str, result: &str, body: &str| {
        weighted.function((&space, data.name), name, ["s: vec2<f32>", result], body)
    };
    let pair = Space::new([EXPANSION, SIGNAL].map(|name| (name, data.leaf.clone().components(2))))?;
    let about = |body: &str| {
        let arguments = format!("{EXPANSION}: vec2<f32>, {SIGNAL}: vec2<f32>");
        let model = weighted.function((&pair, data.name), "coordinates", [&arguments, "vec2<f32>"], body)?;
        Ok::<_, OperatorError>(Coordinates::About(model))
    };
    let score = function("score", "vec2<f32>", texts.score)?;
    let functions = Functions {
        score: Box::new(move |rank, s, y| score.apply(rank, s, y)),
        root: Model::new(LocalRoot::diagonal(function("root_factors", "vec2<f32>", texts.root)?)),
        coordinates: coordinates.map(about).transpose()?,
        residual: Some(function("residual", "f32", texts.residual)?),
    };
    Ok(Density::new(data, kind, space, weighted, functions))
}

/// Creates the density of counts for a rate.
fn counts(rank: &mut Rank, data: &Data<'_>) -> Result<Density> {
    let checked = data.check("counts are whole numbers from 0 on", |count| count >= 0.0 && count.fract() == 0.0);
    let weighted = Weighted::new(rank, data, NoiseLevel::Uniform(1.0), checked)?;
    // Rates may underflow to 0. The derivatives of the rate are 0 there, so finite factors keep the
    // gradient 0. With counts the energy is infinite, which is an error.
    let texts = Texts {
        score: &format!("weight * select(max((s - data) / max(s, {LEAST_RATE}), -3e38), 1.0, data == 0.0)"),
        root: &format!("2.0 * weight * sqrt(max(s, {LEAST_RATE}))"),
        residual: &format!("weight * ((data - s) / sqrt(max(s, {LEAST_RATE})))"),
    };
    of_one(data, ("poisson", 1.0), weighted, &texts)
}

/// Refuses invalid counts and exposures, and counts without exposure.
fn check_exposed(data: &Data<'_>, exposure: &[f64]) -> Result<(), String> {
    data.check("counts are finite numbers", |_| true)?;
    data.check_len("exposures", exposure.len())?;
    let counted = || (0..exposure.len()).filter(|&at| data.counts(at));
    if let Some(at) = counted().find(|&at| !(exposure[at].is_finite() && exposure[at] >= 0.0)) {
        return Err(format!("the exposure of number {at} is {}; it must be 0 or more, or mask it", exposure[at]));
    }
    match counted().find(|&at| exposure[at] == 0.0 && data.values[at] != 0.0) {
        Some(at) => Err(format!("number {at} is {} at an exposure of 0; mask it", data.values[at])),
        None => Ok(()),
    }
}

/// Refuses invalid data and degrees of freedom.
fn check_student_t(data: &Data<'_>, dof: f64) -> Result<(), String> {
    data.check("data are finite numbers", |_| true)?;
    if dof.is_finite() && dof > 0.0 {
        return Ok(());
    }
    Err(format!("{dof} degrees of freedom of Student's t distribution; they must be positive"))
}

/// Returns the rate that counts have of a signal, by an exposure for each place.
fn exposed(data: &Data<'_>, exposures: &Vector) -> Result<Model> {
    let text = "fn expose(s: f32, exposure: f32) -> f32 { return exposure * s; }";
    let space = space_of(data, 1)?;
    Ok(Model::new(PointwiseOperator::wgsl_with(text, "expose", &space, exposures, data.name)?))
}
