//! Whether another MPI process has said that it fails.

#[cfg(feature = "mpi")]
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "mpi")]
static ANNOUNCED: AtomicBool = AtomicBool::new(false);

/// Notes that another process has announced its failure.
#[cfg(feature = "mpi")]
pub(super) fn announced() {
    ANNOUNCED.store(true, Ordering::SeqCst);
}

/// Returns `true` if another MPI process has announced that it fails, as far as this one has heard
/// of it while it waited for messages: all will be ended soon. Launchers send SIGTERM for that, and
/// SIGKILL about a second later, so that a handler of signals should clean up at once.
#[must_use]
pub fn is_ending() -> bool {
    #[cfg(feature = "mpi")]
    return ANNOUNCED.load(Ordering::SeqCst);
    #[cfg(not(feature = "mpi"))]
    false
}
