//! Errors about files.

use std::error::Error;
use std::fmt::{Debug, Display, Formatter};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::host_memory::{ByteCount, HostMemoryError};
use crate::printable::printable_path;

/// The result of reading or writing.
pub(super) type Result<T, E = IoError> = std::result::Result<T, E>;

/// An error about a file or directory.
///
/// Its text (`Display`) is the path followed by the message, and is complete for a user.
#[non_exhaustive]
pub struct IoError {
    /// The file or directory; empty if the error concerns none.
    pub path: PathBuf,
    /// The category of the failure.
    pub kind: IoErrorKind,
    /// Text that says what was expected, what was found and what to do. Sizes are in bytes; an
    /// index is a position in the array, one number per axis.
    pub message: String,
    /// The error of the operating system, if it caused this one.
    pub source: Option<io::Error>,
}

/// Categories of errors about files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IoErrorKind {
    /// The input file does not exist.
    NotFound,
    /// The path names a directory, pipe, device, or standard input or output instead of a regular
    /// file, or a file instead of a directory.
    FileType,
    /// The operating system could not read the file.
    Read,
    /// The operating system could not create or write the file, or the file is write-protected.
    Write,
    /// The file is not of the expected format, is broken, or is truncated.
    Format,
    /// The header of a snapshot counts other particles than there are coordinates.
    ParticleCount,
    /// The file has no array or no particles of the requested name or type.
    Missing,
    /// The elements have the wrong type.
    ElementType,
    /// The array has the wrong shape.
    Shape,
    /// A value in the file is not finite, out of range, or not what the call needs.
    Value,
    /// The calling program passed arrays, names or ranges that do not fit together.
    Misuse,
    /// The host memory for the contents of the file was not available.
    Memory,
    /// Another run uses the directory or the temporary file.
    InUse,
    /// Ranks see different files under the same path.
    NotShared,
    /// This build cannot read or write the file.
    Unsupported,
}

message_debug!(IoError);

impl Display for IoError {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.path.as_os_str().is_empty() {
            true => f.write_str(&self.message),
            false => write!(f, "{}: {}", printable_path(&self.path), self.message),
        }
    }
}

impl Error for IoError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl From<HostMemoryError> for IoError {
    fn from(error: HostMemoryError) -> Self {
        Self::new(IoErrorKind::Memory, "", error.to_string())
    }
}

impl IoError {
    /// Creates an error. The message says what was expected, what was found and what to do; it does
    /// not repeat the path.
    pub fn new(kind: IoErrorKind, path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        IoError { path: path.into(), kind, message: message.into(), source: None }
    }

    /// Sets the error of the operating system that caused this one.
    #[must_use]
    pub fn caused_by(self, source: io::Error) -> Self {
        IoError { source: Some(source), ..self }
    }

    /// Creates the error of an input that cannot be opened or read.
    pub fn read(path: impl Into<PathBuf>, source: io::Error) -> Self {
        match source.kind() {
            ErrorKind::NotFound => {
                let message = "no such file; check the name and the working directory";
                Self::new(IoErrorKind::NotFound, path, message).caused_by(source)
            }
            ErrorKind::IsADirectory => Self::not_a_file(path),
            _ => {
                let message = format!("cannot be read: {source}{}", read_remedy(&source));
                Self::new(IoErrorKind::Read, path, message).caused_by(source)
            }
        }
    }

    /// Creates the error of an output that cannot be created.
    pub fn create(path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        let message = format!("cannot be created: {}", create_text(&path, &source));
        Self::new(IoErrorKind::Write, path, message).caused_by(source)
    }

    /// Creates the error of an output whose temporary file cannot be created.
    pub(crate) fn create_temporary(path: &Path, temporary: &Path, source: io::Error) -> Self {
        match source.kind() {
            ErrorKind::AlreadyExists => Self::exists(temporary),
            _ => Self::create(path, source),
        }
    }

    /// Creates the error of a temporary file whose name is taken.
    pub(crate) fn exists(temporary: &Path) -> Self {
        let message = "exists already; if no other run is writing here, remove it";
        Self::new(IoErrorKind::InUse, temporary, message)
    }

    /// Creates the error of an output file of `bytes` bytes that cannot be written.
    pub fn write(path: impl Into<PathBuf>, bytes: u64, source: io::Error) -> Self {
        Self::new(IoErrorKind::Write, path, write_text(bytes, &source)).caused_by(source)
    }

    /// Creates the error of a directory, pipe or device where a regular file is needed.
    pub fn not_a_file(path: impl Into<PathBuf>) -> Self {
        Self::new(IoErrorKind::FileType, path, "not a regular file; give the name of a file on disk")
    }

