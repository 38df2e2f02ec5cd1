//! The communicator among MPI processes.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::{Case, Inner, Outcome, TIMEOUT, collectives};
use meshloom::Error;
use meshloom::comm::{CommError, Communicator, Op, mpi_launched, run_mpi};
use meshloom::exchange::{Exchange, ExchangeError};
use meshloom::gpu::{Gpu, Recorder};
use meshloom::grid::{Transfer, Transfers};
use meshloom::io::collective::{shared_token, write_npy};
use mpi::ffi;
use mpi::topology::Communicator as _;

pub const CASES: &[Case] = &[
    Case {
        name: "comm::collectives",
        ranks: &[1, 2, 3, 4],
        inner: Inner::Run(all_collectives),
        outcome: Outcome::Passes,
    },
    Case { name: "comm::large_messages", ranks: &[2, 3], inner: Inner::Run(large_messages), outcome: Outcome::Passes },
    Case { name: "comm::forgotten_sends", ranks: &[2], inner: Inner::Run(forgotten_sends), outcome: Outcome::Passes },
    Case {
        name: "comm::an_error_on_one_rank",
        ranks: &[2, 4],
        inner: Inner::Run(|comm| if comm.rank() == 1 { comm.receive(99, 0, 0).map(drop) } else { comm.barrier() }),
        outcome: Outcome::Fails("rank 1: the sender of receive names rank 99"),
    },
    Case {
        name: "comm::an_error_on_a_lone_rank",
        ranks: &[1],
        inner: Inner::Run(|comm| comm.receive(99, 0, 0).map(drop)),
        outcome: Outcome::Fails("rank 0: the sender of receive names rank 99"),
    },
    Case {
        name: "comm::a_panic_on_one_rank",
        ranks: &[2, 4],
        inner: Inner::Run(|comm| {
            if comm.rank() == 1 { panic!("a broken invariant") } else { comm.receive(1, 0, 4)?.wait().map(drop) }
        }),
        outcome: Outcome::Fails("a broken invariant"),
    },
    Case {
        name: "comm::an_abort_on_one_rank",
        ranks: &[3],
        inner: Inner::Run(|comm| if comm.rank() == 2 { comm.abort("enough of this") } else { comm.barrier() }),
        outcome: Outcome::Fails("rank 2: enough of this"),
    },
    Case {
        name: "comm::all_ranks_fail_alike",
        ranks: &[2, 4],
        inner: Inner::Run(|_| Err(CommError::Start("no such file".to_owned()))),
        outcome: Outcome::Fails("no such file"),
    },
    // Ranks 2 and 3 find it at the same time: one speaks.
    Case {
        name: "comm::two_ranks_fail_alike",
        ranks: &[4],
        inner: Inner::Run(|comm| {
            if comm.rank() < 2 { comm.barrier() } else { Err(CommError::Start("no such file".to_owned())) }
        }),
        outcome: Outcome::Fails("no such file"),
    },
    Case {
        name: "comm::a_killed_rank",
        ranks: &[3],
        inner: Inner::Run(|comm| {
            if comm.rank() == 1 {
                let _ = Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
            }
            comm.barrier()
        }),
        outcome: Outcome::Fails("signal 9"),
    },
    Case {
        name: "comm::a_mismatch",
        ranks: &[3],
        inner: Inner::Run(|comm| if comm.rank() == 2 { comm.barrier() } else { comm.all_reduce(&mut [0f32], Op::Sum) }),
        outcome: Outcome::Fails("but rank 2 called barrier"),
    },
    // Of as many bytes, copied behind what the exchange is and following it.
    Case {
        name: "comm::a_short_exchange_of_something_else",
        ranks: &[2],
        inner: Inner::Run(|comm| other_exchanges(comm, 5)),
        outcome: Outcome::Fails("rank 1 called exchange of f32"),
    },
    Case {
        name: "comm::a_long_exchange_of_something_else",
        ranks: &[2],
        inner: Inner::Run(|comm| other_exchanges(comm, 50_000)),
        outcome: Outcome::Fails("rank 1 called exchange of f32"),
    },
    // The longer message is cut off by MPI; its head must be there nevertheless.
    Case {
        name: "comm::a_mismatch_of_lengths",
        ranks: &[2],
        inner: Inner::Run(|comm| comm.broadcast(0, &mut vec![0u8; 100_000 - 90_000 * comm.rank()])),
        outcome: Outcome::Fails("rank 0 called broadcast(root 0, 100000 elements"),
    },
    Case {
        name: "comm::a_mismatch_where_nobody_sends",
        ranks: &[2, 4],
        inner: Inner::Run(|comm| comm.gather(comm.rank(), &[0u8]).map(drop)),
        outcome: Outcome::Fails("as collective 0; every rank must call the same collectives"),
    },
    Case {
        name: "comm::a_mismatch_in_a_part",
        ranks: &[4],
        inner: Inner::Run(|comm| {
            let part = comm.split((comm.rank() > 0).then_some(0), 0)?;
            match part {
                None => comm.barrier(),
                Some(part) if part.rank() == 1 => part.gather(1, &[0u8]).map(drop),
                Some(part) => part.barrier(),
            }
        }),
        outcome: Outcome::Fails("every rank must call the same collectives"),
    },
    Case {
        name: "comm::a_mismatch_that_nobody_waits_for",
        ranks: &[2],
        inner: Inner::Run(|comm| comm.broadcast(comm.rank(), &mut [0u8])),
        outcome: Outcome::Fails("2 messages of collectives were sent that no rank took"),
    },
    Case {
        name: "comm::a_mismatch_in_a_callers_communicator",
        ranks: &[2, 4],
        inner: Inner::Raw(mismatch_in_callers),
        outcome: Outcome::Fails("rank 0 called gather(root 0"),
    },
    Case {
        name: "comm::a_mismatch_told_to_a_bystander",
        ranks: &[4],
        inner: Inner::Raw(mismatch_of_others),
        outcome: Outcome::Fails("rank 2 called gather(root 2"),
    },
    Case {
        name: "comm::another_communicator_after_a_mismatch",
        ranks: &[2, 4],
        inner: Inner::Raw(after_a_mismatch),
        outcome: Outcome::Passes,
    },
    Case {
        name: "comm::an_early_leave",
        ranks: &[3],
        inner: Inner::Run(|comm| if comm.rank() == 1 { Ok(()) } else { comm.barrier() }),
        outcome: Outcome::Fails("but rank 1 has returned from its body"),
    },
    Case {
        name: "comm::an_early_leave_of_a_part",
        ranks: &[3],
        inner: Inner::Run(|comm| {
            let part = comm.split((comm.rank() > 0).then_some(0), 0)?;
            match (comm.rank(), part) {
                (1, Some(part)) => part.receive(1, 0, 8)?.wait().map(drop),
                _ => Ok(()),
            }
        }),
        outcome: Outcome::Fails("rank 2 is gone: it returned from its body"),
    },
    // Too long for the library to take it before the receiver does.
    Case {
        name: "comm::an_early_leave_of_a_receiver",
        ranks: &[2],
        inner: Inner::Run(
            |comm| {
                if comm.rank() == 1 { Ok(()) } else { comm.send(1, 0, vec![1; 1 << 22])?.wait().map(drop) }
            },
        ),
        outcome: Outcome::Fails("rank 1 is gone: it returned from its body while a message to it waited"),
    },
    Case {
        name: "comm::a_part_dropped_too_early",
        ranks: &[2],
        inner: Inner::Run(|comm| {
            let part = comm.split(Some(0), 0)?.expect("all have a color");
            if comm.rank() == 0 {
                part.barrier()?;
            }
            drop(part);
            comm.barrier()
        }),
        outcome: Outcome::Fails("but rank 1 has dropped the communicator"),
    },
    Case { name: "comm::slow_ranks", ranks: &[4], inner: Inner::Run(slow_ranks), outcome: Outcome::Passes },
    Case {
        name: "comm::a_late_rank_blocks_one_thread",
        ranks: &[2],
        inner: Inner::Raw(late),
        outcome: Outcome::Passes,
    },
    Case {
        name: "comm::crossing_splits",
        ranks: &[2, 3],
        inner: Inner::Run(crossing_splits),
        outcome: Outcome::Passes,
    },
    Case {
        name: "comm::a_callers_communicator",
        ranks: &[1, 3, 4],
        inner: Inner::Raw(callers),
        outcome: Outcome::Passes,
    },
    Case {
        name: "comm::run_in_a_callers_mpi",
        ranks: &[2],
        inner: Inner::Raw(runs_in_callers),
        outcome: Outcome::Passes,
    },
    Case { name: "comm::local_failures", ranks: &[3], inner: Inner::Run(local_failures), outcome: Outcome::Passes },
    Case {
        name: "comm::a_local_failure_names_its_rank",
        ranks: &[3],
        inner: Inner::Run(|comm| {
            let wrong = || if comm.rank() == 1 { Err(CommError::Start("no room".to_owned())) } else { Ok(()) };
            comm.together(wrong)
        }),
        outcome: Outcome::Fails("rank 1: cannot start ranks: no room"),
    },
    Case { name: "comm::without_mpi", ranks: &[1], inner: Inner::Raw(without_mpi), outcome: Outcome::Passes },
];

