//! Neighbors among the points of several ranks: the same to the last bit as on one; ghosts and
//! their adjoint.

use super::clouds::{self, Kind, distance, points, uniform};
use super::searches;
use meshloom::comm::{CommError, Communicator, run_threads};
use meshloom::gpu::Gpu;
use meshloom::points::ghosts::Ghosts;
use meshloom::points::neighbors::{
    Bins, Fixed, NeighborError, PairFilter, PairWeights, Predicate, Ragged, WeightedPairs,
};
use meshloom::points::sort::distribute;
use meshloom::points::tree::Builder;
use meshloom::points::{Cloud, Curve, Domain, Frame, HostLists, Lists, Particles, Targets};
use meshloom::{Error, Rank};

/// Distribution of the input.
#[derive(Clone, Copy, Debug)]
enum Share {
    Even,
    /// The more the higher the rank, and nothing on the first.
    Uneven,
    /// All on the last rank.
    Last,
}

fn rows(share: Share, n: usize, ranks: usize, rank: usize) -> std::ops::Range<usize> {
    let cut = |rank: usize| match share {
        Share::Even => n * rank / ranks,
        Share::Uneven if ranks > 1 => n * rank * rank.saturating_sub(1) / (ranks * (ranks - 1)),
        Share::Last if rank < ranks => 0,
        _ => n * rank / ranks,
    };
    cut(rank)..cut(rank + 1)
}

/// The results of all searches, of all ranks one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    nearest: Fixed<Vec<u64>, Vec<f32>>,
    limited: Fixed<Vec<u64>, Vec<f32>>,
    elsewhere: Fixed<Vec<u64>, Vec<f32>>,
    within: Ragged<Vec<u64>, Vec<u64>, Vec<f32>>,
    counts: Vec<u64>,
    pairs: Vec<u64>,
    cross: Vec<u64>,
}

fn told(ranks: usize, share: Share, domain: Domain, points: &[f32], places: &[f32], radius: f32) -> Told {
    let dims = domain.dims();
    let parts = run_threads(ranks, |comm| {
        let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
        let mut context = Rank::new(comm.clone(), gpu.clone())?;
        let mut part = |all: &[f32]| {
            let rows = rows(share, all.len() / dims, ranks, comm.rank());
            Particles::from_host(&mut context, &domain, &all[rows.start * dims..rows.end * dims])
        };
        let (cloud, places) = (part(points)?, part(places)?);
        let search = context.search(&cloud)?;
        let limited = Predicate::nearest(6).within(radius).exclude_self();
        let others = Predicate::within(radius).exclude_self();
        let bins = Bins::new(&[0.0, 0.3, 1.0].map(|x| x * f64::from(radius)))?;
        let lists = searches::nearest(&mut context, &search, Some(&places), &Predicate::nearest(8))?;
        let elsewhere = context.query(&search, Targets::Of(&places), Predicate::nearest(8), HostLists)?;
        assert_eq!(elsewhere, lists);
        Ok::<_, Error>(Told {
            nearest: searches::nearest(&mut context, &search, None, &Predicate::nearest(8))?,
            limited: searches::nearest(&mut context, &search, None, &limited)?,
            elsewhere,
            within: context.query(&search, Targets::Own, others, HostLists)?,
            counts: searches::counts(&mut context, &search, Some(&places), &Predicate::within(radius))?,
            pairs: searches::pairs(&mut context, &search, None, &bins)?,
            cross: searches::pairs(&mut context, &search, Some(&places), &bins)?,
        })
    })
    .unwrap();
    let mut all = Told { nearest: Fixed { k: 8, ..Fixed::default() }, ..Told::default() };
    (all.limited.k, all.elsewhere.k, all.within.offsets) = (6, 8, vec![0]);
    for part in parts {
        for (to, part) in
            [(&mut all.nearest, part.nearest), (&mut all.limited, part.limited), (&mut all.elsewhere, part.elsewhere)]
        {
            to.index.extend(part.index);
            to.distance.extend(part.distance);
        }
        let before = all.within.index.len() as u64;
        all.within.offsets.extend(part.within.offsets[1..].iter().map(|offset| before + offset));
        all.within.index.extend(part.within.index);
        all.within.distance.extend(part.within.distance);
        all.counts.extend(part.counts);
        assert!(all.pairs.is_empty() || all.pairs == part.pairs, "all ranks are told the same pairs");
        (all.pairs, all.cross) = (part.pairs, part.cross);
    }
    all
}

