//! What is to be inferred: from the command line, a TOML file and defaults, in this order of precedence.

use std::path::PathBuf;

use clap::Args;
use meshloom::inference::Schedule;
use meshloom::io::printable_path;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::checked::{count, sigma, usage, word};
use crate::common::{Common, GridParts};
use crate::config_file;
use crate::failure::Failure;
use crate::sample_groups::{SampleGroups, Shares};

#[derive(Args)]
pub struct Arguments {
    /// Directory for everything that is written
    #[arg(
        short = 'o',
        long = "output",
        visible_alias = "out",
        value_name = "DIR",
        required_unless_present = "print_config"
    )]
    out: Option<PathBuf>,
    /// Options from a file: their names with _ for -, and hyper-parameters
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Print the options of the run, defaults included, as a file for --config, and do nothing else
    #[arg(long)]
    pub print_config: bool,
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
    options: RunOptions,
    #[command(flatten)]
    pub common: Common,
}

/// The options that a file may have, too.
#[derive(Args, Deserialize, Serialize, Clone, Debug, Default)]
struct RunOptions {
    /// Data on a regular grid of 1, 2 or 3 axes
    #[arg(
        long,
        value_name = "DATA.npy",
        required_unless_present_any = ["demo", "print_config", "config"],
        conflicts_with = "demo"
    )]
    data: Option<PathBuf>,
    /// Which distribution data have [default: poisson for integers, else gaussian]
    #[arg(long, value_name = "poisson|gaussian|student-t")]
    likelihood: Option<String>,
    /// Exposure of each count
    #[arg(long, value_name = "E.npy")]
    exposure: Option<PathBuf>,
    /// 1 (or true) where data count
    #[arg(long, value_name = "M.npy")]
    mask: Option<PathBuf>,
    /// Standard deviation of noise: a number, or a file with one for each datum
    #[arg(long, value_name = "SIGMA|S.npy")]
    noise: Option<Noise>,
    /// Degrees of freedom of Student's t distribution [default: 3]
    #[arg(long, value_name = "NU", allow_negative_numbers = true)]
    dof: Option<f64>,
    /// The signal is exp(s) or s, the correlated field [default: lognormal for poisson, else normal]
    #[arg(long, value_name = "lognormal|normal")]
    model: Option<String>,
    /// Side of a cell, for all axes or for each [default: 1 / cells of the longest axis]
    #[arg(long, value_delimiter = ',', value_name = "D|DX,DY,DZ", allow_negative_numbers = true)]
    #[serde(default, deserialize_with = "one_or_each")]
    distances: Option<Vec<f64>>,
    /// The field is periodic: its grid is that of the data
    #[arg(long, value_name = "true|false", num_args = 0..=1, default_missing_value = "true", conflicts_with = "pad")]
    periodic: Option<bool>,
    /// How many times as long as the data the field's grid is at least [default: 1.5]
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pad: Option<f64>,
    /// Mirrored pairs of samples in every iteration; 0 for the most probable place alone [default: 2 at first, 12 at last]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    samples: Option<i64>,
    /// Iterations at most: samples about a position, then a better position; a fit that has settled ends before [default: 20]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    iterations: Option<i64>,
    /// Straight samples, or bent ones from the third iteration on [default: bent ones, which keep their random numbers from the sixth on]
    #[arg(long, value_name = "mgvi|geovi")]
    mode: Option<String>,
    /// Steps of conjugate gradients for a sample at most [default: 500]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    sample_steps: Option<i64>,
    /// Groups of ranks that samples are dealt to; auto: as many as ranks and samples allow, or as have the ranks of --grid [default: auto]
    #[arg(long, value_name = "G|auto")]
    sample_groups: Option<SampleGroups>,
    /// Bytes of device memory that a rank may take; what samples cannot keep of it is computed anew at each step [default: as many as keep all]
    #[arg(long, value_name = "BYTES")]
    memory: Option<u64>,
    /// Seed of all random numbers [default: 1]
    #[arg(long, value_name = "SEED")]
    #[serde(default, with = "crate::seed")]
    seed: Option<u64>,
    #[arg(skip)]
    offset_mean: Option<Offset>,
    #[arg(skip)]
    offset_std: Option<Hyper>,
    #[arg(skip)]
    fluctuations: Option<Hyper>,
    #[arg(skip)]
    slope: Option<Hyper>,
    #[arg(skip)]
    flexibility: Option<Hyper>,
    #[arg(skip)]
    asperity: Option<Hyper>,
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

impl Offset {
    /// That of the data.
    fn of_data() -> Self {
        Offset::Word("data".into())
    }
}

/// The keys of a file that are hyper-parameters, which the command line has in `--set`.
const HYPER_PARAMETERS: [&str; 6] = ["offset_mean", "offset_std", "fluctuations", "slope", "flexibility", "asperity"];

