//! Particles over ranks: attributes, one query for all searches, visits that see both points; the
//! same bits on any number of ranks.

use super::clouds::{self, Kind, points};
use super::molecular_dynamics;
use super::sph_sum;
use meshloom::exchange::GridComms;
use meshloom::grid::Shares;
use meshloom::mesh::{Painter, PointsInCells, Window};
use meshloom::points::{Bins, Counts, Domain, Histogram, Lists, ParticleError, Particles, Predicate, Targets, Visit};
use meshloom::{Error, Launch, Rank, launch};

/// Runs a body on several ranks, three with unequal shares, and returns the results of all, one
/// after the other.
fn on<T: Send>(ranks: usize, body: impl Fn(&mut Rank) -> Result<Vec<T>, Error> + Sync) -> Vec<T> {
    let parts = launch(Launch::Threads(ranks), &meshloom_sanitizer::options().unwrap(), |rank| {
        if ranks == 3 {
            rank.set_shares(Shares::new(&[1.0, 5.0, 2.0])?)?;
        }
        body(rank)
    });
    parts.unwrap().into_iter().flatten().collect()
}

/// Returns this rank's part of rows of `width` values each.
fn part<'a, T>(rank: &Rank, all: &'a [T], width: usize) -> &'a [T] {
    let (count, ranks, at) = (all.len() / width, rank.comm.size(), rank.comm.rank());
    // Uneven parts, of which the first of many is empty.
    let cut = |at: usize| {
        if ranks > 2 { count * at * at.saturating_sub(1) / (ranks * (ranks - 1)) } else { count * at / ranks }
    };
    &all[cut(at) * width..cut(at + 1) * width]
}

/// Returns the nearest image of `b` as seen from `a`.
fn offset(domain: &Domain, a: &[f32], b: &[f32]) -> [f64; 3] {
    let mut offset = [0.0; 3];
    for axis in 0..domain.dims() {
        let d = f64::from(b[axis]) - f64::from(a[axis]);
        offset[axis] = domain.side(axis).map_or(d, |side| d - f64::from(side) * (d / f64::from(side)).round());
    }
    offset
}

