//! Outputs that are not brought to their end: an interrupt and a full disk leave nothing of them.
//! (Apart from other tests, since it starts processes, which for a moment inherit the locks that
//! HDF5 has on files.)
#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

#[cfg(feature = "hdf5")]
use meshloom::io::hdf5::{FilePart, Hdf5Contents, Hdf5Writer, SnapshotInfo, SnapshotRows, part_path};
use meshloom::io::{OutputDir, SharedFile, token, write_whole};
use meshloom_program::interrupt::install_interrupt_handler;

/// A directory for one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("meshloom-unfinished-{}", token()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs this very test program again with only one test, which then does its part as a process of
/// its own.
fn again(test: &str, scratch: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("MESHLOOM_TEST_SCRATCH", scratch);
    command
}

#[test]
fn an_interrupt_removes_what_is_unfinished_and_exits_as_shells_expect() {
    if let Some(scratch) = std::env::var_os("MESHLOOM_TEST_SCRATCH") {
        install_interrupt_handler().unwrap();
        install_interrupt_handler().unwrap();
        let directory = OutputDir::create(Path::new(&scratch).join("out/run")).unwrap();
        write_whole(Path::new(&scratch).join("whole"), b"whole").unwrap();
        let _first = SharedFile::create(directory.join("file"), 10, b"", "t").unwrap();
        let _second = SharedFile::open(directory.join("file"), "t").unwrap();
        fs::write(Path::new(&scratch).join("ready"), b"").unwrap();
        std::thread::sleep(Duration::from_secs(60));
        unreachable!("not interrupted");
    }
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-XCPU", 152)] {
        let scratch = Scratch::new();
        let mut command = again("an_interrupt_removes_what_is_unfinished_and_exits_as_shells_expect", &scratch.0);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        for _ in 0..600 {
            if scratch.0.join("ready").exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(names(&scratch.0), ["out", "ready", "whole"]);
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{signal}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text.matches("interrupted").count(), 1, "{text}");
        assert_eq!(names(&scratch.0), ["ready", "whole"], "{signal}");
    }
}

#[cfg(feature = "hdf5")]
fn info(count: u64) -> SnapshotInfo {
    SnapshotInfo {
        count,
        box_size: 10.0,
        scale_factor: 1.0,
        omega_m: 0.3,
        omega_b: 0.05,
        h: 0.7,
        omega_r: 0.0,
        dark_energy: [-1.0, 0.0],
    }
}

#[cfg(feature = "hdf5")]
#[test]
fn an_interrupt_removes_what_is_unfinished_in_hdf5() {
    if let Some(scratch) = std::env::var_os("MESHLOOM_TEST_SCRATCH") {
        install_interrupt_handler().unwrap();
        let (path, info) = (Path::new(&scratch).join("s.hdf5"), info(9));
        let contents = |part| Hdf5Contents::Snapshot { info: &info, part };
        let whole = contents(FilePart::whole(&info));
        let first = Hdf5Writer::create(&path, &whole, "t").unwrap();
        let _second = Hdf5Writer::open(&path, &whole, "t", first.offsets()).unwrap();
        let part = contents(FilePart { index: 1, of: 2, count: 4 });
        let other = Hdf5Writer::create(part_path(&path, 1), &part, "t").unwrap();
        let _sealed = other.seal().unwrap();
        fs::write(Path::new(&scratch).join("ready"), b"").unwrap();
        std::thread::sleep(Duration::from_secs(60));
        unreachable!("not interrupted");
    }
    let scratch = Scratch::new();
    let mut command = again("an_interrupt_removes_what_is_unfinished_in_hdf5", &scratch.0);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.spawn().unwrap();
    for _ in 0..600 {
        if scratch.0.join("ready").exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(names(&scratch.0), [".s.1.hdf5.t.part", ".s.hdf5.t.part", "ready"]);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(names(&scratch.0), ["ready"]);
}

#[cfg(all(target_os = "linux", feature = "hdf5"))]
#[test]
fn a_full_disk_is_an_error_that_says_so_and_leaves_nothing() {
    let scratch = Scratch::new();
    let disk = scratch.0.join("disk");
    fs::create_dir(&disk).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=128k", "tmpfs"];
    if !Command::new("mount").args(mount).arg(&disk).output().is_ok_and(|o| o.status.success()) {
        println!("skipped: a small file system cannot be mounted here (needs root)");
        return;
    }
    struct Mounted(PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
    let mounted = Mounted(disk.clone());

    let (path, info) = (disk.join("s.hdf5"), info(10_000));
    let contents = Hdf5Contents::Snapshot { info: &info, part: FilePart::whole(&info) };
    let writer = Hdf5Writer::create(&path, &contents, "t").unwrap();
    let rows = vec![[1.0; 3]; 10_000];
    let rows = SnapshotRows { positions: &rows, velocities: &rows, ids: &vec![1; 10_000] };
    let error = rows.write(&writer, 0).unwrap_err().to_string();
    assert!(error.contains("disk is full") && error.contains("s.hdf5") && !error.contains(".part"), "{error}");
    drop(writer);
    assert_eq!(names(&disk), [""; 0]);
    drop(mounted);
}
