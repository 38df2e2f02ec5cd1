//! Running a body as MPI ranks.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Display;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ::mpi::ffi;

use super::communicator::Communicator;
use super::error::{CommError, Failure, RunError, panic_message};
use super::mpi::{Mpi, end_world, ok};
use super::transport::Transport;

/// How long a failing rank lets lower ranks speak first: the end that a lower rank asks for must have come by then, also on a
/// machine that has more to do than processors.
const TURN: Duration = Duration::from_secs(2);
const TURN_STEP: Duration = Duration::from_millis(50);

/// Runs a body as one rank of the MPI processes that `mpirun`, `srun` or their kin started. Collective over all of them.
///
/// - MPI is initialised, with `MPI_THREAD_SERIALIZED`, only if nobody has, and finalised only if it was initialised here.
///   It cannot start again in this process after that. The body gets a duplicate of `MPI_COMM_WORLD`.
/// - A rank whose body fails or panics prints `rank R: message` and ends all processes with exit code 1, so this function
///   returns an error only if MPI does not start. Ranks other than 0 wait a moment before, so that one message appears
///   where all fail alike. The text of a panic is held back for that message.
/// - Returns when the ranks are done: in builds with debug assertions, a rank that still waits for one that has returned
///   gets an error.
///
/// # Errors
/// [`CommError::Start`] or [`CommError::Mpi`] where MPI does not start.
pub fn run_mpi<T, E: Display>(body: impl FnOnce(Communicator) -> Result<T, E>) -> Result<T, RunError<E>> {
    run_mpi_with_code(body, |_| 1)
}

/// [`run_mpi`] where `exit_code` says with which code an error ends all processes.
///
/// # Errors
/// As [`run_mpi`].
pub fn run_mpi_with_code<T, E: Display>(
    body: impl FnOnce(Communicator) -> Result<T, E>,
    exit_code: impl FnOnce(&E) -> u8,
) -> Result<T, RunError<E>> {
    let broken = |rank| move |error| RunError { rank, failure: Failure::Comm(error) };
    let session = Session::start().map_err(broken(0))?;
    // SAFETY: reads a constant, which is valid while MPI is.
    let world = unsafe { Mpi::duplicate(ffi::RSMPI_COMM_WORLD, true) }.map_err(broken(0))?;
    let (rank, family) = (world.rank(), world.family());
    let panics = HeldPanics::hold();
    let outcome = catch_unwind(AssertUnwindSafe(|| body(Communicator::new(Box::new(world)))));
    let value = match outcome {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => fail(rank, &error.to_string(), exit_code(&error)),
        Err(panic) => fail(rank, &panics.text().unwrap_or_else(|| panic_message(panic.as_ref())), 1),
    };
    drop(panics);
    if let Err(error) = family.leave() {
        fail(rank, &error.to_string(), 1);
    }
    drop(family);
    drop(session);
    Ok(value)
}

fn fail(rank: usize, message: &str, code: u8) -> ! {
    if let Some(step) = rank.checked_ilog2() {
        thread::sleep(TURN + TURN_STEP * step);
    }
    end_world(rank, message, code)
}

/// MPI, finalised at the end if it was initialised here.
struct Session {
    ours: bool,
}

impl Session {
    fn start() -> Result<Session, CommError> {
        let (mut initialized, mut finalized, mut provided) = (0, 0, 0);
        // SAFETY: the first two may be called at any time; MPI is initialised once, and not after its end.
        unsafe {
            ffi::MPI_Initialized(&mut initialized);
            ffi::MPI_Finalized(&mut finalized);
            if finalized != 0 {
                return Err(CommError::Start("MPI was finalised and cannot start again in this process".to_owned()));
            }
            if initialized == 0 {
                let wanted = ffi::RSMPI_THREAD_SERIALIZED;
                let code = ffi::MPI_Init_thread(ptr::null_mut(), ptr::null_mut(), wanted, &mut provided);
                ok(0, "MPI_Init_thread", code)?;
            }
        }
        Ok(Session { ours: initialized == 0 })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.ours {
            // SAFETY: initialised by us; the communicators of the family that remain notice that MPI has ended.
            unsafe { ffi::MPI_Finalize() };
        }
    }
}

type Hook = dyn Fn(&PanicHookInfo<'_>) + Send + Sync;

/// Keeps the text of panics on this thread instead of printing it.
struct HeldPanics {
    text: Arc<Mutex<Option<String>>>,
    previous: Arc<Hook>,
}

impl HeldPanics {
    fn hold() -> HeldPanics {
        let text = Arc::new(Mutex::new(None));
        let previous: Arc<Hook> = Arc::from(panic::take_hook());
        let held = HeldPanics { text: text.clone(), previous: previous.clone() };
        let here = thread::current().id();
        panic::set_hook(Box::new(move |info| {
            if thread::current().id() == here {
                *text.lock().unwrap_or_else(PoisonError::into_inner) = Some(describe(info));
            } else {
                previous(info);
            }
        }));
        held
    }

    fn text(&self) -> Option<String> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for HeldPanics {
    fn drop(&mut self) {
        let previous = self.previous.clone();
        if !thread::panicking() {
            panic::set_hook(Box::new(move |info| previous(info)));
        }
    }
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map(|place| format!(" at {place}")).unwrap_or_default();
    let text = format!("panicked{place}: {}", panic_message(info.payload()));
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured { format!("{text}\n{trace}") } else { text }
}
