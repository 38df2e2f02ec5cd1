//! `meshloom knn`, `neighbors` and `pairs` against all pairs of points, over any number of ranks,
//! and their errors.

use std::fs;

use super::cli::{Call, Ranks, Scratch, has_mpi};
use meshloom::io::{NpyElement, NpyWriter, NpzFile, token};

/// Space of the points: sides of 0 are open.
#[derive(Clone, Copy)]
struct Space {
    dims: usize,
    sides: [f32; 3],
}

const BOX: Space = Space { dims: 3, sides: [8.0, 5.0, 0.0] };
const PLANE: Space = Space { dims: 2, sides: [0.0; 3] };

/// Coordinates on a lattice: squares of distances are exact in f32 however they are added, and many
/// are equal. Some lie outside of the box, which is a whole number of cells, by less than a side.
fn lattice(count: usize, dims: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 16) % 48) as f32 / 4.0 - 2.0
    };
    (0..count * dims).map(|_| next()).collect()
}

impl Space {
    fn square(&self, a: &[f32], b: &[f32]) -> f32 {
        (0..self.dims)
            .map(|axis| {
                let (side, d) = (self.sides[axis], (a[axis] - b[axis]).abs());
                let d = if side > 0.0 { d.rem_euclid(side) } else { d };
                let d = if side > 0.0 { d.min(side - d) } else { d };
                d * d
            })
            .sum()
    }

    /// For each query the squares of the distances to all points, and their indices, in this order.
    fn nearest(&self, points: &[f32], queries: &[f32], without_self: bool) -> Vec<Vec<(f32, i64)>> {
        let list = |(i, query): (usize, &[f32])| {
            let all = points.chunks(self.dims).enumerate().filter(|(j, _)| !without_self || i != *j);
            let mut list: Vec<_> = all.map(|(j, point)| (self.square(query, point), j as i64)).collect();
            list.sort_by(|a, b| a.partial_cmp(b).unwrap());
            list
        };
        queries.chunks(self.dims).enumerate().map(list).collect()
    }
}

fn save<T: NpyElement>(scratch: &Scratch, name: &str, dims: usize, values: &[T]) -> String {
    let shape = [(values.len() / dims) as u64, dims as u64];
    let writer = NpyWriter::create(scratch.join(name), &shape, &token()).unwrap();
    writer.write(0, values).unwrap();
    writer.finish().unwrap();
    scratch.word(name)
}

/// Runs it on one rank, on three, and under MPI where there is one if `mpi`; the bytes of the file
/// must be the same.
fn same(scratch: &Scratch, output: &str, mpi: bool, words: &[&str]) {
    let path = scratch.word(output);
    let mut ranks = vec![Ranks::Threads(1), Ranks::Threads(3)];
    if mpi && has_mpi() {
        ranks.push(Ranks::Mpi(2));
    }
    let mut first = None;
    for ranks in ranks {
        Call::new(&[words, &["-o", &path]].concat()).on(ranks).succeeds();
        let bytes = fs::read(&path).unwrap();
        assert!(first.get_or_insert_with(|| bytes.clone()) == &bytes, "{words:?} on {ranks:?}");
    }
}

/// Distances against squares of them, to the rounding of a root.
fn is_root(distance: f32, square: f32) {
    let root = square.sqrt();
    assert!(distance == root || (distance - root).abs() <= 4e-7 * root, "{distance}, not {root}");
}

/// Checks that the file of `knn` has these lists, cut to `k` entries.
fn is_knn(scratch: &Scratch, output: &str, lists: &[Vec<(f32, i64)>], k: usize) {
    let file = NpzFile::open(scratch.join(output)).unwrap();
    file.check().unwrap();
    assert_eq!(file.names().collect::<Vec<_>>(), ["index", "distance"]);
    let (index, distance) = (file.member("index").unwrap(), file.member("distance").unwrap());
    let shape = [lists.len() as u64, k as u64];
    assert_eq!((index.shape(), distance.shape()), (&shape[..], &shape[..]));
    assert_eq!((index.dtype().to_string(), distance.dtype().to_string()), ("int64".into(), "float32".into()));
    let (index, distance) = (index.read_i64(0..index.len()).unwrap(), distance.read_f32(0..distance.len()).unwrap());
    for (row, list) in lists.iter().enumerate() {
        for n in 0..k {
            let (square, want) = list.get(n).copied().unwrap_or((f32::INFINITY, -1));
            assert_eq!(index[row * k + n], want, "neighbor {n} of row {row}: {list:?}");
            is_root(distance[row * k + n], square);
        }
    }
}

