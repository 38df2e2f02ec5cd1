//! Compiled kernels on disk: written, found again, and never trusted when they are not what was
//! written.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use meshloom::gpu::*;
use meshloom::{Error, Launch, launch};

const BODY: &str = r"
var<uniform> params: Params;
var<storage, read_write> x: array<f32>;
fn each(i: u32) { store_x(i, SEED * f32(i)); }
#each params.count";

meshloom::kernel_params! {
    struct Count {
        count: u32,
    }
}

/// A directory of one test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("pipelines-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// Returns the file that is there, alone.
    fn file(&self) -> PathBuf {
        let [file] = &self.files()[..] else { panic!("not one file: {:?}", self.files()) };
        file.clone()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options(cache: Option<&Path>) -> Options {
    Options { cache: cache.map(Path::to_path_buf), ..Options::default() }
}

/// Returns `true` if the adapter has such caches at all.
fn possible() -> bool {
    let adapter = choose(&options(None).adapter, 0).unwrap();
    let possible = adapter.features().contains(wgpu::Features::PIPELINE_CACHE);
    if !possible {
        println!("skipped: {} keeps no pipelines", adapter.get_info().name);
    }
    possible
}

/// Compiles and runs kernel number `seed`.
fn work(gpu: &Gpu, seed: u32) {
    let source = KernelSource::new("test::cached", BODY.replace("SEED", &format!("{seed}.0")));
    let source = source.params::<Count>();
    let mut recorder = Recorder::new(gpu).unwrap();
    let x = gpu.array::<f32>("x", 100).unwrap();
    recorder.each(&Kernel::new(source), &[x.raw()], &Count { count: 100 }, 100).unwrap();
    assert_eq!(recorder.download(&x, 7, 1).unwrap(), [7.0 * seed as f32]);
}

fn open(cache: Option<&Path>) -> Gpu {
    Gpu::open(&options(cache), 0).unwrap()
}

#[test]
fn what_was_compiled_is_saved_and_found_again() {
    let scratch = Scratch::new();
    if !possible() {
        return;
    }
    let nested = scratch.0.join("made/when/needed");
    let gpu = open(Some(&nested));
    gpu.save_pipelines();
    assert!(!nested.exists(), "nothing was compiled");
    work(&gpu, 1);
    gpu.save_pipelines();
    let [file] = &fs::read_dir(&nested).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>()[..] else { panic!() };
    let first = fs::read(file).unwrap();
    drop(gpu);

    // What is in the file needs no compiling, and a file that lacks nothing is not written again.
    fs::write(nested.join("witness"), "").unwrap();
    let gpu = open(Some(&nested));
    fs::remove_file(file).unwrap();
    work(&gpu, 1);
    drop(gpu);
    // Some drivers add to what they are given though they compiled nothing; what was not given is
    // as at first.
    assert!(!file.exists() || fs::read(file).unwrap() != first, "the file was not loaded");

    // The other way to be saved.
    let gpu = open(Some(&nested));
    work(&gpu, 2);
    drop(gpu);
    assert!(fs::read(file).unwrap().len() > 16);
}

#[test]
fn damaged_files_are_ignored_and_replaced() {
    let scratch = Scratch::new();
    if !possible() {
        return;
    }
    let fill = |seed: u32| work(&open(Some(&scratch.0)), seed);
    fill(1);
    let (file, whole) = (scratch.file(), fs::read(scratch.file()).unwrap());
    let flipped = |bit: usize| {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    };
    let cut = |len: usize| whole[..len].to_vec();
    let long = [&whole[..], b"more"].concat();
    let damaged = [
        cut(0),
        cut(15),
        cut(16),
        cut(whole.len() - 1),
        flipped(0),
        flipped(70),
        flipped(8 * 20),
        flipped(8 * whole.len() - 1),
        long,
        b"another program's file, which is longer than a header".to_vec(),
    ];
    for bytes in damaged {
        fs::write(&file, &bytes).unwrap();
        fill(1);
        assert_ne!(fs::read(scratch.file()).unwrap(), bytes, "a damaged file stays");
    }
    // And it is a good file again.
    fill(2);
    scratch.file();
}

#[test]
fn files_of_another_device_are_ignored() {
    let scratch = Scratch::new();
    if !possible() {
        return;
    }
    let fill = |seed: u32| work(&open(Some(&scratch.0)), seed);
    fill(1);
    // The checksum holds, wgpu's own header says that the data is somebody else's.
    let mut bytes = fs::read(scratch.file()).unwrap();
    for at in 16..(16 + 60).min(bytes.len()) {
        bytes[at] ^= 0x55;
        let hash =
            bytes[16..].iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
        bytes[8..16].copy_from_slice(&hash.to_le_bytes());
        fs::write(scratch.file(), &bytes).unwrap();
        fill(1);
        let replaced = fs::read(scratch.file()).unwrap();
        assert_ne!(replaced, bytes, "byte {at}");
        bytes = replaced;
    }
}

#[test]
fn no_directory_keeps_nothing() {
    work(&open(None), 3);
    let floor = Scratch::new();
    let options = Options { floor: true, ..options(Some(&floor.0)) };
    work(&Gpu::open(&options, 0).unwrap(), 3);
    assert!(floor.files().is_empty(), "the floor has no such feature");
}

#[test]
fn a_directory_that_cannot_be_written_harms_nothing() {
    let scratch = Scratch::new();
    let file = scratch.0.join("file");
    fs::write(&file, "not a directory").unwrap();
    for place in [file.clone(), file.join("below"), PathBuf::from("/proc/nowhere")] {
        let gpu = open(Some(&place));
        work(&gpu, 4);
        gpu.save_pipelines();
    }
    assert_eq!(scratch.files(), [file]);
    let parts = Scratch::new();
    if possible() {
        // The place of the file is taken by a directory: what was written beside it is removed.
        work(&open(Some(&parts.0)), 4);
        let taken = parts.file();
        fs::remove_file(&taken).unwrap();
        fs::create_dir_all(taken.join("inside")).unwrap();
        work(&open(Some(&parts.0)), 4);
        assert_eq!(parts.files(), [taken]);
    }
}

#[test]
fn a_launch_saves_and_many_writers_leave_one_whole_file() {
    let scratch = Scratch::new();
    if !possible() {
        return;
    }
    std::thread::scope(|scope| {
        for writer in 0..4u32 {
            // Options that differ make devices of their own, as processes have them.
            let options = Options { window_bytes: Some(1 << (16 + writer)), ..options(Some(&scratch.0)) };
            scope.spawn(move || {
                let ran = launch(Launch::Threads(2), &options, |rank| {
                    work(&rank.gpu, 10 + writer);
                    Ok::<_, Error>(rank.gpu.clone())
                });
                assert_eq!(ran.unwrap().len(), 2);
            });
        }
    });
    let file = scratch.file();
    let whole = fs::read(&file).unwrap();
    assert_eq!(whole[..8], *b"meshpip1");
    // Handles outlive a launch, and so would what only a drop saves.
    fs::remove_file(&file).unwrap();
    let kept = launch(Launch::Solo, &options(Some(&scratch.0)), |rank| {
        work(&rank.gpu, 20);
        Ok::<_, Error>(rank.gpu.clone())
    });
    assert!(scratch.file().exists());
    drop(kept);
}
