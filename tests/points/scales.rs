//! Searches among coordinates of any size, large and small ones next to each other, on one rank and
//! on three, against brute force in `f64`.

use super::clouds::{self, square, uniform};
use super::searches;
use meshloom::comm::run_threads;
use meshloom::gpu::{Callback, Gpu, Recorder};
use meshloom::points::fof::{Groups, Linking};
use meshloom::points::neighbors::{Bins, GroupShape, Lanes, Nearest, NearestSearch, Predicate, Queries, RadiusSearch};
use meshloom::points::tree::Builder;
use meshloom::points::{Cloud, Domain, Frame, ParticleError, Particles};
use meshloom::{Error, Rank};
use searches::{counts, pairs};

/// Neighbors asked for.
const K: usize = 6;
/// Rounding of differences, squares and roots, and twice as much.
const SLACK: f64 = 1e-6;
/// Numbers too small for a normal `f32` may count as 0, and so may what they change.
const NOTHING: f64 = 5e-38;

/// A cloud and how far to look in it.
struct Case {
    what: String,
    domain: Domain,
    points: Vec<f32>,
    /// Places to ask for, besides the points.
    places: Vec<f32>,
    lengths: Vec<f32>,
}

/// All results of a case.
#[derive(Debug, Default, PartialEq)]
struct Told {
    nearest: Vec<(u64, f32)>,
    limited: Vec<(u64, f32)>,
    elsewhere: Vec<(u64, f32)>,
    counts: Vec<Vec<u64>>,
    pairs: Vec<Vec<u64>>,
    labels: Vec<Vec<u64>>,
}

/// Edges of bins up to a length.
fn edges(length: f32) -> [f64; 4] {
    [0.0, 0.01, 0.3, 1.0].map(|part| part * f64::from(length))
}

fn tell(context: &mut Rank, case: &Case) -> Result<Told, Error> {
    let dims = case.domain.dims();
    let mut part = |all: &[f32]| {
        let (n, ranks) = (all.len() / dims, context.comm.size());
        let rows = n * context.comm.rank() / ranks..n * (context.comm.rank() + 1) / ranks;
        Particles::from_host(context, &case.domain, &all[rows.start * dims..rows.end * dims])
    };
    let (cloud, places) = (part(&case.points)?, part(&case.places)?);
    let search = context.search(&cloud)?;
    let mut told = Told::default();
    let nearest = |context: &mut Rank, queries: Option<&Particles>, ask: &Nearest| {
        let near = searches::nearest(context, &search, queries, ask)?;
        Ok::<_, Error>(near.index.into_iter().zip(near.distance).collect::<Vec<_>>())
    };
    let k = K as u32;
    told.nearest = nearest(context, None, &Predicate::nearest(k))?;
    told.limited = nearest(context, None, &Predicate::nearest(k).within(case.lengths[0]).exclude_self())?;
    if !case.places.is_empty() {
        told.elsewhere = nearest(context, Some(&places), &Predicate::nearest(k))?;
    }
    for &length in &case.lengths {
        told.counts.push(counts(context, &search, None, &Predicate::within(length).exclude_self())?);
        if edges(length)[1] as f32 > 0.0 {
            told.pairs.push(pairs(context, &search, None, &Bins::new(&edges(length))?)?);
        }
        told.labels.push(Groups::find(context, cloud.cloud(), Linking::Length(length.into()))?.labels(context)?);
    }
    Ok(told)
}

/// Returns what all ranks are told, one after the other, case by case.
fn tell_all(ranks: usize, cases: &[Case]) -> Vec<Told> {
    let parts = run_threads(ranks, |comm| {
        let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
        let mut context = Rank::new(comm, gpu)?;
        cases.iter().map(|case| tell(&mut context, case)).collect::<Result<Vec<_>, Error>>()
    })
    .unwrap();
    let mut all: Vec<Told> = cases.iter().map(|_| Told::default()).collect();
    for part in parts {
        for (all, part) in all.iter_mut().zip(part) {
            all.nearest.extend(part.nearest);
            all.limited.extend(part.limited);
            all.elsewhere.extend(part.elsewhere);
            for (all, part) in [(&mut all.counts, part.counts), (&mut all.labels, part.labels)] {
                all.resize(part.len(), Vec::new());
                all.iter_mut().zip(part).for_each(|(all, part)| all.extend(part));
            }
            all.pairs = part.pairs;
        }
    }
    all
}