#[test]
fn one_query_takes_one_submission_and_one_wait() {
    let gpu = Gpu::open(&meshloom_sanitizer::options().unwrap(), 0).unwrap();
    let mut rank = Rank::new(Communicator::solo(), gpu).unwrap();
    let domain = Domain::open(3).unwrap();
    // Some drivers limit loops, and this tree could take more rounds than they allow.
    let points = Particles::from_host(&mut rank, &domain, &points(Kind::Uniform, 30_000, 3, 23)).unwrap();
    let search = rank.search(&points).unwrap();
    for (number, place) in [[0.5f32; 3], [0.1, 0.7, 0.4], [-3.0, 0.2, 0.9]].into_iter().enumerate() {
        let before = rank.recorder.counts();
        let place = Particles::from_host(&mut rank, &domain, &place).unwrap();
        let found = rank.query(&search, Targets::Of(&place), Predicate::nearest(8), HostLists).unwrap();
        let after = rank.recorder.counts();
        let lists = rank.query(&search, Targets::Of(&place), Predicate::nearest(8), Lists).unwrap();
        assert_eq!(found, lists.download(&mut rank).unwrap());
        let taken = [after.submits - before.submits, after.downloads - before.downloads];
        assert!(number == 0 || taken == [1, 1], "{taken:?}");
    }
}

#[test]
fn any_number_of_ranks_finds_the_same() {
    for (domain, kind, n, radius) in [
        (Domain::new(&[1.0; 3]).unwrap(), Kind::Uniform, 900, 0.15),
        (Domain::open(3).unwrap(), Kind::Hernquist, 500, 0.05),
        (Domain::new(&[1.0, 0.0]).unwrap(), Kind::Two, 300, 0.3),
        (Domain::open(3).unwrap(), Kind::Same, 200, 0.1),
        (Domain::new(&[1.0; 3]).unwrap(), Kind::Lattice, 343, 0.15),
        (Domain::open(3).unwrap(), Kind::Line, 5, 0.2),
        (Domain::open(3).unwrap(), Kind::Uniform, 0, 0.2),
    ] {
        let points = points(kind, n, domain.dims(), 21);
        let places = clouds::points(Kind::Uniform, 70, domain.dims(), 22);
        let one = told(1, Share::Even, domain, &points, &places, radius);
        assert_eq!((one.nearest.index.len(), one.counts.len()), (8 * n, 70));
        // One rank is held against brute force in tests/points/neighbors.rs; this is for the
        // numbers being those of the input.
        let own = one.nearest.index.chunks(8).enumerate().filter(|(row, near)| near[0] == *row as u64).count();
        assert!(own == n || kind == Kind::Same, "{kind:?}");
        for (ranks, share) in
            [(2, Share::Even), (3, Share::Uneven), (4, Share::Last), (5, Share::Even), (8, Share::Uneven)]
        {
            let many = told(ranks, share, domain, &points, &places, radius);
            assert!(many == one, "{kind:?} on {ranks} ranks, {share:?}");
        }
    }
}