    /// Creates the error of a file where a directory is needed.
    pub fn not_a_directory(path: impl Into<PathBuf>) -> Self {
        let message = "is a file, but a directory is needed; give another name or move the file away";
        Self::new(IoErrorKind::FileType, path, message)
    }

    /// Creates the error of the input `-`: inputs are read in parts, which standard input cannot
    /// be.
    #[must_use]
    pub fn input_is_dash() -> Self {
        let message = "standard input cannot be read as an array; save it to a file and give that file's name";
        Self::new(IoErrorKind::FileType, "-", message)
    }

    /// Creates the error of the output `-`: outputs are written in parallel, which standard output
    /// cannot be.
    #[must_use]
    pub fn output_is_dash() -> Self {
        let message = "an array cannot be written to standard output; give the name of a file or directory \
                       (./- if it is called so)";
        Self::new(IoErrorKind::FileType, "-", message)
    }

    /// Creates the error of a file in HDF5 in a build without it.
    pub fn no_hdf5(path: impl Into<PathBuf>) -> Self {
        let message = "an HDF5 file, but this program was built without HDF5; build it with the feature `hdf5`, \
                       which needs the HDF5 library, or convert the file to .npy";
        Self::new(IoErrorKind::Unsupported, path, message)
    }

    /// Creates the error of a line of a text file, counted from 1.
    pub fn line(path: impl Into<PathBuf>, line: u64, reason: impl Display) -> Self {
        Self::new(IoErrorKind::Format, path, format!("line {line}: {reason}"))
    }

    /// Creates the error of a file that ends before its header says, or was cut off while it was
    /// open.
    pub(crate) fn truncated(path: impl Into<PathBuf>, found: u64, wanted: u64) -> Self {
        let message =
            format!("truncated: {found} bytes, but its header promises {wanted}; copy or write the file again");
        Self::new(IoErrorKind::Format, path, message)
    }

    /// Creates the error of elements of the wrong type.
    pub fn element_type(path: impl Into<PathBuf>, found: impl Display, wanted: impl Display) -> Self {
        let message = format!("has elements of type {found}, but {wanted} is needed; convert with NumPy's .astype()");
        Self::new(IoErrorKind::ElementType, path, message)
    }

    /// Creates the error of an array of the wrong shape.
    pub fn shape(path: impl Into<PathBuf>, found: impl AsRef<[u64]>, wanted: impl Display) -> Self {
        let (found, wanted) = (found.as_ref(), wanted.to_string());
        let message = format!("has shape {}, but {wanted} is needed{}", tuple(found), transposed(found, &wanted));
        Self::new(IoErrorKind::Shape, path, message)
    }

    /// Creates the error of an element that is NaN or infinite.
    pub fn non_finite(path: impl Into<PathBuf>, index: impl AsRef<[u64]>, value: f64) -> Self {
        let index = tuple(index.as_ref());
        let message = format!("the element at {index} is {value}; remove or repair it, every element must be finite");
        Self::new(IoErrorKind::Value, path, message)
    }

    /// Creates the error of an element beyond the range of `f32`.
    pub fn beyond_f32(path: impl Into<PathBuf>, index: impl AsRef<[u64]>, value: f64) -> Self {
        let index = tuple(index.as_ref());
        let message = format!(
            "the element at {index} is {value:e}, beyond the range of f32 (1.4e-45 to 3.4e38); scale the data to \
             other units"
        );
        Self::new(IoErrorKind::Value, path, message)
    }

    /// Creates the error of a negative element where none is allowed.
    pub fn negative(path: impl Into<PathBuf>, index: impl AsRef<[u64]>, value: f64) -> Self {
        let index = tuple(index.as_ref());
        let message = format!("the element at {index} is {value}, but none may be negative; correct it");
        Self::new(IoErrorKind::Value, path, message)
    }

    /// Creates the error of an array that does not belong to the others.
    #[cfg(feature = "hdf5")]
    pub(crate) fn column(path: impl Into<PathBuf>, name: impl Display, reason: impl Display) -> Self {
        let message = format!("`{name}` {reason}; give arrays that belong together");
        Self::new(IoErrorKind::Misuse, path, message)
    }

    /// Creates the error of a range outside an array or file.
    pub(crate) fn range(path: impl Into<PathBuf>, range: Range<u64>, len: u64) -> Self {
        let Range { start, end } = range;
        let message = format!("range {start}..{end} was asked for, of only {len}; please report this as a bug");
        Self::new(IoErrorKind::Misuse, path, message)
    }

