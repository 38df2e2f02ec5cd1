//! How a universe evolves from its start to its end: options that each command with a particle-mesh run has, and their checks.

use clap::Args;
use meshloom::cosmology::{LptOrder, Scheme};
use meshloom::mesh::Window;
use meshloom::pm::Config;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::universe::Universe;

#[derive(Args, Deserialize, Serialize, Clone, Debug, Default)]
pub struct EvolutionOptions {
    /// Order of the Lagrangian start: 1 or 2 [default: 2]
    #[arg(long, value_name = "1|2")]
    pub lpt: Option<u8>,
    /// Scale factor of the start [default: 0.0625]
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    pub a_start: Option<f64>,
    /// Scale factor of the end [default: 1]
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    pub a_end: Option<f64>,
    /// Steps, linear in the scale factor [default: 10]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub steps: Option<i64>,
    /// How particles are moved [default: bullfrog]
    #[arg(long, value_name = "bullfrog|fastpm")]
    pub scheme: Option<String>,
    /// Window that particles are painted with; tsc for large boxes and early starts, where particles move by less than 0.15 cells before the first step and
    /// cic makes structure grow too fast [default: cic]
    #[arg(long, value_name = "cic|tsc")]
    pub window: Option<String>,
}

impl EvolutionOptions {
    /// Of these options, and where there is none of the `other` ones.
    pub fn or(self, other: Self) -> Self {
        EvolutionOptions {
            lpt: self.lpt.or(other.lpt),
            a_start: self.a_start.or(other.a_start),
            a_end: self.a_end.or(other.a_end),
            steps: self.steps.or(other.steps),
            scheme: self.scheme.or(other.scheme),
            window: self.window.or(other.window),
        }
    }

    /// What holds where nothing is said.
    pub fn defaults() -> Self {
        EvolutionOptions {
            lpt: Some(2),
            a_start: Some(0.0625),
            a_end: Some(1.0),
            steps: Some(10),
            scheme: Some("bullfrog".into()),
            window: Some("cic".into()),
        }
    }
}

/// The evolution of a universe, checked as far as that needs no library.
pub struct Evolution {
    pub lpt: u8,
    pub a_start: f64,
    pub a_end: f64,
    pub steps: usize,
    pub scheme: String,
    pub window: Window,
}

fn usage(message: String) -> Failure {
    Failure::Usage(message)
}

/// A count above 0. The command line takes any integer, so that one message covers all wrong ones.
///
/// # Errors
/// [`Failure::Usage`].
pub fn count(what: &str, value: Option<i64>) -> Result<u64, Failure> {
    match value.unwrap_or_default() {
        value if value > 0 => Ok(value as u64),
        value => Err(usage(format!("--{what} is {value}; it must be a whole number above 0"))),
    }
}

impl Evolution {
    /// Checks options that have all values.
    ///
    /// # Errors
    /// [`Failure::Usage`] for values out of range.
    pub fn new(options: EvolutionOptions) -> Result<Self, Failure> {
        let lpt = options.lpt.unwrap_or_default();
        if !(1..=2).contains(&lpt) {
            return Err(usage(format!("--lpt is {lpt}; it must be 1 or 2")));
        }
        let scheme = options.scheme.unwrap_or_default();
        if !["fastpm", "bullfrog"].contains(&scheme.as_str()) {
            return Err(usage(format!("--scheme is `{scheme}`; it must be fastpm or bullfrog")));
        }
        let window = match options.window.unwrap_or_default().as_str() {
            "cic" => Window::Cic,
            "tsc" => Window::Tsc,
            other => return Err(usage(format!("--window is `{other}`; it must be cic or tsc"))),
        };
        Ok(Evolution {
            lpt,
            a_start: options.a_start.unwrap_or_default(),
            a_end: options.a_end.unwrap_or_default(),
            steps: count("steps", options.steps)? as usize,
            scheme,
            window,
        })
    }

    /// The library's configuration of this evolution of `universe`; what else it says are defaults.
    pub fn config(&self, universe: &Universe) -> Config {
        Config {
            cosmology: universe.cosmology,
            power_table: universe.table.clone(),
            lpt: if self.lpt == 1 { LptOrder::First } else { LptOrder::Second },
            a_start: self.a_start,
            a_end: self.a_end,
            steps: self.steps,
            scheme: if self.scheme == "fastpm" { Scheme::FastPm } else { Scheme::BullFrog },
            window: self.window,
            ..Config::default()
        }
    }

    /// Adds what it is to a description.
    pub fn describe(&self, object: &mut Value) {
        object["lpt"] = self.lpt.into();
        object["a_start"] = json!(self.a_start);
        object["a_end"] = json!(self.a_end);
        object["steps"] = self.steps.into();
        object["scheme"] = self.scheme.as_str().into();
        object["window"] = self.window.to_string().into();
    }
}
