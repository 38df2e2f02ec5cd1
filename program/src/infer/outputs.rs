//! The files of an inference.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use meshloom::Rank;
use meshloom::comm::Communicator;
use meshloom::inference::{IterationReport, Prior, SampleGroups, Samples};
use meshloom::io::collective::seal_npy;
use meshloom::io::{Column, Sealed, csv_text, seal_whole};
use meshloom::operators::{Leaf, Space, Vector};
use meshloom::{Error, inference::InferenceError};
use serde_json::Value;

use super::demo;
use super::parameters::{HyperParameters, Kind, Noise, RunOptions, RunParameters};
use super::picture::{Lines, Slice};
use super::problem::Problem;
use crate::checked_files::is_same_file;
use crate::described;

/// The names of all output files, without the state.
pub const FILES: [&str; 8] = [
    "mean.npy",
    "std.npy",
    "samples.npy",
    "power_spectrum.csv",
    "parameters.csv",
    "iterations.csv",
    "picture.png",
    described::DESCRIPTION,
];

/// Source of outputs, on one rank.
pub struct Outputs<'a> {
    /// All ranks of all groups.
    pub all: &'a Communicator,
    pub groups: &'a SampleGroups,
    pub problem: &'a Problem,
    pub samples: &'a Samples<Rank>,
    pub parameters: &'a RunParameters,
    /// The distribution of the data, and whether the signal is log-normal.
    pub kind: Kind,
    pub lognormal: bool,
}

