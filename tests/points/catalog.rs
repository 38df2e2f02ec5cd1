//! The catalog of groups against plain sums in f64, known shapes, and itself on other numbers of
//! ranks.

use meshloom::comm::{CommError, RunError, run_threads};
use meshloom::grid::split;
use meshloom::points::Domain;
use meshloom::points::fof::{Catalog, FofError, Members, Order, Selection, catalog};
use proptest::prelude::*;

/// Random numbers of a fixed sequence.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let n = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ n >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(n)) >> 64) as u64
    }

    /// In `-0.5..0.5`.
    fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    }
}

/// Points of all ranks.
#[derive(Clone, Debug)]
struct Points {
    domain: Domain,
    number: Vec<u64>,
    label: Vec<u64>,
    position: Vec<f32>,
    mass: Option<Vec<f32>>,
    velocity: Option<Vec<f32>>,
    scale_factor: Option<Vec<f32>>,
}

impl Points {
    /// Groups of these sizes: each is a blob of some extent somewhere, with numbers from all over
    /// the input.
    fn random(seed: u64, domain: Domain, sizes: &[usize], extent: f64) -> Points {
        let mut random = Random(seed);
        let (count, dims) = (sizes.iter().sum::<usize>(), domain.dims());
        // Numbers with gaps, dealt to the points at random.
        let mut number: Vec<u64> = (0..count as u64).map(|i| 3 * i + 5).collect();
        (1..count).rev().for_each(|i| number.swap(i, random.below(i as u64 + 1) as usize));
        let (mut label, mut position, mut velocity) = (Vec::new(), Vec::new(), Vec::new());
        let mut first = 0;
        for &size in sizes {
            let least = *number[first..first + size].iter().min().unwrap();
            label.extend(std::iter::repeat_n(least, size));
            first += size;
            let center: Vec<f64> = (0..dims).map(|_| 20.0 * random.unit()).collect();
            let flow: Vec<f64> = (0..dims).map(|_| 900.0 * random.unit()).collect();
            for _ in 0..size {
                let x = |axis: usize, random: &mut Random| domain.wrap(axis, center[axis] + extent * random.unit());
                position.extend((0..dims).map(|axis| x(axis, &mut random)));
                velocity.extend(flow.iter().map(|flow| (flow + 100.0 * random.unit()) as f32));
            }
        }
        let mass = (0..count).map(|_| 10f64.powf(4.0 * random.unit()) as f32).collect();
        let scale_factor = (0..count).map(|_| (0.5 + 0.1 * random.unit()) as f32).collect();
        let (mass, velocity, scale_factor) = (Some(mass), Some(velocity), Some(scale_factor));
        Points { domain, number, label, position, mass, velocity, scale_factor }
    }

    /// Points of one group, numbered from 0, without anything but positions.
    fn one_group(domain: Domain, position: &[f32]) -> Points {
        let count = position.len() / domain.dims();
        let (number, label) = ((0..count as u64).collect(), vec![0; count]);
        Points { domain, number, label, position: position.to_vec(), mass: None, velocity: None, scale_factor: None }
    }

    fn count(&self) -> usize {
        self.number.len()
    }

    /// Returns the points of these rows.
    fn of(&self, rows: &[usize]) -> Points {
        let dims = self.domain.dims();
        let reals = |values: &[f32], width: usize| -> Vec<f32> {
            rows.iter().flat_map(|&row| values[row * width..(row + 1) * width].to_vec()).collect()
        };
        Points {
            domain: self.domain,
            number: rows.iter().map(|&row| self.number[row]).collect(),
            label: rows.iter().map(|&row| self.label[row]).collect(),
            position: reals(&self.position, dims),
            mass: self.mass.as_ref().map(|values| reals(values, 1)),
            velocity: self.velocity.as_ref().map(|values| reals(values, dims)),
            scale_factor: self.scale_factor.as_ref().map(|values| reals(values, 1)),
        }
    }

    fn members(&self) -> Members<'_> {
        Members {
            domain: &self.domain,
            number: &self.number,
            label: &self.label,
            position: &self.position,
            mass: self.mass.as_deref(),
            velocity: self.velocity.as_deref(),
            scale_factor: self.scale_factor.as_deref(),
        }
    }

    /// Dealt out to ranks at random, in random order; ranks in `empty` get nothing.
    fn dealt(&self, seed: u64, ranks: usize, empty: &[usize]) -> Vec<Points> {
        let mut random = Random(seed);
        let open: Vec<usize> = (0..ranks).filter(|rank| !empty.contains(rank)).collect();
        let mut rows: Vec<usize> = (0..self.count()).collect();
        (1..rows.len()).rev().for_each(|i| rows.swap(i, random.below(i as u64 + 1) as usize));
        let mut dealt = vec![Vec::new(); ranks];
        rows.into_iter().for_each(|row| dealt[open[random.below(open.len() as u64) as usize]].push(row));
        dealt.iter().map(|rows| self.of(rows)).collect()
    }
}

