//! Likelihoods of f64 on the host: data that depend on a function of latent values in closed form.
//! Derivatives are by complex steps, exact to rounding.

use meshloom::inference::{
    Elementwise, Identity, InferenceError, LogLikelihood, LogLikelihoodAt, Reduction, Share, Staged, Stream,
    VectorSpace,
};
use meshloom::operators::Fingerprint;
use meshloom::random::white_noise;
use rustfft::num_complex::Complex64;
use std::collections::BTreeMap;
use std::ops::Range;

/// Vectors of f64 on the host, for small problems and for tests. Their parts may have names.
#[derive(Clone, Debug, Default)]
pub struct Host {
    parts: BTreeMap<String, Range<usize>>,
}

impl Host {
    /// A space whose vectors have these parts, one after the other.
    pub fn new<N: Into<String>>(parts: impl IntoIterator<Item = (N, usize)>) -> Self {
        let mut end = 0;
        let part = |(name, len): (N, usize)| {
            end += len;
            (name.into(), end - len..end)
        };
        Host { parts: parts.into_iter().map(part).collect() }
    }

    fn fits(x: &[f64], y: &[f64]) -> Result<(), InferenceError> {
        let why = || format!("a vector of {} numbers and one of {}", x.len(), y.len());
        if x.len() == y.len() { Ok(()) } else { Err(InferenceError::Invalid { what: "Host".into(), why: why() }) }
    }
}

impl VectorSpace for Host {
    type Vector = Vec<f64>;

    fn like(&mut self, x: &Vec<f64>) -> Result<Vec<f64>, InferenceError> {
        // So that what is read before it is written is seen.
        Ok(vec![f64::NAN; x.len()])
    }

    fn zeros(&mut self, x: &Vec<f64>) -> Result<Vec<f64>, InferenceError> {
        Ok(vec![0.0; x.len()])
    }

    fn axpby(&mut self, a: f64, x: &Vec<f64>, b: f64, y: &mut Vec<f64>) -> Result<(), InferenceError> {
        Host::fits(x, y)?;
        y.iter_mut().zip(x).for_each(|(y, x)| *y = if b == 0.0 { a * x } else { a * x + b * *y });
        Ok(())
    }

    fn multiply(&mut self, a: f64, [x, z]: [&Vec<f64>; 2], b: f64, y: &mut Vec<f64>) -> Result<(), InferenceError> {
        Host::fits(x, y)?;
        Host::fits(z, y)?;
        let update = |(y, (x, z)): (&mut f64, (&f64, &f64))| *y = a * x * z + if b == 0.0 { 0.0 } else { b * *y };
        y.iter_mut().zip(x.iter().zip(z)).for_each(update);
        Ok(())
    }

    fn map(&mut self, function: Elementwise, x: &mut Vec<f64>) -> Result<(), InferenceError> {
        x.iter_mut().for_each(|x| *x = function.of(*x));
        Ok(())
    }

    fn add(
        &mut self,
        parts: Option<&[String]>,
        terms: &[(f64, &Vec<f64>)],
        y: &mut Vec<f64>,
    ) -> Result<(), InferenceError> {
        for (a, x) in terms {
            Host::fits(x, y)?;
            let Some(parts) = parts else {
                self.axpby(*a, x, 1.0, y)?;
                continue;
            };
            let places = parts.iter().filter_map(|name| self.parts.get(name)).flat_map(Clone::clone);
            places.for_each(|at| y[at] += a * x[at]);
        }
        Ok(())
    }

    fn reduce(&mut self, what: &[Reduction<'_, Vec<f64>>]) -> Result<Vec<f64>, InferenceError> {
        let one = |reduction: &Reduction<'_, Vec<f64>>| match reduction {
            Reduction::Dot(x, y) => {
                Host::fits(x, y)?;
                finite("an inner product", x.iter().zip(*y).map(|(x, y)| x * y).sum())
            }
            Reduction::DotOver(parts, x, y) => {
                Host::fits(x, y)?;
                let places = parts.iter().filter_map(|name| self.parts.get(name)).flat_map(Clone::clone);
                finite("an inner product", places.map(|at| x[at] * y[at]).sum())
            }
            Reduction::Norm1(x) => finite("a norm", x.iter().map(|x| x.abs()).sum()),
            Reduction::Sum(x) => finite("a sum", x.iter().sum()),
        };
        what.iter().map(one).collect()
    }

