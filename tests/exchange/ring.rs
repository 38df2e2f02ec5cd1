//! Exchanges through pages that ranks share: the same bits as through staging buffers, no message
//! in host memory, and typed errors.

use std::collections::VecDeque;

use super::plans::{MAPPED, Plan, Side};
use meshloom::Rank;
use meshloom::comm::{CommError, Communicator, run_threads};
use meshloom::exchange::{Exchange, ExchangeError, GridComms, PendingExchange, Wire, tested_path};
use meshloom::gpu::{DeviceError, ExchangePath, Gpu, Options};
use meshloom::grid::{Grid, Transfer, Transfers};

fn options(path: ExchangePath) -> Options {
    Options { exchange: Some(path), ..meshloom_sanitizer::options().unwrap() }
}

/// Returns `true` if the device of the tests can import pages.
fn has_ring() -> bool {
    let gpu = Gpu::open(&options(ExchangePath::Ring), 0).unwrap();
    let tested = tested_path(&gpu);
    assert_eq!(tested.is_ok(), gpu.capabilities().host_import, "{tested:?}");
    tested.is_ok()
}

fn rank_of(comm: &Communicator, path: ExchangePath) -> Result<Rank, ExchangeError> {
    let rank = Rank::new(comm.clone(), Gpu::open(&options(path), comm.rank())?)?;
    assert_eq!(rank.exchange.path(&rank.gpu), Some(path));
    Ok(rank)
}

#[test]
fn uneven_parts_arrive_without_host_copies() {
    if !has_ring() {
        return;
    }
    for ranks in [2, 3, 4, 5] {
        let outcome = run_threads(ranks, |comm| {
            let mut rank = rank_of(&comm, ExchangePath::Ring)?;
            for (chunk, depth, most) in
                [(4, 1, 15), (4, 8, 15), (1000, 1, 700), (1000, 2, 7001), (2 << 20, 8, 700_001), (3 << 20, 9, 1 << 20)]
            {
                let mut exchange = Exchange::new(comm.clone()).with_chunks(chunk, depth);
                let mut sides = Vec::new();
                for salt in 0..3 {
                    sides.push(Side::new(&mut rank.recorder, Plan { ranks, most, salt }, comm.rank(), MAPPED)?);
                }
                let mut in_flight = VecDeque::new();
                for side in &sides {
                    in_flight.push_back(side.start(&mut rank.recorder, &mut exchange)?);
                }
                for side in &sides {
                    assert!(PendingExchange::finish_first(&mut in_flight, &mut rank.recorder)?);
                    side.check(&mut rank.recorder, &format!("chunks of {chunk}, {depth} deep"))?;
                }
                assert_eq!(exchange.carried_bytes(), 0);
                assert_eq!(exchange.staging_bytes(&rank.gpu), 0);
            }
            Ok::<_, ExchangeError>(())
        });
        outcome.unwrap_or_else(|error| panic!("{ranks} ranks: {error}"));
    }
}

/// Rounded values too, over all ranks and over the communicators of a process grid.
#[test]
fn a_ring_gives_the_bits_of_staging() {
    if !has_ring() {
        return;
    }
    let len = 9001;
    let received = [ExchangePath::Ring, ExchangePath::Staging].map(|path| {
        run_threads(4, |comm| {
            let mut rank = rank_of(&comm, path)?;
            let mut comms = GridComms::new(&comm, Grid::new([2, 2], 4).unwrap())?.with_chunks(1 << 12, 3);
            let mut received = Vec::new();
            for wire in [Wire::Exact, Wire::Block16] {
                comms = comms.with_wire(wire);
                let values: Vec<f32> = (0..len).map(|i| ((comm.rank() as u64 * len + i) as f32).sin()).collect();
                for axis in 0..2 {
                    let [from, to] = MAPPED.map(|kind| rank.gpu.array_in::<f32>("array", len, kind));
                    let (from, to) = (from?, to?);
                    rank.recorder.upload(&from, 0, &values)?;
                    let exchange = comms.along(axis);
                    let part = vec![Transfer { peer: 1 - exchange.comm().rank(), start: 0, len }];
                    let transfers = Transfers { send: part.clone(), receive: part };
                    exchange.run(&mut rank.recorder, &transfers, &from, &to)?;
                    received.extend(rank.recorder.download(&to, 0, len)?.into_iter().map(f32::to_bits));
                    assert_eq!(exchange.carried_bytes() == 0, path == ExchangePath::Ring);
                }
            }
            Ok::<_, ExchangeError>(received)
        })
        .unwrap()
    });
    assert!(received[0] == received[1]);
}

