//! Priors: numbers of given distributions as functions of standard normal ones.

mod functions;

use std::rc::Rc;

use super::error::InferenceError;
use crate::operators::{
    Contents, Differentiable, Fingerprint, Linearized, Model, OperatorCost, OperatorError, PointwiseOperator,
    Signature, Space, Support, Vector,
};
use crate::rank::Rank;
use functions::{Chebyshev, gamma_density, ln_gamma_p_q, ln_gamma_quantile, ln_normal, normal_density};

/// A distribution of numbers, as a function of a standard normal one: `x = quantile(Phi(xi))`.
///
/// | prior | computed on the device | good to |
/// |---|---|---|
/// | normal, log-normal | directly | roundings |
/// | uniform | `erfc` by a fit | 4e-7 of the width |
/// | Laplace | its logarithm by the same | 4e-7 of the scale and of the value |
/// | inverse gamma | the quantile's logarithm by a fit within 8 standard deviations | 1e-5 of the value |
///
/// On the host all are in f64 with errors of rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Prior {
    /// Normal distribution of this mean and standard deviation.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// The exponential of a normal number, with this mean and standard deviation of its own.
    LogNormal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// Any number of an interval alike.
    Uniform {
        /// The least.
        low: f64,
        /// The greatest.
        high: f64,
    },
    /// With density `exp(-|x| / scale) / (2 scale)`.
    Laplace {
        /// Its mean magnitude.
        scale: f64,
    },
    /// With density proportional to `x^(-shape - 1) exp(-scale / x)`.
    InverseGamma {
        /// Shape parameter; the density falls as `x^-(shape + 1)`.
        shape: f64,
        /// In units of the number.
        scale: f64,
    },
}

/// Standard normal numbers beyond which fits are constant.
const REACH: f64 = 8.0;

/// Logarithms of numbers that f32 holds.
const LN_RANGE: f64 = 80.0;

impl Prior {
    fn check(&self) -> Result<(), InferenceError> {
        let positive = |values: &[f64]| values.iter().all(|value| value.is_finite() && *value > 0.0);
        let (is_valid, what, expected) = match *self {
            Prior::Normal { mean, std } => (
                mean.is_finite() && positive(&[std]),
                format!("a normal prior of mean {mean} and standard deviation {std}"),
                "a finite mean and a positive standard deviation",
            ),
            Prior::LogNormal { mean, std } => (
                positive(&[mean, std]),
                format!("a log-normal prior of mean {mean} and standard deviation {std}"),
                "a positive mean and standard deviation",
            ),
            Prior::Uniform { low, high } => (
                positive(&[high - low]) && low.is_finite(),
                format!("a uniform prior from {low} to {high}"),
                "two finite bounds, the lower one first",
            ),
            Prior::Laplace { scale } => {
                (positive(&[scale]), format!("a Laplace prior of scale {scale}"), "a positive scale")
            }
            Prior::InverseGamma { shape, scale } => (
                positive(&[shape, scale]),
                format!("an inverse gamma prior of shape {shape} and scale {scale}"),
                "a positive shape and scale",
            ),
        };
        if is_valid { Ok(()) } else { Err(InferenceError::Invalid { what, why: format!("expected {expected}") }) }
    }

    /// Returns mean and deviation of the logarithm of a log-normal number.
    fn logarithm(mean: f64, std: f64) -> [f64; 2] {
        let variance = (std / mean).powi(2).ln_1p();
        [mean.ln() - variance / 2.0, variance.sqrt()]
    }

    /// Returns the number for a standard normal one.
    #[must_use]
    pub fn value(&self, xi: f64) -> f64 {
        match *self {
            Prior::Normal { mean, std } => mean + std * xi,
            Prior::LogNormal { mean, std } => {
                let [mean, std] = Self::logarithm(mean, std);
                (mean + std * xi).exp()
            }
            Prior::Uniform { low, high } => low + (high - low) * ln_normal(xi).exp(),
            Prior::Laplace { scale } => {
                let size = -scale * (ln_normal(-xi.abs()) + std::f64::consts::LN_2);
                if xi < 0.0 { -size } else { size }
            }
            Prior::InverseGamma { shape, scale } => scale * (-ln_gamma_quantile(shape, -xi)).exp(),
        }
    }

    /// Returns the derivative of [`value`](Self::value).
    #[must_use]
    pub fn derivative(&self, xi: f64) -> f64 {
        match *self {
            Prior::Normal { std, .. } => std,
            Prior::LogNormal { mean, std } => self.value(xi) * Self::logarithm(mean, std)[1],
            Prior::Uniform { low, high } => (high - low) * normal_density(xi),
            Prior::Laplace { scale } => scale * normal_density(xi) / ln_normal(-xi.abs()).exp(),
            Prior::InverseGamma { shape, scale } => {
                let ln_y = ln_gamma_quantile(shape, -xi);
                scale * normal_density(xi) / gamma_density(shape, ln_y) * (-2.0 * ln_y).exp()
            }
        }
    }

