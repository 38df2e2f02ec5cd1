//! Checks that all ranks read the same files and see the directory that they write to.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use super::{host_of, shared_token};
use crate::comm::{CommError, Communicator};
use crate::hash::{START, fnv1a};
use crate::io::cleanup::Probe;
use crate::io::{Input, IoError, IoErrorKind, Result, printable, temporary_name};

/// Number of blocks that are compared, evenly from the first to the last byte, and bytes of each.
const BLOCKS: u64 = 16;
const BLOCK: u64 = 4096;

/// Stands for a file that cannot be read.
const UNREADABLE: u64 = 0;

/// Checks that each of `paths` has the same contents on all ranks, which read parts of them.
/// Compares lengths and 64 KiB of the contents, so that the cost does not grow with the file, but
/// not times of change, which may differ between hosts. A file that some rank cannot read fails
/// when it is opened. Collective; the inner error is equal on all ranks.
///
/// # Errors
/// `IoErrorKind::NotShared` (inner) of the first rank that differs from those before it;
/// [`CommError`] (outer).
pub fn same_contents(comm: &Communicator, paths: &[PathBuf]) -> Result<Result<()>, CommError> {
    let own: Vec<u64> = paths.iter().map(|path| fingerprint(path).unwrap_or(UNREADABLE)).collect();
    let all = comm.all_gather_v(&own)?;
    let rows: Vec<&[u64]> = (0..comm.size()).map(|rank| all.get(rank).unwrap_or_default()).collect();
    let Some((rank, file)) = first_difference(&rows) else { return Ok(Ok(())) };
    let host = host_of(comm, rank)?;
    // If the lists differ, a file in them differs, which is named as in rank 0's list.
    let path = paths.get(file).or(paths.last()).cloned().unwrap_or_default();
    let message = format!(
        "rank {rank} (on {}) reads other contents than the ranks before it; give all ranks the same file, as one \
         on a file system that they share",
        printable(&host)
    );
    Ok(Err(IoError::new(IoErrorKind::NotShared, path, message)))
}

/// Returns a hash of a file's length and of parts of its contents.
fn fingerprint(path: &Path) -> Result<u64> {
    let input = Input::open(path)?;
    let (len, last) = (input.len(), input.len().saturating_sub(BLOCK));
    (0..BLOCKS).try_fold(fnv1a(START, &len.to_le_bytes()), |hash, block| {
        let at = (u128::from(last) * u128::from(block) / u128::from(BLOCKS - 1)) as u64;
        Ok(fnv1a(hash, &input.bytes(at..len.min(at + BLOCK))?))
    })
}

/// Returns the first file that differs between ranks, and the first rank that differs from one
/// before it.
fn first_difference(rows: &[&[u64]]) -> Option<(usize, usize)> {
    let files = rows.iter().map(|row| row.len()).max()?;
    (0..files).find_map(|file| {
        let mut ranks = rows.iter().map(|row| row.get(file).copied()).enumerate();
        let (_, first) = ranks.by_ref().find(|(_, mark)| *mark != Some(UNREADABLE))?;
        let other = ranks.find(|(_, mark)| *mark != Some(UNREADABLE) && *mark != first)?;
        Some((other.0, file))
    })
}

/// Number of attempts to find the file of rank 0, and the time between them: a network file system
/// may show a new file late.
const LOOKS: u32 = 10;
const BETWEEN: Duration = Duration::from_millis(50);

/// Stands for no directory.
const NONE: u64 = u64::MAX;

/// Checks before the work that all ranks see under this path what rank 0 writes in `directory`.
/// Rank 0 creates a hidden file in it, or in its nearest existing parent, and removes it again. If
/// rank 0 cannot write there, creating the output fails later. Collective; the inner error is equal
/// on all ranks.
///
/// # Errors
/// `IoErrorKind::NotShared` (inner) of the first rank that does not see it; [`CommError`] (outer).
pub fn same_directory(comm: &Communicator, directory: &Path) -> Result<Result<()>, CommError> {
    let token = shared_token(comm)?;
    let name = |level: u64| Some(directory.ancestors().nth(usize::try_from(level).ok()?)?.join("meshloom"));
    let mut level = [NONE];
    let mut probe = None;
    if comm.rank() == 0 {
        level = [nearest(directory)];
        probe = name(level[0]).and_then(|path| Probe::beside(&path, &token).ok());
        if probe.is_none() {
            level = [NONE];
        }
    }
    comm.broadcast(0, &mut level)?;
    let Some(path) = name(level[0]).map(|path| temporary_name(&path, &token)) else { return Ok(Ok(())) };
    let seen = comm.all_gather(&[u8::from(comm.rank() == 0 || is_seen(&path))])?;
    drop(probe);
    let Some(rank) = seen.iter().position(|seen| *seen == 0) else { return Ok(Ok(())) };
    // The working directory has an empty path.
    let path = if directory.as_os_str().is_empty() { Path::new(".") } else { directory }.to_path_buf();
    let message = format!(
        "rank {rank} (on {}) does not see what rank 0 writes: ranks do not share this directory, or were started \
         in different ones; choose one that all share, by its whole path",
        printable(&host_of(comm, rank)?)
    );
    Ok(Err(IoError::new(IoErrorKind::NotShared, path, message)))
}

