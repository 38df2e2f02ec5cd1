//! Clouds and keys on one device, against the host.

use meshloom::comm::run_solo;
use meshloom::gpu::primitives::Permute;
use meshloom::gpu::{Array, Gpu, Options, Recorder};
use meshloom::points::tree::Builder;
use meshloom::points::{
    AnyArray, Bounds, BoxCheck, BoxUse, BoxWarning, Cloud, Curve, CurveKeys, Domain, Frame, ParticleError, curve,
};

fn recorder() -> Recorder {
    Recorder::new(&Gpu::open(&meshloom_sanitizer::options().unwrap(), 0).unwrap()).unwrap()
}

/// Arrays of several windows.
fn windows() -> Recorder {
    let options = Options { window_bytes: Some(4096), ..meshloom_sanitizer::options().unwrap() };
    Recorder::new(&Gpu::open(&options, 0).unwrap()).unwrap()
}

/// Numbers in `-0.5..0.5`.
fn uniform(seed: u64, count: usize) -> Vec<f64> {
    let hash = |n: u64| {
        let n = (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (n ^ n >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    (0..count as u64).map(|i| (hash(hash(i ^ seed << 40)) >> 11) as f64 / (1u64 << 53) as f64 - 0.5).collect()
}

fn all<T: meshloom::gpu::DeviceElement>(recorder: &mut Recorder, array: &Array<T>) -> Vec<T> {
    recorder.download(array, 0, array.len()).unwrap()
}

fn upload<T: meshloom::gpu::DeviceElement>(recorder: &mut Recorder, data: &[T]) -> Array<T> {
    let array = recorder.gpu().array("data", data.len() as u64).unwrap();
    recorder.upload(&array, 0, data).unwrap();
    array
}

/// Returns the wrap of the device: the exact remainder, rounded where the side is added.
fn wrapped(x: f32, side: f32) -> f32 {
    if (0.0..side).contains(&x) {
        return x;
    }
    let rest = x.abs() % side;
    let inside = if x < 0.0 && rest > 0.0 { side - rest } else { rest };
    if inside >= side { 0.0 } else { inside }
}

#[test]
fn points_are_wrapped_as_on_the_host() {
    let mut recorder = recorder();
    let side = 10.0f32;
    let below = f32::from_bits(side.to_bits() - 1);
    let mut x =
        vec![0.0, side, -side, below, -1e-9, -1e-30, 2.5, -2.5, 12.5, 25.0, -25.0, 3e38, -3e38, 1e7, -1e7, 30.0];
    x.extend(uniform(1, 500).iter().map(|u| (u * 100.0) as f32));
    x.extend(uniform(2, 500).iter().map(|u| (u * 1e9) as f32));
    // Each coordinate in each axis; the second is open.
    let points: Vec<f32> = (0..x.len()).flat_map(|i| [x[i], x[(i + 1) % x.len()], x[(i + 2) % x.len()]]).collect();
    let domain = Domain::new(&[10.0, 0.0, f64::from(0.3f32)]).unwrap();
    let cloud = Cloud::from_host(&mut recorder, &domain, &points).unwrap();
    let got = all(&mut recorder, cloud.positions());
    let mut bounds = Bounds { low: [f32::INFINITY; 3], high: [f32::NEG_INFINITY; 3] };
    for (at, (&x, &got)) in points.iter().zip(&got).enumerate() {
        let axis = at % 3;
        let want = domain.side(axis).map_or(x, |side| wrapped(x, side));
        assert_eq!(got, want, "{x} along axis {axis}");
        bounds.low[axis] = bounds.low[axis].min(want);
        bounds.high[axis] = bounds.high[axis].max(want);
    }
    assert_eq!(cloud.bounds(), Some(bounds));
    assert_eq!((cloud.len(), cloud.positions().len()), (x.len() as u64, 3 * x.len() as u64));
    // From f64 the same, where no rounding comes before the wrap.
    let wide: Vec<f64> = points.iter().map(|&x| f64::from(x)).collect();
    let other = Cloud::from_host_f64(&mut recorder, &domain, &wide).unwrap();
    let other = all(&mut recorder, other.positions());
    let near = |axis: usize, a: f32, b: f32| domain.minimum_image(axis, a - b).abs() <= 1e-6;
    assert!(got.iter().zip(&other).enumerate().all(|(at, (&a, &b))| near(at % 3, a, b)));
    // Once more changes nothing.
    let again = Cloud::from_host(&mut recorder, &domain, &got).unwrap();
    assert_eq!(all(&mut recorder, again.positions()), got);
}

/// Coordinates are wrapped by the side as it was given, not as it is rounded, also where they are
/// f32 on a device and far away.
#[test]
fn a_device_wraps_by_the_side_as_it_was_given() {
    let mut recorder = recorder();
    let unit = uniform(4, 600);
    for side in [100.1, 0.1, 67.7e-20, 1.0 / 3.0, 205e25 / 3.0, 1.000_000_01, 12.0] {
        let domain = Domain::new(&[side; 3]).unwrap();
        let rounded = side as f32;
        let mut points = vec![rounded, -rounded, 2.0 * rounded, -2.0 * rounded, rounded.next_down(), rounded.next_up()];
        for far in [2.0, 4.0, 1e3, 1e7, 1e12] {
            points.extend(unit.iter().map(|u| (u * far * side) as f32).filter(|x| x.is_finite()));
        }
        // Whole points.
        points.truncate(points.len() / 3 * 3);
        let cloud = Cloud::from_host(&mut recorder, &domain, &points).unwrap();
        let got = all(&mut recorder, cloud.positions());
        for (&x, &got) in points.iter().zip(&got) {
            let want = domain.wrap(0, x.into());
            // Both are rounded once, or where f64 adds the side twice: a unit of the last place of
            // the coordinate, at least of numbers that f64 resolves.
            let apart = domain.minimum_image(0, got - want).abs();
            let unit = (want.next_up() - want).max((side * 2f64.powi(-52)) as f32);
            assert!(apart <= unit && (0.0..rounded).contains(&got), "{x} in {side}: {got}, not {want}");
        }
    }
}

/// Points and box in different units are seen alike on the host and on the device.
#[test]
fn boxes_in_another_unit_are_seen_on_the_device() {
    let unit: Vec<f64> = uniform(3, 3 * 2000);
    for mut recorder in [recorder(), windows()] {
        for (scale, count) in [(1.0, 3), (1.0, 2000), (100.0, 1), (100.0, 2000), (2e-3, 2000)] {
            let points: Vec<f32> = unit[..3 * count].iter().map(|x| (x * scale) as f32).collect();
            let rows = upload(&mut recorder, &points);
            for (sides, box_use) in [([1.0; 3], BoxUse::Volume), ([0.0, 1.0, 0.7], BoxUse::Images)] {
                let domain = Domain::new(&sides).unwrap();
                let [mut host, mut device] = [(); 2].map(|()| BoxCheck::of(&domain, box_use));
                host.add(&points);
                device.add_array(&mut recorder, &rows).unwrap();
                let [host, device] = [host, device].map(|check| run_solo(|comm| check.warnings(&comm)).unwrap());
                assert_eq!(host, device, "{scale} {count} {sides:?}");
                let is_expected = match (scale, box_use) {
                    (100.0, _) => matches!(device[..], [BoxWarning::FarOutside { farthest: 10.0..72.0, .. }]),
                    (2e-3, BoxUse::Volume) => matches!(device[..], [BoxWarning::Corner { extent: 1.9e-3..2e-3, .. }]),
                    _ => device.is_empty(),
                };
                assert!(is_expected, "{scale} {count} {sides:?}: {device:?}");
            }
        }
    }
}

#[test]
fn bad_points_are_errors_that_name_the_first() {
    let mut recorder = recorder();
    let domain = Domain::new(&[1.0, 0.0]).unwrap();
    let mut points = vec![0.25f32; 2 * 5000];
    let error = |recorder: &mut Recorder, points: &[f32]| Cloud::from_host(recorder, &domain, points).err();
    points[2 * 4000] = f32::NAN;
    assert_eq!(error(&mut recorder, &points), Some(ParticleError::NonFinite { index: 4000, axis: 0 }));
    points[2 * 77 + 1] = f32::INFINITY;
    assert_eq!(error(&mut recorder, &points), Some(ParticleError::NonFinite { index: 77, axis: 1 }));
    points[2 * 77] = f32::NEG_INFINITY;
    assert_eq!(error(&mut recorder, &points), Some(ParticleError::NonFinite { index: 77, axis: 0 }));
    points[0] = f32::from_bits(0xffff_ffff);
    assert_eq!(error(&mut recorder, &points), Some(ParticleError::NonFinite { index: 0, axis: 0 }));
    assert!(matches!(error(&mut recorder, &points[..7]), Some(ParticleError::Coordinates { dims: 2, found: 7 })));
    let far = Cloud::from_host_f64(&mut recorder, &domain, &[1e300, 1.0, 0.0, -1e300]);
    assert_eq!(far.err(), Some(ParticleError::OutOfRange { index: 1, axis: 1, value: -1e300 }));
}

#[test]
fn no_points_and_one_point() {
    let mut recorder = recorder();
    let domain = Domain::open(3).unwrap();
    let mut none = Cloud::from_host(&mut recorder, &domain, &[]).unwrap();
    assert!(none.is_empty() && none.bounds().is_none());
    let empty = upload::<f32>(&mut recorder, &[]);
    none.set("mass", empty, 1).unwrap();
    let index = upload::<u32>(&mut recorder, &[]);
    assert!(none.gather(&mut recorder, &Permute::new(), &index).unwrap().is_empty());
    let one = Cloud::from_host(&mut recorder, &domain, &[-1.0, 0.0, 3.0]).unwrap();
    assert_eq!(one.bounds(), Some(Bounds { low: [-1.0, 0.0, 3.0], high: [-1.0, 0.0, 3.0] }));
    let frame = Frame::new(&domain, one.bounds());
    assert_eq!(frame.cell(&[-1.0, 0.0, 3.0]), [0; 3], "no extent");
}

#[test]
fn attributes_go_with_their_points() {
    // Of a device that binds no more than eight windows, two an array of rows are enough.
    for (mut recorder, count) in [(recorder(), 1500u32), (windows(), 600)] {
        let domain = Domain::new(&[7.0, 0.0, 7.0]).unwrap();
        let points: Vec<f32> = uniform(3, 3 * count as usize).iter().map(|u| (u * 20.0) as f32).collect();
        let mut cloud = Cloud::from_host(&mut recorder, &domain, &points).unwrap();
        let velocity: Vec<f32> = (0..3 * count).map(|n| n as f32 * 0.5).collect();
        let sign: Vec<i32> = (0..count as i32).map(|n| -n).collect();
        let (v, id) = (upload(&mut recorder, &velocity), upload(&mut recorder, &(0..count).collect::<Vec<u32>>()));
        let s = upload(&mut recorder, &sign);
        cloud.set("velocity", v.clone(), 3).unwrap();
        cloud.set("id", id, 1).unwrap();
        cloud.set("sign", s, 1).unwrap();
        let wrong = cloud.set("velocity", v.clone(), 2);
        let (have, want) = (3 * u64::from(count), 2 * u64::from(count));
        assert_eq!(wrong, Err(ParticleError::Shape { name: "velocity".into(), have, want }));
        assert!(cloud.set("nothing", v, 0).is_err());
        let names: Vec<&str> = cloud.attributes().map(|(name, _)| name).collect();
        assert_eq!(names, ["id", "sign", "velocity"]);

        // A selection, with a repetition.
        let index: Vec<u32> = (0..count).filter(|n| n % 3 != 1).rev().chain([5]).collect();
        let device = upload(&mut recorder, &index);
        let some = cloud.gather(&mut recorder, &Permute::new(), &device).unwrap();
        assert_eq!(some.len(), index.len() as u64);
        let before = all(&mut recorder, cloud.positions());
        let rows = |values: &[f32]| -> Vec<f32> {
            index.iter().flat_map(|&i| values[3 * i as usize..3 * i as usize + 3].to_vec()).collect()
        };
        assert_eq!(all(&mut recorder, some.positions()), rows(&before));
        let attribute = |name: &str| some.attribute(name).map(|a| (a.values().clone(), a.width())).unwrap();
        match (attribute("velocity"), attribute("id"), attribute("sign")) {
            ((AnyArray::F32(v), 3), (AnyArray::U32(id), 1), (AnyArray::I32(sign), 1)) => {
                assert_eq!(all(&mut recorder, &v), rows(&velocity));
                assert_eq!(all(&mut recorder, &id), index);
                assert!(all(&mut recorder, &sign).iter().zip(&index).all(|(&s, &i)| s == -(i as i32)));
            }
            _ => panic!("other types or widths"),
        }
        let (inner, outer) = (some.bounds().unwrap(), cloud.bounds().unwrap());
        assert_eq!(inner.union(&outer), outer, "the bounds hold the selection");
    }
}

/// Keys on the device equal those of the host, for all these points.
fn keys_agree(recorder: &mut Recorder, domain: &Domain, points: &[f32]) {
    let cloud = Cloud::from_host(recorder, domain, points).unwrap();
    let frame = Frame::new(domain, cloud.bounds());
    let points = all(recorder, cloud.positions());
    for curve in [Curve::Morton, Curve::Hilbert] {
        let [high, low] = ["high", "low"].map(|name| recorder.gpu().array::<u32>(name, cloud.len()).unwrap());
        CurveKeys::default().record(recorder, curve, cloud.positions(), &frame, &high, &low).unwrap();
        let (high, low) = (all(recorder, &high), all(recorder, &low));
        for (i, point) in points.chunks(domain.dims()).enumerate() {
            let got = u64::from(high[i]) << 32 | u64::from(low[i]);
            assert_eq!(got, frame.key(curve, point), "{curve:?} of {point:?} in {frame:?}");
        }
    }
}

#[test]
fn keys_are_those_of_the_host() {
    for (n, mut recorder) in [recorder(), windows()].into_iter().enumerate() {
        let count = [4000, 700][n];
        for dims in [2, 3] {
            let scaled =
                |factor: f64| -> Vec<f32> { uniform(4, count * dims).iter().map(|u| (u * factor) as f32).collect() };
            keys_agree(&mut recorder, &Domain::new(&[0.7, 3.0, 1e-3][..dims]).unwrap(), &scaled(5.0));
            // All magnitudes, and extents that are not a power of two.
            let powers: Vec<f32> =
                scaled(1.0).iter().enumerate().map(|(i, u)| u * f32::powi(2.0, (i % 40) as i32 - 35)).collect();
            keys_agree(&mut recorder, &Domain::open(dims).unwrap(), &powers);
            keys_agree(&mut recorder, &Domain::open(dims).unwrap(), &scaled(6e38));
        }
        // One axis without extent.
        let flat: Vec<f32> = scaled_flat(count);
        keys_agree(&mut recorder, &Domain::open(3).unwrap(), &flat);
    }
}

fn scaled_flat(count: usize) -> Vec<f32> {
    uniform(5, count).iter().flat_map(|&u| [u as f32, 4.25, (u * u) as f32]).collect()
}

#[test]
fn faces_of_the_box_have_the_first_and_the_last_cells() {
    let mut recorder = recorder();
    // Open: low is cell 0, high the last. -0 and 0 are the same place.
    let domain = Domain::open(3).unwrap();
    let points = [0.0, 0.0, 0.0, 8.0, 8.0, 8.0, -0.0, -0.0, -0.0, 4.0, 0.0, 0.0];
    let cloud = Cloud::from_host(&mut recorder, &domain, &points).unwrap();
    let frame = Frame::new(&domain, cloud.bounds());
    let last = (1 << 21) - 1;
    let cells: Vec<[u32; 3]> = points.chunks(3).map(|point| frame.cell(point)).collect();
    assert_eq!(cells, [[0; 3], [last; 3], [0; 3], [1 << 20, 0, 0]]);
    assert_eq!(curve::morton([last; 3], 3), (1 << 63) - 1);
    keys_agree(&mut recorder, &domain, &points);
    // Periodic: the side is 0, and so is what rounds to it.
    let domain = Domain::new(&[1.0, 1.0]).unwrap();
    let points = [1.0, -1e-9, 0.0, 0.0, f32::from_bits(1.0f32.to_bits() - 1), 0.5];
    let cloud = Cloud::from_host(&mut recorder, &domain, &points).unwrap();
    let frame = Frame::new(&domain, cloud.bounds());
    let wrapped = all(&mut recorder, cloud.positions());
    let cells: Vec<[u32; 3]> = wrapped.chunks(2).map(|point| frame.cell(point)).collect();
    assert_eq!(cells, [[0, 0, 0], [0, 0, 0], [(1 << 31) - 128, 1 << 30, 0]]);
    keys_agree(&mut recorder, &domain, &points);
}

#[test]
fn leaves_are_small_wherever_the_points_lie() {
    let mut recorder = recorder();
    // A leaf of 32 among 8192 points in a cube holds the 256th part of it, some sixth of the side
    // along each axis.
    let cube: Vec<f32> = uniform(6, 3 * 8192).iter().map(|&u| u as f32 + 0.5).collect();
    let box_of = |side: f64| Domain::new(&[side; 3]).unwrap();
    let open = Domain::open(3).unwrap();
    let with_outlier = |far: f32| [&cube[..], &[far, -far, far]].concat();
    let leaves = |recorder: &mut Recorder, domain: &Domain, points: &[f32]| {
        let cloud = Cloud::from_host(recorder, domain, points).unwrap();
        let frame = Frame::over(domain, cloud.core());
        let tree = Builder::new(recorder.gpu()).build(recorder, &cloud, &frame).unwrap();
        let boxes = all(recorder, tree.boxes());
        let diagonals = boxes.chunks(8).take(tree.levels().nodes(0) as usize).map(|node| f32::from_bits(node[7]));
        let mut diagonals: Vec<f32> = diagonals.collect();
        diagonals.sort_unstable_by(f32::total_cmp);
        diagonals[diagonals.len() / 2]
    };
    let whole = leaves(&mut recorder, &box_of(1.0), &cube);
    assert!(whole < 0.5, "{whole}");
    for (domain, points, what) in [
        (box_of(1e7), cube.clone(), "a part of the box"),
        (box_of(1e7), with_outlier(4e6), "a part of the box, and a point far away"),
        (open, with_outlier(1e9), "a point far away"),
        (open, with_outlier(3e38), "a point as far as there are"),
    ] {
        let found = leaves(&mut recorder, &domain, &points);
        assert!(found < 1.5 * whole, "{what}: {found} for {whole}");
    }
    // In a thin layer a leaf holds a square of the 256th part.
    let layer: Vec<f32> = cube.chunks(3).flat_map(|at| [at[0], at[1], 1e-3 * at[2]]).collect();
    let found = leaves(&mut recorder, &open, &layer);
    assert!(found < 0.2, "{found}");
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let mut recorder = recorder();
    let frame = Frame::new(&Domain::open(3).unwrap(), None);
    let (positions, high) = (upload(&mut recorder, &[0.0f32; 6]), upload(&mut recorder, &[0u32; 2]));
    let low = upload(&mut recorder, &[0u32; 3]);
    let result = CurveKeys::default().record(&mut recorder, Curve::Morton, &positions, &frame, &high, &low);
    assert!(matches!(result, Err(meshloom::gpu::DeviceError::Misuse { .. })), "{result:?}");
}
