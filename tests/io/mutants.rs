//! Broken files: whatever is changed in a good one, reading it gives numbers or an error that names
//! the file.
#![cfg(unix)]

use std::cell::OnceCell;
use std::fs;
use std::path::Path;

use super::mutation::{Random, mutate, survive};
use meshloom::io::{IoError, IoErrorKind, Member, NpyFile, NpyWriter, NpzFile, NpzWriter, read_numbers};
use meshloom::points::neighbors::Bins;

/// Returns what reading has given must be good, or an error other than a lack of memory.
fn sound<T>(path: &Path, result: Result<T, IoError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error @ IoError { kind: IoErrorKind::Memory, .. }) => panic!("for a small file: {error}"),
        Err(error) => {
            assert!(error.to_string().contains(path.to_str().unwrap()), "names no file: {error}");
            None
        }
    }
}

/// Broken copy number `copy` of one of `good`.
fn broken(good: &[Vec<u8>], copy: u64) -> Vec<u8> {
    let mut bytes = good[copy as usize % good.len()].clone();
    mutate(&mut bytes, &mut Random::new(copy));
    bytes
}

fn read_array(path: &Path, file: NpyFile) {
    let file = file.accept_integers();
    let all = 0..file.len();
    sound(path, file.points());
    let lengths = [
        sound(path, file.read_f32(all.clone())).map(|values| values.len()),
        sound(path, file.read_finite_f64(all.clone())).map(|values| values.len()),
        sound(path, file.read_c32(all.clone())).map(|values| values.len()),
        sound(path, file.read_i64(all.clone())).map(|values| values.len()),
    ];
    assert!(lengths.into_iter().flatten().all(|len| len as u64 == all.end));
}

#[test]
fn of_npy() {
    let good = OnceCell::new();
    let make = |path: &Path| {
        let keep = || fs::read(path).unwrap();
        let floats = |shape: &[u64]| {
            let writer = NpyWriter::create(path, shape, "t").unwrap();
            writer.write(0, &[1.5f32; 60]).unwrap();
            writer.finish().unwrap();
            keep()
        };
        let integers = || {
            NpyWriter::<i64>::create(path, &[7], "t").unwrap().finish().unwrap();
            keep()
        };
        let complex = || {
            NpyWriter::<[f64; 2]>::create(path, &[2, 2], "t").unwrap().finish().unwrap();
            keep()
        };
        [floats(&[20, 3]), floats(&[3, 4, 5]), integers(), complex()]
    };
    survive("mutants::of_npy", 700, &[], |copy, directory| {
        let path = directory.join("a.npy");
        let good = good.get_or_init(|| make(&path));
        // The header alone, most of the time.
        let mut bytes = good[copy as usize % good.len()].clone();
        let data = bytes.split_off(if copy % 5 == 4 { bytes.len() } else { 128 });
        mutate(&mut bytes, &mut Random::new(copy));
        bytes.extend(data);
        fs::write(&path, bytes).unwrap();
        if let Some(file) = sound(&path, NpyFile::open(&path)) {
            read_array(&path, file);
        }
    });
}

#[test]
fn of_npz() {
    let good = OnceCell::new();
    let make = |path: &Path| {
        let members = [Member::new::<i64>("index", &[4, 2]), Member::new::<f32>("distance", &[8])];
        let writer = NpzWriter::create(path, &members, "t").unwrap();
        let parts = [writer.write(0, 0, &[1i64; 8]).unwrap(), writer.write(1, 0, &[0.5f32; 8]).unwrap()];
        writer.finish(&parts).unwrap();
        fs::read(path).unwrap()
    };
    survive("mutants::of_npz", 600, &[], |copy, directory| {
        let path = directory.join("a.npz");
        let mut bytes = good.get_or_init(|| make(&path)).clone();
        // Half of the time only the directory at the end.
        let from = if copy % 2 == 0 { bytes.len() - 140 } else { 0 };
        let mut end = bytes.split_off(from);
        mutate(&mut end, &mut Random::new(copy));
        bytes.extend(end);
        fs::write(&path, bytes).unwrap();
        let Some(file) = sound(&path, NpzFile::open(&path)) else { return };
        let names: Vec<String> = file.names().map(str::to_string).collect();
        for name in names {
            if let Some(member) = sound(&path, file.member(&name)) {
                read_array(&path, member);
            }
        }
        sound(&path, file.check());
    });
}

#[test]
fn of_lists_of_numbers() {
    let good = [&b"0\n0.5 # first\n1\n\n2e0\n"[..], b"# edges\n1e-3\n1e-2\n1e-1\n1\n10\n"].map(<[u8]>::to_vec);
    survive("mutants::of_lists_of_numbers", 300, &[], |copy, directory| {
        let path = directory.join("edges.txt");
        fs::write(&path, broken(&good, copy)).unwrap();
        if let Some(numbers) = sound(&path, read_numbers(&path)) {
            assert_eq!(numbers.values.len(), numbers.lines.len());
            drop(Bins::new(&numbers.values));
        }
    });
}