/// Sums of products of weights of points, then of places and points, of all ranks together.
fn weighted_on(
    (ranks, share): (usize, Share),
    domain: Domain,
    [points, places]: [&[f32]; 2],
    [of_points, of_places]: [Option<&[f32]>; 2],
    edges: &[f64],
) -> [WeightedPairs; 2] {
    let dims = domain.dims();
    let parts = run_threads(ranks, |comm| {
        let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
        let mut context = Rank::new(comm.clone(), gpu)?;
        let rows = |all: &[f32]| rows(share, all.len() / dims, ranks, comm.rank());
        let mut part = |all: &[f32]| {
            let rows = rows(all);
            Particles::from_host(&mut context, &domain, &all[rows.start * dims..rows.end * dims])
        };
        let (cloud, queries) = (part(points)?, part(places)?);
        let search = context.search(&cloud)?;
        let bins = Bins::new(edges)?;
        let own = of_points.map(|weights| &weights[rows(points)]);
        let weights = PairWeights { points: own, queries: of_places.map(|weights| &weights[rows(places)]) };
        let auto =
            searches::weighted_pairs(&mut context, &search, None, &bins, PairWeights { queries: None, ..weights })?;
        let cross = searches::weighted_pairs(&mut context, &search, Some(&queries), &bins, weights)?;
        assert_eq!(auto.counts, searches::pairs(&mut context, &search, None, &bins)?);
        assert_eq!(cross.counts, searches::pairs(&mut context, &search, Some(&queries), &bins)?);
        Ok::<_, Error>([auto, cross])
    })
    .unwrap();
    assert!(parts.iter().all(|part| *part == parts[0]), "all ranks have the same sums");
    parts[0].clone()
}

#[test]
fn weighted_pairs_are_those_of_all_pairs_on_any_number_of_ranks() {
    for (domain, kind, n) in [
        (Domain::new(&[1.0; 3]).unwrap(), Kind::Uniform, 700),
        (Domain::open(3).unwrap(), Kind::Hernquist, 300),
        (Domain::new(&[1.0, 0.0]).unwrap(), Kind::Two, 200),
        (Domain::open(3).unwrap(), Kind::Same, 150),
        (Domain::open(3).unwrap(), Kind::Uniform, 0),
    ] {
        let dims = domain.dims();
        let points = points(kind, n, dims, 31);
        let places = clouds::points(Kind::Uniform, 90, dims, 32);
        // Seven orders of magnitude, and zeros.
        let weight =
            |seed, i: usize| if i.is_multiple_of(17) { 0.0 } else { 10f64.powf(7.0 * uniform(seed, i as u64)) as f32 };
        let of_points: Vec<f32> = (0..n).map(|i| weight(33, i)).collect();
        let of_places: Vec<f32> = (0..90).map(|i| weight(34, i)).collect();
        // The last has more bins than a workgroup adds up by itself.
        let many: Vec<f64> = (0..=300).map(|i| 0.4 * f64::from(i) / 300.0).collect();
        for edges in [vec![0.0, 0.05, 0.2, 0.4], many] {
            let clouds = [&points[..], &places[..]];
            let weights = [Some(&of_points[..]), Some(&of_places[..])];
            let one = weighted_on((1, Share::Even), domain, clouds, weights, &edges);
            for (found, (queries, query_weights)) in one.iter().zip([(&points, &of_points), (&places, &of_places)]) {
                // Whether a pair lies in a bin is what the searches without weights are tested for.
                if edges.len() > 4 {
                    continue;
                }
                let largest = |weights: &[f32]| weights.iter().fold(0.0, |most: f32, &w| most.max(w));
                let unit = f64::from(largest(&of_points)) * f64::from(largest(query_weights)) / 2f64.powi(30);
                for (bin, edge) in edges.windows(2).enumerate() {
                    let (mut sum, mut count) = (0.0, 0u64);
                    for (i, query) in queries.chunks(dims).enumerate() {
                        for (j, point) in points.chunks(dims).enumerate() {
                            let d = distance(&domain, query, point);
                            let own = std::ptr::eq(queries, &points) && i == j;
                            if !own && (edge[0] as f32..edge[1] as f32).contains(&d) {
                                sum += f64::from(query_weights[i]) * f64::from(of_points[j]);
                                count += 1;
                            }
                        }
                    }
                    // A weight is rounded by half a unit of 2^-31 of a power of two that is at most
                    // twice the largest weight, and a pair at an edge may lie on the other side in
                    // f64.
                    let stray = found.counts[bin].abs_diff(count) as f64;
                    assert!(stray <= 2.0, "{kind:?}: {} pairs, not {count}", found.counts[bin]);
                    let error = (found.sums[bin] - sum).abs();
                    let most = unit * 2f64.powi(30) * stray + unit * count as f64 + 1e-12 * sum;
                    assert!(error <= most, "{kind:?} {bin}: {} and not {sum}", found.sums[bin]);
                }
            }
            for (ranks, share) in [(2, Share::Even), (3, Share::Uneven), (4, Share::Last)] {
                let found = weighted_on((ranks, share), domain, clouds, weights, &edges);
                assert!(found == one, "{kind:?} on {ranks} ranks, {share:?}");
            }
        }
    }
}

