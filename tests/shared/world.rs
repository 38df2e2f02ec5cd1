//! A test without libtest whose ranks are MPI processes: started plainly, the program starts itself under `mpirun`, with
//! several numbers of ranks; there it is one rank. `MPIRUN` names another launcher, `MPIRUN_FLAGS` its flags.

use std::fmt::{Debug, Display};
use std::process::{self, Command, ExitCode};
use std::time::Duration;
use std::{env, thread};

use meshloom::comm::{CommError, Communicator, run_mpi};

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
    E: Debug + Display + Send + From<CommError>,
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
    let flags = env::var("MPIRUN_FLAGS").unwrap_or_else(|_| "--allow-run-as-root --oversubscribe".to_owned());
    for ranks in worlds {
        let status = Command::new(env::var("MPIRUN").unwrap_or_else(|_| "mpirun".to_owned()))
            .args(flags.split_whitespace())
            .args(["-n", &ranks.to_string()])
            .arg(env::current_exe().expect("this program has a path"))
            .env(INNER, "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            // Containers forbid the system call that one rank reads another's memory with.
            .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
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