impl Outputs<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.parameters.out.join(name)
    }

    /// Returns `true` if this inference reads a file.
    fn is_input(&self, path: &Path) -> bool {
        let RunOptions { data, exposure, mask, noise, .. } = &self.parameters.options;
        let noise = if let Some(Noise::File(path)) = noise { Some(path) } else { None };
        [data, exposure, mask].into_iter().flatten().chain(noise).any(|input| is_same_file(input, path))
    }

    fn lines(&self, rank: &mut Rank, field: &Vector) -> Result<Lines, Error> {
        let values = field.get(&mut rank.recorder, "signal")?;
        let lines = self.problem.grids.lines(self.problem.mesh.own());
        let line = |(own, elements): (usize, std::ops::Range<u64>)| {
            let len = (elements.end - elements.start) as usize;
            (elements.start, values[own..own + len].iter().map(|&value| value as f32).collect())
        };
        Ok(lines.into_iter().map(line).collect())
    }

    /// Returns a file of the shape of the data, written by the first group.
    fn seal_field(&self, name: &str, lines: &Lines) -> Result<Sealed, Error> {
        let is_first = self.groups.index() == 0;
        seal_npy::<f32, Error>(self.all, &self.path(name), &self.problem.grids.shape, |writer| {
            for (first, line) in lines.iter().filter(|_| is_first) {
                writer.write(*first, line)?;
            }
            Ok(())
        })
    }

    /// All files but the description, none of which has its final name yet. Collective.
    pub fn write(&self, rank: &mut Rank, data: &Path, history: &[IterationReport]) -> Result<Vec<Sealed>, Error> {
        let mut files = self.signal(rank, data)?;
        files.extend(self.spectrum(rank)?);
        files.extend(self.parameters(rank)?);
        files.extend(self.iterations(history)?);
        Ok(files)
    }

    /// Gives all files their names, and the description last. Of what an older inference has left,
    /// what this one may not write is removed before; in a directory without its description
    /// nothing is. Collective.
    pub fn publish(&self, report: &Value, files: Vec<Sealed>) -> Result<(), Error> {
        let path = self.path(described::DESCRIPTION);
        described::publish(self.all, &path, report, files, |unfinished| {
            let older = described::read(&path).ok().flatten();
            if unfinished || older.as_ref().is_some_and(has_samples) {
                ["std.npy", "samples.npy"].iter().try_for_each(|name| described::remove(&self.path(name)))?;
            }
            if older.as_ref().is_some_and(is_demo) && self.parameters.options.data.is_some() {
                let left = demo::FILES.map(|name| self.path(name));
                left.iter().filter(|path| !self.is_input(path)).try_for_each(|path| described::remove(path))?;
            }
            described::remove(&path)
        })
    }

    /// Mean and standard deviation of the signal, all samples, and a picture. Collective.
    fn signal(&self, rank: &mut Rank, data: &Path) -> Result<Vec<Sealed>, Error> {
        let signal = &self.problem.signal;
        let like = Vector::new(&rank.gpu, signal.target())?;
        let mut value = |rank: &mut Rank, x: &Vector| Ok(signal.value(rank, x)?);
        let (mean, std) = self.samples.mean_and_std(rank, self.groups, &like, &mut value)?;
        let (mean, std) = (self.lines(rank, &mean)?, self.lines(rank, &std)?);
        let mut files = vec![self.seal_field("mean.npy", &mean)?];
        if self.samples.count() > 0 {
            files.push(self.seal_field("std.npy", &std)?);
            files.push(self.seal_samples(rank)?);
        }
        let std = (self.samples.count() > 0).then_some(&std);
        let RunOptions { mask, exposure, .. } = &self.parameters.options;
        let slice = Slice {
            grids: &self.problem.grids,
            data,
            mask: mask.as_deref(),
            exposure: exposure.as_deref(),
            lognormal: self.lognormal,
            counts: self.kind == Kind::Poisson,
        };
        let path = self.path("picture.png");
        let picture = slice.draw(&rank.comm, &mean, std, &path)?;
        if let Some(bytes) = picture.filter(|_| self.all.rank() == 0) {
            files.push(seal_whole(&path, &bytes)?);
        }
        Ok(files)
    }

    /// Returns the signal of all samples, pairs next to each other.
    fn seal_samples(&self, rank: &mut Rank) -> Result<Sealed, Error> {
        let shape = [&[self.samples.count() as u64][..], &self.problem.grids.shape].concat();
        let cells: u64 = self.problem.grids.shape.iter().product();
        let mut all = Vec::new();
        for sample in self.samples.own() {
            let place = self.samples.at(rank, sample)?;
            let value = self.problem.signal.value(rank, &place)?;
            all.push((sample as u64, self.lines(rank, &value)?));
        }
        seal_npy::<f32, Error>(self.all, &self.path("samples.npy"), &shape, |writer| {
            for (sample, lines) in &all {
                lines.iter().try_for_each(|(first, line)| writer.write(sample * cells + first, line))?;
            }
            Ok(())
        })
    }

    /// Mean and standard deviation of a few numbers of each sample; without samples the numbers,
    /// and NaN for what is not known. Collective.
    fn numbers(
        &self,
        rank: &mut Rank,
        count: usize,
        of: &dyn Fn(&mut Rank, &Vector) -> Result<Vec<f64>, InferenceError>,
    ) -> Result<[Vec<f64>; 2], Error> {
        let space = Space::of("numbers", Leaf::vector(count as u64))?;
        let like = Vector::new(&rank.gpu, &space)?;
        let mut value = |rank: &mut Rank, x: &Vector| {
            let numbers = of(rank, x)?;
            let mut field = Vector::new(&rank.gpu, &space)?;
            field.set(&mut rank.recorder, "numbers", &numbers)?;
            Ok(field)
        };
        let (mean, std) = self.samples.mean_and_std(rank, self.groups, &like, &mut value)?;
        let mut get = |field: &Vector| field.get(&mut rank.recorder, "numbers");
        let (mean, std) = (get(&mean)?, get(&std)?);
        Ok(if self.samples.count() > 0 { [mean, std] } else { [mean, vec![f64::NAN; count]] })
    }

    /// Returns the power spectrum of the correlated field by its logarithm: the mean of samples,
    /// and one standard deviation below and above, which hold 68 % of a log-normal distribution
    /// about its median.
    fn spectrum(&self, rank: &mut Rank) -> Result<Option<Sealed>, Error> {
        let field = &self.problem.field;
        let k: Vec<f64> = field.wavenumbers(0)[1..].to_vec();
        let volume: f64 = self.problem.mesh.size().iter().product();
        let logarithms = |rank: &mut Rank, x: &Vector| {
            let amplitude = field.amplitude(rank, x, 0)?;
            Ok(amplitude[1..].iter().map(|a| (a * a * volume).ln()).collect())
        };
        let [mean, std] = self.numbers(rank, k.len(), &logarithms)?;
        let of = |sigmas: f64| -> Vec<f64> { mean.iter().zip(&std).map(|(m, s)| (m + sigmas * s).exp()).collect() };
        let middle: Vec<f64> = mean.iter().map(|m| m.exp()).collect();
        let (low, high) = (of(-1.0), of(1.0));
        let columns = [("k", &k), ("mean", &middle), ("low", &low), ("high", &high)];
        let columns = columns.map(|(name, values)| (name, Column::F64(values)));
        let path = self.path("power_spectrum.csv");
        if self.all.rank() != 0 {
            return Ok(None);
        }
        Ok(Some(seal_whole(&path, csv_text(&path, &columns)?.as_bytes())?))
    }

    /// Hyper-parameters that are not fixed: what was known of them, and what is now.
    fn parameters(&self, rank: &mut Rank) -> Result<Option<Sealed>, Error> {
        let space = self.problem.likelihood.domain();
        let all = hyper_parameters(&self.parameters.hyper);
        let free: Vec<_> = all.into_iter().filter(|(_, leaf, ..)| space.position(leaf).is_some()).collect();
        let values = |rank: &mut Rank, x: &Vector| {
            let one = |(_, leaf, prior, _): &(&str, &str, Prior, [f64; 2])| {
                let xi = x.get(&mut rank.recorder, leaf)?;
                Ok(prior.value(xi[0]))
            };
            free.iter().map(one).collect()
        };
        let [mean, std] =
            if free.is_empty() { [Vec::new(), Vec::new()] } else { self.numbers(rank, free.len(), &values)? };
        if self.all.rank() != 0 {
            return Ok(None);
        }
        let mut text = String::from("name,mean,std,prior_mean,prior_std\n");
        for ((name, _, _, [prior_mean, prior_std]), (mean, std)) in free.iter().zip(mean.iter().zip(&std)) {
            let _ = writeln!(text, "{name},{mean:?},{std:?},{prior_mean:?},{prior_std:?}");
        }
        Ok(Some(seal_whole(self.path("parameters.csv"), text.as_bytes())?))
    }

    /// Returns a line for each iteration.
    fn iterations(&self, history: &[IterationReport]) -> Result<Option<Sealed>, Error> {
        if self.all.rank() != 0 {
            return Ok(None);
        }
        let whole = |of: &dyn Fn(&IterationReport) -> u64| history.iter().map(of).collect::<Vec<u64>>();
        let real = |of: &dyn Fn(&IterationReport) -> f64| history.iter().map(of).collect::<Vec<f64>>();
        let (iteration, cg, newton) = (whole(&|r| r.iteration.into()), whole(&|r| r.applications), whole(&|r| r.steps));
        let gave_up = whole(&|r| u64::from(r.stop.is_failure()));
        let (steps, unconverged) = (whole(&|r| r.sampling.steps), whole(&|r| r.sampling.unconverged));
        let (failed, limited) = (whole(&|r| r.sampling.failed), whole(&|r| r.sampling.limited));
        let error_ratio = real(&|r| r.sampling.error_ratio);
        let (energy, seconds) = (real(&|r| r.energy), real(&|r| r.seconds));
        let chi = real(&|r| r.chi_squared[0].unwrap_or(f64::NAN));
        let columns = [
            ("iteration", Column::U64(&iteration)),
            ("energy", Column::F64(&energy)),
            ("reduced_chi_squared", Column::F64(&chi)),
            ("cg_steps", Column::U64(&cg)),
            ("newton_steps", Column::U64(&newton)),
            ("seconds", Column::F64(&seconds)),
            ("sample_cg_steps", Column::U64(&steps)),
            ("unconverged_samples", Column::U64(&unconverged)),
            ("gave_up", Column::U64(&gave_up)),
            ("sample_error_ratio", Column::F64(&error_ratio)),
            ("failed_samples", Column::U64(&failed)),
            ("limited_samples", Column::U64(&limited)),
        ];
        let path = self.path("iterations.csv");
        Ok(Some(seal_whole(&path, csv_text(&path, &columns)?.as_bytes())?))
    }
}

