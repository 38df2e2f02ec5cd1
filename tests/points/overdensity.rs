//! Spherical overdensities against brute force in f64, a profile with a known answer, and
//! themselves on other numbers of ranks.

use super::searches;
use meshloom::gpu::Options;
use meshloom::points::neighbors::Overdense;
use meshloom::points::{Domain, Particles, Predicate};
use meshloom::{Error, Launch, launch};
use searches::overdense;

/// Numbers in [0, 1).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / 2f64.powi(53)
    }
}

/// Returns the counts of all ranks' rows, of which each has an equal part of points and of centers.
fn found(ranks: usize, sides: [f64; 3], points: &[f32], centers: &[f32], query: &Overdense) -> Vec<u64> {
    let parts = launch(Launch::Threads(ranks), &meshloom_sanitizer::options().unwrap(), |context| {
        let domain = Domain::new(&sides)?;
        let mut part = |all: &[f32]| {
            let (n, rank) = (all.len() / 3, context.comm.rank());
            let rows = 3 * (n * rank / ranks)..3 * (n * (rank + 1) / ranks);
            Particles::from_host(context, &domain, &all[rows])
        };
        let (cloud, centers) = (part(points)?, part(centers)?);
        let search = context.search(&cloud)?;
        Ok::<_, Error>(overdense(context, &search, &centers, query)?)
    });
    parts.unwrap().concat()
}

/// Returns the definition in f64: the first sphere from inside out. Also how close the decision
/// was, relative to a radius.
fn brute(sides: [f64; 3], points: &[f32], center: &[f32], density: f64, least: usize) -> (u64, f64) {
    let distance = |point: &[f32]| {
        let gap = |axis: usize| {
            let d = f64::from(point[axis]) - f64::from(center[axis]);
            if sides[axis] > 0.0 { d - sides[axis] * (d / sides[axis]).round() } else { d }
        };
        (0..3).map(|axis| gap(axis).powi(2)).sum::<f64>().sqrt()
    };
    let mut all: Vec<f64> = points.chunks(3).map(distance).collect();
    all.sort_by(f64::total_cmp);
    let radius = |count: usize| (0.75 / std::f64::consts::PI * count as f64 / density).cbrt();
    let mut close = f64::INFINITY;
    let mut beyond = |count: usize, next: f64| {
        close = close.min((radius(count) / next - 1.0).abs());
        radius(count) < next
    };
    // The sphere that just holds the least number.
    if all.len() < least || beyond(least, all[least - 1]) {
        return (0, close);
    }
    for count in least..=all.len() {
        if all.get(count).is_none_or(|&next| beyond(count, next)) {
            return (count as u64, close);
        }
    }
    unreachable!()
}

#[test]
fn spheres_are_those_of_brute_force_on_any_number_of_ranks() {
    let mut numbers = Numbers(5);
    for (sides, least) in [([10.0; 3], 10u32), ([10.0, 0.0, 10.0], 1)] {
        // A background, and clumps of several sizes, one across the corner of the box and one of
        // equal points.
        let mut points: Vec<f32> = (0..3 * 1500).map(|_| (10.0 * numbers.next()) as f32).collect();
        let clumps = [([0.05, 0.1, 9.95], 0.6, 900), ([5.0, 5.0, 5.0], 0.4, 300), ([8.0, 2.0, 4.0], 0.2, 40)];
        for (center, size, count) in clumps {
            for _ in 0..count {
                for x in center {
                    let spread: f64 = (0..4).map(|_| numbers.next() - 0.5).sum();
                    points.push((x + size * spread).rem_euclid(10.0) as f32);
                }
            }
        }
        points.extend([3.0, 7.0, 7.0].repeat(25));
        let mut centers: Vec<f32> = clumps.iter().flat_map(|clump| clump.0.map(|x| x as f32)).collect();
        // Centers in the void too, whose spheres are not filled.
        centers.extend([3.0, 7.0, 7.0]);
        centers.extend((0..3 * 9).map(|_| (10.0 * numbers.next()) as f32));
        let query = Predicate::overdensity(&[6.0, 100.0, 30.0], least);
        let alone = found(1, sides, &points, &centers, &query);
        let (mut none, mut some) = (0, 0);
        for (row, center) in centers.chunks(3).enumerate() {
            for (which, &density) in query.densities.iter().enumerate() {
                let (want, close) = brute(sides, &points, center, density, least as usize);
                let got = alone[3 * row + which];
                // Distances of up to 10 and cubes in f32: some 2^-21 of a radius.
                assert!(got == want || close < 1e-6, "{sides:?} {center:?} {density}: {got} {want} {close:e}");
                none += u32::from(want == 0);
                some += u32::from(want > 100);
            }
        }
        assert!(none > 2 && some > 2, "{none} {some}");
        for ranks in 2..=4 {
            assert_eq!(found(ranks, sides, &points, &centers, &query), alone, "{ranks} ranks");
        }
        let nobody = Predicate::overdensity(&[], least);
        assert!(found(2, sides, &points, &centers, &nobody).is_empty());
        assert!(found(3, sides, &points, &[], &query).is_empty());
    }
}