/// Rank 0 exchanges whole numbers where rank 1 exchanges floats.
fn other_exchanges(comm: &Communicator, len: u64) -> Result<(), CommError> {
    let run = || -> Result<(), ExchangeError> {
        let gpu = Gpu::open(&meshloom_sanitizer::options()?, comm.rank())?;
        let (mut recorder, mut exchange) = (Recorder::new(&gpu)?, Exchange::new(comm.clone()));
        let (from, to) = (gpu.array::<u32>("from", len)?, gpu.array::<u32>("to", len)?);
        let part = Transfer { peer: 1 - comm.rank(), start: 0, len };
        let transfers = Transfers { send: vec![part], receive: vec![part] };
        match comm.rank() {
            0 => exchange.run(&mut recorder, &transfers, &from, &to),
            _ => exchange.run(&mut recorder, &transfers, &from.cast::<f32>()?, &to.cast::<f32>()?),
        }
    };
    run().map_err(|error| match error {
        ExchangeError::Comm(error) => error,
        error => panic!("{error}"),
    })
}

fn all_collectives(comm: &Communicator) -> Result<(), CommError> {
    assert_eq!(mpi_launched(), comm.size() > 1);
    for (name, case) in collectives::CASES {
        for cut in collectives::CUTS {
            // Says where it stood if it panics or hangs.
            if comm.rank() == 0 {
                println!("{name}, cut {cut}");
            }
            case(&comm.with_max_message(cut))?;
        }
    }
    Ok(())
}

