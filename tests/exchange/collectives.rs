//! Collectives of device arrays among threads: against host results, cut small, on devices of all
//! kinds; errors on all ranks; their operators.

use super::bodies;
use super::ranks::on_grid;
use meshloom::Rank;
use meshloom::comm::{CommError, Op, run_threads};
use meshloom::exchange::collectives::{Collectives, PendingCollective};
use meshloom::exchange::{ExchangeError, Wire};
use meshloom::gpu::{Array, DeviceError, Gpu, Options};
use meshloom::operators::{
    Adjoint, Leaf, Linear, Model, OperatorError, RankCollective, Space, Vector, check_adjoint, random_field,
};

fn on_ranks<T: Send>(
    ranks: usize,
    options: &Options,
    body: impl Fn(&mut Rank) -> Result<T, ExchangeError> + Sync,
) -> Vec<T> {
    let outcome = run_threads(ranks, |comm| {
        let gpu = Gpu::open(options, 0)?;
        // Messages are cut twice: into chunks, and these into pieces.
        body(&mut Rank::new(comm.with_max_message(700), gpu)?)
    });
    outcome.unwrap_or_else(|error| panic!("{ranks} ranks: {error}"))
}

#[test]
fn every_collective_gives_what_a_host_gives() {
    let options = meshloom_sanitizer::options().unwrap();
    for ranks in 1..=5 {
        on_ranks(ranks, &options, |context| bodies::all(context, if ranks == 2 { 300 } else { 1001 }));
    }
}

#[test]
fn arrays_in_windows_and_staged_ones_are_moved_alike() {
    let options = meshloom_sanitizer::options().unwrap();
    // The longest arrays that a kernel cuts here, of 108 KB, in four windows each or in 27: some
    // devices bind no more than 10 in all.
    let few = Gpu::open(&options, 0).unwrap().capabilities().bindings < 64;
    let window_bytes = Some(if few { 1 << 15 } else { 1 << 12 });
    on_ranks(3, &Options { window_bytes, ..options.clone() }, |context| bodies::all(context, 5000));
    on_ranks(3, &Options { floor: true, ..options }, |context| bodies::all(context, 5000));
}

/// Whatever form other exchanges give to values on the way, here all ranks have the same bits.
#[test]
fn collectives_of_an_exchange_in_blocks_are_exact() {
    let found = on_ranks(3, &meshloom_sanitizer::options().unwrap(), |context| {
        let mut collectives = Collectives::new(context.exchange.clone().with_wire(Wire::Block16));
        let own: Vec<f32> = (0..9000).map(|n| 1.0 + (context.comm.rank() + 1) as f32 / (n + 3) as f32).collect();
        let array = context.gpu.array("own", 9000)?;
        context.recorder.upload(&array, 0, &own)?;
        let sum =
            collectives.all_reduce::<f32>(&mut context.recorder, &array, Op::Max)?.finish(&mut context.recorder)?;
        Ok(context.recorder.download(&sum, 0, 9000)?)
    });
    let most: Vec<f32> = (0..9000).map(|n| 1.0 + 3.0 / (n + 3) as f32).collect();
    assert!(found.iter().all(|found| *found == most));
}

/// Calls of each rank in a faulty run.
type Faulty = fn(&mut Collectives, &mut Rank, &Array<f32>, &Array<f32>) -> Result<(), ExchangeError>;

fn drop_pending<O>(pending: Result<PendingCollective<O>, ExchangeError>) -> Result<(), ExchangeError> {
    pending.map(drop)
}

