//! Host code of the distributed layers at the numbers of ranks of a cluster, without devices: ranks
//! are threads. Each case runs the same work on every rank; its messages, bytes, peak heap and
//! processor time per rank are bounded as functions of the number of ranks.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::LazyLock;

use crate::Error;
use crate::comm::{Communicator, Op, run_threads, sent};
use crate::exchange::GridComms;
use crate::fft::{Forecast, Spec, TransformTuning};
use crate::gpu::Profile;
use crate::grid::{GhostPlan, Grid, Redistribution, bricks};
use crate::io::collective::{fingerprint, write_npy};
use crate::io::token;
use crate::points::sort::Splitters;

/// Counts the heap memory of each thread.
struct Counting;

thread_local! {
    /// Bytes that the thread has allocated and not freed, and their maximum. A message that another
    /// rank frees counts for its sender.
    static HEAP: Cell<[i64; 2]> = const { Cell::new([0; 2]) };
}

fn count(bytes: i64) {
    let _ = HEAP.try_with(|heap| {
        let [live, peak] = heap.get();
        heap.set([live + bytes, peak.max(live + bytes)]);
    });
}

#[global_allocator]
static HEAP_OF_TESTS: Counting = Counting;

// SAFETY: every call is passed on to the system's allocator, and its results are returned.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's contract is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's contract is that of the system's allocator.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's contract is that of the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller's contract is that of the system's allocator.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Returns the processor time of this thread in seconds.
#[cfg(target_os = "linux")]
fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time`.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0);
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

/// Messages, bytes, heap and processor time of a rank in a case.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    messages: u64,
    bytes: u64,
    heap: u64,
    seconds: f64,
}

impl Use {
    /// Measures the work of this rank.
    fn of(comm: &Communicator, work: impl FnOnce(&Communicator) -> Result<(), Error>) -> Result<Use, Error> {
        comm.barrier()?;
        let live = HEAP.get()[0];
        HEAP.set([live; 2]);
        let (before, begun) = (sent(), processor_seconds());
        work(comm)?;
        let (after, seconds) = (sent(), processor_seconds() - begun);
        let heap = (HEAP.get()[1] - live) as u64;
        Ok(Use { messages: after[0] - before[0], bytes: after[1] - before[1], heap, seconds })
    }

    /// Returns the most messages, bytes and heap of a rank, and the median of the seconds.
    fn over_ranks(ranks: &[Use]) -> Use {
        let mut seconds: Vec<f64> = ranks.iter().map(|one| one.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let seconds = seconds[seconds.len() / 2];
        ranks.iter().fold(Use { seconds, ..Use::default() }, |most, one| Use {
            messages: most.messages.max(one.messages),
            bytes: most.bytes.max(one.bytes),
            heap: most.heap.max(one.heap),
            seconds,
        })
    }
}

/// Bounds of a case on P ranks.
struct Case {
    name: &'static str,
    work: fn(&Communicator) -> Result<(), Error>,
    /// Messages of a rank are at most this many times the number of rounds, log2 P rounded up.
    messages: u64,
    /// `[a, b]`: bytes sent, and bytes of heap, are at most a + b P.
    bytes: [u64; 2],
    heap: [u64; 2],
}

const CASES: &[Case] = &[
    Case { name: "barrier", work: barrier, messages: 1, bytes: [600, 1], heap: [4000, 2] },
    Case { name: "reductions", work: reductions, messages: 3, bytes: [2000, 1], heap: [4000, 2] },
    Case { name: "all_gather", work: all_gather, messages: 1, bytes: [700, 10], heap: [3500, 34] },
    Case { name: "gather", work: gather, messages: 2, bytes: [500, 10], heap: [4000, 52] },
    Case { name: "all_to_all", work: all_to_all, messages: 1, bytes: [1200, 48], heap: [3000, 50] },
    Case { name: "agreement", work: agreement, messages: 4, bytes: [2500, 20], heap: [6000, 30] },
    Case { name: "lines", work: lines, messages: 4, bytes: [4000, 130], heap: [7000, 140] },
    Case { name: "splitters", work: splitters, messages: 48, bytes: [2_500_000, 12_000], heap: [150_000, 400] },
    Case { name: "redistribution", work: redistribution, messages: 0, bytes: [0, 0], heap: [1000, 260] },
    Case { name: "plans", work: plans, messages: 0, bytes: [0, 0], heap: [12_000, 2] },
    Case { name: "file", work: file, messages: 12, bytes: [7000, 20], heap: [4000, 36] },
];

fn barrier(comm: &Communicator) -> Result<(), Error> {
    Ok(comm.barrier()?)
}

/// Eight bytes of each rank in a tree.
fn reductions(comm: &Communicator) -> Result<(), Error> {
    let mut data = [comm.rank() as u64];
    comm.broadcast(1, &mut data)?;
    comm.all_reduce(&mut data, Op::Max)?;
    comm.scan_exclusive(&mut data, Op::Sum)?;
    Ok(())
}

fn all_gather(comm: &Communicator) -> Result<(), Error> {
    comm.all_gather(&[comm.rank() as u64])?;
    Ok(())
}

fn gather(comm: &Communicator) -> Result<(), Error> {
    comm.gather_v(0, &[comm.rank() as u64])?;
    Ok(())
}

/// Eight bytes from each rank to each.
fn all_to_all(comm: &Communicator) -> Result<(), Error> {
    comm.all_to_all(&vec![comm.rank() as u64; comm.size()])?;
    Ok(())
}

/// Equal arguments, and work that succeeds.
fn agreement(comm: &Communicator) -> Result<(), Error> {
    comm.agree("scale", &[("ranks", &comm.size()), ("name", &"the same on all ranks")])?;
    comm.first_to_differ(7_u64)?;
    comm.together(|| Ok::<_, Error>(()))
}

/// Communicators along both axes of a process grid.
fn lines(comm: &Communicator) -> Result<(), Error> {
    GridComms::new(comm, near_square(comm.size()))?;
    Ok(())
}

fn near_square(ranks: usize) -> Grid {
    let first = 1 << (ranks.ilog2() / 2);
    Grid::new([first, ranks / first], ranks).unwrap()
}

/// Finds the boundaries between ranks among sorted keys, 8 on each.
fn splitters(comm: &Communicator) -> Result<(), Error> {
    let mut keys: Vec<u64> = (0..8).map(|n| crate::hash::fnv1a(comm.rank() as u64, &[n])).collect();
    keys.sort_unstable();
    let mut search = Splitters::new(8 * comm.size() as u64, comm.shares(), 64);
    while !search.is_done() {
        let at_most = |key: u64| keys.partition_point(|&other| other <= key) as u64;
        let mut sums: Vec<u64> = search.candidates().into_iter().map(at_most).collect();
        comm.all_reduce(&mut sums, Op::Sum)?;
        search.narrow(&sums);
    }
    Ok(())
}

/// Slabs of one axis to slabs of another.
fn redistribution(comm: &Communicator) -> Result<(), Error> {
    let (n, ranks) = (2 * comm.size() as u64, comm.size());
    let shape = [n, n, 4];
    Redistribution::new(shape, &bricks(shape, [ranks, 1, 1]), &bricks(shape, [1, ranks, 1]), comm.rank())?;
    Ok(())
}

/// Ghost cells and the transform of a mesh of which each rank has the same share of lines.
fn plans(comm: &Communicator) -> Result<(), Error> {
    let (grid, n) = (near_square(comm.size()), 2 * comm.size() as u64);
    GhostPlan::new([n, n, 8], grid, comm.rank(), [[2, 2], [2, 2], [0, 0]], [true; 3])?;
    let tuning = TransformTuning::profile(Profile::Gpu);
    Forecast::new(&Spec::of::<f32>([n, n, 8]), grid, comm.rank(), &tuning, 1 << 20)?;
    Ok(())
}

/// A file of eight numbers of each rank, and their fingerprint.
fn file(comm: &Communicator) -> Result<(), Error> {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| std::env::temp_dir().join(format!("scale-{}", token())));
    if comm.rank() == 0 {
        std::fs::create_dir_all(&*DIRECTORY).unwrap();
    }
    let own = [comm.rank() as f32; 8];
    let (first, path) = (8 * comm.rank() as u64, DIRECTORY.join("file.npy"));
    comm.barrier()?;
    write_npy::<f32, Error>(comm, &path, &[8 * comm.size() as u64], |file| Ok(file.write(first, &own)?))?;
    fingerprint(comm, std::iter::once(first), 8, &[&own])?;
    comm.barrier()?;
    if comm.rank() == 0 {
        std::fs::remove_dir_all(&*DIRECTORY).unwrap();
    }
    Ok(())
}

/// Runs all cases on each number of ranks.
fn measure(ranks: &[usize]) -> Vec<Vec<Use>> {
    let of = |&ranks: &usize| {
        let run =
            |comm: Communicator| CASES.iter().map(|case| Use::of(&comm, case.work)).collect::<Result<Vec<_>, _>>();
        let found = run_threads(ranks, run).unwrap();
        let of_case = |case| Use::over_ranks(&found.iter().map(|rank| rank[case]).collect::<Vec<_>>());
        (0..CASES.len()).map(of_case).collect()
    };
    ranks.iter().map(of).collect()
}

/// Returns the exponent of the best power of the number of ranks for the seconds.
fn exponent(points: &[(usize, f64)]) -> f64 {
    let logs: Vec<[f64; 2]> = points.iter().map(|&(ranks, seconds)| [(ranks as f64).ln(), seconds.ln()]).collect();
    let mean = [0, 1].map(|n| logs.iter().map(|log| log[n]).sum::<f64>() / logs.len() as f64);
    let product = |n: usize| logs.iter().map(|log| (log[0] - mean[0]) * (log[n] - mean[n])).sum::<f64>();
    product(1) / product(0)
}

/// Largest exponent of processor time. A loop over the ranks has 1, one over their pairs 2; the
/// rest is noise.
const EXPONENT: f64 = 1.4;

/// Prints what all cases use on these numbers of ranks, and returns what is too much.
fn excess(ranks: &[usize], found: &[Vec<Use>]) -> Vec<String> {
    println!("{:<16} {:>6} {:>9} {:>12} {:>12} {:>12}", "case", "ranks", "messages", "bytes", "heap", "seconds");
    let mut wrong = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        for (&ranks, found) in ranks.iter().zip(found) {
            let Use { messages, bytes, heap, seconds } = found[number];
            let line = format!("{:<16} {ranks:>6} {messages:>9} {bytes:>12} {heap:>12} {seconds:>12.6}", case.name);
            println!("{line}");
            let rounds = u64::from(ranks.next_power_of_two().ilog2());
            let most = |[a, b]: [u64; 2]| a + b * ranks as u64;
            if messages > case.messages * rounds || bytes > most(case.bytes) || heap > most(case.heap) {
                wrong.push(line);
            }
        }
        let points: Vec<_> = ranks.iter().zip(found).map(|(&ranks, found)| (ranks, found[number].seconds)).collect();
        let exponent = exponent(&points);
        println!("{:<16} exponent of processor time {exponent:.2}", case.name);
        if exponent > EXPONENT {
            wrong.push(format!("{}: processor time grows with the power {exponent:.2} of the ranks", case.name));
        }
    }
    wrong
}

/// Checks all cases on these numbers of ranks.
///
/// Messages that come early wait in queues, whose memory depends on which threads the system lets
/// run: the least heap of a few runs counts.
fn check(ranks: &[usize]) {
    let mut found = measure(ranks);
    let mut wrong = excess(ranks, &found);
    for _ in 0..4 {
        if wrong.is_empty() {
            break;
        }
        for (least, again) in found.iter_mut().flatten().zip(measure(ranks).iter().flatten()) {
            least.heap = least.heap.min(again.heap);
            least.seconds = least.seconds.min(again.seconds);
        }
        wrong = excess(ranks, &found);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn host_code_of_up_to_512_ranks() {
    check(&[64, 128, 256, 512]);
}

/// Prints the figures of a large cluster: `cargo test --lib scale:: -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes, and as many open files as ranks"]
fn host_code_of_up_to_4096_ranks() {
    check(&[64, 256, 1024, 4096]);
}