/// A file that cannot be created is an error of all ranks, which then write another.
fn local_failures(comm: &Communicator) -> Result<(), CommError> {
    let path = std::env::temp_dir().join(shared_token(comm)?);
    let write = |path: &Path| -> Result<(), Error> {
        write_npy(comm, path, &[3], |to| Ok(to.write(comm.rank() as u64, &[1f32])?))
    };
    let error = write(&path.join("missing.npy")).expect_err("there is no such directory");
    assert!(error.to_string().contains("missing.npy"), "{error}");
    assert_eq!(matches!(error, Error::Comm(CommError::Elsewhere { rank: 0, .. })), comm.rank() > 0, "{error}");
    write(&path).expect("the directory is there");
    comm.barrier()?;
    if comm.rank() == 0 {
        std::fs::remove_file(&path).expect("rank 0 has just written it");
    }
    Ok(())
}

/// Long enough that the library does not buffer them.
fn large_messages(comm: &Communicator) -> Result<(), CommError> {
    let count = 1 << 20;
    let data: Vec<u64> = (0..count * comm.size() as u64).map(|place| place * 3 + comm.rank() as u64).collect();
    for cut in [1 << 16, 1_000_003, 1 << 30] {
        let got = comm.with_max_message(cut).all_to_all(&data)?;
        for (place, got) in (0..).zip(&got) {
            let (from, inner) = (place / count, place % count);
            assert_eq!(*got, (comm.rank() as u64 * count + inner) * 3 + from);
        }
    }
    // The buffer of an uncut message comes back.
    let (right, left) = ((comm.rank() + 1) % comm.size(), (comm.rank() + comm.size() - 1) % comm.size());
    let buffer = vec![comm.rank() as u8; 1 << 22];
    let place = buffer.as_ptr();
    let sending = comm.send(right, 0, buffer)?;
    assert_eq!(comm.receive(left, 0, 1 << 22)?.wait()?, vec![left as u8; 1 << 22]);
    let returned = sending.wait()?;
    assert_eq!((returned.as_ptr(), returned.len()), (place, 1 << 22));
    Ok(())
}