/// The likelihood that has degrees of freedom.
const STUDENT_T: &str = "student-t";

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

/// Which density data have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Poisson,
    Gaussian,
    StudentT,
}

/// Hyper-parameters: mean and standard deviation of each.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HyperParameters {
    /// None where the data are to say where they are, until they have.
    pub offset_mean: Option<f64>,
    pub offset_std: [f64; 2],
    pub fluctuations: [f64; 2],
    pub slope: [f64; 2],
    pub flexibility: Option<[f64; 2]>,
    pub asperity: Option<[f64; 2]>,
}

/// The parameters of a run, checked as far as that needs neither data nor device.
pub struct RunParameters {
    pub data: Option<PathBuf>,
    pub out: PathBuf,
    /// None: by the data's type.
    likelihood: Option<Kind>,
    lognormal: Option<bool>,
    pub exposure: Option<PathBuf>,
    pub mask: Option<PathBuf>,
    pub noise: Option<Noise>,
    /// Degrees of freedom, which Student's t distribution has.
    pub dof: f64,
    pub distances: Option<Vec<f64>>,
    /// Length of the field's grid over that of the data; 1 for a periodic field.
    pub pad: f64,
    /// `None` follows the schedule.
    pub pairs: Option<usize>,
    /// At most.
    pub iterations: u32,
    /// None: as the schedule has it.
    pub geovi: Option<bool>,
    /// Steps of conjugate gradients for a sample.
    pub sample_steps: u64,
    /// None: as many as ranks, samples and the process grid allow.
    groups: Option<usize>,
    /// Bytes of device memory; none: as many as it takes.
    pub memory: Option<u64>,
    pub seed: u64,
    pub resume: bool,
    /// As far as they are said.
    pub hyper: HyperParameters,
}

impl Arguments {
    /// The options of the file, with those of the command line in their place.
    fn merged(&self) -> Result<RunOptions, Failure> {
        let mut file: RunOptions = match &self.config {
            None => RunOptions::default(),
            Some(path) => config_file::options_and(&HYPER_PARAMETERS, path, &config_file::read(path)?)?,
        };
        let line = self.options.clone();
        // A command line that says one of the two takes the other's place in the file.
        if line.pad.is_some() || line.periodic.is_some() {
            (file.pad, file.periodic) = (None, None);
        }
        let likelihood = line.likelihood.or(file.likelihood);
        let mut merged = RunOptions {
            data: line.data.or(file.data),
            likelihood: likelihood.clone(),
            exposure: line.exposure.or(file.exposure),
            mask: line.mask.or(file.mask),
            noise: line.noise.or(file.noise),
            // Other likelihoods than Student's t leave that of a file aside.
            dof: line.dof.or(file.dof.filter(|_| likelihood.as_deref() == Some(STUDENT_T))),
            model: line.model.or(file.model),
            distances: line.distances.or(file.distances),
            periodic: line.periodic.or(file.periodic),
            pad: line.pad.or(file.pad),
            samples: line.samples.or(file.samples),
            iterations: line.iterations.or(file.iterations),
            mode: line.mode.or(file.mode),
            sample_steps: line.sample_steps.or(file.sample_steps),
            sample_groups: line.sample_groups.or(file.sample_groups),
            memory: line.memory.or(file.memory),
            seed: line.seed.or(file.seed),
            ..file
        };
        for words in &self.set {
            merged.set(words)?;
        }
        if self.demo {
            if let Some(word) = merged.likelihood.as_deref().filter(|word| *word != "poisson") {
                return Err(usage(format!("--demo makes counts, whose likelihood is poisson, and not {word}")));
            }
            if let Some(data) = &merged.data {
                let data = printable_path(data);
                return Err(usage(format!("--demo makes its own data: leave {data} of the file of --config out")));
            }
            // Some seven counts a cell, since there are no data yet that could say.
            let given = merged.offset_mean.filter(|offset| *offset != Offset::of_data());
            merged.offset_mean = given.or(Some(Offset::Number(2.0)));
            merged.likelihood = Some("poisson".into());
        }
        Ok(merged.with_defaults())
    }

    /// The text of a file for `--config`: all options that do not follow from the data.
    ///
    /// # Errors
    /// [`Failure::Usage`] for numbers and names that such a file cannot hold; those of the configuration.
    pub fn text(&self) -> Result<String, Failure> {
        let options = self.merged()?;
        let hyper = options.hyper()?;
        let pair = |pair| Some(Hyper::Pair(pair));
        let optional = |pair: Option<[f64; 2]>| Some(pair.map_or_else(|| Hyper::Word("none".into()), Hyper::Pair));
        let options = RunOptions {
            offset_mean: Some(hyper.offset_mean.map_or_else(Offset::of_data, Offset::Number)),
            offset_std: pair(hyper.offset_std),
            fluctuations: pair(hyper.fluctuations),
            slope: pair(hyper.slope),
            flexibility: optional(hyper.flexibility),
            asperity: optional(hyper.asperity),
            ..options
        };
        toml::to_string(&options).map_err(|error| usage(format!("these options make no file: {error}")))
    }
}

