//! Commands about points on snapshots in HDF5, and `simulate --hdf5`: the same as with `.npy`, on
//! any number of ranks.
#![cfg(all(feature = "hdf5", unix))]

use super::cli::{Call, Scratch};

mod with_hdf5 {
    use std::fs;
    use std::path::Path;

    use super::{Call, Scratch};
    use crate::cli::{Ranks, files, has_mpi};
    use meshloom::io::hdf5::{
        FilePart, Groups, Hdf5Contents, Hdf5Writer, Snapshot, SnapshotInfo, SnapshotRows, part_path, read_groups,
        write_groups,
    };
    use meshloom::io::{Dtype, NpyFile, NpyWriter, NpzFile, token};
    use serde_json::{Value, json};

    const SIDE: f32 = 8.0;

    /// Points of a lattice with gaps, some of them beyond the box.
    fn points(count: usize) -> Vec<[f32; 3]> {
        let mut state = 7u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 16) % 160) as f32 / 16.0 - 1.0
        };
        (0..count).map(|_| [next(), next(), next()]).collect()
    }

    fn info(count: usize) -> SnapshotInfo {
        let box_size = f64::from(SIDE);
        SnapshotInfo {
            count: count as u64,
            box_size,
            scale_factor: 1.0,
            omega_m: 0.3,
            omega_b: 0.05,
            h: 0.7,
            omega_r: 0.0,
            dark_energy: [-1.0, 0.0],
        }
    }

    /// Points from row `first` on, with the ids 1000 + 7 row.
    fn save_part(path: &Path, all: usize, part: FilePart, first: usize, points: &[[f32; 3]]) {
        let contents = Hdf5Contents::Snapshot { info: &info(all), part };
        let writer = Hdf5Writer::create(path, &contents, &token()).unwrap();
        let ids: Vec<u64> = (first..first + points.len()).map(|row| 1000 + 7 * row as u64).collect();
        SnapshotRows { positions: points, velocities: points, ids: &ids }.write(&writer, 0).unwrap();
        writer.seal().unwrap().publish().unwrap();
    }

    /// Writes the points as `.npy`, as a snapshot in one file, and in three; gives the names of
    /// all.
    fn save(scratch: &Scratch, points: &[[f32; 3]]) -> [String; 3] {
        let npy = NpyWriter::<f32>::create(scratch.join("points.npy"), &[points.len() as u64, 3], &token()).unwrap();
        npy.write(0, points.as_flattened()).unwrap();
        npy.finish().unwrap();
        save_part(&scratch.join("one.hdf5"), points.len(), FilePart::whole(&info(points.len())), 0, points);
        let cuts = [0, points.len() / 4, points.len() / 4, points.len()];
        for index in 0..3 {
            let own = &points[cuts[index]..cuts[index + 1]];
            let part = FilePart { index: index as u64, of: 3, count: own.len() as u64 };
            save_part(&part_path(scratch.join("parts.hdf5"), part.index), points.len(), part, cuts[index], own);
        }
        [scratch.word("points.npy"), scratch.word("one.hdf5"), scratch.word("parts.1.hdf5")]
    }

    fn call(scratch: &Scratch, input: &str, words: &[&str], ranks: Ranks) -> Vec<u8> {
        let output = scratch.word("out");
        Call::new(&[&words[..1], &[input, "-o", &output], &words[1..]].concat()).on(ranks).succeeds();
        fs::read(&output).unwrap()
    }

    #[test]
    fn commands_give_the_same_on_snapshots_as_on_npy() {
        let scratch = Scratch::new();
        let [npy, one, parts] = save(&scratch, &points(300));
        let edges = scratch.file("edges.txt", "0\n0.5\n1\n2\n");
        let cross = format!("pairs --bins {edges} --cross ");
        for words in [
            "sort".to_string(),
            "knn -k 3".to_string(),
            "neighbors --radius 0.7".to_string(),
            format!("pairs --bins {edges}"),
            "power --mesh 8".to_string(),
            "fof --linking-length 0.4 --min-members 2".to_string(),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            // The snapshot's own box stands for --box, and what is given goes before it.
            let with_box = |side| [&words[..], &["--box", side]].concat();
            let mut ways = vec![(&one, Ranks::Threads(1)), (&parts, Ranks::Threads(3))];
            if has_mpi() && words[0] == "neighbors" {
                ways.push((&parts, Ranks::Mpi(3)));
            }
            let want = call(&scratch, &npy, &with_box("8"), Ranks::Threads(1));
            for (input, ranks) in ways {
                assert!(call(&scratch, input, &words, ranks) == want, "{words:?} of {input} on {ranks:?}");
            }
            let want = call(&scratch, &npy, &with_box("16"), Ranks::Threads(1));
            assert!(call(&scratch, &one, &with_box("16"), Ranks::Threads(2)) == want, "{words:?} in another box");
        }
        // As velocities too: those of the files are the positions.
        let [want, got] = [&npy, &parts].map(|other| {
            let words = format!("fof --linking-parameter 0.5 --min-members 2 --box 8 --velocities {other}");
            call(&scratch, &npy, &words.split(' ').collect::<Vec<_>>(), Ranks::Threads(2))
        });
        assert!(want == got);
        // As places that are asked for.
        let words = |other: &str| format!("{cross}{other} --box 8");
        let [want, got] = [&npy, &parts]
            .map(|other| call(&scratch, &npy, &words(other).split(' ').collect::<Vec<_>>(), Ranks::Threads(2)));
        assert!(want == got);
    }

    #[test]
    fn halos_of_a_simulation_are_in_both_files() {
        let scratch = Scratch::new();
        let out = scratch.join("run");
        let words = "--particles 16 --box 16 --steps 3 --a-end 0.8 --linking-parameter 0.25 --hdf5 one";
        Call::simulate(&out, &words.split(' ').collect::<Vec<_>>()).on(Ranks::Threads(3)).succeeds();
        let (groups, halos) =
            (read_groups(out.join("halos.0.hdf5")).unwrap(), NpzFile::open(out.join("halos.npz")).unwrap());
        let integers = |name: &str| {
            let member = halos.member(name).unwrap();
            member.read_i64(0..member.len()).unwrap().into_iter().map(|n| n as u64).collect::<Vec<_>>()
        };
        let reals = |name: &str| {
            let member = halos.member(name).unwrap();
            member.read_f32(0..member.len()).unwrap()
        };
        assert!(!groups.label.is_empty());
        assert_eq!((&groups.label, &groups.count), (&integers("label"), &integers("count")));
        assert_eq!((&groups.offset, groups.members.as_ref()), (&integers("offset"), Some(&integers("order"))));
        assert_eq!(groups.center.as_flattened(), reals("center"));
        assert_eq!(groups.velocity.as_ref().unwrap().as_flattened(), reals("velocity"));
        for (have, want) in groups.mass.iter().zip(reals("mass")) {
            assert!((have * 1e10 - want).abs() <= 2.0 * f32::EPSILON * want, "{have} {want}");
        }
        assert_eq!((groups.box_size, groups.scale_factor), (16.0, 0.8));
        // The snapshot's velocities are Gadget's, over sqrt(a); the catalog's are peculiar.
        let (snapshot, output) = (out.join("snapshot.hdf5").display().to_string(), scratch.word("groups.npz"));
        let words =
            ["fof", &snapshot, "--velocities", &snapshot, "--linking-parameter", "0.25", "-o", &output, "--json"];
        let done = Call::new(&words).succeeds();
        let report: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(report["velocities"], "peculiar, km/s");
        let again = NpzFile::open(&output).unwrap().member("velocity").unwrap();
        let (again, want) = (again.read_f32(0..again.len()).unwrap(), reals("velocity"));
        let largest = want.iter().fold(0.0, |most: f32, v| most.max(v.abs()));
        assert_eq!(again.len(), want.len());
        for (have, want) in again.iter().zip(&want) {
            // Rounded as p, over sqrt(a), and times it.
            assert!((have - want).abs() <= 8.0 * f32::EPSILON * largest, "{have} {want}");
        }
    }

    /// A catalog in HDF5 has the arrays of the archive, the same bytes on any number of ranks,
    /// and the particles' ids.
    #[test]
    fn groups_in_hdf5_are_those_of_the_archive() {
        let scratch = Scratch::new();
        let points = points(300);
        let [npy, one, parts] = save(&scratch, &points);
        let words = ["--linking-length", "0.4", "--min-members", "2", "--box", "8"];
        let fof = |input: &str, output: &str, ranks: Ranks| {
            Call::new(&[&["fof", input, "-o", output], &words[..]].concat()).on(ranks).succeeds();
            fs::read(output).unwrap()
        };
        let [archive, file] = [scratch.word("groups.npz"), scratch.word("groups.H5")];
        fof(&npy, &archive, Ranks::Threads(1));
        let plain = fof(&npy, &file, Ranks::Threads(1));
        let mut ways = vec![(&one, Ranks::Threads(1)), (&one, Ranks::Threads(4)), (&parts, Ranks::Threads(3))];
        if has_mpi() {
            ways.push((&parts, Ranks::Mpi(2)));
        }
        let mut first = None;
        for (input, ranks) in ways {
            let bytes = fof(input, &file, ranks);
            assert!(first.get_or_insert_with(|| bytes.clone()) == &bytes, "{input} on {ranks:?}");
        }
        assert!(fof(&npy, &file, Ranks::Threads(3)) == plain && first.as_ref() != Some(&plain));

        let archive = NpzFile::open(&archive).unwrap();
        for (bytes, has_ids) in [(plain, false), (first.unwrap(), true)] {
            fs::write(&file, bytes).unwrap();
            let found = hdf5_metno::File::open(&file).unwrap();
            let mut names: Vec<String> = archive.names().chain(["Header"]).map(String::from).collect();
            names.extend(has_ids.then(|| "ids".to_string()));
            names.sort();
            assert_eq!(found.member_names().unwrap(), names);
            for name in archive.names() {
                let (member, dataset) = (archive.member(name).unwrap(), found.dataset(name).unwrap());
                let shape: Vec<u64> = dataset.shape().iter().map(|&n| n as u64).collect();
                assert_eq!(shape, member.shape(), "{name}");
                match member.dtype() {
                    Dtype::F32 => {
                        assert_eq!(dataset.read_raw::<f32>().unwrap(), member.read_f32(0..member.len()).unwrap())
                    }
                    _ => assert_eq!(dataset.read_raw::<i64>().unwrap(), member.read_i64(0..member.len()).unwrap()),
                }
            }
            if has_ids {
                let order = found.dataset("order").unwrap().read_raw::<u64>().unwrap();
                assert!(order.len() > 10);
                let want: Vec<u64> = order.iter().map(|row| 1000 + 7 * row).collect();
                assert_eq!(found.dataset("ids").unwrap().read_raw::<u64>().unwrap(), want);
            }
        }
        let none = meshloom::io::token();
        let wrong = Call::new(&["fof", &npy, "--linking-length", "1", "-o", &format!("/{none}/x.hdf5")]).run();
        wrong.is_error("no directory", 1, &["x.hdf5"]);
    }

    /// Returns a snapshot of gas with masses of its own and of stars of one mass, in one file or
    /// two; and the same as arrays: coordinates, masses and velocities of each type.
    fn save_types(scratch: &Scratch, files: u64) -> (String, [[String; 3]; 2]) {
        let arrays = [(0, 180), (4, 120)].map(|(kind, count)| {
            let positions: Vec<f32> = points(count + kind)[kind..].as_flattened().to_vec();
            let masses: Vec<f32> = (0..count).map(|row| if kind == 0 { 1.0 + (row % 5) as f32 } else { 2.5 }).collect();
            let velocities: Vec<f32> = positions.iter().map(|x| x * x - kind as f32).collect();
            (kind, count, [positions, masses, velocities])
        });
        for part in 0..files {
            let path = scratch.join(&if files == 1 { "types.hdf5".into() } else { format!("types.{part}.hdf5") });
            let file = hdf5_metno::File::create(path).unwrap();
            let header = file.create_group("Header").unwrap();
            let list = |name: &str, values: [f64; 6]| {
                header.new_attr::<f64>().shape(6).create(name).unwrap().write_raw(&values).unwrap();
            };
            let counts = |name: &str, values: [u64; 6]| {
                header.new_attr::<u64>().shape(6).create(name).unwrap().write_raw(&values).unwrap();
            };
            let half = |count: usize| count as u64 / files;
            counts("NumPart_ThisFile", [half(180), 0, 0, 0, half(120), 0]);
            counts("NumPart_Total", [180, 0, 0, 0, 120, 0]);
            list("MassTable", [0.0, 0.0, 0.0, 0.0, 2.5, 0.0]);
            header.new_attr::<i32>().create("NumFilesPerSnapshot").unwrap().write_scalar(&(files as i32)).unwrap();
            header.new_attr::<f64>().create("BoxSize").unwrap().write_scalar(&f64::from(SIDE)).unwrap();
            for (kind, count, [positions, masses, velocities]) in &arrays {
                let group = file.create_group(&format!("PartType{kind}")).unwrap();
                let own = part as usize * count / files as usize..(part as usize + 1) * count / files as usize;
                let write = |name: &str, width: usize, values: &[f32]| {
                    let shape = if width == 1 { vec![own.len()] } else { vec![own.len(), width] };
                    let dataset = group.new_dataset::<f32>().shape(shape).create(name).unwrap();
                    dataset.write_raw(&values[own.start * width..own.end * width]).unwrap();
                };
                write("Coordinates", 3, positions);
                write("Velocities", 3, velocities);
                if *kind == 0 {
                    write("Masses", 1, masses);
                }
            }
        }
        let names = arrays.map(|(kind, count, values)| {
            let shapes = [&[count as u64, 3][..], &[count as u64], &[count as u64, 3]];
            [0, 1, 2].map(|which| {
                let name = format!("type{kind}.{which}.npy");
                let to = NpyWriter::<f32>::create(scratch.join(&name), shapes[which], &token()).unwrap();
                to.write(0, &values[which]).unwrap();
                to.finish().unwrap();
                scratch.word(&name)
            })
        });
        (scratch.word(if files == 1 { "types.hdf5" } else { "types.1.hdf5" }), names)
    }

    #[test]
    fn particles_of_a_type_are_those_of_their_arrays() {
        let scratch = Scratch::new();
        let (one, arrays) = save_types(&scratch, 1);
        let (parts, _) = save_types(&scratch, 2);
        let edges = scratch.file("edges.txt", "0\n0.5\n1\n2\n");
        let mut ways = vec![(&one, Ranks::Threads(1)), (&parts, Ranks::Threads(3))];
        if has_mpi() {
            ways.push((&parts, Ranks::Mpi(2)));
        }
        for (kind, [positions, masses, velocities]) in ["0", "4"].into_iter().zip(&arrays) {
            for words in [
                "sort",
                "knn -k 3 --queries POSITIONS",
                "neighbors --radius 0.7",
                &format!("pairs --bins {edges} --masses MASSES --cross POSITIONS --cross-masses MASSES"),
                "power --mesh 8 --masses MASSES --cross POSITIONS --cross-masses MASSES",
                "fof --linking-length 0.4 --min-members 2 --masses MASSES --velocities VELOCITIES",
            ] {
                let with = |names: [&str; 3]| {
                    let words = words.replace("POSITIONS", names[0]).replace("MASSES", names[1]);
                    words.replace("VELOCITIES", names[2]).split(' ').map(String::from).collect::<Vec<_>>()
                };
                let of = |input: &str, words: Vec<String>, more: [&str; 2], ranks: Ranks| {
                    let words: Vec<&str> = words.iter().map(String::as_str).chain(more).collect();
                    call(&scratch, input, &words, ranks)
                };
                let want = of(positions, with([positions, masses, velocities]), ["--box", "8"], Ranks::Threads(1));
                for &(snapshot, ranks) in &ways {
                    let got = of(snapshot, with([snapshot; 3]), ["--particle-type", kind], ranks);
                    assert!(got == want, "{words} of type {kind} of {snapshot} on {ranks:?}");
                }
            }
        }
        // The report says which.
        let words = ["sort", &one, "-o", &scratch.word("out"), "--particle-type", "4", "--json"];
        let report: Value = serde_json::from_str(&Call::new(&words).succeeds().stdout).unwrap();
        assert_eq!((&report["input"]["particle_type"], &report["points"]), (&4.into(), &120.into()));
    }

    /// Coordinates of types that were not requested may be anything, and neutrinos are type 6.
    #[test]
    fn other_types_do_not_prevent_reading() {
        let scratch = Scratch::new();
        let rows = points(60);
        // Its handles are closed before it is read.
        let write = |path: &Path| {
            let file = hdf5_metno::File::create(path).unwrap();
            let header = file.create_group("Header").unwrap();
            header.new_attr::<f64>().create("BoxSize").unwrap().write_scalar(&f64::from(SIDE)).unwrap();
            for kind in [1, 6] {
                let group = file.create_group(&format!("PartType{kind}")).unwrap();
                let dataset = group.new_dataset::<f32>().shape([60, 3]).create("Coordinates").unwrap();
                dataset.write_raw(rows.as_flattened()).unwrap();
            }
            // Integers, and one axis too many.
            let group = file.create_group("PartType0").unwrap();
            group.new_dataset::<i32>().shape([5, 4]).create("Coordinates").unwrap();
        };
        write(&scratch.join("types.hdf5"));
        let input = scratch.word("types.hdf5");
        let sorted = |kind: &str| call(&scratch, &input, &["sort", "--particle-type", kind], Ranks::Threads(2));
        assert_eq!(sorted("6"), sorted("1"));
        let out = scratch.word("out.npy");
        let wrong = Call::new(&["sort", &input, "--particle-type", "0", "-o", &out]);
        wrong.run().is_error("integers", 1, &["PartType0/Coordinates"]);
        Call::new(&["sort", &input, "--particle-type", "16", "-o", &out]).run().is_error("no type", 2, &["0..=15"]);
    }

    /// Masses count where they are asked for. Where they are not and differ, a warning says so.
    #[test]
    fn power_weights_particles_by_their_masses() {
        let scratch = Scratch::new();
        let (snapshot, [[positions, masses, _], _]) = save_types(&scratch, 2);
        let power = |words: &[&str], ranks: Ranks| {
            let output = scratch.word("power.csv");
            let run = Call::new(&[&["power"], words, &["--mesh", "16", "--box", "8", "-o", &output]].concat())
                .on(ranks)
                .run();
            assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
            (fs::read(&output).unwrap(), run.stderr)
        };
        let of_type = ["--particle-type", "0"];
        let (numbers, warning) = power(&[&[snapshot.as_str()], &of_type[..]].concat(), Ranks::Threads(1));
        assert!(warning.contains("masses from 1e0 to 5e0") && warning.contains("--masses"), "{warning}");
        assert_eq!(power(&[&positions], Ranks::Threads(1)), (numbers.clone(), String::new()));
        let (weighted, quiet) = power(&[&positions, "--masses", &masses], Ranks::Threads(1));
        assert!(quiet.is_empty() && weighted != numbers, "{quiet}");
        for ranks in [Ranks::Threads(1), Ranks::Threads(3)] {
            let words = [&[snapshot.as_str(), "--weights", &snapshot], &of_type[..]].concat();
            assert_eq!(power(&words, ranks), (weighted.clone(), String::new()));
        }
        // Stars of one mass cause no warning.
        let (_, quiet) = power(&[&snapshot, "--particle-type", "4"], Ranks::Threads(2));
        assert!(quiet.is_empty(), "{quiet}");
    }

    #[test]
    fn pairs_weights_particles_by_their_masses() {
        let scratch = Scratch::new();
        let (snapshot, [[positions, masses, _], _]) = save_types(&scratch, 2);
        let edges = scratch.file("edges.txt", "0\n1\n2\n");
        let pairs = |words: &[&str]| {
            let output = scratch.word("pairs.csv");
            let run = Call::new(&[&["pairs"], words, &["--bins", &edges, "--box", "8", "-o", &output]].concat()).run();
            assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
            (fs::read_to_string(&output).unwrap(), run.stderr)
        };
        let of_type = ["--particle-type", "0"];
        let (numbers, warning) = pairs(&[&[snapshot.as_str()], &of_type[..]].concat());
        assert!(warning.contains("masses from 1e0 to 5e0") && warning.contains("--masses"), "{warning}");
        assert_eq!(pairs(&[&positions]), (numbers.clone(), String::new()));
        let (_, warning) = pairs(&[&[positions.as_str(), "--cross", &snapshot], &of_type[..]].concat());
        assert!(warning.contains("masses from 1e0 to 5e0") && warning.contains("--cross-masses"), "{warning}");
        let weighted = pairs(&[&positions, "--masses", &masses]);
        assert!(weighted.0.starts_with("r_low,r_high,count,weighted\n") && weighted.1.is_empty(), "{weighted:?}");
        assert_eq!(pairs(&[&[snapshot.as_str(), "--weights", &snapshot], &of_type[..]].concat()), weighted);
        // Stars of one mass cause no warning.
        assert!(pairs(&[&snapshot, "--particle-type", "4"]).1.is_empty());
    }

    /// A part of a larger snapshot that was saved with the header of that.
    #[test]
    fn coordinates_are_trusted_where_that_is_asked_for() {
        let scratch = Scratch::new();
        let (one, _) = save_types(&scratch, 1);
        let file = hdf5_metno::File::open_rw(&one).unwrap();
        let header = file.group("Header").unwrap();
        header.attr("NumPart_Total").unwrap().write_raw(&[180u64, 0, 0, 0, 5000, 0]).unwrap();
        drop((header, file));
        let stars = ["sort", &one, "--particle-type", "4", "-o", &scratch.word("out.npy")];
        let words = ["types.hdf5", "counts 5000 particles of type 4", "has 120", "(--trust-coordinates)"];
        Call::new(&stars).on(Ranks::Threads(2)).run().is_error("a part", 1, &words);
        Call::new(&[&stars[..], &["--trust-coordinates"]].concat()).on(Ranks::Threads(2)).succeeds();
        let wrong =
            Call::new(&["sort", &scratch.word("type0.0.npy"), "--trust-coordinates", "-o", &scratch.word("o.npy")]);
        wrong.run().is_error("an array", 2, &["--trust-coordinates", "no input is one"]);
    }

    #[test]
    fn types_that_are_not_there_are_named_with_those_that_are() {
        let scratch = Scratch::new();
        let (one, [[gas, ..], _]) = save_types(&scratch, 1);
        let (parts, _) = save_types(&scratch, 2);
        let output = scratch.word("out.npy");
        let sort = |words: &[&str]| Call::new(&[&["sort", "-o", &output], words].concat());
        let fof = |words: &[&str]| Call::new(&[&["fof", "--linking-length", "1"], words].concat());
        let cases = [
            (sort(&[&one]), 1, "types.hdf5: no particles of type 1"),
            (sort(&[&one]), 1, "types 0 and 4 do; choose one of these types"),
            (sort(&[&parts]).on(Ranks::Threads(3)), 1, "types 0 and 4 do"),
            (sort(&[&one, "--particle-type", "5"]), 1, "no particles of type 5"),
            (sort(&[&parts, "--particle-type", "5"]).on(Ranks::Threads(2)), 1, "types 0 and 4 do"),
            (fof(&[&gas, "-o", &scratch.word("o.npz"), "--masses", &one]), 1, "choose one of these types"),
            (sort(&[&one, "--particle-type", "16"]), 2, "--particle-type"),
            (sort(&[&one, "--particle-type", "gas"]), 2, "--particle-type"),
            (sort(&[&gas, "--particle-type", "0"]), 2, "no input is one"),
            (sort(&[&scratch.word("missing.hdf5"), "--particle-type", "0"]), 1, "no such file"),
            // A file of the snapshot is never replaced, whatever particles it has.
            (
                fof(&[&parts, "--particle-type", "4", "-o", &scratch.word("types.0.hdf5")]),
                2,
                "is an input and an output",
            ),
        ];
        scratch.all_fail(cases);
        if has_mpi() {
            scratch.all_fail([
                (sort(&[&one]).on(Ranks::Mpi(2)), 1, "types 0 and 4 do"),
                (sort(&[&gas, "--particle-type", "0"]).on(Ranks::Mpi(2)), 2, "no input is one"),
            ]);
        }
    }

    /// Two files that say different boxes are refused, unless the call says which; other moments
    /// are another meaning of the numbers, which is said.
    #[test]
    fn two_snapshots_are_in_one_box() {
        let scratch = Scratch::new();
        let points = points(40);
        let [npy, one, _] = save(&scratch, &points);
        let other = |name: &str, info: SnapshotInfo| {
            let contents = Hdf5Contents::Snapshot { info: &info, part: FilePart::whole(&info) };
            let writer = Hdf5Writer::create(scratch.join(name), &contents, &token()).unwrap();
            SnapshotRows { positions: &points, velocities: &points, ids: &[0; 40] }.write(&writer, 0).unwrap();
            writer.seal().unwrap().publish().unwrap();
            scratch.word(name)
        };
        let larger = other("larger.hdf5", SnapshotInfo { box_size: 9.0, ..info(40) });
        let earlier = other("earlier.hdf5", SnapshotInfo { scale_factor: 0.5, ..info(40) });
        let edges = scratch.file("edges.txt", "0\n1\n");
        let output = scratch.word("out");
        let run =
            |words: &str| Call::new(&[&words.split(' ').collect::<Vec<_>>()[..], &["-o", &output]].concat()).run();
        for words in [
            format!("power {one} --cross {larger} --mesh 8"),
            format!("pairs {one} --cross {larger} --bins {edges}"),
            format!("knn {one} --queries {larger} -k 1"),
            format!("neighbors {larger} --queries {one} --radius 1"),
        ] {
            run(&words).is_error(&words, 1, &["one.hdf5", "larger.hdf5", "has a box of", "give --box"]);
            assert!(!Path::new(&output).exists());
        }
        let pairs = |first: &str, second: &str, more: &str| {
            let outcome = run(&format!("pairs {first} --cross {second} --bins {edges}{more}"));
            assert!(outcome.status.success(), "{outcome:#?}");
            (fs::read(&output).unwrap(), outcome.stderr)
        };
        let want = pairs(&npy, &npy, " --box 8").0;
        assert_eq!(pairs(&one, &larger, " --box 8"), (want.clone(), String::new()));
        // An array says no box: the one that the other file says holds.
        assert_eq!(pairs(&npy, &one, ""), (want.clone(), String::new()));
        let (found, said) = pairs(&one, &earlier, "");
        assert!(found == want && said.starts_with("meshloom: warning: ") && said.lines().count() == 1, "{said}");
        assert!(said.contains("one.hdf5 has the scale factor 1, and ") && said.contains("earlier.hdf5 0.5;"), "{said}");
        let outcome = run(&format!("power {one} --cross {earlier} --mesh 8"));
        assert!(outcome.status.success() && outcome.stderr.contains("scale factor"), "{outcome:#?}");
    }

    /// Catalogs of groups are points: their centers, in the box that the file says; and those of
    /// `fof` say what the snapshot did.
    #[test]
    fn groups_are_points_where_their_centers_are() {
        let scratch = Scratch::new();
        let [_, one, _] = save(&scratch, &points(300));
        let words = ["fof", &one, "--linking-length", "0.4", "--min-members", "2", "--velocities", &one, "-o"];
        let [archive, file] = ["groups.npz", "groups.hdf5"].map(|name| scratch.word(name));
        for output in [&archive, &file] {
            Call::new(&[&words[..], &[output]].concat()).succeeds();
        }
        let found = hdf5_metno::File::open(&file).unwrap();
        let header = found.group("Header").unwrap();
        let attribute = |at: &hdf5_metno::Location, name: &str| at.attr(name).unwrap().read_raw::<f64>().unwrap();
        for (name, value) in
            [("LinkingLength", f64::from(0.4f32)), ("MinMembers", 2.0), ("Time", 1.0), ("Redshift", 0.0)]
        {
            assert_eq!(attribute(&header, name), [value], "{name}");
        }
        assert_eq!((attribute(&header, "BoxSize"), attribute(&header, "Omega0")), (vec![8.0; 3], vec![0.3]));
        assert_eq!((attribute(&header, "HubbleParam"), attribute(&header, "OmegaLambda")), (vec![0.7], vec![0.7]));
        let unit = "Conversion factor to CGS (not including cosmological corrections)";
        let of = |name: &str| attribute(&found.dataset(name).unwrap(), unit)[0];
        assert!((of("center") / (3.085_677_581_491_367e24 / 0.7) - 1.0).abs() < 1e-12);
        assert_eq!((of("max_radius"), of("velocity")), (of("center"), 1e5));
        drop(found);

        // The centers as an array, in the layout of Gadget-4 too.
        let member = NpzFile::open(&archive).unwrap().member("center").unwrap();
        let (count, centers) = (member.shape()[0], member.read_f32(0..member.len()).unwrap());
        let array = NpyWriter::<f32>::create(scratch.join("centers.npy"), &[count, 3], &token()).unwrap();
        array.write(0, &centers).unwrap();
        array.finish().unwrap();
        let rows = centers.as_chunks::<3>().0;
        let (numbers, ones) = (vec![1u64; rows.len()], vec![1f32; rows.len()]);
        let offset: Vec<u64> = (0..=count).collect();
        let groups = Groups {
            label: &numbers,
            count: &numbers,
            mass: &ones,
            center: rows,
            velocity: None,
            inertia_radius: &ones,
            velocity_dispersion: None,
            max_radius: &ones,
            scale_factor: None,
            spheres: &[],
            offset: &offset,
            members: None,
        };
        write_groups(scratch.join("halos.0.hdf5"), &info(300), &groups).unwrap();
        let edges = scratch.file("edges.txt", "0\n1\n3\n");
        let pairs = ["pairs", "--bins", &edges];
        let want =
            call(&scratch, &scratch.word("centers.npy"), &[&pairs[..], &["--box", "8"]].concat(), Ranks::Threads(1));
        assert!(call(&scratch, &archive, &[&pairs[..], &["--box", "8"]].concat(), Ranks::Threads(1)) == want);
        for catalog in [&file, &scratch.word("halos.0.hdf5")] {
            assert!(call(&scratch, catalog, &pairs, Ranks::Threads(2)) == want, "{catalog}");
        }
        let spectrum = ["power", "--mesh", "8", "--cross", &archive, "--json"];
        let output = scratch.word("power.csv");
        let done = Call::new(&[&spectrum[..1], &[&file, "-o", &output], &spectrum[1..]].concat()).succeeds();
        let report: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!((&report["points"], &report["box"]), (&count.into(), &serde_json::json!([8.0, 8.0, 8.0])));
        let sort = ["sort", &file, "-o", &scratch.word("order.npy"), "--json"];
        let report: Value = serde_json::from_str(&Call::new(&sort).succeeds().stdout).unwrap();
        assert_eq!((&report["input"]["dataset"], &report["points"]), (&"center".into(), &count.into()));
        // Groups have no type, and an archive of something else has no centers.
        let output = scratch.word("none.npy");
        Call::new(&["sort", &file, "-o", &output, "--particle-type", "1"]).run().is_error(
            "a type",
            1,
            &["groups.hdf5"],
        );
        let knn = scratch.word("near.npz");
        Call::new(&["knn", &one, "-k", "1", "-o", &knn]).succeeds();
        Call::new(&["sort", &knn, "-o", &output]).run().is_error("no groups", 1, &["has no array `center`", "index"]);
    }

    #[test]
    fn reports_name_the_snapshot_and_its_box() {
        let scratch = Scratch::new();
        let [_, _, parts] = save(&scratch, &points(40));
        let output = scratch.word("out.npy");
        let done = Call::new(&["sort", &parts, "-o", &output, "--json"]).on(Ranks::Threads(2)).succeeds();
        let report: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(report["box"], serde_json::json!([8.0, 8.0, 8.0]));
        let input = &report["input"];
        assert_eq!((&input["format"], &input["files"]), (&"hdf5".into(), &3.into()));
        assert_eq!((&input["shape"], &input["dtype"]), (&serde_json::json!([40, 3]), &"float32".into()));
    }

    #[test]
    fn an_output_that_would_replace_a_file_of_its_input_is_refused() {
        let scratch = Scratch::new();
        let [npy, _, parts] = save(&scratch, &points(40));
        let [first, beyond] = ["parts.0.hdf5", "parts.3.hdf5"].map(|name| scratch.word(name));
        let before = fs::read(scratch.join("parts.0.hdf5")).unwrap();
        let whole = scratch.word("parts.hdf5");
        for call in [
            // Given as a part, and by the name of all.
            Call::new(&["sort", &parts, "-o", &first]),
            Call::new(&["sort", &whole, "-o", &first]),
            Call::new(&["knn", &npy, "--box", "8", "--queries", &parts, "-k", "1", "-o", &first]),
            Call::new(&["fof", &npy, "--velocities", &parts, "--linking-length", "1", "-o", &first]),
        ] {
            call.run().is_error("a part", 2, &["parts.0.hdf5 is an input and an output"]);
        }
        assert!(fs::read(scratch.join("parts.0.hdf5")).unwrap() == before);
        // A file that is called like a part and is none.
        fs::write(scratch.join("parts.3.hdf5"), "none").unwrap();
        Call::new(&["fof", &parts, "--linking-length", "1", "-o", &beyond]).succeeds();
        assert!(hdf5_metno::File::open(&beyond).unwrap().dataset("order").is_ok());
    }

    /// Spheres about groups of a snapshot, by its own cosmology, beside those that the run
    /// measured.
    #[test]
    fn groups_of_a_snapshot_have_the_overdensities_of_its_run() {
        let scratch = Scratch::new();
        let universe = scratch
            .file("universe.toml", "sigma8 = 1.1\nn_s = 0.96\nOmega_m = 0.3\nOmega_b = 0.05\nh = 0.7\nN_eff = 3.0\n");
        let words = "--particles 16 --mesh 32 --box 16 --steps 4 --linking-parameter 0.2 --w0 -0.8 --wa 0.3 --snapshots 0.7 --hdf5 one";
        let spheres = ["--overdensity", "100m,50c,vir"];
        let words = [&words.split(' ').collect::<Vec<_>>()[..], &["--cosmology", &universe], &spheres].concat();
        Call::simulate(&scratch.join("run"), &words).succeeds();
        let rows = |file: &NpzFile, name: &str| file.member(name).unwrap().shape()[0];
        let column = |file: &NpzFile, name: &str| file.member(name).unwrap().read_f32(0..rows(file, name)).unwrap();
        for directory in ["run", "run/snapshot_0.7"] {
            let (snapshot, out) = (scratch.word(&format!("{directory}/snapshot.hdf5")), scratch.word("groups.npz"));
            let words = [&["fof", &snapshot, "--linking-parameter", "0.2", "-o", &out], &spheres[..]].concat();
            Call::new(&words).on(Ranks::Threads(2)).succeeds();
            let [groups, halos] =
                [out, scratch.word(&format!("{directory}/halos.npz"))].map(|path| NpzFile::open(path).unwrap());
            let mass = column(&halos, "mass")[0] / column(&groups, "mass")[0];
            for name in ["100m", "50c", "vir"] {
                let [own, wanted] = [&groups, &halos]
                    .map(|file| [column(file, &format!("mass_{name}")), column(file, &format!("radius_{name}"))]);
                assert!(name == "vir" || wanted[0].iter().any(|mass| *mass > 0.0), "{directory} {name}");
                // Counts are exact, and masses and radii round: some 1e-7 each.
                let close = |own: f32, wanted: f32| (own - wanted).abs() <= 1e-6 * wanted;
                assert_eq!(own[0].len(), wanted[0].len());
                for at in 0..own[0].len() {
                    assert!(close(own[0][at] * mass, wanted[0][at]) && close(own[1][at], wanted[1][at]), "{name} {at}");
                }
            }
        }
        // A snapshot whose attributes leave no Omega_m, and one of a universe that is not flat.
        let (snapshot, out) = (scratch.word("run/snapshot.hdf5"), scratch.word("no.npz"));
        let fof = |word: &str| {
            Call::new(&["fof", &snapshot, "--linking-parameter", "0.2", "--overdensity", word, "-o", &out]).run()
        };
        let file = hdf5_metno::File::open_rw(&snapshot).unwrap();
        file.group("Cosmology").unwrap().attr("Omega_lambda").unwrap().write_raw(&[0.2f64]).unwrap();
        drop(file);
        fof("vir").is_error("two densities", 1, &["Cosmology/Omega_lambda says 0.2", "Parameters/OmegaLambda says 0."]);
        let file = hdf5_metno::File::open_rw(&snapshot).unwrap();
        for group in ["Parameters", "Header"] {
            file.group(group).unwrap().attr("OmegaLambda").unwrap().write_scalar(&0.2f64).unwrap();
        }
        drop(file);
        fof("vir").is_error("curved", 2, &["--overdensity vir is of a flat universe", "Omega_k"]);
        let file = hdf5_metno::File::open_rw(&snapshot).unwrap();
        file.group("Cosmology").unwrap().attr("Cosmological run").unwrap().write_raw(&[0i32]).unwrap();
        drop(file);
        fof("500c").is_error("no cosmology", 2, &["--overdensity 500c needs a cosmology"]);
        Call::new(&["fof", &snapshot, "--linking-parameter", "0.2", "--overdensity", "200m", "-o", &out]).succeeds();
    }

    #[test]
    fn bad_snapshots_are_one_error_on_any_ranks() {
        let scratch = Scratch::new();
        let mut bad = points(5);
        bad[3][1] = f32::NAN;
        let [_, one, parts] = save(&scratch, &bad);
        let torn = fs::read(scratch.join("one.hdf5")).unwrap();
        let torn = scratch.file("torn.hdf5", &torn[..torn.len() / 2]);
        let text = scratch.file("text.h5", "no snapshot");
        fs::remove_file(scratch.join("parts.0.hdf5")).unwrap();
        let output = scratch.word("out");
        let mut ways = vec![Ranks::Threads(1), Ranks::Threads(3)];
        if has_mpi() {
            ways.push(Ranks::Mpi(2));
        }
        for ranks in ways {
            for (input, words) in [
                (&one, &["one.hdf5", "(3, 1)", "NaN"][..]),
                (&parts, &["parts.0.hdf5 is not there"]),
                (&torn, &["torn.hdf5", "copy or write it again"]),
                (&text, &["text.h5", "not an HDF5 file"]),
                (&scratch.word("none.hdf5"), &["none.hdf5", "no such file"]),
            ] {
                for command in [&["sort"][..], &["power"], &["knn", "-k", "1"]] {
                    let call = Call::new(&[&command[..1], &[input, "-o", &output], &command[1..]].concat());
                    call.on(ranks).run().is_error(&format!("{command:?} {input} on {ranks:?}"), 1, words);
                    assert!(!Path::new(&output).exists());
                }
            }
        }
        // The words of the call depend on the file.
        let [npy, one, _] = save(&scratch, &points(5));
        Call::new(&["power", &npy, "-o", &output]).run().is_error("no box", 2, &["--box is missing"]);
        Call::new(&["sort", &one, "--box", "1,2", "-o", &output]).run().is_error(
            "two sides",
            2,
            &["--box has 2 sides"],
        );
    }

    fn read(path: &Path) -> Vec<f32> {
        let file = NpyFile::open(path).unwrap();
        file.read_f32(0..file.len()).unwrap()
    }

    /// Checks that the snapshot beside `positions.npy` holds the same particles.
    fn is_beside(directory: &Path, files: usize, a: f64) {
        let snapshot = Snapshot::open(directory.join("snapshot.hdf5")).unwrap();
        assert_eq!((snapshot.paths().len(), snapshot.count()), (files, 512));
        assert_eq!((snapshot.time(), snapshot.box_size()), (Some(a), Some([128.0; 3])));
        let ids = snapshot.ids(0..512).unwrap();
        let (x, p) = (read(&directory.join("positions.npy")), read(&directory.join("velocities.npy")));
        let (found_x, found_v) = (snapshot.positions_f32(0..512).unwrap(), snapshot.velocities_f32(0..512).unwrap());
        let mut seen = vec![false; 512];
        for (row, id) in ids.into_iter().map(|id| id as usize).enumerate() {
            assert!(!std::mem::replace(&mut seen[id], true));
            for axis in 0..3 {
                let (at, want) = (3 * row + axis, 3 * id + axis);
                assert_eq!(found_x[at], x[want]);
                // p = a^2 dx/dt in 100 km/s; Gadget's is a dx/dt over the root of a.
                assert_eq!(found_v[at], (100.0 * f64::from(p[want]) / a / a.sqrt()) as f32);
            }
        }
        assert!(seen.into_iter().all(|seen| seen));
    }

    #[test]
    fn a_simulation_writes_snapshots_on_any_ranks() {
        let scratch = Scratch::new();
        let mut ways = vec![Ranks::Threads(1), Ranks::Threads(4)];
        if has_mpi() {
            ways.push(Ranks::Mpi(3));
        }
        let mut first = None;
        for (number, ranks) in ways.into_iter().enumerate() {
            for kind in ["one", "per-rank", "2"] {
                let out = scratch.join(&format!("{kind}{number}"));
                // Pencils on four ranks: a rank's particles do not follow one another.
                let grid = if ranks == Ranks::Threads(4) { "2x2" } else { "auto" };
                let words = ["--snapshots", "0.5", "--hdf5", kind, "--grid", grid];
                Call::simulate(&out, &words).on(ranks).succeeds();
                let parts = match ranks {
                    Ranks::Threads(n) | Ranks::Mpi(n) => usize::from(n),
                };
                let count = match kind {
                    "one" => 1,
                    "2" => parts.min(2),
                    _ => parts,
                };
                is_beside(&out, count, 1.0);
                is_beside(&out.join("snapshot_0.5"), count, 0.5);
                let left = files(&out).into_iter().filter(|path| path.extension().is_some_and(|e| e == "part"));
                assert_eq!(left.count(), 0);
                if kind == "one" {
                    let bytes = fs::read(out.join("snapshot.hdf5")).unwrap();
                    assert!(first.get_or_insert_with(|| bytes.clone()) == &bytes, "{ranks:?}");
                } else {
                    assert!(!out.join("snapshot.hdf5").exists());
                }
                let run: Value = serde_json::from_slice(&fs::read(out.join("run.json")).unwrap()).unwrap();
                assert_eq!(run["hdf5"], if kind == "2" { json!(2) } else { json!(kind) });
            }
        }
        // The spectrum of it, in its own box.
        let output = scratch.word("power.csv");
        Call::new(&["power", &scratch.word("one0/snapshot.hdf5"), "-o", &output, "--mesh", "8"]).succeeds();
        assert!(fs::read_to_string(output).unwrap().lines().count() > 3);
        let call = Call::simulate(&scratch.join("x"), &["--hdf5", "two"]);
        call.run().is_error("two", 2, &["invalid value 'two' for '--hdf5 <one|per-rank|N>'", "got `two`"]);
        let call = Call::simulate(&scratch.join("x"), &["--hdf5", "0"]);
        call.run().is_error("no file", 2, &["expected at least 1 file, got 0"]);
    }

    #[test]
    fn a_directory_in_the_way_of_a_file_is_found_before_the_run() {
        for (kind, name) in [
            ("one", "snapshot.hdf5"),
            ("per-rank", "snapshot.1.hdf5"),
            ("one", "snapshot_0.5/snapshot.hdf5"),
            ("per-rank", "snapshot_0.5/snapshot.0.hdf5"),
        ] {
            let scratch = Scratch::new();
            fs::create_dir_all(scratch.join("out").join(name)).unwrap();
            let mut ways = vec![Ranks::Threads(2)];
            if has_mpi() {
                ways.push(Ranks::Mpi(2));
            }
            for ranks in ways {
                let words = ["--hdf5", kind, "--snapshots", "0.5"];
                let outcome = Call::simulate(&scratch.join("out"), &words).on(ranks).run();
                outcome.is_error(kind, 1, &[name, "not a regular file"]);
                // Neither a checkpoint of steps that were done in vain nor anything else.
                assert!(files(scratch.path()).is_empty(), "{ranks:?}: {:?}", files(scratch.path()));
            }
        }
    }
}