    /// Returns the operator from standard normal numbers, the only leaf of `domain`, to the leaf
    /// `result`.
    ///
    /// It is a pointwise function of fields on the device, or in f64 of parameters on the host.
    ///
    /// # Errors
    /// - [`InferenceError::Invalid`] for invalid parameters, or another domain.
    /// - [`InferenceError::Operators`].
    pub fn operator(&self, domain: &Space, result: &str) -> Result<Model, InferenceError> {
        self.check()?;
        match domain.only() {
            Some((_, leaf)) if matches!(leaf.support, Support::Parameters { .. }) => {
                let target = Space::of(result, leaf.clone())?;
                Ok(Model::new(OnHost { prior: *self, signature: Signature::new("prior", domain, &target) }))
            }
            Some((_, leaf)) if leaf.fields() == 1 && leaf.numbers() == 1 => {
                Ok(Model::new(PointwiseOperator::wgsl(&self.wgsl(), "prior", domain, result)?))
            }
            _ => {
                let why = format!("{domain} is not one real field of one component");
                Err(InferenceError::Invalid { what: "prior".into(), why })
            }
        }
    }

    /// Returns the function `fn prior(x: f32) -> f32`.
    fn wgsl(&self) -> String {
        let single = |value: f64| format!("f32({:?})", value as f32);
        let body = match *self {
            Prior::Normal { mean, std } => format!("return {} + {} * x;", single(mean), single(std)),
            Prior::LogNormal { mean, std } => {
                let [mean, std] = Self::logarithm(mean, std);
                format!("return exp({} + {} * x);", single(mean), single(std))
            }
            Prior::Uniform { low, high } => format!(
                "{}let beyond = 0.5 * t * exp(g - z * z);\nlet below = select(1.0 - beyond, beyond, x < 0.0);\n\
                 return {} + {} * below;",
                beyond(),
                single(low),
                single(high - low)
            ),
            Prior::Laplace { scale } => format!(
                "{}let size = {} * (z * z - g - log(t));\nreturn select(size, -size, x < 0.0);",
                beyond(),
                single(scale)
            ),
            Prior::InverseGamma { shape, scale } => {
                let logarithm = |xi: f64| -ln_gamma_quantile(shape, -xi);
                let holds = |xi: f64| (logarithm(xi) + scale.ln()).abs() < LN_RANGE;
                let end = |sign: f64| {
                    let steps = (1..=64).map(|step| sign * REACH * f64::from(step) / 64.0);
                    steps.take_while(|xi| holds(*xi)).last().unwrap_or(sign * REACH / 64.0)
                };
                let fit = Chebyshev::fit([end(-1.0), end(1.0)], 1e-8, logarithm);
                format!("{}return {} * exp(g);", fit.wgsl("g", "x"), single(scale))
            }
        };
        format!("fn prior(x: f32) -> f32 {{\n{body}\n}}")
    }
}

/// Returns statements that define `z = |x| / sqrt(2)`, `t` and `g` with `erfc(z) = t exp(g - z^2)`.
fn beyond() -> String {
    let of_t = |t: f64| {
        let z = 2.0 * (1.0 - t) / t;
        let erfc = if z > 0.0 { ln_gamma_p_q(0.5, z * z)[1] } else { 0.0 };
        erfc + z * z - t.ln()
    };
    let fit = Chebyshev::fit([0.2, 1.0], 1e-9, of_t);
    let z = "let z = select(x, -x, x < 0.0) * 0.70710678;\nlet t = 1.0 / (1.0 + 0.5 * z);\n";
    format!("{z}{}", fit.wgsl("g", "t"))
}

/// A prior of parameters on the host.
struct OnHost {
    prior: Prior,
    signature: Signature,
}

/// Sets `y = f(i)` for parameters.
fn fill(y: &mut Vector, f: impl Fn(usize) -> f64) -> Result<(), OperatorError> {
    let values = y.contents().iter().map(|contents| match contents {
        Contents::Host(values) => Contents::Host((0..values.len()).map(&f).collect()),
        other => other.clone(),
    });
    *y = Vector::over(y.space(), values.collect())?;
    Ok(())
}

fn parameters(x: &Vector) -> &[f64] {
    match x.contents() {
        [Contents::Host(values)] => values,
        _ => &[],
    }
}

impl Differentiable for OnHost {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, _rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        self.fits(x, y)?;
        fill(y, |i| self.prior.value(parameters(x)[i]))
    }

    fn linearize(
        self: Rc<Self>,
        rank: &mut Rank,
        x: &Vector,
        y: &mut Vector,
    ) -> Result<Box<dyn Linearized>, OperatorError> {
        self.apply(rank, x, y)?;
        let slopes = parameters(x).iter().map(|&xi| self.prior.derivative(xi)).collect();
        Ok(Box::new(OnHostAt { slopes, operator: self }))
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        out.text(&format!("{:?}", self.prior));
        Ok(())
    }

    fn cost(&self) -> OperatorCost {
        OperatorCost::default()
    }
}

/// The derivative: one number for each parameter.
struct OnHostAt {
    slopes: Vec<f64>,
    operator: Rc<OnHost>,
}

impl Linearized for OnHostAt {
    fn jvp(&self, _rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        self.operator.fits(dx, dy)?;
        fill(dy, |i| self.slopes[i] * parameters(dx)[i])
    }

    fn vjp(&self, _rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        self.operator.fits(dx, dy)?;
        fill(dx, |i| self.slopes[i] * parameters(dy)[i])
    }
}