/// Lists of 1024 queries that each see 1024 points: what was said of an entry is what it takes.
#[test]
fn an_entry_of_long_lists_takes_the_memory_that_was_said() {
    let mut numbers = Numbers(23);
    let points: Vec<f32> = (0..3 * 1024).map(|_| (5.0 + 0.01 * numbers.next()) as f32).collect();
    // A device of its own, whose memory is not used by others.
    let options = Options { kernels: 420, ..meshloom_sanitizer::options().unwrap() };
    launch(Launch::Threads(1), &options, |context| {
        let cloud = Particles::from_host(context, &Domain::new(&[10.0; 3])?, &points)?;
        let search = context.search(&cloud)?;
        let before = context.gpu.most_used();
        // The clump fills a sphere of radius 1, which holds it whole.
        let query = Predicate::overdensity(&[1024.0 * 0.75 / std::f64::consts::PI], 10);
        assert_eq!(overdense(context, &search, &cloud, &query)?, [1024; 1024]);
        let each = (context.gpu.most_used() - before) as f64 / f64::from(1 << 20);
        assert!(each < 50.0, "{each} bytes an entry");
        Ok::<_, Error>(())
    })
    .unwrap();
}

/// Points of a singular isothermal sphere, M(r) proportional to r, at their expected radii: the
/// mean density falls with 1/r^2, so that N = sqrt(n_1 / n) with n_1 the mean density that a sphere
/// of the first point has.
#[test]
fn an_isothermal_sphere_has_the_radius_of_its_profile() {
    let mut numbers = Numbers(17);
    let (count, step, center) = (3000, 0.001, [4.0, 0.3, 9.9]);
    let mut points = Vec::new();
    for shell in 0..count {
        let r = step * (f64::from(shell) + 0.5);
        let (z, angle) = (2.0 * numbers.next() - 1.0, 2.0 * std::f64::consts::PI * numbers.next());
        let across = (1.0 - z * z).sqrt();
        let way = [across * angle.cos(), across * angle.sin(), z];
        points.extend((0..3).map(|axis| (center[axis] + r * way[axis]).rem_euclid(10.0) as f32));
    }
    let radii = [0.05, 0.5, 2.0];
    // Within r lie r / step points.
    let densities = radii.map(|r| 0.75 / std::f64::consts::PI / (step * r * r)).to_vec();
    let query = Predicate::overdensity(&densities, 10);
    let counts = found(3, [10.0; 3], &points, &center.map(|x| x as f32), &query);
    for (count, radius) in counts.into_iter().zip(radii) {
        // Within half a step of the shell that the radius lies in; N and N + 1 lie on its two
        // sides.
        assert!((count as f64 - radius / step).abs() <= 1.5, "{count} {radius}");
    }
    let wrong = Predicate::overdensity(&[f64::NAN], 10);
    let context = launch(Launch::Threads(1), &meshloom_sanitizer::options().unwrap(), |context| {
        let cloud = Particles::from_host(context, &Domain::new(&[10.0; 3])?, &points)?;
        let search = context.search(&cloud)?;
        Ok::<_, Error>(overdense(context, &search, &cloud, &wrong)?)
    });
    assert!(context.unwrap_err().to_string().contains("density of NaN"));
}

/// Lengths in another unit are the same spheres: in a power of two to the digit, however large or
/// small volumes become.
#[test]
fn spheres_do_not_depend_on_the_unit_of_length() {
    let mut numbers = Numbers(11);
    let points: Vec<f32> = (0..3 * 400).map(|_| (0..3).map(|_| numbers.next()).product::<f64>() as f32).collect();
    let centers = points[..3 * 20].to_vec();
    let counts = |unit: f32| {
        let scaled = |all: &[f32]| all.iter().map(|x| x * unit).collect::<Vec<_>>();
        let (side, volume) = (f64::from(unit), f64::from(unit).powi(3));
        let query = Predicate::overdensity(&[6000.0 / volume, 900.0 / volume], 2);
        found(1, [side; 3], &scaled(&points), &scaled(&centers), &query)
    };
    let want = counts(1.0);
    assert!(want.iter().any(|&count| count > 10), "{want:?}");
    for exponent in [-80, 80] {
        assert_eq!(counts(2f32.powi(exponent)), want, "{exponent}");
    }
}
