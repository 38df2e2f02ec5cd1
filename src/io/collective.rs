//! Files that all ranks write together, over a [`Communicator`].
//!
//! Each rank writes its own ranges, and a file gets its final name when it is complete. All
//! functions are collective, with the same path and shapes on all ranks. If one rank fails, all
//! return an error with the same message, by [`Communicator::together`], and the program can
//! continue, for example with another directory.
//!
//! ```
//! use meshloom::{Error, comm::run_threads, io::{NpyFile, collective::write_npy, token}};
//!
//! let path = std::env::temp_dir().join(format!("meshloom-doc-{}.npy", token()));
//! run_threads(3, |comm| {
//!     let rank = comm.rank() as u64;
//!     write_npy(&comm, &path, &[3, 2], |to| Ok::<_, Error>(to.write(2 * rank, &[rank as f32; 2])?))
//! })?;
//! assert_eq!(NpyFile::open(&path)?.read_f32(0..6)?, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod same_files;

use std::fmt::{Debug, Display};
use std::path::Path;

use super::{IoError, Member, NpyElement, NpyWriter, NpzWriter, PartCrc, Result, Sealed, printable_path, token};
use crate::comm::{CommError, Communicator, Op};
use crate::hash::placed;
#[cfg(feature = "hdf5")]
use crate::io::hdf5;

pub use same_files::{same_contents, same_directory};

/// Elements of an archive that are written at a time; few enough to stay in the cache until their
/// CRC is computed.
const PIECE: usize = 1 << 17;

/// Returns a [`token`] of rank 0 for the name of a temporary file. Collective.
///
/// # Errors
/// Same as [`Communicator::broadcast`].
pub fn shared_token(comm: &Communicator) -> Result<String, CommError> {
    let mut bytes = [0u8; 64];
    if comm.rank() == 0 {
        let token = token();
        bytes[..token.len().min(64)].copy_from_slice(&token.as_bytes()[..token.len().min(64)]);
    }
    comm.broadcast(0, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string())
}

/// Returns the name of the host that `rank` runs on. Collective.
fn host_of(comm: &Communicator, rank: usize) -> Result<String, CommError> {
    let own = crate::host::name().unwrap_or_else(|| "a host without a name".into());
    let all = comm.all_gather_v(own.as_bytes())?;
    Ok(String::from_utf8_lossy(all.get(rank).unwrap_or_default()).into_owned())
}

/// Writes one `.npy` file of `shape` from all ranks; `write` is passed this rank's writer. Each
/// element must be written once, by one rank. When this returns on any rank, the file exists.
/// Collective.
///
/// # Errors
/// On all ranks the error of the first rank whose `write` or file fails, [`CommError::Differ`] if
/// ranks have another type or shape, and `IoErrorKind::Misuse` if the parts do not cover the array.
pub fn write_npy<T: NpyElement, E: Display + From<IoError> + From<CommError>>(
    comm: &Communicator,
    path: &Path,
    shape: &[u64],
    write: impl FnOnce(&NpyWriter<T>) -> Result<(), E>,
) -> Result<(), E> {
    publish(comm, seal_npy(comm, path, shape, write)?)
}

/// Writes like [`write_npy`], but leaves the file to be named by rank 0's [`Sealed::publish`].
/// Collective.
///
/// # Errors
/// Same as [`write_npy`].
pub fn seal_npy<T: NpyElement, E: Display + From<IoError> + From<CommError>>(
    comm: &Communicator,
    path: &Path,
    shape: &[u64],
    write: impl FnOnce(&NpyWriter<T>) -> Result<(), E>,
) -> Result<Sealed, E> {
    let create = |token: &str| NpyWriter::create(path, shape, token);
    let writer = opened::<_, E>(comm, (path, (T::DESCR, shape)), create, |token| NpyWriter::open(path, shape, token))?;
    comm.together(|| write(&writer))?;
    writer.check_written(comm.reduced(writer.written(), Op::Sum)?)?;
    comm.together(|| Ok(writer.seal()?))
}

/// Gives a file its name. When this returns on any rank, the file exists.
fn publish<E: Display + From<IoError> + From<CommError>>(comm: &Communicator, sealed: Sealed) -> Result<(), E> {
    comm.together(|| Ok(sealed.publish()?))
}

/// This rank's writer of an `.npz` archive.
#[derive(Debug)]
pub struct Archive {
    writer: NpzWriter,
    /// The parts that it has written.
    parts: Vec<PartCrc>,
}

impl Archive {
    /// Writes elements of a member from number `first` on; see [`NpzWriter::write`].
    ///
    /// # Errors
    /// Same as [`NpzWriter::write`].
    pub fn write<T: NpyElement>(&mut self, member: usize, first: u64, elements: &[T]) -> Result<()> {
        for (number, piece) in elements.chunks(PIECE).enumerate() {
            self.parts.push(self.writer.write(member, first + (number * PIECE) as u64, piece)?);
        }
        Ok(())
    }
}

