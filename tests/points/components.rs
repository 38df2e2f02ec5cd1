//! Connected components on one device against a plain union-find over all pairs, in every form.

use super::clouds::{Kind, distance, points, uniform};
use meshloom::gpu::{Gpu, Options, Recorder};
use meshloom::points::neighbors::{Components, GroupShape, Lanes, NeighborError};
use meshloom::points::tree::Builder;
use meshloom::points::{Cloud, Domain, Frame};

/// A device with what the tests keep of it.
struct Bench {
    recorder: Recorder,
    builder: Builder,
    components: Components,
}

impl Bench {
    fn new(options: &Options, form: Option<GroupShape>) -> Self {
        let gpu = Gpu::open(options, 0).unwrap();
        let form = form.unwrap_or_else(|| GroupShape::linking(&gpu));
        Bench {
            recorder: Recorder::new(&gpu).unwrap(),
            builder: Builder::new(&gpu),
            components: Components::with(&gpu, form),
        }
    }

    fn own() -> Self {
        Self::new(&meshloom_sanitizer::options().unwrap(), None)
    }

    fn labels(&mut self, domain: &Domain, points: &[f32], radius: f32) -> Vec<u32> {
        let cloud = Cloud::from_host(&mut self.recorder, domain, points).unwrap();
        let frame = Frame::over(domain, cloud.core());
        let tree = self.builder.build(&mut self.recorder, &cloud, &frame).unwrap();
        let labels = self.components.labels(&mut self.recorder, &tree, radius).unwrap();
        self.recorder.download(&labels, 0, labels.len()).unwrap()
    }

    /// Labels are those of a union-find over all pairs. Points lie in the domain already.
    #[track_caller]
    fn check(&mut self, domain: &Domain, points: &[f32], radius: f32, what: &str) {
        let (have, want) = (self.labels(domain, points, radius), brute(domain, points, radius));
        let first = have.iter().zip(&want).position(|(a, b)| a != b);
        let shown = first.map(|i| (i, have[i], want[i]));
        assert!(have.len() == want.len() && shown.is_none(), "{what}: point, label, wanted: {shown:?}");
    }
}

/// Returns the least number of a point in each one's component.
fn brute(domain: &Domain, points: &[f32], radius: f32) -> Vec<u32> {
    let points: Vec<&[f32]> = points.chunks(domain.dims()).collect();
    let mut labels = vec![u32::MAX; points.len()];
    for first in 0..points.len() {
        if labels[first] != u32::MAX {
            continue;
        }
        let mut reached = vec![first];
        labels[first] = first as u32;
        while let Some(at) = reached.pop() {
            for (other, label) in labels.iter_mut().enumerate() {
                if *label == u32::MAX && distance(domain, points[at], points[other]) <= radius {
                    *label = first as u32;
                    reached.push(other);
                }
            }
        }
    }
    labels
}

fn open(dims: usize) -> Domain {
    Domain::new(&[0.0; 3][..dims]).unwrap()
}

fn groups(labels: &[u32]) -> usize {
    labels.iter().enumerate().filter(|(i, label)| *i == **label as usize).count()
}

const KINDS: [Kind; 6] = [Kind::Uniform, Kind::Hernquist, Kind::Lattice, Kind::Line, Kind::Same, Kind::Two];

/// Linking lengths from lone points to one component, none of them a distance of a lattice.
fn sweep(bench: &mut Bench, n: usize) {
    for dims in [3, 2] {
        let mean = (n as f64).powf(-1.0 / dims as f64);
        for sides in [[0.0; 3], [1.0; 3], [1.0, 0.0, 1.25]] {
            let domain = Domain::new(&sides[..dims]).unwrap();
            for kind in KINDS {
                let mut points = points(kind, n, dims, 3);
                for (i, x) in points.iter_mut().enumerate() {
                    if let Some(side) = domain.side(i % dims) {
                        *x = x.rem_euclid(side);
                    }
                }
                for b in [0.21, 0.77] {
                    let radius = (b * mean) as f32;
                    bench.check(&domain, &points, radius, &format!("{kind:?} {dims} {sides:?} {b}"));
                }
            }
        }
    }
}

#[test]
fn components_of_all_kinds_of_clouds() {
    sweep(&mut Bench::own(), 1000);
}

