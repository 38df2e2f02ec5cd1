//! Friends-of-friends groups over several ranks: labels, rows and members the same to the last bit
//! as on one, and those of a plain union-find.

use super::clouds::{Kind, distance, points, uniform};
use meshloom::comm::{CommError, RunError, run_threads};
use meshloom::gpu::{Gpu, Options};
use meshloom::points::fof::{Catalog, FofError, Groups, Linking, Order, Selection, device_memory};
use meshloom::points::{Cloud, Domain};
use meshloom::{Error, Launch, Rank, launch};

/// Returns where each rank's rows end: evenly, all on the last one, or the more the higher the
/// rank.
fn share(n: usize, ranks: usize, how: usize) -> Vec<usize> {
    let end = |rank: usize| match how % 3 {
        0 => n * rank / ranks,
        1 => n * usize::from(rank == ranks),
        _ => n * rank * rank / ranks / ranks,
    };
    (0..=ranks).map(end).collect()
}

/// Results of all ranks, one after the other.
#[derive(Debug, Default, PartialEq)]
struct Found {
    labels: Vec<u64>,
    groups: Catalog,
    /// Ghosts of all ranks, and most rows and members of a rank less the fewest; no result.
    ghosts: u64,
    spread: [u64; 2],
}

fn found(ranks: usize, how: usize, domain: &Domain, points: &[f32], linking: Linking, selection: &Selection) -> Found {
    let dims = domain.dims();
    let ends = share(points.len() / dims, ranks, how);
    let parts = run_threads(ranks, |comm| {
        let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
        let mut context = Rank::new(comm.clone(), gpu.clone())?;
        let rows = ends[comm.rank()]..ends[comm.rank() + 1];
        let mut cloud = Cloud::from_host(&mut context.recorder, domain, &points[rows.start * dims..rows.end * dims])?;
        let mut attribute = |name: &str, width: usize, of: &dyn Fn(u64) -> f32| -> Result<(), Error> {
            let values: Vec<f32> = (rows.start * width..rows.end * width).map(|i| of(i as u64)).collect();
            let array = gpu.array(name, values.len() as u64)?;
            context.recorder.upload(&array, 0, &values)?;
            Ok(cloud.set(name, array, width as u64)?)
        };
        attribute("mass", 1, &|i| 0.5 + uniform(8, i) as f32)?;
        attribute("velocity", dims, &|i| uniform(9, i) as f32 - 0.5)?;
        let groups = Groups::find(&mut context, &cloud, linking)?;
        let labels = groups.labels(&mut context)?;
        Ok::<_, Error>((labels, groups.catalog(&mut context.recorder, selection)?, groups.ghosts()))
    })
    .unwrap();
    let mut all = Found { groups: Catalog { offset: vec![0], ..Catalog::default() }, ..Found::default() };
    let rows: Vec<u64> = parts.iter().map(|part| part.1.label.len() as u64).collect();
    let members: Vec<u64> = parts.iter().map(|part| part.1.members.len() as u64).collect();
    all.spread = [rows, members].map(|n| n.iter().max().unwrap() - n.iter().min().unwrap());
    for (labels, part, ghosts) in parts {
        all.labels.extend(labels);
        all.ghosts += ghosts;
        let whole = &mut all.groups;
        assert_eq!((part.groups.start, part.members_start), (whole.label.len() as u64, whole.members.len() as u64));
        assert_eq!(part.offset[0], *whole.offset.last().unwrap());
        whole.offset.extend(&part.offset[1..]);
        (whole.dims, whole.total, whole.members_total) = (part.dims, part.total, part.members_total);
        whole.label.extend(part.label);
        whole.count.extend(part.count);
        whole.members.extend(part.members);
        let reals = [
            (&mut whole.mass, part.mass),
            (&mut whole.center, part.center),
            (&mut whole.inertia_radius, part.inertia_radius),
            (&mut whole.max_radius, part.max_radius),
            (&mut whole.axes, part.axes),
            (&mut whole.directions, part.directions),
            (whole.velocity.get_or_insert_default(), part.velocity.unwrap()),
            (whole.velocity_dispersion.get_or_insert_default(), part.velocity_dispersion.unwrap()),
        ];
        reals.into_iter().for_each(|(to, from)| to.extend(from));
    }
    all
}

