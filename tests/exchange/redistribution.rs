//! Redistributions between boxes on devices, over ranks that are threads: every value arrives,
//! nothing else changes.

use meshloom::comm::run_threads;
use meshloom::exchange::{Exchange, ExchangeError, Reshape};
use meshloom::gpu::{Array, DeviceElement, Gpu, Options, Recorder};
use meshloom::grid::{Box3, Grid, Redistribution, bricks, volume};

const SHAPES: [[u64; 3]; 4] = [[11, 11, 22], [19, 20, 21], [9, 10, 11], [3, 5, 7]];
const RANKS: [usize; 7] = [1, 2, 3, 4, 6, 8, 12];

/// An element that holds a number of a cell exactly.
trait Value: DeviceElement + PartialEq + std::fmt::Debug {
    fn of(n: u64) -> Self;
}

impl Value for u32 {
    fn of(n: u64) -> Self {
        n as u32
    }
}

impl Value for i32 {
    fn of(n: u64) -> Self {
        -(n as i32)
    }
}

impl Value for f32 {
    fn of(n: u64) -> Self {
        n as f32
    }
}

impl Value for [f32; 2] {
    fn of(n: u64) -> Self {
        [n as f32, -0.5 - n as f32]
    }
}

impl Value for f64 {
    fn of(n: u64) -> Self {
        n as f64 + 1e-9
    }
}

impl Value for [f64; 2] {
    fn of(n: u64) -> Self {
        [n as f64 + 1e-9, -(n as f64)]
    }
}

/// Returns the values of a box of several fields.
fn values<T: Value>(shape: [u64; 3], part: &Box3, fields: u64) -> Vec<T> {
    let mut all = Vec::new();
    for field in 0..fields {
        for i in part[0].clone() {
            for j in part[1].clone() {
                all.extend(part[2].clone().map(|k| T::of(((field * shape[0] + i) * shape[1] + j) * shape[2] + k)));
            }
        }
    }
    all
}

/// One rank's recorder and exchange.
struct Bench {
    recorder: Recorder,
    exchange: Exchange,
}

impl Bench {
    fn array<T: DeviceElement>(&mut self, values: &[T]) -> Result<Array<T>, ExchangeError> {
        let array = self.recorder.gpu().array::<T>("test", values.len() as u64)?;
        self.recorder.upload(&array, 0, values)?;
        Ok(array)
    }

    /// Goes through a list of distributions, one reshape each, then the whole way back by the
    /// reversed plans; checks every array on the way, and that inputs stay.
    fn travel<T: Value>(&mut self, shape: [u64; 3], stops: &[Vec<Box3>], fields: u64) -> Result<(), ExchangeError> {
        let me = self.exchange.comm().rank();
        let plan =
            |pair: &[Vec<Box3>]| Reshape::new(Redistribution::new(shape, &pair[0], &pair[1], me).unwrap(), fields);
        let there: Vec<Reshape> = stops.windows(2).map(plan).collect();
        let back: Vec<Reshape> = there.iter().rev().map(Reshape::reversed).collect();
        let mut array = self.array(&values::<T>(shape, &stops[0][me], fields))?;
        for reshape in there.iter().chain(&back) {
            let sentinel = vec![T::of(999_999); reshape.output_len() as usize];
            let next = self.array(&sentinel)?;
            reshape.run(&mut self.recorder, &mut self.exchange, &array, &next)?;
            for (array, part) in [(&next, &reshape.plan.to), (&array, &reshape.plan.from)] {
                assert_eq!(array.len(), volume(part) * fields);
                let got = self.recorder.download(array, 0, array.len())?;
                let expected = values::<T>(shape, part, fields);
                let wrong = got.iter().zip(&expected).position(|(got, expected)| got != expected);
                assert_eq!(wrong, None, "{part:?} of {shape:?} on rank {me}, {} fields", reshape.fields);
            }
            array = next;
        }
        Ok(())
    }
}

fn on_ranks(
    ranks: usize,
    options: &Options,
    (chunk, depth): (u64, usize),
    body: impl Fn(&mut Bench) -> Result<(), ExchangeError> + Sync,
) {
    let done = run_threads(ranks, |comm| {
        let gpu = Gpu::open(options, comm.rank())?;
        let recorder = Recorder::new(&gpu)?;
        body(&mut Bench { recorder, exchange: Exchange::new(comm).with_chunks(chunk, depth) })
    });
    if let Err(error) = done {
        panic!("{ranks} ranks: {error}");
    }
}