/// The last rank gives another length, calls another thing, or something that does not fit.
const FAULTY: [(&str, Faulty); 16] = [
    ("all_gather", |c, x, own, _| drop_pending(c.all_gather(&mut x.recorder, own, 1))),
    ("all_gather_v", |c, x, own, odd| {
        let fields = if own.len() == odd.len() { 1 } else { 2 };
        drop_pending(c.all_gather_v(&mut x.recorder, own, fields))
    }),
    ("gather", |c, x, own, _| drop_pending(c.gather(&mut x.recorder, 0, own, 1))),
    ("gather_v", |c, x, own, odd| {
        drop_pending(c.gather_v(&mut x.recorder, usize::from(own.len() != odd.len()), own, 1))
    }),
    ("scatter", |c, x, own, _| drop_pending(c.scatter(&mut x.recorder, 0, Some(own), 1))),
    ("scatter_v", |c, x, own, odd| {
        let root = if own.len() == odd.len() { 9 } else { 1 };
        drop_pending(c.scatter_v::<f32>(&mut x.recorder, root, None, 1))
    }),
    ("all_to_all", |c, x, own, _| drop_pending(c.all_to_all(&mut x.recorder, own, 1))),
    ("all_to_all_v", |c, x, own, _| drop_pending(c.all_to_all_v(&mut x.recorder, own, &[2, 2, 2], 1))),
    ("send_receive", |c, x, own, odd| {
        let to = (own.len() == odd.len()).then_some((0, own));
        drop_pending(c.send_receive(&mut x.recorder, to, None))
    }),
    ("all_reduce", |c, x, own, _| drop_pending(c.all_reduce::<f32>(&mut x.recorder, own, Op::Sum))),
    ("scan", |c, x, own, odd| {
        let op = if own.len() == odd.len() { Op::Min } else { Op::Max };
        drop_pending(c.scan::<f32>(&mut x.recorder, odd, op))
    }),
    ("broadcast", |c, x, own, odd| {
        let root = if own.len() == odd.len() { 1 } else { 2 };
        drop_pending(c.broadcast(&mut x.recorder, root, (x.comm.rank() == root).then_some(own)))
    }),
    ("reduce_scatter", |c, x, own, _| drop_pending(c.reduce_scatter::<f32>(&mut x.recorder, own, Op::Sum, 1))),
    ("reduce_scatter_v", |c, x, own, odd| {
        let counts = if own.len() == odd.len() { [3, 3, 1] } else { [1, 2, 4] };
        drop_pending(c.reduce_scatter_v::<f32>(&mut x.recorder, odd, &counts, Op::Sum, 1))
    }),
    ("scan_exclusive", |c, x, own, odd| match own.len() == odd.len() {
        true => drop_pending(c.scan::<f32>(&mut x.recorder, odd, Op::Sum)),
        false => drop_pending(c.scan_exclusive::<f32>(&mut x.recorder, odd, Op::Sum)),
    }),
    ("reduce", |c, x, own, odd| match own.len() == odd.len() {
        true => drop_pending(c.reduce::<f32>(&mut x.recorder, 0, odd, Op::Sum)),
        false => drop_pending(c.broadcast(&mut x.recorder, x.comm.rank(), Some(own))),
    }),
];

#[test]
fn calls_that_do_not_fit_are_errors_on_all_ranks() {
    let options = meshloom_sanitizer::options().unwrap();
    for (name, faulty) in FAULTY {
        // Each rank catches its own error, so that none hears of another's.
        let errors = on_ranks(3, &options, |context| {
            let collectives = &mut Collectives::new(context.exchange.clone());
            let own = context.gpu.array::<f32>("own", if context.comm.rank() == 2 { 7 } else { 6 })?;
            let odd = context.gpu.array::<f32>("odd", 7)?;
            Ok(faulty(collectives, context, &own, &odd).err())
        });
        for (rank, error) in errors.iter().enumerate() {
            let typed = matches!(
                error,
                Some(
                    ExchangeError::Comm(CommError::Mismatch { .. } | CommError::BadRank { .. })
                        | ExchangeError::Device(DeviceError::Misuse { .. })
                )
            );
            assert!(typed, "{name}, rank {rank}: {error:?}");
        }
    }
}

#[test]
fn what_is_in_flight_belongs_to_the_collective() {
    let options = meshloom_sanitizer::options().unwrap();
    on_ranks(2, &options, |context| {
        let collectives = &mut Collectives::new(context.exchange.clone());
        let own = context.gpu.array::<f32>("own", 9000)?;
        context.recorder.upload(&own, 0, &[1.0; 9000])?;
        let pending = collectives.all_reduce::<f32>(&mut context.recorder, &own, Op::Sum)?;
        let refused = if pending.is_done() { None } else { context.recorder.upload(&own, 0, &[2.0]).err() };
        let text = refused.map_or_else(|| "on its way".into(), |error| error.to_string());
        assert!(text.contains("on its way"), "{text}");
        let sum = pending.finish(&mut context.recorder)?;
        assert_eq!(context.recorder.download(&sum, 8999, 1)?, [2.0]);
        assert!(collectives.cost().sent_bytes >= 36_000, "half there, half back: {:?}", collectives.cost());
        Ok(())
    });
}

/// Points of a rank: uneven, none on some.
fn own_points(rank: usize) -> u64 {
    [5, 0, 2, 7][rank % 4]
}

fn check(rank: &mut Rank, operator: impl Linear + 'static, seed: u64) -> Result<Model, OperatorError> {
    let model = Model::new(operator);
    let x = random_field(rank, model.domain(), seed)?;
    check_adjoint(rank, &model, &x)?;
    Ok(model)
}

