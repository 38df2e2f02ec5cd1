//! Running a body as MPI ranks.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::error::Error;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::ptr;
use std::sync::{Arc, Mutex};
use std::thread;

use ::mpi::ffi;

use super::error::panic_message;
use super::launched::Launched;
use super::mpi::{CALLS, Family, Mpi, end_all, library_version, ok};
use super::{CommError, Communicator, RunError, Transport};
use crate::parallel::locked;

/// Runs a body as one rank of the MPI processes that `mpirun`, `srun` or the like started.
/// Collective over all of them.
///
/// - MPI is initialized, with `MPI_THREAD_SERIALIZED`, only if it is not yet, and finalized only if
///   it was initialized here. It cannot start again in this process after that. The body gets a
///   duplicate of `MPI_COMM_WORLD`.
/// - A rank whose body fails or panics prints `rank R: message` and ends all processes with exit
///   code 1, so this function returns an error only if MPI does not start. Where several fail
///   within two seconds only the lowest prints its message. The text of a panic is not printed at
///   once but is part of that message.
/// - Returns when all ranks are done; a rank that still waits for one that has returned gets an
///   error.
///
/// # Errors
/// [`CommError::Start`] or [`CommError::Mpi`] if MPI does not start, or starts without the other
/// processes of the launcher (a launcher of another MPI library, `srun` without a PMI).
pub fn run_mpi<T, E>(body: impl FnOnce(Communicator) -> Result<T, E>) -> Result<T, RunError>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    run_mpi_with_code(body, |_| 1)
}

/// [`run_mpi`] where an error `e` of the body ends all processes with the exit code
/// `exit_code(&e)`, which may downcast it.
///
/// # Errors
/// Same as [`run_mpi`].
pub fn run_mpi_with_code<T, E>(
    body: impl FnOnce(Communicator) -> Result<T, E>,
    exit_code: impl FnOnce(&(dyn Error + 'static)) -> u8,
) -> Result<T, RunError>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let broken = |rank| move |error: CommError| RunError::new(rank, error);
    let session = Session::start().map_err(broken(0))?;
    // SAFETY: reads a constant, which is valid while MPI is.
    let world = unsafe { Mpi::duplicate(ffi::RSMPI_COMM_WORLD, true) }.map_err(broken(0))?;
    let (rank, family) = (world.rank(), world.family());
    let panics = HeldPanics::hold();
    let outcome = catch_unwind(AssertUnwindSafe(|| body(Communicator::new(Box::new(world)))));
    let value = match outcome {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => {
            let error: Box<dyn Error + Send + Sync> = error.into();
            fail(&family, rank, &error.to_string(), exit_code(error.as_ref()))
        }
        Err(panic) => fail(&family, rank, &panics.text().unwrap_or_else(|| panic_message(panic.as_ref())), 1),
    };
    drop(panics);
    if let Err(error) = family.leave() {
        fail(&family, rank, &error.to_string(), 1);
    }
    drop(family);
    drop(session);
    Ok(value)
}

fn fail(family: &Family, rank: usize, message: &str, code: u8) -> ! {
    family.yield_to_lower_ranks();
    end_all(rank, message, code)
}

/// MPI, finalized at the end if it was initialized here.
struct Session {
    initialized_here: bool,
}

impl Session {
    fn start() -> Result<Session, CommError> {
        let (mut initialized, mut finalized, mut provided) = (0, 0, 0);
        // SAFETY: the first two may be called at any time; MPI is initialized once, and not after
        // its end.
        unsafe {
            ffi::MPI_Initialized(&mut initialized);
            ffi::MPI_Finalized(&mut finalized);
            if finalized != 0 {
                return Err(CommError::Start("MPI was finalized and cannot start again in this process".to_owned()));
            }
            if initialized == 0 {
                let launched = Launched::from_env();
                // Open MPI would end the process; other libraries may know Slurm's own PMI-1.
                if let Some(apart) = launched.as_ref().filter(|launched| launched.is_without_pmi()) {
                    let library = library_version();
                    if library.contains("Open MPI") {
                        return Err(apart.not_connected(&library));
                    }
                }
                let wanted = ffi::RSMPI_THREAD_SERIALIZED;
                let code = ffi::MPI_Init_thread(ptr::null_mut(), ptr::null_mut(), wanted, &mut provided);
                ok(0, "MPI_Init_thread", code)?;
                let session = Session { initialized_here: true };
                let mut size = 0;
                ok(0, "MPI_Comm_size", ffi::MPI_Comm_size(ffi::RSMPI_COMM_WORLD, &mut size))?;
                return match launched {
                    Some(apart) if size == 1 => Err(apart.not_connected(&library_version())),
                    _ => Ok(session),
                };
            }
        }
        Ok(Session { initialized_here: false })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.initialized_here {
            let _calls = locked(&CALLS);
            // SAFETY: initialized here, and all ranks have arrived; remaining communicators check
            // that MPI is alive.
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
                *locked(&text) = Some(describe(info));
            } else {
                previous(info);
            }
        }));
        held
    }

    fn text(&self) -> Option<String> {
        locked(&self.text).take()
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
