//! `meshloom fof` against plain sums over groups of all pairs, over any number of ranks, and its
//! errors; groups of simulations.

use std::fs;

use super::cli::{Call, Ranks, Scratch, has_mpi};
use approx::assert_relative_eq;
use meshloom::io::{NpyElement, NpyFile, NpyWriter, NpzFile, token};

const SIDES: [f64; 3] = [8.0, 5.0, 0.0];

/// Coordinates on a lattice of quarters, some of them outside of the box by less than a side:
/// squares of distances are exact in f32.
fn lattice(count: usize, dims: usize) -> Vec<f32> {
    let mut state = 12_345u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 16) % 48) as f32 / 4.0 - 2.0
    };
    (0..count * dims).map(|_| next()).collect()
}

fn save<T: NpyElement>(scratch: &Scratch, name: &str, shape: &[u64], values: &[T]) -> String {
    let writer = NpyWriter::create(scratch.join(name), shape, &token()).unwrap();
    writer.write(0, values).unwrap();
    writer.finish().unwrap();
    scratch.word(name)
}

/// Returns the difference to the nearest image along an axis.
fn image(d: f64, side: f64) -> f64 {
    if side > 0.0 { d - side * (d / side).round() } else { d }
}

/// Returns the smallest index in each point's group.
fn labels(points: &[f32], dims: usize, length: f64) -> Vec<i64> {
    let points: Vec<&[f32]> = points.chunks(dims).collect();
    let near = |a: &[f32], b: &[f32]| {
        let d = (0..dims).map(|axis| image(f64::from(a[axis]) - f64::from(b[axis]), SIDES[axis]));
        d.map(|d| d * d).sum::<f64>() <= length * length
    };
    let mut labels: Vec<i64> = (0..points.len() as i64).collect();
    // Until nothing changes.
    loop {
        let before = labels.clone();
        for i in 0..points.len() {
            for j in 0..i {
                if near(points[i], points[j]) {
                    let least = labels[i].min(labels[j]);
                    (labels[i], labels[j]) = (least, least);
                }
            }
        }
        if labels == before {
            return labels;
        }
    }
}

fn reals(file: &NpzFile, name: &str) -> Vec<f64> {
    let member = file.member(name).unwrap();
    assert_eq!(member.dtype().to_string(), "float32", "{name}");
    member.read_f64(0..member.len()).unwrap()
}

fn integers(file: &NpzFile, name: &str) -> Vec<i64> {
    let member = file.member(name).unwrap();
    assert_eq!(member.dtype().to_string(), "int64", "{name}");
    member.read_i64(0..member.len()).unwrap()
}

/// Runs it on one rank, on four, and under MPI where there is one; the bytes of both files must be
/// the same.
fn same(scratch: &Scratch, words: &[&str]) {
    let (groups, points) = (scratch.word("o.npz"), scratch.word("l.npy"));
    let mut ranks = vec![Ranks::Threads(1), Ranks::Threads(4)];
    if has_mpi() {
        ranks.push(Ranks::Mpi(3));
    }
    let mut first = None;
    for ranks in ranks {
        Call::new(&[&["fof", "-o", &groups, "--labels", &points], words].concat()).on(ranks).succeeds();
        let bytes = [&groups, &points].map(|path| fs::read(path).unwrap());
        assert!(first.get_or_insert_with(|| bytes.clone()) == &bytes, "{words:?} on {ranks:?}");
    }
}

/// Momenta that `simulate` has written are taken for velocities with a warning.
#[test]
fn momenta_are_told_from_velocities() {
    let s = Scratch::new();
    let run = s.word("run");
    for (kind, warns) in [("canonical", 1), ("peculiar", 0)] {
        let words = ["--steps", "1", "--linking-parameter", "0", "--velocities", kind];
        Call::simulate(run.as_ref(), &words).succeeds();
        let [points, velocities] = ["positions.npy", "velocities.npy"].map(|name| format!("{run}/{name}"));
        let output = s.word("g.npz");
        let outcome = Call::new(&["fof", &points, "--linking-length", "1", "-o", &output, "--velocities", &velocities]);
        let outcome = outcome.on(Ranks::Threads(2)).run();
        assert!(outcome.status.success(), "{outcome:#?}");
        assert_eq!(outcome.stderr.matches("these are canonical momenta").count(), warns, "{outcome:#?}");
    }
}

