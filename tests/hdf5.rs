//! Snapshots and group catalogs in HDF5: what is written comes back, on any number of ranks;
//! other codes' files are understood; broken ones are named.
#![cfg(feature = "hdf5")]

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use hdf5_metno::types::FixedAscii;
use hdf5_metno::{File, Group, H5Type};
use meshloom::Error;
use meshloom::comm::{Communicator, run_threads};
use meshloom::grid::split;
use meshloom::io::collective::seal_hdf5;
use meshloom::io::hdf5::{
    ConeInfo, ConeRows, FilePart, Files, GroupCatalog, Groups, GroupsPlace, Hdf5Contents, Hdf5Writer, Snapshot,
    SnapshotInfo, SnapshotOptions, SnapshotRows, SphereColumns, open_centers, part_path, read_groups, snapshot_paths,
    write_groups,
};
use meshloom::io::{Dtype, IoError, IoErrorKind, token};
use meshloom::pm::seal_snapshot_together;

/// A directory for one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("meshloom-hdf5-{}", token()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn info(count: u64) -> SnapshotInfo {
    SnapshotInfo {
        count,
        box_size: 100.0,
        scale_factor: 0.25,
        omega_m: 0.3,
        omega_b: 0.05,
        h: 0.7,
        omega_r: 0.0,
        dark_energy: [-1.0, 0.0],
    }
}

/// A number that depends on the row, the axis and what it is for.
fn number(row: u64, axis: usize, salt: u32) -> f32 {
    let mixed =
        (row as u32 ^ salt << 20).wrapping_mul(0x9e37_79b9).wrapping_add((axis as u32).wrapping_mul(0x85eb_ca6b));
    (mixed >> 8) as f32 / 65536.0
}

fn rows(rows: std::ops::Range<u64>, salt: u32) -> Vec<[f32; 3]> {
    rows.map(|row| [0, 1, 2].map(|axis| number(row, axis, salt))).collect()
}

fn id(row: u64) -> u64 {
    row + (7 << 40)
}

/// This rank's part of a snapshot, in pieces of 5 rows.
fn save(comm: &Communicator, path: &Path, files: Files, count: u64) -> Result<(), Error> {
    let own = split(count, comm.size() as u64, comm.rank() as u64);
    let sealed = seal_snapshot_together(comm, path, files, &info(count), own.end - own.start, |writer, first| {
        for start in own.clone().step_by(5) {
            let piece = start..own.end.min(start + 5);
            let ids: Vec<u64> = piece.clone().map(id).collect();
            let (positions, velocities) = (&rows(piece.clone(), 1)[..], &rows(piece, 2)[..]);
            SnapshotRows { positions, velocities, ids: &ids }.write(writer, first + start - own.start)?;
        }
        Ok(())
    })?;
    sealed.publish()?;
    comm.barrier()?;
    Ok(())
}

#[track_caller]
fn is_whole(snapshot: &Snapshot, count: u64) {
    assert_eq!((snapshot.count(), snapshot.dims(), snapshot.dtype()), (count, 3, Dtype::F32));
    assert_eq!(snapshot.positions_f32(0..count).unwrap(), rows(0..count, 1).as_flattened());
    assert_eq!(snapshot.velocities_f32(0..count).unwrap(), rows(0..count, 2).as_flattened());
    assert_eq!(snapshot.ids(0..count).unwrap(), (0..count).map(id).collect::<Vec<_>>());
    assert_eq!(snapshot.masses_f32(0..count).unwrap(), vec![info(count).particle_mass() as f32; count as usize]);
    assert_eq!(snapshot.box_size(), Some([100.0; 3]));
    assert_eq!((snapshot.time(), snapshot.redshift()), (Some(0.25), Some(3.0)));
    // Rows from the middle, which for several files cross their ends.
    for (start, end) in [(0, 0), (count / 3, count / 3), (count / 3, count - count / 4), (count, count)] {
        let part: Vec<f64> = rows(start..end, 1).as_flattened().iter().map(|&x| f64::from(x)).collect();
        assert_eq!(snapshot.positions_f64(start..end).unwrap(), part);
        assert_eq!(snapshot.ids(start..end).unwrap(), (start..end).map(id).collect::<Vec<_>>());
    }
    assert!(
        matches!(snapshot.positions_f32(0..count + 1), Err(IoError { kind: IoErrorKind::Misuse, ref message, .. }) if message.contains("was asked for"))
    );
    let backwards = std::ops::Range { start: 1, end: 0 };
    assert!(
        matches!(snapshot.masses_f32(backwards), Err(IoError { kind: IoErrorKind::Misuse, ref message, .. }) if message.contains("was asked for"))
    );
}

#[test]
fn one_file_is_the_same_bytes_for_every_number_of_ranks() {
    let scratch = Scratch::new();
    for count in [0, 1, 3, 11, 64] {
        let mut first = None;
        for ranks in 1..=4 {
            let path = scratch.file(&format!("{count}-{ranks}.hdf5"));
            run_threads(ranks, |comm| save(&comm, &path, Files::One, count)).unwrap();
            let bytes = fs::read(&path).unwrap();
            assert!(first.get_or_insert_with(|| bytes.clone()) == &bytes, "{count} particles on {ranks} ranks");
            let snapshot = Snapshot::open(&path).unwrap();
            assert_eq!((snapshot.paths().len(), snapshot.particle_type(), snapshot.path()), (1, 1, path.as_path()));
            is_whole(&snapshot, count);
            // Every rank its own rows, all at once.
            let parts = run_threads(ranks, |comm| {
                let own = split(count, comm.size() as u64, comm.rank() as u64);
                Snapshot::open(&path)?.positions_f32(own)
            });
            assert_eq!(parts.unwrap().concat(), rows(0..count, 1).as_flattened());
        }
    }
    assert_eq!(scratch.names().len(), 20);
}

#[test]
fn several_files_are_one_array_by_whichever_name() {
    let scratch = Scratch::new();
    // At most one file per rank: more than that are as many as ranks.
    for (ranks, most, count) in
        [(1, 4, 5), (2, 2, 11), (3, 9, 1), (4, 4, 0), (4, 4, 64), (4, 3, 64), (5, 2, 11), (3, 1, 7)]
    {
        let files = Files::Several(NonZero::new(most).unwrap());
        let parts = files.count(ranks);
        assert_eq!(parts, u64::from(most).min(ranks as u64));
        let whole = scratch.file(&format!("s{ranks}_{most}_{count}.0.hdf5"));
        run_threads(ranks, |comm| save(&comm, &whole, files, count)).unwrap();
        assert!(!whole.exists());
        assert!(!part_path(&whole, parts).exists());
        for name in (0..parts).map(|part| part_path(&whole, part)).chain([whole.clone()]) {
            let snapshot = Snapshot::open(&name).unwrap();
            assert_eq!(snapshot.paths().len() as u64, parts, "{}", name.display());
            is_whole(&snapshot, count);
        }
    }
}

#[test]
fn a_rank_that_fails_leaves_nothing_of_any() {
    for files in [Files::One, Files::Several(NonZero::<u32>::MAX), Files::Several(NonZero::new(2).unwrap())] {
        for failing in 0..3 {
            let scratch = Scratch::new();
            let path = scratch.file("s.hdf5");
            let error = run_threads(3, |comm| {
                let sealed = seal_snapshot_together(&comm, &path, files, &info(9), 3, |writer, first| {
                    let (positions, velocities) = (&rows(0..3, 1)[..], &rows(0..3, 2)[..]);
                    SnapshotRows { positions, velocities, ids: &[1, 2, 3] }.write(writer, first)?;
                    if comm.rank() == failing {
                        return Err(IoError::memory("of the test", 1).into());
                    }
                    Ok(())
                })?;
                Ok::<_, Error>(sealed.publish()?)
            })
            .unwrap_err();
            assert_eq!(error.rank, failing);
            assert!(error.to_string().contains("of the test"), "{error}");
            assert_eq!(scratch.names(), [""; 0], "{files:?}, rank {failing}");
        }
        // As does a number of particles that is not the header's.
        let scratch = Scratch::new();
        let result = run_threads(2, |comm| {
            seal_snapshot_together(&comm, &scratch.file("s.hdf5"), files, &info(9), 3, |_, _| Ok(())).map(drop)
        });
        assert!(result.unwrap_err().to_string().contains("has 6 rows over all ranks, but the header counts 9"));
        assert_eq!(scratch.names(), [""; 0]);
    }
}

