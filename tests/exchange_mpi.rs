//! Exchanges between MPI processes. Started plainly, this program starts itself under `mpirun`, with several numbers of
//! ranks; there it is one rank. `MPIRUN` names another launcher, `MPIRUN_FLAGS` its flags.

#[path = "shared/plans.rs"]
mod plans;

use std::collections::VecDeque;
use std::process::{self, Command, ExitCode};
use std::time::Duration;
use std::{env, thread};

use meshloom::comm::{Communicator, run_mpi};
use meshloom::device::{Gpu, Options, Recorder};
use meshloom::exchange::{Exchange, ExchangeError, Transit, Wire};
use plans::{MAPPED, Plan, Side, mix};

const INNER: &str = "MESHLOOM_TEST_MPI_EXCHANGE";

/// Three exchanges in flight, in small and large chunks, mapped and staged.
fn rank(comm: &Communicator) -> Result<(), ExchangeError> {
    for floor in [false, true] {
        let gpu = Gpu::open(&Options { floor, ..Options::from_env()? }, comm.rank())?;
        let mut recorder = Recorder::new(&gpu)?;
        for (chunk, most) in [(60, 300), (1 << 20, 700_000)] {
            let mut exchange = Exchange::new(comm.clone()).with_chunks(chunk, 2).with_wire(Wire::Block16);
            let (mut sides, mut transits) = (Vec::new(), VecDeque::new());
            for salt in 0..3 {
                sides.push(Side::new(&mut recorder, Plan { ranks: comm.size(), most, salt }, comm.rank(), MAPPED)?);
            }
            for side in &sides {
                transits.push_back(side.start(&mut recorder, &mut exchange)?);
            }
            // Ranks do not move them in step.
            for n in 0..mix(comm.rank() as u64) % 50 {
                transits[(n % 3) as usize].progress(&mut recorder)?;
            }
            for side in &sides {
                Transit::finish_first(&mut transits, &mut recorder)?;
                side.check(&mut recorder, "MPI")?;
            }
        }
    }
    comm.barrier()?;
    Ok(())
}

fn main() -> ExitCode {
    if env::var(INNER).is_ok() {
        // A rank that hangs must end, and all others with it.
        thread::spawn(|| {
            thread::sleep(Duration::from_secs(120));
            eprintln!("it hangs");
            process::abort();
        });
        run_mpi(|comm| rank(&comm)).expect("MPI starts");
        return ExitCode::SUCCESS;
    }
    if env::args().any(|argument| argument == "--list") {
        println!("exchange_mpi: test");
        return ExitCode::SUCCESS;
    }
    let flags = env::var("MPIRUN_FLAGS").unwrap_or_else(|_| "--allow-run-as-root --oversubscribe".to_owned());
    for ranks in ["1", "2", "3"] {
        let status = Command::new(env::var("MPIRUN").unwrap_or_else(|_| "mpirun".to_owned()))
            .args(flags.split_whitespace())
            .args(["-n", ranks])
            .arg(env::current_exe().expect("this program has a path"))
            .env(INNER, "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            // Containers forbid the system call that one rank reads another's memory with.
            .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
            .status();
        match status {
            Ok(status) if status.success() => println!("test exchanges on {ranks} ranks ... ok"),
            wrong => {
                println!("test exchanges on {ranks} ranks ... FAILED: {wrong:?}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
