//! Exchanges and collectives of device arrays between MPI processes.

use super::device_collectives;
use super::{Case, Inner, Outcome};
use std::collections::VecDeque;

use super::plans::{MAPPED, Plan, Side, mismatched, mix};
use meshloom::Rank;
use meshloom::comm::{CommError, Communicator};
use meshloom::exchange::{Exchange, ExchangeError, PendingExchange, Wire};
use meshloom::gpu::{Gpu, Options, Recorder};
use mpi::ffi;

pub const CASE: Case = Case {
    name: "exchange::exchanges",
    ranks: &[1, 2, 3, 5],
    inner: Inner::Device(|comm| Ok(rank(comm)?)),
    outcome: Outcome::Passes,
};

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
