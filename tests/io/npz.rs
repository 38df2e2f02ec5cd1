//! `.npz` archives: written by many ranks, read by this crate and by others, broken, interrupted,
//! and above 4 GiB.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;

use meshloom::io::{IoError, IoErrorKind, Member, NpyFile, NpzFile, NpzWriter, PartCrc, token, write_whole};

/// A directory for one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("meshloom-npz-{}", token()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Contents of the archive of [`write`].
const ROWS: usize = 1001;

fn members() -> Vec<Member> {
    let rows = ROWS as u64;
    vec![
        Member::new::<i64>("offset", &[rows + 1]),
        Member::new::<f32>("distance", &[rows, 3]),
        Member::new::<f64>("nothing", &[0, 7]),
        Member::new::<f64>("single", &[]),
    ]
}

fn offsets() -> Vec<i64> {
    (0..=ROWS as i64).map(|i| i * i - 5).collect()
}

fn distances() -> Vec<f32> {
    (0..3 * ROWS).map(|i| i as f32 / 8.0).collect()
}

/// Writes the archive from ranks that are threads, with these rows each, in pieces of `piece` rows.
fn write(path: &Path, rows: &[usize], piece: usize) {
    assert_eq!(rows.iter().sum::<usize>(), ROWS);
    let (ranks, token, barrier) = (rows.len(), token(), Barrier::new(rows.len()));
    let parts = std::sync::Mutex::new(Vec::<PartCrc>::new());
    let one = |rank: usize| {
        let first = (rank == 0).then(|| NpzWriter::create(path, &members(), &token).unwrap());
        barrier.wait();
        let writer = first.unwrap_or_else(|| NpzWriter::open(path, &members(), &token).unwrap());
        let begin: usize = rows[..rank].iter().sum();
        let (mut mine, last) = (Vec::new(), rank + 1 == ranks);
        let mut pieces: Vec<_> = (begin..begin + rows[rank]).step_by(piece).collect();
        if rank.is_multiple_of(2) {
            pieces.reverse();
        }
        for at in pieces {
            let to = (at + piece).min(begin + rows[rank]);
            mine.push(writer.write(0, at as u64, &offsets()[at..to]).unwrap());
            mine.push(writer.write(1, 3 * at as u64, &distances()[3 * at..3 * to]).unwrap());
        }
        mine.push(writer.write(2, 0, &[] as &[f64]).unwrap());
        if last {
            mine.push(writer.write(0, ROWS as u64, &offsets()[ROWS..]).unwrap());
            mine.push(writer.write(3, 0, &[0.1f64]).unwrap());
        }
        parts.lock().unwrap().extend(mine);
        if rank > 0 {
            writer.finish(&[]).unwrap();
            barrier.wait();
        } else {
            barrier.wait();
            assert!(!path.exists(), "not there before it is whole");
            writer.finish(&parts.lock().unwrap()).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            scope.spawn(move || one(rank));
        }
    });
}

