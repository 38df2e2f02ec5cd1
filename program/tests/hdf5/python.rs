//! HDF5 files of meshloom, as h5py, pynbody, swiftsimio and yt read it.
#![cfg(all(feature = "hdf5", unix))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cli::{Call, Ranks, Scratch};
use meshloom::io::hdf5::{Groups, SnapshotInfo, write_groups};
use serde_json::{Value, json};

/// Python with the packages of `python/requirements.txt`, kept from run to run; says why not, where
/// it cannot be had.
fn python() -> Option<PathBuf> {
    let requirements = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/requirements.txt");
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-hdf5");
    let (program, installed) = (home.join("bin/python"), home.join("installed.txt"));
    let wanted = fs::read_to_string(&requirements).unwrap();
    // Written when all of them were there.
    if fs::read_to_string(&installed).is_ok_and(|have| have == wanted) {
        return Some(program);
    }
    let run = |what: &str, command: &mut Command| {
        let failed = match command.output() {
            Ok(output) if output.status.success() => return Some(()),
            Ok(output) => String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_string(),
            Err(error) => error.to_string(),
        };
        println!("skipped: {what} ({failed})");
        None
    };
    let _ = fs::remove_dir_all(&home);
    run("Python cannot make an environment", Command::new("python3").args(["-m", "venv"]).arg(&home))?;
    let mut pip = Command::new(&program);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--disable-pip-version-check",
        "--only-binary",
        ":all:",
        "-r",
    ]);
    run("the packages cannot be installed", pip.arg(&requirements))?;
    fs::write(&installed, wanted).unwrap();
    Some(program)
}

#[test]
fn tools_of_the_field_read_what_is_written() {
    let Some(python) = python() else { return };
    let scratch = Scratch::new();
    // Far from a = 1, where powers of a do not show.
    let words = ["--box", "60", "--a-end", "0.25", "--hdf5"];
    Call::simulate(&scratch.join("one"), &[&words[..], &["one"]].concat()).on(Ranks::Threads(2)).succeeds();
    Call::simulate(&scratch.join("parts"), &[&words[..], &["per-rank"]].concat()).on(Ranks::Threads(3)).succeeds();

    let run: Value = serde_json::from_slice(&fs::read(scratch.join("one/run.json")).unwrap()).unwrap();
    let cosmology = &run["cosmology"];
    let (h, omega_m, omega_b) = (&cosmology["h"], &cosmology["Omega_m"], &cosmology["Omega_b"]);
    let truth = json!({ "a": 0.25, "box": 60.0, "h": h, "Omega_m": omega_m, "Omega_b": omega_b });
    scratch.file("truth.json", truth.to_string());

    let info = SnapshotInfo {
        count: 512,
        box_size: 60.0,
        scale_factor: 0.25,
        omega_m: omega_m.as_f64().unwrap(),
        omega_b: omega_b.as_f64().unwrap(),
        h: h.as_f64().unwrap(),
        omega_r: cosmology["Omega_r"].as_f64().unwrap(),
        dark_energy: [-1.0, 0.0],
    };
    let groups = Groups {
        label: &[8, 3, 500],
        count: &[3, 2, 2],
        mass: &[3.5, 2.25, 2.0],
        center: &[[1.0, 2.0, 3.0], [59.0, 0.5, 7.0], [30.0, 31.0, 32.5]],
        velocity: Some(&[[100.0, -200.0, 300.0], [0.0, 1.0, 2.0], [-5.5, 6.0, 7.0]]),
        inertia_radius: &[0.1, 0.2, 0.3],
        velocity_dispersion: Some(&[50.0, 60.0, 70.0]),
        max_radius: &[0.3, 0.4, 0.5],
        scale_factor: None,
        spheres: &[],
        offset: &[0, 3, 5, 7],
        members: Some(&[8, 9, 10, 3, 4, 500, 501]),
    };
    write_groups(scratch.join("groups.0.hdf5"), &info, &groups).unwrap();
    let written = json!({
        "label": groups.label, "count": groups.count, "mass": groups.mass, "center": groups.center,
        "velocity": groups.velocity, "members": groups.members,
    });
    scratch.file("groups.json", written.to_string());

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/read_hdf5.py");
    let output = Command::new(python)
        .arg(script)
        .arg(scratch.path())
        // What they keep between runs, beside the environment and not with the user's own.
        .env("NUMBA_CACHE_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("numba"))
        .env("MPLCONFIGDIR", scratch.path())
        .env("XDG_CONFIG_HOME", scratch.path())
        .env("HOME", scratch.path())
        .output()
        .unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert!(output.status.success() && said.ends_with("all agree\n"), "{said}\n{wrong}");
}