/// Returns the least number of a point in each one's group, by a search through all pairs.
fn brute(domain: &Domain, points: &[f32], length: f32) -> Vec<u64> {
    let points: Vec<&[f32]> = points.chunks(domain.dims()).collect();
    let mut labels = vec![u64::MAX; points.len()];
    for first in 0..points.len() {
        let mut reached = if labels[first] == u64::MAX { vec![first] } else { Vec::new() };
        labels[first] = labels[first].min(first as u64);
        while let Some(at) = reached.pop() {
            for (other, label) in labels.iter_mut().enumerate() {
                if *label == u64::MAX && distance(domain, points[at], points[other]) <= length {
                    *label = first as u64;
                    reached.push(other);
                }
            }
        }
    }
    labels
}

/// One rank is right, and any number of ranks is the same as one.
fn check(domain: &Domain, points: &[f32], length: f32, ranks: &[usize], what: &str) -> Found {
    let linking = Linking::Length(length.into());
    let selection = Selection { min_members: 2, order: Order::Count, observer: None };
    let one = found(1, 0, domain, points, linking, &selection);
    assert!(one.labels == brute(domain, points, length), "{what}");
    for (how, &ranks) in ranks.iter().enumerate() {
        let many = found(ranks, how, domain, points, linking, &selection);
        assert!(many.labels == one.labels, "{what}: labels on {ranks}");
        assert!(many.groups == one.groups, "{what}: groups on {ranks}");
        assert!(many.spread.iter().all(|&spread| spread <= 1), "{what}: {:?} on {ranks}", many.spread);
    }
    one
}

#[test]
fn groups_are_the_same_on_any_number_of_ranks() {
    for (dims, ranks) in [(3, [2, 3, 4]), (2, [5, 8, 3])] {
        let domain = Domain::new(&[1.0, 1.0, 0.0][..dims]).unwrap();
        for kind in [Kind::Uniform, Kind::Hernquist] {
            let mut points = points(kind, 1500, dims, 17);
            for (i, x) in points.iter_mut().enumerate() {
                *x = domain.side(i % dims).map_or(*x, |side| x.rem_euclid(side));
            }
            let length = (0.6 * 1500f64.powf(-1.0 / dims as f64)) as f32;
            let one = check(&domain, &points, length, &ranks, &format!("{kind:?} {dims}"));
            assert!(one.groups.total > 20, "{}", one.groups.total);
        }
    }
}

#[test]
fn points_in_one_place_and_few_points() {
    let domain = Domain::new(&[1.0; 3]).unwrap();
    let one = check(&domain, &points(Kind::Same, 300, 3, 0), 0.0, &[3, 2], "same");
    assert_eq!((one.groups.total, one.groups.inertia_radius[0], one.groups.max_radius[0]), (1, 0.0, 0.0));
    check(&domain, &points(Kind::Uniform, 3, 3, 1), 0.5, &[5], "three points on five ranks");
    let none = check(&domain, &[], 0.5, &[3], "none");
    assert_eq!(none.groups.total, 0);
}

/// Fact F14: a chain through all ranks, and a ring through the faces of the box.
#[test]
fn chains_through_all_ranks() {
    let n = 10_000u64;
    let selection = Selection { min_members: 1, order: Order::Label, observer: None };
    let place = |i: u64| (i * 7919 % n) as f32;
    let chain = |spacing: f32| -> Vec<f32> { (0..n).flat_map(|i| [place(i) * spacing, 0.5, 0.5]).collect() };
    let open = Domain::open(3).unwrap();
    let whole = found(6, 0, &open, &chain(0.99), Linking::Length(1.0), &selection);
    assert!(whole.labels.iter().all(|&label| label == 0) && whole.ghosts > 0);
    assert_eq!((whole.groups.total, whole.groups.count[0]), (1, n));
    // Its middle is the mean of places, and its length that of a rod of points.
    let spacing = f64::from(0.99f32);
    let (middle, spread) = (spacing * (n - 1) as f64 / 2.0, spacing * ((n * n - 1) as f64 / 12.0).sqrt());
    assert!((whole.groups.center[0] - middle).abs() < 0.02 * spread, "masses are random");
    assert!((whole.groups.inertia_radius[0] / spread - 1.0).abs() < 0.02);
    let apart = found(6, 0, &open, &chain(1.01), Linking::Length(1.0), &selection);
    assert_eq!(apart.groups.total, n);
    assert!((0..n).all(|i| apart.labels[i as usize] == i));
    let ring = Domain::new(&[n as f64, 0.0, 0.0]).unwrap();
    let points: Vec<f32> = (0..n).filter(|&i| place(i) != 17.0).flat_map(|i| [place(i), 0.0, 0.0]).collect();
    assert_eq!(found(4, 0, &ring, &points, Linking::Length(1.5), &selection).groups.total, 1);
}

