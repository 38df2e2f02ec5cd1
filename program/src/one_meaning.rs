//! One option, one meaning: an option means the same in all commands.

use std::collections::BTreeMap;
use std::iter::repeat;

use clap::{Arg, Command, CommandFactory};

use super::Program;

/// Options whose value is written differently here and there, and why.
const FORMS: [(&str, &str); 11] = [
    ("box", "sides of the box: of a simulation and of measurements one, of points one or one an axis"),
    ("bytes", "bytes of a message; of an exchange also all of them"),
    ("checkpoint-every", "from one kept state to the next: on disk wall time, in memory of a gradient forces"),
    ("cross", "the second input: of what the first may be"),
    ("mesh", "cells of the mesh: of a simulation along each axis, else one number or one an axis"),
    ("noise", "standard deviation of data's noise: a number, or a file where each datum may have its own"),
    ("output", "what is written: a file, or the directory of a run"),
    ("size", "how large the measured work is, in its own unit"),
    ("snapshots", "when snapshots are taken: at scale factors, or so many times"),
    ("velocities", "velocities of particles: which kind is written, or the file that is read"),
    ("window", "the painting window, of those that the command has"),
];

/// All options of a command and of those below it, with the words that lead there.
fn options(command: &Command, way: &str, found: &mut Vec<(String, Arg)>) {
    let way = format!("{way} {}", command.get_name());
    found.extend(command.get_arguments().filter(|arg| !arg.is_positional()).map(|arg| (way.clone(), arg.clone())));
    for below in command.get_subcommands() {
        options(below, &way, found);
    }
}

/// Returns the values of an option: nothing, or the words of its help. `None` if it has no words
/// but the name of a field.
fn taken(arg: &Arg) -> Option<String> {
    if !arg.get_action().takes_values() || arg.get_num_args().is_some_and(|n| n.min_values() == 0) {
        return Some("nothing".into());
    }
    let words: Vec<&str> = arg.get_value_names()?.iter().map(|name| name.as_str()).collect();
    let words = words.join(" ");
    (words != arg.get_id().as_str().to_uppercase()).then_some(words)
}

#[test]
fn an_option_means_the_same_everywhere() {
    let mut all = Vec::new();
    options(&Program::command(), "", &mut all);
    // An option's second name stands for its first, also where a command has that one alone.
    let first_names: BTreeMap<&str, &str> = all
        .iter()
        .flat_map(|(_, arg)| {
            arg.get_visible_aliases().unwrap_or_default().into_iter().zip(repeat(arg.get_long().unwrap_or("")))
        })
        .collect();
    let mut forms: BTreeMap<&str, BTreeMap<String, &str>> = BTreeMap::new();
    let (mut long_of, mut short_of) = (BTreeMap::new(), BTreeMap::new());
    for (way, arg) in &all {
        let Some(long) = arg.get_long() else { panic!("{way}: {} has no long name", arg.get_id()) };
        let long = first_names.get(long).copied().unwrap_or(long);
        assert!(arg.get_help().is_some(), "--{long} of {way} has no words of help");
        if let Some(taken) = taken(arg) {
            forms.entry(long).or_default().entry(taken).or_insert(way);
        }
        let (before, at) = short_of.entry(long).or_insert((arg.get_short(), way));
        assert_eq!(*before, arg.get_short(), "--{long} of {at} and of {way}");
        if let Some(short) = arg.get_short() {
            let (before, at) = long_of.entry(short).or_insert((long, way));
            assert_eq!(*before, long, "-{short} of {at} and of {way}");
        }
    }
    for (long, forms) in &forms {
        let allowed = forms.len() == 1 || FORMS.iter().any(|(name, _)| name == long);
        assert!(allowed, "--{long} takes {forms:?}; give it one meaning, or say in FORMS why it is one");
    }
    for (alias, long) in first_names {
        assert!(!forms.contains_key(alias), "--{alias} is the second name of --{long}, and another option");
    }
}
