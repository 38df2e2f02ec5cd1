//! Dependencies of the modules and the files within them, read from the sources: no import
//! leads up, and none leads round in a ring.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms of the library from the ground up. A room may import those of the floors below its
/// own.
const LIBRARY: &[&[&str]] = &[
    &["hash", "host_memory", "parallel", "printable", "random", "timeline"],
    &["grid"],
    &["host", "comm", "cosmology"],
    &["io"],
    &["gpu"],
    &["cluster", "exchange"],
    &["rank"],
    &["field"],
    &["fft"],
    &["launch"],
    &["points"],
    &["mesh"],
    &["operators"],
    &["pm", "map"],
    &["inference"],
    &["error", "kernels"],
];

/// The layers within points.
const POINTS: &[&[&str]] = &[
    &["error"],
    &["domain", "rows"],
    &["box_check", "cloud", "curve"],
    &["extent", "u64_array"],
    &["sort"],
    &["tree", "particles"],
    &["each", "files"],
    &["ghosts"],
    &["partition"],
    &["neighbors"],
    &["fof"],
];

/// Folders whose files (and folders) import each other without a cycle: a crate's root, and folders
/// below it.
const WITHOUT_RINGS: &[(&str, &[&str])] = &[
    (
        "src",
        &[
            "cluster",
            "comm",
            "comm/mpi",
            "cosmology",
            "exchange",
            "exchange/collectives",
            "fft",
            "fft/codegen",
            "fft/plan",
            "gpu",
            "gpu/primitives",
            "grid",
            "inference",
            "inference/correlated_field",
            "inference/likelihood",
            "inference/priors",
            "io",
            "io/cleanup",
            "io/hdf5",
            "io/zip",
            "map",
            "mesh",
            "operators",
            "operators/pointwise",
            "pm",
            "pm/gradient",
            "pm/light_cone",
            "points",
            "points/sort",
            "points/tree",
            "points/ghosts",
            "points/fof",
            "points/neighbors",
        ],
    ),
    ("crates/sanitizer/src", &[""]),
    (
        "program/src",
        &[
            "",
            "bench",
            "bench/reference",
            "fft",
            "infer",
            "kernels",
            "models",
            "models/shallow_water",
            "plots",
            "power",
            "reconstruct",
            "shallow_water",
            "simulate",
        ],
    ),
];

/// An import of one file or folder of a room by another; the room's own `mod.rs` is called `mod`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Import {
    from: String,
    to: String,
    file: PathBuf,
}

impl fmt::Debug for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} imports {} in {}", self.from, self.to, self.file.display())
    }
}

/// Returns all Rust files below `dir`.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Returns the code of a file without comments and without its tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns the module that a file is, from the root of its crate.
fn module(root: &Path, file: &Path) -> Vec<String> {
    let path = file.strip_prefix(root).unwrap().with_extension("");
    let mut module: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    module.pop_if(|name| matches!(name.as_str(), "mod" | "lib" | "main"));
    module
}

/// Adds the paths that the text begins with, several where braces follow, each behind `path`;
/// returns what comes after.
fn read_paths<'a>(mut text: &'a str, mut path: Vec<&'a str>, found: &mut Vec<Vec<&'a str>>) -> &'a str {
    loop {
        text = text.trim_start();
        if let Some(mut list) = text.strip_prefix('{') {
            while !list.is_empty() && !list.trim_start().starts_with('}') {
                list = read_paths(list, path.clone(), found);
                let end = list.find([',', '}']).unwrap_or(list.len());
                list = list[end..].strip_prefix(',').unwrap_or(&list[end..]);
            }
            return list.trim_start().strip_prefix('}').unwrap_or_default();
        }
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        path.push(&text[..end]);
        text = &text[end..];
        let Some(rest) = text.strip_prefix("::") else {
            found.push(path);
            return text;
        };
        text = rest;
    }
}

/// Returns the paths in the code of `module`, from the root of the crate. Those of other crates
/// stand as if below the module.
fn paths(code: &str, module: &[String], begins: &[&str]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for begin in begins {
        for (at, _) in code.match_indices(begin) {
            if !code[..at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c)) {
                let skipped = if begin.ends_with(' ') { begin.len() } else { 0 };
                read_paths(&code[at + skipped..], Vec::new(), &mut found);
            }
        }
    }
    let absolute = |path: &Vec<&str>| {
        let mut place = if path[0] == "crate" { Vec::new() } else { module.to_vec() };
        let relative = path.iter().skip_while(|word| {
            if **word == "super" {
                place.pop();
            }
            matches!(**word, "crate" | "self" | "super")
        });
        let names: Vec<_> = relative.map(ToString::to_string).collect();
        [place, names].concat()
    };
    found.iter().map(absolute).collect()
}