/// Eight ranks cut the cusp of a halo, where two fifths of the points have friends on other ranks.
/// What they send each other grows with the surface of the cut in units of the length, not with how
/// many points are there.
#[test]
fn a_halo_that_is_cut_has_few_ghosts() {
    let n = 60_000;
    let (domain, all) = (Domain::open(3).unwrap(), points(Kind::Hernquist, n, 3, 17));
    let length = 0.003 * (2e5 / n as f64).cbrt();
    let [one, many] = [1, 8].map(|ranks| {
        let parts = run_threads(ranks, |comm| {
            let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
            let rows = n * comm.rank() / ranks..n * (comm.rank() + 1) / ranks;
            let mut context = Rank::new(comm, gpu)?;
            let cloud = Cloud::from_host(&mut context.recorder, &domain, &all[3 * rows.start..3 * rows.end])?;
            let groups = Groups::find(&mut context, &cloud, Linking::Length(length))?;
            Ok::<_, Error>((groups.labels(&mut context)?, groups.ghosts()))
        });
        let (labels, ghosts): (Vec<Vec<u64>>, Vec<u64>) = parts.unwrap().into_iter().unzip();
        (labels.concat(), ghosts.iter().sum::<u64>())
    });
    assert!(one.0 == many.0);
    // Uniform points had 2,548 of 200,000 when all in reach of a leaf's box were sent; that is by
    // surface, too.
    let uniform = 2548.0 * (n as f64 / 2e5).powf(2.0 / 3.0);
    assert!((many.1 as f64) < 4.0 * uniform, "{} ghosts", many.1);
}

/// Points that are about as far from each other as the linking length: rounding decides, and does
/// so alike on any number of ranks.
#[test]
fn rounding_decides_alike_on_any_number_of_ranks() {
    let selection = Selection { min_members: 2, order: Order::Label, observer: None };
    for (side, dims) in [(0.0, 3), (1.0, 3), (0.0, 2)] {
        let domain = Domain::new(&[side; 3][..dims]).unwrap();
        // Ten or thirty in a row, from 0.3 on, a tenth or a thirtieth apart.
        let row = if dims == 3 { 10u32 } else { 30 };
        let spacing = 1.0 / f64::from(row);
        let at = |i: u32, axis: u32| (0.3 + f64::from(i / row.pow(axis) % row) * spacing) as f32;
        let points: Vec<f32> =
            (0..row.pow(dims as u32)).flat_map(|i| (0..dims as u32).map(move |a| at(i, a))).collect();
        let linking = Linking::Length(f64::from(spacing as f32));
        let one = found(1, 0, &domain, &points, linking, &selection);
        let groups = one.groups.total;
        assert!(groups > 1 && one.groups.members_total < points.len() as u64, "{groups} groups");
        for ranks in [2, 3, 5, 8] {
            let many = found(ranks, ranks, &domain, &points, linking, &selection);
            assert!(many.labels == one.labels && many.groups == one.groups, "{ranks} ranks, {dims} axes, box {side}");
        }
    }
}

/// Facts F15 and F21: lengths in mean separations, and points of other boxes.
#[test]
fn lengths_in_mean_separations() {
    let domain = Domain::new(&[8.0; 3]).unwrap();
    let grid: Vec<f32> = (0..512).flat_map(|i| [i / 64, i / 8 % 8, i % 8].map(|x| x as f32 - 8.0)).collect();
    let selection = Selection { min_members: 1, ..Selection::default() };
    for (b, groups) in [(0.9, 512), (1.0, 1)] {
        for ranks in [1, 3] {
            assert_eq!(found(ranks, 0, &domain, &grid, Linking::Separations(b), &selection).groups.total, groups);
        }
    }
}