#[test]
fn writers_refuse_what_does_not_fit() {
    let scratch = Scratch::new();
    let (path, info) = (scratch.file("s.hdf5"), info(4));
    let contents = Hdf5Contents::Snapshot { info: &info, part: FilePart::whole(&info) };
    let writer = Hdf5Writer::create(&path, &contents, "t").unwrap();
    let two = [[0.0; 3]; 2];
    let rows = SnapshotRows { positions: &two, velocities: &two, ids: &[0, 1] };
    assert!(rows.write(&writer, 3).unwrap_err().message.contains("range 9..15 was asked for, of only 12"));
    for wrong in [SnapshotRows { ids: &[0], ..rows }, SnapshotRows { velocities: &two[..1], ..rows }] {
        assert!(
            matches!(wrong.write(&writer, 0), Err(IoError { kind: IoErrorKind::Misuse, ref message, .. }) if message.contains("give arrays that belong together"))
        );
    }
    assert!(
        matches!(writer.write(2, 0, &[0f64]), Err(IoError { kind: IoErrorKind::ElementType, ref message, .. }) if message.contains("array `"))
    );
    assert!(
        matches!(Hdf5Writer::create(&path, &contents, "t"), Err(IoError { kind: IoErrorKind::InUse, ref message, .. }) if message.contains("exists already"))
    );
    let other = Hdf5Writer::open(&path, &contents, "t", writer.offsets()).unwrap();
    SnapshotRows { ids: &[8, 9], ..rows }.write(&other, 2).unwrap();
    other.seal().unwrap().publish().unwrap();
    assert_eq!(scratch.names().len(), 1, "the temporary alone");
    assert!(!path.exists());
    drop(writer);
    assert_eq!(scratch.names(), [""; 0]);

    let create = |path: &Path, info: &SnapshotInfo| {
        Hdf5Writer::create(path, &Hdf5Contents::Snapshot { info, part: FilePart::whole(info) }, "t").err()
    };
    assert!(
        matches!(create(Path::new("-"), &info), Some(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("standard output"))
    );
    assert!(
        matches!(create(&scratch.0, &info), Some(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("not a regular file"))
    );
    assert!(
        matches!(create(&scratch.file("no/s.hdf5"), &info), Some(IoError { kind: IoErrorKind::Write, ref message, .. }) if message.contains("cannot be created"))
    );
    assert!(matches!(
        create(&path, &SnapshotInfo { count: u64::MAX / 3, ..info }),
        Some(IoError { kind: IoErrorKind::Shape, .. })
    ));
    assert!(
        matches!(Hdf5Writer::open(&path, &contents, "other", &[0; 3]), Err(IoError { kind: IoErrorKind::Write, ref message, .. }) if message.contains("cannot be created"))
    );
    assert_eq!(scratch.names(), [""; 0]);
}

#[test]
fn units_follow_from_the_definitions() {
    // p = a^2 dx/dt in H0 Mpc/h = 100 km/s: at a = 1/4 the peculiar velocity a dx/dt of p = 1 is
    // 400 km/s.
    let info = info(1000);
    assert_eq!(info.gadget_velocity(1.0), 800.0);
    // 0.3 of the critical density 3 (100 km/s/Mpc)^2 / (8 pi G) in 10 Mpc/h cubed a particle; G in
    // (km/s)^2 kpc/Msun.
    let critical = 3.0 * 0.1f64.powi(2) / (8.0 * std::f64::consts::PI * 4.300_917e-6);
    let wanted = 0.3 * critical * 1e4f64.powi(3) / 1e10;
    assert!((info.particle_mass() / wanted - 1.0).abs() < 1e-6, "{} {wanted}", info.particle_mass());
}

/// A file of another code's: a header of these particles, and an empty group for each type that has
/// some.
struct Foreign {
    file: File,
    header: Group,
}

impl Foreign {
    fn new(path: &Path, here: &[u32], total: &[u32], files: i32) -> Self {
        let file = File::create(path).unwrap();
        let header = file.create_group("Header").unwrap();
        let foreign = Foreign { file, header };
        foreign.list("NumPart_ThisFile", here);
        foreign.list("NumPart_Total", total);
        foreign.scalar("NumFilesPerSnapshot", files);
        for (number, _) in here.iter().enumerate().filter(|(_, n)| **n > 0) {
            foreign.file.create_group(&format!("PartType{number}")).unwrap();
        }
        foreign
    }

    fn list<T: H5Type>(&self, name: &str, values: &[T]) -> &Self {
        self.header.new_attr::<T>().shape(values.len()).create(name).unwrap().write_raw(values).unwrap();
        self
    }

    fn scalar<T: H5Type>(&self, name: &str, value: T) -> &Self {
        self.header.new_attr::<T>().create(name).unwrap().write_scalar(&value).unwrap();
        self
    }

    fn data<T: H5Type>(&self, name: &str, shape: &[usize], values: &[T]) -> &Self {
        let dataset = self.file.new_dataset::<T>().shape(shape.to_vec()).create(name).unwrap();
        dataset.write_raw(values).unwrap();
        self
    }
}

#[test]
fn velocities_become_peculiar_ones_in_km_s() {
    let scratch = Scratch::new();
    // Attributes of the dataset, the unit of the file in cm/s; the factor at a = 1/4.
    let cases: [(&[(&str, f64)], Option<f64>, Option<(f64, bool)>); 6] = [
        (&[("a_scaling", 0.5), ("to_cgs", 1e5)], None, Some((0.5, true))),
        // In m/s, and in SWIFT's words.
        (&[("a_scaling", 0.5), ("to_cgs", 100.0)], Some(1e5), Some((0.0005, true))),
        (
            &[("a-scale exponent", 0.0), ("Conversion factor to CGS (not including cosmological corrections)", 2e5)],
            None,
            Some((2.0, true)),
        ),
        // The file's unit, where the dataset says none; no unit at all; and no power of a.
        (&[("a_scaling", 0.5), ("to_cgs", 0.0)], Some(1e6), Some((5.0, true))),
        (&[("a_scaling", 0.5)], None, Some((0.5, false))),
        (&[("to_cgs", 1e5)], Some(1e5), None),
    ];
    for (case, (attributes, unit, wanted)) in cases.into_iter().enumerate() {
        let path = scratch.file(&format!("case{case}.hdf5"));
        let foreign = Foreign::new(&path, &[0, 1], &[0, 1], 1);
        foreign.scalar("Redshift", 3.0f64).data("PartType1/Coordinates", &[1, 3], &[0.5f32; 3]);
        foreign.data("PartType1/Velocities", &[1, 3], &[8.0f32; 3]);
        let velocities = foreign.file.dataset("PartType1/Velocities").unwrap();
        for (name, value) in attributes {
            velocities.new_attr::<f64>().create(*name).unwrap().write_scalar(value).unwrap();
        }
        let parameters = foreign.file.create_group("Parameters").unwrap();
        if let Some(unit) = unit {
            parameters.new_attr::<f64>().create("UnitVelocity_in_cm_per_s").unwrap().write_scalar(&unit).unwrap();
        }
        drop(foreign);
        let found = Snapshot::open(&path).unwrap().velocity_unit().unwrap();
        assert_eq!(found.map(|unit| (unit.factor, unit.km_s)), wanted, "case {case}");
    }
}

#[test]
fn the_background_is_that_of_swift_or_gadget() {
    let scratch = Scratch::new();
    // Attributes by group; Omega_m, Omega_r, Omega_de, w0 and wa, and Omega_m at a = 1/2 by the
    // Friedmann equation.
    type Case<'a> = (&'a [(&'a str, &'a [(&'a str, f64)])], Option<([f64; 5], f64)>);
    let flat = 0.3 * 8.0 / (0.3 * 8.0 + 0.7);
    let cases: [Case<'_>; 8] = [
        (&[("Header", &[("Omega0", 0.3), ("OmegaLambda", 0.7)])], Some(([0.3, 0.0, 0.7, -1.0, 0.0], flat))),
        // GIZMO's names.
        (
            &[("Header", &[("Omega_Matter", 0.3), ("Omega_Lambda", 0.6), ("Omega_Radiation", 0.1)])],
            Some(([0.3, 0.1, 0.6, -1.0, 0.0], 2.4 / (2.4 + 1.6 + 0.6))),
        ),
        // Gadget-4's parameters, an open universe: the rest is curvature.
        (
            &[("Parameters", &[("Omega0", 0.3), ("OmegaLambda", 0.5), ("ComovingIntegrationOn", 1.0)])],
            Some(([0.3, 0.0, 0.5, -1.0, 0.0], 2.4 / (2.4 + 0.5 + 0.2 * 4.0))),
        ),
        // SWIFT's group goes first; w = -2/3 falls as 1/a.
        (
            &[
                ("Header", &[("Omega0", 0.3), ("OmegaLambda", 0.6)]),
                ("Cosmology", &[("Omega_m", 0.3), ("Omega_lambda", 0.6), ("Omega_r", 0.1), ("w_0", -2.0 / 3.0)]),
            ],
            Some(([0.3, 0.1, 0.6, -2.0 / 3.0, 0.0], 2.4 / (2.4 + 1.6 + 1.2))),
        ),
        // Runs without a cosmology, in the words of each, and no words.
        (&[("Cosmology", &[("Omega_m", 0.3), ("Omega_lambda", 0.7), ("Cosmological run", 0.0)])], None),
        (&[("Parameters", &[("Omega0", 0.3), ("OmegaLambda", 0.7), ("ComovingIntegrationOn", 0.0)])], None),
        (&[("Header", &[("Omega0", 0.0), ("OmegaLambda", 0.0)])], None),
        (&[], None),
    ];
    for (case, (groups, wanted)) in cases.into_iter().enumerate() {
        let path = scratch.file(&format!("case{case}.hdf5"));
        let foreign = Foreign::new(&path, &[0, 1], &[0, 1], 1);
        foreign.scalar("Redshift", 1.0f64).data("PartType1/Coordinates", &[1, 3], &[0.5f32; 3]);
        for (group, attributes) in groups {
            let group = foreign.file.group(group).or_else(|_| foreign.file.create_group(group)).unwrap();
            for (name, value) in *attributes {
                group.new_attr::<f64>().create(*name).unwrap().write_scalar(value).unwrap();
            }
        }
        drop(foreign);
        let snapshot = Snapshot::open(&path).unwrap();
        let a = snapshot.scale_factor().unwrap();
        let found = snapshot.background().unwrap();
        let numbers = |of: meshloom::io::hdf5::Background| {
            ([of.omega_m, of.omega_r, of.omega_de, of.dark_energy[0], of.dark_energy[1]], of.matter_fraction(a))
        };
        let (found, wanted) = (found.map(numbers), wanted);
        assert_eq!(found.map(|found| found.0), wanted.map(|wanted| wanted.0), "case {case}");
        if let (Some((_, found)), Some((_, wanted))) = (found, wanted) {
            assert!((found / wanted - 1.0).abs() < 1e-14, "case {case}: {found} {wanted}");
        }
    }
    let path = scratch.file("wrong.hdf5");
    let foreign = Foreign::new(&path, &[0, 1], &[0, 1], 1);
    foreign.list("Omega0", &[0.3f64, 0.4]).data("PartType1/Coordinates", &[1, 3], &[0.5f32; 3]);
    drop(foreign);
    let error = Snapshot::open(&path).unwrap().background().unwrap_err().to_string();
    assert!(error.contains("Header/Omega0 has 2 values"), "{error}");
}

#[test]
fn files_of_other_codes_are_understood() {
    let scratch = Scratch::new();
    // Gadget's: a box with one side, masses by particle, 32-bit ids, gas beside.
    let path = scratch.file("gadget.hdf5");
    Foreign::new(&path, &[1, 2, 0, 0, 0, 0], &[1, 2, 0, 0, 0, 0], 1)
        .scalar("BoxSize", 50.0f64)
        .scalar("Time", 0.5f64)
        .list("MassTable", &[0.0f64; 6])
        .data("PartType0/Coordinates", &[1, 3], &[9.0f32; 3])
        .data("PartType1/Coordinates", &[2, 3], &[0.1f64, 0.2, 0.3, 1e300, 0.5, 0.6])
        .data("PartType1/Masses", &[2], &[1.5f32, 2.5])
        .data("PartType1/ParticleIDs", &[2], &[7u32, u32::MAX]);
    let snapshot = Snapshot::open(&path).unwrap();
    assert_eq!((snapshot.count(), snapshot.dtype(), snapshot.particle_type()), (2, Dtype::F64, 1));
    assert_eq!((snapshot.box_size(), snapshot.time(), snapshot.redshift()), (Some([50.0; 3]), Some(0.5), None));
    assert_eq!(snapshot.positions_f64(0..2).unwrap(), [0.1, 0.2, 0.3, 1e300, 0.5, 0.6]);
    assert_eq!(snapshot.positions_f32(0..1).unwrap(), [0.1, 0.2, 0.3]);
    match snapshot.positions_f32(0..2) {
        Err(error) => assert!(error.message.starts_with("the element at (1, 0) is 1e300, beyond the range of f32")),
        other => panic!("{other:?}"),
    }
    assert_eq!(snapshot.masses_f32(0..2).unwrap(), [1.5, 2.5]);
    assert_eq!(snapshot.ids(0..2).unwrap(), [7, u64::from(u32::MAX)]);
    let error = snapshot.velocities_f32(0..2).unwrap_err();
    assert!(
        matches!(error, IoError { kind: IoErrorKind::Missing, ref message, .. } if message.contains("has no array"))
    );
    assert!(error.to_string().contains("Coordinates, Masses, ParticleIDs"), "{error}");

    // SWIFT's: lists of one value, seven types, three sides, signed ids, compressed chunks.
    let path = scratch.file("swift.h5");
    let foreign = Foreign::new(&path, &[0, 0, 4, 0, 0, 0, 0], &[0, 0, 4, 0, 0, 0, 0], 1);
    foreign
        .list("BoxSize", &[10.0f64, 20.0, 30.0])
        .list("Redshift", &[2.0f64])
        .list("NumPart_Total_HighWord", &[0u32; 7]);
    let coordinates: Vec<f32> = (0..12).map(|x| x as f32).collect();
    let builder = foreign.file.new_dataset::<f32>().chunk([3, 3]).shuffle().deflate(4);
    builder.shape([4, 3]).create("PartType2/Coordinates").unwrap().write_raw(&coordinates).unwrap();
    foreign.data("PartType2/ParticleIDs", &[4], &[1i64, 2, 3, 1 << 40]);
    drop(foreign);
    let snapshot = Snapshot::open(&path).unwrap();
    assert_eq!((snapshot.particle_type(), snapshot.box_size()), (2, Some([10.0, 20.0, 30.0])));
    assert_eq!((snapshot.time(), snapshot.redshift()), (None, Some(2.0)));
    assert_eq!(snapshot.positions_f32(1..4).unwrap(), coordinates[3..]);
    assert_eq!(snapshot.ids(2..4).unwrap(), [3, 1 << 40]);

    // Two axes in open space.
    let path = scratch.file("plane.hdf5");
    Foreign::new(&path, &[0, 2], &[0, 2], 1).scalar("BoxSize", 0.0f64).data(
        "PartType1/Coordinates",
        &[2, 2],
        &[1.0f32, 2.0, 3.0, 4.0],
    );
    let snapshot = Snapshot::open(&path).unwrap();
    assert_eq!((snapshot.dims(), snapshot.box_size()), (2, None));
    assert_eq!(snapshot.positions_f64(1..2).unwrap(), [3.0, 4.0]);

    // Gadget leaves out the groups of types that a file has no particles of; and counts beyond 32
    // bits in two words.
    for (part, count) in [(0, 0), (1, 3), (2, 1)] {
        let foreign = Foreign::new(&scratch.file(&format!("g.{part}.hdf5")), &[0, count], &[0, 4], 3);
        if count > 0 {
            let x = vec![part as f32; 3 * count as usize];
            foreign.data("PartType1/Coordinates", &[count as usize, 3], &x);
        }
    }
    let snapshot = Snapshot::open(scratch.file("g.hdf5")).unwrap();
    assert_eq!((snapshot.count(), snapshot.paths().len()), (4, 3));
    assert_eq!(snapshot.positions_f32(2..4).unwrap(), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
}

/// A filter that leaves chunks as they are and counts those that are read.
mod counted {
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hdf5_metno_sys::LOCK;
    use hdf5_metno_sys::h5z::{H5Z_CLASS_T_VERS, H5Z_FLAG_REVERSE, H5Z_class2_t, H5Zregister, H5Zunregister};

    pub const NUMBER: i32 = 301;
    static READ: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn pass(
        flags: u32,
        _: usize,
        _: *const u32,
        bytes: usize,
        _: *mut usize,
        _: *mut *mut c_void,
    ) -> usize {
        READ.fetch_add(usize::from(flags & H5Z_FLAG_REVERSE != 0), Ordering::Relaxed);
        bytes
    }

    pub fn register() {
        let class = H5Z_class2_t {
            version: H5Z_CLASS_T_VERS as i32,
            id: NUMBER,
            encoder_present: 1,
            decoder_present: 1,
            name: c"counted".as_ptr(),
            can_apply: None,
            set_local: None,
            filter: Some(pass),
        };
        let _library = LOCK.lock();
        // SAFETY: the class is whole, the library copies it, and the function lives as long as the
        // program.
        assert!(unsafe { H5Zregister((&raw const class).cast()) } >= 0);
    }

    pub fn unregister() {
        let _library = LOCK.lock();
        // SAFETY: no other thread is in the library, and no file that uses the filter is open.
        assert!(unsafe { H5Zunregister(NUMBER) } >= 0);
    }

    /// Chunks that were read since the last call.
    pub fn take() -> usize {
        READ.swap(0, Ordering::Relaxed)
    }
}

#[test]
fn a_rank_decompresses_each_chunk_once_and_says_which_filter_is_missing() {
    let scratch = Scratch::new();
    counted::register();
    // Two files of 20 rows, in chunks of 8 and fewer rows.
    let place = |row: usize| [row as f32, 0.5 * row as f32, 7.0];
    for part in 0..2 {
        let path = scratch.file(&format!("s.{part}.hdf5"));
        let foreign = Foreign::new(&path, &[0, 20], &[0, 40], 2);
        foreign.data("PartType1/Velocities", &[20, 3], &[0.0f32; 60]);
        let rows: Vec<f32> = (20 * part..20 * (part + 1)).flat_map(place).collect();
        let builder = foreign.file.new_dataset::<f32>().chunk([8, 3]).add_filter(counted::NUMBER, &[]);
        builder.shape([20, 3]).create("PartType1/Coordinates").unwrap().write_raw(&rows).unwrap();
    }
    let snapshot = Snapshot::open(scratch.file("s.0.hdf5")).unwrap();
    counted::take();
    for (rows, each, chunks) in [(0..40, 5, 6), (0..40, 12, 6), (0..40, 1000, 6), (11..33, 3, 4)] {
        let pieces = snapshot.pieces("Coordinates", rows.clone(), each).unwrap();
        let mut found = Vec::new();
        for piece in pieces {
            assert!(piece.end - piece.start <= each.max(8));
            found.extend(snapshot.positions_f64(piece).unwrap());
        }
        let wanted: Vec<f64> = rows.clone().flat_map(|row| place(row as usize).map(f64::from)).collect();
        assert_eq!(found, wanted);
        assert_eq!(counted::take(), chunks, "{rows:?} by {each}");
    }
    // Where nothing is compressed there is nothing to wait for.
    assert_eq!(snapshot.pieces("Velocities", 0..40, 16).unwrap(), [0..16, 16..32, 32..40]);

    counted::unregister();
    match Snapshot::open(scratch.file("s.0.hdf5")) {
        Err(error @ IoError { kind: IoErrorKind::Unsupported, .. }) => {
            let text = error.to_string();
            for word in ["s.0.hdf5/PartType1/Coordinates", "filter 301 (counted)", "HDF5_PLUGIN_PATH"] {
                assert!(text.contains(word), "{word}: {text}");
            }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn centres_of_groups_are_points() {
    let scratch = Scratch::new();
    let path = scratch.file("halos.0.hdf5");
    write_groups(&path, &info(8), &groups()).unwrap();
    let centers = open_centers(&path).unwrap().unwrap();
    let wanted: Vec<f64> = groups().center.as_flattened().iter().map(|&x| f64::from(x)).collect();
    let count = centers.count();
    assert_eq!((centers.dataset(), centers.dims(), count), ("Group/GroupPos", 3, groups().label.len() as u64));
    assert_eq!(centers.positions_f64(0..count).unwrap(), wanted);
    assert_eq!(centers.positions_f64(1..2).unwrap(), wanted[3..6]);
    assert_eq!(
        (centers.sides(), centers.scale_factor(), centers.hubble().unwrap()),
        (Some([100.0; 3]), Some(0.25), Some(0.7))
    );
    // Mpc/h, as it is written for Gadget-4 and for SWIFT.
    let unit = 3.085_677_581_491_367e24 / 0.7;
    assert!((centers.length_unit().unwrap().unwrap() / unit - 1.0).abs() < 1e-12);
    assert!(
        matches!(centers.positions_f64(0..count + 1), Err(IoError { kind: IoErrorKind::Misuse, ref message, .. }) if message.contains("was asked for"))
    );
    // A snapshot is none, nor is what is not there or no HDF5.
    save_empty(&scratch.file("snapshot.hdf5"));
    fs::write(scratch.file("text.hdf5"), "no HDF5").unwrap();
    for other in ["snapshot.hdf5", "text.hdf5", "none.hdf5"] {
        assert!(open_centers(scratch.file(other)).unwrap().is_none(), "{other}");
    }
}

/// A catalog of several files, one of which has no groups and no dataset, as Gadget-4 writes
/// them.
#[test]
fn centres_of_groups_are_read_from_several_files() {
    let scratch = Scratch::new();
    let (part, rows) = (|index: u64| scratch.file(&format!("halos.{index}.hdf5")), groups().label.len());
    let header = |path: &Path, name: &str, value: u64| {
        let file = File::open_rw(path).unwrap();
        let header = file.group("Header").unwrap();
        header.delete_attr(name).unwrap();
        header.new_attr::<u64>().create(name).unwrap().write_scalar(&value).unwrap();
    };
    for index in 0..3 {
        write_groups(part(index), &info(8), &groups()).unwrap();
        header(&part(index), "NumFiles", 3);
        header(&part(index), "Ngroups_Total", 2 * rows as u64);
    }
    header(&part(1), "Ngroups_ThisFile", 0);
    File::open_rw(part(1)).unwrap().unlink("Group").unwrap();

    let wanted = groups().center.as_flattened().repeat(2);
    for name in ["halos.0.hdf5", "halos.1.hdf5", "halos.2.hdf5", "halos.hdf5"] {
        let centers = open_centers(scratch.file(name)).unwrap().unwrap();
        assert_eq!((centers.count(), centers.paths().count(), centers.dims()), (2 * rows as u64, 3, 3), "{name}");
        assert_eq!(centers.positions_f32(0..2 * rows as u64).unwrap(), wanted, "{name}");
        let across = rows as u64 - 1..rows as u64 + 1;
        assert_eq!(centers.positions_f32(across).unwrap(), wanted[3 * rows - 3..3 * rows + 3], "{name}");
        assert!(centers.length_unit().unwrap().is_some(), "{name}");
    }

    let told = |words: &[&str]| {
        let error = open_centers(part(0)).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
    };
    header(&part(2), "Time", 1);
    header(&part(2), "Redshift", 0);
    told(&["halos.2.hdf5", "another catalog than", "halos.0.hdf5", "times differ"]);
    fs::remove_file(part(2)).unwrap();
    told(&["halos.0.hdf5", "one of 3 files of a catalog", "halos.2.hdf5", "put all beside it"]);
    fs::copy(part(0), part(2)).unwrap();
    header(&part(1), "Ngroups_ThisFile", 1);
    told(&["halos.1.hdf5", "Ngroups_ThisFile counts 1 groups, but there are 0 centers"]);
    header(&part(1), "Ngroups_ThisFile", 0);
    for index in 0..3 {
        header(&part(index), "Ngroups_Total", 7);
    }
    told(&["Ngroups_Total counts 7 groups, but its 3 files have 4"]);
    for index in 0..3 {
        header(&part(index), "NumFiles", 4);
    }
    told(&["one of 4 files of a catalog", "halos.3.hdf5"]);
    fs::rename(part(0), scratch.file("halos.hdf5")).unwrap();
    let error = open_centers(scratch.file("halos.hdf5")).unwrap_err().to_string();
    assert!(error.contains("names must end in .0, .1, ..."), "{error}");
}

fn open_type(path: &Path, kind: usize) -> Result<Snapshot, IoError> {
    Snapshot::open_with(path, SnapshotOptions { particle_type: Some(kind), ..SnapshotOptions::default() })
}

/// A snapshot without particles.
fn save_empty(path: &Path) {
    let contents = Hdf5Contents::Snapshot { info: &info(0), part: FilePart::whole(&info(0)) };
    Hdf5Writer::create(path, &contents, &token()).unwrap().seal().unwrap().publish().unwrap();
}

#[test]
fn particles_of_any_type_can_be_chosen() {
    let scratch = Scratch::new();
    // Gas with masses of its own, dark matter of one mass, stars in the second file alone.
    let place = |kind: usize, row: usize| [kind as f32, row as f32, 0.5];
    for (part, counts) in [(0, [2u32, 3, 0, 0, 0, 0]), (1, [1, 0, 0, 0, 2, 0])] {
        let foreign = Foreign::new(&scratch.file(&format!("s.{part}.hdf5")), &counts, &[3, 3, 0, 0, 2, 0], 2);
        foreign.list("MassTable", &[0.0f64, 7.0, 0.0, 0.0, 0.0, 0.0]);
        for (kind, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (count, first) = (*count as usize, if part == 1 && kind == 0 { 2 } else { 0 });
            let rows: Vec<f32> = (first..first + count).flat_map(|row| place(kind, row)).collect();
            // Masses of the table may stand with the particles, too.
            let mass = |row: usize| if kind == 1 { 7.0 } else { (10 * kind + row) as f32 };
            let masses: Vec<f32> = (first..first + count).map(mass).collect();
            foreign.data(&format!("PartType{kind}/Coordinates"), &[count, 3], &rows);
            foreign.data(&format!("PartType{kind}/Masses"), &[count], &masses);
        }
    }
    let path = scratch.file("s.1.hdf5");
    for (kind, masses) in [(0, &[0.0f32, 1.0, 2.0][..]), (1, &[7.0; 3]), (4, &[40.0, 41.0])] {
        let snapshot = open_type(&path, kind).unwrap();
        let all = masses.len() as u64;
        assert_eq!((snapshot.particle_type(), snapshot.count(), snapshot.paths().len()), (kind, all, 2));
        let rows: Vec<f32> = (0..masses.len()).flat_map(|row| place(kind, row)).collect();
        assert_eq!(snapshot.positions_f32(0..all).unwrap(), rows);
        assert_eq!(snapshot.masses_f32(0..all).unwrap(), masses);
    }
    assert_eq!(Snapshot::open(&path).unwrap().particle_type(), 1);
    match open_type(&path, 5) {
        Err(IoError { kind: IoErrorKind::Missing, message, .. }) => {
            assert!(message.starts_with("no particles of type 5 have coordinates (PartType5/"), "{message}");
            assert!(message.ends_with("those of types 0, 1 and 4 do; choose one of these types"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(snapshot_paths(&path).unwrap(), [scratch.file("s.0.hdf5"), scratch.file("s.1.hdf5")]);
    // No particles at all have any type.
    let path = scratch.file("empty.hdf5");
    Foreign::new(&path, &[0; 6], &[0; 6], 1);
    assert_eq!(open_type(&path, 4).unwrap().count(), 0);
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    let scratch = Scratch::new();
    #[track_caller]
    fn wrong(path: impl AsRef<Path>, words: &[&str]) -> IoError {
        let error = Snapshot::open(path.as_ref()).unwrap_err();
        for word in words {
            assert!(error.to_string().contains(word), "`{word}` is missing: {error}");
        }
        error
    }
    let coordinates = |types: &[usize], path: &Path| {
        let mut here = vec![0u32; 6];
        types.iter().for_each(|&number| here[number] = 1);
        let foreign = Foreign::new(path, &here, &here, 1);
        for number in types {
            foreign.data(&format!("PartType{number}/Coordinates"), &[1, 3], &[0.5f32; 3]);
        }
    };
    let path = scratch.file("s.hdf5");
    assert!(
        matches!(wrong("-", &[]), IoError { kind: IoErrorKind::FileType, ref message, .. } if message.contains("standard input"))
    );
    assert!(matches!(wrong(&path, &[]), IoError { kind: IoErrorKind::NotFound, .. }));
    assert!(
        matches!(wrong(&scratch.0, &[]), IoError { kind: IoErrorKind::FileType, ref message, .. } if message.contains("not a regular file"))
    );
    for bytes in [&b""[..], b"not HDF5", b"\x89HDF\r\n\x1a\n", &[0; 4096]] {
        fs::write(&path, bytes).unwrap();
        assert!(
            matches!(wrong(&path, &["s.hdf5", "copy or write it again"]), IoError { kind: IoErrorKind::Format, ref message, .. } if message.contains("not an HDF5"))
        );
    }
    drop(File::create(&path).unwrap());
    wrong(&path, &["no group Header"]);
    coordinates(&[], &path);
    assert_eq!(Snapshot::open(&path).unwrap().count(), 0);
    Foreign::new(&path, &[0, 1], &[0, 1], 1);
    let none = wrong(&path, &["no particles have coordinates", "is it a snapshot"]);
    assert!(matches!(none, IoError { kind: IoErrorKind::Missing, .. }), "{none}");
    coordinates(&[0, 1, 4], &path);
    assert_eq!(Snapshot::open(&path).unwrap().particle_type(), 1);
    coordinates(&[4], &path);
    assert_eq!(Snapshot::open(&path).unwrap().particle_type(), 4);
    coordinates(&[0, 4, 5], &path);
    let several = wrong(&path, &["type 1", "types 0, 4 and 5 do", "choose one of these types"]);
    assert_eq!(several.kind, IoErrorKind::Missing, "{several}");
    assert!(!several.to_string().contains("not an HDF5 file"), "the file is sound: {several}");
    Foreign::new(&path, &[0, 2], &[0, 2], 1).data("PartType1/Coordinates", &[1, 3], &[0.5f32; 3]);
    wrong(&path, &["NumPart_ThisFile counts 2 particles", "has 1"]);
    Foreign::new(&path, &[0, 1], &[0, 2], 1).data("PartType1/Coordinates", &[1, 3], &[0.5f32; 3]);
    wrong(&path, &["NumPart_Total counts 2 particles", "has 1"]);
    Foreign::new(&path, &[0, 1], &[0, 1], 1).data("PartType1/Coordinates", &[1, 4], &[0.5f32; 4]);
    assert!(matches!(wrong(&path, &["(1, 4)", "(N, 3) or (N, 2)"]), IoError { kind: IoErrorKind::Shape, .. }));
    Foreign::new(&path, &[0, 1], &[0, 1], 1).data("PartType1/Coordinates", &[1, 3], &[5i32; 3]);
    assert!(
        matches!(wrong(&path, &["int32", "float32 or float64"]), IoError { kind: IoErrorKind::ElementType, ref message, .. } if message.contains("has elements of type"))
    );

    // One of several files.
    Foreign::new(&path, &[0, 1], &[0, 2], 2).data("PartType1/Coordinates", &[1, 3], &[0.5f32; 3]);
    wrong(&path, &["one of 2 files", "must end in .0, .1"]);
    let [first, second] = [0, 1].map(|part| part_path(&path, part));
    fs::copy(&path, &first).unwrap();
    fs::remove_file(&path).unwrap();
    wrong(&path, &["s.0.hdf5", "one of 2 files", "s.1.hdf5 is not there"]);
    Foreign::new(&second, &[0, 1], &[0, 2], 3).data("PartType1/Coordinates", &[1, 3], &[0.5f32; 3]);
    wrong(&path, &["s.1.hdf5", "belongs to another snapshot", "older run"]);
    Foreign::new(&second, &[0, 1], &[0, 2], 2).data("PartType1/Coordinates", &[1, 2], &[0.5f32; 2]);
    assert!(matches!(wrong(&path, &["as the files before it"]), IoError { kind: IoErrorKind::Shape, .. }));
    let right = || {
        let foreign = Foreign::new(&second, &[0, 1], &[0, 2], 2);
        foreign.data("PartType1/Coordinates", &[1, 3], &[0.5f32; 3]);
        foreign
    };
    right().scalar("Time", 0.5f64);
    wrong(&path, &["s.1.hdf5", "belongs to another snapshot", "times differ"]);
    right().scalar("BoxSize", 5.0f64);
    wrong(&path, &["s.1.hdf5", "belongs to another snapshot", "boxes or masses differ"]);
    drop(right());
    assert_eq!(Snapshot::open(&path).unwrap().count(), 2);
}

/// A part of a larger snapshot, saved with the header of that.
#[test]
fn coordinates_are_trusted_where_that_is_asked_for() {
    let scratch = Scratch::new();
    let path = scratch.file("cut.hdf5");
    Foreign::new(&path, &[0, 1000], &[0, 8000], 1).data("PartType1/Coordinates", &[2, 3], &[0.5f32; 6]).data(
        "PartType1/Masses",
        &[2],
        &[1.0f32, 2.0],
    );
    match Snapshot::open(&path).unwrap_err() {
        error @ IoError { kind: IoErrorKind::ParticleCount, .. } => {
            let text = error.to_string();
            assert!(
                text.contains("counts 1000 particles of type 1, but PartType1/Coordinates has 2;")
                    && text.contains("a part of a larger snapshot")
                    && text.contains("trusting the coordinates"),
                "{text}"
            );
        }
        error => panic!("{error}"),
    }
    let trusted = SnapshotOptions { trust_coordinates: true, ..SnapshotOptions::default() };
    let snapshot = Snapshot::open_with(&path, trusted).unwrap();
    assert_eq!((snapshot.count(), snapshot.masses_f32(0..2).unwrap()), (2, vec![1.0, 2.0]));
    // Other arrays must have as many rows.
    Foreign::new(&path, &[0, 3], &[0, 3], 1).data("PartType1/Coordinates", &[2, 3], &[0.5f32; 6]).data(
        "PartType1/Masses",
        &[3],
        &[1.0f32; 3],
    );
    let error = Snapshot::open_with(&path, trusted).unwrap().masses_f32(0..2).unwrap_err();
    assert!(matches!(error, IoError { kind: IoErrorKind::Shape, .. }), "{error}");
}

/// Two numbers for one fact must agree.
#[test]
fn contradictions_within_a_file_are_errors() {
    let scratch = Scratch::new();
    let path = scratch.file("s.hdf5");
    let new = || {
        let foreign = Foreign::new(&path, &[0, 2], &[0, 2], 1);
        foreign.data("PartType1/Coordinates", &[2, 3], &[0.5f32; 6]);
        foreign
    };
    let group = |foreign: &Foreign, name: &str, attributes: &[(&str, f64)]| {
        let group = foreign.file.create_group(name).unwrap();
        for (name, value) in attributes {
            group.new_attr::<f64>().create(*name).unwrap().write_scalar(value).unwrap();
        }
    };
    let refused = |error: IoError, words: &[&str]| {
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    };

    // Masses: equal ones are silent.
    for (masses, is_right) in [([0.25f32, 0.25], true), ([0.25, 0.5], false)] {
        let foreign = new();
        foreign.list("MassTable", &[0.0f64, 0.25]).data("PartType1/Masses", &[2], &masses);
        drop(foreign);
        match Snapshot::open(&path).unwrap().masses_f32(0..2) {
            Ok(found) => assert!(is_right && found == masses, "{found:?}"),
            Err(error) if !is_right => {
                refused(error, &["Header/MassTable has 2.5e-1 for type 1", "PartType1/Masses", "particle 1 is 5e-1"]);
            }
            Err(error) => panic!("{error}"),
        }
    }

    // Masses in one of two files: those of the other are unknown.
    for (part, has_masses) in [(0, false), (1, true)] {
        let foreign = Foreign::new(&scratch.file(&format!("p.{part}.hdf5")), &[0, 1], &[0, 2], 2);
        foreign.list("MassTable", &[0.0f64, 0.25]).data("PartType1/Coordinates", &[1, 3], &[0.5f32; 3]);
        if has_masses {
            foreign.data("PartType1/Masses", &[1], &[0.5f32]);
        }
    }
    let parts = Snapshot::open(scratch.file("p.0.hdf5")).unwrap();
    refused(parts.masses_f32(0..2).unwrap_err(), &["p.0.hdf5", "PartType1/Masses"]);
    refused(parts.masses_f32(1..2).unwrap_err(), &["Header/MassTable has 2.5e-1 for type 1", "particle 1 is 5e-1"]);

    // The moment: by names of the scale factor, and by the time of a cosmological run of Gadget.
    for (attributes, parameters, is_right) in [
        (&[("Redshift", 1.0), ("Scale-factor", 0.5), ("Time", 3e-3)][..], &[][..], true),
        (&[("Redshift", 1.0), ("Scale-factor", 0.7)], &[], false),
        (&[("Redshift", 1.0), ("ExpansionFactor", 0.7), ("Omega0", 0.3)], &[], false),
        (&[("Redshift", 1.0), ("ExpansionFactor", 0.5), ("Omega0", 0.3), ("Time", 3e-3)], &[], true),
        (&[("Redshift", 1.0), ("Time", 0.5)], &[("ComovingIntegrationOn", 1.0)], true),
        (&[("Redshift", 1.0), ("Time", 0.7)], &[("ComovingIntegrationOn", 1.0)], false),
        (&[("Redshift", 1.0), ("Time", 0.7), ("Omega0", 0.3)], &[], false),
        // A time.
        (&[("Redshift", 0.0), ("Time", 0.7), ("Omega0", 0.3)], &[("ComovingIntegrationOn", 0.0)], true),
        (&[("Redshift", 0.0), ("Time", 12.0)], &[], true),
    ] {
        let foreign = new();
        for (name, value) in attributes {
            foreign.scalar(name, *value);
        }
        if !parameters.is_empty() {
            group(&foreign, "Parameters", parameters);
        }
        drop(foreign);
        match Snapshot::open(&path) {
            Ok(_) => assert!(is_right, "{attributes:?}"),
            Err(error) if !is_right => refused(error, &["1 / (1 + Header/Redshift) says 0.5", "says 0.7"]),
            Err(error) => panic!("{attributes:?}: {error}"),
        }
    }

    // The box.
    for (sides, is_right) in [(&[10.0][..], true), (&[10.0; 3], true), (&[20.0], false), (&[20.0, 20.0, 5.0], true)] {
        let foreign = new();
        foreign.list("BoxSize", sides);
        group(&foreign, "Parameters", &[("BoxSize", 10.0)]);
        drop(foreign);
        match Snapshot::open(&path) {
            Ok(_) => assert!(is_right, "{sides:?}"),
            Err(error) if !is_right => refused(error, &["Header/BoxSize says 20", "Parameters/BoxSize says 10"]),
            Err(error) => panic!("{sides:?}: {error}"),
        }
    }

    // Cosmologies, and h.
    let foreign = new();
    group(&foreign, "Cosmology", &[("Omega_m", 0.3), ("Omega_lambda", 0.7), ("h", 0.7)]);
    group(&foreign, "Parameters", &[("Omega0", 0.25), ("OmegaLambda", 0.7), ("HubbleParam", 0.68)]);
    drop(foreign);
    let snapshot = Snapshot::open(&path).unwrap();
    refused(snapshot.background().unwrap_err(), &["Cosmology/Omega_m says 0.3", "Parameters/Omega0 says 0.25"]);
    refused(snapshot.hubble().unwrap_err(), &["Cosmology/h says 0.7", "Parameters/HubbleParam says 0.68"]);

    // Coordinates that are physical beside a comoving box; today both are the same.
    for (redshift, is_right) in [(1.0f64, false), (0.0, true)] {
        let foreign = new();
        foreign.scalar("Redshift", redshift);
        let dataset = foreign.file.dataset("PartType1/Coordinates").unwrap();
        dataset.new_attr::<f32>().shape(1).create("a-scale exponent").unwrap().write_raw(&[0.0f32]).unwrap();
        drop((dataset, foreign));
        match Snapshot::open(&path) {
            Ok(_) => assert!(is_right),
            Err(error) => {
                assert!(!is_right, "{error}");
                refused(error, &["PartType1/Coordinates: a-scale exponent is 0 at scale factor 0.5", "comoving"]);
            }
        }
    }
}

/// OWLS and EAGLE: singular names, and other attributes of units.
#[test]
fn names_and_units_of_eagle_are_known() {
    let scratch = Scratch::new();
    let path = scratch.file("eagle.hdf5");
    let foreign = Foreign::new(&path, &[0, 2], &[0, 2], 1);
    foreign.scalar("Redshift", 3.0f64).scalar("HubbleParam", 0.5f64).scalar("BoxSize", 10.0f64);
    foreign.data("PartType1/Coordinates", &[2, 3], &[0.5f32; 6]);
    foreign.data("PartType1/Velocity", &[2, 3], &[8.0f32; 6]).data("PartType1/Mass", &[2], &[1.5f32, 2.5]);
    foreign.data("PartType1/GroupNumber", &[2], &[1i32; 2]);
    let attributes = |name: &str, values: [f64; 3]| {
        let dataset = foreign.file.dataset(&format!("PartType1/{name}")).unwrap();
        for (name, value) in ["aexp-scale-exponent", "h-scale-exponent", "CGSConversionFactor"].into_iter().zip(values)
        {
            dataset.new_attr::<f64>().create(name).unwrap().write_scalar(&value).unwrap();
        }
    };
    attributes("Coordinates", [1.0, -1.0, 3e24]);
    attributes("Velocity", [0.5, -1.0, 1e5]);
    drop(foreign);
    let snapshot = Snapshot::open(&path).unwrap();
    assert_eq!(snapshot.masses_f32(0..2).unwrap(), [1.5, 2.5]);
    assert_eq!(snapshot.velocities_f32(0..2).unwrap(), [8.0; 6]);
    assert_eq!(snapshot.pieces("Masses", 0..2, 1).unwrap(), [0..1, 1..2]);
    // At a = 1/4 and h = 1/2.
    let unit = snapshot.velocity_unit().unwrap().unwrap();
    assert_eq!((unit.factor, unit.km_s), (0.5 * 2.0, true));
    assert_eq!(snapshot.length_unit().unwrap(), Some(6e24));
    // All datasets of the type are named.
    let error = snapshot.ids(0..2).unwrap_err().to_string();
    assert!(error.contains("PartType1/ParticleIDs`; it has: Coordinates, GroupNumber, Mass, Velocity"), "{error}");
}

/// A snapshot of two particles whose header has these values of one attribute, and good ones of all
/// others.
fn with_header<T: H5Type>(path: &Path, name: &str, values: &[T]) {
    let file = File::create(path).unwrap();
    let header = file.create_group("Header").unwrap();
    let foreign = Foreign { file, header };
    for (other, good) in [("NumPart_ThisFile", &[0, 2][..]), ("NumPart_Total", &[0, 2]), ("NumFilesPerSnapshot", &[1])]
    {
        if other != name {
            foreign.list(other, good);
        }
    }
    foreign.list(name, values);
    foreign.file.create_group("PartType1").unwrap();
    foreign.data("PartType1/Coordinates", &[2, 3], &[0.5f32; 6]);
}

#[test]
fn numbers_of_a_header_that_cannot_be_are_named() {
    let scratch = Scratch::new();
    let path = scratch.file("s.hdf5");
    #[track_caller]
    fn wrong<T: H5Type>(path: &Path, name: &str, values: &[T], words: &str) {
        with_header(path, name, values);
        let error = Snapshot::open(path).unwrap_err();
        assert!(
            matches!(error, IoError { kind: IoErrorKind::Format, ref message, .. } if message.contains("not an HDF5")),
            "{error}"
        );
        for word in ["s.hdf5", &format!("Header/{name} {words}")] {
            assert!(error.to_string().contains(word), "`{word}` is missing: {error}");
        }
    }
    wrong(&path, "BoxSize", &[5.0; 7], "has 7 numbers; it must be one side, or one an axis (3)");
    wrong(&path, "BoxSize", &[5.0; 2], "has 2 numbers");
    wrong(&path, "BoxSize", &[5.0; 65], "has the shape [65]; 64 values are the most");
    wrong(&path, "BoxSize", &[-5.0], "is -5; it must be a number from 0 on");
    wrong(&path, "BoxSize", &[5.0, f64::NAN, 5.0], "is NaN; it must be finite");
    wrong(&path, "BoxSize", &[FixedAscii::<4>::from_ascii(b"ten").unwrap()], "is text or a compound");
    wrong(&path, "NumFilesPerSnapshot", &[-1], "is -1; it must be a whole number from 0 on");
    wrong(&path, "NumFilesPerSnapshot", &[0], "is 0; it must be a whole number from 1 on");
    wrong(&path, "NumFilesPerSnapshot", &[1, 1], "has 2 values, of which there must be one");
    wrong(&path, "NumFilesPerSnapshot", &[1.5], "is 1.5; it must be a whole number");
    wrong(&path, "NumPart_ThisFile", &[0i64, -2], "is -2");
    wrong(&path, "NumPart_Total", &[0.0, f64::INFINITY], "is inf");
    wrong(&path, "NumPart_Total_HighWord", &[0i8, -1], "is -1");
    wrong(&path, "MassTable", &[0.0, -1.0], "is -1; it must be a number from 0 on");
    wrong(&path, "Time", &[f32::NAN], "is NaN");
    wrong(&path, "Redshift", &[-1.0], "is -1; it must be above -1");

    for sides in [&[5.0][..], &[5.0; 3], &[0.0]] {
        with_header(&path, "BoxSize", sides);
        assert_eq!(Snapshot::open(&path).unwrap().box_size(), (sides[0] > 0.0).then_some([5.0; 3]));
    }
    // Scripts write counts as floats.
    with_header(&path, "NumPart_ThisFile", &[0.0f64, 2.0]);
    assert_eq!(Snapshot::open(&path).unwrap().count(), 2);
    with_header(&path, "MassTable", &[0.0, 1e300]);
    let error = Snapshot::open(&path).unwrap().masses_f32(0..2).unwrap_err().to_string();
    assert!(error.contains("Header/MassTable: 1e300 for type 1"), "{error}");
}

#[test]
fn a_broken_attribute_that_nobody_asks_for_does_no_harm() {
    let scratch = Scratch::new();
    let path = scratch.file("s.hdf5");
    run_threads(1, |comm| save(&comm, &path, Files::One, 3)).unwrap();
    let good = fs::read(&path).unwrap();
    let name = b"Scale-factor";
    let places: Vec<_> = (1..good.len() - name.len()).filter(|&at| good[at..].starts_with(name)).collect();
    assert!(!places.is_empty());
    // Before the name stands its character set, which the library passes on as it is.
    for place in places {
        for set in [2, 0x7f, 0xff] {
            let mut bytes = good.clone();
            bytes[place - 1] = set;
            fs::write(&path, bytes).unwrap();
            assert_eq!(Snapshot::open(&path).unwrap().count(), 3);
        }
    }
}

#[test]
fn numbers_that_were_never_written_are_no_zeros() {
    let scratch = Scratch::new();
    let path = scratch.file("s.hdf5");
    #[track_caller]
    fn unfinished<T>(found: Result<T, IoError>) {
        let error = found.err().unwrap();
        assert!(
            matches!(&error, IoError { kind: IoErrorKind::Format, message, .. } if message.contains("was ended early")),
            "{error}"
        );
    }
    let foreign = || Foreign::new(&path, &[0, 4], &[0, 4], 1);
    foreign().file.new_dataset::<f32>().shape([4, 3]).create("PartType1/Coordinates").unwrap();
    unfinished(Snapshot::open(&path));
    // Of chunks only the first was written; and compressed ones of a small file cannot fill such a
    // shape.
    for (count, deflate) in [(4, false), (u32::MAX, true)] {
        let file = Foreign::new(&path, &[0, count], &[0, count], 1).file;
        let builder = file.new_dataset::<f32>().chunk([2, 3]);
        let builder = if deflate { builder.deflate(9) } else { builder };
        let dataset = builder.shape((2.., 3)).create("PartType1/Coordinates").unwrap();
        dataset.write_raw(&[0.5f32; 6]).unwrap();
        dataset.resize((count as usize, 3)).unwrap();
        drop((file, dataset));
        unfinished(Snapshot::open(&path));
    }
    // Nor are other files' numbers taken.
    let builder = foreign().file.new_dataset::<f32>().external("raw", 0, 48);
    builder.shape([4, 3]).create("PartType1/Coordinates").unwrap();
    let error = Snapshot::open(&path).unwrap_err().to_string();
    assert!(error.contains("PartType1/Coordinates has its numbers in other files"), "{error}");
    // What is read later is looked at then.
    let file = foreign().data("PartType1/Coordinates", &[4, 3], &[0.5f32; 12]).file.clone();
    file.new_dataset::<f32>().shape([4, 3]).create("PartType1/Velocities").unwrap();
    drop(file);
    unfinished(Snapshot::open(&path).unwrap().velocities_f32(0..4));
}

#[test]
fn masses_and_ids_below_0_are_named() {
    let scratch = Scratch::new();
    let path = scratch.file("s.hdf5");
    Foreign::new(&path, &[0, 3], &[0, 3], 1)
        .data("PartType1/Coordinates", &[3, 3], &[0.5f32; 9])
        .data("PartType1/Masses", &[3], &[1.0f32, -2.0, f32::NAN])
        .data("PartType1/ParticleIDs", &[3], &[5i64, 6, -7]);
    let snapshot = Snapshot::open(&path).unwrap();
    let error = snapshot.masses_f32(0..3).unwrap_err().to_string();
    assert!(error.contains("PartType1/Masses: the mass of particle 1 is -2"), "{error}");
    assert!(
        matches!(snapshot.masses_f32(2..3), Err(IoError { message, .. }) if message.starts_with("the element at (2,) is NaN"))
    );
    let error = snapshot.ids(1..3).unwrap_err().to_string();
    assert!(error.contains("PartType1/ParticleIDs: that of particle 2 is -7"), "{error}");
    assert_eq!(snapshot.ids(0..2).unwrap(), [5, 6]);
}

#[test]
fn a_file_that_was_cut_off_is_an_error_wherever_it_ends() {
    let scratch = Scratch::new();
    let path = scratch.file("s.hdf5");
    run_threads(1, |comm| save(&comm, &path, Files::One, 64)).unwrap();
    let (bytes, cut) = (fs::read(&path).unwrap(), scratch.file("cut.hdf5"));
    for len in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        fs::write(&cut, &bytes[..len]).unwrap();
        assert!(
            matches!(Snapshot::open(&cut), Err(IoError { kind: IoErrorKind::Format, ref message, .. }) if message.contains("not an HDF5")),
            "{len} of {} bytes",
            bytes.len()
        );
        assert!(
            matches!(read_groups(&cut), Err(IoError { kind: IoErrorKind::Format, ref message, .. }) if message.contains("not an HDF5")),
            "{len} of {} bytes",
            bytes.len()
        );
    }
    // Cut off while it is open: the next read finds it.
    let snapshot = Snapshot::open(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(
        matches!(snapshot.positions_f32(0..64), Err(IoError { kind: IoErrorKind::Format, ref message, .. }) if message.contains("not an HDF5"))
    );
}

fn groups() -> Groups<'static> {
    Groups {
        label: &[17, 3],
        count: &[3, 2],
        mass: &[3.5, 2.25],
        center: &[[1.0, 2.0, 3.0], [99.0, 0.5, 7.0]],
        velocity: Some(&[[100.0, -200.0, 300.0], [0.0, 1.0, 2.0]]),
        inertia_radius: &[0.1, 0.2],
        velocity_dispersion: Some(&[50.0, 60.0]),
        max_radius: &[0.3, 0.4],
        scale_factor: None,
        spheres: &[],
        offset: &[0, 3, 5],
        members: Some(&[17, 20, 1 << 40, 3, 4]),
    }
}

#[test]
fn groups_come_back() {
    let scratch = Scratch::new();
    let (path, info, given) = (scratch.file("fof_tab_000.0.hdf5"), info(64), groups());
    write_groups(&path, &info, &given).unwrap();
    let found = read_groups(&path).unwrap();
    let wanted = GroupCatalog {
        box_size: 100.0,
        scale_factor: 0.25,
        label: given.label.into(),
        count: given.count.into(),
        mass: given.mass.into(),
        center: given.center.into(),
        velocity: given.velocity.map(Into::into),
        inertia_radius: given.inertia_radius.into(),
        velocity_dispersion: given.velocity_dispersion.map(Into::into),
        max_radius: given.max_radius.into(),
        offset: given.offset.into(),
        members: given.members.map(Into::into),
    };
    assert_eq!(found, wanted);
    // By type, where Gadget's readers look.
    let file = File::open(&path).unwrap();
    let lengths: Vec<u64> = file.dataset("Group/GroupLenType").unwrap().read_raw().unwrap();
    assert_eq!(lengths, [0, 3, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
    let offsets: Vec<u64> = file.dataset("Group/GroupOffsetType").unwrap().read_raw().unwrap();
    assert_eq!(offsets, [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0]);
    drop(file);

    // Without what may be left out; and none at all.
    write_groups(&path, &info, &Groups { velocity: None, velocity_dispersion: None, members: None, ..given }).unwrap();
    let found = read_groups(&path).unwrap();
    assert_eq!(found, GroupCatalog { velocity: None, velocity_dispersion: None, members: None, ..wanted });
    let none = Groups {
        label: &[],
        count: &[],
        mass: &[],
        center: &[],
        velocity: Some(&[]),
        inertia_radius: &[],
        velocity_dispersion: None,
        max_radius: &[],
        scale_factor: None,
        spheres: &[],
        offset: &[0],
        members: Some(&[]),
    };
    write_groups(&path, &info, &none).unwrap();
    let found = read_groups(&path).unwrap();
    assert_eq!((found.label.len(), found.velocity, found.members), (0, Some(vec![]), Some(vec![])));
    assert_eq!(scratch.names(), ["fof_tab_000.0.hdf5"]);
}

/// Quantities of groups on a light cone, and spherical overdensities.
#[test]
fn groups_have_scale_factors_and_spheres() {
    let scratch = Scratch::new();
    let path = scratch.file("cone.0.hdf5");
    let (mass, radius) = ([4.5, 0.0], [0.75, 0.0]);
    let spheres = [SphereColumns { name: "Mean200".into(), mass: &mass, radius: &radius }];
    let given = Groups { scale_factor: Some(&[0.5, 0.75]), spheres: &spheres, ..groups() };
    write_groups(&path, &info(64), &given).unwrap();
    let file = File::open(&path).unwrap();
    let column = |name: &str| file.dataset(&format!("Group/{name}")).unwrap().read_raw::<f32>().unwrap();
    assert_eq!(column("GroupAscale"), [0.5, 0.75]);
    assert_eq!((column("Group_M_Mean200"), column("Group_R_Mean200")), (mass.to_vec(), radius.to_vec()));
    let short = [SphereColumns { name: "Crit500".into(), mass: &mass[..1], radius: &radius }];
    let wrong = write_groups(scratch.file("wrong.0.hdf5"), &info(64), &Groups { spheres: &short, ..groups() });
    assert!(wrong.unwrap_err().to_string().contains("Group_M_Crit500"));
}

/// All datasets of a light cone, written by two ranks in turn.
#[test]
fn light_cones_have_a_scale_factor_and_a_replica_for_each_particle() {
    let scratch = Scratch::new();
    let path = scratch.file("cone.hdf5");
    let (observer, direction) = ([50.0, 0.0, 100.0], [0.0, 0.6, 0.8]);
    let info = ConeInfo { snapshot: info(64), count: 3, observer, distance: 200.0, direction, opening: 30.0 };
    let rows = ConeRows {
        positions: &[[-120.0, 3.0, 0.5], [1.0, 2.0, 3.0], [0.0; 3]],
        velocities: &[[100.0, 0.0, -7.0]; 3],
        scale_factors: &[0.25, 0.5, 1.0],
        ids: &[3, 3, 1 << 41],
        images: &[[-1, 0, 1], [0, 0, 0], [2, -60, 60]],
    };
    let (token, part) = (token(), |at: std::ops::Range<usize>| ConeRows {
        positions: &rows.positions[at.clone()],
        velocities: &rows.velocities[at.clone()],
        scale_factors: &rows.scale_factors[at.clone()],
        ids: &rows.ids[at.clone()],
        images: &rows.images[at],
    });
    let contents = Hdf5Contents::LightCone(&info);
    let first = Hdf5Writer::create(&path, &contents, &token).unwrap();
    let second = Hdf5Writer::open(&path, &contents, &token, first.offsets()).unwrap();
    part(1..3).write(&second, 1).unwrap();
    assert!(part(0..2).write(&second, 2).is_err(), "beyond the end");
    let short = ConeRows { ids: &[], ..part(0..1) };
    assert!(short.write(&second, 0).unwrap_err().to_string().contains("ParticleIDs"));
    second.seal().unwrap().publish().unwrap();
    part(0..1).write(&first, 0).unwrap();
    first.seal().unwrap().publish().unwrap();

    let cone = Snapshot::open(&path).unwrap();
    let unit = cone.velocity_unit().unwrap().unwrap();
    assert_eq!((cone.count(), cone.box_size(), unit.factor, unit.km_s), (3, None, 1.0, true));
    assert_eq!(cone.ids(0..3).unwrap(), rows.ids);
    assert_eq!(cone.positions_f32(0..3).unwrap(), rows.positions.as_flattened());
    assert_eq!(cone.masses_f32(0..1).unwrap(), [info.snapshot.particle_mass() as f32]);
    let file = File::open(&path).unwrap();
    let factors: Vec<f32> = file.dataset("PartType1/ScaleFactors").unwrap().read_raw().unwrap();
    let images: Vec<i32> = file.dataset("PartType1/Images").unwrap().read_raw().unwrap();
    assert_eq!((factors.as_slice(), images.as_slice()), (rows.scale_factors, rows.images.as_flattened()));
    let group = file.group("LightCone").unwrap();
    assert_eq!(group.attr("Observer").unwrap().read_raw::<f64>().unwrap(), observer);
    assert_eq!(group.attr("OpeningDegrees").unwrap().read_scalar::<f64>().unwrap(), 30.0);
}

#[test]
fn ranks_write_one_catalog_of_groups() {
    let scratch = Scratch::new();
    let (whole, path, given) = (scratch.file("whole.0.hdf5"), scratch.file("parts.0.hdf5"), groups());
    write_groups(&whole, &info(64), &given).unwrap();
    // Rows and members are dealt out apart: the second rank has neither, the third most members.
    let (rows, members) = ([0, 1, 1, 2], [0, 2, 2, 5]);
    run_threads(3, |comm| {
        let rank = comm.rank();
        let (from, to, first, end) = (rows[rank], rows[rank + 1], members[rank], members[rank + 1]);
        let part = Groups {
            label: &given.label[from..to],
            count: &given.count[from..to],
            mass: &given.mass[from..to],
            center: &given.center[from..to],
            velocity: given.velocity.map(|values| &values[from..to]),
            inertia_radius: &given.inertia_radius[from..to],
            velocity_dispersion: given.velocity_dispersion.map(|values| &values[from..to]),
            max_radius: &given.max_radius[from..to],
            scale_factor: None,
            spheres: &[],
            offset: &given.offset[from..=to],
            members: given.members.map(|ids| &ids[first..end]),
        };
        let place = GroupsPlace { groups: 2, first_group: from as u64, members: 5, first_member: first as u64 };
        let contents = Hdf5Contents::Groups { info: &info(64), groups: &part, place };
        seal_hdf5::<Error>(&comm, &path, &contents, |to| Ok(part.write(to, &info(64), &place)?))?.publish()?;
        comm.barrier()?;
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(fs::read(&path).unwrap(), fs::read(&whole).unwrap());
}

#[test]
fn groups_that_do_not_fit_together_are_refused() {
    let scratch = Scratch::new();
    let path = scratch.file("g.hdf5");
    for (name, wrong) in [
        ("count", Groups { count: &[3], ..groups() }),
        ("velocity_dispersion", Groups { velocity_dispersion: Some(&[]), ..groups() }),
        ("offset", Groups { offset: &[0, 3], ..groups() }),
        ("offset", Groups { offset: &[1, 4, 6], ..groups() }),
        ("offset", Groups { offset: &[0, 2, 5], ..groups() }),
        ("offset", Groups { count: &[3, u64::MAX], ..groups() }),
        ("members", Groups { members: Some(&[1]), ..groups() }),
    ] {
        match write_groups(&path, &info(64), &wrong) {
            Err(error) => assert!(error.message.starts_with(&format!("`{name}` ")), "{name}: {error}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    // A snapshot is not a catalog.
    run_threads(1, |comm| save(&comm, &path, Files::One, 3)).unwrap();
    assert!(
        matches!(read_groups(&path), Err(IoError { kind: IoErrorKind::Format, ref message, .. }) if message.contains("not an HDF5"))
    );
    assert_eq!(scratch.names(), ["g.hdf5"]);
}
