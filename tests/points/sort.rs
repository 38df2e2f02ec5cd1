//! Sorts of points over ranks: the permutation of one stable sort on the host, with exact balance,
//! whatever the input and however it is dealt out.

use meshloom::comm::{CommError, run_threads};
use meshloom::exchange::ExchangeError;
use meshloom::gpu::{Array, DeviceElement, Gpu, Options, Recorder};
use meshloom::grid::Shares;
use meshloom::points::sort::{Route, SortError, distribute, order};
use meshloom::points::{AnyArray, Bounds, Cloud, Curve, Domain, Frame, ParticleError};
use meshloom::{Error, Rank};

/// Numbers in `-0.5..0.5`.
fn uniform(seed: u64, count: usize) -> Vec<f64> {
    let hash = |n: u64| {
        let n = (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (n ^ n >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    (0..count as u64).map(|i| (hash(hash(i ^ seed << 40)) >> 11) as f64 / (1u64 << 53) as f64 - 0.5).collect()
}

fn all<T: DeviceElement>(recorder: &mut Recorder, array: &Array<T>) -> Vec<T> {
    recorder.download(array, 0, array.len()).unwrap()
}

fn upload<T: DeviceElement>(recorder: &mut Recorder, data: &[T]) -> Array<T> {
    let array = recorder.gpu().array("data", data.len() as u64).unwrap();
    recorder.upload(&array, 0, data).unwrap();
    array
}

/// Points, wrapped already, and how many of them each rank is given.
struct Case {
    domain: Domain,
    points: Vec<f32>,
    given: Vec<usize>,
    curve: Curve,
}

impl Case {
    fn count(&self) -> usize {
        self.points.len() / self.domain.dims()
    }

    fn frame(&self) -> Frame {
        let mut bounds: Option<Bounds> = None;
        for point in self.points.chunks(self.domain.dims()) {
            let mut low = [0.0; 3];
            low[..point.len()].copy_from_slice(point);
            let one = Bounds { low, high: low };
            bounds = Some(bounds.map_or(one, |bounds| bounds.union(&one)));
        }
        Frame::new(&self.domain, bounds)
    }

    /// Indices and keys in order, by a stable sort.
    fn sorted(&self) -> (Vec<u64>, Vec<u64>) {
        let frame = self.frame();
        let keys: Vec<u64> = self.points.chunks(self.domain.dims()).map(|point| frame.key(self.curve, point)).collect();
        let mut order: Vec<u64> = (0..self.count() as u64).collect();
        order.sort_by_key(|&i| keys[i as usize]);
        let keys = order.iter().map(|&i| keys[i as usize]).collect();
        (order, keys)
    }

    /// Sorts on as many ranks as are given points, and compares all that comes of it.
    fn check(&self, options: &Options) {
        assert_eq!(self.given.iter().sum::<usize>(), self.count());
        let (want, keys) = self.sorted();
        let ranks = self.given.len();
        let what = format!("{} points as {:?} along {:?}", self.count(), self.given, self.curve);
        let unequal: Vec<f64> = (0..ranks).map(|rank| (1 + 5 * rank % 7) as f64).collect();
        let shares = if ranks > 2 { Shares::new(&unequal).unwrap() } else { Shares::from(ranks) };
        let done = run_threads(ranks, |comm| {
            let (gpu, rank, dims) = (Gpu::open(options, 0)?, comm.rank(), self.domain.dims());
            let mut context = Rank::new(comm.with_shares(shares)?, gpu)?;
            context.exchange = context.exchange.with_chunks(500, 2);
            let first: usize = self.given[..rank].iter().sum();
            let own = &self.points[first * dims..(first + self.given[rank]) * dims];
            let mut cloud = Cloud::from_host(&mut context.recorder, &self.domain, own)?;
            let ids: Vec<u32> = (0..self.given[rank]).map(|row| (first + row) as u32).collect();
            let pairs: Vec<i32> = ids.iter().flat_map(|&id| [id as i32, -(id as i32)]).collect();
            let (ids, pairs) = (upload(&mut context.recorder, &ids), upload(&mut context.recorder, &pairs));
            cloud.set("id", ids, 1)?;
            cloud.set("pair", pairs, 2)?;
            let sorted = distribute(&mut context, &cloud, self.curve)?;

            let part = shares.split(self.count() as u64, rank);
            assert_eq!((&sorted.part, sorted.total), (&part, self.count() as u64), "{what}");
            assert_eq!(sorted.frame, self.frame(), "{what}");
            let part = part.start as usize..part.end as usize;
            let want = &want[part.clone()];
            assert_eq!(sorted.index(&mut context.recorder)?, want, "{what}: rank {rank}");
            let rows = |width: usize, values: &[f32]| -> Vec<f32> {
                want.iter().flat_map(|&i| values[i as usize * width..(i as usize + 1) * width].to_vec()).collect()
            };
            assert_eq!(all(&mut context.recorder, sorted.cloud.positions()), rows(dims, &self.points), "{what}");
            let [high, low] = sorted.keys.each_ref().map(|words| all(&mut context.recorder, words));
            let got: Vec<u64> = high.iter().zip(&low).map(|(&h, &l)| u64::from(h) << 32 | u64::from(l)).collect();
            assert_eq!(got, keys[part], "{what}");
            match (sorted.cloud.attribute("id").unwrap().values(), sorted.cloud.attribute("pair").unwrap().values()) {
                (AnyArray::U32(ids), AnyArray::I32(pairs)) => {
                    let ids = all(&mut context.recorder, ids);
                    assert!(ids.iter().zip(want).all(|(&id, &want)| u64::from(id) == want), "{what}");
                    let pairs = all(&mut context.recorder, pairs);
                    assert!(pairs.chunks(2).zip(&ids).all(|(pair, &id)| pair == [id as i32, -(id as i32)]), "{what}");
                }
                _ => panic!("attributes have changed their type"),
            }
            // Back to where they came from, with a width and a type of another array.
            let back = sorted.route.back(&mut context, sorted.cloud.positions(), dims as u64)?;
            assert_eq!(all(&mut context.recorder, &back), own, "{what}");
            let wide: Vec<[f32; 2]> = want.iter().map(|&i| [i as f32, 0.5]).collect();
            let wide = upload(&mut context.recorder, &wide);
            let back = sorted.route.back(&mut context, &wide, 1)?;
            let came: Vec<[f32; 2]> = all(&mut context.recorder, &back);
            let rows: Vec<[f32; 2]> = (0..self.given[rank]).map(|row| [(first + row) as f32, 0.5]).collect();
            assert_eq!(came, rows, "{what}");
            let forth = sorted.route.forward(&mut context, &back, 1)?;
            assert_eq!(all(&mut context.recorder, &forth), all(&mut context.recorder, &wide), "{what}");
            Ok::<_, Error>(context.exchange.cost().sent_bytes)
        });
        done.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

fn cube(side: f64, dims: usize) -> Domain {
    Domain::new(&vec![side; dims]).unwrap()
}

fn random(seed: u64, count: usize, dims: usize) -> Vec<f32> {
    uniform(seed, count * dims).iter().map(|u| (u + 0.5) as f32).map(|x| if x < 1.0 { x } else { 0.0 }).collect()
}

fn options() -> Options {
    meshloom_sanitizer::options().unwrap()
}

#[test]
fn any_deal_gives_the_same_permutation_and_exact_balance() {
    for (given, curve, dims) in [
        (vec![1000], Curve::Morton, 3),
        (vec![1000], Curve::Hilbert, 2),
        (vec![500, 500], Curve::Hilbert, 3),
        (vec![0, 1000, 0], Curve::Morton, 2),
        (vec![0, 0, 0, 0, 1000], Curve::Morton, 3),
        (vec![130, 0, 300, 17, 1, 2, 0, 550], Curve::Morton, 3),
    ] {
        let count = given.iter().sum();
        Case { domain: cube(1.0, dims), points: random(1, count, dims), given, curve }.check(&options());
    }
}

#[test]
fn open_axes_reach_over_all_ranks() {
    for dims in [2, 3] {
        let points: Vec<f32> = uniform(7, 600 * dims).iter().map(|u| (u * 30.0) as f32).collect();
        // In order, so that each rank alone has other bounds than all.
        let mut rows: Vec<&[f32]> = points.chunks(dims).collect();
        rows.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let points = rows.concat();
        let sides = &[0.0, 0.0, 100.0][..dims];
        let points = points.iter().enumerate().map(|(at, &x)| if at % dims == 2 { x.abs() } else { x }).collect();
        let domain = Domain::new(sides).unwrap();
        Case { domain, points, given: vec![100, 250, 0, 250], curve: Curve::Morton }.check(&options());
    }
}

#[test]
fn equal_points_keep_the_order_of_the_input() {
    let all_equal = vec![0.25; 3 * 701];
    Case { domain: cube(1.0, 3), points: all_equal, given: vec![3, 0, 600, 98, 0], curve: Curve::Morton }
        .check(&options());
    // A few places with many points each, so that all cuts lie among equals.
    let few: Vec<f32> = uniform(9, 900).iter().flat_map(|u| [((u + 0.5) * 3.0).floor() as f32 / 4.0, 0.5]).collect();
    Case { domain: cube(1.0, 2), points: few, given: vec![200, 300, 0, 400], curve: Curve::Hilbert }.check(&options());
}

#[test]
fn fewer_points_than_ranks_and_none() {
    for given in [vec![0; 3], vec![0, 1, 0], vec![2, 0, 0, 1, 0, 0, 0, 0], vec![0]] {
        let count = given.iter().sum();
        Case { domain: cube(1.0, 3), points: random(3, count, 3), given, curve: Curve::Morton }.check(&options());
    }
    let one =
        Case { domain: Domain::open(2).unwrap(), points: vec![5.0, -1.0], given: vec![0, 1], curve: Curve::Hilbert };
    one.check(&options());
}

#[test]
fn arrays_in_many_windows_are_sorted_alike() {
    let options = Options { window_bytes: Some(4096), ..options() };
    Case { domain: cube(1.0, 3), points: random(5, 900, 3), given: vec![700, 200], curve: Curve::Morton }
        .check(&options);
}

#[test]
fn one_rank_orders_without_moving() {
    let mut recorder = Recorder::new(&Gpu::open(&options(), 0).unwrap()).unwrap();
    for curve in [Curve::Morton, Curve::Hilbert] {
        let case = Case { domain: cube(1.0, 2), points: random(6, 3000, 2), given: vec![3000], curve };
        let cloud = Cloud::from_host(&mut recorder, &case.domain, &case.points).unwrap();
        let got = order(&mut recorder, &cloud, curve).unwrap();
        let got = all(&mut recorder, &got);
        assert!(got.iter().zip(&case.sorted().0).all(|(&got, &want)| u64::from(got) == want), "{curve:?}");
    }
}

#[test]
fn a_bad_point_of_any_rank_is_the_same_error_on_all() {
    let results = run_threads(4, |comm| {
        let gpu = Gpu::open(&options(), 0)?;
        let mut recorder = Recorder::new(&gpu)?;
        let mut points = random(comm.rank() as u64, 50, 3);
        // Ranks 1 and 3 have some; the first of all is row 50 + 20.
        match comm.rank() {
            1 => (points[3 * 20 + 2], points[3 * 30]) = (f32::NAN, f32::NAN),
            3 => points[0] = f32::INFINITY,
            _ => {}
        }
        let found = Cloud::from_host(&mut recorder, &cube(1.0, 3), &points);
        Ok::<_, Error>(Cloud::agreed(&comm, 50, found).err())
    });
    let want = Some(ParticleError::NonFinite { index: 70, axis: 2 });
    assert_eq!(results.unwrap(), vec![want; 4]);
}

#[test]
fn ranks_must_sort_the_same() {
    let results = run_threads(3, |comm| {
        let gpu = Gpu::open(&options(), 0)?;
        let mut context = Rank::new(comm.clone(), gpu.clone())?;
        let mut cloud = Cloud::from_host(&mut context.recorder, &cube(1.0, 2), &[0.5, 0.5])?;
        if comm.rank() == 2 {
            let mass = upload(&mut context.recorder, &[1.0f32]);
            cloud.set("mass", mass, 1)?;
        }
        Ok::<_, Error>(distribute(&mut context, &cloud, Curve::Morton).err())
    });
    for error in results.unwrap() {
        assert!(
            matches!(&error, Some(SortError::Comm(CommError::Differ { rank: 2, argument, .. })) if argument == "attributes"),
            "{error:?}"
        );
    }
}

#[test]
fn routes_refuse_what_does_not_fit() {
    run_threads(1, |comm| {
        let mut context = Rank::new(comm.clone(), Gpu::open(&options(), 0)?)?;
        let order = upload(&mut context.recorder, &[1u32, 0]);
        assert!(Route::new(&comm, order.clone(), vec![3], vec![3], None).is_err());
        assert!(Route::new(&comm, order.clone(), vec![2, 0], vec![2, 0], None).is_err());
        assert!(Route::new(&comm, order.clone(), vec![u64::MAX; 1], vec![u64::MAX; 1], None).is_err());
        let route = Route::new(&comm, order, vec![2], vec![2], None)?;
        let rows = upload(&mut context.recorder, &[1.0f32, 2.0, 3.0]);
        assert!(route.forward(&mut context, &rows, 1).is_err());
        assert!(route.forward(&mut context, &rows, u64::MAX).is_err());
        let mut cloud = Cloud::from_host(&mut context.recorder, &cube(1.0, 2), &[0.5; 4])?;
        assert!(cloud.set("mass", rows, u64::MAX).is_err());
        Ok::<_, Error>(())
    })
    .unwrap();
    assert!(
        run_threads(2, |comm| {
            let mut context = Rank::new(comm.clone(), Gpu::open(&options(), 0)?)?;
            let order = upload(&mut context.recorder, &[0u32]);
            Route::new(&comm, order, vec![u64::MAX, 2], vec![u64::MAX, 2], None)?;
            Ok::<_, Error>(())
        })
        .is_err()
    );
}

/// An error of two ranks that make two plans of the same shape and move rows by them, each rank as
/// it says.
fn told_of(
    moves: impl Fn(usize, &mut Rank, &[Route; 2], &Array<f32>) -> Result<Array<f32>, ExchangeError> + Sync,
) -> String {
    let error = run_threads(2, |comm| {
        let mut context = Rank::new(comm.clone(), Gpu::open(&options(), 0)?)?;
        let order = upload(&mut context.recorder, &[0u32, 1]);
        let route = || Route::new(&comm, order.clone(), vec![1; 2], vec![1; 2], None);
        let routes = [route()?, route()?];
        let rows = upload(&mut context.recorder, &[1.0f32, 2.0]);
        moves(comm.rank(), &mut context, &routes, &rows).map(drop)
    });
    error.expect_err("the ranks move other rows").to_string()
}

#[test]
fn ranks_that_move_rows_the_other_way_are_told() {
    let text = told_of(|rank, context, [route, _], rows| match rank {
        0 => route.forward(context, rows, 1),
        _ => route.back(context, rows, 1),
    });
    let [forward, back] =
        ["forward", "back"].map(|way| text.contains(&format!("called Route::{way} of plan 0, 1 u32 each")));
    assert!(forward && back, "{text}");
}

#[test]
fn ranks_that_move_rows_by_other_plans_are_told() {
    let text = told_of(|rank, context, routes, rows| routes[rank].forward(context, rows, 1));
    let [first, second] =
        [0, 1].map(|plan| text.contains(&format!("called Route::forward of plan {plan}, 1 u32 each")));
    assert!(first && second, "{text}");
}
