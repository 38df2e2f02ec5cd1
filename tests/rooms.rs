//! The order of the rooms: each imports only what stands below it. Read from the sources, so that no import can turn up unseen.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms of the library from the ground up. A room may import those of the floors below its own.
const LIBRARY: &[&[&str]] = &[
    &["hash", "printable", "grid", "cosmology"],
    &["host", "comm"],
    &["io"],
    &["gpu"],
    &["exchange"],
    &["launch", "fft"],
    &["mesh", "points", "operators"],
    &["pm"],
    &["error", "kernels"],
];

/// The same among points; files that stand in the room itself are its ground floor.
const POINTS: &[&[&str]] = &[
    &["cloud", "curve", "domain", "error", "extent", "rows"],
    &["sort", "tree"],
    &["ghosts"],
    &["partition"],
    &["neighbors"],
    &["fof"],
];

/// Names that the crate's root and the room of points give out, and where they are from.
const GIVEN: &[(&str, &str)] = &[
    ("Error", "error"),
    ("Launch", "launch"),
    ("kernels", "kernels"),
    ("kernel_params", "gpu"),
    ("bytemuck", "gpu"),
    ("Context", "exchange"),
    ("Attribute", "cloud"),
    ("AnyArray", "cloud"),
    ("Cloud", "cloud"),
    ("Curve", "curve"),
    ("CurveKeys", "curve"),
    ("Frame", "curve"),
    ("Bounds", "domain"),
    ("Domain", "domain"),
    ("ParticleError", "error"),
];

/// All Rust files below `dir`.
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

/// The code of a file without comments and without its tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The names that follow `prefix` in `text`, those in braces as well.
fn names_after(text: &str, prefix: &str) -> Vec<String> {
    let word = |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let mut names = Vec::new();
    for (at, _) in text.match_indices(prefix) {
        if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        if let Some(inner) = rest.strip_prefix('{') {
            let mut depth = 1;
            let mut start = true;
            for (i, c) in inner.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    ',' if depth == 1 => start = true,
                    c if start && depth == 1 && !c.is_whitespace() => {
                        names.push(word(&inner[i..]));
                        start = false;
                    }
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
        } else {
            names.push(word(rest));
        }
    }
    names
}

/// The room of a file, which is the first folder or file below `root`.
fn room(root: &Path, file: &Path) -> String {
    let first = file.strip_prefix(root).unwrap().components().next().unwrap();
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// Every import between the rooms of `root` that does not lead down.
fn climbs(root: &Path, prefix: &str, floors: &[&[&str]], besides: &[&str]) -> Vec<String> {
    let floor = |name: &str| floors.iter().position(|rooms| rooms.contains(&name));
    let given: BTreeMap<_, _> = GIVEN.iter().copied().collect();
    let mut wrong = Vec::new();
    for file in sources(root) {
        let from = room(root, &file);
        if besides.contains(&from.as_str()) {
            continue;
        }
        let Some(own) = floor(&from) else {
            wrong.push(format!("{from} has no floor"));
            continue;
        };
        for name in names_after(&code(&file), prefix) {
            let to =
                if floor(&name).is_some() { name.as_str() } else { given.get(name.as_str()).copied().unwrap_or("") };
            if to != from && floor(to).is_some_and(|floor| floor >= own) {
                wrong.push(format!("{from} imports {to} in {}", file.display()));
            }
        }
    }
    wrong
}

#[test]
fn rooms_import_only_what_stands_below_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let wrong = climbs(&root, "crate::", LIBRARY, &["lib", "bin"]);
    assert!(wrong.is_empty(), "{wrong:#?}");
    let wrong = climbs(&root.join("points"), "crate::points::", POINTS, &["mod"]);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn climbs_are_found() {
    let text =
        "use crate::pm::Config;\nuse crate::{Error, fft::{Plan, Spec}};\nlet x = mycrate::io::y(crate::gpu::z());";
    assert_eq!(names_after(text, "crate::"), ["pm", "Error", "fft", "gpu"]);
}