    /// Creates the error of a file without an array of this name.
    pub(crate) fn no_member(path: impl Into<PathBuf>, name: impl Display, found: impl Display) -> Self {
        Self::new(IoErrorKind::Missing, path, format!("has no array `{name}`; it has: {found}"))
    }

    /// Creates the error of elements that exceed host memory.
    pub fn memory(path: impl Into<PathBuf>, bytes: u64) -> Self {
        let message = format!(
            "out of host memory: {} needed for its elements; use more ranks, each reads only its part",
            size(bytes)
        );
        Self::new(IoErrorKind::Memory, path, message)
    }

    /// Creates the error of a picture that cannot be drawn.
    pub fn picture(path: impl Into<PathBuf>, reason: impl Display) -> Self {
        let message = format!("the picture could not be encoded: {reason}; use a smaller mesh");
        Self::new(IoErrorKind::Unsupported, path, message)
    }
}

/// Returns a shape or index as Python writes it: `()`, `(5,)`, `(5, 3)`.
pub(crate) fn tuple(numbers: &[u64]) -> String {
    match numbers {
        [one] => format!("({one},)"),
        many => format!("({})", many.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Returns a remedy for an array of one column for each point where one row for each is wanted.
fn transposed(found: &[u64], wanted: &str) -> &'static str {
    match found {
        [2 | 3, count] if *count > 3 && wanted.contains("(N, 3)") => "; it looks transposed: save array.T",
        _ => "",
    }
}

/// Returns a size in the unit that reads best, with the exact number of bytes.
fn size(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", ByteCount(bytes))
}

/// Returns `true` if the process or the machine cannot open another file.
fn too_many_open(source: &io::Error) -> bool {
    // EMFILE and ENFILE, whose numbers are the same on all Unix systems.
    cfg!(unix) && matches!(source.raw_os_error(), Some(24 | 23))
}

pub(super) fn read_remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        _ if too_many_open(source) => "; raise the limit (ulimit -n)",
        ErrorKind::PermissionDenied => "; ask for permission to read it",
        _ => "; check the disk, or copy the file elsewhere",
    }
}

fn create_text(path: &Path, source: &io::Error) -> String {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => printable_path(parent),
        _ => "the working directory".to_string(),
    };
    match source.kind() {
        _ if too_many_open(source) => format!("{source}; raise the limit (ulimit -n)"),
        ErrorKind::NotFound => {
            format!("there is no such directory; make it first (mkdir -p {directory}) or choose another place")
        }
        ErrorKind::NotADirectory => format!("{directory} is not a directory; choose another place"),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            format!("{directory} is not writable; choose another place")
        }
        ErrorKind::StorageFull => "the disk is full; free some space or choose another disk".to_string(),
        ErrorKind::QuotaExceeded => "the disk quota is used up; free some space or choose another disk".to_string(),
        _ => format!("{source}; choose another place"),
    }
}

fn write_text(bytes: u64, source: &io::Error) -> String {
    let wanted = size(bytes);
    match source.kind() {
        ErrorKind::StorageFull => {
            format!("the disk is full, the file needs {wanted}; free some space or choose another disk")
        }
        ErrorKind::QuotaExceeded => {
            format!("the disk quota is used up, the file needs {wanted}; free some space or choose another disk")
        }
        ErrorKind::FileTooLarge => {
            format!(
                "the file system or a limit (ulimit -f) does not allow a file of {wanted}; raise the limit or choose another disk"
            )
        }
        _ => format!("writing {wanted} failed: {source}; check the disk or choose another place"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_written_as_python_tuples() {
        assert_eq!(tuple(&[]), "()");
        assert_eq!(tuple(&[7]), "(7,)");
        assert_eq!(tuple(&[7, 3]), "(7, 3)");
    }

    #[cfg(unix)]
    #[test]
    fn a_limit_on_open_files_has_its_own_remedy() {
        for number in [libc::EMFILE, libc::ENFILE] {
            let source = || io::Error::from_raw_os_error(number);
            let create = IoError::create("out.npy", source()).to_string();
            let read = IoError::read("in.npy", source()).to_string();
            assert!(create.ends_with("raise the limit (ulimit -n)") && read.ends_with("raise the limit (ulimit -n)"));
        }
    }

    #[test]
    fn a_full_disk_is_named_with_the_bytes_wanted() {
        let text = IoError::write("out.npy", 2048, ErrorKind::StorageFull.into()).to_string();
        assert!(text.contains("out.npy") && text.contains("disk is full") && text.contains("2048 bytes"), "{text}");
        assert_eq!([size(1023), size(1536)], ["1023 B (1023 bytes)", "1.5 KiB (1536 bytes)"]);
    }
}
