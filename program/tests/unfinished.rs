//! Snapshots in HDF5 that are not brought to their end: an interrupt and a full disk leave nothing of them. (Apart from
//! other tests, since it starts processes, which for a moment inherit the locks that HDF5 has on files.)
#![cfg(all(unix, feature = "cli", feature = "hdf5"))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use meshloom::io::hdf5::{FilePart, SnapshotInfo, SnapshotWriter, part_path};
use meshloom::io::{cleanup, token};

/// A directory for one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("meshloom-hdf5-{}", token()));
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

#[test]
fn an_interrupt_removes_what_is_unfinished() {
    if let Some(scratch) = std::env::var_os("MESHLOOM_TEST_SCRATCH") {
        cleanup::install_interrupt_handler().unwrap();
        let (path, info) = (Path::new(&scratch).join("s.hdf5"), info(9));
        let first = SnapshotWriter::create(&path, &info, FilePart::whole(&info), "t").unwrap();
        let _second = SnapshotWriter::open(&path, FilePart::whole(&info), "t", first.offsets()).unwrap();
        let part = FilePart { index: 1, of: 2, count: 4 };
        let other = SnapshotWriter::create(part_path(&path, 1), &info, part, "t").unwrap();
        let _sealed = other.seal().unwrap();
        fs::write(Path::new(&scratch).join("ready"), b"").unwrap();
        std::thread::sleep(Duration::from_secs(60));
        unreachable!("not interrupted");
    }
    let scratch = Scratch::new();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "an_interrupt_removes_what_is_unfinished", "--nocapture"]);
    let child = command.env("MESHLOOM_TEST_SCRATCH", &scratch.0).stdout(Stdio::null()).stderr(Stdio::null());
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

#[cfg(target_os = "linux")]
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
    let writer = SnapshotWriter::create(&path, &info, FilePart::whole(&info), "t").unwrap();
    let rows = vec![[1.0; 3]; 10_000];
    let error = writer.write(0, &rows, &rows, &vec![1; 10_000]).unwrap_err().to_string();
    assert!(error.contains("disk is full") && error.contains("s.hdf5") && !error.contains(".part"), "{error}");
    drop(writer);
    assert_eq!(names(&disk), [""; 0]);
    drop(mounted);
}