/// Returns `true` if a description is of an inference with samples. Those of before do not name the
/// command.
fn has_samples(description: &Value) -> bool {
    let parameters = &description["parameters"];
    parameters["hyper_parameters"].is_object() && parameters["samples"].as_u64() > Some(0)
}

/// Returns `true` if a description is of an inference that has made its data.
fn is_demo(description: &Value) -> bool {
    let parameters = &description["parameters"];
    parameters["hyper_parameters"].is_object() && parameters.get("data").is_some_and(Value::is_null)
}

/// Names of hyper-parameters, their leaves, and what is known of them before.
fn hyper_parameters(hyper: &HyperParameters) -> Vec<(&'static str, &'static str, Prior, [f64; 2])> {
    let log = |name, leaf, [mean, std]: [f64; 2]| (name, leaf, Prior::LogNormal { mean, std }, [mean, std]);
    let [mean, std] = hyper.slope;
    let mut all = vec![
        log("offset_std", "zero_mode", hyper.offset_std),
        log("fluctuations", "fluctuations", hyper.fluctuations),
        ("slope", "slope", Prior::Normal { mean, std }, hyper.slope),
    ];
    all.extend(hyper.flexibility.map(|pair| log("flexibility", "flexibility", pair)));
    all.extend(hyper.asperity.map(|pair| log("asperity", "asperity", pair)));
    all
}
