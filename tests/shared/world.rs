//! A test without libtest whose ranks are MPI processes: started plainly, the program starts itself under `mpirun`, with
//! several numbers of ranks; there it is one rank.

#[path = "launcher.rs"]
mod launcher;
use launcher::launcher;

use std::error::Error;
use std::process::{self, ExitCode};
use std::time::Duration;
use std::{env, thread};

use meshloom::comm::{Communicator, run_mpi};

const INNER: &str = "MESHLOOM_TEST_MPI_RANK";

/// The program: runs `body` on every rank of a world for each of `worlds`, none longer than `limit`. `name` and `what`
/// stand in its report.
pub fn run<E>(
    [name, what]: [&str; 2],
    worlds: &[usize],
    limit: Duration,
    body: fn(&Communicator) -> Result<(), E>,
) -> ExitCode
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    if env::var(INNER).is_ok() {
        // A rank that hangs must end, and all others with it.
        thread::spawn(move || {
            thread::sleep(limit);
            eprintln!("it hangs");
            process::abort();
        });
        run_mpi(|comm| body(&comm)).expect("MPI starts");
        return ExitCode::SUCCESS;
    }
    if env::args().any(|argument| argument == "--list") {
        println!("{name}: test");
        return ExitCode::SUCCESS;
    }
    for ranks in worlds {
        let status = launcher()
            .args(["-n", &ranks.to_string()])
            .arg(env::current_exe().expect("this program has a path"))
            .env(INNER, "1")
            .status();
        match status {
            Ok(status) if status.success() => println!("test {what} on {ranks} ranks ... ok"),
            wrong => {
                println!("test {what} on {ranks} ranks ... FAILED: {wrong:?}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
