//! The options of an inference.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use meshloom::inference::{self, Schedule};
use meshloom::io::printable_path;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::chains::{ChainOptions, Chains};
use crate::checked::{Whole, count, sigma, usage};
use crate::common::{Common, GridParts};
use crate::config_file::{Configured, FileOptions, defaults};
use crate::failure::Failure;
use crate::run_clock::LimitOptions;
use crate::sample_groups::{GroupLimits, SampleGroups};

#[derive(Args)]
#[command(mut_arg("data", |data| {
    data.required_unless_present_any(["demo", "print_config", "config"]).conflicts_with("demo")
}))]
pub struct Arguments {
    /// Directory for everything that is written; without --resume, the files of an earlier fit
    /// there are replaced
    #[arg(
        short = 'o',
        long = "output",
        visible_alias = "out",
        value_name = "DIR",
        required_unless_present = "print_config"
    )]
    out: Option<PathBuf>,
    /// A hyper-parameter: offset_mean=2 (or data: where these are), slope=-3,0.5, asperity=none
    #[arg(long, value_name = "NAME=MEAN,STD", allow_hyphen_values = true)]
    set: Vec<String>,
    /// Make data first, counts of 64 x 64 cells, and infer from them
    #[arg(long)]
    pub demo: bool,
    /// Go on from the state in DIR
    #[arg(long)]
    pub resume: bool,
    #[command(flatten)]
    pub configured: Configured<RunOptions>,
    #[command(flatten)]
    pub common: Common,
}

/// The options that a file may have, too.
#[derive(Args, Deserialize, Serialize, Clone, Debug)]
#[serde(default)]
pub struct RunOptions {
    /// Data on a regular grid of 1, 2 or 3 axes
    #[arg(long, value_name = "DATA.npy")]
    pub data: Option<PathBuf>,
    /// Which distribution data have [default: poisson for integers, else gaussian]
    #[arg(long, value_name = "poisson|gaussian|student-t", hide_possible_values = true)]
    likelihood: Option<Kind>,
    /// Exposure of each count
    #[arg(long, value_name = "E.npy")]
    pub exposure: Option<PathBuf>,
    /// 1 (or true) where data count
    #[arg(long, value_name = "M.npy")]
    pub mask: Option<PathBuf>,
    /// Standard deviation of noise: a number, or a file with one for each datum
    #[arg(long, value_name = "SIGMA|S.npy")]
    pub noise: Option<Noise>,
    /// Degrees of freedom of Student's t distribution [default: 3]
    #[arg(long, value_name = "NU", allow_negative_numbers = true)]
    dof: Option<f64>,
    /// The signal is exp(s) or s, the correlated field [default: lognormal for poisson, else
    /// normal]
    #[arg(long, value_name = "lognormal|normal", hide_possible_values = true)]
    model: Option<SignalModel>,
    /// Side of a cell, for all axes or for each [default: 1 / cells of the longest axis]
    #[arg(long, value_delimiter = ',', value_name = "D|DX,DY,DZ", allow_negative_numbers = true)]
    #[serde(deserialize_with = "one_or_each")]
    pub distances: Option<Vec<f64>>,
    /// The field is periodic: its grid is that of the data
    #[arg(long, value_name = "true|false", num_args = 0..=1, default_missing_value = "true", conflicts_with = "pad", action = ArgAction::Set, default_value_t = false, hide_default_value = true, hide_possible_values = true)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    periodic: bool,
    /// Minimum ratio of the field's grid to the data along each axis [default: 1.5]
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pad: Option<f64>,
    /// Mirrored pairs of samples in every iteration; 0 for the most probable place alone [default:
    /// 2 at first, 12 at last]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    samples: Option<i64>,
    /// Iterations at most: samples about a position, then a better position; a fit that has settled
    /// ends before
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = Schedule::ITERATIONS.into())]
    iterations: i64,
    /// Straight samples, or curved ones from the third iteration on [default: curved ones, which
    /// keep their random numbers from the sixth on]
    #[arg(long, value_name = "mgvi|geovi", hide_possible_values = true)]
    mode: Option<Mode>,
    /// Metric of the steps of the position: averaged over samples, or at the position, whose
    /// products cost one application instead of one for each sample
    #[arg(
        long,
        value_name = "sample-average|at-position",
        hide_possible_values = true,
        default_value = "sample-average"
    )]
    curvature: Curvature,
    /// Steps of conjugate gradients for a sample at most
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 500)]
    sample_steps: i64,
    #[command(flatten)]
    #[serde(flatten)]
    chains: ChainOptions,
    #[command(flatten)]
    #[serde(flatten)]
    pub limit: LimitOptions,
    /// Groups of ranks that samples are dealt to; auto: as many as ranks and samples allow,
    /// or groups of the ranks of --grid
    #[arg(long, value_name = "G|auto", default_value = "auto")]
    sample_groups: SampleGroups,
    /// Bytes of device memory that a rank may take; what samples cannot keep of it is computed
    /// again at each step [default: as many as keep all]
    #[arg(long, value_name = "BYTES")]
    memory: Option<Whole>,
    /// Seed of all random numbers
    #[arg(long, value_name = "SEED", default_value = "1")]
    pub seed: Whole,
    #[arg(skip = Offset::Word("data".into()))]
    offset_mean: Offset,
    #[arg(skip = Hyper::Pair([1.0, 0.5]))]
    offset_std: Hyper,
    #[arg(skip = Hyper::Pair([1.0, 0.5]))]
    fluctuations: Hyper,
    #[arg(skip = Hyper::Pair([-3.0, 0.5]))]
    slope: Hyper,
    #[arg(skip = Hyper::Pair([1.0, 0.5]))]
    flexibility: Hyper,
    #[arg(skip = Hyper::Word("none".into()))]
    asperity: Hyper,
}