/// Returns the imports among the files and folders of the folder `room` of a crate. A name that the
/// room's `mod.rs` gives out stands for the file it is from.
fn imports(root: &Path, room: &str) -> BTreeSet<Import> {
    let files = sources(&root.join(room));
    let place: Vec<String> = room.split('/').filter(|name| !name.is_empty()).map(String::from).collect();
    let modules: Vec<_> = files.iter().map(|file| module(root, file)).collect();
    let children: BTreeSet<&String> = modules.iter().filter_map(|module| module.get(place.len())).collect();
    let mut given = BTreeMap::new();
    for (file, _) in files.iter().zip(&modules).filter(|(_, module)| **module == place) {
        for path in paths(&code(file), &place, &["use "]) {
            if let [.., name] = &path[..]
                && let Some(child) = path.strip_prefix(&place[..]).and_then(<[_]>::first)
                && children.contains(child)
            {
                given.insert(name.clone(), child.clone());
            }
        }
    }
    let mut found = BTreeSet::new();
    for (file, module) in files.iter().zip(&modules) {
        let from = module.get(place.len()).map_or("mod", |name| name);
        let code = code(file);
        // What a room gives out it need not use.
        let own: String = code.split_inclusive(';').filter(|part| !part.contains("pub use ")).collect();
        for path in paths(&own, module, &["crate::", "self::", "super::", "use "]) {
            let Some(name) = path.strip_prefix(&place[..]).and_then(<[_]>::first) else { continue };
            let to = if children.contains(name) { name } else { given.get(name).map_or("mod", |child| child) };
            if to != from {
                found.insert(Import { from: from.into(), to: to.into(), file: file.clone() });
            }
        }
    }
    found
}

/// Every import between the rooms of a folder that does not lead down.
fn climbs(imports: &BTreeSet<Import>, floors: &[&[&str]]) -> Vec<Import> {
    let floor = |name: &str| floors.iter().position(|rooms| rooms.contains(&name));
    let is_wrong = |import: &&Import| match (floor(&import.from), floor(&import.to)) {
        (Some(from), Some(to)) => to >= from,
        (None, _) => import.from != "mod",
        (_, None) => import.to != "mod",
    };
    imports.iter().filter(is_wrong).cloned().collect()
}

/// Every import that is part of a ring.
fn rings(imports: &BTreeSet<Import>) -> Vec<Import> {
    let reaches = |from: &str, to: &str| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(name) = next.pop() {
            if reached.insert(name) {
                next.extend(imports.iter().filter(|import| import.from == name).map(|import| import.to.as_str()));
            }
        }
        reached.contains(to)
    };
    imports.iter().filter(|import| reaches(&import.to, &import.from)).cloned().collect()
}

#[test]
fn rooms_import_only_what_stands_below_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (room, floors) in [("", LIBRARY), ("points", POINTS)] {
        let wrong = climbs(&imports(&root, room), floors);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

#[test]
fn files_of_a_room_import_each_other_in_no_ring() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = WITHOUT_RINGS.iter().flat_map(|(root, rooms)| rooms.iter().map(move |room| (here.join(root), room)));
    let wrong: Vec<_> = folders.flat_map(|(root, room)| rings(&imports(&root, room))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn imports_of_every_form_are_found() {
    let text = "use crate::pm::Config;\nuse crate::{Error, fft::{plan::Plan as P, Spec}};\n\
                let x = mycrate::io::y(crate::gpu::z::<u8>());\nuse super::super::hash::{self, START};\nuse std::fs;";
    let module = ["points".to_string(), "sort".to_string()];
    let found: Vec<_> =
        paths(text, &module, &["crate::", "super::", "use std"]).iter().map(|path| path.join("::")).collect();
    let expected = ["pm::Config", "Error", "fft::plan::Plan", "fft::Spec", "gpu::z::", "hash::self", "hash::START"];
    assert_eq!(found[..7], expected);
    let import = |from: &str, to: &str| Import { from: from.into(), to: to.into(), file: PathBuf::new() };
    let graph = BTreeSet::from([import("a", "b"), import("b", "c"), import("c", "b"), import("c", "d")]);
    assert_eq!(rings(&graph), [import("b", "c"), import("c", "b")]);
    assert_eq!(climbs(&graph, &[&["d"], &["c", "b"], &["a"]]), [import("b", "c"), import("c", "b")]);
}

/// Returns the names that a module gives out: its own public items and what it re-exports.
fn given_out(root: &Path, room: &str) -> Vec<String> {
    let folder = root.join(room);
    let code = code(&if folder.is_dir() { folder.join("mod.rs") } else { folder.with_extension("rs") });
    let mut names: Vec<String> =
        paths(&code, &[room.to_string()], &["pub use "]).into_iter().filter_map(|path| path.last().cloned()).collect();
    for word in ["pub fn ", "pub struct ", "pub enum ", "pub trait ", "pub type ", "pub const "] {
        let items = code.lines().filter_map(|line| line.strip_prefix(word));
        let name = |item: &str| item.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        names.extend(items.map(name).filter(|name: &String| !name.is_empty()));
    }
    names
}

#[test]
fn no_two_rooms_give_out_the_same_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let library = fs::read_to_string(root.join("lib.rs")).unwrap();
    let rooms = library.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    // Names of other modules once more.
    let rooms = rooms.filter(|room| *room != "low_level");
    let mut from: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for room in rooms {
        for name in given_out(&root, room) {
            from.entry(name).or_default().push(room);
        }
    }
    assert!(from.contains_key("Transform") && from.contains_key("Gpu") && from.len() > 100, "{from:?}");
    let twice: Vec<_> = from.iter().filter(|(_, rooms)| rooms.len() > 1).collect();
    assert!(twice.is_empty(), "`use meshloom::{{a::*, b::*}}` would be ambiguous: {twice:#?}");
}
