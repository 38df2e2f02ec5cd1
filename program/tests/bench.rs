//! Output and errors of `meshloom bench`. Nothing here depends on how long anything takes.
#![cfg(all(feature = "reference", unix))]

#[path = "shared/cli.rs"]
mod cli;

use cli::{Call, Ranks, Scratch, has_mpi};
use serde_json::Value;

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Returns the object that a call prints.
fn report(line: &str, ranks: Ranks) -> Value {
    let call = Call::new(&words(&format!("bench {line} --json --runs 2"))).on(ranks);
    let outcome = call.run();
    assert!(outcome.status.success(), "{outcome:#?}");
    let report: Value = serde_json::from_str(&outcome.stdout).expect("one object");
    assert_eq!((&report["command"], report["runs"].as_u64()), (&"bench".into(), Some(2)), "{report:#}");
    for field in ["subject", "device", "driver", "ranks", "build", "warm_up"] {
        assert!(!report[field].is_null(), "{field}: {report:#}");
    }
    assert!(report["seconds"]["total"].as_f64() > Some(0.0), "{report:#}");
    report
}

/// Median, least and greatest, in order.
fn is_spread(seconds: &Value) {
    let [min, median, max] = ["min", "median", "max"].map(|name| seconds[name].as_f64().unwrap());
    assert!(0.0 < min && min <= median && median <= max, "{seconds:#}");
    assert!(seconds["repeats"].as_u64() >= Some(1), "{seconds:#}");
}

fn is_copy(report: &Value) {
    let copy = &report["copy"];
    assert!(copy["bytes_per_second"].as_f64() > Some(0.0), "{report:#}");
    is_spread(&copy["kernel"]);
    is_spread(&copy["driver"]);
}

fn is_compared(result: &Value) {
    let reference = &result["reference"];
    is_spread(&reference["seconds"]);
    let times = [&result["seconds"], &reference["seconds"]].map(|seconds| seconds["median"].as_f64().unwrap());
    let ratio = reference["ratio"].as_f64().unwrap();
    assert!((ratio / (times[0] / times[1]) - 1.0).abs() < 1e-9, "{result:#}");
}

#[test]
fn transforms() {
    let found = report("fft --size 8,12x10x9 --reference", Ranks::Threads(1));
    is_copy(&found);
    let results = found["results"].as_array().unwrap();
    let jobs: Vec<_> = results.iter().map(|result| (result["shape"].to_string(), result["values"].as_str())).collect();
    let job = |shape: &str, values| (shape.to_string(), Some(values));
    let [cube, odd] = ["[8,8,8]", "[12,10,9]"];
    assert_eq!(jobs, [job(cube, "complex"), job(cube, "real"), job(odd, "complex"), job(odd, "real")]);
    for result in results {
        assert!(["first", "again"].iter().all(|name| result["plan"][name].as_f64() > Some(0.0)), "{result:#}");
        for direction in ["forward", "inverse"].map(|direction| &result[direction]) {
            is_spread(&direction["seconds"]);
            assert_eq!(direction["bytes"]["between_ranks"], 0);
            assert!(direction["bytes_per_second"].as_f64() > Some(0.0) && direction["of_copy"].as_f64() > Some(0.0));
            is_compared(direction);
            assert!(direction["reference"]["threads"].as_u64() >= Some(1));
        }
    }
    // One read and one write an axis.
    assert_eq!(results[0]["forward"]["bytes"]["device"], 48 * 512);
    let several = report("fft --size 8 --real", Ranks::Threads(3));
    let results = several["results"].as_array().unwrap();
    assert_eq!((results.len(), several["ranks"].as_u64()), (1, Some(3)));
    assert!(results[0]["inverse"]["messages"].as_u64() >= Some(6), "{several:#}");
    assert!(results[0]["inverse"]["bytes"]["between_ranks"].as_u64() > Some(0), "{several:#}");
    assert!(results[0]["forward"]["reference"].is_null());
    let forced = report("fft --size 8 --complex --columns 4 --points 2", Ranks::Threads(1));
    let tuning = &forced["results"][0]["choice"]["tuning"];
    let chosen = ["columns", "points", "alone"].map(|name| tuning[name].as_u64());
    assert_eq!(chosen, [4, 2, 2].map(Some), "{forced:#}");
}