fn options(window_bytes: Option<u64>, floor: bool) -> Options {
    Options { window_bytes, floor, ..meshloom_sanitizer::options().unwrap() }
}

/// Three even cuts of a number of ranks.
fn cut(ranks: usize) -> [usize; 3] {
    let least = |n: usize| (2..=n).find(|&p| n.is_multiple_of(p)).unwrap_or(1);
    let first = least(ranks);
    let second = least(ranks / first);
    [ranks / first / second, second, first]
}

/// Slabs, pencils, bricks, columns.
fn stops(shape: [u64; 3], ranks: usize) -> Vec<Vec<Box3>> {
    let [p0, p1, p2] = cut(ranks);
    let pencils = Grid::new([p0 * p1, p2], ranks).unwrap();
    let pencils = (0..ranks).map(|rank| pencils.part(shape, rank)).collect();
    vec![bricks(shape, [ranks, 1, 1]), pencils, bricks(shape, [p0, p1, p2]), bricks(shape, [1, 1, ranks])]
}

#[test]
fn slabs_become_pencils_become_bricks_and_go_back() {
    for shape in SHAPES {
        for ranks in RANKS {
            on_ranks(ranks, &options(None, false), (1 << 20, 3), |bench| {
                bench.travel::<f32>(shape, &stops(shape, ranks), 1)
            });
        }
    }
}

#[test]
fn ownership_may_be_shuffled() {
    for (shape, ranks) in [([9, 10, 11], 4), ([11, 11, 22], 6), ([3, 5, 7], 12)] {
        let mut stops = stops(shape, ranks);
        // Rank `me` has the box number `me + 1` before and `me + 3` after, and so on.
        stops.iter_mut().enumerate().for_each(|(n, boxes)| boxes.rotate_left((2 * n + 1) % ranks));
        on_ranks(ranks, &options(None, false), (1 << 20, 3), |bench| bench.travel::<[f32; 2]>(shape, &stops, 1));
    }
}

#[test]
fn ranks_may_have_nothing() {
    let shape = [3, 5, 7];
    let nothing = || [0..0, 0..0, 0..0];
    let all: Box3 = [0..3, 0..5, 0..7];
    let on = |rank: usize| (0..6).map(|r| if r == rank { all.clone() } else { nothing() }).collect::<Vec<_>>();
    let stops = [on(0), on(0), bricks(shape, [6, 1, 1]), on(4), bricks(shape, [1, 2, 3]), on(5), on(2)];
    on_ranks(6, &options(None, false), (1 << 20, 3), |bench| bench.travel::<u32>(shape, &stops, 1));
}

#[test]
fn fields_move_together() {
    for ranks in [1, 4, 6] {
        on_ranks(ranks, &options(None, false), (1 << 20, 3), |bench| {
            let (shape, before) = ([9, 10, 11], bench.exchange.cost().messages);
            bench.travel::<f32>(shape, &stops(shape, ranks), 3)?;
            bench.travel::<[f32; 2]>(shape, &stops(shape, ranks), 3)?;
            let three = bench.exchange.cost().messages - before;
            bench.travel::<f32>(shape, &stops(shape, ranks), 1)?;
            assert_eq!(three, 2 * (bench.exchange.cost().messages - three - before), "a peer gets one message");
            Ok(())
        });
    }
}

#[test]
fn arrays_may_be_cut_into_windows() {
    // The floor has eight bindings: four windows before and four after, as arrays of complex
    // numbers.
    let few = [([16, 16, 16], 2, 1)];
    let many = [([11, 11, 22], 4, 3), ([19, 20, 21], 3, 1)];
    let bindings = Gpu::open(&options(None, false), 0).unwrap().capabilities().bindings;
    let here = if bindings < 16 { &few[..] } else { &many };
    for (window, keeps, cases) in [(Some(4096), false, here), (Some(4096), true, &few), (None, true, &many)] {
        for &(shape, ranks, fields) in cases {
            on_ranks(ranks, &options(window, keeps), (1 << 20, 3), |bench| {
                bench.travel::<f32>(shape, &stops(shape, ranks), fields)?;
                bench.travel::<[f32; 2]>(shape, &stops(shape, ranks), fields)
            });
        }
    }
}

#[test]
fn chunks_may_be_of_one_element() {
    on_ranks(4, &options(None, false), (4, 2), |bench| {
        bench.travel::<f32>([3, 5, 7], &stops([3, 5, 7], 4), 1)?;
        bench.travel::<[f32; 2]>([3, 5, 7], &stops([3, 5, 7], 4), 3)
    });
}