/// Returns the catalog of points that are dealt out so, each rank's part.
fn parts(dealt: &[Points], selection: &Selection) -> Result<Vec<Catalog>, RunError> {
    run_threads(dealt.len(), |comm| catalog(&comm, &dealt[comm.rank()].members(), selection))
}

fn on_one_rank(points: &Points, selection: &Selection) -> Catalog {
    parts(std::slice::from_ref(points), selection).unwrap().remove(0)
}

const ALL: Selection = Selection { min_members: 1, order: Order::Label, observer: None };

/// Returns the parts as one, after a check of how they are shared out.
fn joined(parts: &[Catalog]) -> Catalog {
    let ranks = parts.len() as u64;
    let (total, members_total) = (parts[0].total, parts[0].members_total);
    let mut all = Catalog { groups: 0..total, members_start: 0, offset: Vec::new(), ..parts[0].clone() };
    let append = |all: &mut Option<Vec<f64>>, part: &Option<Vec<f64>>| match (all, part) {
        (Some(all), Some(part)) => all.extend(part),
        (None, None) => (),
        _ => panic!("a column that not all ranks have"),
    };
    for (rank, part) in parts.iter().enumerate() {
        assert_eq!((part.dims, part.total, part.members_total), (all.dims, total, members_total));
        assert_eq!(part.groups, split(total, ranks, rank as u64));
        let place = split(members_total, ranks, rank as u64);
        assert_eq!((part.members_start, part.members.len() as u64), (place.start, place.end - place.start));
        let rows = (part.groups.end - part.groups.start) as usize;
        let dims = part.dims;
        assert_eq!([part.label.len(), part.count.len(), part.offset.len() - 1], [rows; 3]);
        assert_eq!([part.mass.len(), part.inertia_radius.len(), part.max_radius.len()], [rows; 3]);
        assert_eq!(
            [part.center.len(), part.axes.len(), part.directions.len()],
            [rows * dims, rows * dims, rows * dims * dims]
        );
        all.offset.pop();
        all.offset.extend(&part.offset);
        if rank == 0 {
            continue;
        }
        all.label.extend(&part.label);
        all.count.extend(&part.count);
        all.members.extend(&part.members);
        all.mass.extend(&part.mass);
        all.center.extend(&part.center);
        all.inertia_radius.extend(&part.inertia_radius);
        all.max_radius.extend(&part.max_radius);
        all.axes.extend(&part.axes);
        all.directions.extend(&part.directions);
        append(&mut all.velocity, &part.velocity);
        append(&mut all.velocity_dispersion, &part.velocity_dispersion);
        append(&mut all.scale_factor, &part.scale_factor);
        append(&mut all.radial_velocity, &part.radial_velocity);
    }
    all
}

fn bits(catalog: &Catalog) -> Vec<u64> {
    let none = Vec::new();
    let of = |column: &Option<Vec<f64>>| column.clone().unwrap_or(none.clone());
    let reals = [
        catalog.mass.clone(),
        catalog.center.clone(),
        of(&catalog.velocity),
        catalog.inertia_radius.clone(),
        of(&catalog.velocity_dispersion),
        catalog.max_radius.clone(),
        catalog.axes.clone(),
        catalog.directions.clone(),
        of(&catalog.scale_factor),
        of(&catalog.radial_velocity),
    ];
    let integers = [catalog.label.clone(), catalog.count.clone(), catalog.offset.clone(), catalog.members.clone()];
    integers.concat().into_iter().chain(reals.concat().into_iter().map(f64::to_bits)).collect()
}

fn close(what: &str, have: f64, want: f64, tolerance: f64) {
    assert!((have - want).abs() <= tolerance, "{what} is {have}, should be {want} to {tolerance:e}");
}