#[cfg(feature = "hdf5")]
mod hdf5 {
    use super::*;
    use hdf5_metno::file::{File, LibraryVersion};
    use hdf5_metno::{Group, H5Type};
    use meshloom::io::hdf5::{
        FilePart, Groups, Hdf5Contents, Hdf5Writer, Snapshot, SnapshotInfo, SnapshotRows, open_centers, part_path,
        read_groups, write_groups,
    };

    /// HDF5 1.10.8 divides by the sides of chunks before it or we can look at them (docs/files.md).
    const SIGFPE: i32 = 8;

    const INFO: SnapshotInfo = SnapshotInfo {
        count: 20,
        box_size: 10.0,
        scale_factor: 0.5,
        omega_m: 0.3,
        omega_b: 0.05,
        h: 0.7,
        omega_r: 0.0,
        dark_energy: [-1.0, 0.0],
    };

    fn list<T: H5Type>(at: &Group, name: &str, values: &[T]) {
        at.new_attr::<T>().shape(values.len()).create(name).unwrap().write_raw(values).unwrap();
    }

    /// A file of our own; `part` of `of`.
    fn ours(path: &Path, index: u64, of: u64) {
        let part = FilePart { index, of, count: 20 / of };
        let writer = Hdf5Writer::create(path, &Hdf5Contents::Snapshot { info: &INFO, part }, "t").unwrap();
        let rows = vec![[1.0, 2.0, 3.0]; part.count as usize];
        SnapshotRows { positions: &rows, velocities: &rows, ids: &vec![7; rows.len()] }.write(&writer, 0).unwrap();
        writer.seal().unwrap().publish().unwrap();
    }

    /// A file as other codes write them: in chunks with filters, or not; in the library's first or
    /// latest format.
    fn foreign(path: &Path, filters: bool, latest: bool) {
        let version = if latest { LibraryVersion::latest() } else { LibraryVersion::Earliest };
        let mut options = File::with_options();
        let file = options.with_fapl(|fapl| fapl.libver_bounds(version, LibraryVersion::latest()));
        let file = file.create(path).unwrap();
        let header = file.create_group("Header").unwrap();
        list(&header, "NumPart_ThisFile", &[0u32, 20, 0, 0, 0, 0]);
        list(&header, "NumPart_Total", &[0i64, 20, 0, 0, 0, 0]);
        list(&header, "NumPart_Total_HighWord", &[0u32; 6]);
        list(&header, "NumFilesPerSnapshot", &[1i32]);
        list(&header, "MassTable", &[0f64; 6]);
        list(&header, "BoxSize", &[10f32]);
        list(&header, "Time", &[0.5f64]);
        list(&header, "Redshift", &[1f64]);
        if latest {
            // Enough that they are kept in a heap.
            (0..9).for_each(|number| list(&header, &format!("Other{number}"), &[number]));
        }
        let group = file.create_group("PartType1").unwrap();
        let coordinates: Vec<f64> = (0..60).map(f64::from).collect();
        let builder = group.new_dataset::<f64>();
        let builder =
            if filters { builder.chunk([8, 3]).shuffle().deflate(4).fletcher32() } else { builder.chunk([7, 2]) };
        builder.shape([20, 3]).create("Coordinates").unwrap().write_raw(&coordinates).unwrap();
        let data = group.new_dataset::<f32>();
        data.shape([20, 3]).create("Velocities").unwrap().write_raw(&[0.5f32; 60]).unwrap();
        let data = group.new_dataset::<f32>().chunk([5]).scale_offset(hdf5_metno::filters::ScaleOffset::FloatDScale(2));
        data.shape([20]).create("Masses").unwrap().write_raw(&[2f32; 20]).unwrap();
        let data = group.new_dataset::<i64>().chunk([20]).nbit();
        data.shape([20]).create("ParticleIDs").unwrap().write_raw(&[9i64; 20]).unwrap();
    }

