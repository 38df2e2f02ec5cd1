//! Priors: numbers of given distributions as functions of standard normal ones.

mod functions;

use std::rc::Rc;

use super::error::{InferenceError, Result};
use crate::operators::{
    Contents, Differentiable, Fingerprint, Linearized, Model, OperatorCost, OperatorError, PointwiseOperator,
    Signature, Space, Vector,
};
use crate::rank::Rank;
use functions::{
    Chebyshev, gamma_density, ln_gamma_p_q, ln_gamma_quantile, ln_normal, normal_density, normal_quantile,
};

/// A distribution of numbers, as a function of a standard normal one: `x = quantile(Phi(xi))`.
///
/// | prior | computed on the device | good to |
/// |---|---|---|
/// | normal, log-normal | directly | roundings |
/// | uniform | `erfc` by a fit | 4e-7 of the width |
/// | Laplace | its logarithm by the same | 4e-7 of the scale and of the value |
/// | inverse gamma | the quantile's logarithm by a fit within 8 standard deviations | 1e-5 of the
/// value |
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
    fn check(&self) -> Result<()> {
        let positive = |values: &[f64]| values.iter().all(|value| value.is_finite() && *value > 0.0);
        let (is_valid, expected) = match *self {
            Prior::Normal { mean, std } => {
                (mean.is_finite() && positive(&[std]), "a finite mean and a positive standard deviation")
            }
            Prior::LogNormal { mean, std } => (positive(&[mean, std]), "a positive mean and standard deviation"),
            Prior::Uniform { low, high } => {
                (positive(&[high - low]) && low.is_finite(), "two finite bounds, the lower one first")
            }
            Prior::Laplace { scale } => (positive(&[scale]), "a positive scale"),
            Prior::InverseGamma { shape, scale } => (positive(&[shape, scale]), "a positive shape and scale"),
        };
        if is_valid {
            return Ok(());
        }
        Err(InferenceError::Invalid { what: self.described(), why: format!("expected {expected}") })
    }

    /// Returns the distribution and its parameters, for errors.
    fn described(&self) -> String {
        match *self {
            Prior::Normal { mean, std } => format!("a normal prior of mean {mean} and standard deviation {std}"),
            Prior::LogNormal { mean, std } => format!("a log-normal prior of mean {mean} and standard deviation {std}"),
            Prior::Uniform { low, high } => format!("a uniform prior from {low} to {high}"),
            Prior::Laplace { scale } => format!("a Laplace prior of scale {scale}"),
            Prior::InverseGamma { shape, scale } => {
                format!("an inverse gamma prior of shape {shape} and scale {scale}")
            }
        }
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

    /// Returns the standard normal number of a value, the inverse of [`value`](Self::value): a fit
    /// can start at given values. Computed in f64.
    ///
    /// ```
    /// use meshloom::inference::Prior;
    ///
    /// let rate = Prior::Uniform { low: 2.0, high: 6.0 };
    /// assert_eq!(rate.inverse(4.0)?, 0.0);
    /// assert!(rate.inverse(6.5).is_err());
    /// # Ok::<(), meshloom::inference::InferenceError>(())
    /// ```
    ///
    /// # Errors
    /// - [`InferenceError::Invalid`] if the value is not inside the range of the prior, or the
    ///   prior is
    ///   invalid.
    pub fn inverse(&self, value: f64) -> Result<f64> {
        self.check()?;
        let range = self.range();
        if !(range[0] < value && value < range[1]) {
            let why = format!("expected a value above {} and below {}", range[0], range[1]);
            return Err(InferenceError::Invalid { what: format!("value {value} of {}", self.described()), why });
        }
        let quantile = |ln_below: f64, ln_above: f64| match ln_below < ln_above {
            true => normal_quantile(ln_below),
            false => -normal_quantile(ln_above),
        };
        Ok(match *self {
            Prior::Normal { mean, std } => (value - mean) / std,
            Prior::LogNormal { mean, std } => {
                let [mean, std] = Self::logarithm(mean, std);
                (value.ln() - mean) / std
            }
            Prior::Uniform { low, high } => {
                let [below, above] = [value - low, high - value].map(|part| part / (high - low));
                if below == above { 0.0 } else { quantile(below.ln(), above.ln()) }
            }
            Prior::Laplace { scale } => {
                let xi = normal_quantile(-value.abs() / scale - std::f64::consts::LN_2);
                if value < 0.0 { xi } else { -xi }
            }
            Prior::InverseGamma { shape, scale } => {
                let [below, above] = ln_gamma_p_q(shape, scale / value);
                -quantile(below, above)
            }
        })
    }

    /// Returns the open interval of the values.
    #[must_use]
    pub fn range(&self) -> [f64; 2] {
        match *self {
            Prior::Normal { .. } | Prior::Laplace { .. } => [f64::NEG_INFINITY, f64::INFINITY],
            Prior::LogNormal { .. } | Prior::InverseGamma { .. } => [0.0, f64::INFINITY],
            Prior::Uniform { low, high } => [low, high],
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
    pub fn operator(&self, domain: &Space, result: &str) -> Result<Model> {
        self.check()?;
        match domain.only() {
            Some((_, leaf)) if leaf.is_on_host() => {
                let target = Space::of(result, leaf.clone())?;
                Ok(Model::new(OnHost { prior: *self, signature: Signature::new("prior", domain, &target) }))
            }
            Some((_, leaf)) if leaf.components == 1 && leaf.numbers() == 1 => {
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
fn fill(y: &mut Vector, f: impl Fn(usize) -> f64) {
    if let [Contents::Host(values)] = y.contents_mut() {
        values.iter_mut().enumerate().for_each(|(i, y)| *y = f(i));
    }
}

fn parameters(x: &Vector) -> &[f64] {
    x.contents().first().and_then(Contents::on_host).unwrap_or_default()
}

impl Differentiable for OnHost {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, _rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        self.fits(x, y)?;
        fill(y, |i| self.prior.value(parameters(x)[i]));
        Ok(())
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
        fill(dy, |i| self.slopes[i] * parameters(dx)[i]);
        Ok(())
    }

    fn vjp(&self, _rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        self.operator.fits(dx, dy)?;
        fill(dx, |i| self.slopes[i] * parameters(dy)[i]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_back_to_their_standard_normal_numbers() {
        for prior in [
            Prior::Normal { mean: 3.0, std: 0.5 },
            Prior::LogNormal { mean: 3.0, std: 0.5 },
            Prior::Uniform { low: -1.0, high: 4.0 },
            Prior::Laplace { scale: 2.0 },
            Prior::InverseGamma { shape: 1.5, scale: 0.1 },
        ] {
            for xi in [-6.0, -2.5, -1e-3, 0.0, 0.7, 2.0, 6.0] {
                let found = prior.inverse(prior.value(xi)).unwrap();
                // A value beside a bound holds few digits of its distance to the bound.
                let digits = if matches!(prior, Prior::Uniform { .. }) && xi.abs() > 5.0 { 1e-6 } else { 1e-10 };
                assert!((found - xi).abs() < digits, "{prior:?}: {xi} {found}");
            }
            assert!(prior.inverse(f64::NAN).is_err() && prior.inverse(f64::INFINITY).is_err(), "{prior:?}");
        }
        assert!((Prior::Laplace { scale: 1.0 }.inverse(5000.0).unwrap() - 99.9).abs() < 0.2);
        let error = Prior::Uniform { low: 2.0, high: 3.0 }.inverse(3.5).unwrap_err().to_string();
        assert!(error.contains("value 3.5") && error.contains("above 2 and below 3"), "{error}");
        let error = Prior::InverseGamma { shape: 1.0, scale: 1.0 }.inverse(-1.0).unwrap_err().to_string();
        assert!(error.contains("value -1 of an inverse gamma prior") && error.contains("above 0"), "{error}");
    }
}