#[test]
fn every_element_moves() {
    on_ranks(3, &options(None, false), (64, 3), |bench| {
        let (shape, stops) = ([5, 6, 7], stops([5, 6, 7], 3));
        bench.travel::<u32>(shape, &stops, 2)?;
        bench.travel::<i32>(shape, &stops, 2)?;
        if bench.recorder.gpu().capabilities().f64 {
            bench.travel::<f64>(shape, &stops, 2)?;
            bench.travel::<[f64; 2]>(shape, &stops, 2)?;
        } else {
            println!("skipped: no double precision");
        }
        Ok(())
    });
}

#[test]
fn bits_are_kept_whatever_they_mean() {
    // Signalling NaNs and subnormal numbers, which arithmetic would change.
    let patterns = [0x7f80_0001u32, 0xffc0_1234, 0x0000_0001, 0x8000_0000, 0x007f_ffff];
    on_ranks(2, &options(None, false), (1 << 20, 3), |bench| {
        let (me, shape) = (bench.exchange.comm().rank(), [2, 4, 6]);
        let (from, to) = (bricks(shape, [1, 1, 2]), bricks(shape, [1, 2, 1]));
        let there = Reshape::new(Redistribution::new(shape, &from, &to, me).unwrap(), 1);
        let bits: Vec<u32> = (0..there.input_len()).map(|n| patterns[n as usize % patterns.len()]).collect();
        let input = bench.array(&bits)?.cast::<f32>()?;
        let [middle, end] = [there.output_len(), there.input_len()].map(|len| bench.recorder.gpu().array("test", len));
        let (middle, end) = (middle?, end?);
        there.run(&mut bench.recorder, &mut bench.exchange, &input, &middle)?;
        there.reversed().run(&mut bench.recorder, &mut bench.exchange, &middle, &end)?;
        assert_eq!(bench.recorder.download(&end.cast::<u32>()?, 0, there.input_len())?, bits);
        Ok(())
    });
}

#[test]
fn an_identity_asks_nobody() {
    let shape = [9, 10, 11];
    let boxes = bricks(shape, [2, 1, 2]);
    on_ranks(4, &options(None, false), (1 << 20, 3), |bench| {
        bench.travel::<f32>(shape, &[boxes.clone(), boxes.clone()], 3)?;
        assert_eq!(bench.exchange.cost().messages, 0);
        assert_eq!(bench.recorder.counts().dispatches, 0, "runs need no kernel");
        Ok(())
    });
}

#[test]
fn misuse_is_an_error() {
    let shape = [4, 4, 4];
    on_ranks(2, &options(None, false), (1 << 20, 3), |bench| {
        let boxes = [bricks(shape, [2, 1, 1]), bricks(shape, [1, 2, 1])];
        let me = bench.exchange.comm().rank();
        let right = Reshape::new(Redistribution::new(shape, &boxes[0], &boxes[1], me).unwrap(), 2);
        let other = Reshape::new(Redistribution::new(shape, &boxes[0], &boxes[1], 1 - me).unwrap(), 2);
        let (short, long) = (bench.array(&[0f32; 32])?, bench.array(&[0f32; 64])?);
        let out = bench.array(&[0f32; 64])?;
        for (reshape, input, words) in [(&right, &short, "32 and 64 elements"), (&other, &long, "in the exchange")] {
            let error = reshape.run(&mut bench.recorder, &mut bench.exchange, input, &out).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        right.run(&mut bench.recorder, &mut bench.exchange, &long, &out)
    });
}

#[test]
fn ranks_that_redistribute_otherwise_are_told() {
    let shape = [4, 4, 4];
    let boxes = [bricks(shape, [2, 1, 1]), bricks(shape, [1, 2, 1])];
    let error = run_threads(2, |comm| {
        let mut recorder = Recorder::new(&Gpu::open(&meshloom_sanitizer::options()?, 0)?)?;
        let there = Reshape::new(Redistribution::new(shape, &boxes[0], &boxes[1], comm.rank()).unwrap(), 1);
        let reshape = if comm.rank() == 0 { there } else { there.reversed() };
        let [from, to] = ["from", "to"].map(|name| recorder.gpu().array::<f32>(name, 32));
        reshape.run(&mut recorder, &mut Exchange::new(comm.clone()), &from?, &to?)
    });
    let text = error.expect_err("one moves them there, the other back").to_string();
    assert_eq!(text.matches("redistribution of 1 meshes of f32 with settings").count(), 2, "{text}");
}