/// Compares every row with sums of f64 over a list of the group's members, in the order of the
/// list. `extent` is the extent of the groups: nearest images are taken for groups of less than
/// half the box.
fn compare_with_sums(points: &Points, selection: &Selection, all: &Catalog, extent: f64) {
    let dims = points.domain.dims();
    let mut groups: std::collections::BTreeMap<u64, Vec<usize>> = Default::default();
    (0..points.count()).for_each(|row| groups.entry(points.label[row]).or_default().push(row));
    groups.retain(|_, rows| rows.len() as u64 >= selection.min_members);
    assert_eq!((all.total, all.label.len()), (groups.len() as u64, groups.len()));
    assert_eq!(all.members_total, groups.values().map(Vec::len).sum::<usize>() as u64);

    for (row, label) in all.label.iter().enumerate() {
        let rows = &groups[label];
        let mut numbers: Vec<u64> = rows.iter().map(|&at| points.number[at]).collect();
        numbers.sort_unstable();
        assert_eq!(all.count[row], rows.len() as u64);
        assert_eq!(all.members[all.offset[row] as usize..all.offset[row + 1] as usize], numbers);

        // Unfolded round the last one listed, which need not be the one the library takes.
        let anchor = rows[rows.len() - 1];
        let unfold = |at: usize, axis: usize| {
            let (x, x0) =
                (f64::from(points.position[at * dims + axis]), f64::from(points.position[anchor * dims + axis]));
            let side = points.domain.side(axis).map_or(f64::INFINITY, f64::from);
            [x, x - side, x + side].into_iter().min_by(|a, b| (a - x0).abs().total_cmp(&(b - x0).abs())).unwrap()
        };
        let mass = |at: usize| points.mass.as_ref().map_or(1.0, |values| f64::from(values[at]));
        let heavy = rows.iter().any(|&at| mass(at) > 0.0);
        let weight = |at: usize| if heavy { mass(at) } else { 1.0 };
        let mean = |value: &dyn Fn(usize) -> f64| {
            rows.iter().map(|&at| weight(at) * value(at)).sum::<f64>() / rows.iter().map(|&at| weight(at)).sum::<f64>()
        };
        // Sums of n terms of this magnitude in f64, a few roundings each.
        let n = rows.len() as f64;
        let rounding = |magnitude: f64| (4.0 * n + 20.0) * f64::EPSILON * magnitude;

        let total: f64 = rows.iter().map(|&at| mass(at)).sum();
        close("mass", all.mass[row], total, rounding(total));
        let center: Vec<f64> = (0..dims).map(|axis| mean(&|at| unfold(at, axis))).collect();
        for (axis, want) in center.iter().enumerate() {
            let have = all.center[row * dims + axis];
            let mut d = have - want;
            if let Some(side) = points.domain.side(axis).map(f64::from) {
                assert!((0.0..side).contains(&have), "{have} is not in the box");
                d -= side * (d / side).round();
            }
            close("center", d, 0.0, rounding(100.0));
        }
        let square = |at: usize| (0..dims).map(|axis| (unfold(at, axis) - center[axis]).powi(2)).sum::<f64>();
        // The errors of a root: of its square, over twice itself, and at worst the root of it.
        let root = |name: &str, have: f64, want: f64, error: f64| {
            close(name, have, want.sqrt(), (error / (2.0 * want.sqrt()).max(f64::MIN_POSITIVE)).min(error.sqrt()));
        };
        let error = rounding(100.0) * (extent + rounding(100.0)) * dims as f64;
        root("inertia_radius", all.inertia_radius[row], mean(&square), error);
        let farthest = rows.iter().map(|&at| square(at)).fold(0.0, f64::max);
        root("max_radius", all.max_radius[row], farthest, 2.0 * error);

        // The covariance put together again from axes and directions.
        let axes = &all.axes[row * dims..(row + 1) * dims];
        let directions = &all.directions[row * dims * dims..(row + 1) * dims * dims];
        assert!(axes.is_sorted_by(|a, b| a >= b) && axes[dims - 1] >= 0.0, "{axes:?}");
        for a in 0..dims {
            let dot = |b: usize| (0..dims).map(|i| directions[a * dims + i] * directions[b * dims + i]).sum::<f64>();
            (0..dims).for_each(|b| close("product of directions", dot(b), f64::from(u8::from(a == b)), 1e-13));
            let vector = &directions[a * dims..(a + 1) * dims];
            let largest = vector.iter().fold(0.0f64, |most, &x| if x.abs() > most.abs() { x } else { most });
            assert!(largest > 0.0, "{vector:?}");
            for b in 0..dims {
                let have: f64 =
                    (0..dims).map(|i| axes[i].powi(2) * directions[i * dims + a] * directions[i * dims + b]).sum();
                let want = mean(&|at| (unfold(at, a) - center[a]) * (unfold(at, b) - center[b]));
                // A few roundings of the eigenvalues, all of which are below the square of the
                // extent.
                close("covariance", have, want, error + 100.0 * f64::EPSILON * extent * extent);
            }
        }

        if let Some(values) = &points.velocity {
            let v = |at: usize, axis: usize| f64::from(values[at * dims + axis]);
            let velocity: Vec<f64> = (0..dims).map(|axis| mean(&|at| v(at, axis))).collect();
            let have = &all.velocity.as_ref().unwrap()[row * dims..(row + 1) * dims];
            have.iter().zip(&velocity).for_each(|(&have, &want)| close("velocity", have, want, rounding(1000.0)));
            let square = |at: usize| (0..dims).map(|axis| (v(at, axis) - velocity[axis]).powi(2)).sum::<f64>();
            let error = rounding(1000.0) * (100.0 + rounding(1000.0)) * dims as f64;
            root("velocity_dispersion", all.velocity_dispersion.as_ref().unwrap()[row], mean(&square), error);
            if let Some(observer) = selection.observer {
                let line: Vec<f64> = (0..dims).map(|axis| all.center[row * dims + axis] - observer[axis]).collect();
                let distance = line.iter().map(|x| x * x).sum::<f64>().sqrt();
                let want = line.iter().zip(have).map(|(x, v)| x * v).sum::<f64>() / distance;
                close("radial_velocity", all.radial_velocity.as_ref().unwrap()[row], want, rounding(1000.0));
            }
        }
        if let Some(values) = &points.scale_factor {
            let want = mean(&|at| f64::from(values[at]));
            close("scale_factor", all.scale_factor.as_ref().unwrap()[row], want, rounding(1.0));
        }
    }

    let key = |row: usize| match selection.order {
        Order::Count => (-(all.count[row] as f64), all.label[row]),
        Order::Mass => (-all.mass[row], all.label[row]),
        Order::Label => (0.0, all.label[row]),
    };
    assert!((1..all.label.len()).all(|row| key(row - 1) < key(row)), "rows are not by {:?}", selection.order);
}