    fn read_snapshot(path: &Path) {
        // Of several files it may be the name of another that is given.
        let path = path.with_extension("").with_extension("");
        let file = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
        let given = file.filter(|path| path.extension().is_some_and(|e| e == "hdf5")).min().unwrap();
        let Some(snapshot) = sound(&path, Snapshot::open(&given)) else { return };
        let rows = 0..snapshot.count().min(1000);
        let wanted = (rows.end as usize, rows.end as usize * snapshot.dims());
        let is = |len: Option<usize>, wanted: usize| assert!(len.is_none_or(|len| len == wanted));
        is(sound(&path, snapshot.positions_f32(rows.clone())).map(|x| x.len()), wanted.1);
        is(sound(&path, snapshot.positions_f64(rows.clone())).map(|x| x.len()), wanted.1);
        is(sound(&path, snapshot.velocities_f32(rows.clone())).map(|x| x.len()), wanted.1);
        is(sound(&path, snapshot.masses_f32(rows.clone())).map(|x| x.len()), wanted.0);
        let pieces = sound(&path, snapshot.pieces("Coordinates", rows.clone(), 3)).unwrap_or_default();
        assert!(pieces.is_empty() || pieces.iter().map(|piece| piece.end - piece.start).sum::<u64>() == rows.end);
        is(sound(&path, snapshot.ids(rows)).map(|x| x.len()), wanted.0);
        for number in [snapshot.length_unit(), snapshot.hubble()] {
            assert!(sound(&path, number).flatten().is_none_or(|number| number > 0.0));
        }
        let sides = snapshot.box_size().unwrap_or_default();
        let moment = [snapshot.time(), snapshot.redshift()].map(Option::unwrap_or_default);
        assert!(sides.iter().all(|side| (0.0..f64::INFINITY).contains(side)) && moment.iter().all(|t| t.is_finite()));
    }

    /// Reads broken copies of a snapshot that `make` makes; of several files the last is broken.
    fn snapshots(test: &str, count: u64, names: &[&str], make: impl Fn(&Path)) {
        let good = OnceCell::new();
        survive(test, count, &[SIGFPE], |copy, directory| {
            let path = directory.join(names[names.len() - 1]);
            let good = good.get_or_init(|| {
                make(directory);
                // What is not broken is understood.
                assert_eq!(Snapshot::open(&path).unwrap().ids(0..20).unwrap().len(), 20);
                [fs::read(&path).unwrap()]
            });
            fs::write(&path, broken(good, copy)).unwrap();
            read_snapshot(&path);
        });
    }

    #[test]
    fn of_our_snapshots() {
        snapshots("mutants::hdf5::of_our_snapshots", 500, &["s.hdf5"], |directory| {
            ours(&directory.join("s.hdf5"), 0, 1)
        });
    }

    #[test]
    fn of_one_of_several_files() {
        snapshots("mutants::hdf5::of_one_of_several_files", 200, &["s.0.hdf5", "s.1.hdf5"], |directory| {
            (0..2).for_each(|index| ours(&part_path(directory.join("s.hdf5"), index), index, 2));
        });
    }

    #[test]
    fn of_foreign_snapshots() {
        snapshots("mutants::hdf5::of_foreign_snapshots", 300, &["s.hdf5"], |d| {
            foreign(&d.join("s.hdf5"), false, false)
        });
    }

    #[test]
    fn of_compressed_snapshots() {
        snapshots("mutants::hdf5::of_compressed_snapshots", 300, &["s.hdf5"], |d| {
            foreign(&d.join("s.hdf5"), true, false)
        });
    }

    #[test]
    fn of_the_latest_format() {
        snapshots("mutants::hdf5::of_the_latest_format", 200, &["s.hdf5"], |d| foreign(&d.join("s.hdf5"), true, true));
    }

    #[test]
    fn of_groups() {
        let groups = Groups {
            label: &[17, 3],
            count: &[3, 2],
            mass: &[3.5, 2.25],
            center: &[[1.0, 2.0, 3.0], [9.0, 0.5, 7.0]],
            velocity: Some(&[[100.0, -200.0, 300.0], [0.0, 1.0, 2.0]]),
            inertia_radius: &[0.1, 0.2],
            velocity_dispersion: Some(&[50.0, 60.0]),
            max_radius: &[0.3, 0.4],
            scale_factor: None,
            spheres: &[],
            offset: &[0, 3, 5],
            members: Some(&[17, 20, 1 << 40, 3, 4]),
        };
        let good = OnceCell::new();
        survive("mutants::hdf5::of_groups", 300, &[], |copy, directory| {
            let path = directory.join("groups.hdf5");
            let good = good.get_or_init(|| {
                write_groups(&path, &INFO, &groups).unwrap();
                [fs::read(&path).unwrap()]
            });
            fs::write(&path, broken(good, copy)).unwrap();
            sound(&path, read_groups(&path));
            if let Some(centers) = sound(&path, open_centers(&path)).flatten() {
                let rows = 0..centers.count().min(1000);
                let values = sound(&path, centers.positions_f64(rows.clone()));
                assert!(values.is_none_or(|values| values.len() == rows.end as usize * centers.dims()));
                sound(&path, centers.length_unit());
            }
        });
    }
}
