//! Ranks that wait for each other among MPI processes.

use std::sync::{Arc, Barrier};
use std::thread;

use super::programs::{DEADLOCKS, Program, SLOW};
use super::{Case, Inner, Outcome};
use meshloom::comm::{CommError, Communicator};
use meshloom::exchange::ExchangeError;
use meshloom::gpu::Gpu;
use mpi::ffi;

pub const CASES: &[Case] = &[
    Case {
        name: "deadlocks::of_a_run",
        ranks: &[2],
        inner: Inner::Run(|comm| {
            let gpu = Gpu::open(&meshloom_sanitizer::options().expect("options"), comm.rank()).expect("a device");
            (DEADLOCKS[0].body)(comm, &gpu).map_err(communication)
        }),
        outcome: Outcome::Fails("ranks wait for each other: rank 0 waits for rank "),
    },
    Case {
        name: "deadlocks::in_callers_communicators",
        ranks: &[3, 4],
        inner: Inner::Raw(side_by_side),
        outcome: Outcome::Passes,
    },
];

fn communication(error: ExchangeError) -> CommError {
    match error {
        ExchangeError::Comm(error) => error,
        error => panic!("{error}"),
    }
}

/// Runs all programs side by side, as they mostly wait: each on a thread, with communicators of its
/// own of a caller, for whom no rank ends others.
fn side_by_side() {
    let (universe, _) = mpi::initialize_with_threading(mpi::Threading::Serialized).expect("not initialized");
    // SAFETY: the world is always a valid handle.
    let of_world = || unsafe { Communicator::from_mpi(ffi::RSMPI_COMM_WORLD) }.expect("all ranks are here");
    let comm = of_world();
    let gpu = Gpu::open(&meshloom_sanitizer::options().expect("options"), 0).expect("a device");
    let programs: Vec<&'static Program> =
        DEADLOCKS.iter().chain(SLOW).filter(|program| program.ranks.contains(&comm.size())).collect();
    let ended = Arc::new(Barrier::new(programs.len()));
    let threads: Vec<_> = programs
        .into_iter()
        .map(|program| {
            let (comm, gpu, ended) = (of_world(), gpu.clone(), ended.clone());
            thread::spawn(move || {
                let outcome = (program.body)(&comm, &gpu);
                check(program, &comm, &outcome);
                ended.wait();
                comm
            })
        })
        .collect();
    // Ranks stay until all have ended, and give no answers to those that still wait.
    let ended: Vec<Communicator> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    comm.barrier().expect("no rank of it is out of step");
    drop((ended, comm));
    drop(universe);
}

fn check(program: &Program, comm: &Communicator, outcome: &Result<(), ExchangeError>) {
    let name = format!("{}, rank {} of {}", program.name, comm.rank(), comm.size());
    if program.words.is_empty() {
        assert!(outcome.is_ok() && !comm.is_out_of_step(), "{name}: {outcome:?}");
        return;
    }
    let Err(error @ ExchangeError::Comm(CommError::Deadlock { .. })) = outcome else { panic!("{name}: {outcome:?}") };
    assert!(comm.is_out_of_step(), "{name}");
    let text = error.to_string();
    assert!(program.words.iter().all(|word| text.contains(word)), "{name}: {text}");
}