/// A point of weight 3 counts as three points: exactly, and without weights each pair counts 1.
#[test]
fn an_integer_weight_is_so_many_points() {
    let domain = Domain::new(&[1.0; 3]).unwrap();
    let (points, places) = (points(Kind::Uniform, 300, 3, 35), clouds::points(Kind::Uniform, 60, 3, 36));
    let repeat = |points: &[f32], seed: u64| {
        let weights: Vec<f32> = (0..points.len() / 3).map(|i| (6.0 * uniform(seed, i as u64)).floor() as f32).collect();
        let repeated =
            points.chunks(3).zip(&weights).flat_map(|(point, &w)| point.repeat(w as usize)).collect::<Vec<_>>();
        (weights, repeated)
    };
    let ((of_points, many_points), (of_places, many_places)) = (repeat(&points, 37), repeat(&places, 38));
    // Copies of a point are 0 apart: they are not a pair of different places.
    let edges = [1e-6, 0.1, 0.2, 0.3];
    let clouds = [&points[..], &places[..]];
    let weights = [Some(&of_points[..]), Some(&of_places[..])];
    let repeated = weighted_on((1, Share::Even), domain, [&many_points, &many_places], [None; 2], &edges);
    let weighted = weighted_on((3, Share::Uneven), domain, clouds, weights, &edges);
    for (weighted, repeated) in weighted.iter().zip(&repeated) {
        let counts: Vec<f64> = repeated.counts.iter().map(|&count| count as f64).collect();
        assert_eq!((&weighted.sums, &repeated.sums), (&counts, &counts));
    }
}

#[test]
fn bad_weights_are_the_same_error_on_all_ranks() {
    let found = run_threads(3, |comm| {
        let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
        let mut context = Rank::new(comm.clone(), gpu)?;
        let cloud = Particles::from_host(&mut context, &Domain::open(2)?, &[0.0, 0.0, 1.0, 0.0])?;
        let search = context.search(&cloud)?;
        let (bins, last) = (Bins::new(&[0.0, 2.0])?, comm.rank() == 2);
        let mut refused = |points: Option<&[f32]>| {
            let weights = PairWeights { points, queries: None };
            searches::weighted_pairs(&mut context, &search, None, &bins, weights).map(drop).unwrap_err().to_string()
        };
        let errors = [
            refused(Some(if last { &[1.0] } else { &[1.0, 1.0] })),
            refused(Some(if last { &[1.0, -1.0] } else { &[1.0, 1.0] })),
            refused(Some(if last { &[f32::NAN, 1.0] } else { &[1.0, 1.0] })),
            refused((!last).then_some(&[1.0, 1.0])),
        ];
        // The search is good for others; one bin, and weights that are all 0.
        let all = PairWeights { points: Some(&[1.0, 2.0]), queries: None };
        let found = searches::weighted_pairs(&mut context, &search, None, &bins, all)?;
        assert_eq!((found.counts, found.sums), (vec![30], vec![66.0]));
        let zero = PairWeights { points: Some(&[0.0; 2]), queries: None };
        assert_eq!(searches::weighted_pairs(&mut context, &search, None, &bins, zero)?.sums, [0.0]);
        Ok::<_, Error>(errors)
    })
    .unwrap();
    let words = [
        "1 weights for 2 points",
        "weight 5 is -1",
        "weight 4 is NaN",
        "`weights given for points and queries` differs between ranks",
    ];
    for errors in found {
        assert!(errors.iter().zip(words).all(|(error, words)| error.contains(words)), "{errors:?}");
    }
}