/// Checks that lists hold the nearest, each once and with its own distance; those in the same place
/// are in the order of their numbers.
fn check_nearest(case: &Case, queries: &[f32], rows: &[(u64, f32)], within: f64, without_self: bool) {
    let dims = case.domain.dims();
    let asked = queries.len() / dims;
    if asked == 0 {
        return;
    }
    let k = rows.len() / asked;
    assert!(k >= K && k * asked == rows.len(), "{}", case.what);
    for (q, (at, row)) in queries.chunks(dims).zip(rows.chunks(k)).enumerate() {
        let truth = |s: usize| square(&case.domain, at, &case.points[s * dims..(s + 1) * dims]).sqrt();
        let mut want: Vec<f64> = (0..case.points.len() / dims)
            .filter(|&s| !(without_self && s == q))
            .map(truth)
            .filter(|&d| d <= within)
            .collect();
        want.sort_by(f64::total_cmp);
        want.resize(k.max(want.len()), f64::INFINITY);
        let close = |have: f32, want: f64| {
            let have = f64::from(have);
            have == want || (have - want).abs() <= SLACK * want + NOTHING || (have.is_infinite() && want > 3.4028e38)
        };
        for (i, &(index, d)) in row.iter().enumerate() {
            let what = format!("{}: query {q}: {row:?} instead of {:?}", case.what, &want[..k]);
            assert!(close(d, want[i]), "entry {i}: {what}");
            assert!(index == u64::MAX || close(d, truth(index as usize)), "entry {i} is another point: {what}");
            assert!(index == u64::MAX || row[..i].iter().all(|before| before.0 != index), "twice: {what}");
            // A device may take distances below the normal numbers for 0, so it is not d that
            // tells.
            let is_here = |index: u64| index != u64::MAX && truth(index as usize) == 0.0;
            let numbered = i == 0 || !is_here(row[i - 1].0) || !is_here(index) || row[i - 1].0 < index;
            assert!(numbered, "order: {what}");
        }
    }
}

/// Labels of points that hang together by links up to a length.
fn brute_labels(case: &Case, length: f64) -> Vec<u64> {
    let points: Vec<&[f32]> = case.points.chunks(case.domain.dims()).collect();
    let mut labels: Vec<u64> = (0..points.len() as u64).collect();
    loop {
        let before = labels.clone();
        for i in 0..points.len() {
            for j in 0..points.len() {
                if square(&case.domain, points[i], points[j]).sqrt() <= length {
                    labels[i] = labels[i].min(labels[j]);
                }
            }
        }
        if labels == before {
            return labels;
        }
    }
}

fn check(case: &Case, told: &Told) {
    check_nearest(case, &case.points, &told.nearest, f64::INFINITY, false);
    check_nearest(case, &case.places, &told.elsewhere, f64::INFINITY, false);
    check_nearest(case, &case.points, &told.limited, case.lengths[0].into(), true);
    let points: Vec<&[f32]> = case.points.chunks(case.domain.dims()).collect();
    let mut pairs = told.pairs.iter();
    for ((&length, counts), labels) in case.lengths.iter().zip(&told.counts).zip(&told.labels) {
        let what = format!("{}: {length:e}", case.what);
        // What is right whatever rounding does at the edge.
        let low = |edge: f64| edge * (1.0 - SLACK) - NOTHING;
        let high = |edge: f64| edge * (1.0 + SLACK) + NOTHING;
        let length = f64::from(length);
        let mut histogram = [[0u64; 2]; 3];
        for (i, at) in points.iter().enumerate() {
            let others = points.iter().enumerate().filter(|(j, _)| *j != i);
            let others: Vec<f64> = others.map(|(_, other)| square(&case.domain, at, other).sqrt()).collect();
            let upto = |edge: f64| others.iter().filter(|&&d| d <= edge).count() as u64;
            let range = upto(low(length))..=upto(high(length));
            assert!(range.contains(&counts[i]), "{what}: point {i}: {} neighbors instead of {range:?}", counts[i]);
            for (bin, pair) in histogram.iter_mut().zip(edges(length as f32).windows(2)) {
                let inside = |a: f64, b: f64| others.iter().filter(|&&d| a <= d && d < b).count() as u64;
                bin[0] += inside(high(pair[0]) * f64::from(pair[0] > 0.0), low(pair[1]));
                bin[1] += inside(low(pair[0]), high(pair[1]));
            }
        }
        if edges(length as f32)[1] as f32 > 0.0 {
            let found = pairs.next().unwrap().iter().zip(&histogram);
            assert!(found.clone().all(|(have, want)| (want[0]..=want[1]).contains(have)), "{what}: {found:?}");
        }
        let [few, many] = [low(length), high(length)].map(|length| brute_labels(case, length));
        assert!(few != many || *labels == few, "{what}: {labels:?} instead of {few:?}");
    }
}