#[test]
fn every_form_and_every_limit_of_loops_finds_the_same() {
    let options = meshloom_sanitizer::options().unwrap();
    let gpu = Gpu::open(&options, 0).unwrap();
    // Those that devices take, one query a lane, and groups of several leaves.
    let mut forms = vec![GroupShape::linking(&gpu)];
    let mut add = |lanes, slots| forms.push(GroupShape { lanes, slots });
    add(Lanes::Alone, 4);
    // A group larger than a leaf, as where subgroups have 64 lanes.
    add(Lanes::Workgroup(64), 1);
    if gpu.capabilities().subgroup_least >= 4 {
        add(Lanes::Subgroup { least: 4, workgroup: 64 }, 1);
        add(Lanes::Subgroup { least: 4, workgroup: 32 }, 32);
    }
    let domain = Domain::new(&[1.0, 1.0, 0.0]).unwrap();
    for form in forms {
        // Walks that stop all the time: the loops that a driver allows are few.
        let mut bench = Bench::new(&options, Some(form));
        bench.components = Components::with(&gpu, form).with_rounds(Some(1024));
        bench.recorder = Recorder::new(&gpu).unwrap();
        bench.builder = Builder::new(&gpu);
        for kind in [Kind::Uniform, Kind::Line, Kind::Same] {
            let points = points(kind, 3000, 3, 5);
            bench.check(&domain, &points, 0.06, &format!("{form:?} {kind:?}"));
        }
        // As on GPUs, where nothing limits loops: few enough points for any driver.
        bench.components = Components::with(&gpu, form).with_rounds(None);
        let points = points(Kind::Two, 500, 3, 6);
        bench.check(&domain, &points, 0.06, &format!("{form:?}, unlimited"));
    }
}

/// Arrays in windows of 4 KiB, checked shaders, and the floor without optional features.
#[test]
fn windows_checks_and_the_floor_change_nothing() {
    let options = meshloom_sanitizer::options().unwrap();
    let domain = Domain::new(&[1.0, 0.0, 1.0]).unwrap();
    let points = points(Kind::Hernquist, 1100, 3, 9);
    let points: Vec<f32> = points.chunks(3).flat_map(|p| [p[0].rem_euclid(1.0), p[1], p[2].rem_euclid(1.0)]).collect();
    // 1100 points are four windows of positions and two of everything else.
    for options in [
        Options { window_bytes: Some(4096), ..options.clone() },
        Options { checked: true, ..options.clone() },
        Options { floor: true, ..options.clone() },
    ] {
        let what = format!("windows {:?}, checked {}, floor {}", options.window_bytes, options.checked, options.floor);
        Bench::new(&options, None).check(&domain, &points, 0.02, &what);
    }
}

/// Fact F13: the length counts as within, and groups are joined by their nearest members.
#[test]
fn links_are_inclusive() {
    let mut bench = Bench::own();
    let (points, root3, root12) = ([0.0, 0.0, 0.0, 1.0, 1.0, 1.0], 3f32.sqrt(), 12f32.sqrt());
    assert_eq!(bench.labels(&open(3), &points, root3), [0, 0], "the distance as f32");
    assert_eq!(bench.labels(&open(3), &points, root3.next_down()), [0, 1]);
    let four = [points.as_slice(), &[3.0, 3.0, 3.0, 6.0, 6.0, 6.0]].concat();
    assert_eq!(bench.labels(&open(3), &four, root12.next_down()), [0, 0, 2, 3]);
    assert_eq!(bench.labels(&open(3), &four, root12), [0, 0, 0, 3]);
    assert_eq!(bench.labels(&open(2), &[0.0, 0.0, 3.0, 4.0], 5.0), [0, 0], "exactly the length");
    let cloud = Cloud::from_host(&mut bench.recorder, &open(3), &four).unwrap();
    let frame = Frame::new(&open(3), cloud.bounds());
    let tree = bench.builder.build(&mut bench.recorder, &cloud, &frame).unwrap();
    for wrong in [-1.0, f32::NAN] {
        let found = bench.components.labels(&mut bench.recorder, &tree, wrong);
        assert!(matches!(found, Err(NeighborError::Radius { .. })), "{wrong}");
    }
}

/// Fact F14: a chain is one component as long as no link is missing, however long, whatever its
/// order in the input.
#[test]
fn chains_hold_or_fall_apart() {
    let mut bench = Bench::own();
    let n = 10_000u32;
    // Multiplication by a number without common factors visits every place once.
    let place = |i: u32| (u64::from(i) * 7919 % u64::from(n)) as f32;
    let chain = |spacing: f32| -> Vec<f32> { (0..n).flat_map(|i| [place(i) * spacing, 0.5, 0.5]).collect() };
    assert_eq!(groups(&bench.labels(&open(3), &chain(0.99), 1.0)), 1);
    assert_eq!(groups(&bench.labels(&open(3), &chain(1.01), 1.0)), n as usize);
    // A ring through the faces of a box: cut once, it still holds together by the way round; cut
    // twice, it does not.
    let ring = Domain::new(&[f64::from(n), 0.0, 0.0]).unwrap();
    let points: Vec<f32> = (0..n).filter(|&i| place(i) != 17.0).flat_map(|i| [place(i), 0.0, 0.0]).collect();
    assert_eq!(groups(&bench.labels(&ring, &points, 1.5)), 1);
    let cut = [17.0, 5000.0];
    let points: Vec<f32> = (0..n).filter(|&i| !cut.contains(&place(i))).flat_map(|i| [place(i), 0.0, 0.0]).collect();
    assert_eq!(groups(&bench.labels(&ring, &points, 1.5)), 2);
}

