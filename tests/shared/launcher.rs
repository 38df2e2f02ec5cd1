//! The launcher of MPI processes: `mpirun`, or what `MPIRUN` names, with the flags of
//! `MPIRUN_FLAGS`.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::env;
use std::process::Command;

fn name() -> String {
    env::var("MPIRUN").unwrap_or_else(|_| "mpirun".to_owned())
}

/// Returns what it says of itself; `None` if it does not exist.
fn version() -> Option<String> {
    let output = Command::new(name()).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub fn is_there() -> bool {
    version().is_some()
}

/// Returns the launcher with its flags, before the number of ranks and what they run.
pub fn launcher() -> Command {
    // More ranks than processors, and in containers often by root: Open MPI wants to be told,
    // others have no such flags.
    let is_open_mpi = || version().is_some_and(|version| version.contains("Open MPI"));
    let flags = env::var("MPIRUN_FLAGS").unwrap_or_else(|_| {
        if is_open_mpi() { "--allow-run-as-root --oversubscribe".to_owned() } else { String::new() }
    });
    let mut launcher = Command::new(name());
    launcher
        .args(flags.split_whitespace())
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        // Containers forbid the system call that one rank reads another's memory with.
        .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    launcher
}
