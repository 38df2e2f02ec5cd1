//! `meshloom kernels`: the compute kernels of the library, and the text of one as a driver gets it.

mod compile;
mod profile;

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use meshloom::gpu::{Access, KernelSource};
use meshloom::io::write_whole;
use serde_json::{Value, json};

use crate::checked_files::check_files;
use crate::failure::Failure;
use crate::output_name::check_name;
use crate::terminal;
use compile::{Output, Stage, parse};
use profile::Shape;

#[derive(Args)]
pub struct Arguments {
    /// A kernel to print, by its name or a beginning that no other has [default: list all]
    name: Option<String>,
    /// Profile of the text: that of a kind of device, or a file with some of
    /// workgroup_size, items, windows, window_bytes, params
    #[arg(long, value_name = "floor|software|gpu|LIMITS.toml", default_value = "floor")]
    profile: String,
    /// The language: wgsl as the library writes it, or what the driver is given [default: wgsl]
    #[arg(long, value_enum, value_name = "wgsl|spirv|msl|hlsl", requires = "name")]
    stage: Option<Stage>,
    /// A file to write instead of standard output
    #[arg(short, long, value_name = "FILE", requires = "name")]
    output: Option<PathBuf>,
    /// Print the list as one JSON object on standard output
    #[arg(long, conflicts_with = "name")]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let stage = arguments.stage.unwrap_or(Stage::Wgsl);
    if let Some(path) = &arguments.output {
        check_files([], [path.as_path()])?;
        check_name(path, stage.extensions())?;
    }
    let shape = Shape::of_profile(&arguments.profile)?;
    let kernels = named(meshloom_program::kernels())?;
    let Some(name) = &arguments.name else { return list(&kernels, &shape, arguments) };
    let (_, source) = &kernels[find(&kernels, name)?];
    let text = wgsl(source, &shape)?;
    let output = match stage {
        Stage::Wgsl => Output::Text(text),
        stage => parse(&text).and_then(|module| module.write(stage)).map_err(|why| failed(source, &why))?,
    };
    match (&arguments.output, output) {
        (Some(path), output) => write_whole(path, output.bytes()).map_err(|error| Failure::Failed(error.to_string())),
        (None, Output::Text(text)) => terminal::print(&(text.trim_end().to_owned() + "\n")),
        (None, Output::Binary(bytes)) => terminal::write_binary(&bytes),
    }
}

/// A kernel of the library, by a name that no other has.
type Named = (String, KernelSource);

/// Gives each kernel its label for a name, and numbers the forms of kernels that have several.
/// Forms with the same text are one.
///
/// # Errors
/// [`Failure::Failed`] for a kernel without a valid text in the smallest profile.
fn named(sources: Vec<KernelSource>) -> Result<Vec<Named>, Failure> {
    let mut forms = Vec::new();
    let mut seen = HashSet::new();
    for source in sources {
        if seen.insert((source.label().to_owned(), wgsl(&source, &Shape::default())?)) {
            forms.push(source);
        }
    }
    let labels: Vec<String> = forms.iter().map(|source| source.label().to_owned()).collect();
    let name = |(at, source): (usize, KernelSource)| {
        let before = labels[..at].iter().filter(|label| **label == labels[at]).count();
        let is_only = before == 0 && !labels[at + 1..].contains(&labels[at]);
        let name = if is_only { labels[at].clone() } else { format!("{}.{}", labels[at], before + 1) };
        (name, source)
    };
    Ok(forms.into_iter().enumerate().map(name).collect())
}

/// Names that an error lists.
const LISTED: usize = 8;

/// Returns the place of the kernel that `name` is the name of, or the only one whose name begins
/// with it.
fn find(kernels: &[Named], name: &str) -> Result<usize, Failure> {
    if let Some(at) = kernels.iter().position(|(own, _)| own == name) {
        return Ok(at);
    }
    let listed = |names: &[&str]| {
        let more = if names.len() > LISTED { ", .." } else { "" };
        names[..names.len().min(LISTED)].join(", ") + more
    };
    let begin: Vec<usize> = (0..kernels.len()).filter(|&at| kernels[at].0.starts_with(name)).collect();
    match begin[..] {
        [only] => Ok(only),
        [] => {
            let mut near: Vec<&str> = kernels.iter().map(|(own, _)| own.as_str()).collect();
            near.sort_by_key(|own| edit_distance(own, name));
            Err(Failure::Usage(format!("there is no kernel `{name}`; near it are {}", listed(&near))))
        }
        _ => {
            let names: Vec<&str> = begin.iter().map(|&at| kernels[at].0.as_str()).collect();
            Err(Failure::Usage(format!("`{name}` begins the names of {} kernels: {}", names.len(), listed(&names))))
        }
    }
}