/// Returns the number of levels from `directory` to its nearest existing parent.
fn nearest(directory: &Path) -> u64 {
    let exists = |level: &Path| level.as_os_str().is_empty() || level.is_dir();
    directory.ancestors().position(exists).map_or(NONE, |level| level as u64)
}

fn is_seen(path: &Path) -> bool {
    (0..LOOKS).any(|look| {
        if look > 0 {
            sleep(BETWEEN);
        }
        // Opening makes a network file system ask its server.
        File::open(path).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;
    use crate::io::scratch::Scratch;
    use std::fs;

    #[test]
    fn the_first_file_and_rank_that_differ_are_found() {
        let cases: [(&[&[u64]], _); 7] = [
            (&[&[5, 6], &[5, 6], &[5, 6]], None),
            (&[&[5, 6], &[5, 7], &[4, 6]], Some((2, 0))),
            (&[&[5, 6], &[5, 6], &[5, 7]], Some((2, 1))),
            // Opening the file reports why it cannot be read.
            (&[&[UNREADABLE], &[5], &[UNREADABLE]], None),
            (&[&[UNREADABLE], &[5], &[6]], Some((2, 0))),
            (&[&[5], &[5, 6]], Some((1, 1))),
            (&[&[], &[]], None),
        ];
        for (rows, found) in cases {
            assert_eq!(first_difference(rows), found, "{rows:?}");
        }
    }

    #[test]
    fn other_bytes_and_other_lengths_are_seen_on_all_ranks() {
        let scratch = Scratch::new();
        let one = vec![7; 60_000];
        let changed = |at: usize| {
            let mut bytes = one.clone();
            bytes[at] = 8;
            bytes
        };
        for (other, same) in [
            (one.clone(), true),
            (changed(0), false),
            (changed(30_000), false),
            (changed(59_999), false),
            (one[..59_999].to_vec(), false),
            (Vec::new(), false),
        ] {
            let paths = ["one", "other"].map(|name| scratch.path().join(name));
            fs::write(&paths[0], &one).unwrap();
            fs::write(&paths[1], &other).unwrap();
            run_threads(3, |comm| {
                let own = &paths[usize::from(comm.rank() == 2)];
                let found = same_contents(&comm, &[paths[0].clone(), own.clone()])?;
                match found {
                    Ok(()) => assert!(same),
                    Err(IoError { kind: IoErrorKind::NotShared, path, message, .. }) => {
                        assert!(!same && path == *own && message.starts_with("rank 2 "), "{message}");
                    }
                    Err(error) => panic!("{error}"),
                }
                assert!(same_contents(&comm, &[scratch.path().join("none")])?.is_ok());
                Ok::<_, CommError>(())
            })
            .unwrap();
        }
    }

    #[test]
    fn ranks_that_do_not_share_a_directory_are_told_before_they_work() {
        let scratch = Scratch::new();
        let places = ["a", "b"].map(|name| scratch.path().join(name));
        places.iter().for_each(|place| fs::create_dir(place).unwrap());
        for below in ["", "out", "out/deeper"] {
            run_threads(3, |comm| {
                let own = places[usize::from(comm.rank() == 2)].join(below);
                match same_directory(&comm, &own)? {
                    Err(IoError { kind: IoErrorKind::NotShared, path, message, .. }) => {
                        assert!(path == own && message.starts_with("rank 2 "), "{message}");
                    }
                    other => panic!("{other:?}"),
                }
                assert!(same_directory(&comm, &places[0].join(below))?.is_ok());
                assert!(same_directory(&comm, Path::new("/proc/none"))?.is_ok());
                Ok::<_, CommError>(())
            })
            .unwrap();
        }
        for place in &places {
            assert_eq!(fs::read_dir(place).unwrap().count(), 0);
        }
    }
}
