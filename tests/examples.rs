//! Examples print what their headers show, and write the same files, on one rank and on three.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use meshloom::io::token;

#[allow(dead_code)]
#[path = "../examples/filtered_field.rs"]
mod filtered_field;
#[allow(dead_code)]
#[path = "../examples/first_steps.rs"]
mod first_steps;
#[allow(dead_code)]
#[path = "../examples/guest.rs"]
mod guest;
#[allow(dead_code)]
#[path = "../examples/molecular_dynamics.rs"]
mod molecular_dynamics;
#[allow(dead_code)]
#[path = "../examples/own_kernel_posterior.rs"]
mod own_kernel_posterior;
#[allow(dead_code)]
#[path = "../examples/sph_sum.rs"]
mod sph_sum;
#[cfg(feature = "image")]
#[allow(dead_code)]
#[path = "../examples/wave.rs"]
mod wave;

/// The variable by which a test knows that it is to run the example itself.
const INNER: &str = "MESHLOOM_TEST_EXAMPLE";

/// Runs the example of `test` in a directory of its own on `ranks` ranks; returns the lines that it
/// prints and its files.
fn outcome(test: &str, ranks: &str) -> (Vec<String>, BTreeMap<String, Vec<u8>>) {
    let directory = std::env::temp_dir().join(format!("meshloom-example-{}", token()));
    std::fs::create_dir(&directory).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INNER, "1")
        .env("MESHLOOM_RANKS", ranks)
        .current_dir(&directory)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap())
    };
    let files = std::fs::read_dir(&directory).unwrap().map(file).collect();
    std::fs::remove_dir_all(directory).unwrap();
    (text.lines().map(String::from).collect(), files)
}

/// Runs an example, or checks it on 1 and 3 ranks: its files are `files`, and `line` of its header
/// is among what it prints.
fn check(test: &str, source: &str, files: &[&str], main: fn() -> meshloom::Result<()>) {
    if std::env::var_os(INNER).is_some() {
        return main().unwrap();
    }
    // The last line of the block of text in the header.
    let block = source.split("//! ```").nth(1).unwrap();
    let line = block.lines().filter_map(|line| line.strip_prefix("//! ")).rfind(|line| !line.is_empty()).unwrap();
    let [one, three] = ["1", "3"].map(|ranks| outcome(test, ranks));
    for (lines, found) in [&one, &three] {
        assert!(lines.iter().any(|printed| printed.ends_with(line)), "`{line}` is not in {lines:#?}");
        assert!(found.keys().map(Path::new).eq(files.iter().map(Path::new)), "{:?}", found.keys());
    }
    assert!(one.1 == three.1, "files differ between 1 and 3 ranks");
}

#[test]
fn first_programs() {
    check("first_programs", include_str!("../examples/first_steps.rs"), &["smooth.npy"], first_steps::main);
}

#[test]
fn filtered_fields() {
    let source = include_str!("../examples/filtered_field.rs");
    check("filtered_fields", source, &["smooth.npy"], filtered_field::main);
}

#[cfg(feature = "image")]
#[test]
fn waves() {
    check("waves", include_str!("../examples/wave.rs"), &["wave.png"], wave::main);
}

#[test]
fn sums_over_neighbors() {
    check("sums_over_neighbors", include_str!("../examples/sph_sum.rs"), &[], sph_sum::main);
}

#[test]
fn guests_on_a_device_of_the_caller() {
    // The example has an error type of its own, as programs with other libraries do.
    let main = || guest::main().map_err(|error| panic!("{error}"));
    check("guests_on_a_device_of_the_caller", include_str!("../examples/guest.rs"), &[], main);
}

#[test]
fn posteriors_of_own_operators() {
    let source = include_str!("../examples/own_kernel_posterior.rs");
    check("posteriors_of_own_operators", source, &[], own_kernel_posterior::main);
}

#[test]
fn dynamics_of_molecules() {
    let files: &[&str] = if cfg!(feature = "hdf5") { &["atoms.hdf5"] } else { &[] };
    check("dynamics_of_molecules", include_str!("../examples/molecular_dynamics.rs"), files, molecular_dynamics::main);
}
