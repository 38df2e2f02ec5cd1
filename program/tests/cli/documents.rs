//! The commands that documents show run as they stand, and print what the documents say.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use crate::cli::{self, Scratch};
use crate::markdown::{self, Block};

/// Tests of pages by their names.
macro_rules! pages {
    ($($test:ident $page:literal)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(#[test]
        fn $test() {
            runs($page);
        })*
    };
}

pages! {
    commands "docs/command-line.md"
    files "docs/files.md"
    first_steps "docs/start-program.md"
    groups "docs/groups.md"
    halos "docs/halos.md"
    inference "docs/inference.md"
    particles "docs/particles.md"
    reconstruction "docs/reconstruction.md"
    scaling "docs/scaling.md"
    shallow_water "docs/shallow-water.md"
    simulations "docs/simulate.md"
    the_readme "README.md"
    transforms "docs/fft.md"
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Runs a block by a shell in a directory, with the program of this build as `meshloom`; returns
/// what it printed.
fn run(page: &str, block: &Block, directory: &Path, programs: &Path) -> String {
    let mut path = vec![programs.to_owned()];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap()));
    let mut command = Command::new("bash");
    for (name, _) in env::vars().filter(|(name, _)| name.starts_with("MESHLOOM_")) {
        command.env_remove(name);
    }
    let output = command
        .args(["-euo", "pipefail", "-c", &block.text])
        .current_dir(directory)
        .env("PATH", env::join_paths(path).unwrap())
        .env("MESHLOOM_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("pipelines"))
        .env("LP_NUM_THREADS", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (printed, said) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{page}:{}: {}\n{printed}{said}", block.line, output.status);
    printed
}

/// Runs all blocks of commands of a page in one directory. The block of text that follows one is
/// what it prints.
fn runs(page: &str) {
    if !cfg!(feature = "hdf5") {
        println!("skipped: some commands of documents need the feature `hdf5`");
        return;
    }
    let (scratch, programs) = (Scratch::new(), Scratch::new());
    std::os::unix::fs::symlink(cli::program(), programs.join("meshloom")).unwrap();
    let blocks = markdown::blocks(&fs::read_to_string(root().join(page)).unwrap());
    for (at, block) in blocks.iter().enumerate().filter(|(_, block)| block.language == "sh") {
        let printed = run(page, block, scratch.path(), programs.path());
        let shown = blocks.get(at + 1).filter(|next| next.follows && next.language == "text");
        if let Some(shown) = shown {
            let is_same = markdown::is_same_output(&printed, &shown.text);
            assert!(is_same, "{page}:{} shows\n{}but it is\n{printed}", shown.line, shown.text);
        }
    }
}

#[test]
fn tables_of_options_can_be_read() {
    for path in markdown::documents(&root()) {
        let blocks = markdown::blocks(&fs::read_to_string(&path).unwrap());
        for block in blocks.iter().filter(|block| block.language == "toml") {
            let read = block.text.parse::<toml::Table>();
            assert!(read.is_ok(), "{}:{}: {read:?}", path.display(), block.line);
        }
    }
}

#[test]
fn every_page_with_commands_is_tested() {
    let root = root();
    let has_commands = |path: &PathBuf| {
        markdown::blocks(&fs::read_to_string(path).unwrap()).iter().any(|block| block.language == "sh")
    };
    let found = markdown::documents(&root).into_iter().filter(has_commands);
    let found: BTreeSet<String> =
        found.map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap().into()).collect();
    let listed: BTreeSet<String> = PAGES.iter().map(|page| (*page).into()).collect();
    assert_eq!(found, listed);
}
