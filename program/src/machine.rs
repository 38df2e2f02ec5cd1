//! The machine of forecasts, as an option.

use std::path::Path;

use clap::Args;
use meshloom::cluster::Machine;

use crate::checked::{one_of, usage};
use crate::config_file;
use crate::failure::Failure;

/// Option of forecasts.
#[derive(Args, Clone, Debug)]
pub struct MachineOption {
    /// Machine of forecasts and of the choice of a process grid: a name, or a file that `bench
    /// exchange --fit` writes [default: h100x4]
    #[arg(long, value_name = "NAME|FILE.toml")]
    machine: Option<String>,
}

impl MachineOption {
    /// Returns the machine of the option, if it is given.
    ///
    /// # Errors
    /// [`Failure::Usage`] for unknown names, [`Failure::Failed`] for files that cannot be read or
    /// have values out of range.
    pub fn given(&self) -> Result<Option<Machine>, Failure> {
        let Some(word) = &self.machine else { return Ok(None) };
        if let Some(machine) = Machine::named(word) {
            return Ok(Some(machine));
        }
        let path = Path::new(word);
        if path.extension().is_none() {
            let names = one_of(&Machine::NAMES);
            return Err(usage(format!("--machine `{word}`: expected {names}, or a file as machine.toml")));
        }
        let machine: Machine = config_file::parse(path, &config_file::read(path)?)?;
        machine.check().map_err(|error| Failure::Failed(format!("{word}: {error}")))?;
        Ok(Some(machine))
    }

    /// Returns the machine of the option, or the default.
    ///
    /// # Errors
    /// Same as [`given`](Self::given).
    pub fn machine(&self) -> Result<Machine, Failure> {
        Ok(self.given()?.unwrap_or_default())
    }
}

/// Parses a speed.
pub fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0);
    number.ok_or_else(|| "write a number greater than 0".into())
}