#[test]
fn ghosts_are_few_and_traffic_is_counted() {
    // 8 ranks of 1,500 points: blocks of about 11.4^3. A query's reach is 1.24 mean separations for
    // k = 8, and ghosts follow the points: a shell of 6 * 11.4^2 * 1.24 = 967 ghosts; at most twice
    // that.
    let n = 12_000;
    let points = points(Kind::Uniform, n, 3, 23);
    let ghosts = run_threads(8, |comm| {
        let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
        let mut context = Rank::new(comm.clone(), gpu.clone())?;
        let rows = rows(Share::Even, n, 8, comm.rank());
        let domain = Domain::new(&[1.0; 3])?;
        let cloud = Particles::from_host(&mut context, &domain, &points[3 * rows.start..3 * rows.end])?;
        let search = context.search(&cloud)?;
        let before = context.exchange.cost();
        searches::nearest(&mut context, &search, None, &Predicate::nearest(8))?;
        let (ghosts, moved, cost) = (search.ghosts(), context.exchange.cost(), search.cost());
        // Twelve bytes for the place and four for the number of each ghost, and four for its row on
        // the way; eight for each entry of the rows whose queries were searched for elsewhere.
        let results = moved.received_bytes - before.received_bytes - 16 * ghosts;
        assert!(results % 64 == 0 && results > 0 && results <= 64 * (rows.end - rows.start) as u64, "{results}");
        assert!(cost.sent_bytes > 0 && cost.received_bytes >= 4 * ghosts);
        Ok::<_, Error>(ghosts)
    })
    .unwrap();
    assert!(ghosts.iter().all(|&ghosts| ghosts > 0 && ghosts < 2 * 967), "{ghosts:?}");
}

#[test]
fn ghosts_are_all_that_is_near_and_come_back() {
    for (ranks, n, radius) in [(1, 50, 0.2), (2, 300, 0.1), (3, 200, 0.25), (5, 4, 0.4), (4, 300, 3.0)] {
        let points = points(Kind::Uniform, n, 3, 24);
        let sums = run_threads(ranks, |comm| {
            let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
            let mut context = Rank::new(comm.clone(), gpu.clone())?;
            let rows = rows(Share::Even, n, ranks, comm.rank());
            let domain = Domain::new(&[1.0, 1.0, 0.0])?;
            let cloud = Cloud::from_host(&mut context.recorder, &domain, &points[3 * rows.start..3 * rows.end])?;
            let sorted = distribute(&mut context, &cloud, Curve::Hilbert)?;
            let (cloud, frame) = (sorted.cloud, sorted.frame);
            let tree = Builder::new(&gpu).build(&mut context.recorder, &cloud, &frame)?;
            let ghosts = Ghosts::within(&mut context, &tree, radius)?;
            let copies = ghosts.refresh(&mut context, cloud.positions(), 3)?;
            let copies = context.recorder.download(&copies, 0, copies.len())?;
            assert_eq!(copies.len() as u64, 3 * ghosts.len());
            // No neighbor is missing: what others have and is near any own point is here.
            let own = context.recorder.download(cloud.positions(), 0, cloud.positions().len())?;
            let all = comm.all_gather_v(&own)?;
            for (rank, others) in all.iter().enumerate().filter(|(rank, _)| *rank != comm.rank()) {
                for other in others.chunks_exact(3) {
                    let near = own.chunks_exact(3).any(|point| distance(&domain, point, other) <= radius);
                    let here = copies
                        .chunks_exact(3)
                        .zip(ghosts.owners())
                        .any(|(copy, owner)| copy == other && owner.0 == rank as u32);
                    assert!(here || !near, "{other:?} of rank {rank} is missing on rank {}", comm.rank());
                }
            }
            // <refresh x, y> = <x, accumulate y>: integers, so that sums are exact.
            let value = |seed: u64, i: u64| (uniform(seed, i + 1000 * comm.rank() as u64) * 16.0).floor() as f32;
            let x: Vec<f32> = (0..2 * cloud.len()).map(|i| value(25, i)).collect();
            let y: Vec<f32> = (0..2 * ghosts.len()).map(|i| value(26, i)).collect();
            let (dx, dy) = (gpu.array::<f32>("x", x.len() as u64)?, gpu.array::<f32>("y", y.len() as u64)?);
            context.recorder.upload(&dx, 0, &x)?;
            context.recorder.upload(&dy, 0, &y)?;
            let there = ghosts.refresh(&mut context, &dx, 2)?;
            let there = context.recorder.download(&there, 0, there.len())?;
            let back = gpu.array::<f32>("back", x.len() as u64)?;
            context.recorder.clear(&back);
            ghosts.accumulate(&mut context, &dy, &back, 2)?;
            if ranks == 2 {
                // Values that lack the points that others see. Both ranks have some, so neither
                // waits for the other.
                let none = gpu.array::<f32>("none", 0)?;
                assert!(ghosts.refresh(&mut context, &none, 2).is_err());
                assert!(ghosts.accumulate(&mut context, &dy, &none, 2).is_err());
            }
            let back = context.recorder.download(&back, 0, back.len())?;
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
            Ok::<_, Error>([dot(&there, &y), dot(&x, &back)])
        })
        .unwrap();
        let [forward, backward] = [0, 1].map(|side| sums.iter().map(|sum| sum[side]).sum::<f64>());
        assert_eq!(forward, backward, "{ranks} ranks");
        assert_eq!(forward > 0.0, ranks > 1);
    }
}