/// Fact F15: a grid, and clumps of four at each of its points.
#[test]
fn grids_of_lone_points_and_of_clumps() {
    let mut bench = Bench::own();
    let grid: Vec<f32> = (0..512).flat_map(|i| [i / 64, i / 8 % 8, i % 8].map(|x| x as f32)).collect();
    let domain = Domain::new(&[8.0; 3]).unwrap();
    assert_eq!(groups(&bench.labels(&domain, &grid, 0.9)), 512);
    assert_eq!(groups(&bench.labels(&domain, &grid, 1.0)), 1);
    let shifts = [0.0, 0.01, -0.01, 0.02];
    let clumps: Vec<f32> =
        shifts.iter().flat_map(|shift| grid.iter().map(move |x| (x + shift).rem_euclid(8.0))).collect();
    let labels = bench.labels(&domain, &clumps, 0.011 * 3f32.sqrt());
    assert_eq!(groups(&labels), 512);
    assert!((0..2048).all(|i| labels[i] as usize == i % 512), "four of each");
}

/// Fact F16, and no points at all.
#[test]
fn no_length_and_any_length() {
    let mut bench = Bench::own();
    let domain = Domain::new(&[1.0; 3]).unwrap();
    assert_eq!(bench.labels(&domain, &[], 0.5), [0u32; 0]);
    assert_eq!(bench.labels(&domain, &[0.5; 3], 0.5), [0]);
    let mut points = points(Kind::Uniform, 500, 3, 7);
    assert_eq!(groups(&bench.labels(&domain, &points, 0.0)), 500);
    points.extend_from_within(30..60);
    let labels = bench.labels(&domain, &points, 0.0);
    assert_eq!(groups(&labels), 500, "only points that coincide");
    assert_eq!(labels[500..510], [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
    for radius in [0.6, 10.0, f32::INFINITY] {
        assert_eq!(groups(&bench.labels(&domain, &points, radius)), 1, "{radius}");
    }
}

/// Points that coincide cost no more than others: all of them, and in two clumps that a link joins
/// or does not.
#[test]
fn a_hundred_thousand_points_in_one_place() {
    let mut bench = Bench::own();
    let clumps = |apart: f32| -> Vec<f32> { (0..100_000).flat_map(|i| [0.25 + (i % 2) as f32 * apart, 0.5]).collect() };
    let domain = Domain::new(&[1.0; 2]).unwrap();
    assert_eq!(groups(&bench.labels(&domain, &clumps(0.0), 0.0)), 1);
    assert_eq!(groups(&bench.labels(&domain, &clumps(0.25), 0.2)), 2);
    assert_eq!(groups(&bench.labels(&domain, &clumps(0.25), 0.25)), 1);
}

/// Facts F20 and F21: a plane in space, and images of points in other boxes.
#[test]
fn dimensions_and_images_do_not_matter() {
    let mut bench = Bench::own();
    let flat = points(Kind::Uniform, 2000, 2, 11);
    let space: Vec<f32> = flat.chunks(2).flat_map(|p| [p[0], p[1], 0.0]).collect();
    let [plane, slab] = [Domain::new(&[1.0, 1.0]).unwrap(), Domain::new(&[1.0, 1.0, 0.0]).unwrap()];
    let labels = bench.labels(&plane, &flat, 0.02);
    assert!(groups(&labels) > 10 && groups(&labels) < 1990);
    assert_eq!(bench.labels(&slab, &space, 0.02), labels);
    // Whole boxes away, in quarters: exact in `f32` for points on a grid of 2^-16.
    let grid: Vec<f32> = flat.iter().map(|x| (x * 65_536.0).floor() / 65_536.0).collect();
    let away: Vec<f32> =
        grid.iter().enumerate().map(|(i, x)| x + (uniform(1, i as u64) * 7.0).floor() as f32 - 3.0).collect();
    assert_eq!(bench.labels(&plane, &away, 0.02), bench.labels(&plane, &grid, 0.02));
}