/// Checks that the file of `neighbors` has these lists, those within `square`.
fn is_within(scratch: &Scratch, output: &str, lists: &[Vec<(f32, i64)>], square: f32) -> Vec<i64> {
    let file = NpzFile::open(scratch.join(output)).unwrap();
    file.check().unwrap();
    assert_eq!(file.names().collect::<Vec<_>>(), ["offset", "index", "distance"]);
    let read = |name: &str| {
        let member = file.member(name).unwrap();
        assert_eq!((member.dtype().to_string(), member.shape().len()), ("int64".to_string(), 1));
        member.read_i64(0..member.len()).unwrap()
    };
    let (offset, index) = (read("offset"), read("index"));
    let distance = file.member("distance").unwrap();
    let distance = distance.read_f32(0..distance.len()).unwrap();
    assert_eq!((offset.len(), offset[0]), (lists.len() + 1, 0));
    assert_eq!((offset[lists.len()], distance.len()), (index.len() as i64, index.len()));
    for (row, list) in lists.iter().enumerate() {
        let mut list: Vec<_> = list.iter().filter(|(d, _)| *d <= square).map(|(d, j)| (*j, *d)).collect();
        list.sort_by_key(|(j, _)| *j);
        let (from, to) = (offset[row] as usize, offset[row + 1] as usize);
        assert_eq!(index[from..to], list.iter().map(|(j, _)| *j).collect::<Vec<_>>(), "row {row}");
        (from..to).zip(list).for_each(|(at, (_, square))| is_root(distance[at], square));
    }
    offset.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn counts(scratch: &Scratch, output: &str) -> Vec<i64> {
    let file = NpzFile::open(scratch.join(output)).unwrap();
    file.check().unwrap();
    assert_eq!(file.names().collect::<Vec<_>>(), ["count"]);
    let count = file.member("count").unwrap();
    count.read_i64(0..count.len()).unwrap()
}

#[test]
fn the_nearest_are_those_of_all_pairs() {
    let s = Scratch::new();
    let points = lattice(301, 3, 1);
    let input = save(&s, "p.npy", 3, &points);
    let sides = ["--box", "8,5,open"];
    same(&s, "o.npz", true, &[&["knn", &input, "-k", "7"], &sides[..]].concat());
    let own = BOX.nearest(&points, &points, false);
    is_knn(&s, "o.npz", &own, 7);
    assert!(own.iter().zip(0..).any(|(list, i)| list[0].1 != i), "some points coincide");

    same(&s, "o.npz", false, &[&["knn", &input, "-k", "7", "--exclude-self"], &sides[..]].concat());
    is_knn(&s, "o.npz", &BOX.nearest(&points, &points, true), 7);

    // The same points in f64, and two places for three ranks.
    let wide: Vec<f64> = points.iter().map(|&x| x.into()).collect();
    let (input, queries) = (save(&s, "w.npy", 3, &wide), lattice(2, 3, 5));
    let places = save(&s, "q.npy", 3, &queries);
    let words = ["knn", &input, "-k", "7", "--queries", &places, "--max-distance", "1.25"];
    same(&s, "o.npz", false, &[&words, &sides[..]].concat());
    let mut lists = BOX.nearest(&points, &queries, false);
    lists.iter_mut().for_each(|list| list.retain(|(square, _)| *square <= 1.25 * 1.25));
    is_knn(&s, "o.npz", &lists, 7);
}

#[test]
fn fewer_points_than_neighbors_are_filled_up() {
    let s = Scratch::new();
    let (points, queries) = (lattice(4, 2, 3), lattice(3, 2, 4));
    let (four, three) = (save(&s, "p.npy", 2, &points), save(&s, "q.npy", 2, &queries));
    let none = save(&s, "none.npy", 2, &[] as &[f32]);
    same(&s, "o.npz", false, &["knn", &four, "-k", "7", "--exclude-self"]);
    is_knn(&s, "o.npz", &PLANE.nearest(&points, &points, true), 7);
    same(&s, "o.npz", false, &["knn", &none, "-k", "7", "--queries", &three]);
    is_knn(&s, "o.npz", &[vec![], vec![], vec![]], 7);
    Call::new(&["knn", &four, "-k", "0", "-o", &s.word("o.npz")]).succeeds();
    is_knn(&s, "o.npz", &[vec![], vec![], vec![], vec![]], 0);
    for input in [&["knn", &none][..], &["knn", &four, "--queries", &none]] {
        Call::new(&[input, &["-k", "7", "-o", &s.word("o.npz")]].concat()).on(Ranks::Threads(2)).succeeds();
        is_knn(&s, "o.npz", &[], 7);
    }
}

#[test]
fn all_within_a_radius_are_those_of_all_pairs() {
    let s = Scratch::new();
    let (points, queries) = (lattice(257, 3, 7), lattice(40, 3, 8));
    let (input, places) = (save(&s, "p.npy", 3, &points), save(&s, "q.npy", 3, &queries));
    // Distances of just this radius occur, and are within.
    let words = ["neighbors", &input, "--radius", "1.25", "--box", "8,5,0"];
    same(&s, "o.npz", true, &words);
    let lists = BOX.nearest(&points, &points, false);
    let with_self = is_within(&s, "o.npz", &lists, 1.25 * 1.25);
    assert!(lists.iter().flatten().any(|(square, _)| *square == 1.25 * 1.25));
    same(&s, "o.npz", false, &[&words[..], &["--exclude-self"]].concat());
    let counted = is_within(&s, "o.npz", &BOX.nearest(&points, &points, true), 1.25 * 1.25);
    assert!(counted.iter().zip(&with_self).all(|(a, b)| a + 1 == *b));
    same(&s, "o.npz", false, &[&words[..], &["--exclude-self", "--count-only"]].concat());
    assert_eq!(counts(&s, "o.npz"), counted);

    // Beyond half of the box each pair counts once.
    same(&s, "o.npz", false, &["neighbors", &input, "--radius", "30", "--box", "8,5,0", "--queries", &places]);
    let all = is_within(&s, "o.npz", &BOX.nearest(&points, &queries, false), 900.0);
    assert!(all.iter().all(|count| *count == 257));
}

#[test]
fn no_points_have_no_neighbors() {
    let s = Scratch::new();
    let (none, three) = (save(&s, "none.npy", 3, &[] as &[f32]), save(&s, "q.npy", 3, &[0.5f32; 9]));
    same(&s, "o.npz", false, &["neighbors", &none, "--radius", "1"]);
    is_within(&s, "o.npz", &[], 1.0);
    same(&s, "o.npz", false, &["neighbors", &none, "--radius", "1", "--queries", &three]);
    is_within(&s, "o.npz", &[vec![], vec![], vec![]], 1.0);
    Call::new(&["neighbors", &three, "--radius", "0", "--count-only", "-o", &s.word("o.npz")]).succeeds();
    assert_eq!(counts(&s, "o.npz"), [3, 3, 3], "points that coincide are within 0");
    let edges = s.file("edges.txt", "0\n1\n");
    Call::new(&["pairs", &none, "--bins", &edges, "-o", &s.word("o.csv")]).succeeds();
    assert_eq!(fs::read_to_string(s.join("o.csv")).unwrap(), "r_low,r_high,count\n0.0,1.0,0\n");
}

#[test]
fn pairs_are_counted_by_distance() {
    let s = Scratch::new();
    let (points, queries) = (lattice(257, 3, 9), lattice(40, 3, 10));
    let (input, places) = (save(&s, "p.npy", 3, &points), save(&s, "q.npy", 3, &queries));
    let edges =
        s.file("edges.txt", "# r\n0\n0.25\n\n1.25e0\n2 # distances of just this much are in the next bin\n2.5\n");
    let table = |lists: &[Vec<(f32, i64)>]| {
        let mut text = "r_low,r_high,count\n".to_string();
        for pair in [0.0f32, 0.25, 1.25, 2.0, 2.5].windows(2) {
            let within = |d: &&(f32, i64)| pair[0] * pair[0] <= d.0 && d.0 < pair[1] * pair[1];
            text += &format!("{:?},{:?},{}\n", pair[0], pair[1], lists.iter().flatten().filter(within).count());
        }
        text
    };
    same(&s, "o.csv", true, &["pairs", &input, "--bins", &edges, "--box", "8,5,open"]);
    assert_eq!(fs::read_to_string(s.join("o.csv")).unwrap(), table(&BOX.nearest(&points, &points, true)));
    same(&s, "o.csv", false, &["pairs", &input, "--bins", &edges, "--box", "8,5,open", "--cross", &places]);
    assert_eq!(fs::read_to_string(s.join("o.csv")).unwrap(), table(&BOX.nearest(&points, &queries, false)));
}

/// Sums of products of integers are exact, and integers may be read off the table.
#[test]
fn pairs_are_weighted_by_masses() {
    let s = Scratch::new();
    let (points, queries) = (lattice(211, 3, 19), lattice(40, 3, 20));
    let (input, places) = (save(&s, "p.npy", 3, &points), save(&s, "q.npy", 3, &queries));
    let [of_points, of_places] = [211, 40].map(|n| (0..n).map(|i| (i * i % 23) as f32).collect::<Vec<f32>>());
    let save_masses = |name: &str, values: &[f32]| {
        let writer = NpyWriter::create(s.join(name), &[values.len() as u64], &token()).unwrap();
        writer.write(0, values).unwrap();
        writer.finish().unwrap();
        s.word(name)
    };
    let (masses, others) = (save_masses("m.npy", &of_points), save_masses("n.npy", &of_places));
    let edges = s.file("edges.txt", "0\n0.25\n1.25\n2\n");
    let table = |lists: &[Vec<(f32, i64)>], of_queries: &dyn Fn(usize) -> f64| {
        let mut text = "r_low,r_high,count,weighted\n".to_string();
        for pair in [0.0f32, 0.25, 1.25, 2.0].windows(2) {
            let (mut count, mut sum) = (0, 0.0);
            for (query, list) in lists.iter().enumerate() {
                for &(square, point) in list {
                    if pair[0] * pair[0] <= square && square < pair[1] * pair[1] {
                        count += 1;
                        sum += of_queries(query) * f64::from(of_points[point as usize]);
                    }
                }
            }
            text += &format!("{:?},{:?},{count},{sum:?}\n", pair[0], pair[1]);
        }
        text
    };
    let read = || fs::read_to_string(s.join("o.csv")).unwrap();
    let pairs = ["pairs", &input, "--bins", &edges, "--box", "8,5,open", "--masses", &masses];
    same(&s, "o.csv", true, &pairs);
    let own = |query: usize| f64::from(of_points[query]);
    assert_eq!(read(), table(&BOX.nearest(&points, &points, true), &own));
    let lists = BOX.nearest(&points, &queries, false);
    same(&s, "o.csv", false, &[&pairs[..], &["--cross", &places, "--cross-weights", &others]].concat());
    assert_eq!(read(), table(&lists, &|query| f64::from(of_places[query])));
    // Points without masses weigh 1 each.
    same(&s, "o.csv", false, &[&pairs[..], &["--cross", &places]].concat());
    assert_eq!(read(), table(&lists, &|_| 1.0));

    let negative = save_masses("negative.npy", &[&of_points[..210], &[-1.0]].concat());
    let with =
        |more: &[&str]| Call::new(&[&["pairs", &input, "--bins", &edges, "-o", &s.word("o.csv")], more].concat());
    let wrong = with(&["--masses", &others]).on(Ranks::Threads(2)).run();
    wrong.is_error("of other points", 1, &["n.npy", "(40,)", "(211,)"]);
    with(&["--masses", &negative]).on(Ranks::Threads(2)).run().is_error("negative", 1, &["negative.npy", "210", "-1"]);
    with(&["--cross-masses", &masses]).run().is_error("no points", 2, &["--cross"]);
}

/// Equal numbers in f32 and in f64 come to one place in a box, however far away they are.
#[test]
fn points_far_outside_wrap_alike_in_f32_and_f64() {
    let s = Scratch::new();
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        8.0 * ((1 << 23) + (state >> 41)) as f32
    };
    let single: Vec<f32> = (0..150).map(|_| next()).collect();
    let double: Vec<f64> = single.iter().map(|&x| x.into()).collect();
    let (input, queries) = (save(&s, "p4.npy", 3, &single), save(&s, "p8.npy", 3, &double));
    Call::new(&["knn", &input, "--queries", &queries, "--box", "100.1", "-k", "1", "-o", &s.word("o.npz")]).run();
    let file = NpzFile::open(s.join("o.npz")).unwrap();
    let distances = file.member("distance").unwrap().read_f32(0..50).unwrap();
    // Twice a unit of the last place along each axis.
    assert!(distances.iter().all(|&d| d <= 2.0 * 3f32.sqrt() * (100.1f32 - 100.1f32.next_down())), "{distances:?}");
}

