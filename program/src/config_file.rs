//! Options from the command line, a TOML file and defaults; and other short TOML files.

use std::any::TypeId;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use meshloom::io::{printable_path, read_text};
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Table;
use toml::de::DeTable;

use crate::checked::{one_of, usage};
use crate::failure::Failure;

/// Largest file that is read, in bytes.
pub const MAX_BYTES: u64 = 1 << 16;

/// Options that a file may have, too. Each is one field with its default.
pub trait FileOptions: Args + Serialize + DeserializeOwned {
    /// Keys of a file that are not options of the command line.
    const KEYS: &'static [&'static str] = &[];
}

/// The options of a command line, without its defaults.
#[derive(Debug)]
struct Given<T>(ArgMatches, PhantomData<fn() -> T>);

impl<T: Args> FromArgMatches for Given<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Given(matches.clone(), PhantomData))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = matches.clone();
        Ok(())
    }
}

impl<T: Args> Args for Given<T> {
    fn augment_args(command: Command) -> Command {
        T::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}

/// Options of a command that reads and prints files of options.
#[derive(Args, Debug)]
pub struct Configured<T: Args> {
    /// Options from a file: their names with _ for -
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Print the options, defaults included, as a file for --config, and do nothing else
    #[arg(long)]
    pub print_config: bool,
    #[command(flatten)]
    given: Given<T>,
}

impl<T: FileOptions> Configured<T> {
    /// Returns the options of the command line, of the file and the defaults, in this order of
    /// precedence.
    ///
    /// An option of the command line also replaces those options of the file that exclude it.
    ///
    /// # Errors
    /// - [`Failure::Failed`] for files that cannot be read, unknown keys and values of wrong types.
    /// - [`Failure::Usage`] for words of the file that no option takes.
    pub fn options(&self) -> Result<T, Failure> {
        let mut table = self.config.as_deref().map_or_else(|| Ok(Table::new()), table::<T>)?;
        let (command, mut given) = (T::augment_args(Command::new("options")), self.given.0.clone());
        for arg in command.get_arguments() {
            for other in command.get_arg_conflicts_with(arg) {
                for (one, other) in [(arg, other), (other, arg)] {
                    if self.is_given(one.get_id().as_str()) {
                        table.remove(&key(other));
                    }
                }
            }
            let id = arg.get_id().as_str();
            if !self.is_given(id) {
                given.try_clear_id(id).map_err(|error| Failure::Failed(error.to_string()))?;
            }
        }
        let mut options: T = table.try_into().map_err(|error| self.failed(error.message()))?;
        options.update_from_arg_matches(&given).map_err(|error| Failure::Words(error.to_string()))?;
        Ok(options)
    }

    /// Returns `true` if the command line has this option.
    pub fn is_given(&self, id: &str) -> bool {
        self.given.0.value_source(id) == Some(ValueSource::CommandLine)
    }

    fn failed(&self, why: &str) -> Failure {
        let path = self.config.as_deref().unwrap_or(Path::new("--config"));
        Failure::Failed(format!("{}: {why}", printable_path(path)))
    }
}

/// Returns the defaults of options: those of an empty command line.
pub fn defaults<T: Args>() -> T {
    let command = T::augment_args(Command::new("defaults").no_binary_name(true));
    T::from_arg_matches(&command.get_matches_from([""; 0])).unwrap_or_else(|error| error.exit())
}

/// Returns the text of a file for `--config`.
///
/// # Errors
/// [`Failure::Usage`] for numbers and names that such a file cannot hold.
pub fn text(options: &impl Serialize) -> Result<String, Failure> {
    toml::to_string(options).map_err(|error| usage(format!("these options make no file: {error}")))
}

/// Reads the text of a file.
///
/// # Errors
/// [`Failure::Failed`] for files that cannot be read, are too long or no text.
pub fn read(path: &Path) -> Result<String, Failure> {
    Ok(read_text(path, MAX_BYTES)?)
}

/// Parses the `text` of the file at `path`.
///
/// # Errors
/// [`Failure::Failed`] for text that is not TOML, and keys that are unknown or missing.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Failure> {
    let failed = |error: toml::de::Error| format!("{}: {}", printable_path(path), error.to_string().trim_end());
    toml::from_str(text).map_err(|error| Failure::Failed(failed(error)))
}

/// Reads a file whose keys are the names of options with _ for -.
///
/// Each key is also read by itself: errors of nested structures have no line.
fn table<T: FileOptions>(path: &Path) -> Result<Table, Failure> {
    let text = read(path)?;
    let whole: Table = parse(path, &text)?;
    let command = T::augment_args(Command::new("options"));
    for (name, value) in &whole {
        let failed =
            |why: String| Failure::Failed(format!("{}: line {}: {why}", printable_path(path), line_of(&text, name)));
        if ["output", "out"].contains(&name.as_str()) {
            return Err(failed(format!(
                "`{name}` is no key: name the directory on the command line (-o), so that one file serves many runs"
            )));
        }
        let option = command.get_arguments().find(|arg| key(arg) == *name);
        if option.is_none() && !T::KEYS.contains(&name.as_str()) {
            let known: Vec<String> =
                command.get_arguments().map(key).chain(T::KEYS.iter().map(|&key| key.into())).collect();
            return Err(failed(format!("unknown field `{name}`, expected one of {}", known.join(", "))));
        }
        if let (Some(option), Some(word)) = (option, value.as_str()) {
            check_word(option, word)?;
        }
        let one = Table::from_iter([(name.clone(), value.clone())]);
        one.try_into::<T>().map_err(|error| failed(format!("`{name}`: {}", error.message())))?;
    }
    Ok(whole)
}

/// Refuses a word that is not a value of an option, if that takes words.
fn check_word(option: &Arg, word: &str) -> Result<(), Failure> {
    let is_switch = option.get_value_parser().type_id() == TypeId::of::<bool>();
    let values = option.get_possible_values();
    if is_switch || values.is_empty() || values.iter().any(|value| value.matches(word, false)) {
        return Ok(());
    }
    let names: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
    Err(usage(format!("--{} is `{word}`; it must be {}", key(option).replace('_', "-"), one_of(&names))))
}

/// Returns the key of an option in a file.
fn key(option: &Arg) -> String {
    option.get_long().unwrap_or_default().replace('-', "_")
}

/// Returns the line on which a key of the outermost table stands.
fn line_of(text: &str, key: &str) -> usize {
    let table = DeTable::parse(text);
    let keys = table.iter().flat_map(|table| table.get_ref().keys());
    let place = keys.filter(|other| other.get_ref() == key).map(|key| key.span().start).next().unwrap_or_default();
    text[..place].matches('\n').count() + 1
}