/// Returns a cloud of 42 points: most of them spread over `scale`, others in one place, in a small
/// clump, near 0, and far away.
fn case(seed: u64, sides: &[f64], scale: f64, small: f64, far: f64) -> Case {
    let domain = Domain::new(sides).unwrap();
    let dims = domain.dims();
    let mut points: Vec<f32> = Vec::new();
    for i in 0..42 {
        for (axis, &side) in sides.iter().enumerate() {
            let u = uniform(seed, 4 * i + axis as u64) - 0.5;
            let all = if side > 0.0 { side } else { scale };
            let x = match i % 7 {
                0..=2 => all * u,
                // In one place with another, or in a clump with it.
                3 => f64::from(points[points.len() - dims]),
                4 => f64::from(points[points.len() - dims]) + small * u,
                5 => small * u,
                _ if axis as u64 == (i + seed) % dims as u64 && side == 0.0 => far * (u + 0.6 * u.signum()),
                _ => all * u,
            };
            points.push(domain.wrap(axis, x.clamp(-3.4e38, 3.4e38)));
        }
    }
    let places: Vec<f32> = points[..6 * dims].iter().map(|x| x * 1.25).collect();
    let places: Vec<f32> =
        places.iter().enumerate().map(|(i, &x)| domain.wrap(i % dims, f64::from(x).clamp(-3.4e38, 3.4e38))).collect();
    let lengths = [0.3 * scale, 2.0 * small, 0.3 * far].map(|length| length.min(3e38) as f32).to_vec();
    Case { what: format!("{seed}: {sides:?} {scale:e} {small:e} {far:e}"), domain, points, places, lengths }
}

fn run(cases: &[Case]) {
    let one = tell_all(1, cases);
    cases.iter().zip(&one).for_each(|(case, told)| check(case, told));
    for ((case, one), three) in cases.iter().zip(&one).zip(tell_all(3, cases)) {
        assert!(three == *one, "{}: three ranks", case.what);
    }
}

#[test]
fn scales_from_the_least_to_the_greatest() {
    let mut cases = Vec::new();
    let scales = [1e-30f64, 1e-12, 1.0, 1e12, 1e37];
    for (seed, (i, j)) in (0..5).flat_map(|i| (0..5).map(move |j| (i, j))).enumerate() {
        let (scale, other) = (scales[i], scales[j]);
        let (small, far) = (scale.min(other) * 1e-3, scale.max(other) * 1e3f64.min(3e38f64 / scale.max(other)));
        let sides = if seed % 2 == 0 { [0.0; 3] } else { [scale.min(1e30), 0.0, 0.0] };
        cases.push(case(seed as u64, &sides, scale, small.max(1e-36), far));
    }
    run(&cases);
}

#[test]
fn two_axes_of_any_scale() {
    let mut cases = vec![
        case(40, &[0.0, 0.0], 1.0, 1e-25, 9.969_21e36),
        case(41, &[1e30, 1e-30], 1.0, 1e-33, 1.0),
        case(42, &[0.0, 1.0], 1.0, 1e-9, 3e38),
        case(43, &[0.0, 0.0], 1e-36, 1e-37, 1e-36),
    ];
    // Axes of their own scales each.
    let mut mixed = case(44, &[0.0, 0.0], 1.0, 1e-6, 10.0);
    mixed.points.iter_mut().enumerate().for_each(|(i, x)| *x *= [1e37f32, 1e-30][i % 2]);
    mixed.places.iter_mut().enumerate().for_each(|(i, x)| *x *= [1e37f32, 1e-30][i % 2]);
    mixed.lengths = vec![1e36, 1e-31, 0.0];
    cases.push(mixed);
    run(&cases);
}

/// Fill values of catalogs among ordinary points.
#[test]
fn fill_values_do_not_blur_the_rest() {
    for fill in [1e20f32, 9.969_21e36] {
        let mut points: Vec<f32> = (0..600).map(|i| uniform(3, i) as f32).collect();
        points[301] = fill;
        let domain = Domain::open(3).unwrap();
        let places = [points[..9].to_vec(), vec![fill, -fill, 0.5]].concat();
        let what = format!("{fill:e}");
        run(&[Case { what, domain, points, places, lengths: vec![0.05, 0.12] }]);
    }
}

