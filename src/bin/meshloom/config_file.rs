//! Short TOML files that a person writes: configurations of runs, cosmologies, limits of devices.

use std::path::Path;

use meshloom::io::{printable_path, read_text};
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// Bytes of the longest file that is read.
pub const MAX_BYTES: u64 = 1 << 16;

/// The text of a file.
///
/// # Errors
/// [`Failure::Failed`] for files that cannot be read, are too long or no text.
pub fn read(path: &Path) -> Result<String, Failure> {
    read_text(path, MAX_BYTES).map_err(|error| Failure::Failed(error.to_string()))
}

/// The values in the `text` of the file at `path`.
///
/// # Errors
/// [`Failure::Failed`] for text that is not TOML, and keys that are unknown or missing. (A value out of its range is wrong
/// usage, as on the command line, and the caller's to find.)
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Failure> {
    let failed = |error: toml::de::Error| format!("{}: {}", printable_path(path), error.to_string().trim_end());
    toml::from_str(text).map_err(|error| Failure::Failed(failed(error)))
}