impl Default for RunOptions {
    fn default() -> Self {
        defaults()
    }
}

impl FileOptions for RunOptions {
    /// The hyper-parameters, which the command line has in `--set`.
    const KEYS: &'static [&'static str] =
        &["offset_mean", "offset_std", "fluctuations", "slope", "flexibility", "asperity"];
}

/// Sampling method: straight or curved.
#[derive(ValueEnum, Deserialize, Serialize, Clone, Copy, Debug, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    Mgvi,
    Geovi,
}

/// Metric of the steps of the position.
#[derive(ValueEnum, Deserialize, Serialize, Clone, Copy, Debug, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Curvature {
    SampleAverage,
    AtPosition,
}

/// The signal of the correlated field: its exponential, or itself.
#[derive(ValueEnum, Deserialize, Serialize, Clone, Copy, Debug, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum SignalModel {
    Lognormal,
    Normal,
}

/// Noise as it is written: a number, or else a file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Noise {
    Number(f64),
    File(PathBuf),
}

impl std::str::FromStr for Noise {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Noise::File(text.into()), Noise::Number))
    }
}

/// A hyper-parameter as it is written: mean and standard deviation, or `none`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Hyper {
    Pair([f64; 2]),
    Word(String),
}

/// The mean of the field as it is written: a number, or `data`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
enum Offset {
    Number(f64),
    Word(String),
}

/// Its degrees of freedom where none are given.
const DOF: f64 = 3.0;

/// Samples, iterations and steps at most.
const MOST: i64 = u32::MAX as i64;

/// One number for all axes, or a list of one for each.
fn one_or_each<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<f64>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "distances must be a number, or a list of one for each axis")]
    enum Written {
        One(f64),
        Each(Vec<f64>),
    }
    Ok(Some(match Written::deserialize(deserializer)? {
        Written::One(side) => vec![side],
        Written::Each(sides) => sides,
    }))
}

/// The distribution of data.
#[derive(ValueEnum, Deserialize, Serialize, Clone, Copy, Debug, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Poisson,
    Gaussian,
    StudentT,
}

/// Hyper-parameters: mean and standard deviation of each.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HyperParameters {
    /// `None` if the data determine the mean, until they have been read.
    pub offset_mean: Option<f64>,
    pub offset_std: [f64; 2],
    pub fluctuations: [f64; 2],
    pub slope: [f64; 2],
    pub flexibility: Option<[f64; 2]>,
    pub asperity: Option<[f64; 2]>,
}