impl RunOptions {
    /// With what holds where nothing is said, whatever the data.
    fn with_defaults(self) -> Self {
        RunOptions {
            dof: self.dof.or((self.likelihood.as_deref() == Some(STUDENT_T)).then_some(DOF)),
            pad: self.pad.or((self.periodic != Some(true)).then_some(1.5)),
            iterations: self.iterations.or(Some(Schedule::ITERATIONS.into())),
            sample_steps: self.sample_steps.or(Some(500)),
            sample_groups: self.sample_groups.or(Some(SampleGroups::auto())),
            seed: self.seed.or(Some(1)),
            ..self
        }
    }

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
            self.offset_mean = Some(match value.trim() {
                "data" => Offset::of_data(),
                value => Offset::Number(value.parse().map_err(|_| wrong())?),
            });
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
        *place = Some(hyper);
        Ok(())
    }

    /// Hyper-parameters, with defaults that suit data of variance 1.
    fn hyper(&self) -> Result<HyperParameters, Failure> {
        let pair = |name: &str, given: &Option<Hyper>, default: [f64; 2], log: bool| {
            let [mean, std] = match given {
                None => default,
                Some(Hyper::Pair(pair)) => *pair,
                Some(Hyper::Word(word)) => {
                    return Err(usage(format!("{name} is `{word}`; it must be a mean and a standard deviation")));
                }
            };
            if mean.is_finite() && std.is_finite() && std >= 0.0 && (mean > 0.0 || !log) {
                return Ok([mean, std]);
            }
            let mean_of = if log { "a positive mean" } else { "a mean" };
            Err(usage(format!("{name} is {mean},{std}; it must be {mean_of} and a standard deviation from 0 on")))
        };
        let optional = |name: &str, given: &Option<Hyper>, default: Option<[f64; 2]>| match given {
            Some(Hyper::Word(word)) if word == "none" => Ok(None),
            None if default.is_none() => Ok(None),
            given => pair(name, given, default.unwrap_or_default(), true).map(Some),
        };
        let offset_mean = match &self.offset_mean {
            Some(Offset::Number(number)) if number.is_finite() => Some(*number),
            Some(Offset::Number(number)) => {
                return Err(usage(format!("offset_mean is {number}; it must be a finite number, or data")));
            }
            Some(Offset::Word(word)) if word != "data" => {
                return Err(usage(format!("offset_mean is `{word}`; it must be a number, or data")));
            }
            Some(Offset::Word(_)) | None => None,
        };
        Ok(HyperParameters {
            offset_mean,
            offset_std: pair("offset_std", &self.offset_std, [1.0, 0.5], true)?,
            fluctuations: pair("fluctuations", &self.fluctuations, [1.0, 0.5], true)?,
            slope: pair("slope", &self.slope, [-3.0, 0.5], false)?,
            flexibility: optional("flexibility", &self.flexibility, Some([1.0, 0.5]))?,
            asperity: optional("asperity", &self.asperity, None)?,
        })
    }

    fn padding(&self) -> Result<f64, Failure> {
        match (self.periodic, self.pad) {
            (Some(true), Some(_)) => Err(usage("periodic and pad: a periodic field has no padding; give one of them")),
            (_, None) => Ok(1.0),
            (_, Some(pad)) if (1.0..=16.0).contains(&pad) => Ok(pad),
            (_, Some(pad)) => Err(usage(format!("--pad is {pad}; it must be a number from 1 to 16"))),
        }
    }
}