#[test]
fn groups_are_those_of_all_pairs() {
    let s = Scratch::new();
    let n = 400;
    let points = lattice(n, 3);
    let mass: Vec<f32> = (0..n).map(|i| 0.5 + (i % 7) as f32).collect();
    let velocity: Vec<f64> = (0..3 * n).map(|i| (i * i % 101) as f64 - 50.0).collect();
    let input = save(&s, "p.npy", &[n as u64, 3], &points);
    let (masses, velocities) = (save(&s, "m.npy", &[n as u64], &mass), save(&s, "v.npy", &[n as u64, 3], &velocity));
    same(
        &s,
        &[&input, "--linking-length", "0.7", "--box", "8,5,open", "--min-members", "3", "--masses", &masses]
            .iter()
            .copied()
            .chain(["--velocities", &velocities, "--order", "mass", "--observer", "0,0,-50"])
            .collect::<Vec<_>>(),
    );
    let want = labels(&points, 3, 0.7);
    let found = NpyFile::open(s.join("l.npy")).unwrap();
    assert_eq!((found.dtype().to_string(), found.shape()), ("int64".into(), &[n as u64][..]));
    assert_eq!(found.read_i64(0..n as u64).unwrap(), want);

    let file = NpzFile::open(s.join("o.npz")).unwrap();
    file.check().unwrap();
    let names = "label count mass center velocity inertia_radius velocity_dispersion max_radius axes directions radial_velocity order offset";
    assert_eq!(file.names().collect::<Vec<_>>(), names.split(' ').collect::<Vec<_>>());
    let groups = groups_of(&want, &mass);
    assert!(groups.len() > 10, "{}", groups.len());
    assert_eq!(integers(&file, "label"), groups.iter().map(|group| group.label).collect::<Vec<_>>());
    assert_eq!(integers(&file, "count"), groups.iter().map(|group| group.members.len() as i64).collect::<Vec<_>>());
    let members: Vec<i64> = groups.iter().flat_map(|group| group.members.iter().map(|&i| i as i64)).collect();
    assert_eq!(integers(&file, "order"), members);
    let mut ends = vec![0];
    groups.iter().for_each(|group| ends.push(ends[ends.len() - 1] + group.members.len() as i64));
    assert_eq!(integers(&file, "offset"), ends);
    assert_eq!(file.member("center").unwrap().shape(), [groups.len() as u64, 3]);
    assert_eq!(file.member("directions").unwrap().shape(), [groups.len() as u64, 3, 3]);
    moments_are_those_of_members(&file, &groups, &points, &mass, &velocity);
}

/// A group of three members at least.
struct Group {
    label: i64,
    members: Vec<usize>,
    mass: f64,
}

/// Returns the groups of these labels, heaviest first.
fn groups_of(labels: &[i64], mass: &[f32]) -> Vec<Group> {
    let mut groups = Vec::new();
    for label in 0..labels.len() as i64 {
        let members: Vec<usize> = (0..labels.len()).filter(|&i| labels[i] == label).collect();
        let mass = members.iter().map(|&i| f64::from(mass[i])).sum();
        if members.len() >= 3 {
            groups.push(Group { label, members, mass });
        }
    }
    groups.sort_by(|a, b| b.mass.total_cmp(&a.mass).then(a.label.cmp(&b.label)));
    groups
}

