//! Whether all ranks see the directory that they write to.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use super::{host_of, shared_token};
use crate::comm::{CommError, Communicator};
use crate::io::temporary::temporary_name;
use crate::io::{IoError, IoErrorKind, cleanup, printable};

/// How often a rank looks for the file of rank 0, and how long it waits between: a file system of a network may show a new file late.
const LOOKS: u32 = 10;
const BETWEEN: Duration = Duration::from_millis(50);

/// No directory.
const NONE: u64 = u64::MAX;

/// Checks that what rank 0 writes in `directory` is seen by all ranks under this path, before they work for something that they could not write together.
/// Rank 0 makes a hidden file in it, or in the nearest of its parents where it is to be made yet, which is removed again. A place where rank 0 cannot write is left to
/// whoever makes files there. Collective; the inner error is the same on all ranks.
///
/// # Errors
/// `IoErrorKind::NotShared` (inner) of the first rank that does not see it; those of the ranks (outer).
pub fn same_directory(comm: &Communicator, directory: &Path) -> Result<Result<(), IoError>, CommError> {
    let token = shared_token(comm)?;
    let name = |level: u64| {
        let place = directory.ancestors().nth(usize::try_from(level).ok()?)?;
        Some(temporary_name(&place.join("meshloom"), &token))
    };
    let mut level = [NONE];
    let mut probe = None;
    if comm.rank() == 0 {
        level = [nearest(directory)];
        probe = name(level[0]).and_then(|path| Probe::create(path).ok());
        if probe.is_none() {
            level = [NONE];
        }
    }
    comm.broadcast(0, &mut level)?;
    let Some(path) = name(level[0]) else { return Ok(Ok(())) };
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

/// How many levels above `directory` the nearest one is that exists.
fn nearest(directory: &Path) -> u64 {
    let exists = |level: &Path| level.as_os_str().is_empty() || level.is_dir();
    directory.ancestors().position(exists).map_or(NONE, |level| level as u64)
}

fn is_seen(path: &Path) -> bool {
    (0..LOOKS).any(|look| {
        if look > 0 {
            sleep(BETWEEN);
        }
        // Opened, for which a network's file system asks its server.
        File::open(path).is_ok()
    })
}

/// A file that is removed when this is dropped.
struct Probe {
    path: PathBuf,
    /// Its lock tells other runs that it is in use.
    _file: File,
}

impl Probe {
    fn create(path: PathBuf) -> std::io::Result<Self> {
        let file = cleanup::create_file(&path)?;
        Ok(Self { path, _file: file })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        cleanup::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;
    use crate::io::scratch::Scratch;
    use std::fs;

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