#[test]
fn a_forced_ring_that_is_refused_is_an_error_of_all_ranks() {
    let options = Options { floor: true, ..options(ExchangePath::Ring) };
    let texts = run_threads(3, |comm| {
        let gpu = Gpu::open(&options, comm.rank())?;
        assert!(!gpu.capabilities().host_import);
        let error = Rank::new(comm.clone(), gpu).unwrap_err();
        assert!(matches!(error, ExchangeError::Device(DeviceError::SharedPages { rank: 0, .. })), "{error}");
        Ok::<_, ExchangeError>(error.to_string())
    })
    .unwrap();
    assert!(texts.iter().all(|text| *text == texts[0] && text.contains("cannot import pages")), "{texts:?}");
    // Without force it falls back.
    let options = Options { exchange: None, ..options };
    let fallback = |comm: Communicator| {
        let rank = Rank::new(comm.clone(), Gpu::open(&options, comm.rank())?)?;
        Ok::<_, ExchangeError>(rank.exchange.path(&rank.gpu))
    };
    assert_eq!(run_threads(2, fallback).unwrap(), [Some(ExchangePath::Staging); 2]);
}

/// One rank forces the ring and the other cannot have it.
#[test]
fn ranks_agree_on_the_path() {
    let outcome = run_threads(2, |comm| {
        let path = [ExchangePath::Ring, ExchangePath::Staging][comm.rank()];
        let outcome = Rank::new(comm.clone(), Gpu::open(&options(path), comm.rank())?);
        Ok::<_, ExchangeError>(matches!(outcome, Err(ExchangeError::Device(DeviceError::SharedPages { rank: 0, .. }))))
    });
    assert_eq!(outcome.unwrap(), [true, true]);
}

#[test]
fn a_peer_that_fails_in_an_exchange_is_named() {
    if !has_ring() {
        return;
    }
    let error = run_threads(3, |comm| {
        let mut rank = rank_of(&comm, ExchangePath::Ring)?;
        let mut exchange = Exchange::new(comm.clone()).with_chunks(1 << 10, 2);
        let side = Side::new(&mut rank.recorder, Plan { ranks: 3, most: 90_000, salt: 4 }, comm.rank(), MAPPED)?;
        let mut pending = side.start(&mut rank.recorder, &mut exchange)?;
        if comm.rank() == 1 {
            for _ in 0..20 {
                pending.progress(&mut rank.recorder)?;
            }
            let why = "it gives up".into();
            return Err(ExchangeError::Device(DeviceError::Misuse { what: "test".into(), why }));
        }
        let outcome = pending.finish(&mut rank.recorder);
        assert!(matches!(outcome, Err(ExchangeError::Comm(CommError::PeerFailed { .. }))), "{outcome:?}");
        outcome
    });
    let error = error.unwrap_err();
    assert!(error.rank == 1 && error.to_string().contains("it gives up"), "{error}");
}

#[test]
fn ranks_of_which_one_uses_another_device_are_told() {
    if !has_ring() {
        return;
    }
    let outcome = run_threads(2, |comm| {
        let mut rank = rank_of(&comm, ExchangePath::Ring)?;
        let other = Gpu::open(&options(ExchangePath::Staging), 0)?;
        let mut recorder = meshloom::gpu::Recorder::new(&other)?;
        let recorder = if comm.rank() == 0 { &mut rank.recorder } else { &mut recorder };
        let side = Side::new(recorder, Plan { ranks: 2, most: 900, salt: 2 }, comm.rank(), MAPPED)?;
        side.start(recorder, &mut Exchange::new(comm.clone()))?.finish(recorder)
    });
    let outcome = outcome.unwrap_err().downcast::<ExchangeError>();
    assert!(matches!(outcome, Ok(ExchangeError::Comm(CommError::Mismatch { .. }))), "{outcome:?}");
}
