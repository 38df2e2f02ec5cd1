//! The timeline of all ranks in one file (`--trace`), which Perfetto and chrome://tracing open.
//!
//! Each rank keeps some thousand events and then appends them to the file; the last ones when it
//! ends, also by an error or an interrupt. The file is a complete JSON array at all times.

mod clock;
mod file;
mod layer;
mod recording;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use file::TraceFile;
pub use layer::layer;
use meshloom::comm::{Communicator, Op};
use meshloom::io::IoError;
use meshloom::{Error, Rank};
use meshloom_program::interrupt;
use recording::Recording;
use tracing::span::EnteredSpan;

use crate::checked_files::{Files, check_files, is_same_file};
use crate::failure::{Ended, Failure};
use crate::output_name::check_name;
use crate::terminal;

/// The file, and the nanoseconds from its time to that of this process.
static OUTPUT: OnceLock<(TraceFile, i64)> = OnceLock::new();

/// The recordings of all ranks of this process.
static RECORDINGS: Mutex<Vec<Arc<Mutex<Recording>>>> = Mutex::new(Vec::new());

/// Events of a rank at most.
static LIMIT: AtomicU64 = AtomicU64::new(0);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A recording is complete between two events.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks the path before the launch, and sets the limit of events of each rank.
///
/// # Errors
/// - [`Failure::Usage`] for `-`, for a name that says another format, and for the name of an input
///   or another output.
/// - [`Failure::Failed`] if the file exists and cannot be replaced.
pub fn prepare(path: &Path, limit: u64, files: &Files) -> Result<(), Failure> {
    check_name(path, &["json"])?;
    check_files([], [path])?;
    if files.inputs.iter().chain(&files.outputs).any(|other| is_same_file(other, path)) {
        let path = meshloom::io::printable_path(path);
        return Err(Failure::Usage(format!("{path}: --trace and another file are the same file; give two names")));
    }
    LIMIT.store(limit, Ordering::Relaxed);
    interrupt::before_exit(finish_all);
    Ok(())
}

/// Creates the file, or opens it where another process creates it, and aligns the clocks of the
/// ranks. Collective.
///
/// # Errors
/// [`Failure::Failed`] on all ranks if a rank cannot write the file.
pub fn start(rank: &Rank, path: &Path, is_one_process: bool) -> Result<(), Ended> {
    let comm = &rank.comm;
    recording::here(|recording| recording.device = rank.gpu.info().name.clone());
    let is_creator = comm.rank() == 0;
    let created = together(comm, || is_creator.then(|| TraceFile::create(path, !is_one_process)).transpose())?;
    let file = together(comm, || match created {
        None if !is_one_process => TraceFile::open(path).map(Some),
        created => Ok(created),
    })?;
    if !is_one_process {
        let lock = together(comm, || file.as_ref().filter(|_| is_creator).map(TraceFile::lock).transpose())?;
        let others = file.as_ref().filter(|_| !is_creator);
        together(comm, || others.map_or(Ok(()), TraceFile::check_locks))?;
        drop(lock);
    }
    let offset = if is_one_process { 0 } else { clock::offset(comm)? };
    let begin = recording::here(|recording| recording.begin()).unwrap_or_else(|| recording::time(Instant::now()));
    let mut zero = [begin + offset];
    comm.all_reduce(&mut zero, Op::Min)?;
    if let Some(file) = file {
        let _ = OUTPUT.set((file, offset - zero[0]));
    }
    // Threads of one process share what the first has set.
    Ok(comm.barrier()?)
}

/// Returns the value of `work`, or on all ranks the failure of one. Collective.
fn together<T>(comm: &Communicator, work: impl FnOnce() -> Result<T, IoError>) -> Result<T, Failure> {
    comm.together(|| work().map_err(Error::from)).map_err(|error| Failure::from(&error))
}

/// Warns if events did not fit. Collective.
///
/// # Errors
/// [`CommError`](meshloom::comm::CommError).
pub fn report_losses(rank: &Rank) -> Result<(), Ended> {
    let mut dropped = [recording::here(|recording| recording.dropped).unwrap_or(0)];
    rank.comm.all_reduce(&mut dropped, Op::Sum)?;
    if rank.index() == 0 && dropped[0] > 0 {
        let limit = LIMIT.load(Ordering::Relaxed);
        let dropped = dropped[0];
        terminal::warn(&format!(
            "--trace: {dropped} events were dropped, as a rank may have {limit}; raise --trace-events or shorten the run"
        ));
    }
    Ok(())
}

/// Enters a span of the timeline until the value is dropped.
pub fn activity(name: &'static str) -> EnteredSpan {
    tracing::trace_span!(target: "meshloom::timeline", "activity", name).entered()
}

/// Adds a phase of the command that this thread has done.
pub fn phase(name: &'static str, begin: Instant, end: Instant) {
    recording::here(|recording| recording.add_phase(name, [begin, end]));
}

/// Writes the last events of all ranks of this process, which ends now.
fn finish_all() {
    locked(&RECORDINGS).iter().for_each(|recording| locked(recording).finish());
}