fn domains() -> [Domain; 4] {
    [&[16.0, 16.0, 16.0][..], &[0.0, 11.0, 0.0], &[0.0, 0.0], &[16.0, 9.0]].map(|sides| Domain::new(sides).unwrap())
}

#[test]
fn every_column_is_that_of_plain_sums() {
    let sizes: Vec<usize> = (0..60).map(|i| 1 + i * i % 47).chain([400]).collect();
    for (seed, domain) in (1..).zip(domains()) {
        for (min_members, order, observer) in [
            (1, Order::Count, None),
            (20, Order::Mass, Some([-3.0, 40.0, 0.5])),
            (0, Order::Label, Some([1e3, 0.0, 0.0])),
        ] {
            let selection = Selection { min_members, order, observer };
            let points = Points::random(seed, domain, &sizes, 3.0);
            compare_with_sums(&points, &selection, &on_one_rank(&points, &selection), 3.0);
            let bare = Points { mass: None, velocity: None, scale_factor: None, ..points };
            let all = on_one_rank(&bare, &selection);
            compare_with_sums(&bare, &selection, &all, 3.0);
            assert_eq!(
                (all.velocity, all.velocity_dispersion, all.scale_factor, all.radial_velocity),
                (None, None, None, None)
            );
        }
    }
}

#[test]
fn any_number_of_ranks_gives_the_same_bits() {
    let sizes: Vec<usize> = (0..80).map(|i| 1 + i * 7 % 33).chain([500, 500]).collect();
    for (seed, domain) in (10..).zip(domains()) {
        let points = Points::random(seed, domain, &sizes, 4.0);
        for (min_members, order) in [(1, Order::Count), (20, Order::Count), (1, Order::Mass), (20, Order::Label)] {
            let selection = Selection { min_members, order, observer: Some([1.0, 2.0, 3.0]) };
            let want = on_one_rank(&points, &selection);
            for (ranks, empty) in [(1, &[][..]), (2, &[]), (2, &[0]), (3, &[1]), (5, &[]), (8, &[0, 3, 7])] {
                let found = parts(&points.dealt(seed + ranks as u64, ranks, empty), &selection).unwrap();
                assert_eq!(bits(&joined(&found)), bits(&want), "{ranks} ranks, {selection:?}");
            }
        }
    }
}