fn is_good(path: &Path) {
    let file = NpzFile::open(path).unwrap();
    assert_eq!(file.path(), path);
    assert_eq!(file.names().collect::<Vec<_>>(), ["offset", "distance", "nothing", "single"]);
    file.check().unwrap();
    let offset = file.member("offset").unwrap();
    assert_eq!((offset.shape(), offset.read_i64(0..ROWS as u64 + 1).unwrap()), (&[ROWS as u64 + 1][..], offsets()));
    assert!(offset.path().ends_with("out.npz/offset.npy"));
    let distance = file.member("distance").unwrap();
    drop(file);
    assert_eq!(distance.points().unwrap(), (ROWS as u64, 3));
    assert_eq!(distance.read_f32(0..distance.len()).unwrap(), distances());
    assert!(
        matches!(distance.read_f32(5..distance.len() + 1), Err(IoError { kind: IoErrorKind::Misuse, ref message, .. }) if message.contains("was asked for"))
    );
    let file = NpzFile::open(path).unwrap();
    assert_eq!(file.member("nothing").unwrap().shape(), [0, 7]);
    assert_eq!(file.member("single").unwrap().read_f64(0..1).unwrap(), [0.1]);
    match file.member("offsets") {
        Err(error @ IoError { kind: IoErrorKind::Missing, .. }) => {
            assert!(error.to_string().contains("offset, distance"), "{error}")
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the python to ask, if it is there and has the module.
fn python(module: &str) -> Option<Command> {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_string());
    let found = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(Command::new(python));
    }
    println!("skipped: no {python} with {module} here");
    None
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out.into_owned()
}

#[test]
fn any_number_of_ranks_writes_the_same_bytes() {
    let s = Scratch::new();
    let path = s.file("out.npz");
    write(&path, &[ROWS], ROWS);
    is_good(&path);
    let bytes = fs::read(&path).unwrap();
    for (rows, piece) in [(&[0, 700, 0, 300, 1][..], 1000), (&[500, 501], 7), (&[1, 0, 1000, 0], 400)] {
        fs::remove_file(&path).unwrap();
        write(&path, rows, piece);
        assert_eq!(s.names(), ["out.npz"]);
        assert!(fs::read(&path).unwrap() == bytes, "{rows:?}");
    }
}

#[test]
fn other_readers_agree() {
    let s = Scratch::new();
    let path = s.file("out.npz");
    write(&path, &[300, 701], 100);
    if Command::new("unzip").arg("-v").output().is_ok_and(|output| output.status.success()) {
        let said = succeeds(Command::new("unzip").arg("-t").arg(&path));
        assert!(said.contains("No errors"), "{said}");
    } else {
        println!("skipped: no unzip here");
    }
    if let Some(mut python) = python("zipfile") {
        let script = r#"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as file:
    assert file.testzip() is None
    assert file.namelist() == ["offset.npy", "distance.npy", "nothing.npy", "single.npy"]
    for name in file.namelist():
        data = file.read(name)
        assert data.startswith(b"\x93NUMPY") and len(data) == file.getinfo(name).file_size
"#;
        succeeds(python.args(["-c", script]).arg(&path));
    }
    if let Some(mut python) = python("numpy") {
        let script = r#"
import sys, numpy as np
with np.load(sys.argv[1]) as file:
    assert file.files == ["offset", "distance", "nothing", "single"]
    assert file["offset"].dtype == np.int64 and np.array_equal(file["offset"], np.arange(1002) ** 2 - 5)
    assert file["distance"].dtype == np.float32
    assert np.array_equal(file["distance"], (np.arange(3003) / 8).reshape(1001, 3))
    assert file["nothing"].shape == (0, 7) and file["single"].shape == () and file["single"] == 0.1
a = np.arange(6.0).reshape(2, 3)
np.savez("theirs.npz", a=a, b=np.arange(4))
np.savez_compressed("small.npz", a=a)
"#;
        succeeds(python.args(["-c", script]).arg(&path).current_dir(&s.0));
        let file = NpzFile::open(s.file("theirs.npz")).unwrap();
        file.check().unwrap();
        assert_eq!(file.member("a").unwrap().read_f64(0..6).unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(file.member("b").unwrap().read_i64(0..4).unwrap(), [0, 1, 2, 3]);
        let error = NpzFile::open(s.file("small.npz")).unwrap_err().to_string();
        assert!(error.contains("compressed") && error.contains("numpy.savez()"), "{error}");
    }
}

#[test]
fn members_are_npy_files_with_aligned_data() {
    let s = Scratch::new();
    let path = s.file("out.npz");
    write(&path, &[ROWS], 300);
    let bytes = fs::read(&path).unwrap();
    let starts: Vec<_> = (0..bytes.len() - 6).filter(|&at| &bytes[at..at + 6] == b"\x93NUMPY").collect();
    assert_eq!(starts.len(), 4);
    assert!(starts.iter().all(|at| at % 64 == 0), "{starts:?}");
    // What is cut out of the archive is a file of its own.
    fs::write(s.file("cut.npy"), &bytes[starts[0]..starts[0] + 128 + 8 * (ROWS + 1)]).unwrap();
    let file = NpyFile::open(s.file("cut.npy")).unwrap();
    assert_eq!(file.read_i64(0..file.len()).unwrap(), offsets());
}

#[test]
fn what_is_not_written_once_is_an_error_and_leaves_nothing() {
    let s = Scratch::new();
    let path = s.file("out.npz");
    let create = || NpzWriter::create(&path, &[Member::new::<i64>("a", &[6]), Member::new::<f32>("b", &[0])], &token());
    type Wrong = fn(&NpzWriter) -> Result<Vec<PartCrc>, IoError>;
    let cases: [(&str, Wrong, u64); 4] = [
        ("a gap", |w| Ok(vec![w.write(0, 0, &[1i64, 2])?, w.write(0, 3, &[4i64, 5, 6])?]), 2),
        ("the end", |w| Ok(vec![w.write(0, 3, &[4i64, 5])?, w.write(0, 0, &[1i64, 2, 3])?]), 5),
        ("twice", |w| Ok(vec![w.write(0, 0, &[1i64; 4])?, w.write(0, 3, &[1i64; 3])?]), 4),
        ("nothing", |_| Ok(vec![]), 0),
    ];
    for (name, wrong, reached) in cases {
        let writer = create().unwrap();
        let parts = wrong(&writer).unwrap();
        match writer.finish(&parts) {
            Err(error) => {
                assert!(error.message.starts_with(&format!("{reached} of 6 elements of `a`")), "{name}: {error}")
            }
            other => panic!("{name}: {other:?}"),
        }
        assert!(s.names().is_empty(), "{name}");
    }
    let writer = create().unwrap();
    assert!(
        matches!(writer.write(0, 5, &[1i64; 2]), Err(IoError { kind: IoErrorKind::Misuse, ref message, .. }) if message.contains("was asked for"))
    );
    assert!(
        matches!(writer.write(0, u64::MAX, &[1i64; 2]), Err(IoError { kind: IoErrorKind::Misuse, ref message, .. }) if message.contains("was asked for"))
    );
    assert!(
        matches!(writer.write(0, 0, &[1.0f32; 2]), Err(IoError { kind: IoErrorKind::ElementType, ref message, .. }) if message.contains("has elements of type"))
    );
    assert!(
        matches!(writer.write(2, 0, &[1.0f32; 2]), Err(IoError { kind: IoErrorKind::ElementType, ref message, .. }) if message.contains("has elements of type"))
    );
    drop(writer);
    assert!(s.names().is_empty());
    let twice = [Member::new::<i64>("a", &[6]), Member::new::<i64>("a", &[6])];
    assert!(
        matches!(NpzWriter::create(&path, &twice, "t"), Err(IoError { kind: IoErrorKind::Misuse, ref message, .. }) if message.contains("the name `"))
    );
    assert!(
        matches!(NpzWriter::create("-", &[], "t"), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("standard output"))
    );
}

#[test]
fn interrupted_writing_leaves_an_older_file_as_it_was() {
    let s = Scratch::new();
    let path = s.file("out.npz");
    write_whole(&path, b"older").unwrap();
    let first = NpzWriter::create(&path, &members(), "t").unwrap();
    let second = NpzWriter::open(&path, &members(), "t").unwrap();
    assert_eq!(s.names().len(), 2);
    let other = [Member::new::<i64>("offset", &[3])];
    assert!(matches!(NpzWriter::open(&path, &other, "t"), Err(IoError { kind: IoErrorKind::Shape, .. })));
    let _ = second.write(0, 10, &[1i64, 2]).unwrap();
    drop(second);
    drop(first);
    assert_eq!((s.names(), fs::read(&path).unwrap()), (vec!["out.npz".to_string()], b"older".to_vec()));
    let first = NpzWriter::create(&path, &members(), "t").unwrap();
    NpzWriter::open(&path, &members(), "t").unwrap().abandon();
    assert_eq!(s.names(), ["out.npz"]);
    drop(first);
    // An archive without members is one.
    NpzWriter::create(&path, &[], "t").unwrap().finish(&[]).unwrap();
    assert_eq!(NpzFile::open(&path).unwrap().names().count(), 0);
}

#[test]
fn broken_archives_are_named_with_a_reason() {
    let s = Scratch::new();
    let path = s.file("out.npz");
    write(&path, &[ROWS], ROWS);
    let whole = fs::read(&path).unwrap();
    for cut in [0, 1, 22, 500, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..cut]).unwrap();
        let error = NpzFile::open(&path).unwrap_err();
        assert!(
            matches!(error, IoError { kind: IoErrorKind::Format, ref message, .. } if message.contains("not a NumPy .npz"))
                && error.to_string().contains("cut off"),
            "{cut}: {error}"
        );
    }
    let mut changed = whole.clone();
    changed[300] ^= 1;
    fs::write(&path, &changed).unwrap();
    let error = NpzFile::open(&path).unwrap().check().unwrap_err().to_string();
    assert!(error.contains("offset.npy has changed"), "{error}");
    // Cut while it is open: an error, not a signal.
    fs::write(&path, &whole).unwrap();
    let file = NpzFile::open(&path).unwrap();
    let member = file.member("distance").unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(200).unwrap();
    assert!(member.read_f32(0..3).unwrap_err().message.starts_with("truncated: 200 bytes"));
    assert!(
        matches!(file.check(), Err(IoError { kind: IoErrorKind::Format, ref message, .. }) if message.contains("truncated: "))
    );
    assert!(
        matches!(file.member("offset"), Err(IoError { kind: IoErrorKind::Format, ref message, .. }) if message.contains("truncated: "))
    );
    fs::write(s.file("a.npy"), b"\x93NUMPY").unwrap();
    assert!(
        matches!(NpzFile::open(s.file("a.npy")), Err(IoError { kind: IoErrorKind::Format, ref message, .. }) if message.contains("not a NumPy .npz"))
    );
    assert!(matches!(NpzFile::open(s.file("none.npz")), Err(IoError { kind: IoErrorKind::NotFound, .. })));
    assert!(
        matches!(NpzFile::open(&s.0), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("not a regular file"))
    );
    assert!(
        matches!(NpzFile::open("-"), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("standard input"))
    );
}

