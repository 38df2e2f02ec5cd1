//! The package as a registry shows it: made without a warning, and every link of its documents
//! leads somewhere.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// Runs `cargo package` with these words and gives what it wrote to stdout and stderr.
fn cargo_package(words: &[&str]) -> (String, String) {
    let output = Command::new(env!("CARGO"))
        .args(["package", "--package=meshloom", "--offline", "--allow-dirty", "--color=never"])
        .args(words)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{err}");
    (out, err)
}

/// Returns the targets of Markdown links and pictures, and of `src` and `href` in HTML.
fn links(text: &str) -> Vec<&str> {
    let after = |mark: &'static str, end: char| {
        text.match_indices(mark).filter_map(move |(at, mark)| text[at + mark.len()..].split(end).next())
    };
    after("](", ')').chain(after("src=\"", '"')).chain(after("href=\"", '"')).collect()
}

/// Returns the file in the package that a relative link of the document `from` leads to.
fn target(from: &str, link: &str) -> PathBuf {
    let path = Path::new(from).parent().unwrap().join(link.split('#').next().unwrap());
    path.components().fold(PathBuf::new(), |mut path, part| {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            part => path.push(part),
        }
        path
    })
}

#[test]
fn links_are_absolute_or_lead_to_packaged_files() {
    let (list, _) = cargo_package(&["--list"]);
    let files: BTreeSet<&str> = list.lines().collect();
    let (mut seen, mut broken) = (0, Vec::new());
    for document in files.iter().filter(|file| file.ends_with(".md")) {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(document)).unwrap();
        // Code holds brackets of other kinds.
        let prose: String = text.split("```").step_by(2).collect();
        for link in links(&prose) {
            if link.starts_with("https://") || link.starts_with('#') {
                continue;
            }
            seen += 1;
            let target = target(document, link);
            let packaged = |file: &&str| Path::new(file) == target || Path::new(file).starts_with(&target);
            if !files.iter().any(packaged) {
                broken.push(format!("{document}: {link}"));
            }
        }
    }
    assert!(seen > 20, "{seen} links");
    assert!(broken.is_empty(), "not in the package: {broken:#?}");
    for needed in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "shaders/mesh/paint.wgsl", "docs/density.png"] {
        assert!(files.contains(needed), "{needed} is not in the package");
    }
}

#[test]
fn the_package_is_made_without_a_warning() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package");
    let (_, said) = cargo_package(&["--no-verify", "--target-dir", target.to_str().unwrap()]);
    assert!(!said.contains("warning"), "{said}");
    assert!(target.join(format!("package/meshloom-{}.crate", env!("CARGO_PKG_VERSION"))).is_file(), "{said}");
}

#[test]
fn all_places_name_the_same_version() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [
        ("CHANGELOG.md", "## "),
        ("CITATION.cff", "version: "),
        ("recipe/recipe.yaml", "  version: "),
        ("Cargo.toml", "version = "),
    ];
    for (path, key) in places {
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        let rest = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        let version = rest.split_whitespace().next().unwrap().trim_matches('"');
        assert_eq!(version, env!("CARGO_PKG_VERSION"), "{path}");
    }
}