/// A fill value, ordinary points and some that are nearer to each other than squares in any one
/// unit tell.
#[test]
fn lists_of_several_units_are_the_same_by_every_way() {
    let gpu = Gpu::open(&meshloom_sanitizer::options().unwrap(), 0).unwrap();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let domain = Domain::open(3).unwrap();
    let mut points: Vec<f32> = (0..3600).map(|i| uniform(5, i) as f32 * if i < 600 { 1e-25 } else { 1.0 }).collect();
    points[900] = 9.969_21e36;
    let cloud = Cloud::from_host(&mut recorder, &domain, &points).unwrap();
    let frame = Frame::new(&domain, cloud.bounds());
    let tree = Builder::new(&gpu).build(&mut recorder, &cloud, &frame).unwrap();
    let case = Case { what: "units".into(), domain, points, places: Vec::new(), lengths: Vec::new() };
    let mut found = |nearest: &NearestSearch, k: u32| {
        let lists = nearest.lists(&mut recorder, &tree, Queries::Own, &Predicate::nearest(k)).unwrap();
        let index = recorder.download(&lists.index, 0, lists.index.len()).unwrap();
        let distance = recorder.download(&lists.distance, 0, lists.distance.len()).unwrap();
        index.into_iter().map(u64::from).zip(distance).collect::<Vec<_>>()
    };
    let nearest = NearestSearch::new(&gpu);
    let whole = found(&nearest, 7);
    check_nearest(&case, &case.points, &whole, f64::INFINITY, false);
    assert!(whole.iter().any(|near| near.1 > 0.0 && near.1 < 1e-25) && whole.iter().any(|near| near.1 > 1e36));
    check_nearest(&case, &case.points, &found(&nearest, 40), f64::INFINITY, false);
    // Walks that stop all the time, and queries each by itself.
    assert!(found(&NearestSearch::new(&gpu).with_rounds(Some(1024)), 7) == whole);
    assert!(found(&NearestSearch::with(&gpu, GroupShape { lanes: Lanes::Alone, slots: 4 }), 7) == whole);
    let lists = nearest.download_lists(&mut recorder, &tree, Queries::Own, &Predicate::nearest(7)).unwrap();
    assert!(lists.index.into_iter().zip(lists.distance).eq(whole.iter().copied()));
    let sum = gpu.array::<f32>("sum", 1200).unwrap();
    let text = "
        alias State = f32;
        fn begin(query: u32, reach: f32) -> State { return 0.0; }
        fn each(state: State, near: Neighbor) -> State { return state + near.distance; }
        fn end(query: u32, state: State) { store_sum(query, state); }";
    let callback = Callback::new(text).write("sum", &sum);
    nearest.visit(&mut recorder, &tree, Queries::Own, &Predicate::nearest(7), &callback).unwrap();
    for (have, row) in recorder.download(&sum, 0, 1200).unwrap().into_iter().zip(whole.chunks(7)) {
        let want: f32 = row.iter().map(|near| near.1).sum();
        assert!((have - want).abs() <= 1e-6 * want, "{have:e} {want:e}");
    }
    // Lists within a radius, and their distances.
    for radius in [0.05f32, 3e-26] {
        let rows =
            RadiusSearch::new(&gpu).lists(&mut recorder, &tree, Queries::Own, &Predicate::within(radius)).unwrap();
        let offset = recorder.download(&rows.offsets, 0, 1201).unwrap();
        let index = recorder.download(&rows.index, 0, rows.index.len()).unwrap();
        let distance = recorder.download(&rows.distance, 0, rows.distance.len()).unwrap();
        for (at, ends) in case.points.chunks(3).zip(offset.windows(2)) {
            let all = case.points.chunks(3).map(|other| clouds::distance(&domain, at, other)).enumerate();
            let want: Vec<(usize, f32)> = all.filter(|&(_, d)| d <= radius).collect();
            let row = ends[0] as usize..ends[1] as usize;
            assert!(index[row.clone()].iter().map(|&s| s as usize).eq(want.iter().map(|near| near.0)), "{radius:e}");
            // Below 1e-26 of the radius distances lose digits.
            let close = |(have, want): (&f32, &(usize, f32))| (have - want.1).abs() <= 1e-6 * want.1 + 1e-26 * radius;
            assert!(distance[row].iter().zip(&want).all(close), "{radius:e}");
        }
    }
}

#[test]
fn what_no_f32_holds_is_refused() {
    assert!(matches!(Domain::new(&[1e37, 0.0]), Err(ParticleError::Sides { axis: 0, .. })));
    let domain = Domain::open(2).unwrap();
    assert!(matches!(domain.narrow(&[0.0, 1e39], 0), Err(ParticleError::OutOfRange { index: 0, axis: 1, .. })));
}