#[test]
fn every_rank_hears_of_an_error() {
    let failed = run_threads(3, |comm| {
        let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
        let mut context = Rank::new(comm.clone(), gpu.clone())?;
        let cloud = Particles::from_host(&mut context, &Domain::open(3)?, &[comm.rank() as f32; 3])?;
        let search = context.search(&cloud)?;
        searches::nearest(&mut context, &search, None, &Predicate::nearest(2000))?;
        Ok::<_, Error>(())
    });
    assert!(failed.is_err_and(|error| error.to_string().contains("2000 neighbors")));
}

#[test]
fn ranks_that_look_for_different_things_are_refused() {
    run_threads(3, |comm| {
        let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
        let mut context = Rank::new(comm, gpu)?;
        let last = context.comm.rank() == 2;
        let domain = Domain::open(2)?;
        let cloud = Particles::from_host(&mut context, &domain, &[0.0, 0.0, 1.0, 0.0])?;
        let elsewhere = Particles::from_host(&mut context, &Domain::new(&[3.0, 0.0])?, &[0.0, 0.0])?;
        let search = context.search(&cloud)?;
        let context = &mut context;
        let either = |one: f32, other: f32| if last { other } else { one };
        let nearest = Predicate::nearest(2).within(either(1.0, f32::NAN));
        let which = if last { PairFilter::All } else { PairFilter::ExcludeSelf };
        let spheres = Predicate::overdensity(&[either(1.0, 2.0).into()], 1);
        let (one, bins) = (Predicate::nearest(1), Bins::new(&[0.0, either(1.0, 0.5).into()])?);
        let mut differing = Vec::new();
        for refused in [
            searches::nearest(context, &search, None, &Predicate::nearest(if last { 3 } else { 2 })).map(drop),
            searches::nearest(context, &search, None, &nearest).map(drop),
            searches::nearest(context, &search, Some(&cloud).filter(|_| last), &one).map(drop),
            searches::nearest(context, &search, Some(if last { &elsewhere } else { &cloud }), &one).map(drop),
            searches::within(context, &search, None, &Predicate::within(either(0.5, 1.5))).map(drop),
            searches::counts(context, &search, None, &Predicate::within(1.0).filter(which)).map(drop),
            searches::pairs(context, &search, None, &bins).map(drop),
            searches::overdense(context, &search, &cloud, &spheres).map(drop),
        ] {
            let Err(NeighborError::Comm(CommError::Differ { rank: 2, argument, .. })) = refused else {
                panic!("{refused:?}")
            };
            differing.push(argument);
        }
        let queries = "domain of the queries";
        assert_eq!(differing, ["query", "query", queries, queries, "query", "query", "bins", "query"]);
        // The search is good for others.
        assert_eq!(searches::counts(context, &search, None, &Predicate::within(0.5))?, [3, 3]);
        Ok::<_, Error>(())
    })
    .unwrap();
}