    fn epsilon(&self) -> f64 {
        f64::EPSILON
    }

    fn len(&self, x: &Vec<f64>) -> u64 {
        x.len() as u64
    }

    fn white_noise(&mut self, stream: Stream, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        out.iter_mut().enumerate().for_each(|(i, out)| *out = white_noise(stream.0, i as u64));
        Ok(())
    }

    fn parts(&self, _x: &Vec<f64>) -> Vec<(String, u64)> {
        self.parts.iter().map(|(name, range)| (name.clone(), range.len() as u64)).collect()
    }

    fn clear_part(&mut self, name: &str, x: &mut Vec<f64>) -> Result<(), InferenceError> {
        match self.parts.get(name).and_then(|range| x.get_mut(range.clone())) {
            Some(part) => part.fill(0.0),
            None => return Err(InferenceError::Options { option: "parts".into(), why: format!("no part `{name}`") }),
        }
        Ok(())
    }

    fn shares(&self, x: &Vec<f64>) -> Result<Vec<Share>, InferenceError> {
        let shape = [1, 1, x.len() as u64];
        Ok(vec![Share { shape, own: shape.map(|n| 0..n), fields: 1, is_replicated: true, is_double: true }])
    }

    fn submit(&mut self) -> Result<(), InferenceError> {
        Ok(())
    }

    fn settle(&mut self) -> Result<(), InferenceError> {
        Ok(())
    }

    fn allocated(&self) -> u64 {
        0
    }

    fn stage(&mut self, x: &Vec<f64>) -> Result<Staged, InferenceError> {
        Ok(Staged { singles: Vec::new(), doubles: x.clone() })
    }

    fn unstage(&mut self, from: &Staged, x: &mut Vec<f64>) -> Result<(), InferenceError> {
        Host::fits(&from.doubles, x)?;
        x.copy_from_slice(&from.doubles);
        Ok(())
    }
}

fn finite(what: &str, value: f64) -> Result<f64, InferenceError> {
    if value.is_finite() { Ok(value) } else { Err(InferenceError::NotFinite { what: what.into(), value }) }
}

/// The distribution of a number of the data about what the model gives for it.
#[derive(Clone, Copy, Debug)]
pub enum Noise {
    Gaussian { std: f64 },
    Poisson,
    Student { std: f64, dof: f64 },
}

impl Noise {
    /// Energy, its derivative, the root of the Fisher metric, and the integral of that.
    fn of(self, s: f64, d: f64) -> [f64; 4] {
        match self {
            Noise::Gaussian { std } => {
                let r = (s - d) / std;
                [r * r / 2.0, r / std, 1.0 / std, s / std]
            }
            Noise::Poisson => [s - d * s.ln(), 1.0 - d / s, 1.0 / s.sqrt(), 2.0 * s.sqrt()],
            Noise::Student { std, dof } => {
                let r = (s - d) / std;
                let root = ((dof + 1.0) / (dof + 3.0)).sqrt() / std;
                let energy = (dof + 1.0) / 2.0 * (r * r / dof).ln_1p();
                [energy, (dof + 1.0) * r / (dof + r * r) / std, root, root * s]
            }
        }
    }
}

type Forward = dyn Fn(&[Complex64]) -> Vec<Complex64> + Sync;

/// Data, their noise, and a function of the latent values.
pub struct Problem {
    pub noise: Noise,
    pub data: Vec<f64>,
    pub latent: usize,
    pub forward: Box<Forward>,
}

impl Problem {
    pub fn value(&self, x: &[f64]) -> Vec<f64> {
        let x: Vec<Complex64> = x.iter().map(|&x| x.into()).collect();
        (self.forward)(&x).iter().map(|y| y.re).collect()
    }

