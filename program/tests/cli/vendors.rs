//! One job on devices of two vendors: lavapipe and SwiftShader, as threads of one process and as
//! processes of MPI with a driver each.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use meshloom::io::{NpyElement, NpyFile, NpyWriter, NpzFile, token};
use serde_json::Value;

use super::cli::{Scratch, has_mpi, launcher, program};

/// Returns the files of both drivers; `None` if one is missing.
fn drivers() -> Option<[PathBuf; 2]> {
    let icd = |variable: &str, default: PathBuf| env::var_os(variable).map_or(default, PathBuf::from);
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/swiftshader/vk_swiftshader_icd.json");
    let found = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"].iter().flat_map(fs::read_dir).flatten().flatten();
    let lavapipe = found.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("lvp_icd"));
    let both = [lavapipe.unwrap_or_default(), icd("MESHLOOM_TEST_SWIFTSHADER", own)];
    let there = both.iter().all(|path| path.is_file());
    if !there {
        println!(
            "skipped: lavapipe or SwiftShader is missing (MESHLOOM_TEST_SWIFTSHADER names the file of the second)"
        );
    }
    there.then_some(both)
}

fn run(command: &mut Command) -> Output {
    for (name, _) in env::vars().filter(|(name, _)| name.starts_with("MESHLOOM_")) {
        command.env_remove(name);
    }
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pipelines");
    let output = command.env("MESHLOOM_CACHE", cache).env("LP_NUM_THREADS", "1").output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Makes a call on one rank with the first driver, as threads with both in turn, and as processes
/// with one each; `out` is the word for what it writes, which differs between them.
fn on_both(drivers: &[PathBuf; 2], words: &[&str], outs: &[String; 3]) {
    let words =
        |out: &str| words.iter().map(|word| if *word == "OUT" { out } else { word }.to_string()).collect::<Vec<_>>();
    run(Command::new(program()).args(words(&outs[0])).env("VK_DRIVER_FILES", &drivers[0]));
    let all = env::join_paths(drivers).unwrap();
    run(Command::new(program()).args(words(&outs[1])).args(["--ranks", "2"]).env("VK_DRIVER_FILES", all));
    if !has_mpi() {
        return;
    }
    let mut launcher = launcher();
    for (number, driver) in drivers.iter().enumerate() {
        if number > 0 {
            launcher.arg(":");
        }
        // The way to pass a variable through a launcher differs between them.
        launcher.args(["-n", "1", "env", &format!("VK_DRIVER_FILES={}", driver.display())]).arg(program());
        launcher.args(words(&outs[2]));
    }
    launcher.env("OMPI_MCA_mpi_yield_when_idle", "1");
    run(&mut launcher);
}

/// Names of what one rank, two threads and two processes write.
fn outs(scratch: &Scratch, name: &str) -> [String; 3] {
    ["one", "threads", "processes"].map(|how| scratch.word(&format!("{how}-{name}")))
}

/// Returns the files that were written: without MPI the first two.
fn written(outs: &[String; 3]) -> impl Iterator<Item = &Path> {
    outs.iter().map(Path::new).filter(|path| path.exists())
}

fn save<T: NpyElement>(scratch: &Scratch, name: &str, shape: &[u64], values: &[T]) -> String {
    let writer = NpyWriter::create(scratch.join(name), shape, &token()).unwrap();
    writer.write(0, values).unwrap();
    writer.finish().unwrap();
    scratch.word(name)
}

/// Points on a lattice of whole sixteenths, many at equal distances: whatever rounds shows.
fn points() -> Vec<f32> {
    let mix = |i: u32| i.wrapping_mul(2_654_435_761).rotate_left(13).wrapping_mul(2_246_822_519);
    (0..3 * 3000u32).map(|i| (mix(i) >> 24) as f32 / 16.0).collect()
}

#[test]
fn orders_neighbors_and_groups_are_the_same_bits() {
    let Some(drivers) = drivers() else { return };
    let scratch = Scratch::new();
    let points = save(&scratch, "points.npy", &[3000, 3], &points());
    for (name, words) in [
        ("order.npy", vec!["sort", &points, "-o", "OUT"]),
        ("nearest.npz", vec!["knn", &points, "-k", "5", "--box", "16", "-o", "OUT"]),
        (
            "groups.npz",
            vec!["fof", &points, "--linking-length", "0.5", "--min-members", "3", "--box", "16", "-o", "OUT"],
        ),
        ("pairs.csv", vec!["pairs", &points, "--bins", "EDGES", "--box", "16", "-o", "OUT"]),
    ] {
        let edges = scratch.file("edges.txt", "0\n0.25\n0.5\n1\n");
        let words: Vec<&str> =
            words.into_iter().map(|word| if word == "EDGES" { edges.as_str() } else { word }).collect();
        let outs = outs(&scratch, name);
        on_both(&drivers, &words, &outs);
        let bytes: Vec<Vec<u8>> = written(&outs).map(|path| fs::read(path).unwrap()).collect();
        assert!(bytes.len() > 1);
        if name != "groups.npz" {
            assert!(bytes.iter().all(|other| *other == bytes[0]), "{name}");
            continue;
        }
        // Groups are the same; their shapes have roots and eigenvalues of sums that are the same.
        let of = |path: &Path| {
            let file = NpzFile::open(path).unwrap();
            ["label", "count", "order", "offset"].map(|name| {
                let array = file.member(name).unwrap();
                array.read_i64(0..array.len()).unwrap()
            })
        };
        let all: Vec<_> = written(&outs).map(of).collect();
        assert!(all[0][0].len() > 10 && all.iter().all(|other| *other == all[0]), "{name}");
    }
}

#[test]
fn simulations_and_transforms_agree_to_rounding() {
    let Some(drivers) = drivers() else { return };
    let scratch = Scratch::new();
    let outs_of = outs(&scratch, "run");
    let words = "simulate --particles 16 --mesh 32 --box 64 --steps 3 --linking-parameter 0 --out OUT";
    on_both(&drivers, &words.split(' ').collect::<Vec<_>>(), &outs_of);
    let state = |out: &Path| {
        ["positions.npy", "velocities.npy"]
            .map(|name| NpyFile::open(out.join(name)).unwrap().read_f64(0..3 * 4096).unwrap())
    };
    let one = state(Path::new(&outs_of[0]));
    for out in written(&outs_of).skip(1) {
        let run: Value = serde_json::from_slice(&fs::read(out.join("run.json")).unwrap()).unwrap();
        let names: Vec<&str> = run["devices"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        assert!(
            names.len() == 2
                && ["llvmpipe", "SwiftShader"].iter().all(|driver| names.iter().any(|name| name.contains(driver))),
            "{names:?}"
        );
        let [positions, momenta] = state(out);
        // Transforms of 15 levels and steps round as much as one device does beside another
        // (tests/cli.rs): 2 * 3 * 15 * 4 halves of an epsilon, of the largest displacement or
        // momentum; positions once more, as numbers up to 64.
        let relative = 2.0 * 3.0 * 15.0 * 4.0 * f64::from(f32::EPSILON) / 2.0;
        let near = |d: f64| (d - 64.0 * (d / 64.0).round()).abs();
        let moved = positions.iter().zip(&one[0]).map(|(x, y)| near(x - y)).fold(0.0, f64::max);
        assert!(moved <= relative * 30.0 + 64.0 * f64::from(f32::EPSILON), "positions differ by {moved}");
        let largest = one[1].iter().fold(0.0, |most: f64, p| most.max(p.abs()));
        let moved = momenta.iter().zip(&one[1]).map(|(p, q)| (p - q).abs()).fold(0.0, f64::max);
        assert!(moved <= relative * largest, "momenta differ by {moved} of {largest}");
    }
    let field: Vec<f32> = points().into_iter().take(1728).collect();
    let input = save(&scratch, "field.npy", &[12, 12, 12], &field);
    let outs_of = outs(&scratch, "modes.npy");
    on_both(&drivers, &["fft", &input, "--real", "--precision", "f32", "-o", "OUT"], &outs_of);
    let modes = |path: &Path| NpyFile::open(path).unwrap().read_c64(0..12 * 12 * 7).unwrap();
    let one = modes(Path::new(&outs_of[0]));
    for out in written(&outs_of).skip(1) {
        // 11 levels of an epsilon of the root of the sum of squares.
        let size = field.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        for (a, b) in modes(out).iter().zip(&one) {
            let apart = (a[0] - b[0]).hypot(a[1] - b[1]);
            assert!(apart <= 12.0 * 11.0 * f64::from(f32::EPSILON) * size, "{apart} of {size}");
        }
    }
}

/// Each process works as its device would have it, and all send each other the same messages:
/// pieces of exchanges, and filters in one or in parts.
#[test]
fn ranks_of_both_profiles_work_together() {
    if !has_mpi() {
        return;
    }
    let scratch = Scratch::new();
    let job = |name: &str, profiles: [&str; 2]| {
        let mut launcher = launcher();
        let out = scratch.word(name);
        for (number, profile) in profiles.into_iter().enumerate() {
            launcher.args((number > 0).then_some(":"));
            launcher.args(["-n", "1", "env", &format!("MESHLOOM_PROFILE={profile}")]).arg(program());
            let words =
                format!("simulate --particles 16 --mesh 32 --box 64 --steps 2 --linking-parameter 0 --out {out}");
            launcher.args(words.split(' '));
        }
        launcher.env("OMPI_MCA_mpi_yield_when_idle", "1");
        run(&mut launcher);
        fs::read(Path::new(&out).join("positions.npy")).unwrap()
    };
    // Transforms are those of software renderers on both ranks; whatever else differs between the
    // profiles rounds nothing.
    assert!(job("mixed", ["software", "gpu"]) == job("alike", ["software", "software"]));
}
