//! Short TOML files that a person writes: configurations of runs, cosmologies, limits of devices.

use std::path::Path;

use clap::{Args, Command};
use meshloom::io::{printable_path, read_text};
use serde::de::DeserializeOwned;
use toml::de::DeTable;

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

/// The options in the `text` of the file at `path`, whose keys are the names of options with _ for -.
///
/// Each key is read by itself first, so that what is wrong has a place: where options are a structure of structures, none is known else.
///
/// # Errors
/// As [`parse`].
pub fn options<T: Args + DeserializeOwned>(path: &Path, text: &str) -> Result<T, Failure> {
    options_and(&[], path, text)
}

/// As [`options`], also of keys that are no options.
///
/// # Errors
/// As [`parse`].
pub fn options_and<T: Args + DeserializeOwned>(more: &[&str], path: &Path, text: &str) -> Result<T, Failure> {
    let whole: toml::Table = parse(path, text)?;
    let command = T::augment_args(Command::new("options"));
    let options = command.get_arguments().filter_map(|option| Some(option.get_long()?.replace('-', "_")));
    let known: Vec<String> = options.chain(more.iter().map(|key| key.to_string())).collect();
    for (key, value) in &whole {
        let failed = |why: String| {
            let (path, line) = (printable_path(path), line_of(text, key));
            Failure::Failed(format!("{path}: line {line}: {why}"))
        };
        if ["output", "out"].contains(&key.as_str()) {
            return Err(failed(format!(
                "`{key}` is no key: name the directory on the command line (-o), so that one file serves many runs"
            )));
        }
        if !known.contains(key) {
            return Err(failed(format!("unknown field `{key}`, expected one of {}", known.join(", "))));
        }
        let one = toml::Table::from_iter([(key.clone(), value.clone())]);
        one.try_into::<T>().map_err(|error| failed(format!("`{key}`: {}", error.message())))?;
    }
    whole.try_into().map_err(|error| Failure::Failed(format!("{}: {}", printable_path(path), error.message())))
}

/// The line on which a key of the outermost table stands.
fn line_of(text: &str, key: &str) -> usize {
    let table = DeTable::parse(text);
    let keys = table.iter().flat_map(|table| table.get_ref().keys());
    let place = keys.filter(|other| other.get_ref() == key).map(|key| key.span().start).next().unwrap_or_default();
    text[..place].matches('\n').count() + 1
}