#[test]
fn operators_have_their_adjoints() {
    let options = meshloom_sanitizer::options().unwrap();
    for grid in [[1, 1], [2, 1], [3, 1], [2, 2], [5, 1]] {
        on_grid(grid, &options, |rank| {
            let (me, size) = (rank.comm.rank(), rank.comm.size());
            let total = (0..size).map(own_points).sum();
            let leaf = Leaf::points(own_points(me), total);
            for leaf in [leaf.clone(), leaf.components(3).complex().batch(2)] {
                let space = Space::of("x", leaf)?;
                let all = RankCollective::all_gather(rank, &space)?;
                check(rank, all.clone(), 1)?;
                check(rank, Adjoint::new(all), 2)?;
                let root = size - 1;
                let gather = RankCollective::gather(rank, &space, root)?;
                check(rank, gather.clone(), 3)?;
                check(rank, Adjoint::new(gather), 4)?;
                let (next, before) = ((me + 1) % size, (me + size - 1) % size);
                let ring = RankCollective::send_receive(rank, &space, Some(next), Some(before))?;
                check(rank, ring.clone(), 5)?;
                check(rank, Adjoint::new(ring), 6)?;
                let row = RankCollective::send_receive(
                    rank,
                    &space,
                    (next > me).then_some(next),
                    (before < me).then_some(before),
                )?;
                check(rank, row, 7)?;
                // All but what the first rank gets goes to the last.
                let mut counts = vec![0; size];
                counts[0] = own_points(me) / 2;
                counts[root] += own_points(me) - counts[0];
                let to_all = RankCollective::all_to_all(rank, &space, &counts)?;
                check(rank, to_all, 8)?;
                let at_root = if me == root { 4 } else { 0 };
                let one = Space::of("x", Leaf { batch: 2, ..Leaf::points(at_root, 4) })?;
                let broadcast = RankCollective::broadcast(rank, &one, root)?;
                check(rank, broadcast.clone(), 9)?;
                check(rank, Adjoint::new(broadcast), 10)?;
                let equal = Space::of("x", Leaf::points(3, 3 * size as u64).components(2))?;
                let sum = RankCollective::all_reduce(rank, &equal)?;
                check(rank, sum, 11)?;
                for scan in [RankCollective::scan(rank, &equal)?, RankCollective::scan_exclusive(rank, &equal)?] {
                    check(rank, scan.clone(), 12)?;
                    check(rank, Adjoint::new(scan), 13)?;
                }
            }
            Ok(())
        });
    }
}

#[test]
fn operators_move_what_they_say_and_refuse_what_does_not_fit() {
    let options = meshloom_sanitizer::options().unwrap();
    on_grid([3, 1], &options, |rank| {
        let me = rank.comm.rank();
        let space = Space::of("x", Leaf::points(2, 6).components(2))?;
        let mut x = Vector::new(&rank.gpu, &space)?;
        // Components one after the other, of each the points.
        let values: Vec<f64> = (0..4).map(|n| f64::from(10 * me as u32 + n)).collect();
        x.set(&mut rank.recorder, "x", &values)?;
        let model = Model::new(RankCollective::all_gather(rank, &space)?);
        let y = model.value(rank, &x)?;
        let wanted = [0.0, 1.0, 10.0, 11.0, 20.0, 21.0, 2.0, 3.0, 12.0, 13.0, 22.0, 23.0];
        assert_eq!(y.get(&mut rank.recorder, "x")?, wanted);
        // The cotangents of three copies come home as their sum.
        let at = model.at(rank, &x)?;
        let mut back = Vector::new(&rank.gpu, &space)?;
        at.vjp(rank, &y, &mut back)?;
        let wanted: Vec<f64> = values.iter().map(|value| 3.0 * value).collect();
        assert_eq!(back.get(&mut rank.recorder, "x")?, wanted);

        // Scans, and what comes back from the ranks behind.
        let sums = |of: &dyn Fn(usize) -> bool| -> Vec<f64> {
            let sum = |n: u32| (0..3).filter(|&rank| of(rank)).map(|rank| f64::from(10 * rank as u32 + n)).sum();
            (0..4).map(sum).collect()
        };
        let scans = [RankCollective::scan(rank, &space)?, RankCollective::scan_exclusive(rank, &space)?];
        for (own, scan) in scans.into_iter().enumerate() {
            let model = Model::new(scan);
            let at = model.at(rank, &x)?;
            let before = sums(&|rank| rank + own <= me);
            assert_eq!(at.value.get(&mut rank.recorder, "x")?, before);
            at.vjp(rank, &x, &mut back)?;
            let behind = sums(&|rank| me + own <= rank);
            assert_eq!(back.get(&mut rank.recorder, "x")?, behind);
        }

        let fails = |outcome: Result<RankCollective, OperatorError>, what: &str| {
            let text = outcome.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(text.contains(what), "{text:?} does not say {what:?}");
        };
        let vector = Space::of("x", Leaf::vector(3))?;
        fails(RankCollective::all_gather(rank, &vector), "not values at points");
        fails(RankCollective::broadcast(rank, &space, 0), "rank 1 has 2 points");
        fails(RankCollective::gather(rank, &space, 3), "rank 3 of 3");
        fails(RankCollective::all_to_all(rank, &space, &[1, 1, u64::from(me == 0)]), "the counts of rank 0");
        fails(RankCollective::send_receive(rank, &space, Some(0), None), "rank 0 sends to rank 0");
        let uneven = Space::of("x", Leaf::points(me as u64, 3))?;
        fails(RankCollective::all_reduce(rank, &uneven), "rank 1 has 1 points, rank 0 0");
        fails(RankCollective::scan_exclusive(rank, &uneven), "rank 1 has 1 points, rank 0 0");
        Ok(())
    });
}
