//! Options of every command with a particle-mesh run: how a universe evolves from its start to its
//! end.

use clap::{Args, ValueEnum};
use meshloom::cosmology::{LptOrder, Scheme};
use meshloom::mesh::Window;
use meshloom::pm::Config;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::checked::{count, usage};
use crate::config_file::defaults;
use crate::failure::Failure;
use crate::universe::Universe;

#[derive(Args, Deserialize, Serialize, Clone, Debug)]
#[serde(default)]
pub struct Evolution {
    /// Order of the Lagrangian start: 1, 2 or 3
    #[arg(long, value_name = "1|2|3", default_value_t = 2)]
    pub lpt: u8,
    /// Scale factor of the start
    #[arg(long, value_name = "A", default_value_t = 0.0625, allow_negative_numbers = true)]
    pub a_start: f64,
    /// Scale factor of the end
    #[arg(long, value_name = "A", default_value_t = 1.0, allow_negative_numbers = true)]
    pub a_end: f64,
    /// Steps, linear in the scale factor
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true)]
    pub steps: i64,
    /// Time integration
    #[arg(long, value_name = "bullfrog|fastpm", default_value = "bullfrog", hide_possible_values = true)]
    pub scheme: SchemeName,
    /// Window that particles are painted with; tsc for large boxes and early starts, where
    /// particles move by less than 0.15 cells before the first step and cic makes structure grow
    /// too fast
    #[arg(long, value_name = "cic|tsc", default_value = "cic", hide_possible_values = true)]
    pub window: WindowName,
}

/// Names of schemes.
#[derive(ValueEnum, Deserialize, Serialize, Clone, Copy, Debug)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum SchemeName {
    FastPm,
    BullFrog,
}

/// Names of windows.
#[derive(ValueEnum, Deserialize, Serialize, Clone, Copy, Debug)]
#[serde(rename_all = "lowercase")]
pub enum WindowName {
    Cic,
    Tsc,
}

impl Default for Evolution {
    fn default() -> Self {
        defaults()
    }
}

impl Evolution {
    /// Checks what the library does not check.
    ///
    /// # Errors
    /// [`Failure::Usage`] for values out of range.
    pub fn check(&self) -> Result<(), Failure> {
        if LptOrder::from_number(self.lpt.into()).is_none() {
            return Err(usage(format!("--lpt is {}; it must be 1, 2 or 3", self.lpt)));
        }
        count("steps", self.steps, 1..=i64::MAX).map(drop)
    }

    /// Returns the library's configuration of this evolution of `universe`, with defaults for the
    /// rest.
    pub fn config(&self, universe: &Universe) -> Config {
        Config {
            cosmology: universe.cosmology,
            power_table: universe.table.clone(),
            lpt: LptOrder::from_number(self.lpt.into()).unwrap_or_default(),
            a_start: self.a_start,
            a_end: self.a_end,
            steps: self.steps as usize,
            scheme: match self.scheme {
                SchemeName::FastPm => Scheme::FastPm,
                SchemeName::BullFrog => Scheme::BullFrog,
            },
            window: match self.window {
                WindowName::Cic => Window::Cic,
                WindowName::Tsc => Window::Tsc,
            },
            ..Config::default()
        }
    }

    /// Adds these options to a description.
    pub fn describe(&self, object: &mut Value) {
        if let (Some(object), Value::Object(options)) = (object.as_object_mut(), json!(self)) {
            object.extend(options);
        }
    }
}