/// The parameters of a run, checked as far as that needs neither data nor device.
pub struct RunParameters {
    pub out: PathBuf,
    pub options: RunOptions,
    pub resume: bool,
    /// Degrees of freedom of Student's t distribution.
    pub dof: f64,
    /// Length of the field's grid over that of the data; 1 for a periodic field.
    pub pad: f64,
    /// Mirrored pairs of samples; `None` follows the schedule.
    pub pairs: Option<usize>,
    /// Iterations at most.
    pub iterations: u32,
    /// `None` follows the schedule.
    pub geovi: Option<bool>,
    /// Steps of conjugate gradients for a sample.
    pub sample_steps: u64,
    /// Markov chains in place of samples.
    pub chains: Option<Chains>,
    /// Groups of samples; `None` for as many as ranks, samples and the process grid allow.
    groups: Option<usize>,
    pub hyper: HyperParameters,
}

impl Arguments {
    /// Returns the options of this call.
    ///
    /// # Errors
    /// Those of [`Configured::options`]; [`Failure::Usage`] for options that `--demo` excludes.
    pub fn options(&self) -> Result<RunOptions, Failure> {
        let mut options = self.configured.options()?;
        for words in &self.set {
            options.set(words)?;
        }
        if self.demo {
            if let Some(kind) = options.likelihood.filter(|kind| *kind != Kind::Poisson) {
                let name = json!(kind);
                let name = name.as_str().unwrap_or_default();
                return Err(usage(format!("--demo makes counts, whose likelihood is poisson, and not {name}")));
            }
            if let Some(data) = &options.data {
                let data = printable_path(data);
                return Err(usage(format!("--demo makes its own data: leave {data} of the file of --config out")));
            }
            // About seven counts per cell: no data exist yet to take the mean from.
            if let Offset::Word(_) = options.offset_mean {
                options.offset_mean = Offset::Number(2.0);
            }
            options.likelihood = Some(Kind::Poisson);
        }
        let is_student_t = options.likelihood == Some(Kind::StudentT);
        if is_student_t {
            options.dof.get_or_insert(DOF);
        } else if !self.configured.is_given("dof") {
            options.dof = None;
        }
        if !options.periodic {
            options.pad.get_or_insert(1.5);
        }
        Ok(options)
    }
}

impl RunOptions {
    /// Sets a hyper-parameter from `NAME=MEAN,STD`.
    fn set(&mut self, words: &str) -> Result<(), Failure> {
        let wrong = || {
            usage(format!(
                "--set {words}: write NAME=MEAN,STD, as slope=-3,0.5, with one of offset_mean (a number, or data), offset_std, fluctuations, slope, \
                 flexibility or asperity (also none)"
            ))
        };
        let (name, value) = words.split_once('=').ok_or_else(wrong)?;
        if name == "offset_mean" {
            self.offset_mean = match value.trim() {
                "data" => Offset::Word("data".into()),
                value => Offset::Number(value.parse().map_err(|_| wrong())?),
            };
            return Ok(());
        }
        let numbers: Option<Vec<f64>> = value.split(',').map(|number| number.trim().parse().ok()).collect();
        let hyper = match numbers.as_deref() {
            Some(&[mean, std]) => Hyper::Pair([mean, std]),
            _ if value == "none" => Hyper::Word("none".into()),
            _ => return Err(wrong()),
        };
        let place = match name {
            "offset_std" => &mut self.offset_std,
            "fluctuations" => &mut self.fluctuations,
            "slope" => &mut self.slope,
            "flexibility" => &mut self.flexibility,
            "asperity" => &mut self.asperity,
            _ => return Err(wrong()),
        };
        *place = hyper;
        Ok(())
    }