fn failure(domain: Domain, linking: fn(usize) -> Linking, mass: Option<(f32, u64)>) -> RunError {
    run_threads(2, move |comm| {
        let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
        let mut context = Rank::new(comm.clone(), gpu.clone())?;
        let mut cloud = Cloud::from_host(&mut context.recorder, &domain, &[0.25; 6])?;
        if let Some((mass, len)) = mass {
            let array = gpu.array("mass", 2)?;
            context.recorder.upload(&array, 0, &[1.0, mass])?;
            let width = len / 2;
            cloud.set("mass", if width == 1 { array } else { gpu.array("mass", len)? }, width)?;
        }
        let groups = Groups::find(&mut context, &cloud, linking(comm.rank()))?;
        groups.catalog(&mut context.recorder, &Selection::default())?;
        Ok::<_, Error>(())
    })
    .map_or_else(|error| error, |_| panic!("nothing is wrong"))
}

/// Groups take the device memory that was said before there were points; half of those here are
/// members.
#[test]
fn groups_take_the_memory_that_was_said() {
    let (count, side) = (1u64 << 17, 8.0f32);
    // A dense part of the box with half of the points, and one that is nearly empty.
    let place = |i: u64| {
        let narrow = i.is_multiple_of(3) && (i / 3).is_multiple_of(2);
        side * uniform(1, i) as f32 * if narrow { 0.05 } else { 1.0 }
    };
    let points: Vec<f32> = (0..3 * count).map(place).collect();
    // A device of its own, whose memory is not used by others.
    let options = Options { kernels: 401, ..meshloom_sanitizer::options().unwrap() };
    launch(Launch::Threads(1), &options, |context| {
        // Uploaded in pieces, so that what they pass through is little.
        let mut array = |name: &str| {
            let array = context.gpu.array::<f32>(name, 3 * count)?;
            for (piece, at) in points.chunks(1 << 13).zip((0..).step_by(1 << 13)) {
                context.recorder.upload(&array, at, piece)?;
                context.recorder.wait()?;
            }
            Ok::<_, Error>(array)
        };
        let (positions, velocity) = (array("positions")?, array("velocity")?);
        let mut cloud = Cloud::new(&mut context.recorder, &Domain::new(&[f64::from(side); 3])?, positions)?;
        cloud.set("velocity", velocity, 3)?;
        let groups = Groups::find(context, &cloud, Linking::Separations(0.55))?;
        let catalog = groups.catalog(&mut context.recorder, &Selection::default())?;
        let (taken, said, members) = (context.gpu.most_used(), device_memory(count, count), catalog.members_total);
        assert!((count / 3..count * 2 / 3).contains(&members), "{members} of {count}");
        // Small arrays and what results pass through on their way to the host come on top.
        let ratio = taken as f64 / said as f64;
        assert!((0.75..1.3).contains(&ratio), "{taken} bytes were taken, {said} said: {ratio:.3}");
        Ok::<_, Error>(())
    })
    .unwrap();
}

/// Ranks without points, which have no values of any width, refuse them with the others, for whom
/// they would wait.
#[test]
fn attributes_of_another_width_are_refused_on_all_ranks() {
    let found = run_threads(2, |comm| {
        let mut context = Rank::new(comm.clone(), Gpu::open(&meshloom_sanitizer::options()?, 0)?)?;
        let own = if comm.rank() == 0 { 2 } else { 0 };
        let mut cloud = Cloud::from_host(&mut context.recorder, &Domain::new(&[1.0; 3])?, &vec![0.25; 3 * own])?;
        cloud.set("mass", context.gpu.array::<f32>("mass", 3 * own as u64)?, 3)?;
        Ok::<_, Error>(Groups::find(&mut context, &cloud, Linking::Length(0.1)).err())
    });
    let found = found.unwrap();
    assert!(
        found.iter().all(|error| matches!(error, Some(FofError::Attribute { what: "mass", width: 3, wanted: 1, .. }))),
        "{found:?}"
    );
    let error = launch(Launch::Threads(1), &meshloom_sanitizer::options().unwrap(), |context| {
        let mut cloud = Cloud::from_host(&mut context.recorder, &Domain::new(&[1.0; 3])?, &[0.25; 6])?;
        cloud.set("velocity", context.gpu.array::<u32>("velocity", 6)?, 3)?;
        Ok::<_, Error>(Groups::find(context, &cloud, Linking::Length(0.1)).err())
    });
    let text = error.unwrap()[0].as_ref().unwrap().to_string();
    assert_eq!(text, "the attribute `velocity` has 3 values of type u32 for each point; catalogs take 3 of type f32");
}