/// A send that is dropped is still delivered, though its sender has long returned.
fn forgotten_sends(comm: &Communicator) -> Result<(), CommError> {
    if comm.rank() == 0 {
        drop(comm.send(1, 0, vec![9; 1 << 22])?);
        return Ok(());
    }
    thread::sleep(Duration::from_millis(50));
    assert_eq!(comm.receive(0, 0, 1 << 22)?.wait()?, vec![9; 1 << 22]);
    Ok(())
}

/// No rank is blamed for being slow, however many wait for it, and in whatever they do.
fn slow_ranks(comm: &Communicator) -> Result<(), CommError> {
    let part = comm.split((comm.rank() != 1).then_some(0), 0)?;
    match comm.rank() {
        0 => thread::sleep(Duration::from_millis(4500)),
        // Meets the slow one in another collective first, while others already wait for it here.
        2 => drop(comm.receive(0, 3, 1)?.wait()?),
        _ => {}
    }
    if comm.rank() == 0 {
        drop(comm.send(2, 3, vec![1])?);
    }
    part.map_or(Ok(()), |part| part.barrier())?;
    comm.all_reduce(&mut [1u32], Op::Sum)
}

/// Returns a communicator of the world, as a caller makes one on any thread.
fn of_world() -> Result<Communicator, CommError> {
    // SAFETY: the world is always a valid handle.
    unsafe { Communicator::from_mpi(ffi::RSMPI_COMM_WORLD) }
}

/// While one thread waits in the making of a communicator for a rank that is late, another
/// exchanges messages, which the late rank needs before it comes.
fn late() {
    let (universe, _) = mpi::initialize_with_threading(mpi::Threading::Serialized).expect("not initialized");
    let comm = of_world().expect("all ranks are here");
    let make = || thread::spawn(|| of_world().and_then(|comm| comm.barrier()));
    let early = (comm.rank() == 0).then(make);
    thread::sleep(Duration::from_millis(if comm.rank() == 0 { 200 } else { 0 }));
    let other = 1 - comm.rank();
    for round in 0..20 {
        let sending = comm.send(other, 0, vec![round; 100_000]).expect("the lock is free");
        let came = comm.receive(other, 0, 100_000).and_then(|message| message.wait()).expect("the lock is free");
        assert_eq!(came, vec![round; 100_000]);
        sending.wait().expect("the other has it");
    }
    early.unwrap_or_else(make).join().expect("no panic").expect("both are here");
    comm.barrier().expect("both are here");
    drop(comm);
    drop(universe);
}

