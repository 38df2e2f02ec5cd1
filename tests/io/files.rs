//! Files as a user meets them: good, foreign, broken, too large for the disk, and written by many
//! ranks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use meshloom::io::{
    Dtype, IoError, IoErrorKind, NpyFile, NpyWriter, SharedFile, check_replaceable, cleanup, token, write_whole,
};

/// A directory for one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("meshloom-test-{}", token()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns a file with this header and these bytes behind it.
    fn npy(&self, name: &str, descr: &str, fortran: bool, shape: &str, data: &[u8]) -> PathBuf {
        let order = if fortran { "True" } else { "False" };
        let text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend(data);
        let path = self.file(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn names(&self) -> Vec<String> {
        names(&self.0)
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

fn bytes_of<T, const N: usize>(values: &[T], to_bytes: impl Fn(&T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(to_bytes).collect()
}

fn message(error: IoError) -> String {
    error.to_string()
}

#[test]
fn little_and_big_endian_files_read_alike() {
    let s = Scratch::new();
    let f32s = [0.0f32, -1.5, 3.25e-39, f32::MAX, 7.0, 8.0];
    let f64s = f32s.map(f64::from);
    let files = [
        s.npy("a.npy", "<f4", false, "(2, 3)", &bytes_of(&f32s, |x| x.to_le_bytes())),
        s.npy("b.npy", ">f4", false, "(2, 3)", &bytes_of(&f32s, |x| x.to_be_bytes())),
        s.npy("c.npy", "<f8", false, "(2, 3)", &bytes_of(&f64s, |x| x.to_le_bytes())),
        s.npy("d.npy", ">f8", false, "(2, 3)", &bytes_of(&f64s, |x| x.to_be_bytes())),
    ];
    for path in files {
        let file = NpyFile::open(&path).unwrap();
        assert_eq!((file.shape(), file.len()), (&[2, 3][..], 6));
        assert_eq!(file.points().unwrap(), (2, 3));
        file.expect_shape(&[2, 3]).unwrap();
        assert_eq!(file.read_f32(0..6).unwrap(), f32s);
        assert_eq!(file.read_f64(0..6).unwrap(), f64s);
        assert_eq!(file.read_finite_f32(4..5).unwrap(), [7.0]);
        assert!(file.read_f32(3..3).unwrap().is_empty());
        assert_eq!(file.read_c32(4..6).unwrap(), [[7.0, 0.0], [8.0, 0.0]]);
        assert!(file.read_f32(5..7).unwrap_err().message.contains("range 5..7 was asked for, of only 6"));
        assert!(
            matches!(file.read_i64(0..6), Err(IoError { kind: IoErrorKind::ElementType, ref message, .. }) if message.contains("has elements of type"))
        );
        assert!(matches!(file.expect_shape(&[3, 2]), Err(IoError { kind: IoErrorKind::Shape, .. })));
    }
}

#[test]
fn complex_numbers_keep_their_parts_in_either_byte_order() {
    let s = Scratch::new();
    let parts = [1.0f64, -2.0, 3.0, 4.5];
    let files = [
        s.npy("a.npy", "<c8", false, "(2,)", &bytes_of(&parts, |x| (*x as f32).to_le_bytes())),
        s.npy("b.npy", ">c8", false, "(2,)", &bytes_of(&parts, |x| (*x as f32).to_be_bytes())),
        s.npy("c.npy", "<c16", false, "(2,)", &bytes_of(&parts, |x| x.to_le_bytes())),
        s.npy("d.npy", ">c16", false, "(2,)", &bytes_of(&parts, |x| x.to_be_bytes())),
    ];
    for path in files {
        let file = NpyFile::open(&path).unwrap();
        assert!(file.dtype().is_complex());
        assert_eq!(file.read_c32(0..2).unwrap(), [[1.0, -2.0], [3.0, 4.5]]);
        assert_eq!(file.read_c64(1..2).unwrap(), [[3.0, 4.5]]);
        assert!(
            matches!(file.read_f32(0..2), Err(IoError { kind: IoErrorKind::ElementType, ref message, .. }) if message.contains("has elements of type"))
        );
    }
    let huge = s.npy("e.npy", "<c16", false, "(2,)", &bytes_of(&[0.0, 1.0, 2.0, -1e300], |x: &f64| x.to_le_bytes()));
    let error = NpyFile::open(huge).unwrap().read_c32(0..2).unwrap_err();
    assert!(error.message.starts_with("the element at (1,) is -1e300, beyond"));
}

#[test]
fn integers_are_refused_unless_asked_for() {
    let s = Scratch::new();
    let path = s.npy("i.npy", ">i2", false, "(3,)", &bytes_of(&[-1i16, 300, 7], |x| x.to_be_bytes()));
    let file = NpyFile::open(&path).unwrap();
    assert_eq!(file.dtype(), Dtype::I16);
    assert_eq!(file.read_i64(0..3).unwrap(), [-1, 300, 7]);
    let text = message(file.read_f32(0..3).unwrap_err());
    assert!(text.contains("int16") && text.contains("float32") && text.contains("astype"), "{text}");
    let file = file.accept_integers();
    assert_eq!(file.read_f32(1..3).unwrap(), [300.0, 7.0]);
    assert_eq!(file.read_f64(0..1).unwrap(), [-1.0]);
    assert_eq!(file.read_c64(2..3).unwrap(), [[7.0, 0.0]]);

    let path = s.npy("u.npy", "<u8", false, "(2,)", &bytes_of(&[1, u64::MAX], |x| x.to_le_bytes()));
    let file = NpyFile::open(&path).unwrap().accept_integers();
    assert_eq!(file.read_i64(0..1).unwrap(), [1]);
    assert!(
        matches!(file.read_i64(0..2), Err(IoError { kind: IoErrorKind::ElementType, ref message, .. }) if message.contains("has elements of type"))
    );
    assert_eq!(file.read_f32(1..2).unwrap(), [u64::MAX as f32]);
}

#[test]
fn empty_arrays_and_single_numbers_are_arrays() {
    let s = Scratch::new();
    let file = NpyFile::open(s.npy("e.npy", "<f4", false, "(0, 3)", &[])).unwrap();
    assert!(file.is_empty());
    assert_eq!(file.points().unwrap(), (0, 3));
    assert!(file.read_finite_f32(0..0).unwrap().is_empty());
    assert!(
        matches!(file.read_f32(0..1), Err(IoError { kind: IoErrorKind::Misuse, ref message, .. }) if message.contains("was asked for"))
    );

    let file = NpyFile::open(s.npy("s.npy", "<f8", false, "()", &2.5f64.to_le_bytes())).unwrap();
    assert_eq!(file.read_f64(0..1).unwrap(), [2.5]);

    let path = s.file("w.npy");
    NpyWriter::<f32>::create(&path, &[0, 3], "t").unwrap().finish().unwrap();
    assert_eq!(NpyFile::open(&path).unwrap().shape(), [0, 3]);
}

#[test]
fn truncated_files_are_named_and_never_touched() {
    let s = Scratch::new();
    let path = s.file("t.npy");
    let writer = NpyWriter::<f64>::create(&path, &[1000, 3], "t").unwrap();
    writer.write(0, &[1.0; 3000]).unwrap();
    writer.finish().unwrap();
    let whole = fs::read(&path).unwrap();
    assert_eq!(whole.len(), 128 + 24_000);
    for cut in [1, 5, 6, 8, 9, 10, 60, 127, 128, 129, 4096, whole.len() - 1] {
        fs::write(&path, &whole[..cut]).unwrap();
        match NpyFile::open(&path) {
            Err(error) => assert!(error.message.starts_with(&format!("truncated: {cut} bytes")), "{error}"),
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
    // Cut while it is open: an error, not a signal.
    fs::write(&path, &whole).unwrap();
    let file = NpyFile::open(&path).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(200).unwrap();
    let error = file.read_f64(2000..3000).unwrap_err();
    assert!(error.message.starts_with("truncated: 200 bytes, but its header promises 24128;"), "{error}");
}

#[test]
fn foreign_files_are_recognized_with_a_remedy() {
    let s = Scratch::new();
    let cases: [(&[u8], &str); 6] = [
        (b"", "empty"),
        (b"1.0 2.0 3.0\n", "numpy.loadtxt"),
        (b"PK\x03\x04 and so on", ".npz"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"\x93NUMPY\x09\x00\x10\x00", "9.0"),
        (&[0xff; 4000], "numpy.save"),
    ];
    for (bytes, hint) in cases {
        let path = s.file("f");
        fs::write(&path, bytes).unwrap();
        let error = NpyFile::open(&path).unwrap_err();
        assert!(
            matches!(error, IoError { kind: IoErrorKind::Format, ref message, .. } if message.contains("not a NumPy .npy")),
            "{error}"
        );
        assert!(error.to_string().contains(hint), "{error}");
    }
    assert!(matches!(NpyFile::open(s.file("none.npy")), Err(IoError { kind: IoErrorKind::NotFound, .. })));
    assert!(
        matches!(NpyFile::open(&s.0), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("not a regular file"))
    );
    assert!(
        matches!(NpyFile::open("-"), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("standard input"))
    );
    let path = s.npy("h.npy", "<f2", false, "(1,)", &[0, 0]);
    let text = message(NpyFile::open(path).unwrap_err());
    assert!(text.contains("<f2") && text.contains("float32"), "{text}");
}

/// Returns the bytes of an array of `columns` columns, one after the other.
fn in_columns<const N: usize>(rows: &[[u8; N]], columns: usize) -> Vec<u8> {
    (0..columns).flat_map(|column| rows.iter().skip(column).step_by(columns).flatten().copied()).collect()
}

#[test]
fn rows_in_fortran_order_are_those_of_c_order() {
    let s = Scratch::new();
    // Many more rows than are put together at a time, and few.
    for (rows, columns, shape) in [
        (200_001usize, 3usize, "(200001, 3)"),
        (200_001, 2, "(200001, 2)"),
        (40_003, 64, "(40003, 64)"),
        (2, 3, "(2, 3)"),
        (5, 3, "(5, 1, 3)"),
    ] {
        let values: Vec<f64> = (0..rows * columns).map(|i| f64::from((i % 9973) as f32) - 0.5).collect();
        let narrow: Vec<f32> = values.iter().map(|&x| x as f32).collect();
        let elements = |range: [usize; 2]| range[0] as u64..range[1] as u64;
        // All, the rows of some ranks, parts of rows, none.
        let (third, all) = (rows / 3 * columns, rows * columns);
        let ranges =
            [[0, all], [0, third], [third, 2 * third], [2 * third, all], [1, all - 1], [third + 1, third + 2], [4, 4]];
        let to_bytes = |descr: &str, range: std::ops::Range<usize>| match descr {
            "<f4" => in_columns(&narrow[range].iter().map(|x| x.to_le_bytes()).collect::<Vec<_>>(), columns),
            ">f4" => in_columns(&narrow[range].iter().map(|x| x.to_be_bytes()).collect::<Vec<_>>(), columns),
            "<f8" => in_columns(&values[range].iter().map(|x| x.to_le_bytes()).collect::<Vec<_>>(), columns),
            _ => in_columns(&values[range].iter().map(|x| x.to_be_bytes()).collect::<Vec<_>>(), columns),
        };
        for descr in ["<f4", ">f4", "<f8", ">f8"] {
            let path = s.npy("f.npy", descr, true, shape, &to_bytes(descr, 0..all));
            let file = NpyFile::open(&path).unwrap();
            for range in ranges {
                assert!(
                    file.read_f64(elements(range)).unwrap() == values[range[0]..range[1]],
                    "{descr} {shape} {range:?}"
                );
                assert!(
                    file.read_f32(elements(range)).unwrap() == narrow[range[0]..range[1]],
                    "{descr} {shape} {range:?}"
                );
            }
            assert!(
                matches!(file.read_f64(0..all as u64 + 1), Err(IoError { kind: IoErrorKind::Misuse, ref message, .. }) if message.contains("was asked for"))
            );
        }
    }
    // Numbers of other sizes, and of two parts.
    let ids: Vec<u8> = in_columns(&[[1u8], [2], [3], [4], [5], [6]], 3);
    let file = NpyFile::open(s.npy("i.npy", "|u1", true, "(2, 3)", &ids)).unwrap();
    assert_eq!(file.read_i64(0..6).unwrap(), [1, 2, 3, 4, 5, 6]);
    let parts = |i: u8| [f64::from(i).to_be_bytes(), f64::from(10 * i).to_be_bytes()].concat().try_into().unwrap();
    let file = in_columns::<16>(&[1, 2, 3, 4].map(parts), 2);
    let file = NpyFile::open(s.npy("c.npy", ">c16", true, "(2, 2)", &file)).unwrap();
    assert_eq!(file.read_c64(1..4).unwrap(), [[2.0, 20.0], [3.0, 30.0], [4.0, 40.0]]);
    // What is wrong is named by its place among rows; a file that ends too early is one.
    let mut bad = [1.0f64; 30];
    (bad[14], bad[20]) = (f64::NAN, -1e300);
    let bytes = in_columns(&bad.map(f64::to_le_bytes), 3);
    let path = s.npy("n.npy", "<f8", true, "(10, 3)", &bytes);
    let file = NpyFile::open(&path).unwrap();
    match file.read_finite_f64(3..30) {
        Err(error) => assert!(error.message.starts_with("the element at (4, 2) is NaN"), "{error}"),
        other => panic!("{other:?}"),
    }
    assert!(file.read_f32(15..30).unwrap_err().message.starts_with("the element at (6, 2) is -1e300, beyond"));
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(
        matches!(file.read_f64(0..1), Err(IoError { kind: IoErrorKind::Format, ref message, .. }) if message.contains("truncated: "))
    );
    assert!(
        matches!(NpyFile::open(&path), Err(IoError { kind: IoErrorKind::Format, ref message, .. }) if message.contains("truncated: "))
    );
}

#[test]
fn fortran_order_of_fields_is_refused_where_it_matters() {
    let s = Scratch::new();
    let data = [0u8; 4 * 130];
    for shape in ["(2, 65)", "(2, 3, 4)", "(2, 1, 3, 2)"] {
        let text = message(NpyFile::open(s.npy("f.npy", "<f4", true, shape, &data)).unwrap_err());
        assert!(text.contains("f.npy") && text.contains("ascontiguousarray"), "{text}");
    }
    for shape in ["(6,)", "(1, 6)", "(6, 1, 1)", "(0, 6)", "(0, 5, 7)", "()"] {
        NpyFile::open(s.npy("g.npy", "<f4", true, shape, &data)).unwrap();
    }
}

#[test]
fn the_first_bad_element_of_the_range_is_named_by_its_index() {
    let s = Scratch::new();
    let mut values = [1.0f64; 30];
    values[14] = f64::NAN;
    values[20] = f64::INFINITY;
    let path = s.npy("n.npy", "<f8", false, "(10, 3)", &bytes_of(&values, |x| x.to_le_bytes()));
    let file = NpyFile::open(&path).unwrap();
    assert!(file.read_f32(0..30).unwrap()[14].is_nan(), "plain reads pass them on");
    match file.read_finite_f32(3..30) {
        Err(error) => assert!(error.message.starts_with("the element at (4, 2) is NaN"), "{error}"),
        other => panic!("{other:?}"),
    }
    let text = message(file.read_finite_f64(15..30).unwrap_err());
    assert!(text.contains("(6, 2)") && text.contains("inf"), "{text}");
    file.read_finite_f32(21..30).unwrap();

    values[7] = 3.5e38;
    values[8] = -1e300;
    let path = s.npy("r.npy", ">f8", false, "(10, 3)", &bytes_of(&values, |x| x.to_be_bytes()));
    let file = NpyFile::open(&path).unwrap();
    let error = file.read_f32(6..14).unwrap_err();
    assert!(error.message.starts_with("the element at (2, 1) is 3.5e38, beyond"));
    assert!(error.to_string().contains("(2, 1)") && error.to_string().contains("3.5e38"), "{error}");
    file.read_f64(6..14).unwrap();
}

#[test]
fn many_handles_write_disjoint_ranges_of_one_file() {
    let s = Scratch::new();
    let path = s.file("many.npy");
    let (ranks, rows, token) = (7u64, 1001u64, token());
    let first = NpyWriter::<f32>::create(&path, &[rows, 3], &token).unwrap();
    assert!(!path.exists(), "not there before it is whole");
    let own = |rank: u64| (rank * rows / ranks, (rank + 1) * rows / ranks);
    let values = |rank| (own(rank).0 * 3..own(rank).1 * 3).map(|i| i as f32).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        for rank in 1..ranks {
            let (path, token, values) = (&path, &token, &values);
            scope.spawn(move || {
                let writer = NpyWriter::<f32>::open(path, &[rows, 3], token).unwrap();
                // Bit by bit, and some ranks backwards.
                let all = values(rank);
                let mut pieces: Vec<_> = all.chunks(100).enumerate().collect();
                if rank % 2 == 0 {
                    pieces.reverse();
                }
                for (at, piece) in pieces {
                    writer.write(own(rank).0 * 3 + at as u64 * 100, piece).unwrap();
                }
                writer.finish().unwrap();
            });
        }
    });
    assert!(!path.exists());
    first.write(0, &values(0)).unwrap();
    first.finish().unwrap();
    assert_eq!(s.names(), ["many.npy"]);
    let file = NpyFile::open(&path).unwrap();
    let expected: Vec<f32> = (0..rows * 3).map(|i| i as f32).collect();
    assert_eq!(file.read_f32(0..rows * 3).unwrap(), expected);
    // Somebody else's reader agrees.
    let bytes = fs::read(&path).unwrap();
    let other = npyz::NpyFile::new(&bytes[..]).unwrap();
    assert_eq!(other.shape(), [rows, 3]);
    assert_eq!(other.into_vec::<f32>().unwrap(), expected);
}

#[test]
fn ranks_that_disagree_about_the_shape_are_told() {
    let s = Scratch::new();
    let first = NpyWriter::<f32>::create(s.file("o.npy"), &[4, 3], "t").unwrap();
    assert!(matches!(
        NpyWriter::<f32>::open(s.file("o.npy"), &[5, 3], "t"),
        Err(IoError { kind: IoErrorKind::Shape, .. })
    ));
    assert!(matches!(
        NpyWriter::<f64>::open(s.file("o.npy"), &[4, 3], "t"),
        Err(IoError { kind: IoErrorKind::Shape, .. })
    ));
    assert!(
        matches!(first.write(11, &[0.0; 2]), Err(IoError { kind: IoErrorKind::Misuse, ref message, .. }) if message.contains("was asked for"))
    );
    assert!(matches!(
        NpyWriter::<f64>::create(s.file("p.npy"), &[u64::MAX, 3], "t"),
        Err(IoError { kind: IoErrorKind::Shape, .. })
    ));
    assert!(matches!(
        NpyWriter::<f64>::create(s.file("p.npy"), &[1; 65], "t"),
        Err(IoError { kind: IoErrorKind::Shape, .. })
    ));
    drop(first);
    assert!(s.names().is_empty());
}

#[test]
fn dropping_unfinished_leaves_nothing_not_even_in_a_panic() {
    let s = Scratch::new();
    let path = s.file("gone");
    drop(SharedFile::create(&path, 100, b"x", "t").unwrap());
    assert!(s.names().is_empty());
    let panicked = std::panic::catch_unwind(|| {
        let _file = SharedFile::create(&path, 100, b"x", "t").unwrap();
        std::panic::resume_unwind(Box::new("stop"));
    });
    assert!(panicked.is_err());
    assert!(s.names().is_empty());
}

/// Runs this very test program again with only one test, which then does its part as a process of
/// its own.
fn again(test: &str, scratch: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("files::{test}"), "--nocapture"]).env("MESHLOOM_TEST_SCRATCH", scratch);
    command
}

#[test]
fn removing_all_before_an_exit_leaves_nothing() {
    // In a process of its own, since it takes away the files of other tests too.
    if let Some(scratch) = std::env::var_os("MESHLOOM_TEST_SCRATCH") {
        let directory = meshloom::io::OutputDir::create(Path::new(&scratch).join("a/b")).unwrap();
        let _file = SharedFile::create(directory.join("out"), 10, b"", "t").unwrap();
        assert_eq!(cleanup::remove_all(), 3);
        std::process::exit(7);
    }
    let s = Scratch::new();
    let status = again("removing_all_before_an_exit_leaves_nothing", &s.0).output().unwrap().status;
    assert_eq!(status.code(), Some(7));
    assert!(s.names().is_empty());
}

#[cfg(unix)]
#[test]
fn a_file_that_may_not_be_written_is_not_replaced() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    if let Some(scratch) = std::env::var_os("MESHLOOM_TEST_SCRATCH") {
        let path = Path::new(&scratch).join("kept");
        for error in [write_whole(&path, b"new").unwrap_err(), check_replaceable(&path).unwrap_err()] {
            assert!(
                matches!(&error, IoError { kind: IoErrorKind::Write, message, .. } if message.contains("may not be written")),
                "{error}"
            );
            assert!(error.to_string().contains("chmod u+w"), "{error}");
        }
        write_whole(Path::new(&scratch).join("new"), b"new").unwrap();
        std::process::exit(7);
    }
    let s = Scratch::new();
    let allow = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    fs::write(s.file("kept"), b"old").unwrap();
    allow(&s.file("kept"), 0o444);
    allow(&s.0, 0o777);
    let mut command = again("a_file_that_may_not_be_written_is_not_replaced", &s.0);
    // SAFETY: a call without arguments that cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        // To root all files may be written.
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!((fs::read(s.file("kept")).unwrap(), s.names()), (b"old".to_vec(), vec!["kept".into(), "new".into()]));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_that_says_so_and_leaves_nothing() {
    let s = Scratch::new();
    let disk = s.file("disk");
    fs::create_dir(&disk).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=64k", "tmpfs"];
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

    write_whole(disk.join("small"), b"fits").unwrap();
    let path = disk.join("large.npy");
    let first = NpyWriter::<f32>::create(&path, &[100_000], "t").unwrap();
    let second = NpyWriter::<f32>::open(&path, &[100_000], "t").unwrap();
    let error = second.write(50_000, &vec![1.0; 50_000]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("disk is full") && text.contains("400128 bytes"), "{text}");
    assert!(text.contains("large.npy") && !text.contains(".part"), "{text}");
    drop((first, second));
    assert_eq!(names(&disk), ["small"]);

    let error = write_whole(disk.join("large"), &vec![1; 100_000]).unwrap_err();
    assert!(matches!(error, IoError { kind: IoErrorKind::Write, .. }), "{error}");
    assert_eq!(names(&disk), ["small"]);
    // There is room again.
    write_whole(disk.join("other"), &vec![1; 20_000]).unwrap();
    drop(mounted);
}

#[test]
fn numpy_reads_what_is_written_and_is_read() {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_string());
    if !Command::new(&python).args(["-c", "import numpy"]).output().is_ok_and(|o| o.status.success()) {
        println!("skipped: no {python} with NumPy here");
        return;
    }
    let s = Scratch::new();
    fn write<T: meshloom::io::NpyElement>(path: PathBuf, shape: &[u64], values: &[T]) {
        let writer = NpyWriter::<T>::create(path, shape, &token()).unwrap();
        writer.write(0, values).unwrap();
        writer.finish().unwrap();
    }
    write(s.file("f4.npy"), &[2, 3], &[0.5f32, 1.5, 2.5, 3.5, 4.5, 5.5]);
    write(s.file("f8.npy"), &[], &[0.1f64]);
    write(s.file("i8.npy"), &[3], &[-1i64, 0, i64::MAX]);
    write(s.file("u4.npy"), &[1, 1, 2], &[7u32, u32::MAX]);
    write(s.file("c8.npy"), &[2], &[[1.0f32, -2.0], [3.0, 4.0]]);
    write(s.file("c16.npy"), &[0, 3], &[] as &[[f64; 2]]);
    let script = r#"
import numpy as np
def check(name, dtype, shape, values):
    a = np.load(name)
    assert a.dtype == np.dtype(dtype) and a.shape == shape, (name, a.dtype, a.shape)
    assert a.flags.c_contiguous and a.ravel().tolist() == values, (name, a)
check("f4.npy", "<f4", (2, 3), [0.5, 1.5, 2.5, 3.5, 4.5, 5.5])
check("f8.npy", "<f8", (), [0.1])
check("i8.npy", "<i8", (3,), [-1, 0, 2**63 - 1])
check("u4.npy", "<u4", (1, 1, 2), [7, 2**32 - 1])
check("c8.npy", "<c8", (2,), [1 - 2j, 3 + 4j])
check("c16.npy", "<c16", (0, 3), [])
a = np.arange(24, dtype="f8").reshape(2, 3, 4)
np.save("n1.npy", a)
np.save("n2.npy", a.astype(">f4"))
np.save("n3.npy", np.asfortranarray(a))
np.save("n4.npy", a.astype("i4"))
np.save("n5.npy", (a + 1j).astype(">c16"))
with open("n6.npy", "wb") as f:
    np.lib.format.write_array(f, a, version=(3, 0))
x, y, z = np.arange(5.0), np.arange(5.0) + 10, np.arange(5.0) + 20
np.save("n8.npy", np.array([x, y, z]).T)
np.save("n9.npy", np.array([x, y], dtype=">f4").T)
np.save("n7.npy", np.array([("x", 1.0)], dtype=[("name", "U1"), ("value", "f8")]))
"#;
    let output = Command::new(&python).args(["-c", script]).current_dir(&s.0).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let expected: Vec<f32> = (0..24).map(|i| i as f32).collect();
    for name in ["n1.npy", "n2.npy", "n4.npy", "n6.npy"] {
        let file = NpyFile::open(s.file(name)).unwrap().accept_integers();
        assert_eq!(file.shape(), [2, 3, 4], "{name}");
        assert_eq!(file.read_f32(0..24).unwrap(), expected, "{name}");
    }
    assert!(
        matches!(NpyFile::open(s.file("n3.npy")), Err(IoError { kind: IoErrorKind::Format, ref message, .. }) if message.contains("Fortran order"))
    );
    let file = NpyFile::open(s.file("n8.npy")).unwrap();
    assert_eq!(file.points().unwrap(), (5, 3));
    assert_eq!(file.read_f32(6..12).unwrap(), [2.0, 12.0, 22.0, 3.0, 13.0, 23.0]);
    let file = NpyFile::open(s.file("n9.npy")).unwrap();
    assert_eq!(file.read_f64(0..10).unwrap(), [0.0, 10.0, 1.0, 11.0, 2.0, 12.0, 3.0, 13.0, 4.0, 14.0]);
    assert_eq!(NpyFile::open(s.file("n5.npy")).unwrap().read_c32(23..24).unwrap(), [[23.0, 1.0]]);
    assert!(
        matches!(NpyFile::open(s.file("n7.npy")), Err(IoError { kind: IoErrorKind::ElementType, ref message, .. }) if message.contains("has elements of type"))
    );
}