#[test]
fn a_report_says_what_was_done() {
    let s = Scratch::new();
    let (input, output) = (save(&s, "p.npy", 2, &lattice(50, 2, 2)), s.word("o.npz"));
    let words = ["neighbors", &input, "--radius", "1", "--box", "12", "-o", &output, "--json", "--queries", &input];
    let outcome = Call::new(&words).on(Ranks::Threads(2)).succeeds();
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let file = NpzFile::open(&output).unwrap();
    assert_eq!(report["command"], "neighbors");
    assert_eq!((&report["points"], &report["queries"], &report["ranks"]), (&50.into(), &50.into(), &2.into()));
    assert_eq!(report["neighbors"], file.member("index").unwrap().len());
    assert_eq!((&report["box"][0], &report["radius"]), (&12.0.into(), &1.0.into()));
    assert_eq!(report["queries_file"]["shape"], serde_json::json!([50, 2]));
    for phase in ["read", "build", "search", "write", "total"] {
        assert!(report["seconds"][phase].as_f64().is_some_and(|seconds| seconds > 0.0), "{phase}: {report}");
    }
    assert_eq!(report["host_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), cfg!(target_os = "linux"));
    assert!(report["bytes"]["between_ranks"].as_u64().is_some_and(|bytes| bytes > 0), "{report}");
}

#[test]
fn wrong_words_and_bad_files_are_errors_that_leave_nothing() {
    let s = Scratch::new();
    let mut points = lattice(30, 3, 1);
    let (good, plane) = (save(&s, "good.npy", 3, &points), save(&s, "plane.npy", 2, &lattice(9, 2, 1)));
    points[3 * 17 + 1] = f32::NAN;
    let nan = save(&s, "nan.npy", 3, &points);
    let line = save(&s, "line.npy", 4, &[0.0f32; 8]);
    let whole = save(&s, "whole.npy", 3, &[1i64; 9]);
    let (missing, npz) = (s.word("missing.npy"), s.word("o.npz"));

    let knn = |words: &[&str]| Call::new(&[&["knn", "-o", &npz], words].concat());
    let neighbors = |words: &[&str]| Call::new(&[&["neighbors", "-o", &npz], words].concat());
    let cases = [
        (knn(&[&good]), 2, "-k"),
        (knn(&[&good, "-k", "1025"]), 2, "1024"),
        (knn(&[&good, "-k", "-1"]), 2, "whole number"),
        (knn(&[&good, "-k", "2.5"]), 2, "whole number"),
        (knn(&[&good, "-k", "3", "--max-distance", "-1"]), 2, "from 0"),
        (knn(&[&good, "-k", "3", "--max-distance", "nan"]), 2, "from 0"),
        (knn(&[&good, "-k", "3", "--exclude-self", "--queries", &good]), 2, "--queries"),
        (knn(&[&good, "-k", "3", "--box", "8,4"]), 2, "--box"),
        (knn(&[&good, "-k", "3", "--box", "-8"]), 2, "--box"),
        (knn(&[&good, "-k", "3", "--grid", "1x1"]), 2, "--grid"),
        (knn(&["-", "-k", "3"]), 2, "standard input"),
        (knn(&[&good, "-k", "3", "--queries", "-"]), 2, "standard input"),
        (Call::new(&["knn", &good, "-k", "3", "-o", "-"]), 2, "standard output"),
        (Call::new(&["knn", &good, "-k", "3", "-o", &s.word("no/o.npz")]), 1, "mkdir"),
        (knn(&[&nan, "-k", "3"]), 1, "(17, 1)"),
        (knn(&[&good, "-k", "3", "--queries", &nan]).on(Ranks::Threads(3)), 1, "(17, 1)"),
        (knn(&[&good, "-k", "3", "--queries", &plane]), 1, "(M, 3)"),
        (knn(&[&line, "-k", "3"]), 1, "(N, 3) or (N, 2)"),
        (knn(&[&whole, "-k", "3"]), 1, "int64"),
        (knn(&[&missing, "-k", "3"]), 1, "no such file"),
        (neighbors(&[&good]), 2, "--radius"),
        (neighbors(&[&good, "--radius", "-0.5"]), 2, "from 0"),
        (neighbors(&[&good, "--radius", "nan"]), 2, "from 0"),
        (neighbors(&[&good, "--radius", "inf"]), 2, "from 0"),
        (neighbors(&[&good, "--radius", "1", "--exclude-self", "--queries", &good]), 2, "--queries"),
        (neighbors(&[&plane, "--radius", "1", "--box", "1,2,3"]), 2, "--box"),
        (neighbors(&[&nan, "--radius", "1", "--count-only"]), 1, "(17, 1)"),
    ];
    s.all_fail(cases);
    if has_mpi() {
        s.all_fail([(knn(&[&nan, "-k", "3"]).on(Ranks::Mpi(2)), 1, "(17, 1)")]);
    }
}

#[test]
fn wrong_words_and_bad_edges_of_pairs_are_errors_that_leave_nothing() {
    let s = Scratch::new();
    let mut points = lattice(30, 3, 1);
    let (good, plane) = (save(&s, "good.npy", 3, &points), save(&s, "plane.npy", 2, &lattice(9, 2, 1)));
    points[3 * 17 + 1] = f32::NAN;
    let nan = save(&s, "nan.npy", 3, &points);
    let edges = s.file("edges.txt", "0\n1\n2\n");
    let wrong =
        [s.file("e0.txt", ""), s.file("e1.txt", "1\n"), s.file("e2.txt", "0\n2\n\n1\n"), s.file("e3.txt", "0\nx\n")];
    let (missing, csv) = (s.word("missing.npy"), s.word("o.csv"));
    let pairs = |words: &[&str]| Call::new(&[&["pairs", "-o", &csv], words].concat());
    let cases = [
        (pairs(&[&good]), 2, "--bins"),
        (pairs(&[&good, "--bins", "-"]), 2, "standard input"),
        (pairs(&[&good, "--bins", &wrong[0]]), 1, "line 1: 0 edges"),
        (pairs(&[&good, "--bins", &wrong[1]]), 1, "line 1: one edge"),
        (pairs(&[&good, "--bins", &wrong[2]]).on(Ranks::Threads(2)), 1, "line 4"),
        (pairs(&[&good, "--bins", &wrong[3]]), 1, "line 2"),
        (pairs(&[&good, "--bins", &missing]), 1, "no such file"),
        (pairs(&[&good, "--bins", &edges, "--cross", &plane]), 1, "(M, 3)"),
        (pairs(&[&nan, "--bins", &edges]), 1, "(17, 1)"),
        (pairs(&[&good, "--bins", &edges, "--exclude-self"]), 2, "--exclude-self"),
    ];
    s.all_fail(cases);
    if has_mpi() {
        s.all_fail([(pairs(&[&good, "--bins", &wrong[2]]).on(Ranks::Mpi(2)), 1, "line 4")]);
    }
}

#[test]
fn bins_beyond_half_a_side_and_transposed_points_are_told_of() {
    let s = Scratch::new();
    let (input, edges) = (save(&s, "p.npy", 3, &lattice(60, 3, 2)), s.file("edges.txt", "0\n1\n3\n"));
    let warns = |sides: &str| {
        let outcome = Call::new(&["pairs", &input, "--bins", &edges, "--box", sides, "-o", &s.word("o.csv")]);
        let outcome = outcome.on(Ranks::Threads(2)).run();
        assert!(outcome.status.success(), "{outcome:#?}");
        outcome.stderr.matches("meshloom: warning: bins reach to 3, beyond 2.5, half of the shortest").count()
    };
    assert_eq!((warns("8,5,open"), warns("8,6,open")), (1, 0));
    let wide = save(&s, "wide.npy", 60, &lattice(60, 3, 2));
    let call = Call::new(&["pairs", &wide, "--bins", &edges, "-o", &s.word("wide.csv")]);
    s.all_fail([(call, 1, "has shape (3, 60), but (N, 3) or (N, 2) is needed; it looks transposed: save array.T")]);
}

/// A box in another unit than the points is the usual slip, and wraps them many times over.
#[test]
fn points_far_outside_of_the_box_are_warned_of_once() {
    let s = Scratch::new();
    let far: Vec<f32> = (0..300).map(|i| (i * 37 % 301) as f32 / 6.0).collect();
    let (input, places) = (save(&s, "p.npy", 3, &far), save(&s, "q.npy", 3, &[0.5f32; 6]));
    let outside = far.chunks(3).filter(|point| point.iter().any(|x| *x > 2.0)).count();
    let (output, table, edges) = (s.word("o.npz"), s.word("o.csv"), s.file("edges.txt", "0\n0.1\n"));
    let says = [format!("p.npy: {outside} of 100 points lie more than one side outside"), "farthest 49.0 sides".into()];
    let mut ways = vec![Ranks::Threads(1), Ranks::Threads(3)];
    if has_mpi() {
        ways.push(Ranks::Mpi(2));
    }
    for words in [
        vec!["knn", &input, "-k", "2", "-o", &output],
        vec!["neighbors", &input, "--radius", "0.1", "-o", &output],
        vec!["pairs", &input, "--bins", &edges, "--cross", &places, "-o", &table],
        vec!["power", &input, "--mesh", "8", "-o", &table],
    ] {
        for &ranks in &ways {
            let outcome = Call::new(&words).words(&["--box", "1"]).on(ranks).run();
            assert!(outcome.status.success() && outcome.stderr.lines().count() == 1, "{outcome:#?}");
            assert!(says.iter().all(|word| outcome.stderr.contains(word)), "{says:?}: {outcome:#?}");
        }
        // Up to a whole side outside nothing is said, nor where axes are open.
        Call::new(&words).words(&["--box", "25.1"]).succeeds();
    }
    Call::new(&["knn", &input, "-k", "2", "-o", &output]).succeeds();
    let edge = save(&s, "edge.npy", 2, &[-0.7f64, 1.4, 0.7, 0.0]);
    Call::new(&["knn", &edge, "-k", "1", "-o", &output, "--box", "0.7"]).succeeds();
}

/// A box in too small a unit makes densities meaningless.
#[test]
fn points_in_a_corner_of_the_box_are_warned_of_where_its_volume_matters() {
    let s = Scratch::new();
    let points: Vec<f32> = (0..300).map(|i| (i * 37 % 301) as f32 / 301.0).collect();
    let input = save(&s, "p.npy", 3, &points);
    let (output, table) = (s.word("o.npz"), s.word("o.csv"));
    let fof = ["fof", &input, "-o", &output];
    let says = "p.npy: all 100 points lie within 9.9e-3 of each side of the box";
    for words in [
        vec!["power", &input, "--mesh", "8", "-o", &table],
        [&fof[..], &["--linking-parameter", "0.2"]].concat(),
        [&fof[..], &["--linking-length", "0.1", "--overdensity", "200m"]].concat(),
    ] {
        for ranks in [1, 3] {
            let outcome = Call::new(&words).words(&["--box", "100"]).on(Ranks::Threads(ranks)).run();
            assert!(outcome.status.success() && outcome.stderr.lines().count() == 1, "{outcome:#?}");
            assert!(outcome.stderr.contains(says), "{outcome:#?}");
        }
        assert_eq!(Call::new(&words).words(&["--box", "90"]).succeeds().stderr, "");
    }
    let lengths = Call::new(&fof).words(&["--linking-length", "0.1", "--box", "100"]).succeeds();
    assert_eq!(lengths.stderr, "");
}
