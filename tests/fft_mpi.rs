//! Transforms between MPI processes. Started plainly, this program starts itself under `mpirun`, with several numbers of
//! ranks; there it is one rank. `MPIRUN` names another launcher, `MPIRUN_FLAGS` its flags.

#[path = "shared/fourier.rs"]
mod fourier;

use std::process::{self, Command, ExitCode};
use std::time::Duration;
use std::{env, thread};

use fourier::{Cell, cells, cut, modes, random, same};
use meshloom::Error;
use meshloom::comm::{Communicator, run_mpi};
use meshloom::device::{Gpu, Options, Recorder};
use meshloom::exchange::Lines;
use meshloom::fft::{Spec, Transform, TransformHooks, Tuning, Values};
use meshloom::layout::Grid;

const INNER: &str = "MESHLOOM_TEST_MPI_FFT";

/// The whole spectrum and field, or this rank's parts of them.
fn both<T: Cell>(gpu: &Gpu, lines: &mut Lines, spec: &Spec, whole: Option<&Both<T>>) -> Result<Both<T>, Error> {
    let mut recorder = Recorder::new(gpu)?;
    let tuning = Tuning { pieces: 3, ..Tuning::of(gpu) };
    let transform = Transform::<T>::with(gpu, spec, lines.grid(), lines.rank(), &tuning, &TransformHooks::default())?;
    let (layout, part) = (transform.field_layout(), transform.spectrum_part());
    let (field, spectrum) = (transform.field(gpu, &layout)?, transform.spectrum(gpu)?);
    recorder.upload(&field, 0, &cut(&random::<T>(cells(spec), 1), spec.cells, &layout.own))?;
    transform.forward(&mut recorder, lines, &field, &layout, &spectrum)?;
    let there = recorder.download(&spectrum, 0, spectrum.len())?;
    recorder.upload(&spectrum, 0, &cut(&random::<T::Mode>(modes(spec), 2), spec.spectrum(), &part))?;
    transform.inverse(&mut recorder, lines, &spectrum, None, &field, &layout)?;
    let back = recorder.download(&field, 0, field.len())?;
    if let Some(whole) = whole {
        let what = format!("rank {} of {}: {spec:?}", lines.rank(), lines.grid());
        same(&there, &cut(&whole.there, spec.spectrum(), &part), &what);
        same(&back, &cut(&whole.back, spec.cells, &layout.own), &what);
    }
    Ok(Both { there, back })
}

struct Both<T: Cell> {
    there: Vec<T::Mode>,
    back: Vec<T>,
}

/// On all grids of these ranks, the same bits as on one.
fn rank(comm: &Communicator) -> Result<(), Error> {
    let gpu = Gpu::open(&Options::from_env()?, comm.rank())?;
    let mut alone = Lines::new(&Communicator::solo(), Grid::new([1, 1], 1)?)?;
    let ranks = comm.size();
    for shape in [[16, 12, 6], [9, 10, 11]] {
        for spec in [Spec::new(Values::Real, shape), Spec::new(Values::Real, shape).natural()] {
            let whole = both::<f32>(&gpu, &mut alone, &spec, None)?;
            for p in (1..=ranks).filter(|p| ranks % p == 0) {
                for chunk in [100, 1 << 20] {
                    let mut lines = Lines::new(comm, Grid::new([p, ranks / p], ranks)?)?.with_chunks(chunk, 2);
                    both(&gpu, &mut lines, &spec, Some(&whole))?;
                }
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
            thread::sleep(Duration::from_secs(240));
            eprintln!("it hangs");
            process::abort();
        });
        run_mpi(|comm| rank(&comm)).expect("MPI starts");
        return ExitCode::SUCCESS;
    }
    if env::args().any(|argument| argument == "--list") {
        println!("fft_mpi: test");
        return ExitCode::SUCCESS;
    }
    let flags = env::var("MPIRUN_FLAGS").unwrap_or_else(|_| "--allow-run-as-root --oversubscribe".to_owned());
    for ranks in ["1", "2", "3", "4"] {
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
            Ok(status) if status.success() => println!("test transforms on {ranks} ranks ... ok"),
            wrong => {
                println!("test transforms on {ranks} ranks ... FAILED: {wrong:?}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
