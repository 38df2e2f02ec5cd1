//! Ranks as MPI processes. Started plainly, this program starts itself under `mpirun` once for each
//! case and number of ranks; started with a case, it is one rank of it.
//!
//! A word on the command line picks the cases that contain it.

#[path = "../shared/collectives.rs"]
mod collectives;
#[path = "../shared/device_collectives.rs"]
mod device_collectives;
#[path = "../shared/every_operator.rs"]
#[allow(dead_code, reason = "not every program uses all of it")]
mod every_operator;
#[path = "../shared/field_models.rs"]
mod field_models;
#[path = "../shared/fourier.rs"]
mod fourier;
#[path = "../shared/launcher.rs"]
mod launcher;
#[path = "../shared/plans.rs"]
mod plans;
#[path = "../shared/process_grid.rs"]
#[allow(dead_code, reason = "not every module uses all of it")]
mod process_grid;
#[path = "../shared/deadlocks.rs"]
mod programs;

mod comm;
mod deadlocks;
mod exchange;
mod fft;
mod gradient;
mod inference;
#[cfg(all(target_os = "linux", feature = "gpu-direct"))]
mod peer;

use std::error::Error;
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, thread};

use launcher::launcher;
use meshloom::comm::{CommError, Communicator, run_mpi};

const INNER: &str = "MESHLOOM_TEST_MPI_CASE";
/// Limit of a case. It is long, since ranks that poll start slowly where processors are busy with
/// other things.
const TIMEOUT: Duration = Duration::from_secs(240);
/// Cases that run at the same time: most of their time ranks wait.
const AT_ONCE: usize = 3;

/// Body of a rank.
enum Inner {
    /// A body of `run_mpi`.
    Run(fn(&Communicator) -> Result<(), CommError>),
    /// A body of `run_mpi` with a device.
    Device(fn(&Communicator) -> Result<(), Box<dyn Error + Send + Sync>>),
    /// A whole process.
    Raw(fn()),
}

/// The expected end of a case.
enum Outcome {
    Passes,
    /// An exit code that is not zero, and this text exactly once.
    Fails(&'static str),
}

struct Case {
    name: &'static str,
    ranks: &'static [usize],
    inner: Inner,
    outcome: Outcome,
}

/// Returns all cases, those that take longest first.
fn cases() -> impl Iterator<Item = &'static Case> {
    [&fft::CASE, &gradient::CASE, &inference::CASE, &exchange::CASE, &exchange::RING, &exchange::KILLED]
        .into_iter()
        .chain(peer_cases())
        .chain(deadlocks::CASES)
        .chain(comm::CASES)
}

#[cfg(all(target_os = "linux", feature = "gpu-direct"))]
fn peer_cases() -> &'static [Case] {
    peer::CASES
}

#[cfg(not(all(target_os = "linux", feature = "gpu-direct")))]
fn peer_cases() -> &'static [Case] {
    &[]
}

fn main() -> ExitCode {
    if let Ok(name) = env::var(INNER) {
        let case = cases().find(|case| case.name == name).expect("a known case");
        match case.inner {
            Inner::Run(body) => run_mpi(|comm| body(&comm)).expect("MPI starts"),
            Inner::Device(body) => run_mpi(|comm| body(&comm)).expect("MPI starts"),
            Inner::Raw(body) => body(),
        }
        return ExitCode::SUCCESS;
    }

    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let all = cases().flat_map(|case| case.ranks.iter().map(move |&ranks| (case, ranks)));
    let is_wanted = |(case, ranks): &(&Case, usize)| {
        words.is_empty() || words.iter().any(|word| name(case, *ranks).contains(*word))
    };
    let (wanted, others): (Vec<_>, Vec<_>) = all.partition(is_wanted);
    if arguments.iter().any(|argument| argument == "--list") {
        wanted.iter().for_each(|(case, ranks)| println!("{}: test", name(case, *ranks)));
        return ExitCode::SUCCESS;
    }
    let (next, failures) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some((case, ranks)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            match launch(case, *ranks) {
                Ok(()) => println!("test {} ... ok", name(case, *ranks)),
                Err(reason) => {
                    println!("test {} ... FAILED\n{reason}", name(case, *ranks));
                    failures.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    let (failed, filtered) = (failures.into_inner(), others.len());
    let passed = wanted.len() - failed;
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {filtered} filtered out"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn name(case: &Case, ranks: usize) -> String {
    format!("{} {ranks} ranks", case.name)
}

/// Runs a case under the launcher; says what is wrong with what came.
fn launch(case: &Case, ranks: usize) -> Result<(), String> {
    // Ranks with devices keep all processors busy: one such case at a time.
    static DEVICES: Mutex<()> = Mutex::new(());
    let has_device = matches!(case.inner, Inner::Device(_));
    let _alone = has_device.then(|| DEVICES.lock().unwrap_or_else(PoisonError::into_inner));
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mut launcher = launcher();
    #[cfg(all(target_os = "linux", feature = "gpu-direct"))]
    peer::provide(&mut launcher, case.name);
    let mut launcher = launcher
        .args(["-n", &ranks.to_string()])
        .arg(program)
        .env(INNER, case.name)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start mpirun: {error}"))?;
    // Read while it runs: a full pipe would stop it.
    let out = read(launcher.stdout.take());
    let err = read(launcher.stderr.take());
    let start = Instant::now();
    let status = loop {
        match launcher.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break Some(status),
            None if start.elapsed() > TIMEOUT => {
                // Asked to end, mpirun ends its ranks; killed, it would leave them.
                let _ = Command::new("kill").args(["-TERM", &launcher.id().to_string()]).status();
                thread::sleep(Duration::from_secs(2));
                let _ = launcher.kill();
                let _ = launcher.wait();
                break None;
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let text = |reader: thread::JoinHandle<String>| reader.join().unwrap_or_default();
    let (out, err) = (text(out), text(err));
    let wrong = |what: &str| Err(format!("{what}\n--- stdout\n{out}\n--- stderr\n{err}"));
    let Some(status) = status else { return wrong("it hangs") };
    match case.outcome {
        Outcome::Passes if !status.success() => wrong(&format!("it failed: {status}")),
        Outcome::Passes => Ok(()),
        Outcome::Fails(_) if status.success() => wrong("it must fail, but did not"),
        // Of a killed rank launchers speak, some of them on stdout.
        Outcome::Fails(message) => match err.matches(message).count() + out.matches(message).count() {
            1 => Ok(()),
            times => wrong(&format!("the message must appear once, but appears {times} times: {message}")),
        },
    }
}

fn read(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