/// Writes one `.npz` archive of `members` from all ranks; `write` is passed this rank's writer.
/// When this returns on any rank, the file exists. Collective.
///
/// # Errors
/// Same as [`write_npy`].
pub fn write_npz<E: Display + From<IoError> + From<CommError>>(
    comm: &Communicator,
    path: &Path,
    members: &[Member],
    write: impl FnOnce(&mut Archive) -> Result<(), E>,
) -> Result<(), E> {
    publish(comm, seal_npz(comm, path, members, write)?)
}

/// Writes like [`write_npz`], but leaves the file to be named by rank 0's [`Sealed::publish`].
/// Collective.
///
/// # Errors
/// Same as [`write_npy`].
pub fn seal_npz<E: Display + From<IoError> + From<CommError>>(
    comm: &Communicator,
    path: &Path,
    members: &[Member],
    write: impl FnOnce(&mut Archive) -> Result<(), E>,
) -> Result<Sealed, E> {
    let create = |token: &str| NpzWriter::create(path, members, token);
    let writer = opened::<_, E>(comm, (path, members), create, |token| NpzWriter::open(path, members, token))?;
    let mut archive = Archive { writer, parts: Vec::new() };
    comm.together(|| write(&mut archive))?;
    let Archive { writer, parts } = archive;
    let parts = comm.gather_v(0, &parts)?;
    comm.together(|| Ok(writer.seal(parts.as_ref().map_or(&[], |parts| parts.data()))?))
}

/// Writes one HDF5 file of `contents` from all ranks; `write` is passed this rank's writer. The
/// file has no name yet, which rank 0 gives it by [`Sealed::publish`]. Collective.
///
/// # Errors
/// Same as [`write_npy`] and [`Hdf5Writer::create`](hdf5::Hdf5Writer::create).
#[cfg(feature = "hdf5")]
pub fn seal_hdf5<E: Display + From<IoError> + From<CommError>>(
    comm: &Communicator,
    path: &Path,
    contents: &hdf5::Hdf5Contents,
    write: impl FnOnce(&hdf5::Hdf5Writer) -> Result<(), E>,
) -> Result<Sealed, E> {
    seal_hdf5_files(comm, comm, path, contents, write)
}

/// Writes several HDF5 files from all ranks of `comm`, each from the ranks of one communicator
/// `writers` that [`split`](Communicator::split) has made of `comm`. Each file is written as by
/// [`seal_hdf5`]; a failure of one is a failure of all. Collective over `comm`.
///
/// # Errors
/// Same as [`seal_hdf5`].
#[cfg(feature = "hdf5")]
pub fn seal_hdf5_files<E: Display + From<IoError> + From<CommError>>(
    comm: &Communicator,
    writers: &Communicator,
    path: &Path,
    contents: &hdf5::Hdf5Contents,
    write: impl FnOnce(&hdf5::Hdf5Writer) -> Result<(), E>,
) -> Result<Sealed, E> {
    use hdf5::Hdf5Writer;

    let token = shared_token(writers)?;
    let file = printable_path(path);
    comm.together(|| Ok::<_, E>(writers.agree(&file, &[("types and shapes", &contents.members())])?))?;
    let create = || Ok::<_, E>(Hdf5Writer::create(path, contents, &token)?);
    let first = comm.together(|| (writers.rank() == 0).then(create).transpose())?;
    let offsets = writers.all_gather_v(first.as_ref().map_or(&[][..], Hdf5Writer::offsets))?;
    let open = || Ok::<_, E>(Hdf5Writer::open(path, contents, &token, offsets.data())?);
    let writer = comm.together(|| first.map_or_else(open, Ok))?;
    comm.together(|| write(&writer))?;
    comm.together(|| Ok(writer.seal()?))
}

/// Creates a file on rank 0, then opens it on the other ranks, with one token. The value `alike`
/// must be equal on all ranks.
fn opened<W, E: Display + From<IoError> + From<CommError>>(
    comm: &Communicator,
    (path, alike): (&Path, impl Debug),
    create: impl FnOnce(&str) -> Result<W>,
    open: impl FnOnce(&str) -> Result<W>,
) -> Result<W, E> {
    let token = shared_token(comm)?;
    comm.agree(&printable_path(path), &[("types and shapes", &alike)])?;
    // The file exists when this returns on any rank.
    let first = comm.together(|| (comm.rank() == 0).then(|| Ok::<_, E>(create(&token)?)).transpose())?;
    // All have opened it when this returns: a rank that failed before would remove the file, and
    // others would report it as missing.
    comm.together(|| first.map_or_else(|| Ok(open(&token)?), Ok))
}