    /// Checks the hyper-parameters.
    fn hyper(&self) -> Result<HyperParameters, Failure> {
        let pair = |name: &str, given: &Hyper, log: bool| {
            let [mean, std] = match given {
                Hyper::Pair(pair) => *pair,
                Hyper::Word(word) => {
                    return Err(usage(format!("{name} is `{word}`; it must be a mean and a standard deviation")));
                }
            };
            if mean.is_finite() && std.is_finite() && std >= 0.0 && (mean > 0.0 || !log) {
                return Ok([mean, std]);
            }
            let mean_of = if log { "a positive mean" } else { "a mean" };
            Err(usage(format!("{name} is {mean},{std}; it must be {mean_of} and a standard deviation from 0 on")))
        };
        let optional = |name: &str, given: &Hyper| match given {
            Hyper::Word(word) if word == "none" => Ok(None),
            given => pair(name, given, true).map(Some),
        };
        let offset_mean = match &self.offset_mean {
            Offset::Number(number) if number.is_finite() => Some(*number),
            Offset::Number(number) => {
                return Err(usage(format!("offset_mean is {number}; it must be a finite number, or data")));
            }
            Offset::Word(word) if word != "data" => {
                return Err(usage(format!("offset_mean is `{word}`; it must be a number, or data")));
            }
            Offset::Word(_) => None,
        };
        Ok(HyperParameters {
            offset_mean,
            offset_std: pair("offset_std", &self.offset_std, true)?,
            fluctuations: pair("fluctuations", &self.fluctuations, true)?,
            slope: pair("slope", &self.slope, false)?,
            flexibility: optional("flexibility", &self.flexibility)?,
            asperity: optional("asperity", &self.asperity)?,
        })
    }

    fn padding(&self) -> Result<f64, Failure> {
        match (self.periodic, self.pad) {
            (true, Some(_)) => Err(usage("periodic and pad: a periodic field has no padding; give one of them")),
            (_, None) => Ok(1.0),
            (_, Some(pad)) if (1.0..=16.0).contains(&pad) => Ok(pad),
            (_, Some(pad)) => Err(usage(format!("--pad is {pad}; it must be a number from 1 to 16"))),
        }
    }
}

impl RunParameters {
    /// Checks options.
    ///
    /// # Errors
    /// [`Failure::Usage`] for values out of range, [`Failure::Failed`] for bad files.
    pub fn new(arguments: &Arguments, options: RunOptions) -> Result<Self, Failure> {
        let out = arguments.out.clone().unwrap_or_default();
        if out.as_os_str() == "-" {
            return Err(usage("--output is -, which is refused; name a directory"));
        }
        if options.data.is_none() && !arguments.demo && !arguments.configured.print_config {
            return Err(usage(
                "--data is missing: give the file of the data, here or in the file of --config; or --demo",
            ));
        }
        match options.dof {
            Some(_) if options.likelihood != Some(Kind::StudentT) => {
                return Err(usage("--dof is for --likelihood student-t"));
            }
            Some(dof) if !(dof.is_finite() && dof > 0.0) => {
                return Err(usage(format!("--dof is {dof}; it must be positive")));
            }
            _ => (),
        }
        if let Some(wrong) = options.distances.iter().flatten().find(|side| !(1e-30..=1e30).contains(*side)) {
            return Err(usage(format!("--distances has {wrong}; sides of cells are from 1e-30 to 1e30")));
        }
        if let Some(Noise::Number(number)) = options.noise {
            sigma(number)?;
        }
        let (pad, hyper) = (options.padding()?, options.hyper()?);
        let pairs = options.samples.map(|given| count("samples", given, 0..=MOST)).transpose()?;
        Ok(RunParameters {
            out,
            resume: arguments.resume,
            dof: options.dof.unwrap_or(DOF),
            pad,
            pairs: pairs.map(|pairs| pairs as usize),
            iterations: count("iterations", options.iterations, 1..=MOST)? as u32,
            geovi: options.mode.map(|mode| mode == Mode::Geovi),
            sample_steps: count("sample-steps", options.sample_steps, 1..=MOST)?,
            chains: options.chains.resolve(options.seed.0)?,
            groups: options.sample_groups.number()?,
            hyper,
            options,
        })
    }