#[test]
fn groups_that_one_rank_has_whole_are_the_same_as_those_that_span_ranks() {
    let points = Points::random(3, domains()[0], &[40; 30], 4.0);
    let want = on_one_rank(&points, &ALL);
    // Points in the order of groups: most groups lie on one rank, some on two.
    let dealt: Vec<Points> = (0..7)
        .map(|rank| {
            let part = split(points.count() as u64, 7, rank);
            points.of(&(part.start as usize..part.end as usize).collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(bits(&joined(&parts(&dealt, &ALL).unwrap())), bits(&want));
}

#[test]
fn a_group_may_span_all_ranks_and_rows_be_fewer_than_ranks() {
    let points = Points::random(4, domains()[0], &[300, 2], 4.0);
    let found = parts(&points.dealt(9, 5, &[]), &ALL).unwrap();
    assert!(found.iter().all(|part| part.members.len() >= 60));
    assert_eq!(found.iter().map(|part| part.label.len()).collect::<Vec<_>>(), [1, 1, 0, 0, 0]);
    compare_with_sums(&points, &ALL, &joined(&found), 4.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn random_groups_are_measured_alike_everywhere(
        seed in any::<u64>(),
        sizes in prop::collection::vec(1usize..40, 0..40),
        which in 0usize..4,
        ranks in 1usize..6,
        min_members in 0u64..25,
        order in prop::sample::select(vec![Order::Count, Order::Mass, Order::Label]),
        extent in prop::sample::select(vec![0.0, 1e-3, 4.0]),
    ) {
        let points = Points::random(seed, domains()[which], &sizes, extent);
        let selection = Selection { min_members, order, observer: None };
        let found = joined(&parts(&points.dealt(seed ^ 1, ranks, &[]), &selection).unwrap());
        prop_assert_eq!(bits(&found), bits(&on_one_rank(&points, &selection)));
        compare_with_sums(&points, &selection, &found, extent);
    }
}

#[test]
fn nothing_gives_nothing() {
    let empty = Points::one_group(Domain::open(3).unwrap(), &[]);
    for ranks in [1, 4] {
        let found = joined(&parts(&vec![empty.clone(); ranks], &Selection::default()).unwrap());
        assert_eq!((found.total, found.members_total, found.offset, found.members), (0, 0, vec![0], vec![]));
    }
    // Groups that are all too small.
    let small = Points::random(1, Domain::open(2).unwrap(), &[19; 5], 1.0);
    let found = joined(&parts(&small.dealt(1, 3, &[]), &Selection::default()).unwrap());
    assert_eq!((found.total, found.members_total, found.offset), (0, 0, vec![0]));
}

#[test]
fn a_pair_across_the_edge_is_close() {
    let points = Points::one_group(Domain::new(&[8.0, 8.0, 0.0]).unwrap(), &[7.5, 0.25, 1.0, 0.25, 7.5, 1.0]);
    let found = on_one_rank(&points, &ALL);
    // Differences of 0.75 along both periodic axes; all of it exact in binary.
    assert_eq!(found.center, [7.875, 7.875, 1.0]);
    assert_eq!((found.mass[0], found.count[0]), (2.0, 2));
    assert_eq!(found.inertia_radius[0], (2.0 * 0.375f64 * 0.375).sqrt());
    assert_eq!(found.max_radius[0], found.inertia_radius[0]);
    close("the long axis", found.axes[0], found.inertia_radius[0], 1e-15);
    // The root of a rounding of the eigenvalues.
    assert!(found.axes[1] < 1e-8 && found.axes[2] < 1e-8, "{:?}", found.axes);
    let half = 0.5f64.sqrt();
    close("direction", found.directions[0].abs(), half, 1e-15);
    close("direction", found.directions[0] + found.directions[1], 0.0, 1e-15);
}

#[test]
fn points_in_one_place_have_no_size() {
    let mut points = Points::one_group(domains()[0], &[0.1, 15.9, 3.3].repeat(1000));
    points.velocity = Some([0.3f32, -7.7, 1e-3].repeat(1000));
    points.mass = Some((0..1000).map(|i| 0.1 + i as f32).collect());
    points.scale_factor = Some(vec![0.7; 1000]);
    let found = joined(&parts(&points.dealt(1, 3, &[]), &ALL).unwrap());
    let reals = |row: &[f32]| row.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    assert_eq!(found.center, reals(&[0.1, 15.9, 3.3]));
    assert_eq!(found.velocity.unwrap(), reals(&[0.3, -7.7, 1e-3]));
    assert_eq!(found.scale_factor.unwrap(), reals(&[0.7]));
    assert_eq!((found.inertia_radius[0], found.max_radius[0], found.velocity_dispersion.unwrap()[0]), (0.0, 0.0, 0.0));
    assert_eq!((found.axes, found.directions), (vec![0.0; 3], vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]));
}

#[test]
fn a_point_alone_is_its_group() {
    let mut points = Points::one_group(Domain::open(2).unwrap(), &[-3.5, 1e20]);
    points.velocity = Some(vec![3.0, 4.0]);
    points.mass = Some(vec![2.5]);
    let found = on_one_rank(&points, &Selection { observer: Some([-3.5, 0.0, 9.0]), ..ALL });
    assert_eq!((found.mass[0], found.center[0], found.center[1]), (2.5, -3.5, f64::from(1e20f32)));
    assert_eq!((found.inertia_radius[0], found.velocity_dispersion.unwrap()[0]), (0.0, 0.0));
    assert_eq!((found.radial_velocity.unwrap(), found.members, found.offset), (vec![4.0], vec![0], vec![0, 1]));
    // An observer right there sees nothing come or go.
    let found = on_one_rank(&points, &Selection { observer: Some([-3.5, f64::from(1e20f32), 0.0]), ..ALL });
    assert_eq!(found.radial_velocity.unwrap(), [0.0]);
}

#[test]
fn a_ring_round_the_box_is_seen_from_its_reference() {
    // 8 points at equal distances round a box of 8, the one with the least number at 5.
    let mut points = Points::one_group(Domain::new(&[8.0, 0.0]).unwrap(), &[]);
    points.position = (0..8).flat_map(|i| [((i + 5) % 8) as f32, 2.0]).collect();
    (points.number, points.label) = ((10..18).collect(), vec![10; 8]);
    let found = on_one_rank(&points, &ALL);
    // Offsets from -3 to 3; the point opposite is at 4 or -4, both of which are nearest.
    assert!([4.5, 5.5].contains(&found.center[0]), "{}", found.center[0]);
    assert_eq!(found.center[1], 2.0);
    close("inertia_radius", found.inertia_radius[0], ((64.0 - 1.0) / 12.0f64).sqrt(), 1e-15);
    assert_eq!(found.max_radius[0], 3.5);
}

#[test]
fn a_rod_has_the_axes_of_a_rod() {
    // 101 points from -1 to 1 along (2, 1, 2)/3: the mean square is (n + 1)/(n - 1)/3.
    let direction = [2.0 / 3.0, 1.0 / 3.0, 2.0 / 3.0];
    let place = |i: i32| direction.map(|c: f64| (5.0 + c * f64::from(i) / 50.0) as f32);
    let points = Points::one_group(domains()[0], &(-50..=50).flat_map(place).collect::<Vec<_>>());
    let found = on_one_rank(&points, &ALL);
    // Coordinates up to 6 are rounded to 2^-22, half of which at most is an error.
    let error = 2f64.powi(-22);
    close("long axis", found.axes[0], (102.0 / 100.0 / 3.0f64).sqrt(), error);
    assert!(found.axes[1] < error && found.axes[2] < error, "{:?}", found.axes);
    (0..3).for_each(|axis| close("direction", found.directions[axis], direction[axis], 4.0 * error));
    close("max_radius", found.max_radius[0], 1.0, 2.0 * error);
}

#[test]
fn members_without_mass_count_where_nobody_has_any() {
    let mut points = Points::one_group(Domain::open(2).unwrap(), &[0.0, 0.0, 4.0, 0.0, 2.0, 3.0]);
    points.velocity = Some(vec![0.0, 3.0, 6.0, 0.0, 0.0, 0.0]);
    points.mass = Some(vec![0.0, -0.0, 0.0]);
    let found = on_one_rank(&points, &ALL);
    assert_eq!((found.mass[0].to_bits(), found.center), (0, vec![2.0, 1.0]));
    assert_eq!(found.velocity.unwrap(), [2.0, 1.0]);
    close("inertia_radius", found.inertia_radius[0], (14.0f64 / 3.0).sqrt(), 1e-15);
    // Among others, those without are members that do not pull, the reference too.
    points.mass = Some(vec![0.0, 3.0, 1.0]);
    let found = on_one_rank(&points, &ALL);
    assert_eq!((found.mass[0], found.center), (4.0, vec![3.5, 0.75]));
    close("inertia_radius", found.inertia_radius[0], (2.4375f64).sqrt(), 1e-15);
    close("max_radius", found.max_radius[0], (3.5f64 * 3.5 + 0.5625).sqrt(), 1e-15);
}

#[test]
fn a_plane_in_space_is_a_plane() {
    let flat = Points::random(6, Domain::new(&[16.0, 9.0]).unwrap(), &[30, 50, 1, 7], 4.0);
    let raise = |values: &[f32]| values.chunks(2).flat_map(|v| [v[0], v[1], 0.0]).collect::<Vec<f32>>();
    let solid = Points {
        domain: Domain::new(&[16.0, 9.0, 0.0]).unwrap(),
        position: raise(&flat.position),
        velocity: flat.velocity.as_deref().map(raise),
        ..flat.clone()
    };
    let (flat, solid) = (on_one_rank(&flat, &ALL), on_one_rank(&solid, &ALL));
    assert_eq!((&flat.mass, &flat.members), (&solid.mass, &solid.members));
    assert_eq!((flat.inertia_radius, flat.max_radius), (solid.inertia_radius, solid.max_radius));
    assert_eq!(flat.velocity_dispersion, solid.velocity_dispersion);
    for (flat, solid) in flat.axes.chunks(2).zip(solid.axes.chunks(3)) {
        close("long axis", solid[0], flat[0], 1e-14 * flat[0]);
        close("middle axis", solid[1], flat[1], 1e-8 * flat[0]);
        assert!(solid[2] <= 1e-8 * flat[0], "{solid:?}");
    }
}

#[test]
fn a_large_group_in_a_larger_box_keeps_its_center() {
    // A million points within 1 of a place in a box of 10^5; f32 has steps of 0.0078 there, a fact
    // of the input.
    let (count, domain) = (1_000_000, Domain::new(&[1e5; 3]).unwrap());
    let mut random = Random(77);
    let place = |random: &mut Random| [99_999.9, 5.0, 70_000.3].map(|x: f64| x + 2.0 * random.unit());
    let mut position = Vec::with_capacity(3 * count);
    for _ in 0..count {
        position.extend(place(&mut random).iter().enumerate().map(|(axis, &x)| domain.wrap(axis, x)));
    }
    let points = Points::one_group(domain, &position);
    let found = on_one_rank(&points, &ALL);
    // The truth: offsets from the place as integers of 2^-40, in which all of these coordinates are
    // whole.
    let mean = |axis: usize| {
        let sum: i128 = position
            .chunks(3)
            .map(|x| {
                let d = f64::from(x[axis]) - [1e5, 5.0, 70_000.0][axis];
                ((if d < -5e4 { d + 1e5 } else { d }) * 2f64.powi(40)) as i128
            })
            .sum();
        sum as f64 / 2f64.powi(40) / count as f64 + [1e5, 5.0, 70_000.0][axis]
    };
    for axis in 0..3 {
        // Of the radius, 1; the center itself is rounded to 2^-37.
        close("center", found.center[axis], mean(axis).rem_euclid(1e5), 1e-10);
    }
    // A uniform cube of side 2, up to the rounding of coordinates and the chance of 10^6 points.
    close("inertia_radius", found.inertia_radius[0], 1.0, 3e-3);
}

#[test]
fn a_reference_far_outside_costs_no_digits() {
    // The reference, without mass, is 10^6 away from a cloud of size 10^-1 near 0.
    let mut random = Random(5);
    let mut position = vec![1e6, 0.0];
    position.extend((0..2000).map(|_| (0.1 * random.unit()) as f32));
    let mut points = Points::one_group(Domain::open(2).unwrap(), &position);
    points.mass = Some([0.0].into_iter().chain(std::iter::repeat_n(1.0, 1000)).collect());
    let found = on_one_rank(&points, &ALL);
    let column = |axis: usize| position[2..].iter().skip(axis).step_by(2).map(|&x| f64::from(x)).collect::<Vec<_>>();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / 1000.0;
    let variance = |values: &[f64]| mean(&values.iter().map(|x| (x - mean(values)).powi(2)).collect::<Vec<_>>());
    let want = (variance(&column(0)) + variance(&column(1))).sqrt();
    // Offsets of 10^6 are rounded to 2^-34; squares of them, moved to the mean, would be wrong by
    // 10^-4.
    close("inertia_radius", found.inertia_radius[0], want, 1e-10);
}

#[test]
fn any_unit_gives_the_same_catalog() {
    let domain = Domain::open(3).unwrap();
    let points = Points::random(8, domain, &[50, 3, 1], 3.0);
    let want = on_one_rank(&points, &ALL);
    for power in [-90, 90] {
        let unit = 2f32.powi(power);
        let scaled = |values: &[f32]| values.iter().map(|x| x * unit).collect::<Vec<f32>>();
        let other = Points {
            position: scaled(&points.position),
            mass: points.mass.as_deref().map(scaled),
            velocity: points.velocity.as_deref().map(scaled),
            ..points.clone()
        };
        let found = on_one_rank(&other, &ALL);
        let back = |values: &[f64]| values.iter().map(|x| x / f64::from(unit)).collect::<Vec<_>>();
        assert_eq!(back(&found.mass), want.mass);
        assert_eq!(back(&found.center), want.center);
        assert_eq!(back(&found.inertia_radius), want.inertia_radius);
        assert_eq!(back(&found.max_radius), want.max_radius);
        assert_eq!(back(&found.velocity_dispersion.unwrap()), want.velocity_dispersion.clone().unwrap());
        assert_eq!(back(&found.axes), want.axes);
    }
}

/// Returns the error that the first failing rank returns.
fn error(dealt: &[Points], selection: &Selection) -> (usize, FofError) {
    let error = parts(dealt, selection).unwrap_err();
    (error.rank, error.downcast().unwrap())
}

#[test]
fn wrong_points_are_named_and_end_all_ranks() {
    let good = Points::random(2, domains()[0], &[9, 9], 1.0);
    let dealt = good.dealt(1, 3, &[0]);
    let with = |change: &dyn Fn(&mut Points)| {
        let mut dealt = dealt.clone();
        change(&mut dealt[2]);
        error(&dealt, &ALL)
    };
    let number = dealt[2].number[1];
    // Whichever rank fails first: all have the same error.
    assert_eq!(with(&|p| p.mass.as_mut().unwrap()[1] = -1.0).1, FofError::Mass { number, value: -1.0 });
    assert!(matches!(with(&|p| p.mass.as_mut().unwrap()[1] = f32::NAN).1, FofError::Mass { .. }));
    assert_eq!(with(&|p| p.position[4] = f32::INFINITY).1, FofError::NonFinite { what: "position", number });
    assert_eq!(
        with(&|p| p.velocity.as_mut().unwrap()[3] = f32::NAN).1,
        FofError::NonFinite { what: "velocity", number }
    );
    let scale_factor = with(&|p| p.scale_factor.as_mut().unwrap()[1] = f32::NAN).1;
    assert_eq!(scale_factor, FofError::NonFinite { what: "scale_factor", number });
    let (have, want) = (dealt[2].count() as u64 - 1, dealt[2].count() as u64);
    assert_eq!(
        with(&|p| p.mass.as_mut().unwrap().truncate(p.number.len() - 1)),
        (2, FofError::WrongLength { what: "mass", have, want })
    );
    assert_eq!(
        with(&|p| p.label.truncate(p.number.len() - 1)),
        (2, FofError::WrongLength { what: "label", have, want })
    );
    let velocity = with(&|p| p.velocity.as_mut().unwrap().truncate(3 * p.number.len() - 1));
    assert_eq!(velocity, (2, FofError::WrongLength { what: "velocity", have: 3 * want - 1, want: 3 * want }));
    assert_eq!(with(&|p| p.label[1] = 10_000), (2, FofError::Label { label: 10_000 }));
    assert!(matches!(with(&|p| (p.number[1], p.label[1]) = (p.number[0], p.label[0])), (2, FofError::Label { .. })));
    let nowhere = Selection { observer: Some([0.0, f64::NAN, 0.0]), ..ALL };
    assert!(matches!(error(&dealt, &nowhere), (_, FofError::Observer { .. })));
}

#[test]
fn of_several_bad_points_all_ranks_name_the_first() {
    let good = Points::random(2, domains()[0], &[9, 9], 1.0);
    let mut order: Vec<usize> = (0..good.count()).collect();
    order.sort_by_key(|&row| good.number[row]);
    let mut bad = good.clone();
    for &row in &order[4..] {
        bad.mass.as_mut().unwrap()[row] = -2.0;
        bad.velocity.as_mut().unwrap()[3 * row] = f32::NAN;
    }
    bad.velocity.as_mut().unwrap()[3 * order[3] + 1] = f32::INFINITY;
    let number = good.number[order[3]];
    for ranks in [1, 3] {
        let dealt = bad.dealt(4, ranks, &[]);
        let told = run_threads(ranks, |comm| {
            Ok::<_, FofError>(catalog(&comm, &dealt[comm.rank()].members(), &ALL).unwrap_err())
        });
        assert_eq!(told.unwrap(), vec![FofError::NonFinite { what: "velocity", number }; ranks]);
    }
}

#[test]
fn sums_beyond_f32_are_kept_in_f64() {
    // Three masses of 1e38, velocities on both ends of f32.
    let mut points = Points::one_group(Domain::open(2).unwrap(), &[0.0, 0.0, 1.0, 0.0, 0.5, 0.5]);
    points.mass = Some(vec![1e38; 3]);
    points.velocity = Some(vec![3e38, 0.0, -3e38, 0.0, 0.0, 3e38]);
    let found = on_one_rank(&points, &ALL);
    let (mass, speed) = (f64::from(1e38f32), f64::from(3e38f32));
    close("mass", found.mass[0] / (3.0 * mass), 1.0, 1e-15);
    // Means 0 and 1/3: squares 1, 1 along one axis, 1/9, 1/9, 4/9 along the other, over three.
    let dispersion = found.velocity_dispersion.unwrap()[0];
    close("velocity_dispersion", dispersion / speed, (8.0f64 / 9.0).sqrt(), 1e-14);
    // No mass at all: all weigh the same, as in a group of equal masses.
    let massless = Points { mass: Some(vec![0.0; 3]), ..points.clone() };
    let light = on_one_rank(&massless, &ALL);
    assert_eq!(light.mass[0], 0.0);
    close("center", light.center[1], found.center[1], 1e-15);
}

/// Returns the rank that differs from rank 0, and the argument.
fn differing(error: &FofError) -> (usize, &str) {
    match error {
        FofError::Comm(CommError::Differ { rank, argument, .. }) => (*rank, argument),
        _ => panic!("{error:?}"),
    }
}

#[test]
fn ranks_that_differ_are_told_so() {
    let dealt = Points::random(2, domains()[0], &[9, 9], 1.0).dealt(1, 3, &[]);
    let with = |change: &dyn Fn(&mut Points)| {
        let mut dealt = dealt.clone();
        change(&mut dealt[1]);
        error(&dealt, &ALL).1
    };
    assert_eq!(differing(&with(&|p| p.mass = None)), (1, "masses, velocities and scale factors"));
    assert_eq!(differing(&with(&|p| p.velocity = None)), (1, "masses, velocities and scale factors"));
    assert_eq!(differing(&with(&|p| p.domain = Domain::open(3).unwrap())), (1, "domain"));
    let failed = run_threads(3, |comm| {
        let selection = Selection { min_members: 1 + comm.rank() as u64 / 2, ..ALL };
        catalog(&comm, &dealt[comm.rank()].members(), &selection).map(drop)
    });
    let failed = failed.unwrap_err();
    assert_eq!(failed.downcast_ref().map(differing), Some((2, "min_members")));
}

#[test]
fn numbers_that_only_several_ranks_show_to_be_wrong_are_an_error() {
    let open = Domain::open(2).unwrap();
    let rank = |number: &[u64], label: u64| {
        let mut points = Points::one_group(open, &vec![0.0; 2 * number.len()]);
        (points.number, points.label) = (number.to_vec(), vec![label; number.len()]);
        points
    };
    // No point has the number; two have; another number is twice there; one rank alone has a group
    // without its label.
    for (dealt, want) in [
        ([rank(&[8], 7), rank(&[9], 7)], FofError::Label { label: 7 }),
        ([rank(&[7, 8], 7), rank(&[7], 7)], FofError::Label { label: 7 }),
        ([rank(&[7, 8], 7), rank(&[8, 9], 7)], FofError::Repeated),
        ([rank(&[3, 5], 3), rank(&[8, 9], 7)], FofError::Label { label: 7 }),
    ] {
        assert_eq!(error(&dealt, &ALL).1, want);
    }
    // A rank that leaves ends the others.
    let left = run_threads(2, |comm| match comm.rank() {
        0 => catalog(&comm, &rank(&[0], 0).members(), &ALL).map(drop),
        _ => Ok(()),
    });
    assert!(matches!(
        left.unwrap_err().downcast_ref(),
        Some(FofError::Comm(CommError::Mismatch { .. } | CommError::PeerFailed { .. }))
    ));
}
