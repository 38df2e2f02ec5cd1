//! The communicator among threads and alone.

#[path = "shared/collectives.rs"]
mod collectives;

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use meshloom::comm::{CommError, Communicator, MAX_TAG, Op, RunError, run_solo, run_threads};
use proptest::prelude::*;

#[test]
fn every_collective_against_its_model() {
    for (name, case) in collectives::CASES {
        for cut in collectives::CUTS {
            for ranks in [1, 2, 3, 4, 5, 8] {
                if let Err(error) = run_threads(ranks, |comm| case(&comm.with_max_message(cut))) {
                    panic!("{name}, {ranks} ranks, cut {cut}: {error}");
                }
            }
        }
    }
}

#[test]
fn alone_without_threads() {
    for (name, case) in collectives::CASES {
        for cut in collectives::CUTS {
            run_solo(|comm| case(&comm.with_max_message(cut))).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
    let error = run_solo(|comm| comm.receive(0, 0, 1)?.wait()).unwrap_err();
    assert!(error.to_string().contains("has not sent"), "{error}");
    let error = run_threads(2, |comm| comm.receive(comm.rank(), 0, 1)?.wait()).unwrap_err();
    assert!(error.to_string().contains("has not sent"), "{error}");
}

#[test]
fn an_uncut_vector_moves_without_a_copy() {
    let data = vec![7u8; 100_000];
    let place = data.as_ptr();
    let comm = Communicator::solo();
    let sending = comm.send(0, 0, data).unwrap();
    let received = comm.receive(0, 0, 100_000).unwrap().wait().unwrap();
    assert_eq!(received.as_ptr(), place);
    assert!(sending.wait().unwrap().is_empty(), "the receiver has it");

    let cut = comm.with_max_message(1000);
    let data = vec![7u8; 100_000];
    let place = data.as_ptr();
    let sending = cut.send(0, 0, data).unwrap();
    assert_eq!(cut.receive(0, 0, 100_000).unwrap().wait().unwrap(), [7; 100_000]);
    let returned = sending.wait().unwrap();
    assert_eq!(returned.as_ptr(), place, "of a cut message the sender gets its vector back");
}

/// A way to wait for rank 1, which will not answer.
type Wait = fn(&Communicator) -> Result<(), CommError>;

const WAITS: [(&str, Wait); 5] = [
    ("receive", |comm| comm.receive(1, 0, 4)?.wait().map(drop)),
    ("poll", |comm| {
        let mut receiving = comm.receive(1, 0, 4)?;
        while !receiving.is_done()? {
            std::thread::yield_now();
        }
        Ok(())
    }),
    ("barrier", |comm| comm.barrier()),
    ("all_to_all", |comm| comm.all_to_all(&vec![0u8; comm.size()]).map(drop)),
    ("split part", |comm| {
        let part = comm.split((comm.rank() < 3).then_some(0), 0)?;
        part.map_or(Ok(()), |part| part.all_reduce(&mut [0u8 as u32], Op::Sum))?;
        comm.barrier()
    }),
];

/// End of rank 1.
fn ends(how: fn(&Communicator) -> Result<(), String>, check: impl Fn(&str, RunError, &[CommError])) {
    for (name, wait) in WAITS {
        let seen = std::sync::Mutex::new(Vec::new());
        let error = run_threads(4, |comm| {
            if comm.rank() == 1 {
                if name == "split part" {
                    comm.split(Some(0), 0).map_err(|error| error.to_string())?;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
                return how(&comm);
            }
            wait(&comm).map_err(|error| {
                let text = error.to_string();
                seen.lock().unwrap().push(error);
                text
            })
        })
        .unwrap_err();
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen.len(), 3, "{name}: every waiting rank must get an error");
        check(name, error, &seen);
    }
}

fn all_know(seen: &[CommError], text: &str) {
    for error in seen {
        let CommError::PeerFailed { rank: 1, message } = error else { panic!("{error}") };
        assert!(message.contains(text), "{error}");
    }
}

#[test]
fn an_error_on_one_rank_ends_all_waits() {
    let fails = |_: &Communicator| Err("disk full".to_owned());
    ends(fails, |name, error, seen| {
        assert_eq!(error.to_string(), "rank 1: disk full", "{name}");
        all_know(seen, "disk full");
    });
}

#[test]
fn a_panic_on_one_rank_ends_all_waits() {
    let panics = |_: &Communicator| -> Result<(), String> { panic!("index {} out of range", 7) };
    ends(panics, |name, error, seen| {
        assert_eq!(error.to_string(), "rank 1: panicked: index 7 out of range", "{name}");
        all_know(seen, "index 7 out of range");
    });
}

#[test]
fn an_abort_on_one_rank_ends_all_waits() {
    let aborts = |comm: &Communicator| -> Result<(), String> { comm.abort("no more") };
    ends(aborts, |name, error, seen| {
        assert_eq!(error.rank, 1, "{name}");
        assert!(error.to_string().contains("no more"), "{error}");
        all_know(seen, "no more");
    });
}

#[test]
fn an_early_leave_ends_all_waits() {
    let leaves = |_: &Communicator| Ok(());
    ends(leaves, |name, error, seen| {
        assert!(error.to_string().contains("returned from its body"), "{name}: {error}");
        if name != "receive" && name != "poll" {
            assert!(error.to_string().contains("but rank 1 has returned from its body"), "{name}: {error}");
            assert!(seen.iter().any(|error| matches!(error, CommError::Mismatch { .. })), "{name}: {seen:?}");
        }
    });
}

#[test]
fn a_sender_sees_a_failure_too() {
    let error = run_threads(2, |comm| {
        if comm.rank() == 1 {
            return Err("gone".to_owned());
        }
        loop {
            comm.send(1, 0, vec![0]).map_err(|error| error.to_string())?.wait().map_err(|error| error.to_string())?;
        }
        #[allow(unreachable_code)]
        Ok(())
    });
    assert_eq!(error.unwrap_err().to_string(), "rank 1: gone");
}

#[test]
fn what_was_sent_before_leaving_still_arrives() {
    for _ in 0..50 {
        let got = run_threads(2, |comm| {
            if comm.rank() == 1 {
                drop(comm.send(0, 0, vec![5; 3])?);
                return Ok(Vec::new());
            }
            let mut receiving = comm.receive(1, 0, 3)?;
            while !receiving.is_done()? {}
            receiving.wait()
        });
        assert_eq!(got.unwrap()[0], [5; 3]);
    }
}

/// Runs different calls on the ranks, of which the last does something else: the run must end with
/// an error of ranks that do not fit together. Two ranks that call nothing more must say these
/// words; of more, others may notice first.
fn mismatch(call: fn(&Communicator, last: bool) -> Result<(), CommError>, words: &[&str]) {
    for ranks in [4, 3, 2] {
        let error = run_threads(ranks, |comm| {
            call(&comm, comm.rank() + 1 == comm.size())?;
            if words.is_empty() || comm.size() > 2 { comm.barrier() } else { Ok(()) }
        });
        let error = error.expect_err("the calls differ");
        // The rank is named once.
        assert!(!error.to_string().contains(": rank "), "{error}");
        let Ok(CommError::Mismatch { called, other_called, .. }) = error.downcast() else { panic!("another error") };
        let both = format!("{called} {other_called}");
        assert!(ranks > 2 || words.iter().all(|word| both.contains(word)), "{both}");
    }
}

#[test]
fn mismatched_collectives_are_an_error() {
    for _ in 0..20 {
        mismatch(
            |comm, last| if last { comm.barrier() } else { comm.broadcast(0, &mut [0u8]) },
            &["barrier", "broadcast"],
        );
        mismatch(|comm, last| comm.broadcast(0, &mut vec![0u8; usize::from(last)]), &["0 elements", "1 elements"]);
        mismatch(
            |comm, last| {
                if last { comm.all_reduce(&mut [0f32], Op::Sum) } else { comm.all_reduce(&mut [0i32], Op::Sum) }
            },
            &["Sum of f32", "Sum of i32"],
        );
        mismatch(
            |comm, last| comm.all_reduce(&mut [0u32], if last { Op::Max } else { Op::Min }),
            &["Max of u32", "Min of u32"],
        );
        mismatch(
            |comm, last| comm.with_max_message(if last { 3 } else { 4 }).barrier(),
            &["largest message 3", "largest message 4"],
        );
        // Each sends to the other and waits for nothing: the next call notices.
        mismatch(|comm, last| comm.broadcast(usize::from(last), &mut [0u8]), &[]);
    }
    // Each waits for the other, and no rank sends.
    mismatch(
        |comm, last| comm.gather(if last { comm.rank() } else { 0 }, &[0u8]).map(drop),
        &["gather(root 0", "gather(root 1"],
    );
    // One has skipped a call of a part, and waits for the others elsewhere.
    mismatch(
        |comm, last| {
            let part = comm.split(Some(0), 0)?.expect("all have a color");
            if last { part.gather(0, &[0u8]).map(drop) } else { part.barrier() }
        },
        &["barrier", "gather"],
    );
}

#[test]
fn a_mismatch_ends_all_waits_whatever_its_finder_does() {
    // Rank 1 waits for rank 3, which waits for rank 2 and finds it in another call. No rank leaves
    // before all have ended.
    let ended = Mutex::new([const { String::new() }; 4]);
    let outcome = run_threads(4, |comm| {
        let outcome = if comm.rank() == 2 { comm.gather(2, &[0u8]).map(drop) } else { comm.barrier() };
        ended.lock().unwrap()[comm.rank()] = outcome.expect_err("nobody can finish").to_string();
        while ended.lock().unwrap().iter().any(String::is_empty) {
            thread::sleep(Duration::from_millis(1));
        }
        Ok::<_, CommError>(())
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(CommError::Untaken { .. })), "{error}");
    let texts = ended.into_inner().unwrap();
    assert!(texts[1].contains("rank 1 called barrier") && texts[1].contains("rank 2 called gather"), "{texts:?}");
}

#[test]
fn a_communicator_dropped_too_early_is_an_error() {
    let error = run_threads(2, |comm| {
        let part = comm.split(Some(0), 0)?.expect("all have a color");
        if comm.rank() == 0 {
            part.barrier()?;
        }
        drop(part);
        comm.barrier()
    });
    let text = error.expect_err("rank 1 never comes").to_string();
    assert!(text.contains("rank 0 called barrier") && text.contains("rank 1 has dropped the communicator"), "{text}");
}

#[test]
fn a_mismatch_that_nobody_waits_for_is_an_error_at_the_end() {
    let error = run_threads(2, |comm| comm.broadcast(comm.rank(), &mut [0u8]));
    assert_eq!(error.unwrap_err().downcast_ref(), Some(&CommError::Untaken { messages: 2 }));
}

#[test]
fn a_wrong_argument_of_one_rank_reaches_all() {
    let wrong = |comm: &Communicator| {
        let counts: &[u64] = if comm.rank() == 1 { &[1, 1] } else { &[1, 1, 1] };
        comm.all_to_all_v(&[0u16; 3], counts).map(drop)
    };
    let error = run_threads(3, |comm| wrong(&comm)).expect_err("one count is missing");
    let is_length = |error: &CommError| matches!(error, CommError::Length { rank: 1, expected: 3, got: 2, .. });
    assert!(error.downcast_ref().is_some_and(is_length), "{error}");

    // A refused call does not count: the rank may repeat it.
    let result = run_threads(3, |comm| {
        match wrong(&comm) {
            Err(error) if is_length(&error) => comm.all_to_all_v(&[0u16; 3], &[1, 1, 1]).map(drop),
            other => other,
        }?;
        comm.barrier()
    });
    assert_eq!(result.unwrap(), [(); 3]);
}

#[test]
fn wrong_arguments_are_errors() {
    let comm = Communicator::solo();
    assert!(matches!(comm.send(1, 0, vec![]), Err(CommError::BadRank { named: 1, size: 1, .. })));
    assert!(matches!(comm.receive(1, 0, 0), Err(CommError::BadRank { .. })));
    assert!(matches!(comm.send(0, MAX_TAG + 1, vec![]), Err(CommError::BadTag { tag, .. }) if tag == MAX_TAG + 1));
    assert!(comm.send(0, MAX_TAG, vec![]).is_ok());
    assert!(matches!(comm.receive(0, 0, u64::MAX), Err(CommError::HostMemory(_))));
    assert!(matches!(comm.broadcast(1, &mut [0u8]), Err(CommError::BadRank { .. })));
    assert!(matches!(comm.gather(9, &[0u8]), Err(CommError::BadRank { .. })));
    assert!(matches!(comm.scatter::<u8>(0, None), Err(CommError::Length { .. })));
    assert!(matches!(comm.scatter_v(0, Some((&[1u8], &[2]))), Err(CommError::Length { expected: 1, got: 2, .. })));
    assert!(matches!(comm.all_to_all_v(&[1u8], &[u64::MAX, 2]), Err(CommError::Length { .. })));
    let none = run_threads(0, |_| Ok::<_, CommError>(())).unwrap_err();
    assert!(matches!(none.downcast_ref(), Some(CommError::Start(_))));
    let odd = run_threads(2, |comm| comm.all_to_all(&[0u8; 3])).unwrap_err();
    assert!(odd.to_string().contains("multiple of the ranks"), "{odd}");
    assert_eq!(comm.with_max_message(0).max_message(), 1);
}

#[test]
fn a_communicator_moves_to_another_thread() {
    let sums = run_threads(3, |comm| {
        std::thread::spawn(move || {
            let mut sum = [comm.rank() as u32];
            comm.all_reduce(&mut sum, Op::Sum).map(|()| sum[0])
        })
        .join()
        .expect("no panic")
    });
    assert_eq!(sums.unwrap(), [3; 3]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_to_all_v_moves_every_element(
        ranks in 1usize..6,
        counts in prop::collection::vec(0u64..9, 25),
        cut in 1u64..40,
    ) {
        let count = |from: usize, to: usize| counts[from * 5 + to];
        let element = |from: usize, to: usize, place: u64| [from as u16, to as u16, place as u16];
        let received = run_threads(ranks, |comm| {
            let from = comm.rank();
            let data: Vec<[u16; 3]> =
                (0..ranks).flat_map(|to| (0..count(from, to)).map(move |place| element(from, to, place))).collect();
            let outgoing: Vec<u64> = (0..ranks).map(|to| count(from, to)).collect();
            comm.with_max_message(cut).all_to_all_v(&data, &outgoing)
        }).unwrap();
        for (to, parts) in received.iter().enumerate() {
            for (from, part) in parts.iter().enumerate() {
                let expected: Vec<[u16; 3]> = (0..count(from, to)).map(|place| element(from, to, place)).collect();
                prop_assert_eq!(part, &expected[..]);
            }
        }
    }
}

/// An error whose message tells what to do.
#[derive(Debug)]
struct WithRemedy;

impl std::fmt::Display for WithRemedy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no such mesh; use another")
    }
}

impl std::error::Error for WithRemedy {}

#[test]
fn errors_of_runs_hold_any_error_and_show_its_message() {
    use std::error::Error;

    let fail =
        |comm: Communicator| if comm.rank() == 1 { Err(WithRemedy) } else { comm.barrier().map_err(|_| WithRemedy) };
    let error = run_threads(2, fail).unwrap_err();
    assert_eq!(error.rank, 1);
    assert_eq!([error.to_string(), format!("{error:?}")], ["rank 1: no such mesh; use another"; 2]);
    assert_eq!(error.source().unwrap().to_string(), "no such mesh; use another");
    let fields = format!("{error:#?}");
    assert!(fields.contains("rank: 1,") && fields.contains("WithRemedy"), "{fields}");
    assert!(error.downcast_ref::<CommError>().is_none() && error.downcast_ref::<WithRemedy>().is_some());
    assert!(error.downcast::<CommError>().unwrap_err().downcast::<WithRemedy>().is_ok());
    // What a `main` that returns an error prints, from boxed errors too.
    let boxed = |comm: Communicator| -> Result<(), Box<dyn Error + Send + Sync>> {
        comm.broadcast(9, &mut [0u8])?;
        Err("not reached".into())
    };
    let error: Box<dyn Error> = run_solo(boxed).unwrap_err().into();
    assert_eq!(format!("{error:?}"), error.to_string());
    assert!(error.to_string().contains("use 0 to size - 1"), "{error}");
    let library = meshloom::Error::from(CommError::BadTag { rank: 2, tag: 1 << 30 });
    assert_eq!(format!("{library:?}"), library.to_string());
    assert!(format!("{library:#?}").starts_with("Error("), "{library:#?}");
}

#[test]
fn a_failure_of_local_work_is_one_of_all_ranks_and_leaves_them_in_step() {
    let seen = run_threads(4, |comm| {
        // Ranks 1 and 3 fail: the error is that of the first.
        let outcome = comm.together(|| match comm.rank() {
            rank @ (1 | 3) => Err(meshloom::Error::from(CommError::Start(format!("no room for {rank}")))),
            rank => Ok(rank),
        });
        assert_eq!(comm.together(|| Ok::<_, CommError>(comm.rank()))?, comm.rank());
        comm.barrier()?;
        Ok::<_, CommError>(outcome.unwrap_err())
    });
    let seen = seen.unwrap();
    assert!(matches!(&seen[1], meshloom::Error::Comm(CommError::Start(_))), "{:?}", seen[1]);
    for (rank, error) in seen.iter().enumerate().filter(|(rank, _)| *rank != 1) {
        assert!(matches!(error, meshloom::Error::Comm(CommError::Elsewhere { rank: 1, .. })), "{rank}: {error}");
        assert_eq!(error.to_string(), "rank 1: cannot start ranks: no room for 1");
    }
    // The rank that failed is named, whichever is the first to end, and once.
    let error = run_threads(3, |comm| {
        let work = || if comm.rank() == 2 { Err(CommError::Start("no room".into())) } else { Ok(()) };
        comm.together(|| comm.together(work))
    });
    // Its own error is that of the run, whichever rank ended first.
    let error = error.unwrap_err();
    assert_eq!((error.rank, error.to_string().as_str()), (2, "rank 2: cannot start ranks: no room"));
    assert_eq!(error.downcast_ref(), Some(&CommError::Start("no room".into())));
}