fn norm(d: [f64; 3]) -> f64 {
    d.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// A sum with weights of both points, their distance and displacement, and parameters.
const PULL: &str = "
    struct State { sum: vec3<f32>, mass: f32 }
    fn begin(query: u32, reach: f32) -> State { return State(vec3<f32>(0.0), mass(query)); }
    fn each(state: State, near: Neighbor) -> State {
        let weight = params.strength * state.mass * mass(near.index) / (near.distance * near.distance + params.soft);
        return State(fma(vec3<f32>(weight), near.offset, state.sum), state.mass);
    }
    fn end(query: u32, state: State) { set_pull(query, state.sum); }
";

meshloom::kernel_params! {
    struct Pull { strength: f32, soft: f32 }
}

const STRENGTH: Pull = Pull { strength: 0.5, soft: 0.01 };

fn pull(domain: &Domain, points: &[f32], mass: &[f32], near: impl Fn(usize, usize, f64) -> bool) -> Vec<[f64; 4]> {
    let (dims, count) = (domain.dims(), mass.len());
    let at = |i: usize| &points[i * dims..(i + 1) * dims];
    let of = |i: usize| {
        let mut sum = [0.0; 4];
        for j in 0..count {
            let d = offset(domain, at(i), at(j));
            if !near(i, j, norm(d)) {
                continue;
            }
            let weight = 0.5 * f64::from(mass[i]) * f64::from(mass[j]) / (norm(d).powi(2) + f64::from(STRENGTH.soft));
            (0..3).for_each(|axis| sum[axis] += weight * d[axis]);
            // The magnitudes of all terms, for the tolerance.
            sum[3] += weight * norm(d);
        }
        sum
    };
    (0..count).map(of).collect()
}

fn masses(count: usize) -> Vec<f32> {
    (0..count).map(|i| 0.5 + (i * 7919 % 1000) as f32 / 1000.0).collect()
}

/// A few units of the last place for each operation of a term, and one for each sum of up to
/// `terms`.
fn close(have: &[f32], want: &[[f64; 4]], terms: f64) {
    assert_eq!(have.len(), 3 * want.len());
    for (row, (have, want)) in have.chunks(3).zip(want).enumerate() {
        let allowed = (16.0 + terms) * f64::from(f32::EPSILON) * want[3] + 1e-30;
        for axis in 0..3 {
            let difference = (f64::from(have[axis]) - want[axis]).abs();
            assert!(difference <= allowed, "row {row}: {have:?} {want:?}, {difference:e} of {allowed:e}");
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn visits_within_a_radius_see_both_points_and_sum_in_order() {
    for (domain, kind, count, radius) in [
        (Domain::new(&[1.0; 3]).unwrap(), Kind::Uniform, 700, 0.17),
        (Domain::open(3).unwrap(), Kind::Hernquist, 400, 0.1),
        (Domain::new(&[1.0, 0.0]).unwrap(), Kind::Uniform, 300, 0.2),
        (Domain::new(&[1.0; 3]).unwrap(), Kind::Lattice, 216, 0.3),
        (Domain::open(3).unwrap(), Kind::Line, 5, 0.2),
        (Domain::open(3).unwrap(), Kind::Uniform, 0, 0.2),
    ] {
        let dims = domain.dims();
        let (points, mass) = (points(kind, count, dims, 5), masses(count));
        let sums = |ranks: usize, is_distributed: bool| {
            let ids: Vec<u32> = (0..count as u32).collect();
            on(ranks, |rank| {
                let (x, mass, ids) = (part(rank, &points, dims), part(rank, &mass, 1), part(rank, &ids, 1));
                let mut p =
                    Particles::from_host(rank, &domain, x)?.with(rank, "mass", mass, 1)?.with(rank, "id", ids, 1)?;
                if is_distributed {
                    rank.distribute(&mut p)?;
                }
                let search = rank.search(&p)?;
                let visit = Visit::new(PULL).read("mass").write("pull", 3).params(&STRENGTH).ordered();
                let found = rank.query(&search, Targets::Own, Predicate::within(radius).exclude_self(), visit)?;
                p.put(found)?;
                let p = p.by(rank, "id")?;
                assert_eq!(p.get::<f32>("mass")?.len(), p.len());
                p.download::<f32>(rank, "pull").map_err(Error::from)
            })
        };
        let want = pull(&domain, &points, &mass, |i, j, r| i != j && r as f32 <= radius);
        for is_distributed in [true, false] {
            let one = sums(1, is_distributed);
            // Pairs at the very edge may be on either side of it in f64.
            close(&one, &want, count as f64);
            for ranks in [2, 3, 6] {
                let many = sums(ranks, is_distributed);
                assert!(bits(&many) == bits(&one), "{kind:?} on {ranks} ranks, distributed: {is_distributed}");
            }
        }
    }
}

#[test]
fn visits_of_the_nearest_see_both_points() {
    for (domain, kind, count, k) in [
        (Domain::new(&[1.0; 3]).unwrap(), Kind::Uniform, 600, 12),
        (Domain::open(3).unwrap(), Kind::Hernquist, 300, 40),
        (Domain::new(&[1.0, 0.0]).unwrap(), Kind::Uniform, 200, 5),
        (Domain::open(3).unwrap(), Kind::Line, 5, 8),
        (Domain::open(3).unwrap(), Kind::Uniform, 0, 3),
    ] {
        let dims = domain.dims();
        let (points, mass) = (points(kind, count, dims, 6), masses(count));
        let sums = |ranks: usize| {
            on(ranks, |rank| {
                let (x, mass) = (part(rank, &points, dims), part(rank, &mass, 1));
                let p = Particles::from_host(rank, &domain, x)?.with(rank, "mass", mass, 1)?;
                let search = rank.search(&p)?;
                let visit = Visit::new(PULL).read("mass").write("pull", 3).params(&STRENGTH);
                let found = rank.query(&search, Targets::Own, Predicate::nearest(k).exclude_self(), visit)?;
                let pull = found.get::<f32>("pull")?;
                Ok(rank.recorder.download(&pull, 0, pull.len())?)
            })
        };
        // The k nearest by f64 distances: ties do not matter where all of them are in, and these
        // clouds have none.
        let at = |i: usize| &points[i * dims..(i + 1) * dims];
        let reach: Vec<f64> = (0..count)
            .map(|i| {
                let mut all: Vec<f64> =
                    (0..count).filter(|&j| j != i).map(|j| norm(offset(&domain, at(i), at(j)))).collect();
                all.sort_by(f64::total_cmp);
                all.get(k as usize - 1).copied().unwrap_or(f64::INFINITY)
            })
            .collect();
        let want = pull(&domain, &points, &mass, |i, j, r| i != j && r <= reach[i]);
        let one = sums(1);
        close(&one, &want, f64::from(k));
        for ranks in [2, 3, 6] {
            assert!(bits(&sums(ranks)) == bits(&one), "{kind:?} on {ranks} ranks");
        }
    }
}

#[test]
fn other_targets_bring_attributes_of_their_own() {
    let domain = Domain::new(&[1.0; 3]).unwrap();
    let (points, places) = (points(Kind::Uniform, 500, 3, 7), clouds::points(Kind::Two, 90, 3, 8));
    let (mass, charge) = (masses(500), masses(90));
    let text = "
        alias State = f32;
        fn begin(query: u32, reach: f32) -> State { return 0.0; }
        fn each(state: State, near: Neighbor) -> State { return fma(mass(near.index), near.offset.x, state); }
        fn end(query: u32, state: State) { set_moment(query, charge(query) * state); set_twice(query, vec2<u32>(query, query)); }";
    let results = |ranks: usize, is_nearest: bool| {
        on(ranks, |rank| {
            let mut p = Particles::from_host(rank, &domain, part(rank, &points, 3))?.with(
                rank,
                "mass",
                part(rank, &mass, 1),
                1,
            )?;
            rank.distribute(&mut p)?;
            let q = Particles::from_host(rank, &domain, part(rank, &places, 3))?.with(
                rank,
                "charge",
                part(rank, &charge, 1),
                1,
            )?;
            let search = rank.search(&p)?;
            let visit =
                Visit::new(text).read("mass").read_target("charge").write("moment", 1).write_u32("twice", 2).ordered();
            let found = match is_nearest {
                true => rank.query(&search, Targets::Of(&q), Predicate::nearest(9), visit)?,
                false => rank.query(&search, Targets::Of(&q), Predicate::within(0.2), visit)?,
            };
            assert_eq!(found.get::<u32>("twice")?.len(), 2 * q.len());
            let moment = found.get::<f32>("moment")?;
            Ok(rank.recorder.download(&moment, 0, moment.len())?)
        })
    };
    for is_nearest in [true, false] {
        let one = results(1, is_nearest);
        for (q, &have) in one.iter().enumerate() {
            let at = &places[3 * q..3 * q + 3];
            let mut all: Vec<([f64; 3], f32)> =
                points.chunks(3).zip(&mass).map(|(x, &m)| (offset(&domain, at, x), m)).collect();
            all.sort_by(|a, b| norm(a.0).total_cmp(&norm(b.0)));
            let near = all.iter().enumerate().filter(|(n, (d, _))| if is_nearest { *n < 9 } else { norm(*d) <= 0.2 });
            let (mut sum, mut size) = (0.0, 0.0);
            for (_, (d, m)) in near {
                sum += f64::from(*m) * d[0];
                size += f64::from(*m) * d[0].abs();
            }
            let (sum, size) = (sum * f64::from(charge[q]), size * f64::from(charge[q]));
            let allowed = 60.0 * f64::from(f32::EPSILON) * size;
            assert!((f64::from(have) - sum).abs() <= allowed, "{q}: {have} {sum}");
        }
        for ranks in [2, 5] {
            assert!(bits(&results(ranks, is_nearest)) == bits(&one), "{ranks} ranks");
        }
    }
}

#[test]
fn searches_of_distributed_particles_sort_nothing_and_find_the_same() {
    for (domain, kind, count) in [
        (Domain::new(&[1.0; 3]).unwrap(), Kind::Uniform, 900),
        (Domain::open(3).unwrap(), Kind::Hernquist, 3000),
        (Domain::open(3).unwrap(), Kind::Same, 150),
        (Domain::new(&[1.0, 0.0]).unwrap(), Kind::Lattice, 256),
        (Domain::open(3).unwrap(), Kind::Uniform, 0),
    ] {
        let dims = domain.dims();
        let points = points(kind, count, dims, 9);
        for ranks in [1, 2, 4] {
            on(ranks, |rank| {
                let mut p = Particles::from_host(rank, &domain, part(rank, &points, dims))?;
                rank.distribute(&mut p)?;
                let sorted = rank.search(&p)?;
                // The same rows in no known order.
                let plain = rank.search(&p.cloud().clone().into())?;
                let bins = Bins::new(&[0.0, 0.05, 0.2])?;
                let knn = Predicate::nearest(7).exclude_self();
                let near = Predicate::within(0.1).half();
                let found = rank.query(&sorted, Targets::Own, knn, Lists)?.download(rank)?;
                assert_eq!(found, rank.query(&plain, Targets::Own, knn, Lists)?.download(rank)?);
                let found = rank.query(&sorted, Targets::Own, near, Lists)?.download(rank)?;
                assert_eq!(found, rank.query(&plain, Targets::Own, near, Lists)?.download(rank)?);
                let lengths: Vec<u64> = found.offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
                let counts = rank.query(&sorted, Targets::Own, near, Counts)?;
                let counts = rank.recorder.download(&counts, 0, counts.len())?;
                assert!(counts.iter().map(|&count| u64::from(count)).eq(lengths));
                let all = Predicate::within(f32::INFINITY).exclude_self();
                let pairs = rank.query(&sorted, Targets::Own, all, Histogram(&bins))?;
                assert_eq!(pairs, rank.query(&plain, Targets::Own, all, Histogram(&bins))?);
                // A radius that cuts a bin.
                let cut = rank.query(&sorted, Targets::Own, Predicate::within(0.1).exclude_self(), Histogram(&bins))?;
                let twice: u64 = found.index.len() as u64 * 2;
                let mut twice = [twice];
                rank.comm.all_reduce(&mut twice, meshloom::comm::Op::Sum)?;
                assert_eq!(cut.iter().sum::<u64>(), twice[0]);
                Ok(Vec::<()>::new())
            });
        }
    }
}

/// One step of molecular dynamics: particles move, are distributed and attract those within a
/// radius.
fn step(rank: &mut Rank, p: &mut Particles) -> Result<(), Error> {
    rank.each(p, "v += params.strength * pull; x += params.strength * v;", &Pull { strength: 0.01, soft: 0.0 })?;
    rank.distribute(p)?;
    let search = rank.search(p)?;
    let visit = Visit::new(PULL).read("mass").write("pull", 3).params(&STRENGTH).ordered();
    p.put(rank.query(&search, Targets::Own, Predicate::within(0.1).exclude_self(), visit)?)?;
    Ok(())
}

#[test]
fn a_step_of_molecular_dynamics_sorts_once() {
    let domain = Domain::new(&[1.0; 3]).unwrap();
    let (points, mass) = (points(Kind::Uniform, 6000, 3, 4), masses(6000));
    for ranks in [1, 3] {
        let dispatches = on(ranks, |rank| {
            let x = part(rank, &points, 3);
            let zeros = vec![0.0f32; x.len()];
            let mut p = Particles::from_host(rank, &domain, x)?
                .with(rank, "mass", part(rank, &mass, 1), 1)?
                .with(rank, "v", &zeros, 3)?
                .with(rank, "pull", &zeros, 3)?;
            step(rank, &mut p)?;
            let before = rank.recorder.counts().dispatches;
            step(rank, &mut p)?;
            rank.recorder.wait()?;
            Ok(vec![rank.recorder.counts().dispatches - before])
        });
        println!("{ranks} ranks: {dispatches:?} dispatches");
        assert!(dispatches.iter().all(|&count| count <= 110), "{dispatches:?}");
    }
}

#[test]
fn each_particle_is_changed_by_itself() {
    let domain = Domain::new(&[8.0, 8.0]).unwrap();
    meshloom::kernel_params! { struct Shift { by: [f32; 2], limit: u32 } }
    on(2, |rank| {
        let x: Vec<f32> = (0..10).map(|i| i as f32 / 2.0).collect();
        let wide: Vec<i32> = (0..35).collect();
        let mut p = Particles::from_host(rank, &domain, &x)?
            .with(rank, "n", &[1u32, 2, 3, 4, 5], 1)?
            .with(rank, "wide", &wide, 7)?
            .with(rank, "unused", &[0.5f32; 5], 1)?;
        let (before, unused) = (p.clone(), p.get::<f32>("unused")?);
        let text = "
            n *= 2u;
            if n > params.limit { return; }
            wide[6] = -wide[0];
            x += params.by;";
        rank.each(&mut p, text, &Shift { by: [5.5, 0.0], limit: 6 })?;
        assert_eq!(p.download::<u32>(rank, "n")?, [2, 4, 6, 8, 10]);
        assert_eq!(before.download::<u32>(rank, "n")?, [1, 2, 3, 4, 5], "other handles keep the old values");
        let got = p.download::<i32>(rank, "wide")?;
        assert!((0..35).all(|i| got[i] == if i % 7 == 6 && i < 21 { 6 - i as i32 } else { i as i32 }), "{got:?}");
        assert_eq!(p.download::<f32>(rank, "x")?, [5.5, 0.5, 6.5, 1.5, 7.5, 2.5, 3.0, 3.5, 4.0, 4.5]);
        rank.recorder.clear(&unused);
        assert_eq!(p.download::<f32>(rank, "unused")?, [0.0; 5], "what is not named stays where it is");
        // The error is that of the rank whose particle it is, with its row among all.
        let rank_of = rank.comm.rank() as u32;
        p.set(
            "rank",
            {
                let array = rank.gpu.array("rank", 5)?;
                rank.recorder.upload(&array, 0, &[rank_of; 5])?;
                array
            },
            1,
        )?;
        let wrong = rank.each(&mut p, "if rank == 1u && n == 6u { x.y = 1.0 / (x.y - x.y); }", &()).unwrap_err();
        assert_eq!(wrong, ParticleError::Moved { index: 7, axis: 1 });
        let wrong = rank.each(&mut p, "n = missing;", &()).unwrap_err().to_string();
        assert!(wrong.contains("missing") && wrong.contains("attributes of the particles: "), "{wrong}");
        // Lines count from the first line of the text, whatever attributes it names.
        let wrong = rank.each(&mut p, "n = n + 1u;\nx = wrong;", &()).unwrap_err().to_string();
        assert!(wrong.contains("line 2 of `points::each`"), "{wrong}");
        Ok(Vec::<()>::new())
    });
}

#[test]
fn attributes_are_named_and_typed() {
    on(1, |rank| {
        let p = Particles::from_host(rank, &Domain::open(2)?, &[0.0; 6])?.with(rank, "n", &[1u32; 3], 1)?;
        let said = |error: ParticleError| error.to_string();
        let missing = said(p.get::<f32>("mass").err().unwrap());
        assert_eq!(missing, "no attribute `mass`: expected one of n, x");
        let typed = said(p.get::<f32>("n").err().unwrap());
        assert_eq!(typed, "`n`: expected u32 values, its type, got f32");
        let short = said(p.clone().with(rank, "v", &[1.0f32; 5], 2).err().unwrap());
        assert_eq!(short, "`v`: expected 6 values, its width for each point, got 5");
        assert!(said(p.clone().with(rank, "x", &[1.0f32; 6], 2).err().unwrap()).contains("name of positions"));
        let search = rank.search(&p)?;
        let visit = Visit::new(PULL).read("mass").write("pull", 3).params(&STRENGTH);
        let error = rank.query(&search, Targets::Own, Predicate::within(1.0), visit).err().unwrap().to_string();
        assert_eq!(error, missing);
        let error =
            rank.query(&search, Targets::Own, Predicate::within(1.0), Visit::new("fn begin() {}")).err().unwrap();
        let error = error.to_string();
        assert!(error.contains("no `fn each`") && error.contains("`Visit`"), "{error}");
        let query = |rank: &mut Rank, visit: Visit| {
            rank.query(&search, Targets::Own, Predicate::within(1.0), visit).err().unwrap().to_string()
        };
        let text = "alias State = f32;
            fn begin(query: u32, reach: f32) -> State { return 0.0; }
            fn each(state: State, near: Neighbor) -> State { return state + f32(n(near.index)); }
            fn end(query: u32, state: State) { set_sum(query, state); }";
        let undeclared = query(rank, Visit::new(text).write("sum", 1));
        assert!(undeclared.contains("add `.read(\"n\")`"), "{undeclared}");
        let wrong = text.replace("0.0;", "0.0 + missing;");
        let wrong = query(rank, Visit::new(wrong).read("n").write("sum", 1));
        assert!(wrong.contains("line 2 of "), "{wrong}");
        Ok(Vec::<()>::new())
    });
}

#[test]
fn particles_are_written_in_the_order_of_their_ids() {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("particles_api");
    std::fs::create_dir_all(&directory).unwrap();
    let domain = Domain::new(&[1.0; 3]).unwrap();
    let points = points(Kind::Uniform, 1000, 3, 12);
    for ranks in [1, 3] {
        let (npy, wide) = (directory.join(format!("x{ranks}.npy")), directory.join(format!("id{ranks}.npy")));
        on(ranks, |rank| {
            let first = rank.comm.rank() as u64 * 1000; // ids in the order of the input, beyond 32 bits
            let rows = part(rank, &points, 3).len() / 3;
            let before = part(rank, &points, 3).as_ptr() as usize - points.as_ptr() as usize;
            let ids: Vec<u32> =
                (0..rows).flat_map(|i| [(before / 12 + i) as u32, 1 + u32::from(before / 12 + i > 500)]).collect();
            assert!(first < u64::MAX);
            let mut p = Particles::from_host(rank, &domain, part(rank, &points, 3))?.with(rank, "id", &ids, 2)?;
            rank.distribute(&mut p)?;
            let p = p.by(rank, "id")?;
            p.write_npy(rank, &npy, "x")?;
            p.write_npy(rank, &wide, "id")?;
            #[cfg(feature = "hdf5")]
            p.write_hdf5(rank, directory.join(format!("p{ranks}.hdf5")), &["x", "id"])?;
            let error = p.by(rank, "x").err().unwrap().to_string();
            assert_eq!(error, "`x`: expected f32 values, its type, got u32");
            Ok(Vec::<()>::new())
        });
        let file = meshloom::io::NpyFile::open(&npy).unwrap();
        assert_eq!(file.shape(), [1000, 3]);
        assert_eq!(file.read_f32(0..3000).unwrap(), points);
        let ids = meshloom::io::NpyFile::open(&wide).unwrap().accept_integers().read_i64(0..2000).unwrap();
        assert!(ids.chunks(2).enumerate().all(|(i, pair)| pair == [i as i64, 1 + i64::from(i > 500)]));
    }
    #[cfg(feature = "hdf5")]
    {
        let bytes = |ranks: usize| std::fs::read(directory.join(format!("p{ranks}.hdf5"))).unwrap();
        assert!(bytes(1) == bytes(3), "the same file on any number of ranks");
    }
}

#[test]
fn smoothed_particles_are_those_of_f64() {
    let domain = Domain::new(&[1.0; 3]).unwrap();
    let (points, velocity) = (points(Kind::Uniform, 800, 3, 14), points(Kind::Uniform, 800, 3, 15));
    let sums = |ranks: usize| {
        on(ranks, |rank| {
            let (x, v) = (part(rank, &points, 3), part(rank, &velocity, 3));
            let mut p = Particles::from_host(rank, &domain, x)?.with(rank, "velocity", v, 3)?;
            sph_sum::smooth(rank, &mut p)?;
            let density = p.download::<f32>(rank, "density")?;
            let smooth = p.download::<f32>(rank, "smooth")?;
            Ok(density.into_iter().zip(smooth.chunks(3)).map(|(d, s)| [d, s[0], s[1], s[2]]).collect())
        })
    };
    let one = sums(1);
    let spline = |q: f64| {
        let p = 1.0 - q;
        8.0 / std::f64::consts::PI * if q < 0.5 { 1.0 - 6.0 * q * q * p } else { 2.0 * p * p * p }
    };
    for i in 0..800 {
        let at = &points[3 * i..3 * i + 3];
        let mut near: Vec<(f64, usize)> =
            (0..800).map(|j| (norm(offset(&domain, at, &points[3 * j..3 * j + 3])), j)).collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        let support = near[31].0;
        let (mut weight, mut momentum) = (0.0, [0.0; 3]);
        for &(r, j) in &near[..32] {
            let w = spline(r / support);
            weight += w;
            (0..3).for_each(|axis| momentum[axis] += w * f64::from(velocity[3 * j + axis]));
        }
        // Weights are below 2.6 and rounded a few times; a sum of 32 terms.
        let allowed = 40.0 * f64::from(f32::EPSILON);
        let density = weight / support.powi(3);
        assert!((f64::from(one[i][0]) / density - 1.0).abs() < 4.0 * allowed, "{i}: {} {density}", one[i][0]);
        for axis in 0..3 {
            let want = momentum[axis] / weight;
            assert!((f64::from(one[i][1 + axis]) - want).abs() < 4.0 * allowed, "{i}: {:?} {want}", one[i]);
        }
    }
    assert!(sums(3) == one, "3 ranks");
}

#[test]
fn molecular_dynamics_keep_energy_and_have_the_same_bits() {
    let runs = |ranks: usize| {
        on(ranks, |rank| {
            let mut atoms = molecular_dynamics::lattice(rank)?;
            let before = molecular_dynamics::energy(rank, &atoms)?;
            for _ in 0..10 {
                molecular_dynamics::step(rank, &mut atoms, 0.002)?;
            }
            let after = molecular_dynamics::energy(rank, &atoms)?;
            // Velocity Verlet errs by the square of the step: 0.002 against a period of about 0.4
            // at energies of a few units.
            assert!((after - before).abs() < 2e-3, "{before} {after}");
            let atoms = atoms.by(rank, "id")?;
            let mut found = bits(&atoms.download::<f32>(rank, "x")?);
            found.extend(bits(&atoms.download::<f32>(rank, "v")?));
            // Rows first, so that parts of ranks follow each other.
            let rows = atoms.len() as usize;
            Ok((0..rows)
                .map(|i| [&found[3 * i..3 * i + 3], &found[3 * (rows + i)..3 * (rows + i) + 3]].concat())
                .collect())
        })
    };
    let one = runs(1);
    assert!(runs(3) == one, "3 ranks");
}

/// Densities of all cells, painted from the device or from the host.
fn painted(ranks: usize, domain: &Domain, points: &[f32], window: Window, is_on_device: bool) -> Vec<f32> {
    let (shape, size) = ([12, 9, 10], [4.0, 3.0, 7.0]);
    let parts = on(ranks, |rank| {
        let mesh = rank.mesh(shape).periodic(size).build()?;
        let mesh = PointsInCells::with_ghosts(&mesh, window, false)?;
        let mut comms = GridComms::new(&rank.comm, mesh.grid())?;
        let (own, cells) = (mesh.own().clone(), mesh.own_cells());
        let x = part(rank, points, 3);
        let placed = match is_on_device {
            true => {
                let p = Particles::from_host(rank, domain, x)?;
                PointsInCells::from_cloud(rank, &mesh, p.cloud())?
            }
            false => {
                let x: Vec<[f64; 3]> = x.chunks(3).map(|x| [0, 1, 2].map(|axis| f64::from(x[axis]))).collect();
                PointsInCells::distribute(&mut rank.recorder, &rank.comm, &mesh, &x, None)?
            }
        };
        assert_eq!(placed.total(), points.len() as u64 / 3);
        let density = rank.gpu.array::<f32>("density", cells)?;
        placed.density(&mut rank.recorder, &mut comms, &Painter::new(window), 0.0, &density)?;
        Ok(vec![(own, rank.recorder.download(&density, 0, cells)?)])
    });
    let mut all = vec![f32::NAN; 12 * 9 * 10];
    for (own, values) in parts {
        let mut values = values.into_iter();
        for i in own[0].clone() {
            for j in own[1].clone() {
                own[2].clone().for_each(|k| all[((i * 9 + j) * 10 + k) as usize] = values.next().unwrap());
            }
        }
    }
    all
}

#[test]
fn particles_are_painted_without_passing_the_host() {
    let domain = Domain::new(&[4.0, 3.0, 7.0]).unwrap();
    let mut points = points(Kind::Uniform, 2000, 3, 16);
    points.chunks_mut(3).for_each(|x| (0..3).for_each(|axis| x[axis] *= [4.0, 3.0, 7.0][axis]));
    // On nodes, at the edges of the box and as near to them as f32 is.
    points[..12].copy_from_slice(&[
        0.0,
        0.0,
        0.0,
        4.0f32.next_down(),
        3.0f32.next_down(),
        7.0f32.next_down(),
        1.0,
        1.0,
        0.7,
        4.0,
        -1e-9,
        1e-9,
    ]);
    for window in Window::ALL {
        let host = painted(1, &domain, &points, window, false);
        let one = painted(1, &domain, &points, window, true);
        // Offsets are rounded once; a mass of 1 has 2000 / 1080 particles, each with a weight below
        // 1 and a slope below 1 along three axes.
        let most = one.iter().zip(&host).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(most < 64.0 * f32::EPSILON, "{window}: {most:e}");
        for ranks in [2, 3] {
            assert!(bits(&painted(ranks, &domain, &points, window, true)) == bits(&one), "{window} on {ranks} ranks");
        }
    }
    // Fields on slabs, with ghost cells and without.
    for (ranks, ghosts) in [(1, 0), (3, 2)] {
        let cells = on(ranks, |rank| {
            let mesh = rank.mesh([12, 9, 10]).periodic([4.0, 3.0, 7.0]).ghosts(ghosts).build()?;
            let p = Particles::from_host(rank, &domain, part(rank, &points, 3))?;
            let density = rank.paint(&p, &mesh, Window::Tsc)?;
            Ok(rank.gather(&density, 0)?.unwrap_or_default())
        });
        assert!(bits(&cells) == bits(&painted(1, &domain, &points, Window::Tsc, true)), "{ranks} ranks");
    }
    let refused = on(2, |rank| {
        let mesh = rank.mesh([8, 8, 8]).periodic([4.0, 3.0, 6.0]).build()?;
        let p = Particles::from_host(rank, &domain, &[0.5; 3])?;
        Ok(vec![rank.paint(&p, &mesh, Window::Cic).err()])
    });
    assert!(refused.iter().all(|error| error.as_ref().is_some_and(|error| error.to_string().starts_with("side 2"))));
    let refused = on(2, |rank| {
        let mesh = rank.mesh([8; 3]).periodic([1.0; 3]).ghosts(2).build()?;
        let p = Particles::from_host(rank, &Domain::new(&[1.0, 0.0, 1.0])?, &[0.5; 3])?;
        Ok(vec![PointsInCells::from_cloud(rank, &mesh, p.cloud()).err()])
    });
    assert!(refused.iter().all(|error| error.as_ref().is_some_and(|error| error.to_string().starts_with("side 1"))));
    let refused = on(2, |rank| {
        let mesh = rank.mesh([8; 3]).open([1.0; 3]).build()?;
        let p = Particles::from_host(rank, &Domain::new(&[1.0; 3])?, &[0.5; 3])?;
        let comm = rank.comm.clone();
        let from_host = PointsInCells::distribute(&mut rank.recorder, &comm, &mesh, &[[0.5; 3]], None).err();
        Ok(vec![from_host, PointsInCells::from_cloud(rank, &mesh, p.cloud()).err()])
    });
    assert!(
        refused.iter().all(|error| error.as_ref().is_some_and(|error| error.to_string().contains("axis 0 is open")))
    );
}

/// Returns the weight of a node at distance `d` in cells, by the definitions of the windows
/// (Hockney & Eastwood 1981, section 5-3).
fn weight(window: Window, d: f64) -> f64 {
    let d = d.abs();
    match window {
        Window::Cic => (1.0 - d).max(0.0),
        Window::Tsc if d < 0.5 => 0.75 - d * d,
        Window::Tsc => 0.5 * (1.5 - d).max(0.0).powi(2),
        Window::Pcs if d < 1.0 => (4.0 - 6.0 * d * d + 3.0 * d * d * d) / 6.0,
        _ => (2.0 - d).max(0.0).powi(3) / 6.0,
    }
}

/// Returns the nodes around a point in a box with these cells, with their weights.
fn nodes(window: Window, shape: [u64; 3], size: [f64; 3], point: &[f32]) -> Vec<(usize, f64)> {
    let along = |axis: usize| {
        let (cells, at) = (shape[axis] as f64, f64::from(point[axis]) / size[axis] * shape[axis] as f64);
        (0..shape[axis]).filter_map(move |node| {
            let d = at - node as f64;
            let weight = weight(window, d - cells * (d / cells).round());
            (weight > 0.0).then_some((node as usize, weight))
        })
    };
    let mut found = Vec::new();
    for (i, a) in along(0) {
        for (j, b) in along(1) {
            found.extend(along(2).map(|(k, c)| ((i * shape[1] as usize + j) * shape[2] as usize + k, a * b * c)));
        }
    }
    found
}

#[test]
fn attributes_are_painted_and_fields_read_at_particles() {
    let (shape, size, count) = ([12u64, 9, 10], [4.0, 3.0, 7.0], 600);
    let (domain, cells) = (Domain::new(&size).unwrap(), 12 * 9 * 10);
    let mut x = points(Kind::Uniform, count, 3, 17);
    x.chunks_mut(3).for_each(|x| (0..3).for_each(|axis| x[axis] *= size[axis] as f32));
    let value = |seed: u64, i: usize| (2.0 * clouds::uniform(seed, i as u64) - 1.0) as f32;
    let flow: Vec<f32> = (0..3 * count).map(|i| value(18, i)).collect();
    let field: Vec<f32> = (0..2 * cells).map(|i| value(19, i)).collect();
    for window in Window::ALL {
        let mut painted = vec![[0.0f64; 3]; cells];
        let mut touching = vec![0u32; cells];
        let mut read = vec![[0.0f64; 2]; count];
        for (row, point) in x.chunks(3).enumerate() {
            for (cell, weight) in nodes(window, shape, size, point) {
                touching[cell] += 1;
                (0..3).for_each(|c| painted[cell][c] += weight * f64::from(flow[3 * row + c]));
                (0..2).for_each(|c| read[row][c] += weight * f64::from(field[c * cells + cell]));
            }
        }
        let runs = |ranks: usize, ghosts: u64| {
            on(ranks, |rank| {
                let mesh = rank.mesh(shape).periodic(size).ghosts(ghosts).build()?;
                let mut p = Particles::from_host(rank, &domain, part(rank, &x, 3))?;
                p = p.with(rank, "flow", part(rank, &flow, 3), 3)?;
                let painted = rank.paint_attribute(&p, "flow", &mesh, window)?;
                let at = |[i, j, k]: [u64; 3]| ((i * shape[1] + j) * shape[2] + k) as usize;
                let values: Vec<f32> = [0, cells]
                    .into_iter()
                    .flat_map(|c| mesh.cells().map(move |cell| c + at(cell)).map(|i| field[i]))
                    .collect();
                let mut both = rank.zeros_of(&mesh, 2)?;
                rank.upload(&mut both, &values)?;
                let read = rank.readout(&both, &p, window)?;
                let read = rank.recorder.download(&read, 0, read.len())?;
                Ok(vec![(rank.gather(&painted, 0)?.unwrap_or_default(), read)])
            })
            .into_iter()
            .reduce(|mut all, part| {
                all.0.extend(part.0);
                all.1.extend(part.1);
                all
            })
            .unwrap()
        };
        let one = runs(1, 0);
        for (cell, wanted) in painted.iter().enumerate() {
            for c in 0..3 {
                // Offsets and the products of three weights are rounded: at most 6 half ulps of 1
                // for each particle.
                let most = f64::from(touching[cell]) * 3.0 * f64::from(f32::EPSILON) + 1e-9;
                let error = (f64::from(one.0[c * cells + cell]) - wanted[c]).abs();
                assert!(error <= most, "{window} cell {cell}: {error:e} > {most:e}");
            }
        }
        for (row, wanted) in read.iter().enumerate() {
            for c in 0..2 {
                // Weights add up to 1, with an error of 3 axes; a sum of at most 64 terms is
                // rounded at each.
                let error = (f64::from(one.1[2 * row + c]) - wanted[c]).abs();
                assert!(error <= 64.0 * f64::from(f32::EPSILON), "{window} row {row}: {error:e}");
            }
        }
        for (ranks, ghosts) in [(2, 1), (3, 0)] {
            let found = runs(ranks, ghosts);
            assert!(bits(&found.0) == bits(&one.0) && bits(&found.1) == bits(&one.1), "{window} on {ranks} ranks");
        }
    }
    // An attribute that a rank lacks, or of another type, is an error on all ranks.
    for is_integer in [false, true] {
        let refused = on(2, |rank| {
            let mesh = rank.mesh([8, 8, 8]).periodic([4.0, 3.0, 7.0]).build()?;
            let mut p = Particles::from_host(rank, &domain, &[0.5; 3])?;
            p = match (rank.index(), is_integer) {
                (0, _) => p.with(rank, "mass", &[1.0f32], 1)?,
                (_, true) => p.with(rank, "mass", &[1u32], 1)?,
                _ => p,
            };
            Ok(vec![rank.paint_attribute(&p, "mass", &mesh, Window::Cic).err().map(|error| error.to_string())])
        });
        assert!(refused.iter().all(|error| error.as_ref().is_some_and(|error| error.contains("mass"))), "{refused:?}");
    }
}

#[test]
fn attributes_are_summed_to_the_same_bits_on_any_number_of_ranks() {
    let v: Vec<f32> = (0..3 * 500).map(|i| (1e6 * (clouds::uniform(23, i) - 0.5)) as f32).collect();
    let wanted: f64 = v.iter().map(|&v| f64::from(v)).sum();
    let squares: f64 = v.iter().map(|&v| f64::from(v * v)).sum();
    let x = points(Kind::Uniform, 500, 3, 24);
    let runs = |ranks: usize| {
        on(ranks, |rank| {
            let p = Particles::from_host(rank, &Domain::open(3)?, part(rank, &x, 3))?;
            let mut p = p.with(rank, "v", part(rank, &v, 3), 3)?.with(rank, "n", &vec![1u32; p_len(rank, &x)], 1)?;
            let before = [p.sum(rank, "v")?, p.dot(rank, "v", "v")?];
            rank.distribute(&mut p)?;
            assert_eq!([p.sum(rank, "v")?, p.dot(rank, "v", "v")?], before, "any order of particles");
            assert_eq!(p.dot(rank, "x", "v")?, p.dot(rank, "v", "x")?);
            assert!(p.sum(rank, "n").unwrap_err().to_string().contains("expected u32 values"));
            assert!(p.dot(rank, "v", "w").unwrap_err().to_string().contains("no attribute `w`"));
            Ok(vec![before])
        })
    };
    let one = runs(1)[0];
    // Values are rounded to 62 bits less the logarithm of their number; products to f32 before.
    assert!((one[0] - wanted).abs() < 1e-3 && (one[1] / squares - 1.0).abs() < 1e-12, "{one:?} {wanted} {squares}");
    for ranks in [2, 3] {
        assert!(runs(ranks).iter().all(|found| *found == one), "{ranks} ranks");
    }
}

/// Returns the number of this rank's points of three coordinates.
fn p_len(rank: &Rank, x: &[f32]) -> usize {
    part(rank, x, 3).len() / 3
}