    /// Returns the bytes of device memory; `None` for as many as it takes.
    pub fn memory(&self) -> Option<u64> {
        self.options.memory.map(|bytes| bytes.0)
    }

    /// Returns the most samples of an iteration, each sign one; without samples the position is
    /// one.
    pub fn most_samples(&self) -> usize {
        // No iteration of the schedule has more than its last one.
        (2 * self.last_pairs()).max(1)
    }

    /// Mirrored pairs of samples of the last iteration.
    pub fn last_pairs(&self) -> usize {
        self.pairs.unwrap_or_else(|| Schedule::pairs(self.iterations - 1))
    }

    /// Returns how many groups of `ranks` samples are dealt to, each with the process grid `grid`.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub fn sample_groups(&self, ranks: usize, grid: GridParts) -> Result<usize, Failure> {
        GroupLimits { ranks, samples: self.most_samples(), grid }.groups(self.groups, |_| true)
    }

    /// Returns the likelihood, and whether the model is log-normal, for data that are integers or
    /// not.
    ///
    /// # Errors
    /// [`Failure::Usage`] for options that do not go together.
    pub fn resolve(&self, integers: bool) -> Result<(Kind, bool), Failure> {
        let kind = self.options.likelihood.unwrap_or(if integers { Kind::Poisson } else { Kind::Gaussian });
        let lognormal = self.options.model.map_or(kind == Kind::Poisson, |model| model == SignalModel::Lognormal);
        match kind {
            Kind::Poisson if !lognormal => Err(usage("--model normal: rates of counts are positive; give lognormal")),
            Kind::Poisson if self.options.noise.is_some() => {
                Err(usage("--noise: counts bring their noise along; leave it out, or give --likelihood gaussian"))
            }
            Kind::Gaussian | Kind::StudentT if self.options.noise.is_none() => Err(usage(
                "--noise is missing: give the standard deviation of the data's noise, or --likelihood poisson for counts",
            )),
            Kind::Gaussian | Kind::StudentT if self.options.exposure.is_some() => {
                Err(usage("--exposure is for --likelihood poisson"))
            }
            _ => Ok((kind, lognormal)),
        }
    }

    /// Returns all that decides the result.
    pub fn object(&self, (kind, lognormal): (Kind, bool), hyper: &HyperParameters) -> Value {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
        let mut object = self.problem((kind, lognormal), hyper);
        object["data"] = path(&self.options.data).into();
        object["exposure"] = path(&self.options.exposure).into();
        object["mask"] = path(&self.options.mask).into();
        object["noise"] = json!(self.options.noise);
        object["samples"] = self.pairs.into();
        object["iterations"] = self.iterations.into();
        object["time_limit"] = json!(self.options.limit.time_limit);
        let sampling = self.sampling();
        for name in ["sample_steps", "mode", "curvature"] {
            object[name] = sampling[name].clone();
        }
        object
    }

    /// Returns the options of iterations beside their numbers.
    pub fn sampling(&self) -> Value {
        let mode = self.geovi.map_or("schedule", |bent| if bent { "geovi" } else { "mgvi" });
        json!({ "sample_steps": self.sample_steps, "mode": mode, "curvature": self.options.curvature })
    }

    /// Returns the metric of the steps of the position.
    pub fn curvature(&self) -> inference::Curvature {
        match self.options.curvature {
            Curvature::SampleAverage => inference::Curvature::SampleAverage,
            Curvature::AtPosition => inference::Curvature::AtPosition,
        }
    }

    /// Returns the identity of the problem, without the contents of files; states of other problems
    /// cannot be resumed.
    pub fn problem(&self, (kind, lognormal): (Kind, bool), hyper: &HyperParameters) -> Value {
        let sigma = if let Some(Noise::Number(sigma)) = &self.options.noise { Some(sigma) } else { None };
        json!({
            "likelihood": kind,
            "noise": sigma, "dof": self.dof, "model": if lognormal { "lognormal" } else { "normal" }, "distances": self.options.distances,
            "pad": self.pad, "seed": self.options.seed.0, "hyper_parameters": hyper,
        })
    }
}