fn moments_are_those_of_members(file: &NpzFile, groups: &[Group], points: &[f32], mass: &[f32], velocity: &[f64]) {
    let read = |name: &str| reals(file, name);
    let (sums, center, mean) = (read("mass"), read("center"), read("velocity"));
    let (radius, spread, largest) = (read("inertia_radius"), read("velocity_dispersion"), read("max_radius"));
    let (axes, radial) = (read("axes"), read("radial_velocity"));
    for (row, Group { label, members, mass: sum }) in groups.iter().enumerate() {
        let first = *label as usize;
        let offset = |i: usize| {
            [0, 1, 2].map(|a| image(f64::from(points[3 * i + a]) - f64::from(points[3 * first + a]), SIDES[a]))
        };
        let weigh = |of: &dyn Fn(usize) -> f64| members.iter().map(|&i| f64::from(mass[i]) * of(i)).sum::<f64>() / sum;
        let middle = [0, 1, 2].map(|a| weigh(&|i| offset(i)[a]));
        let motion = [0, 1, 2].map(|a| weigh(&|i| velocity[3 * i + a]));
        let away = |i: usize| (0..3).map(|a| (offset(i)[a] - middle[a]).powi(2)).sum::<f64>();
        let speed = |i: usize| (0..3).map(|a| (velocity[3 * i + a] - motion[a]).powi(2)).sum::<f64>();
        // Rounding to f32 of the file, twice for small differences of coordinates of some 10.
        let close = |have: f64, want: f64, what: &str| {
            let right = (have - want).abs() <= 2e-6 + 2e-7 * want.abs();
            assert!(right, "{what} of {label}: {have}, not {want}");
        };
        close(sums[row], *sum, "mass");
        for a in 0..3 {
            let at = f64::from(points[3 * first + a]) + middle[a];
            close(image(center[3 * row + a] - at, SIDES[a]), 0.0, "center");
            assert!(SIDES[a] == 0.0 || (0.0..SIDES[a]).contains(&center[3 * row + a]));
            close(mean[3 * row + a], motion[a], "velocity");
        }
        close(radius[row], weigh(&away).sqrt(), "inertia radius");
        close(spread[row], weigh(&speed).sqrt(), "dispersion");
        close(largest[row], members.iter().map(|&i| away(i)).fold(0.0, f64::max).sqrt(), "largest");
        close(axes[3 * row..3 * row + 3].iter().map(|x| x * x).sum::<f64>().sqrt(), radius[row], "axes");
        let line = [center[3 * row], center[3 * row + 1], center[3 * row + 2] + 50.0];
        let distance = line.iter().map(|x| x * x).sum::<f64>().sqrt();
        close(radial[row], (0..3).map(|a| line[a] / distance * mean[3 * row + a]).sum(), "radial");
    }
}

/// Returns what `numpy.save` makes of `numpy.array([x, y, z]).T`: columns, one after the other.
#[test]
fn files_in_fortran_order_have_the_same_groups() {
    let s = Scratch::new();
    let (points, n) = (lattice(400, 3), 400);
    let velocity: Vec<f32> = (0..3 * n).map(|i| (i * i % 101) as f32 - 50.0).collect();
    let columns = |name: &str, rows: &[f32]| {
        let shape = format!("{{'descr': '>f8', 'fortran_order': True, 'shape': ({n}, 3), }}\n");
        let mut bytes = [&b"\x93NUMPY\x01\x00"[..], &(shape.len() as u16).to_le_bytes(), shape.as_bytes()].concat();
        for column in 0..3 {
            bytes.extend(rows.iter().skip(column).step_by(3).flat_map(|&x| f64::from(x).to_be_bytes()));
        }
        s.file(name, bytes)
    };
    let rows = [save(&s, "p.npy", &[n, 3], &points), save(&s, "v.npy", &[n, 3], &velocity)];
    let columns = [columns("pf.npy", &points), columns("vf.npy", &velocity)];
    let [want, got] = [rows, columns].map(|[points, velocities]| {
        same(
            &s,
            &[
                &points,
                "--velocities",
                &velocities,
                "--linking-length",
                "0.8",
                "--box",
                "8,5,open",
                "--min-members",
                "3",
            ],
        );
        ["o.npz", "l.npy"].map(|name| fs::read(s.join(name)).unwrap())
    });
    assert!(want == got);
}

#[test]
fn lengths_orders_axes_and_no_points() {
    let s = Scratch::new();
    let points = lattice(300, 2);
    let input = save(&s, "p.npy", &[300, 2], &points);
    // The mean separation is the root of 8 * 5 / 300: 0.7 of it are 0.26, between one step of the
    // lattice and its diagonal.
    same(&s, &[&input, "--linking-parameter", "0.7", "--box", "8,5", "--min-members", "1", "--order", "label"]);
    let want = labels(&points, 2, 0.26);
    let found = NpyFile::open(s.join("l.npy")).unwrap();
    assert_eq!(found.read_i64(0..300).unwrap(), want);
    let file = NpzFile::open(s.join("o.npz")).unwrap();
    let roots: Vec<i64> = (0..300).filter(|&i| want[i as usize] == i).collect();
    assert!((20..280).contains(&roots.len()), "{}", roots.len());
    assert_eq!(integers(&file, "label"), roots);
    assert!(file.names().all(|name| !name.contains("velocity")));
    assert_eq!(file.member("center").unwrap().shape(), [roots.len() as u64, 2]);
    let none = save::<f32>(&s, "none.npy", &[0, 3], &[]);
    same(&s, &[&none, "--linking-length", "1"]);
    let file = NpzFile::open(s.join("o.npz")).unwrap();
    assert_eq!((file.member("label").unwrap().len(), integers(&file, "offset")), (0, vec![0]));
}

