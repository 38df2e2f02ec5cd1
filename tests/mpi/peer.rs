//! Exchanges through memory of the devices of other ranks, with a driver library of the tests.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::device_collectives;
use super::plans::{MAPPED, Plan, Side};
use super::{Case, Inner, Outcome};
use libloading::Library;
use meshloom::Rank;
use meshloom::comm::{Communicator, run_threads};
use meshloom::exchange::{Exchange, ExchangeError, PendingExchange, Wire, tested_path};
use meshloom::gpu::{DeviceError, ExchangePath, Gpu, Options};
use meshloom::grid::{Transfer, Transfers};

/// All begin with the word by which the launcher knows that they need the driver library.
pub const CASES: &[Case] = &[
    Case { name: "peer::threads", ranks: &[1], inner: Inner::Device(threads), outcome: Outcome::Passes },
    Case { name: "peer::processes", ranks: &[2, 4], inner: Inner::Device(processes), outcome: Outcome::Passes },
    Case { name: "peer::refusals", ranks: &[3], inner: Inner::Device(refusals), outcome: Outcome::Passes },
    Case { name: "peer::killed", ranks: &[3], inner: Inner::Device(killed), outcome: Outcome::Fails("signal 9") },
];

/// Variable that names the library in place of NVIDIA's.
const LIBRARY: &str = "MESHLOOM_PEER_LIBRARY";

/// A failure of the library, with its number in the source of the library.
#[derive(Clone, Copy)]
enum Failure {
    Imports = 1,
    RightCopies = 2,
    Copies = 3,
    Allocations = 4,
    Devices = 5,
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Names the driver library to the processes of a launcher.
pub fn provide(launcher: &mut Command, case: &str) {
    if case.starts_with("peer::") {
        launcher.env(LIBRARY, built());
    }
}

/// Builds the driver library, once.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (library, unfinished) =
            (directory.join("libfake_driver.so"), directory.join(format!("fake_driver.{}", std::process::id())));
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let status = Command::new(&compiler)
            .args(["-std=c11", "-O1", "-shared", "-fPIC", "-pthread", "-o"])
            .arg(&unfinished)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi/fake_driver.c"))
            .status();
        assert!(status.as_ref().is_ok_and(|status| status.success()), "{compiler:?} fails: {status:?}");
        std::fs::rename(unfinished, &library).expect("the library has a place");
        library
    })
}

/// Opens the library of this process, once.
fn library() -> &'static Library {
    static OPEN: OnceLock<Library> = OnceLock::new();
    OPEN.get_or_init(|| {
        let path = std::env::var_os(LIBRARY).expect("the launcher names the library");
        // SAFETY: the library has no code that runs when it is loaded.
        unsafe { Library::new(path) }.expect("the library loads")
    })
}

/// Lets the library of this process fail `times` times.
fn fail(failure: Failure, times: i32) {
    // SAFETY: the function has these arguments.
    unsafe { library().get::<unsafe extern "C" fn(i32, i32)>(b"fake_fail").expect("a function")(failure as i32, times) }
}

/// Returns the bytes that the library has copied in this process.
fn copied_bytes() -> u64 {
    // SAFETY: the function has no arguments.
    unsafe { library().get::<unsafe extern "C" fn() -> u64>(b"fake_copied").expect("a function")() }
}

fn gpu(comm: &Communicator, path: ExchangePath) -> Result<Gpu> {
    Ok(Gpu::open(&Options { exchange: Some(path), ..meshloom_sanitizer::options()? }, comm.rank())?)
}

fn rank_of(comm: &Communicator, path: ExchangePath) -> Result<Rank> {
    let rank = Rank::new(comm.clone(), gpu(comm, path)?)?;
    assert_eq!(rank.exchange.path(&rank.gpu), Some(path));
    Ok(rank)
}

/// Returns `true` if the device of the tests can import host memory, as that of the library is.
fn can_import(comm: &Communicator) -> Result<bool> {
    Ok(gpu(comm, ExchangePath::Ring)?.capabilities().host_import)
}

/// Three exchanges in flight, in small and large chunks; no message in host memory.
fn exchanges(rank: &mut Rank, comm: &Communicator) -> Result<()> {
    for (chunk, depth, most) in [(4, 3, 50), (60, 2, 301), (1 << 16, 1, 40_009), (1 << 20, 8, 400_009)] {
        let mut exchange = Exchange::new(comm.clone()).with_chunks(chunk, depth);
        let (mut sides, mut in_flight) = (Vec::new(), VecDeque::new());
        for salt in 0..3 {
            let plan = Plan { ranks: comm.size(), most, salt };
            sides.push(Side::new(&mut rank.recorder, plan, comm.rank(), MAPPED)?);
        }
        for side in &sides {
            in_flight.push_back(side.start(&mut rank.recorder, &mut exchange)?);
        }
        for side in &sides {
            PendingExchange::finish_first(&mut in_flight, &mut rank.recorder)?;
            side.check(&mut rank.recorder, "device memory of peers")?;
        }
        assert_eq!((exchange.carried_bytes(), exchange.staging_bytes(&rank.gpu)), (0, 0));
    }
    Ok(())
}