/// Returns a 64-bit hash of the values of all ranks' sites and of their order, which does not
/// depend on the distribution of sites. `rows` are the first sites of this rank's rows of `length`
/// sites; each of `columns` has one value per site. Collective.
///
/// # Errors
/// [`CommError`] if another rank fails.
pub fn fingerprint(
    comm: &Communicator,
    rows: impl Iterator<Item = u64>,
    length: u64,
    columns: &[&[f32]],
) -> Result<u64, CommError> {
    let rows: Vec<u64> = rows.collect();
    let of_column = |(number, column): (u64, &&[f32])| {
        let sites = rows.iter().flat_map(|&row| row..row + length);
        let marks = sites.zip(*column).map(|(site, value)| {
            placed(site.wrapping_mul(columns.len() as u64).wrapping_add(number), u64::from(value.to_bits()))
        });
        marks.fold(0, u64::wrapping_add)
    };
    let own = (0..).zip(columns).map(of_column).fold(0, u64::wrapping_add);
    Ok(comm.reduced([own], Op::Sum)?[0])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::comm::run_threads;
    use crate::io::scratch::Scratch;

    #[derive(Debug, thiserror::Error)]
    enum Error {
        #[error(transparent)]
        Io(#[from] IoError),
        #[error(transparent)]
        Comm(#[from] CommError),
    }

    /// Returns the results of two ranks that write ranges of arrays of their shapes, of `f32` or of
    /// `u32`.
    fn written(shapes: [&[u64]; 2], whole_numbers: [bool; 2], parts: [&[(u64, u64)]; 2]) -> Vec<Result<(), String>> {
        let scratch = Scratch::new();
        let path = scratch.path().join("array.npy");
        let results = run_threads(2, |comm| {
            let (shape, parts) = (shapes[comm.rank()], parts[comm.rank()]);
            let mut ranges = parts.iter().map(|&(start, end)| (start, (end - start) as usize));
            let written = match whole_numbers[comm.rank()] {
                true => write_npy(&comm, &path, shape, |to| {
                    ranges.try_for_each(|(first, len)| Ok::<_, Error>(to.write(first, &vec![1u32; len])?))
                }),
                false => write_npy(&comm, &path, shape, |to| {
                    ranges.try_for_each(|(first, len)| Ok::<_, Error>(to.write(first, &vec![1f32; len])?))
                }),
            };
            Ok::<_, Error>(written.map_err(|error| error.to_string()))
        });
        let results = results.unwrap();
        let files = fs::read_dir(scratch.path()).unwrap().count();
        assert_eq!(files, usize::from(results.iter().all(Result::is_ok)), "{results:?}");
        results
    }

    #[test]
    fn an_array_is_written_by_ranks_that_agree_on_it_and_once() {
        let (shape, halves): ([&[u64]; 2], [&[(u64, u64)]; 2]) = ([&[4, 2]; 2], [&[(0, 4)], &[(4, 8)]]);
        assert!(written(shape, [false; 2], halves).iter().all(Result::is_ok));
        for (shapes, whole_numbers) in [([&[4u64, 2][..], &[2, 4]], [false; 2]), (shape, [false, true])] {
            for result in written(shapes, whole_numbers, halves) {
                let text = result.unwrap_err();
                assert!(text.contains("`types and shapes` differs between ranks"), "{text}");
            }
        }
        let cases: [([&[(u64, u64)]; 2], &str); 4] = [
            ([&[(0, 4)], &[(4, 7)]], "parts of 7 elements"),
            ([&[(0, 4)], &[]], "parts of 4 elements"),
            ([&[(0, 5)], &[(5, 8), (2, 3)]], "parts of 9 elements"),
            ([&[(0, 4)], &[(3, 7)]], "parts of 8 elements"),
        ];
        for (parts, said) in cases {
            for result in written(shape, [false; 2], parts) {
                let text = result.unwrap_err();
                assert!(text.contains(said) && text.contains("the array of 8"), "{text}");
            }
        }
    }

    /// Checks that all ranks fail with the same message, which contains `part`, and that all then
    /// write to another directory.
    fn fails_together_and_recovers(
        part: &str,
        fail: impl Fn(&Communicator, &Path) -> Result<(), Error> + Sync,
        write: impl Fn(&Communicator, &Path) -> Result<(), Error> + Sync,
    ) {
        let scratch = Scratch::new();
        let texts = run_threads(3, |comm| {
            let text = fail(&comm, scratch.path()).unwrap_err().to_string();
            write(&comm, &scratch.path().join("good"))?;
            Ok::<_, Error>(text)
        });
        let texts = texts.unwrap();
        let named =
            |text: &str| text.split_once(": ").map(|(rank, text)| (rank.starts_with("rank "), text.to_string()));
        let message = texts.iter().find_map(|text| named(text).filter(|(is_other, _)| *is_other)).unwrap().1;
        assert!(message.contains(part), "{message}");
        assert!(texts.iter().all(|text| text.ends_with(&message)), "{texts:?}");
        assert_eq!(scratch.names(), ["good"]);
    }

    fn write_ranks(comm: &Communicator, path: &Path) -> Result<(), Error> {
        write_npy(comm, path, &[3], |to| Ok(to.write(comm.rank() as u64, &[1f32])?))
    }

    #[test]
    fn a_failure_of_one_rank_is_one_of_all_and_another_directory_will_do() {
        let missing = |comm: &Communicator, path: &Path| write_ranks(comm, &path.join("missing/array.npy"));
        fails_together_and_recovers("missing/array.npy", missing, write_ranks);
        // No user may create files there.
        let read_only = |comm: &Communicator, _: &Path| write_ranks(comm, Path::new("/proc/array.npy"));
        fails_together_and_recovers("/proc/array.npy", read_only, write_ranks);
        let full = |comm: &Communicator, path: &Path| {
            write_npy(comm, &path.join("array"), &[3], |to| match comm.rank() {
                1 => Err(Error::Io(IoError::write("array", 12, std::io::ErrorKind::StorageFull.into()))),
                rank => Ok(to.write(rank as u64, &[1f32])?),
            })
        };
        fails_together_and_recovers("array: ", full, write_ranks);
        let members = [Member::new::<f32>("a", &[3])];
        let archive = |comm: &Communicator, path: &Path| {
            write_npz(comm, path, &members, |to| Ok(to.write(0, comm.rank() as u64, &[1f32])?))
        };
        fails_together_and_recovers("none/x.npz", |comm, path| archive(comm, &path.join("none/x.npz")), archive);
    }

    #[cfg(feature = "hdf5")]
    #[test]
    fn hdf5_files_fail_on_all_ranks_too() {
        let write = |comm: &Communicator, path: &Path, member: Member| {
            let members = [member];
            let contents = hdf5::Hdf5Contents::Arrays { members: &members, attributes: &[] };
            let sealed =
                seal_hdf5(comm, path, &contents, |to| Ok::<_, Error>(to.write(0, comm.rank() as u64, &[1f32])?))?;
            publish(comm, sealed)
        };
        let good = |comm: &Communicator, path: &Path| write(comm, path, Member::new::<f32>("a", &[3]));
        fails_together_and_recovers("missing/x.hdf5", |comm, path| good(comm, &path.join("missing/x.hdf5")), good);
        let one = |comm: &Communicator, path: &Path| {
            let [wrong, right] = [Member::new::<[f32; 2]>("a", &[3]), Member::new::<f32>("a", &[3])];
            write(comm, path, if comm.rank() == 1 { wrong } else { right })
        };
        fails_alike("`types and shapes` differs between ranks", one);
        fails_together_and_recovers(
            "convert the values",
            |comm, path| write(comm, path, Member::new::<[f32; 2]>("a", &[3])),
            good,
        );
    }

    /// Checks that all ranks fail with a message that contains `part`.
    #[cfg(feature = "hdf5")]
    fn fails_alike(part: &str, fail: impl Fn(&Communicator, &Path) -> Result<(), Error> + Sync) {
        let scratch = Scratch::new();
        let texts = run_threads(3, |comm| Ok::<_, Error>(fail(&comm, scratch.path()).unwrap_err().to_string()));
        assert!(texts.unwrap().iter().all(|text| text.contains(part)));
    }

    #[test]
    fn fingerprints_know_values_and_places_but_no_ranks() {
        // Four rows of three sites, distributed over ranks.
        let [x, y]: [Vec<f32>; 2] = [1.0, -2.0].map(|unit| (0..12).map(|i| unit * i as f32).collect());
        let of = |x: &[f32], y: &[f32], ranks: usize| {
            let sums = run_threads(ranks, |comm| {
                let own: Vec<u64> = (0..4).filter(|row| row % ranks == comm.rank()).map(|row| 3 * row as u64).collect();
                let part = |all: &[f32]| -> Vec<f32> {
                    own.iter().flat_map(|&row| all[row as usize..row as usize + 3].to_vec()).collect()
                };
                fingerprint(&comm, own.iter().copied(), 3, &[&part(x), &part(y)])
            });
            let sums = sums.unwrap();
            assert!(sums.iter().all(|sum| *sum == sums[0]));
            sums[0]
        };
        let want = of(&x, &y, 1);
        assert_eq!([2, 3].map(|ranks| of(&x, &y, ranks)), [want; 2]);
        let (mut swapped, mut changed) = (x.clone(), x.clone());
        swapped.swap(3, 4);
        changed[11] = f32::from_bits(changed[11].to_bits() ^ 1);
        assert!([of(&y, &x, 1), of(&swapped, &y, 2), of(&changed, &y, 2)].iter().all(|&other| other != want));
    }
}