/// Files with holes take no room on the disk.
#[cfg(target_os = "linux")]
#[test]
fn archives_above_4_gib_use_zip64() {
    let s = Scratch::new();
    let path = s.file("large.npz");
    let (len, tail) = ((5u64 << 30) / 8, [7i64, -8, 9]);
    let members =
        [Member::new::<i64>("large", &[len]), Member::new::<i64>("far", &[3]), Member::new::<f32>("end", &[0])];
    let writer = NpzWriter::create(&path, &members, &token()).unwrap();
    // The CRC of zeros, put together as ranks' parts are.
    let zeros = crc32fast::hash(&[0; 1 << 20]);
    let mut parts: Vec<_> =
        (0..5 << 10).map(|i| PartCrc { member: 0, crc: zeros, first: i << 17, len: 1 << 17 }).collect();
    parts.pop();
    let mut last = vec![0i64; 1 << 17];
    last[(1 << 17) - 3..].copy_from_slice(&tail);
    parts.push(writer.write(0, len - (1 << 17), &last).unwrap());
    parts.push(writer.write(1, 0, &tail).unwrap());
    writer.finish(&parts).unwrap();
    let file = NpzFile::open(&path).unwrap();
    assert!(fs::metadata(&path).unwrap().len() > 5 << 30);
    assert_eq!(file.names().collect::<Vec<_>>(), ["large", "far", "end"]);
    assert_eq!(file.member("large").unwrap().read_i64(len - 4..len).unwrap(), [0, 7, -8, 9]);
    assert_eq!(file.member("far").unwrap().read_i64(0..3).unwrap(), tail);
    if let Some(mut python) = python("zipfile") {
        let script = r#"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as file:
    large, far, end = file.infolist()
    assert large.file_size == 128 + (5 << 30) and far.header_offset > 5 << 30, (large, far)
    assert file.read(far)[128:] == b"".join(n.to_bytes(8, "little", signed=True) for n in (7, -8, 9))
    assert len(file.read(end)) == 128
"#;
        succeeds(python.args(["-c", script]).arg(&path));
    }
}