/// Two threads of each rank split two communicators, in any order.
fn crossing_splits(comm: &Communicator) -> Result<(), CommError> {
    let half = || comm.split(Some(0), 0).map(|half| half.expect("all have a color"));
    let halves = [half()?, half()?];
    let split = |half: &Communicator| {
        for _ in 0..10 {
            let part = half.split(Some(half.rank() as u32 % 2), 0)?.expect("all have a color");
            part.barrier()?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads = halves.each_ref().map(|half| scope.spawn(move || split(half)));
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

/// Rank 0 is notified by those that find it first and then neither call anything nor answer.
fn mismatch_in_callers() {
    let universe = mpi::initialize().expect("nobody has initialized MPI");
    let comm = of_world().expect("all ranks are here");
    thread::sleep(Duration::from_millis(if comm.rank() == 0 { 500 } else { 0 }));
    // How to end is the caller's to say.
    if let Err(error) = comm.gather(comm.rank(), &[0u8])
        && comm.rank() == 0
    {
        comm.abort(&error.to_string());
    }
    thread::sleep(2 * TIMEOUT);
    drop(universe);
}

/// Rank 1 waits for rank 3, which waits for rank 2, finds it in another call, and then neither
/// calls anything nor answers.
fn mismatch_of_others() {
    let universe = mpi::initialize().expect("nobody has initialized MPI");
    let comm = of_world().expect("all ranks are here");
    let outcome = if comm.rank() == 2 { comm.gather(2, &[0u8]).map(drop) } else { comm.barrier() };
    let error = outcome.expect_err("nobody can finish");
    if comm.rank() == 1 {
        comm.abort(&error.to_string());
    }
    thread::sleep(2 * TIMEOUT);
    drop(universe);
}

/// A communicator in which ranks were out of step stays so, and others know nothing of it: neither
/// the notes that tell of the mismatch nor what was sent before.
fn after_a_mismatch() {
    let universe = mpi::initialize().expect("nobody has initialized MPI");
    let first = of_world().expect("all ranks are here");
    for round in 0..6 {
        let comm = of_world().expect("all ranks are here");
        assert!(!comm.is_out_of_step());
        // Rank 0 finds it by a message, others by a note, while the next communicator is made
        // already.
        let outcome = match (comm.rank() + round) % comm.size() {
            0 => comm.gather(comm.rank(), &[0u8]).and_then(|_| comm.barrier()),
            _ => comm.barrier(),
        };
        assert!(matches!(outcome, Err(CommError::Mismatch { .. })) && comm.is_out_of_step(), "{outcome:?}");
        drop(comm);
        let comm = of_world().expect("all ranks are here");
        // Others wait long enough to look for notes.
        thread::sleep(Duration::from_millis(if comm.rank() == 0 { 50 } else { 0 }));
        for (_, case) in collectives::CASES {
            case(&comm).expect("all ranks do the same");
        }
    }
    first.barrier().expect("it was never out of step");
    drop(first);
    drop(universe);
}

/// MPI belongs to the caller, who gives a part of the world.
fn callers() {
    let universe = mpi::initialize().expect("nobody has initialized MPI");
    let world = universe.world();
    let color = if world.rank() == 1 { mpi::topology::Color::undefined() } else { mpi::topology::Color::with_value(4) };
    if let Some(part) = world.split_by_color_with_key(color, -world.rank()) {
        let comm = Communicator::from_rsmpi(&part).expect("a valid communicator");
        assert_eq!((comm.rank(), comm.size()), (part.rank() as usize, part.size() as usize));
        for (_, case) in collectives::CASES {
            case(&comm.with_max_message(7)).expect("all ranks of the part are here");
        }
        // The caller's goes first; ours is another.
        drop(part);
        comm.barrier().expect("still alive");
    }
    // SAFETY: null is allowed.
    let error = unsafe { Communicator::from_mpi(ffi::RSMPI_COMM_NULL) }.expect_err("null is no communicator");
    assert!(error.to_string().contains("null"), "{error}");
    drop(universe);
}

/// MPI belongs to the caller, and the runner must leave it running.
fn runs_in_callers() {
    let (universe, _) = mpi::initialize_with_threading(mpi::Threading::Serialized).expect("not initialized");
    let size = universe.world().size() as usize;
    for _ in 0..2 {
        let sum = run_mpi(|comm| {
            let mut sum = [1usize as u64];
            comm.all_reduce(&mut sum, Op::Sum).map(|()| sum[0] as usize)
        });
        assert_eq!(sum.expect("all ranks are here"), size);
    }
    assert!(!mpi::is_finalized());
    universe.world().split_shared(0);
}

/// No communicator before MPI starts and after it ends, and no second start.
fn without_mpi() {
    // SAFETY: the world is always a valid handle.
    let from_mpi = || unsafe { Communicator::from_mpi(ffi::RSMPI_COMM_WORLD) };
    assert!(matches!(from_mpi(), Err(CommError::Start(_))));
    let escaped = run_mpi(Ok::<_, CommError>).expect("MPI starts");
    assert!(matches!(escaped.send(0, 0, vec![1]), Err(CommError::Mpi { .. })));
    assert!(matches!(from_mpi(), Err(CommError::Start(_))));
    assert!(run_mpi(|comm| comm.barrier()).is_err());
}
