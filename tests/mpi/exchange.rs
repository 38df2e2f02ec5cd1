//! Exchanges and collectives of device arrays between MPI processes.

use super::device_collectives;
use super::{Case, Inner, Outcome};
use std::collections::VecDeque;
use std::process::Command;

use super::plans::{MAPPED, Plan, Side, mismatched, mix};
use meshloom::Rank;
use meshloom::comm::{CommError, Communicator};
use meshloom::exchange::{Exchange, ExchangeError, PendingExchange, Wire};
use meshloom::gpu::{CopyQueueChoice, ExchangePath, Gpu, Options, Recorder};
use mpi::ffi;

pub const CASE: Case = Case {
    name: "exchange::exchanges",
    ranks: &[1, 2, 3, 5],
    inner: Inner::Device(|comm| Ok(rank(comm)?)),
    outcome: Outcome::Passes,
};

/// Processes of a host that share pages.
pub const RING: Case = Case {
    name: "exchange::ring",
    ranks: &[2, 4],
    inner: Inner::Device(|comm| Ok(ring(comm, false)?)),
    outcome: Outcome::Passes,
};

/// A process that is killed while others copy from its pages.
pub const KILLED: Case = Case {
    name: "exchange::a_killed_peer_of_the_ring",
    ranks: &[3],
    inner: Inner::Device(|comm| Ok(ring(comm, true)?)),
    outcome: Outcome::Fails("signal 9"),
};

/// Exchanges through shared pages, copied by the queue of kernels and by one of their own; devices
/// that cannot import pages use staging buffers.
fn ring(comm: &Communicator, kill: bool) -> Result<(), ExchangeError> {
    [CopyQueueChoice::Kernels, CopyQueueChoice::Shared].into_iter().try_for_each(|queues| ring_with(comm, kill, queues))
}

fn ring_with(comm: &Communicator, kill: bool, copy_queues: CopyQueueChoice) -> Result<(), ExchangeError> {
    let options =
        |path| Ok::<_, ExchangeError>(Options { exchange: Some(path), copy_queues, ..meshloom_sanitizer::options()? });
    let can_import = Gpu::open(&options(ExchangePath::Ring)?, comm.rank())?.capabilities().host_import;
    let path = if can_import { ExchangePath::Ring } else { ExchangePath::Staging };
    let mut rank = Rank::new(comm.clone(), Gpu::open(&options(path)?, comm.rank())?)?;
    assert_eq!(rank.exchange.path(&rank.gpu), Some(path));
    let has_queue = can_import && copy_queues == CopyQueueChoice::Shared;
    assert_eq!(rank.gpu.capabilities().copy_queues, u32::from(has_queue));
    for (chunk, depth, most) in [(4, 3, 50), (60, 2, 301), (1 << 20, 4, 700_001), (3 << 20, 8, 2 << 20)] {
        let mut exchange = Exchange::new(comm.clone()).with_chunks(chunk, depth);
        let (mut sides, mut in_flight) = (Vec::new(), VecDeque::new());
        for salt in 0..3 {
            let plan = Plan { ranks: comm.size(), most, salt };
            sides.push(Side::new(&mut rank.recorder, plan, comm.rank(), MAPPED)?);
        }
        for side in &sides {
            in_flight.push_back(side.start(&mut rank.recorder, &mut exchange)?);
        }
        if kill && copy_queues == CopyQueueChoice::Shared && most > 500_000 && comm.rank() == 1 {
            let _ = Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
        }
        for side in &sides {
            PendingExchange::finish_first(&mut in_flight, &mut rank.recorder)?;
            side.check(&mut rank.recorder, "ring")?;
        }
        assert_eq!(exchange.carried_bytes() == 0, can_import);
    }
    device_collectives::all(&mut rank, 7000)?;
    comm.barrier()?;
    Ok(())
}

/// Three exchanges in flight, in small and large chunks, mapped and staged.
fn rank(comm: &Communicator) -> Result<(), ExchangeError> {
    for floor in [false, true] {
        let gpu = Gpu::open(&Options { floor, ..meshloom_sanitizer::options()? }, comm.rank())?;
        let mut recorder = Recorder::new(&gpu)?;
        for (chunk, most) in [(60, 300), (1 << 20, 700_000)] {
            let mut exchange = Exchange::new(comm.clone()).with_chunks(chunk, 2).with_wire(Wire::Block16);
            let (mut sides, mut in_flight) = (Vec::new(), VecDeque::new());
            for salt in 0..3 {
                sides.push(Side::new(&mut recorder, Plan { ranks: comm.size(), most, salt }, comm.rank(), MAPPED)?);
            }
            for side in &sides {
                in_flight.push_back(side.start(&mut recorder, &mut exchange)?);
            }
            // Ranks do not move them in step.
            for n in 0..mix(comm.rank() as u64) % 50 {
                in_flight[(n % 3) as usize].progress(&mut recorder)?;
            }
            for side in &sides {
                PendingExchange::finish_first(&mut in_flight, &mut recorder)?;
                side.check(&mut recorder, "MPI")?;
            }
        }
    }
    let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
    device_collectives::all(&mut Rank::new(comm.with_max_message(3000), gpu.clone())?, 7000)?;
    if comm.size() > 1 {
        out_of_step(&gpu)?;
    }
    comm.barrier()?;
    Ok(())
}

/// In a communicator of the caller's, where a failing rank ends no other.
fn out_of_step(gpu: &Gpu) -> Result<(), ExchangeError> {
    // SAFETY: the world is always a valid handle.
    let comm = unsafe { Communicator::from_mpi(ffi::RSMPI_COMM_WORLD) }?;
    if comm.rank() > 1 {
        return Ok(());
    }
    let outcome = mismatched(&comm, &mut Recorder::new(gpu)?)?;
    assert!(matches!(outcome, Err(ExchangeError::Comm(CommError::Mismatch { .. }))), "{outcome:?}");
    assert!(comm.is_out_of_step());
    Ok(())
}
