//! Regular files that are read at positions.
//!
//! Every read is a checked call. With a memory map, a file that is cut off meanwhile, or a failing
//! disk or network, would kill the process by a signal.
//!
//! HDF5 files are recognized without the HDF5 library.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::error::read_remedy;
use super::{IoError, IoErrorKind, Result};
use crate::{host_memory, timeline};

/// Bytes that are read at a time; few enough to stay in a core's cache until they are converted.
const PIECE: u64 = 1 << 18;

/// A regular file, open for reading. Threads may share it.
#[derive(Debug)]
pub(crate) struct Input {
    path: PathBuf,
    file: File,
    len: u64,
}

impl Input {
    /// Opens a regular file; standard input, directories, pipes and devices are refused.
    pub fn open(path: &Path) -> Result<Self> {
        if path.as_os_str() == "-" {
            return Err(IoError::input_is_dash());
        }
        let not_a_file = || IoError::not_a_file(path);
        // Checked before opening, which blocks for a pipe, and after, since the path may name
        // another file by then.
        if !std::fs::metadata(path).map_err(|e| IoError::read(path, e))?.is_file() {
            return Err(not_a_file());
        }
        let file = File::open(path).map_err(|e| IoError::read(path, e))?;
        let found = file.metadata().map_err(|e| IoError::read(path, e))?;
        if !found.is_file() {
            return Err(not_a_file());
        }
        Ok(Self { path: path.to_path_buf(), file, len: found.len() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size of the file in bytes when it was opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Checks that the file still has at least `wanted` bytes.
    pub fn expect(&self, wanted: u64) -> Result<()> {
        let found = self.file.metadata().map_err(|e| IoError::read(&self.path, e))?.len().min(self.len);
        if found < wanted {
            return Err(IoError::truncated(&self.path, found, wanted));
        }
        Ok(())
    }

    /// Reads a short range of bytes.
    pub fn bytes(&self, range: Range<u64>) -> Result<Vec<u8>> {
        // Checked before memory is allocated.
        self.expect(range.end)?;
        let count = range.end.saturating_sub(range.start) as usize;
        let mut bytes = host_memory::zeros("bytes", count).map_err(|error| IoError::memory(&self.path, error.bytes))?;
        self.read_at(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a range in pieces of [`PIECE`] bytes, the last of which may be shorter.
    pub fn pieces(&self, range: Range<u64>, mut each: impl FnMut(&[u8])) -> Result<()> {
        let mut buffer = vec![0; range.end.saturating_sub(range.start).min(PIECE) as usize];
        let mut at = range.start;
        while at < range.end {
            let piece = &mut buffer[..(range.end - at).min(PIECE) as usize];
            self.read_at(at, piece)?;
            each(piece);
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        let _activity = timeline::activity!("read file", file = %self.path.display(), bytes = bytes.len());
        read_exact_at(&self.file, bytes, at).map_err(|source| {
            // An unexpected end means that the file was cut off.
            match self.expect(self.len) {
                Err(shorter) if source.kind() == io::ErrorKind::UnexpectedEof => shorter,
                _ => {
                    let message = format!("cannot be read at byte {at}: {source}{}", read_remedy(&source));
                    IoError::new(IoErrorKind::Read, &self.path, message).caused_by(source)
                }
            }
        })
    }
}

/// Reads all of a short file; refuses a file of more than `most` bytes.
///
/// # Errors
/// `IoErrorKind::FileType`, `IoErrorKind::NotFound`, `IoErrorKind::Read`,
/// `IoErrorKind::Format`.
pub fn read_short(path: impl AsRef<Path>, most: u64) -> Result<Vec<u8>> {
    let input = Input::open(path.as_ref())?;
    if input.len() > most {
        return Err(IoError::new(
            IoErrorKind::Format,
            input.path,
            format!("{} bytes, of {} at most in a file of this kind; is it the right one?", input.len, most),
        ));
    }
    input.bytes(0..input.len())
}

/// Reads all of a short text file; see [`read_short`].
///
/// # Errors
/// Same as [`read_short`], and `IoErrorKind::Format` for the first line that is not UTF-8.
pub fn read_text(path: impl AsRef<Path>, most: u64) -> Result<String> {
    let path = path.as_ref();
    String::from_utf8(read_short(path, most)?).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count() as u64;
        let reason = "is not text in UTF-8; save it as such".to_string();
        IoError::line(path, line, reason)
    })
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, at) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(count) => {
                bytes = &mut bytes[count..];
                at += count as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The particle types of a snapshot: `PartType0` to `PartType15`. Gadget has 6 of them, SWIFT 8.
pub const PARTICLE_TYPES: usize = 16;

/// The first bytes of an HDF5 file without a user block.
const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";

/// Returns `true` if the name ends in `.hdf5` or `.h5`, or the file begins with the signature of
/// HDF5. Needs no feature. For a file that cannot be read, only the name counts.
///
/// ```
/// assert!(meshloom::io::is_hdf5("snapshot_007.hdf5") && meshloom::io::is_hdf5("SNAP.H5"));
/// assert!(!meshloom::io::is_hdf5("positions.npy"));
/// ```
pub fn is_hdf5(path: impl AsRef<Path>) -> bool {
    is_hdf5_name(&path) || begins_as_hdf5(path.as_ref())
}

/// Returns `true` if the name ends in `.hdf5` or `.h5`, in letters of any case.
pub fn is_hdf5_name(path: impl AsRef<Path>) -> bool {
    let extension = path.as_ref().extension().unwrap_or_default();
    ["hdf5", "h5"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

fn begins_as_hdf5(path: &Path) -> bool {
    // `is_file` comes first: opening a pipe would block.
    let mut start = [0; SIGNATURE.len()];
    path.is_file() && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == SIGNATURE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::scratch::Scratch;

    #[test]
    fn pieces_are_the_bytes_of_the_range() {
        let scratch = Scratch::new();
        let path = scratch.path().join("bytes");
        let bytes: Vec<u8> = (0..2 * PIECE + 1000).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let input = Input::open(&path).unwrap();
        assert_eq!((input.len(), input.path()), (bytes.len() as u64, path.as_path()));
        for range in [0..0, 5..5, 3..PIECE + 3, 1..PIECE + 2, 0..input.len(), input.len() - 7..input.len()] {
            let mut found: Vec<u8> = Vec::new();
            input.pieces(range.clone(), |piece| found.extend(piece)).unwrap();
            let wanted = &bytes[range.start as usize..range.end as usize];
            assert!(found == wanted && input.bytes(range.clone()).unwrap() == wanted, "{range:?}");
        }
        let beyond = input.bytes(0..u64::MAX).unwrap_err();
        assert!(beyond.to_string().contains(&format!(
            "truncated: {} bytes, but its header promises {}",
            input.len(),
            u64::MAX
        )));
    }

    #[test]
    fn a_file_that_is_cut_off_between_two_pieces_is_an_error() {
        let scratch = Scratch::new();
        let path = scratch.path().join("bytes");
        std::fs::write(&path, vec![7; 3 * PIECE as usize]).unwrap();
        let input = Input::open(&path).unwrap();
        let mut pieces = 0;
        let error = input.pieces(0..input.len(), |piece| {
            pieces += 1;
            assert!(piece.iter().all(|&byte| byte == 7));
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(PIECE + 5).unwrap();
        });
        let wanted = format!("truncated: {} bytes, but its header promises {};", PIECE + 5, 3 * PIECE);
        assert!(error.unwrap_err().to_string().contains(&wanted));
        assert_eq!(pieces, 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_the_system_cannot_read_is_named_by_its_place() {
        let scratch = Scratch::new();
        // A directory can be opened but not read.
        let file = File::open(scratch.path()).unwrap();
        let input = Input { path: scratch.path().to_path_buf(), file, len: 1 << 20 };
        let error = input.read_at(3, &mut [0; 2]).unwrap_err();
        assert_eq!(error.kind, IoErrorKind::Read);
        assert!(error.to_string().contains("cannot be read at byte 3: "), "{error}");
    }

    #[test]
    fn short_files_are_bounded_and_text() {
        let scratch = Scratch::new();
        let path = scratch.path().join("text");
        std::fs::write(&path, "a\u{e9}\nb").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "a\u{e9}\nb");
        assert!(read_short(&path, 4).unwrap_err().to_string().contains("5 bytes, of 4 at most"));
        std::fs::write(&path, b"a\nb\n\xff\n").unwrap();
        assert!(read_text(&path, 100).unwrap_err().to_string().contains(": line 3: "));
        assert!(
            matches!(read_text(scratch.path(), 100), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("not a regular file"))
        );
        assert!(
            matches!(read_text("-", 100), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("standard input"))
        );
        assert!(matches!(
            read_text(scratch.path().join("none"), 100),
            Err(IoError { kind: IoErrorKind::NotFound, .. })
        ));
        // Reading neither waits for a writer nor goes on forever.
        #[cfg(unix)]
        {
            let pipe = scratch.path().join("pipe");
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            for path in [pipe.as_path(), Path::new("/dev/zero"), Path::new("/dev/null")] {
                assert!(
                    matches!(read_short(path, u64::MAX), Err(IoError { kind: IoErrorKind::FileType, ref message, .. }) if message.contains("not a regular file"))
                );
            }
        }
    }

    #[test]
    fn the_signature_tells_what_the_name_does_not() {
        let scratch = Scratch::new();
        let path = scratch.path().join("snapshot");
        std::fs::write(&path, b"\x89HDF\r\n\x1a\n and more").unwrap();
        assert!(is_hdf5(&path));
        for other in [&b"\x93NUMPY\x01\x00"[..], b"\x89HDF", b""] {
            std::fs::write(&path, other).unwrap();
            assert!(!is_hdf5(&path));
        }
        assert!(!is_hdf5(scratch.path()));
    }
}
