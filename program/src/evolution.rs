//! How a universe evolves from its start to its end: options that each command with a particle-mesh run has, and their checks.

use clap::Args;
use meshloom::cosmology::{LptOrder, Scheme};
use meshloom::mesh::Window;
use meshloom::pm::Config;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::checked::{count, usage, word};
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

/// The names of schemes.
const SCHEMES: [(&str, Scheme); 2] = [("fastpm", Scheme::FastPm), ("bullfrog", Scheme::BullFrog)];

/// The evolution of a universe, checked as far as that needs no library.
pub struct Evolution {
    pub lpt: u8,
    pub a_start: f64,
    pub a_end: f64,
    pub steps: usize,
    pub scheme: Scheme,
    pub window: Window,
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
        let scheme = word("scheme", &options.scheme.unwrap_or_default(), &SCHEMES)?;
        let windows = [("cic", Window::Cic), ("tsc", Window::Tsc)];
        let window = word("window", &options.window.unwrap_or_default(), &windows)?;
        Ok(Evolution {
            lpt,
            a_start: options.a_start.unwrap_or_default(),
            a_end: options.a_end.unwrap_or_default(),
            steps: count("steps", options.steps, 1..=i64::MAX)? as usize,
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
            scheme: self.scheme,
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
        object["scheme"] = SCHEMES.iter().find(|(_, scheme)| *scheme == self.scheme).map(|(name, _)| *name).into();
        object["window"] = self.window.to_string().into();
    }
}
