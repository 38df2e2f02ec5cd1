//! Ranks that wait for each other among threads.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::programs::{DEADLOCKS, Program, SLOW};
use meshloom::comm::{CommError, run_threads};
use meshloom::exchange::ExchangeError;
use meshloom::gpu::Gpu;

/// Runs all programs side by side, as they mostly wait, with one device for each rank number.
fn side_by_side(programs: &[Program], run: impl Fn(&Program, usize, &[Gpu]) + Sync) {
    let devices: Vec<Gpu> = (0..4).map(|_| Gpu::open(&meshloom_sanitizer::options().unwrap(), 0).unwrap()).collect();
    thread::scope(|scope| {
        for program in programs {
            for &ranks in program.ranks {
                let (run, devices) = (&run, &devices);
                scope.spawn(move || run(program, ranks, devices));
            }
        }
    });
}

/// All ranks get the same error, which names all ranks of the cycle and their operations, whatever
/// ranks do after it. No rank leaves before all have the error.
#[test]
fn ranks_that_wait_for_each_other_get_the_same_error() {
    side_by_side(DEADLOCKS, |program, ranks, devices| {
        let name = format!("{}, {ranks} ranks", program.name);
        let ended = Mutex::new(vec![None; ranks]);
        let outcome = run_threads(ranks, |comm| {
            let outcome = (program.body)(&comm, &devices[comm.rank()]);
            ended.lock().unwrap()[comm.rank()] = Some(format!("{outcome:?}"));
            assert!(matches!(outcome, Err(ExchangeError::Comm(CommError::Deadlock { .. }))), "{name}: {outcome:?}");
            assert!(comm.is_out_of_step(), "{name}");
            while ended.lock().unwrap().iter().any(Option::is_none) {
                thread::sleep(Duration::from_millis(1));
            }
            Ok::<_, CommError>(())
        });
        // What ranks have sent to those that did not receive it is an error of the whole run.
        if let Err(error) = outcome {
            assert!(matches!(error.downcast_ref(), Some(CommError::Untaken { .. })), "{name}: {error}");
        }
        let texts: Vec<String> = ended.into_inner().unwrap().into_iter().flatten().collect();
        assert!(texts.iter().all(|text| text == &texts[0]), "{name}: {texts:?}");
        assert!(program.words.iter().all(|word| texts[0].contains(word)), "{name}: {}", texts[0]);
    });
}

#[test]
fn the_first_failure_of_a_run_is_the_deadlock() {
    let gpu = Gpu::open(&meshloom_sanitizer::options().unwrap(), 0).unwrap();
    let error = run_threads(2, |comm| (DEADLOCKS[0].body)(&comm, &gpu)).unwrap_err();
    let Ok(ExchangeError::Comm(CommError::Deadlock { ranks, others: 0 })) = error.downcast() else { panic!() };
    let named: Vec<_> = ranks.iter().map(|blocked| (blocked.rank, blocked.awaited)).collect();
    assert_eq!(named, [(0, 1), (1, 0)]);
}

#[test]
fn ranks_that_are_slow_get_no_error() {
    side_by_side(SLOW, |program, ranks, devices| {
        let outcome = run_threads(ranks, |comm| (program.body)(&comm, &devices[comm.rank()]));
        outcome.unwrap_or_else(|error| panic!("{}, {ranks} ranks: {error}", program.name));
    });
}