impl RunParameters {
    /// Merges the command line, the configuration file and defaults, and checks the result.
    ///
    /// # Errors
    /// [`Failure::Usage`] for values out of range, [`Failure::Failed`] for bad files.
    pub fn gather(arguments: &Arguments) -> Result<Self, Failure> {
        let out = arguments.out.clone().unwrap_or_default();
        if out.as_os_str() == "-" {
            return Err(usage("--output is -, which is refused; name a directory"));
        }
        let options = arguments.merged()?;
        if options.data.is_none() && !arguments.demo && !arguments.print_config {
            return Err(usage(
                "--data is missing: give the file of the data, here or in the file of --config; or --demo",
            ));
        }
        let kinds = [("poisson", Kind::Poisson), ("gaussian", Kind::Gaussian), (STUDENT_T, Kind::StudentT)];
        let likelihood = options.likelihood.as_deref().map(|given| word("likelihood", given, &kinds)).transpose()?;
        let models = [("lognormal", true), ("normal", false)];
        let lognormal = options.model.as_deref().map(|given| word("model", given, &models)).transpose()?;
        let modes = [("mgvi", false), ("geovi", true)];
        match options.dof {
            Some(_) if likelihood != Some(Kind::StudentT) => return Err(usage("--dof is for --likelihood student-t")),
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
        Ok(RunParameters {
            data: options.data,
            out,
            likelihood,
            lognormal,
            dof: options.dof.unwrap_or(DOF),
            pad,
            pairs: options
                .samples
                .map(|given| count("samples", Some(given), 0..=MOST))
                .transpose()?
                .map(|pairs| pairs as usize),
            iterations: count("iterations", options.iterations, 1..=MOST)? as u32,
            geovi: options.mode.as_deref().map(|given| word("mode", given, &modes)).transpose()?,
            sample_steps: count("sample-steps", options.sample_steps, 1..=MOST)?,
            groups: options.sample_groups.as_ref().map_or(Ok(None), SampleGroups::number)?,
            memory: options.memory,
            seed: options.seed.unwrap_or_default(),
            resume: arguments.resume,
            hyper,
            exposure: options.exposure,
            mask: options.mask,
            noise: options.noise,
            distances: options.distances,
        })
    }

    /// The most samples of an iteration, each sign one; without samples the position is one.
    pub fn most_samples(&self) -> usize {
        // No iteration of the schedule has more than its last one.
        (2 * self.last_pairs()).max(1)
    }

    /// Mirrored pairs of samples of the last iteration.
    pub fn last_pairs(&self) -> usize {
        self.pairs.unwrap_or_else(|| Schedule::pairs(self.iterations - 1))
    }

    /// How many groups of `ranks` samples are dealt to, each with the process grid `grid`.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub fn sample_groups(&self, ranks: usize, grid: GridParts) -> Result<usize, Failure> {
        Shares { ranks, samples: self.most_samples(), grid }.groups(self.groups, |_| true)
    }

    /// The likelihood and whether the model is log-normal, for data that are integers or not.
    ///
    /// # Errors
    /// [`Failure::Usage`] for options that do not go together.
    pub fn resolve(&self, integers: bool) -> Result<(Kind, bool), Failure> {
        let kind = self.likelihood.unwrap_or(if integers { Kind::Poisson } else { Kind::Gaussian });
        let lognormal = self.lognormal.unwrap_or(kind == Kind::Poisson);
        match kind {
            Kind::Poisson if !lognormal => Err(usage("--model normal: rates of counts are positive; give lognormal")),
            Kind::Poisson if self.noise.is_some() => {
                Err(usage("--noise: counts bring their noise along; leave it out, or give --likelihood gaussian"))
            }
            Kind::Gaussian | Kind::StudentT if self.noise.is_none() => Err(usage(
                "--noise is missing: give the standard deviation of the data's noise, or --likelihood poisson for counts",
            )),
            Kind::Gaussian | Kind::StudentT if self.exposure.is_some() => {
                Err(usage("--exposure is for --likelihood poisson"))
            }
            _ => Ok((kind, lognormal)),
        }
    }

    /// All that decides the result.
    pub fn object(&self, (kind, lognormal): (Kind, bool), hyper: &HyperParameters) -> Value {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
        let mut object = self.problem((kind, lognormal), hyper);
        object["data"] = path(&self.data).into();
        object["exposure"] = path(&self.exposure).into();
        object["mask"] = path(&self.mask).into();
        object["noise"] = json!(self.noise);
        object["samples"] = self.pairs.into();
        object["iterations"] = self.iterations.into();
        let sampling = self.sampling();
        for name in ["sample_steps", "mode"] {
            object[name] = sampling[name].clone();
        }
        object
    }

    /// How samples are drawn.
    pub fn sampling(&self) -> Value {
        let mode = self.geovi.map_or("schedule", |bent| if bent { "geovi" } else { "mgvi" });
        json!({ "sample_steps": self.sample_steps, "mode": mode })
    }

    /// What says which problem it is, but for the contents of files: a state of another one is none to go on from.
    pub fn problem(&self, (kind, lognormal): (Kind, bool), hyper: &HyperParameters) -> Value {
        let sigma = if let Some(Noise::Number(sigma)) = &self.noise { Some(sigma) } else { None };
        json!({
            "likelihood": match kind { Kind::Poisson => "poisson", Kind::Gaussian => "gaussian", Kind::StudentT => STUDENT_T },
            "noise": sigma, "dof": self.dof, "model": if lognormal { "lognormal" } else { "normal" }, "distances": self.distances,
            "pad": self.pad, "seed": self.seed, "hyper_parameters": hyper,
        })
    }
}