#[test]
fn exchanges() {
    let line = "exchange --size 8,16x8x12 --grid 2x2 --reference --chunk-bytes 100 --depth 2 --ranks 4";
    let found = report(line, Ranks::Threads(1));
    let results = found["results"].as_array().unwrap();
    assert_eq!(results.len(), 4, "two a mesh: {found:#}");
    for result in results {
        is_spread(&result["seconds"]);
        is_compared(result);
        assert_eq!(result["reference"]["same"], true, "{result:#}");
        assert_eq!((&result["chunk_bytes"], &result["depth"]), (&100.into(), &2.into()));
        assert!(result["bytes_per_second_a_rank"].as_f64() > Some(0.0), "{result:#}");
        // All is one rank's share, of which half stays.
        let cells = result["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).product::<u64>();
        assert_eq!(result["bytes"]["between_ranks"].as_u64(), Some(8 * cells / 2), "{result:#}");
        assert_eq!(result["bytes"]["a_rank"].as_u64(), Some(8 * cells / 8), "{result:#}");
        // Messages of 12 elements.
        assert_eq!(result["messages"].as_u64(), Some(4 * (cells / 8).div_ceil(12)), "{result:#}");
    }
    let scratch = Scratch::new();
    let file = scratch.word("machine.toml");
    let found = report(&format!("exchange --fit {file} --ranks 2"), Ranks::Threads(1));
    assert_eq!(found["machine"]["ranks_per_node"], 2, "{found:#}");
    for ratio in ["largest_ratio_of_fit", "largest_ratio_of_forecasts"] {
        assert!(found[ratio].as_f64() >= Some(1.0), "{found:#}");
    }
    let plan = format!("fft --plan-only --shape 64,64,64 --ranks 2 --json --machine {file}");
    let plan: Value = serde_json::from_str(&Call::new(&words(&plan)).succeeds().stdout).unwrap();
    assert!(plan["forward"]["seconds"].as_f64() > Some(0.0));
    Call::new(&words("bench exchange --size 8")).run().is_error("one rank", 2, &["two ranks", "--ranks 2"]);
}

/// A ring and collectives of these ranks; what MPI does by itself stands beside it where it runs
/// them.
fn messages(ranks: Ranks, mpi: bool) {
    let found = report("exchange --bytes 8,100000 --chunk-bytes 30000 --depth 2", ranks);
    let results = found["results"].as_array().unwrap();
    assert_eq!(results.len(), 2, "{found:#}");
    for (result, bytes) in results.iter().zip([8, 100_000]) {
        assert_eq!(result["bytes"], bytes);
        for ours in ["arrays", "vectors"].map(|name| &result[name]) {
            is_spread(&ours["seconds"]);
            assert!(ours["bytes_per_second_a_rank"].as_f64() > Some(0.0));
            assert_eq!(ours["reference"]["same"], true, "{result:#}");
            assert_eq!(ours["reference"]["ratio"].is_number(), mpi, "{result:#}");
        }
        assert_eq!(result["mpi"].is_object(), mpi, "{result:#}");
    }
    let found = report("collectives --bytes 8,200000", ranks);
    let results = found["results"].as_array().unwrap();
    assert_eq!(results.len(), 1 + 5 * 2 * 2, "{found:#}");
    for result in results {
        is_spread(&result["seconds"]);
        assert_eq!(result["reference"].is_object(), mpi, "{result:#}");
        if mpi {
            is_compared(result);
            assert_eq!(result["reference"]["same"], true, "{result:#}");
        }
    }
    let found = report("collectives --operations all-gather,barrier --bytes 16 --where host", ranks);
    assert_eq!([0, 1].map(|i| found["results"][i]["collective"].clone()), ["all-gather", "barrier"]);
    let found = report("collectives --operations barrier,all-reduce --bytes 16 --where device", ranks);
    assert_eq!((found["results"].as_array().unwrap().len(), &found["results"][0]["data"]), (1, &"device".into()));
}

#[test]
fn messages_and_collectives() {
    messages(Ranks::Threads(3), false);
}

#[test]
fn maps() {
    for ranks in [1, 3] {
        let found = report("map --size 500 --chunk 64,1000 --steps 20 --reference", Ranks::Threads(ranks));
        let results = found["results"].as_array().unwrap();
        assert_eq!(results.len(), 2, "{found:#}");
        for (result, chunk) in results.iter().zip([64, 1000]) {
            is_spread(&result["seconds"]);
            is_compared(result);
            assert_eq!(result["reference"]["same"], true, "{result:#}");
            // Rank 0 has the most.
            assert_eq!(result["chunks"], 500_u64.div_ceil(ranks as u64).div_ceil(chunk), "{result:#}");
        }
    }
}

#[test]
fn commands_by_themselves() {
    for ranks in [1, 2] {
        let found = report("commands --bytes 100,70000", Ranks::Threads(ranks));
        let results = found["results"].as_array().unwrap();
        let bytes: Vec<_> = results.iter().map(|result| result["bytes"]["device"].as_u64()).collect();
        let of_all = |bytes: u64| Some(ranks as u64 * bytes);
        let moved = [100, 70_000].map(|bytes| [bytes, bytes, 2 * bytes, 2 * bytes].map(of_all));
        assert_eq!(bytes, [[None; 13].as_slice(), moved.as_flattened()].concat(), "{found:#}");
        results.iter().for_each(|result| is_spread(&result["seconds"]));
        let median = |n: usize| results[n]["seconds"]["median"].as_f64().unwrap();
        assert_eq!(results[6]["what"], "a dispatch that depends on the one before");
        assert!(median(6) > 0.0);
    }
}

#[test]
fn memory_in_patterns() {
    let line = "memory --size 65536,131072 --row 32,8192 --stride 32,4096,131072 --sectors 32,1";
    let found = report(line, Ranks::Threads(2));
    is_copy(&found);
    let results = found["results"].as_array().unwrap();
    let [rows, additions] =
        ["rows", "additions"].map(|what| results.iter().filter(move |result| result["what"] == what));
    let number = |result: &Value, name: &str| result[name].as_u64().unwrap();
    let jobs: Vec<_> = rows
        .map(|result| (number(&result["bytes"], "device"), number(result, "row"), number(result, "stride")))
        .collect();
    // No stride is shorter than its row or longer than the array.
    let each = [(32, 32), (32, 4096), (32, 131_072), (8192, 131_072)];
    let want = |size: u64| {
        each.into_iter().filter(move |(_, stride)| *stride <= size).map(move |(row, stride)| (2 * size, row, stride))
    };
    assert_eq!(jobs, want(65_536).chain(want(131_072)).collect::<Vec<_>>());
    let jobs: Vec<_> =
        additions.map(|result| (number(&result["bytes"], "device"), number(result, "sectors"))).collect();
    assert_eq!(jobs, [(65_536, 32), (65_536, 1), (131_072, 32), (131_072, 1)]);
    results.iter().for_each(|result| is_spread(&result["seconds"]));
}

#[test]
fn staging_in_parts() {
    let found = report("staging --bytes 4096,10001", Ranks::Threads(2));
    let results = found["results"].as_array().unwrap();
    let bytes: Vec<_> = results.iter().map(|result| result["bytes"]["staging"].as_u64().unwrap()).collect();
    assert_eq!(bytes, [[4096; 7], [10_004; 7]].concat());
    results.iter().for_each(|result| is_spread(&result["seconds"]));
    // Memory of a software renderer is that of the process.
    assert_eq!(found["uploads_reachable"], true);
}

#[test]
fn halos() {
    for (ranks, width, messages) in [(1, 2, 0), (3, 1, 6), (3, 9, 6)] {
        let found = report(&format!("halo --size 8 --width {width} --reference"), Ranks::Threads(ranks));
        is_copy(&found);
        assert_eq!(found["width"], width);
        let results = found["results"].as_array().unwrap();
        assert_eq!(results.len(), 1, "{found:#}");
        for way in ["exchange", "reduce"].map(|way| &results[0][way]) {
            is_spread(&way["seconds"]);
            is_compared(way);
            assert_eq!(
                (&way["reference"]["same"], way["messages"].as_u64()),
                (&true.into(), Some(messages)),
                "{way:#}"
            );
            assert!(way["of_copy"].as_f64() > Some(0.0) && way["bytes"]["device"].as_u64() > Some(0), "{way:#}");
        }
    }
}

/// A tree, a search in it and both, compared with the host.
fn is_search(result: &Value, points: u64) {
    is_spread(&result["seconds"]);
    is_compared(result);
    for part in ["build", "search"] {
        is_spread(&result[part]["seconds"]);
        is_spread(&result["reference"][part]);
    }
    assert_eq!(result["reference"]["same"], true, "{result:#}");
    assert_eq!(result["points"], points);
    assert!(result["first"].as_f64() > Some(0.0) && result["nanoseconds_a_point"].as_f64() > Some(0.0), "{result:#}");
}

#[test]
fn nearest_neighbors() {
    let found = report("knn --size 700,5 -k 8,33 --box 2 --reference", Ranks::Threads(1));
    assert_eq!((&found["kind"], &found["box"]), (&"uniform".into(), &2.0.into()));
    let results = found["results"].as_array().unwrap();
    let jobs: Vec<_> = results.iter().map(|result| (result["size"].as_u64(), result["k"].as_u64())).collect();
    let job = |size, k| (Some(size), Some(k));
    assert_eq!(jobs, [job(700, 8), job(700, 33), job(5, 8), job(5, 33)]);
    for (result, (size, _)) in results.iter().zip(jobs) {
        is_search(result, size.unwrap());
        assert_eq!(result["rows_that_differ"], 0);
        // The order, the points, the boxes and what building takes besides.
        assert!(result["build"]["memory"].as_u64() >= Some(16 * size.unwrap()), "{result:#}");
        assert_eq!(result["search"]["memory"], 0, "results and nothing else: {result:#}");
    }
    let halo = report("knn --size 400 -k 8 --kind hernquist --reference", Ranks::Threads(2));
    is_search(&halo["results"][0], 800);
    assert!(halo["box"].is_null() && halo["results"][0]["build"]["memory"].is_null(), "{halo:#}");
}

#[test]
fn pairs_by_distance() {
    // A sphere of half the side around each point holds pi/6 of the others.
    for (line, expected) in [("--size 600", None), ("--size 300 --box 3 --radius 1.5 --bin-count 70", Some(46_967u64))]
    {
        let found = report(&format!("pairs {line} --reference"), Ranks::Threads(1));
        let result = &found["results"][0];
        is_search(result, result["size"].as_u64().unwrap());
        let count = result["pairs"].as_u64().unwrap();
        assert!(count > 0 && count & 1 == 0, "each pair twice: {result:#}");
        assert!(expected.is_none_or(|expected| count.abs_diff(expected) < expected / 20), "{result:#}");
    }
}

#[test]
fn groups_of_friends() {
    let found = report("fof --size 700,5 --linking-parameter 0.01,0.7,2 --box 2 --reference", Ranks::Threads(1));
    assert_eq!((&found["kind"], &found["min_members"]), (&"uniform".into(), &20.into()));
    let results = found["results"].as_array().unwrap();
    assert_eq!(results.len(), 6, "{found:#}");
    let sizes = [700u64, 5].map(|size| [0.01, 0.7, 2.0].map(|b: f64| (size, b)));
    for (result, (size, b)) in results.iter().zip(sizes.concat()) {
        is_search(result, size);
        assert_eq!(result["linking_parameter"], b);
        let length = b * 2.0 / (size as f64).cbrt();
        assert!((result["length"].as_f64().unwrap() / length - 1.0).abs() < 1e-6, "{result:#}");
        // A point has 4e-6, 1.4 or 33 neighbors: hardly a pair among 700, clumps, and all in one.
        let groups = result["groups"].as_u64().unwrap();
        match (size, b) {
            (700, 2.0) => assert_eq!(groups, 1),
            (700, 0.7) => assert!((2..=35).contains(&groups), "{result:#}"),
            _ => assert_eq!(groups, 0, "{result:#}"),
        }
    }
    let halo = report("fof --size 400 --kind hernquist --reference", Ranks::Threads(2));
    is_search(&halo["results"][0], 800);
    assert_eq!(halo["results"][0]["linking_parameter"], 0.2);
}

#[test]
fn sorts() {
    let found = report("sort --size 1000 --reference", Ranks::Threads(1));
    let results = found["results"].as_array().unwrap();
    let kinds: Vec<_> = results.iter().map(|result| (result["bits"].as_u64(), result["keys"].as_str())).collect();
    assert_eq!(
        kinds,
        [(63, "uniform"), (63, "clustered"), (32, "uniform")].map(|(bits, keys)| (Some(bits), Some(keys)))
    );
    for result in results {
        assert!(result["tied"].as_u64().unwrap() <= 1000, "{result:#}");
        is_compared(result);
        assert_eq!(result["reference"]["same"], true, "{result:#}");
    }
}

#[test]
fn steps_of_a_simulation() {
    for ranks in [1, 3] {
        let found = report("pm --size 6 --window cic,tsc --mesh-factor 1", Ranks::Threads(ranks));
        is_copy(&found);
        let results = found["results"].as_array().unwrap();
        let jobs: Vec<_> = results.iter().map(|result| (result["particles"].as_u64(), &result["window"])).collect();
        assert_eq!(jobs, [(Some(216), &"cic".into()), (Some(216), &"tsc".into())]);
        for result in results {
            is_spread(&result["seconds"]);
            assert!(result["start"].as_f64() > Some(0.0) && result["of_copy"].as_f64() > Some(0.0), "{result:#}");
            assert!(result["bytes"]["device"].as_u64() > Some(12 * 216), "{result:#}");
            assert_eq!(result["bytes"]["between_ranks"].as_u64() > Some(0), ranks > 1, "{result:#}");
        }
    }
}

/// Each measurement's kernels, by the device's clock where it has one (lavapipe has).
#[test]
fn kernels_by_themselves() {
    for (line, kernel) in [("sort --size 1000", "primitives::sort_scatter"), ("pm --size 8", "mesh::kick_drift")] {
        let found = report(&format!("{line} --kernels"), Ranks::Threads(1));
        let measurements = found["kernels"].as_array().unwrap();
        let mut named = false;
        for measurement in measurements {
            assert!(measurement["median"].as_f64() > Some(0.0), "{measurement:#}");
            let kernels = measurement["kernels"].as_array().unwrap();
            let seconds: Vec<f64> = kernels.iter().map(|kernel| kernel["seconds"].as_f64().unwrap()).collect();
            assert!(seconds.is_sorted_by(|a, b| a >= b) && seconds[0] > 0.0, "{measurement:#}");
            let all = measurement["seconds"].as_f64().unwrap();
            assert!((seconds.iter().sum::<f64>() / all - 1.0).abs() < 1e-9, "{measurement:#}");
            assert!(kernels.iter().all(|kernel| kernel["dispatches"].as_u64() > Some(0)), "{measurement:#}");
            named |= kernels.iter().any(|each| each["kernel"] == kernel);
        }
        assert!(named, "{found:#}");
    }
    assert!(report("sort --size 1000", Ranks::Threads(1))["kernels"].is_null());
}

#[test]
fn steps_of_shallow_water() {
    for ranks in [1, 4] {
        let found = report("shallow-water --size 40x24,17x9 --reference", Ranks::Threads(ranks));
        is_copy(&found);
        let results = found["results"].as_array().unwrap();
        assert_eq!(results.len(), 2);
        for result in results {
            is_spread(&result["seconds"]);
            is_compared(result);
            assert_eq!(result["reference"]["same"], true, "{result:#}");
            assert_eq!(
                (&result["bytes_per_cell_step"], &result["exchanges_per_step"]),
                (&48.0.into(), &u64::from(ranks > 1).into())
            );
            assert_eq!(result["bytes"]["between_ranks"].as_u64() > Some(0), ranks > 1, "{result:#}");
        }
    }
}

#[test]
fn gradients_beside_their_simulation() {
    let found = report("gradient --size 6 --mesh-factor 1 --steps 2 --checkpoint-every 1,2", Ranks::Threads(2));
    let results = found["results"].as_array().unwrap();
    let states: Vec<_> = results.iter().map(|result| result["bytes"]["states"].as_u64().unwrap()).collect();
    // Two forces, one in the middle of each step: both states, or the first and the one after it.
    // Displacements and momenta of 108 particles take 1296 bytes each, of which the device's pool
    // makes 1536.
    assert_eq!(states, [2 * 2 * 1536, 2 * 2 * 1536]);
    for result in results {
        is_spread(&result["seconds"]);
        is_spread(&result["simulation"]["seconds"]);
        assert!(
            result["ratio"].as_f64() > Some(0.0) && result["bytes"]["device"].as_u64() > Some(states[0]),
            "{result:#}"
        );
    }
}

#[test]
fn fits_of_counts() {
    for ranks in [1, 2] {
        let found = report("infer --size 8,12 --samples 2", Ranks::Threads(ranks));
        let results = found["results"].as_array().unwrap();
        assert_eq!(results.len(), 2);
        for result in results {
            is_spread(&result["seconds"]);
            for part in ["gradient", "metric", "step"] {
                is_spread(&result[part]["seconds"]);
            }
            assert!(result["compiled"]["seconds"].as_f64() > Some(0.0), "{result:#}");
            assert!(result["metrics_of_the_position"].as_u64() >= Some(5), "{result:#}");
            let bytes = |name: &str| result["bytes"][name].as_u64().unwrap();
            assert!(bytes("vector") > 0 && bytes("linearization") > 0, "{result:#}");
            assert_eq!(bytes("sample"), 2 * bytes("vector") + bytes("linearization"));
            assert!(bytes("iteration") > 4 * bytes("sample"), "{result:#}");
        }
    }
}

#[test]
fn all_subjects_together() {
    let file = std::env::temp_dir().join(format!("meshloom-bench-{}.json", meshloom::io::token()));
    let line = format!("--all --sizes small --reference --save {}", file.display());
    let found = report(&line, Ranks::Threads(2));
    assert_eq!((&found["subject"], &found["sizes"]), (&"all".into(), &"small".into()));
    let subjects: Vec<_> = found["results"].as_array().unwrap().iter().map(|result| &result["subject"]).collect();
    assert_eq!(
        subjects,
        [
            "fft",
            "sort",
            "knn",
            "fof",
            "pm",
            "pairs",
            "gradient",
            "exchange",
            "collectives",
            "commands",
            "memory",
            "staging",
            "halo",
            "ghosts",
            "shallow-water",
            "infer",
            "map"
        ]
    );
    for report in found["results"].as_array().unwrap() {
        let results = report["results"].as_array().unwrap();
        assert!(!results.is_empty() && report["failed"].is_null(), "{report:#}");
    }
    let saved: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(saved, found);
    assert_eq!(saved["complete"], true);
    // Nothing is begun once the time has passed, and an exchange needs a second rank.
    let table = Call::new(&words("bench --all --runs 1 --within 1 --sizes small")).succeeds().stdout;
    assert!(table.starts_with("fft\n") && table.contains("left out:"), "{table}");
}

#[test]
fn under_mpi() {
    if !has_mpi() {
        return;
    }
    let found = report("fft --size 8 --complex --reference", Ranks::Mpi(2));
    assert_eq!(found["ranks"], 2);
    is_compared(&found["results"][0]["forward"]);
    let found = report("exchange --size 8 --reference", Ranks::Mpi(3));
    assert_eq!(found["results"][0]["reference"]["same"], true);
    messages(Ranks::Mpi(3), true);
    let found = report("halo --size 8 --reference", Ranks::Mpi(2));
    assert_eq!(found["results"][0]["reduce"]["reference"]["same"], true);
}

#[test]
fn tables_are_for_people() {
    for (line, says) in [
        ("fft --size 8 --reference --ranks 2", &["8x8x8", "complex", "inverse", "ratio", "of copy", "GB/s"][..]),
        ("exchange --size 8 --ranks 2", &["8x8x8", "2x1", "messages"]),
        ("halo --size 8", &["exchange", "reduce", "ghosts"]),
        ("knn --size 50 --reference", &["uniform points in an open box", "per point", "ratio"]),
        ("fof --size 50 --box 1", &["groups", "20 points and more", "together"]),
    ] {
        let outcome = Call::new(&words(&format!("bench {line} --runs 1"))).succeeds();
        for word in says {
            assert!(outcome.stdout.contains(word), "{word}: {outcome:#?}");
        }
        assert!(!outcome.stdout.contains('{'), "{outcome:#?}");
        assert_eq!(outcome.stdout.contains("ratio"), line.contains("--reference"), "{outcome:#?}");
    }
}

#[test]
fn wrong_words_exit_2() {
    let mpi = has_mpi();
    for (line, says) in [
        ("fft --size 0", &["--size", "from 1 to 65536"][..]),
        ("fft --size 65537", &["from 1 to 65536"]),
        ("fft --size 8x8", &["8x8", "96x80x60"]),
        ("fft --size 8,eight", &["eight"]),
        ("fft --size -8", &["-8"]),
        ("fft --size 8,", &["--size"]),
        ("fft --runs 0", &["--runs"]),
        ("fft --real --complex", &["--real", "--complex"]),
        ("fft --size 8,65536", &["--size 65536x65536x65536"]),
        ("fft --size 8 --grid 2x3", &["2x3"]),
        ("exchange --size 8,65536 --ranks 2", &["--size 65536x65536x65536"]),
        ("exchange --depth 0", &["--depth"]),
        ("exchange --chunk-bytes 0", &["--chunk-bytes"]),
        ("exchange --bytes 6 --ranks 2", &["multiple of 4"]),
        ("exchange --bytes 8 --size 8 --ranks 2", &["--bytes", "--size"]),
        ("collectives --bytes 12", &["multiple of 8"]),
        ("collectives --operations scan", &["scan", "all-gather"]),
        ("fft --columns 0", &["--columns"]),
        ("fft --tune --points 8", &["--points"]),
        ("halo --width 0", &["--width"]),
        ("memory --row 48", &["power of two"]),
        ("memory --sectors 64", &["from 1 to 32"]),
        ("halo --width 5000", &["5000"]),
        ("halo --size 2x2x0", &["2x2x0"]),
        ("knn -k 0", &["0"]),
        ("knn -k 1025", &["1025"]),
        ("knn --size 0", &["--size"]),
        ("knn --kind cube", &["cube", "hernquist"]),
        ("knn --box 0", &["periodic box"]),
        ("pairs --radius 0", &["radius"]),
        ("pairs --radius 2 --box 3 --size 10", &["half", "1.5"]),
        ("pairs --bin-count 5000", &["5000"]),
        ("fof --linking-parameter 0", &["linking parameter", "above 0"]),
        ("fof --linking-parameter 0.2,b", &["`b`"]),
        ("everything", &["everything"]),
        ("--runs 3", &["subject", "--all"]),
        ("--within 3", &["--all"]),
        ("--all fft", &["--all"]),
        ("ghosts --reach 0", &["above 0"]),
        ("ghosts --size 8 --reference", &["--reference"]),
        ("pm --size 0", &["--size"]),
        ("pm --window ngp", &["ngp"]),
        ("pm --size 8 --reference", &["--reference"]),
        ("collectives --reference --ranks 2", &["--reference"]),
        ("shallow-water --size 48", &["`48`"]),
        ("gradient --steps 0", &["--steps"]),
        ("gradient --checkpoint-every 0", &["--checkpoint-every"]),
        ("fft --device nosuch --size 8", &["nosuch"]),
    ] {
        let call = Call::new(&words(&format!("bench {line}")));
        call.run().is_error(line, 2, says);
        if mpi && line.contains("8,65536") {
            call.on(Ranks::Mpi(2)).run().is_error(line, 2, says);
        }
    }
}

#[test]
fn ghosts() {
    for ranks in [1, 3] {
        let found = report("ghosts --size 400 --kind hernquist --reach 0.3", Ranks::Threads(ranks));
        let results = found["results"].as_array().unwrap();
        assert_eq!(results.iter().map(|result| &result["what"]).collect::<Vec<_>>(), ["within", "groups"]);
        for result in results {
            is_spread(&result["seconds"]);
            let counts = [&result["ghosts"], &result["messages"], &result["bytes"]["between_ranks"]];
            assert!(counts.iter().all(|count| (count.as_u64() > Some(0)) == (ranks > 1)), "{result:#}");
        }
        assert_eq!((results[0]["reach"].as_f64(), results[1]["linking_parameter"].as_f64()), (Some(0.3), Some(0.2)));
    }
}

#[test]
fn too_much_exits_1() {
    Call::new(&words("bench --all --save -")).run().is_error("no file", 2, &["standard output"]);
    Call::new(&words("bench --all --save nosuch/report.json")).run().is_error("no directory", 1, &["nosuch"]);
    Call::new(&words("bench halo --size 65536")).run().is_error("elements", 1, &["bench::field"]);
    let call = Call::new(&words("bench fft --size 8")).env("VK_DRIVER_FILES", "/nonexistent");
    call.env("VK_ICD_FILENAMES", "/nonexistent").run().is_error("no adapter", 1, &["no usable GPU adapter"]);
}

#[test]
fn a_tuned_bench_remembers() {
    let directory = std::env::temp_dir().join(format!("meshloom-bench-{}", meshloom::io::token()));
    let run = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_meshloom"));
        command.args(["bench", "fft", "--size", "6", "--real", "--runs", "1", "--ranks", "2", "--tune", "--json"]);
        let output = command.env("MESHLOOM_CACHE", &directory).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["results"][0]["choice"].clone()
    };
    let first = run();
    assert!(directory.join("wisdom.txt").is_file() && first["tuning"]["points"].is_u64(), "{first}");
    assert_eq!(run(), first);
    std::fs::remove_dir_all(&directory).unwrap();
}
