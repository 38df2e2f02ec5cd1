//! The cosmology of a run and its linear power, from options and files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use meshloom::Error;
use meshloom::cosmology::{Amplitude, Cosmology, CosmologyError, LinearPower, Parameters, PowerTable, TransferKind};
use meshloom::io::{printable_path, read_text};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config_file;
use crate::failure::Failure;

#[derive(Args, Deserialize, Serialize, Clone, Debug)]
#[serde(default)]
pub struct UniverseOptions {
    /// planck18, planck18-primordial, simple, or a TOML file with A_s (or sigma8), n_s, Omega_m,
    /// Omega_b, h and, where they differ from a cosmological constant without radiation, w0, wa,
    /// N_eff
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "planck18")]
    pub cosmology: String,
    /// Linear power today from a table as CAMB or CLASS write it: k in h/Mpc and P in (Mpc/h)^3
    #[arg(long, value_name = "FILE")]
    pub power_table: Option<PathBuf>,
    /// Strength of the linear power today, also of a table's [default: the cosmology's or the
    /// table's]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub sigma8: Option<f64>,
    /// Dark energy's ratio of pressure to density today [default: the cosmology's, -1]
    #[arg(long, value_name = "W", allow_negative_numbers = true)]
    pub w0: Option<f64>,
    /// Its change: w(a) = w0 + wa (1 - a) [default: the cosmology's, 0]
    #[arg(long, value_name = "W", allow_negative_numbers = true)]
    pub wa: Option<f64>,
}

impl Default for UniverseOptions {
    fn default() -> Self {
        config_file::defaults()
    }
}

/// A cosmology and its linear power.
pub struct Universe {
    /// Name given by `--cosmology`.
    pub name: String,
    pub cosmology: Cosmology,
    /// The power today, where it is from a table.
    pub table: Option<Arc<PowerTable>>,
    pub sigma8: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(non_snake_case, reason = "the field's own symbols")]
struct CosmologyFile {
    A_s: Option<f64>,
    sigma8: Option<f64>,
    n_s: f64,
    Omega_m: f64,
    Omega_b: f64,
    h: f64,
    w0: Option<f64>,
    wa: Option<f64>,
    N_eff: Option<f64>,
}

/// Bytes of the longest table that is read.
const MAX_BYTES: u64 = 1 << 24;

impl Universe {
    /// Creates the universe of `--cosmology`, changed by `--sigma8`, `--w0`, `--wa` and
    /// `--power-table`.
    ///
    /// # Errors
    /// [`Failure::Usage`] for values out of range, [`Failure::Failed`] for bad files.
    pub fn new(options: &UniverseOptions) -> Result<Self, Failure> {
        let name = options.cosmology.clone();
        let mut parameters = named(&name)?;
        if let Some(sigma8) = options.sigma8 {
            parameters.amplitude = Amplitude::Sigma8(sigma8);
        }
        parameters.w0 = options.w0.unwrap_or(parameters.w0);
        parameters.wa = options.wa.unwrap_or(parameters.wa);
        let cosmology = Cosmology::new(parameters).map_err(|error| Failure::Usage(format!("{name}: {error}")))?;
        let refused = |error: CosmologyError| Failure::from(Error::from(error));
        let power = LinearPower::new(cosmology, TransferKind::Full).map_err(refused)?;
        let Some(path) = &options.power_table else {
            return Ok(Universe { name, cosmology, table: None, sigma8: power.sigma8() });
        };
        let failed = |error: CosmologyError| Failure::Failed(format!("{}: {error}", printable_path(path)));
        let table = PowerTable::parse(&read_text(path, MAX_BYTES)?).map_err(failed)?;
        let today = power.growth().at(1.0).map_err(refused)?.d1.powi(2);
        table.check(|k| power.unit(k) * today, options.sigma8.is_none()).map_err(failed)?;
        let found = LinearPower::tabulated(cosmology, table.clone()).map_err(failed)?.sigma8();
        let sigma8 = options.sigma8.unwrap_or(found);
        let table = if sigma8 == found { table } else { table.scaled((sigma8 / found).powi(2)) };
        Ok(Universe { name, cosmology, table: Some(Arc::new(table)), sigma8 })
    }

    /// Returns the linear power.
    ///
    /// # Errors
    /// [`CosmologyError`] of the transfer function.
    pub fn power(&self) -> Result<LinearPower, CosmologyError> {
        match &self.table {
            Some(table) => LinearPower::tabulated(self.cosmology, PowerTable::clone(table)),
            None => LinearPower::new(self.cosmology, TransferKind::Full),
        }
    }

    /// Returns what it is, by contents.
    pub fn object(&self) -> Value {
        let (c, [w0, wa]) = (&self.cosmology, self.cosmology.dark_energy());
        json!({
            "A_s": c.primordial_amplitude(), "sigma8": self.sigma8, "n_s": c.n_s(), "Omega_m": c.omega_m(), "Omega_b": c.omega_b(),
            "Omega_r": c.omega_r(), "h": c.h(), "T_cmb": c.t_cmb(), "w0": w0, "wa": wa,
            "power_table_fingerprint": self.table.as_ref().map(|table| format!("{:016x}", table.fingerprint())),
        })
    }
}

/// Returns the parameters of a named cosmology, or those of a TOML file.
fn named(name: &str) -> Result<Parameters, Failure> {
    match name {
        "planck18" => return Ok(Cosmology::planck18().parameters()),
        "planck18-primordial" => return Ok(Cosmology::planck18_primordial().parameters()),
        "simple" => return Ok(Cosmology::simple().parameters()),
        _ => {}
    }
    let path = Path::new(name);
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Err(Failure::Usage(format!(
            "--cosmology is `{name}`; it must be planck18, planck18-primordial, simple, or a file that ends in .toml"
        )));
    }
    let file: CosmologyFile = config_file::parse(path, &config_file::read(path)?)?;
    let amplitude = match (file.A_s, file.sigma8) {
        (Some(a), None) => Amplitude::Primordial(a),
        (None, Some(s)) => Amplitude::Sigma8(s),
        _ => return Err(Failure::Failed(format!("{name}: give either A_s or sigma8"))),
    };
    Ok(Parameters {
        amplitude,
        n_s: file.n_s,
        omega_m: file.Omega_m,
        omega_b: file.Omega_b,
        h: file.h,
        w0: file.w0.unwrap_or(-1.0),
        wa: file.wa.unwrap_or(0.0),
        radiation: file.N_eff,
        ..Parameters::default()
    })
}