#[test]
fn queries_elsewhere_are_no_points_that_could_be_left_out() {
    run_threads(2, |comm| {
        let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
        let mut context = Rank::new(comm, gpu.clone())?;
        let domain = Domain::open(2)?;
        let cloud = Particles::from_host(&mut context, &domain, &[0.0, 0.0, 1.0, 0.0])?;
        let search = context.search(&cloud)?;
        let nearest = Predicate::nearest(1).exclude_self();
        let within = Predicate::within(1.0).exclude_self();
        let (context, queries) = (&mut context, Some(&cloud));
        for refused in [
            searches::nearest(context, &search, queries, &nearest).map(drop),
            searches::within(context, &search, queries, &within).map(drop),
            searches::counts(context, &search, queries, &within).map(drop),
        ] {
            let why = refused.unwrap_err().to_string();
            assert!(why.contains("queries of their own"), "{why}");
        }
        searches::nearest(context, &search, None, &nearest).map(drop)?;
        Ok::<_, Error>(())
    })
    .unwrap();
}

/// Ghosts of one point a rank, with radii and domains of each rank's own: what all ranks say.
fn ghosts_within(radii: [f32; 2], sides: [f64; 2]) -> Vec<String> {
    let errors = run_threads(2, |comm| {
        let rank = comm.rank();
        let mut context = Rank::new(comm, Gpu::open(&meshloom_sanitizer::options()?, 0)?)?;
        let domain = Domain::new(&[sides[rank]; 2])?;
        let cloud = Cloud::from_host(&mut context.recorder, &domain, &[0.25; 2])?;
        let frame = Frame::new(&domain, None);
        let tree = Builder::new(&context.gpu).build(&mut context.recorder, &cloud, &frame)?;
        let found = Ghosts::within(&mut context, &tree, radii[rank]);
        Ok::<_, Error>(found.err().map_or(String::new(), |error| error.to_string()))
    });
    errors.unwrap()
}

#[test]
fn ranks_ask_for_ghosts_within_one_radius_of_one_domain() {
    assert!(ghosts_within([0.5, 0.5], [1.0; 2]).iter().all(String::is_empty));
    for bad in [f32::NAN, -0.1, f32::INFINITY] {
        for text in ghosts_within([0.5, bad], [1.0; 2]) {
            assert!(text.contains(&format!("the radius {bad} of rank 1")), "{text}");
        }
    }
    for text in ghosts_within([0.5, 0.25], [1.0; 2]) {
        assert!(text.contains("called Ghosts::within 0.5") && text.contains("called Ghosts::within 0.25"), "{text}");
    }
    for text in ghosts_within([0.5; 2], [1.0, 2.0]) {
        assert!(text.matches("Ghosts::within 0.5 in a domain and frame of number").count() == 2, "{text}");
    }
}

/// A rank without queries hears of it, too, and does not wait for theirs.
#[test]
fn queries_of_another_domain_are_refused_on_all_ranks() {
    let found = run_threads(2, |comm| {
        let mut context = Rank::new(comm.clone(), Gpu::open(&meshloom_sanitizer::options()?, 0)?)?;
        let cloud = |context: &mut Rank, domain: Domain, values: usize| {
            Particles::from_host(context, &domain, &vec![0.25; values])
        };
        let points = cloud(&mut context, Domain::open(3)?, 30)?;
        let queries = cloud(&mut context, Domain::open(2)?, if comm.rank() == 0 { 4 } else { 0 })?;
        let search = context.search(&points)?;
        let refused = searches::nearest(&mut context, &search, Some(&queries), &Predicate::nearest(2)).err();
        // And the next search is none the worse.
        let found = searches::nearest(&mut context, &search, None, &Predicate::nearest(2))?;
        assert_eq!(found.index.len(), 20);
        Ok::<_, Error>(refused)
    });
    let found = found.unwrap();
    assert!(found.iter().all(|error| matches!(error, Some(NeighborError::Domain { .. }))), "{found:?}");
}