/// Characters to insert, remove or replace to make one text of another (Levenshtein 1966).
fn edit_distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.chars().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[row.len() - 1]
}

fn failed(source: &KernelSource, why: &str) -> Failure {
    Failure::Failed(format!("the kernel {} in this profile: {why}", source.label()))
}

fn wgsl(source: &KernelSource, shape: &Shape) -> Result<String, Failure> {
    let arrays = source.slots().map_err(|error| Failure::Failed(error.to_string()))?.len();
    let text = source.wgsl(&shape.variant(&vec![shape.windows; arrays]));
    text.map_err(|error| Failure::Failed(error.to_string()))
}

/// Prints all kernels.
fn list(kernels: &[Named], shape: &Shape, arguments: &Arguments) -> Result<(), Failure> {
    let (mut objects, mut lines) = (Vec::new(), Vec::new());
    let width = kernels.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines.push(format!("{:<width$}  workgroup  parameters  arrays", "kernel"));
    for (name, source) in kernels {
        let module = parse(&wgsl(source, shape)?).map_err(|why| failed(source, &why))?;
        let (group, params) = (module.workgroup(), module.param_bytes());
        let slots = source.slots().map_err(|error| Failure::Failed(error.to_string()))?;
        let names: Vec<&str> = slots.iter().map(|slot| slot.name.as_str()).collect();
        lines.push(format!("{name:<width$}  {group:>9}  {params:>8} B  {}", names.join(", ")));
        let arrays: Vec<Value> = slots
            .iter()
            .map(|slot| {
                let access = match slot.access {
                    Access::Read => "read",
                    Access::ReadWrite => "read_write",
                    Access::Atomic => "atomic",
                };
                json!({ "name": slot.name, "type": slot.element.wgsl(), "access": access })
            })
            .collect();
        objects.push(json!({ "name": name, "workgroup": group, "parameter_bytes": params, "arrays": arrays }));
    }
    match arguments.json {
        true => terminal::print_object(&json!({ "profile": arguments.profile, "kernels": objects })),
        false => terminal::print(&(lines.join("\n") + "\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Vec<Named> {
        let source = |label: &str, order: u32| KernelSource::new(label, "#each_workgroup").constant("ORDER", order);
        let [cic, tsc, density] = [source("mesh::paint", 2), source("mesh::paint", 3), source("mesh::density", 2)];
        named(vec![cic, density.clone(), tsc, density]).ok().unwrap()
    }

    #[test]
    fn kernels_are_found_by_name_and_by_a_beginning_that_one_has() {
        let kernels = three();
        let names: Vec<&str> = kernels.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["mesh::paint.1", "mesh::density", "mesh::paint.2"]);
        let found = |name: &str| find(&kernels, name).map_err(|failure| failure.message());
        assert_eq!((found("mesh::paint.2"), found("mesh::d")), (Ok(2), Ok(1)));
        let several = found("mesh::paint").unwrap_err();
        assert!(several.contains("2 kernels: mesh::paint.1, mesh::paint.2"), "{several}");
        let unknown = found("mesh::densty").unwrap_err();
        assert!(unknown.contains("near it are mesh::density, "), "{unknown}");
    }

    #[test]
    fn every_kernel_is_written_in_every_language() {
        for profile in ["floor", "software"] {
            let shape = Shape::of_profile(profile).ok().unwrap();
            for (name, source) in named(meshloom_program::kernels()).ok().unwrap() {
                let text = wgsl(&source, &shape).map_err(|failure| failure.message()).unwrap();
                let module = parse(&text).unwrap_or_else(|why| panic!("{name} for {profile}: {why}"));
                for stage in [Stage::Spirv, Stage::Msl, Stage::Hlsl] {
                    let output = module.write(stage).unwrap_or_else(|why| panic!("{name} in {stage:?}: {why}"));
                    assert!(!output.bytes().is_empty(), "{name} in {stage:?}");
                }
            }
        }
    }

    #[test]
    fn distances_count_edits() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!((edit_distance("", "abc"), edit_distance("abc", "abc")), (3, 0));
    }
}