/// Returns the bits that come from all ranks, exact and rounded on the way.
fn received_bits(comm: &Communicator, path: ExchangePath) -> Result<Vec<u32>> {
    let (mut rank, len) = (rank_of(comm, path)?, 7001);
    let mut bits = Vec::new();
    for wire in [Wire::Exact, Wire::Block16] {
        let mut exchange = Exchange::new(comm.clone()).with_chunks(1 << 12, 3).with_wire(wire);
        let [from, to] = MAPPED.map(|kind| rank.gpu.array_in::<f32>("array", len * comm.size() as u64, kind));
        let (from, to) = (from?, to?);
        let values: Vec<f32> = (0..from.len()).map(|i| ((comm.rank() as u64 * 9973 + i) as f32).sin()).collect();
        rank.recorder.upload(&from, 0, &values)?;
        let parts: Vec<_> = (0..comm.size()).map(|peer| Transfer { peer, start: peer as u64 * len, len }).collect();
        let transfers = Transfers { send: parts.clone(), receive: parts };
        exchange.run(&mut rank.recorder, &transfers, &from, &to)?;
        bits.extend(rank.recorder.download(&to, 0, to.len())?.into_iter().map(f32::to_bits));
    }
    Ok(bits)
}

/// Checks that the driver copies the messages, and that their bits are those of staging.
fn all_paths(comm: &Communicator) -> Result<()> {
    let before = copied_bytes();
    let bits = received_bits(comm, ExchangePath::Peer)?;
    // The exact part alone: each rank but this one sends 7001 values of 4 bytes.
    assert!(copied_bytes() - before >= (comm.size() as u64 - 1) * 7001 * 4);
    assert!(bits == received_bits(comm, ExchangePath::Staging)?);
    let mut rank = rank_of(comm, ExchangePath::Peer)?;
    exchanges(&mut rank, comm)?;
    device_collectives::all(&mut rank, 7000)?;
    Ok(())
}

fn threads(comm: &Communicator) -> Result<()> {
    if !can_import(comm)? {
        return Ok(());
    }
    let tested = tested_path(&gpu(comm, ExchangePath::Peer)?)?;
    assert_eq!((tested.path, tested.refused), (ExchangePath::Peer, Vec::new()));
    for ranks in [2, 4] {
        run_threads(ranks, |comm| all_paths(&comm))?;
    }
    // A driver that fails after the self-test.
    let failed = run_threads(3, |comm| {
        let mut rank = rank_of(&comm, ExchangePath::Peer)?;
        comm.barrier()?;
        if comm.rank() == 1 {
            fail(Failure::Copies, 1);
        }
        comm.barrier()?;
        exchanges(&mut rank, &comm)
    });
    let text = failed.expect_err("a copy fails").to_string();
    assert!(text.contains("device memory of rank") && text.contains("the driver cannot copy (error 999)"), "{text}");
    Ok(())
}

fn processes(comm: &Communicator) -> Result<()> {
    if can_import(comm)? {
        all_paths(comm)?;
    }
    comm.barrier()?;
    Ok(())
}

/// Pairs of ranks that fail the self-test share pages. A rank that is forced and has no other pair
/// is an error of all ranks.
fn refusals(comm: &Communicator) -> Result<()> {
    if !can_import(comm)? {
        return Ok(());
    }
    let copied = |rank: &mut Rank| {
        let before = copied_bytes();
        exchanges(rank, comm).map(|()| copied_bytes() - before)
    };
    let by_drivers = copied(&mut rank_of(comm, ExchangePath::Peer)?)?;
    for failure in [Failure::Imports, Failure::RightCopies] {
        // Rank 1 tests the memory of rank 0 first.
        if comm.rank() == 1 {
            fail(failure, 1);
        }
        let bytes = copied(&mut rank_of(comm, ExchangePath::Peer)?)?;
        assert!(if comm.rank() == 2 { bytes == by_drivers } else { 0 < bytes && bytes < by_drivers });
    }
    for (failure, text) in [
        (Failure::Imports, "cannot import memory of another rank (error 999)"),
        (Failure::RightCopies, "the self-test received wrong values"),
        (Failure::Allocations, "(error 2)"),
        (Failure::Devices, "cannot find the device by its PCI address"),
    ] {
        if comm.rank() == 1 {
            fail(failure, 10);
        }
        let error = Rank::new(comm.clone(), gpu(comm, ExchangePath::Peer)?).expect_err("it is forced");
        assert!(matches!(error, ExchangeError::Device(DeviceError::PeerMemory { rank: 1, .. })), "{error}");
        assert!(error.to_string().contains(text), "{error}");
        let tested = tested_path(&gpu(comm, ExchangePath::Peer)?);
        assert_eq!(tested.is_err(), comm.rank() == 1, "{tested:?}");
        fail(failure, 0);
    }
    // Rank 1 may not use it, and the others do.
    let path = if comm.rank() == 1 { ExchangePath::Ring } else { ExchangePath::Peer };
    let bytes = copied(&mut rank_of(comm, path)?)?;
    assert_eq!(bytes > 0, comm.rank() != 1);
    comm.barrier()?;
    Ok(())
}

/// A process that is killed while others copy from its memory.
fn killed(comm: &Communicator) -> Result<()> {
    let path = if can_import(comm)? { ExchangePath::Peer } else { ExchangePath::Staging };
    let mut rank = rank_of(comm, path)?;
    let mut exchange = Exchange::new(comm.clone()).with_chunks(1 << 16, 2);
    let plan = Plan { ranks: comm.size(), most: 700_001, salt: 1 };
    let side = Side::new(&mut rank.recorder, plan, comm.rank(), MAPPED)?;
    let mut pending = side.start(&mut rank.recorder, &mut exchange)?;
    if comm.rank() == 1 {
        for _ in 0..20 {
            pending.progress(&mut rank.recorder)?;
        }
        let _ = Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
    }
    pending.finish(&mut rank.recorder)?;
    comm.barrier()?;
    Ok(())
}