    fn noises(&self, x: &[f64]) -> impl Iterator<Item = [f64; 4]> {
        self.value(x).into_iter().zip(&self.data).map(|(s, &d)| self.noise.of(s, d))
    }

    /// Columns of the Jacobian, times the root of the metric.
    fn columns(&self, x: &[f64], roots: &[f64]) -> Vec<Vec<f64>> {
        const STEP: f64 = 1e-60;
        let mut at: Vec<Complex64> = x.iter().map(|&x| x.into()).collect();
        (0..x.len())
            .map(|i| {
                at[i].im = STEP;
                let column = (self.forward)(&at).iter().zip(roots).map(|(y, root)| root * y.im / STEP).collect();
                at[i].im = 0.0;
                column
            })
            .collect()
    }
}

pub fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

impl LogLikelihood<Host> for Problem {
    fn name(&self) -> String {
        format!("{:?}", self.noise)
    }

    fn identity(&self, _: &mut Host) -> Result<Identity, InferenceError> {
        let [mut data, mut density, mut model] = [Fingerprint::new(); 3];
        data.numbers(&self.data);
        density.text(&format!("{:?}", self.noise));
        // The function is known by its value at one place.
        model.numbers(&self.value(&vec![0.5; self.latent]));
        Ok(Identity { density: density.value(), data: data.value(), model: model.value(), ..Identity::default() })
    }

    fn data(&self, _: &mut Host) -> Result<Vec<f64>, InferenceError> {
        Ok(vec![0.0; self.data.len()])
    }

    fn energy(&self, _: &mut Host, x: &Vec<f64>) -> Result<f64, InferenceError> {
        let value: f64 = self.noises(x).map(|noise| noise[0]).sum();
        if value.is_finite() { Ok(value) } else { Err(InferenceError::NotFinite { what: "energy".into(), value }) }
    }

    fn at<'a>(&'a self, _: &mut Host, x: &Vec<f64>) -> Result<Box<dyn LogLikelihoodAt<Host> + 'a>, InferenceError> {
        let noises: Vec<[f64; 4]> = self.noises(x).collect();
        let roots: Vec<f64> = noises.iter().map(|noise| noise[2]).collect();
        let slopes = noises.iter().map(|noise| noise[1] / noise[2]).collect();
        let energy = noises.iter().map(|noise| noise[0]).sum();
        let coordinates = noises.iter().map(|noise| noise[3]).collect();
        Ok(Box::new(At { problem: self, energy, slopes, coordinates, columns: self.columns(x, &roots) }))
    }

    fn normalized_residual(&self, _: &mut Host, x: &Vec<f64>) -> Result<Option<(Vec<f64>, u64)>, InferenceError> {
        let one = |(s, d): (f64, &f64)| match self.noise {
            Noise::Poisson => (d - s) / s.sqrt(),
            Noise::Gaussian { std } | Noise::Student { std, .. } => (d - s) / std,
        };
        let residual = self.value(x).into_iter().zip(&self.data).map(one).collect();
        Ok(Some((residual, self.degrees_of_freedom())))
    }

    fn degrees_of_freedom(&self) -> u64 {
        self.data.len() as u64
    }
}

/// A problem at a place: slopes of the energy in the coordinates of the metric, and the columns of
/// the right square root.
struct At<'a> {
    problem: &'a Problem,
    energy: f64,
    slopes: Vec<f64>,
    coordinates: Vec<f64>,
    columns: Vec<Vec<f64>>,
}