#[test]
fn wrong_questions_are_refused() {
    let (box_of, half_open) = (Domain::new(&[1.0; 3]).unwrap(), Domain::new(&[1.0, 0.0, 1.0]).unwrap());
    let fof = |failure: RunError| match failure.downcast() {
        Ok(Error::Fof(error)) => error,
        Ok(Error::Comm(error)) => FofError::Comm(error),
        other => panic!("{other:?}"),
    };
    assert!(matches!(fof(failure(box_of, |_| Linking::Length(-1.0), None)), FofError::Length { .. }));
    assert!(matches!(fof(failure(box_of, |_| Linking::Separations(f64::NAN), None)), FofError::Length { .. }));
    assert!(matches!(fof(failure(half_open, |_| Linking::Separations(0.2), None)), FofError::Volume));
    let differ = failure(box_of, |rank| Linking::Length(0.1 * (1 + rank) as f64), None);
    assert!(matches!(fof(differ), FofError::Comm(CommError::Differ { rank: 1, .. })));
    let negative = failure(box_of, |_| Linking::Length(0.1), Some((-1.0, 2)));
    assert!(matches!(fof(negative), FofError::Mass { value, .. } if value == -1.0));
    let wide = failure(box_of, |_| Linking::Length(0.1), Some((1.0, 4)));
    assert!(matches!(fof(wide), FofError::Attribute { what: "mass", width: 2, wanted: 1, .. }));
}

#[test]
fn the_first_bad_value_is_named_also_in_groups_that_are_left_out() {
    // Four points, each a group of its own: the scale factor of the third and the mass of the last
    // are wrong, then a velocity too.
    let points = [0.1, 0.1, 0.1, 0.9, 0.9, 0.1, 0.9, 0.9];
    for (ranks, velocity, want) in
        [(1, 0.0, ("scale_factor", 2)), (2, -0.0, ("scale_factor", 2)), (2, f32::INFINITY, ("velocity", 1))]
    {
        let failed = run_threads(ranks, |comm| {
            let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
            let mut context = Rank::new(comm.clone(), gpu.clone())?;
            let each = 4 / ranks;
            let rows = comm.rank() * each..(comm.rank() + 1) * each;
            let domain = Domain::new(&[1.0; 2])?;
            let own = &points[2 * rows.start..2 * rows.end];
            let mut cloud = Cloud::from_host(&mut context.recorder, &domain, own)?;
            let mass = [1.0, -0.0, 1.0, -1.0];
            let (scale_factor, velocity) = ([1.0, 1.0, f32::NAN, 1.0], [0.0, 0.0, 0.0, velocity, 0.0, 0.0, 0.0, 0.0]);
            for (name, width, values) in
                [("mass", 1, &mass[..]), ("velocity", 2, &velocity[..]), ("scale_factor", 1, &scale_factor[..])]
            {
                let array = gpu.array(name, (each * width) as u64)?;
                context.recorder.upload(&array, 0, &values[rows.start * width..rows.end * width])?;
                cloud.set(name, array, width as u64)?;
            }
            let groups = Groups::find(&mut context, &cloud, Linking::Length(0.1))?;
            groups.catalog(&mut context.recorder, &Selection::default())?;
            Ok::<_, Error>(())
        });
        match failed.unwrap_err().downcast() {
            Ok(Error::Fof(FofError::NonFinite { what, number })) => assert_eq!((what, number), want),
            other => panic!("{other:?}"),
        }
    }
}