/// A center between the last number before the side and the side is 0 in a file of f32, not the
/// side.
#[test]
fn no_center_is_the_side() {
    let s = Scratch::new();
    let input = save(&s, "p.npy", &[2, 3], &[0.999_999_94_f32, 0.5, 0.5, 0.0, 0.5, 0.5]);
    Call::new(&["fof", &input, "--linking-length", "0.1", "--box", "1", "--min-members", "1", "-o", &s.word("o.npz")])
        .succeeds();
    let file = NpzFile::open(s.join("o.npz")).unwrap();
    assert_eq!(reals(&file, "center"), [0.0, 0.5, 0.5]);
}

#[test]
fn a_report_says_what_was_done() {
    let s = Scratch::new();
    let input = save(&s, "p.npy", &[50, 2], &lattice(50, 2));
    let words = ["fof", &input, "--linking-length", "1", "--box", "16", "-o", &s.word("o.npz"), "--json"];
    let outcome = Call::new(&words).on(Ranks::Threads(2)).succeeds();
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((&report["command"], &report["points"], &report["ranks"]), (&"fof".into(), &50.into(), &2.into()));
    assert_eq!((&report["linking_length"], &report["min_members"]), (&1.0.into(), &20.into()));
    let file = NpzFile::open(s.join("o.npz")).unwrap();
    assert_eq!(report["groups"], file.member("label").unwrap().len());
    for phase in ["read", "link", "measure", "write", "total"] {
        assert!(report["seconds"][phase].as_f64().is_some_and(|seconds| seconds > 0.0), "{phase}: {report}");
    }
    assert_eq!(report["host_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), cfg!(target_os = "linux"));
}

#[test]
fn wrong_words_and_bad_files_are_errors_that_leave_nothing() {
    let s = Scratch::new();
    let mut points = lattice(30, 3);
    let good = save(&s, "good.npy", &[30, 3], &points);
    points[3 * 17 + 1] = f32::NAN;
    let nan = save(&s, "nan.npy", &[30, 3], &points);
    let mut masses = vec![1.0f32; 30];
    let short = save(&s, "short.npy", &[29], &masses[1..]);
    (masses[29], masses[21]) = (f32::NAN, -1.0);
    let negative = save(&s, "negative.npy", &[30], &masses);
    let heavy = save(&s, "heavy.npy", &[30], &[1e38f32; 30]);
    let mut velocities = [3e38f32; 90];
    velocities.iter_mut().step_by(2).for_each(|v| *v = -*v);
    let fast = save(&s, "fast.npy", &[30, 3], &velocities);
    let mut masses = [1.0f64; 30];
    (masses[28], masses[11]) = (f64::NAN, 1e39);
    let wide = save(&s, "wide.npy", &[30], &masses);
    let light = save(&s, "light.npy", &[30], &[1e-50f64; 30]);
    let missing = s.word("missing.npy");
    let (output, labels) = (s.word("o.npz"), s.word("l.npy"));
    let respelled = format!("{}/./l.npy", s.path().display());
    let fof = |words: &[&str]| Call::new(&[&["fof", "-o", &output, "--labels", &labels], words].concat());
    let length = ["--linking-length", "1"];
    let with = |words: &[&str]| fof(&[words, &length].concat());
    let all = |words: &[&str]| fof(&[&[good.as_str(), "--linking-length", "100"], words].concat());
    let cases = [
        (fof(&[&good]), 2, "--linking-length"),
        (fof(&[&good, "--linking-length", "1", "--linking-parameter", "0.2"]), 2, "cannot be used with"),
        (fof(&[&good, "--linking-length", "-1"]), 2, "from 0"),
        (fof(&[&good, "--linking-parameter", "nan", "--box", "1"]), 2, "from 0"),
        (fof(&[&good, "--linking-parameter", "0.2"]), 2, "needs a box"),
        (fof(&[&good, "--linking-parameter", "0.2", "--box", "8,open,4"]), 2, "needs a box"),
        (with(&[&good, "--min-members", "0"]), 2, "--min-members"),
        (with(&[&good, "--order", "size"]), 2, "--order"),
        (with(&[&good, "--observer", "0,0,0"]), 2, "--velocities"),
        (with(&[&good, "--velocities", &good, "--observer", "0,0"]), 2, "3 finite"),
        (with(&[&good, "--box", "8,4"]), 2, "--box"),
        (with(&["-"]), 2, "standard input"),
        (with(&[&good, "--masses", "-"]), 2, "standard input"),
        (Call::new(&[&["fof", &good, "-o", &labels, "--labels", &labels], &length[..]].concat()), 2, "same file"),
        (Call::new(&[&["fof", &good, "-o", &labels, "--labels", &respelled], &length[..]].concat()), 2, "same file"),
        (with(&[&nan]), 1, "(17, 1)"),
        (with(&[&good, "--velocities", &nan]).on(Ranks::Threads(3)), 1, "(17, 1)"),
        (with(&[&good, "--masses", &short]), 1, "(29,)"),
        (with(&[&good, "--masses", &good]), 1, "(30, 3)"),
        (with(&[&good, "--velocities", &negative]), 1, "(30,)"),
        (with(&[&good, "--masses", &negative]).on(Ranks::Threads(3)), 1, "negative.npy: the element at (21,) is -1"),
        // One group of all, whose mass or motion f32 cannot hold; and values that it cannot.
        (all(&["--masses", &heavy]), 1, "`mass` of the group with label 0 is 2.9999"),
        (all(&["--masses", &heavy]).on(Ranks::Threads(3)), 1, "`mass` of the group with label 0 is 2.9999"),
        (all(&["--velocities", &fast]).on(Ranks::Threads(3)), 1, "`velocity_dispersion` of the group with label 0"),
        (all(&["--masses", &wide]).on(Ranks::Threads(3)), 1, "wide.npy: the element at (11,) is 1e39, beyond"),
        (all(&["--masses", &light]).on(Ranks::Threads(3)), 1, "light.npy: the element at (0,) is 1e-50, beyond"),
        (with(&[&good, "--masses", &missing]), 1, "no such file"),
        (with(&[&missing]), 1, "no such file"),
    ];
    s.all_fail(cases);
    if has_mpi() {
        s.all_fail([(with(&[&nan]).on(Ranks::Mpi(2)), 1, "(17, 1)")]);
    }
}

/// A run finds what `fof` finds in its files, on any number and grid of ranks.
#[test]
fn a_simulation_finds_its_halos() {
    let s = Scratch::new();
    let words = ["--particles", "16", "--mesh", "16", "--box", "16", "--steps", "3"];
    let run = |name: &str, ranks: Ranks, more: &[&str]| {
        let out = s.join(name);
        Call::simulate(&out, &[&words, more].concat()).on(ranks).succeeds();
        out
    };
    let one = run("one", Ranks::Threads(1), &["--linking-parameter", "0.25"]);
    let many = run("many", Ranks::Threads(4), &["--grid", "2x2", "--linking-parameter", "0.25"]);
    let files = ["halos.npz", "mass_function.csv", "mass_function.png"];
    for name in files {
        assert!(fs::read(one.join(name)).unwrap() == fs::read(many.join(name)).unwrap(), "{name}");
    }
    let report: serde_json::Value = serde_json::from_slice(&fs::read(one.join("run.json")).unwrap()).unwrap();
    let (halos, groups) = (NpzFile::open(one.join("halos.npz")).unwrap(), s.word("groups.npz"));
    let positions = one.join("positions.npy");
    let again = ["fof", positions.to_str().unwrap(), "--box", "16", "--linking-parameter", "0.25", "-o", &groups];
    Call::new(&again).succeeds();
    let groups = NpzFile::open(&groups).unwrap();
    assert!(!integers(&halos, "label").is_empty(), "{report:#}");
    for name in ["label", "count", "order", "offset"] {
        assert_eq!(integers(&halos, name), integers(&groups, name), "{name}");
    }
    for name in ["center", "inertia_radius", "max_radius"] {
        assert_eq!(reals(&halos, name), reals(&groups, name), "{name}");
    }
    assert_eq!(report["halos"]["count"], integers(&halos, "label").len());
    // Mass: what the box holds, shared out. Omega_m 2.77536627e11 (16 / 16)^3 Msun/h.
    let particle = report["halos"]["particle_mass"].as_f64().unwrap();
    assert_relative_eq!(
        particle,
        report["cosmology"]["Omega_m"].as_f64().unwrap() * 2.775_366_27e11,
        max_relative = 1e-9
    );
    for (mass, count) in reals(&halos, "mass").iter().zip(integers(&halos, "count")) {
        assert_relative_eq!(*mass, particle * count as f64, max_relative = 1e-7);
    }
    // Velocity: 100 p / a of the members.
    let momenta = NpyFile::open(one.join("velocities.npy")).unwrap().read_f64(0..3 * 4096).unwrap();
    let (order, offset) = (integers(&halos, "order"), integers(&halos, "offset"));
    for axis in 0..3 {
        let members = &order[offset[0] as usize..offset[1] as usize];
        let mean = members.iter().map(|&i| momenta[3 * i as usize + axis]).sum::<f64>() / members.len() as f64;
        assert_relative_eq!(reals(&halos, "velocity")[axis], 100.0 * mean, max_relative = 1e-5, epsilon = 1e-3);
    }
    let none = run("none", Ranks::Threads(1), &[]);
    assert!(files.iter().all(|name| !none.join(name).exists()));
}

/// Spheres about groups in a box: a mass is a number of points, which fill the radius with the
/// density that was asked for.
#[test]
fn groups_have_spherical_overdensities() {
    let scratch = Scratch::new();
    // Thirty points on a line across the box's face, and a lattice of 5^3.
    let line = (0..30).flat_map(|i| [(9.7 + 0.02 * i as f32) % 10.0, 5.0, 5.0]);
    let lattice = (0..125).flat_map(|i| [i / 25, i / 5 % 5, i % 5].map(|n| 2.0 * n as f32 + 1.0));
    let points = save(&scratch, "points.npy", &[155, 3], &line.chain(lattice).collect::<Vec<f32>>());
    let words = ["fof", &points, "--linking-length", "0.1", "--box", "10", "--overdensity", "100m,1e6m"];
    let run = |name: &str, ranks: Ranks| {
        let out = scratch.word(name);
        let said = Call::new(&words).words(&["-o", &out, "--json"]).on(ranks).succeeds().stdout;
        assert!(said.contains("\"overdensities\""), "{said}");
        fs::read(&out).unwrap()
    };
    assert!(run("one.npz", Ranks::Threads(1)) == run("three.npz", Ranks::Threads(3)));
    let groups = NpzFile::open(scratch.join("one.npz")).unwrap();
    let (mass, radius) = (reals(&groups, "mass_100m"), reals(&groups, "radius_100m"));
    // Thirty points fill a sphere of 0.77 at 15.5 per unit of volume; the line ends 0.29 from its
    // middle, and the lattice begins at 0.99.
    assert_eq!((mass.len(), mass[0]), (1, 30.0));
    let filled = (0.75 / std::f64::consts::PI * 30.0 / 15.5).cbrt();
    assert!((radius[0] - filled).abs() < 1e-6, "{} {filled}", radius[0]);
    // Ten points are not a million times as dense.
    assert_eq!((reals(&groups, "mass_1000000m"), reals(&groups, "radius_1000000m")), (vec![0.0], vec![0.0]));
    let out = scratch.word("no.npz");
    let wrong = |sides: &str, overdensity: &str, says: &str| {
        let words =
            ["fof", &points, "--linking-length", "0.1", "--box", sides, "--overdensity", overdensity, "-o", &out];
        Call::new(&words).run().is_error(says, 2, &[says]);
    };
    wrong("10", "200c", "needs a cosmology");
    wrong("10,10,open", "200m", "needs a box");
    // Of no points there are the same columns, without rows.
    let empty = scratch.word("empty.npz");
    let none = save(&scratch, "none.npy", &[0, 3], &[0f32; 0]);
    Call::new(&["fof", &none, "--linking-length", "0.1", "--box", "10", "--overdensity", "100m,1e6m", "-o", &empty])
        .succeeds();
    let columns = NpzFile::open(&empty).unwrap();
    for name in ["mass_100m", "radius_100m", "mass_1000000m", "radius_1000000m"] {
        assert_eq!(reals(&columns, name), [0.0; 0], "{name}");
    }
    wrong("10", "200", "is no overdensity");
}