impl LogLikelihoodAt<Host> for At<'_> {
    fn energy(&self, _: &mut Host) -> Result<f64, InferenceError> {
        let value = self.energy;
        if value.is_finite() { Ok(value) } else { Err(InferenceError::NotFinite { what: "energy".into(), value }) }
    }

    fn gradient(&self, space: &mut Host, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        self.left_sqrt(space, &self.slopes, out)
    }

    fn metric(&self, space: &mut Host, v: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        let mut right = Vec::new();
        self.right_sqrt(space, v, &mut right)?;
        self.left_sqrt(space, &right, out)
    }

    fn left_sqrt(&self, _: &mut Host, eta: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        *out = self.columns.iter().map(|column| dot(column, eta)).collect();
        Ok(())
    }

    fn coordinates(&self, _: &mut Host, x: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        *out = self.problem.noises(x).map(|noise| noise[3]).collect();
        Ok(())
    }

    fn coordinates_about(
        &self,
        _: &mut Host,
        _: &dyn LogLikelihoodAt<Host>,
        out: &mut Vec<f64>,
    ) -> Result<bool, InferenceError> {
        out.clone_from(&self.coordinates);
        Ok(true)
    }

    fn right_sqrt(&self, _: &mut Host, v: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        *out = vec![0.0; self.slopes.len()];
        for (column, v) in self.columns.iter().zip(v) {
            out.iter_mut().zip(column).for_each(|(out, column)| *out += column * v);
        }
        Ok(())
    }
}

/// Returns a matrix of rows.
pub fn linear(rows: Vec<Vec<f64>>) -> impl Fn(&[Complex64]) -> Vec<Complex64> {
    move |x| rows.iter().map(|row| row.iter().zip(x).map(|(a, x)| x * *a).sum()).collect()
}

/// A correlated field on a line of `n` cells, as the page says: latent values asperity,
/// flexibility, fluctuations, slope, spectrum, excitations, zero mode.
pub struct Line {
    pub n: usize,
    pub offset: f64,
    /// Mean and standard deviation of the zero mode, fluctuations, slope, flexibility and asperity.
    pub zero_mode: [f64; 2],
    pub fluctuations: [f64; 2],
    pub slope: [f64; 2],
    pub flexibility: [f64; 2],
    pub asperity: [f64; 2],
}

fn log_normal([mean, std]: [f64; 2], xi: Complex64) -> Complex64 {
    let variance = (std / mean).powi(2).ln_1p();
    (xi * variance.sqrt() + mean.ln() - variance / 2.0).exp()
}

impl Line {
    /// Amplitudes by mode.
    fn amplitudes(&self, x: &[Complex64]) -> Vec<Complex64> {
        let m = self.n / 2;
        let l: Vec<f64> = (0..=m).map(|k| if k == 0 { 0.0 } else { (k as f64).ln() }).collect();
        let (asperity, flexibility) = (log_normal(self.asperity, x[0]), log_normal(self.flexibility, x[1]));
        let slope = x[3] * self.slope[1] + self.slope[0];
        let (mut v, mut y) = (Complex64::default(), Complex64::default());
        let mut walk = vec![Complex64::default(); m + 1];
        for j in 1..m {
            let dt = l[j + 1] - l[j];
            let [xi0, xi1] = [x[4 + 2 * (j - 1)], x[5 + 2 * (j - 1)]];
            let rise = flexibility * dt.sqrt() * xi1;
            y += flexibility * dt.sqrt() * xi0 * (asperity + dt * dt / 12.0).sqrt() + rise * (dt / 2.0) + v * dt;
            v += rise;
            walk[j + 1] = y;
        }
        let power = |j: usize| (slope * l[j] + walk[j] - walk[m] * (l[j] / l[m])).exp();
        let count = |j: usize| if 2 * j == self.n { 1.0 } else { 2.0 };
        let all: Complex64 = (1..=m).map(|j| power(j) * count(j)).sum();
        let fluctuations = log_normal(self.fluctuations, x[2]);
        let zero = log_normal(self.zero_mode, x[x.len() - 1]);
        (0..=m).map(|j| if j == 0 { zero } else { fluctuations * (power(j) / all).sqrt() }).collect()
    }

    pub fn field(&self, x: &[Complex64]) -> Vec<Complex64> {
        let (n, amplitudes) = (self.n, self.amplitudes(x));
        let xi = &x[4 + 2 * (n / 2 - 1)..][..n];
        let cell = |i: usize| {
            let mode = |k: usize| {
                let turn = 2.0 * std::f64::consts::PI * (i * k % n) as f64 / n as f64;
                amplitudes[k.min(n - k)] * xi[k] * (turn.cos() - turn.sin())
            };
            (0..n).map(mode).sum::<Complex64>() + self.offset
        };
        (0..n).map(cell).collect()
    }
}
