//! Errors about files.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::{printable, printable_path};
use crate::host_memory::HostMemoryError;

/// An error about a file or directory: which one, what is wrong with it, and what to do.
///
/// The text (`Display`) is complete for a user. Sizes are in bytes; an `index` is a position in the array, one number per
/// axis.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// There is no such input file.
    #[error("{}: no such file; check the name and the working directory", printable_path(.path))]
    NotFound {
        /// The file asked for.
        path: PathBuf,
    },

    /// The path is a directory, pipe or device where a regular file is needed.
    #[error("{}: not a regular file; give the name of a file on disk", printable_path(.path))]
    NotAFile {
        /// The path asked for.
        path: PathBuf,
    },

    /// `-` was given as an input. Inputs are read in parts, which standard input cannot be.
    #[error("-: standard input cannot be read as an array; save it to a file and give that file's name")]
    InputIsDash,

    /// `-` was given as an output. Outputs are written in parallel, which standard output cannot be.
    #[error(
        "-: an array cannot be written to standard output; give the name of a file or directory (./- if it is called so)"
    )]
    OutputIsDash,

    /// The operating system could not read the file.
    #[error("{}: cannot be read: {source}{}", printable_path(.path), read_remedy(.source))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },

    /// A part of an open file could not be read: a disk or a network fails.
    #[error("{}: cannot be read at byte {at}: {source}{}", printable_path(.path), read_remedy(.source))]
    ReadAt {
        /// The file.
        path: PathBuf,
        /// Where the part begins.
        at: u64,
        /// What the operating system said.
        source: io::Error,
    },

    /// The file is longer than files of its kind are.
    #[error("{}: {bytes} bytes, of {most} at most in a file of this kind; is it the right one?", printable_path(.path))]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// Bytes that such a file may have.
        most: u64,
    },

    /// The file is not a NumPy `.npy` file, or its header is broken.
    #[error("{}: not a NumPy .npy file: {reason}", printable_path(.path))]
    NotNpy {
        /// The file.
        path: PathBuf,
        /// What was found instead, with a remedy where there is one.
        reason: String,
    },

    /// The file is not a NumPy `.npz` archive, or it is broken, or of a kind that cannot be read in parts.
    #[error("{}: not a NumPy .npz file that can be read: {reason}", printable_path(.path))]
    NotNpz {
        /// The file.
        path: PathBuf,
        /// What was found instead, with a remedy where there is one.
        reason: String,
    },

    /// The file is not HDF5, or not laid out as it should be, or broken.
    #[error("{}: not an HDF5 file that can be read: {reason}", printable_path(.path))]
    NotHdf5 {
        /// The file.
        path: PathBuf,
        /// What was found instead, with a remedy where there is one.
        reason: String,
    },

    /// A dataset of an HDF5 file was compressed by a filter that the HDF5 library does not have, and finds no plugin of.
    #[error("{}: compressed by filter {number}{}, which this HDF5 library does not have; put its plugin into a directory and name that in \
        HDF5_PLUGIN_PATH (the Python package hdf5plugin has many, and says where: hdf5plugin.PLUGIN_PATH), or compress the file with gzip instead \
        (h5repack -f GZIP=4)", printable_path(.path), filter_name(*.number, .name))]
    NoFilter {
        /// The file, and the dataset in it.
        path: PathBuf,
        /// The number that the HDF Group has given the filter.
        number: i64,
        /// Its name in the file; empty where there is none.
        name: String,
    },

    /// A snapshot has no particles of the type that is to be read, or has several types of which one must be chosen.
    #[error("{}: {}", printable_path(.path), particle_type_text(*.wanted, .found))]
    ParticleType {
        /// The file.
        path: PathBuf,
        /// The type that was asked for, where one was.
        wanted: Option<usize>,
        /// The types whose particles have coordinates.
        found: Vec<usize>,
    },

    /// A file in HDF5 was given to a program that was built without it.
    #[error("{}: an HDF5 file, but this program was built without HDF5; build it with the feature `hdf5`, \
        which needs the HDF5 library, or convert the file to .npy",
        printable_path(.path))]
    NoHdf5 {
        /// The file.
        path: PathBuf,
    },

    /// Arrays that belong together have different lengths, or do not describe one another: a mistake of the calling
    /// program.
    #[error("{}: `{name}` {reason}; give arrays that belong together", printable_path(.path))]
    Column {
        /// The file to write.
        path: PathBuf,
        /// The array.
        name: String,
        /// What is wrong with it.
        reason: String,
    },

    /// The header of a snapshot counts other particles than there are coordinates.
    #[error(
        "{}: Header/{attribute} counts {counted} particles of type {particle_type}, but PartType{particle_type}/Coordinates has \
         {found}; this happens if a part of a larger snapshot is saved with the header of the whole: correct the header, or read the \
         particles that are there by trusting the coordinates",
        printable_path(.path)
    )]
    ParticleCount {
        /// The file.
        path: PathBuf,
        /// The attribute of the header.
        attribute: &'static str,
        /// The type of the particles.
        particle_type: usize,
        /// Particles by the header.
        counted: u64,
        /// Rows of the coordinates.
        found: u64,
    },

    /// An archive has no array of this name.
    #[error("{}: has no array `{name}`; it has: {found}", printable_path(.path))]
    NoMember {
        /// The file.
        path: PathBuf,
        /// The array asked for.
        name: String,
        /// The arrays there are.
        found: String,
    },

    /// A line of a text file is not what it should be.
    #[error("{}: line {line}: {reason}", printable_path(.path))]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it, and what would do.
        reason: String,
    },

    /// The file ends before its header says, or was cut off while it was open.
    #[error(
        "{}: truncated: {found} bytes, but its header promises {wanted}; copy or write the file again", printable_path(.path)
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its size.
        found: u64,
        /// The size that its header promises, or that it had when it was opened.
        wanted: u64,
    },

    /// An array to be written has elements of a type that the format does not take.
    #[error("{}: array `{member}`: expected elements of {wanted}, got {found}; convert the values", printable_path(.path))]
    MemberType {
        /// The file.
        path: PathBuf,
        /// The array.
        member: String,
        /// Its type.
        found: String,
        /// The types that the format takes.
        wanted: String,
    },

    /// The elements have the wrong type.
    #[error("{}: has elements of type {found}, but {wanted} is needed; convert with NumPy's .astype()", printable_path(.path))]
    Dtype {
        /// The file.
        path: PathBuf,
        /// The type in the file.
        found: String,
        /// The types that would do.
        wanted: String,
    },

    /// The array has the wrong shape.
    #[error("{}: has shape {}, but {wanted} is needed{}", printable_path(.path), tuple(.found), transposed(.found, .wanted))]
    Shape {
        /// The file.
        path: PathBuf,
        /// The shape in the file.
        found: Vec<u64>,
        /// The shapes that would do.
        wanted: String,
    },

    /// The array is stored in Fortran order, which is read of short rows only: see [`NpyFile`](super::NpyFile).
    #[error(
        "{}: stored in Fortran order, C order is needed; convert with numpy.save(name, numpy.ascontiguousarray(array))",
        printable_path(.path)
    )]
    FortranOrder {
        /// The file.
        path: PathBuf,
    },

    /// The values of a file are not what a call needs.
    #[error("{}: {reason}", printable_path(.path))]
    Values {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },

    /// An element is NaN or infinite.
    #[error("{}: the element at {} is {value}; remove or repair it, every element must be finite",
        printable_path(.path), tuple(.index))]
    NonFinite {
        /// The file.
        path: PathBuf,
        /// The first such position in the range that was read.
        index: Vec<u64>,
        /// The value there.
        value: f64,
    },

    /// A finite f64 element has no finite f32 beside it.
    #[error("{}: the element at {} is {value:e}, beyond the range of f32 (1.4e-45 to 3.4e38); scale the data to other units",
        printable_path(.path), tuple(.index))]
    OutOfRange {
        /// The file.
        path: PathBuf,
        /// The first such position in the range that was read.
        index: Vec<u64>,
        /// The value there.
        value: f64,
    },

    /// An element is negative where none may be.
    #[error("{}: the element at {} is {value}, but none may be negative; correct it", printable_path(.path), tuple(.index))]
    Negative {
        /// The file.
        path: PathBuf,
        /// The first such position.
        index: Vec<u64>,
        /// The value there.
        value: f64,
    },

    /// A range outside the array or file was asked for: a mistake of the calling program.
    #[error("{}: range {start}..{end} was asked for, of only {len}; please report this as a bug", printable_path(.path))]
    Range {
        /// The file.
        path: PathBuf,
        /// First element (arrays) or byte (files).
        start: u64,
        /// One past the last.
        end: u64,
        /// How many there are.
        len: u64,
    },

    /// An array of an archive cannot have this name: a mistake of the calling program.
    #[error("{}: the name `{name}` of an array {reason}; give another", printable_path(.path))]
    MemberName {
        /// The archive.
        path: PathBuf,
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },

    /// The parts that were written are not an array of an archive once and whole: a mistake of the calling program.
    #[error("{}: {found} of {wanted} elements of `{name}` were written, or some twice; please report this as a bug",
        printable_path(.path))]
    Parts {
        /// The archive.
        path: PathBuf,
        /// The array.
        name: String,
        /// Elements before the first gap or overlap.
        found: u64,
        /// Elements of the array.
        wanted: u64,
    },

    /// The parts that all ranks have written are not the array once and whole.
    #[error(
        "{}: parts of {written} elements in all do not make the array of {wanted}; each element must be written once, by one rank",
        printable_path(.path)
    )]
    Cover {
        /// The file.
        path: PathBuf,
        /// Elements that were written.
        written: u64,
        /// Elements of the array.
        wanted: u64,
    },

    /// Memory for the elements asked for could not be allocated.
    #[error("{}: out of host memory: {} needed for its elements; use more ranks, each reads only its part", printable_path(.path), size(*.bytes))]
    Memory {
        /// The file.
        path: PathBuf,
        /// Bytes asked for.
        bytes: u64,
    },

    /// Memory for what is made of the contents of a file, or for what is to be written, was refused.
    #[error(transparent)]
    HostMemory(#[from] HostMemoryError),

    /// An output file could not be created.
    #[error("{}: cannot be created: {}", printable_path(.path), create_text(.path, .source))]
    Create {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },

    /// A file of the output's name may not be written, so it must not be replaced.
    #[error("{}: is there already and may not be written; make it writable (chmod u+w) or choose another name",
        printable_path(.path))]
    Protected {
        /// The file.
        path: PathBuf,
    },

    /// Writing failed, most often because the disk is full.
    #[error("{}: {}", printable_path(.path), write_text(*.bytes, .source))]
    Write {
        /// The output file (its final name).
        path: PathBuf,
        /// Size of the whole file.
        bytes: u64,
        /// What the operating system said.
        source: io::Error,
    },

    /// There is a file where a directory is needed.
    #[error("{}: is a file, but a directory is needed; give another name or move the file away", printable_path(.path))]
    NotADirectory {
        /// The file.
        path: PathBuf,
    },

    /// There is a link that leads to nothing, or back to itself, where a directory is needed.
    #[error("{}: is a link that leads nowhere, but a directory is needed; make what it points to, or give another name",
        printable_path(.path))]
    DeadLink {
        /// The link.
        path: PathBuf,
    },

    /// A rank reads other contents under this name than the ranks before it.
    #[error(
        "{}: rank {rank} (on {}) reads other contents than the ranks before it; give all ranks the same file, as one on a file system that they share",
        printable_path(.path),
        printable(.host)
    )]
    OtherContents {
        /// The file.
        path: PathBuf,
        /// The rank.
        rank: usize,
        /// The host that it runs on.
        host: String,
    },

    /// A rank does not see what rank 0 writes in this directory.
    #[error(
        "{}: rank {rank} (on {}) does not see what rank 0 writes: ranks do not share this directory, or were started in different ones; \
         choose one that all share, by its whole path",
        printable_path(.path),
        printable(.host)
    )]
    NotShared {
        /// The directory, or one that is to be made.
        path: PathBuf,
        /// The rank.
        rank: usize,
        /// The host that it runs on.
        host: String,
    },

    /// Another run writes to the directory.
    #[error(
        "{}: another run is writing there, and two would mix their files; wait until it has ended, or give another directory",
        printable_path(.path)
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },

    /// Another run claims the directory, on a file system without locks.
    #[error(
        "{}: {owner} is writing in this directory, or was killed; wait until it has ended, give another directory, or remove \
         this file if no run is left (the file system has no locks that would show it)",
        printable_path(.path)
    )]
    Claimed {
        /// The file that claims it.
        path: PathBuf,
        /// The process that wrote the file.
        owner: String,
    },

    /// A temporary file of this name exists already.
    #[error("{}: exists already; if no other run is writing here, remove it", printable_path(.path))]
    Exists {
        /// The file.
        path: PathBuf,
    },

    /// A picture could not be encoded.
    #[error("{}: the picture could not be encoded: {reason}; use a smaller mesh", printable_path(.path))]
    Picture {
        /// The file.
        path: PathBuf,
        /// What the encoder said.
        reason: String,
    },
}

message_debug!(IoError);

impl IoError {
    /// The error of opening the input `path`.
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            ErrorKind::NotFound => Self::NotFound { path },
            ErrorKind::IsADirectory => Self::NotAFile { path },
            _ => Self::Read { path, source },
        }
    }

    /// The error of creating the output `path`, whose temporary is `temporary`.
    pub(crate) fn create(path: &Path, temporary: &Path, source: io::Error) -> Self {
        match source.kind() {
            ErrorKind::AlreadyExists => Self::Exists { path: temporary.to_path_buf() },
            _ => Self::Create { path: path.to_path_buf(), source },
        }
    }
}

/// A shape or index as Python writes it: `()`, `(5,)`, `(5, 3)`.
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

/// A size in binary units, with the exact number of bytes.
fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "bytes";
    for larger in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "bytes" { format!("{bytes} bytes") } else { format!("{value:.1} {unit} ({bytes} bytes)") }
}

/// The name of a filter of HDF5 in brackets: that of the file, else that of the HDF Group's register.
fn filter_name(number: i64, name: &str) -> String {
    let known = match number {
        1 => "gzip",
        4 => "szip",
        307 => "bzip2",
        32000 => "lzf",
        32001 => "blosc",
        32004 => "lz4",
        32008 => "bitshuffle",
        32013 => "zfp",
        32015 => "zstd",
        32026 => "blosc2",
        _ => "",
    };
    let name = if name.is_empty() { known } else { name };
    if name.is_empty() { String::new() } else { format!(" ({})", printable(name)) }
}

fn particle_type_text(wanted: Option<usize>, found: &[usize]) -> String {
    let none = match wanted {
        Some(wanted) => format!("no particles of type {wanted} have coordinates (PartType{wanted}/Coordinates)"),
        None if found.is_empty() => "no particles have coordinates (as PartType1/Coordinates)".to_string(),
        None => "no particles of type 1, which are read if no others are asked for, have coordinates".to_string(),
    };
    let names: Vec<String> = found.iter().map(usize::to_string).collect();
    match &names[..] {
        [] => format!("{none}; is it a snapshot of particles?"),
        [only] => format!("{none}; those of type {only} do; choose this type"),
        [others @ .., last] => {
            format!("{none}; those of types {} and {last} do; choose one of these types", others.join(", "))
        }
    }
}

/// Whether the process or the machine has no room for another open file.
fn too_many_open(source: &io::Error) -> bool {
    // EMFILE and ENFILE, whose numbers are the same on all Unix systems.
    cfg!(unix) && matches!(source.raw_os_error(), Some(24 | 23))
}

fn read_remedy(source: &io::Error) -> &'static str {
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
        ErrorKind::NotADirectory => format!("{directory} is no directory; choose another place"),
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

    #[test]
    fn sizes_are_readable() {
        assert_eq!(size(0), "0 bytes");
        assert_eq!(size(1023), "1023 bytes");
        assert_eq!(size(1536), "1.5 KiB (1536 bytes)");
        assert!(size(u64::MAX).contains("PiB"));
    }

    #[test]
    fn particle_types_are_named_with_the_way_to_choose() {
        assert!(
            particle_type_text(None, &[0, 4, 5]).ends_with("those of types 0, 4 and 5 do; choose one of these types")
        );
        assert!(particle_type_text(Some(5), &[1]).starts_with("no particles of type 5 have coordinates (PartType5/"));
        assert!(particle_type_text(Some(5), &[1]).ends_with("those of type 1 do; choose this type"));
        assert!(particle_type_text(None, &[]).ends_with("is it a snapshot of particles?"));
    }

    #[cfg(unix)]
    #[test]
    fn a_limit_on_open_files_is_no_matter_of_the_place() {
        for number in [libc::EMFILE, libc::ENFILE] {
            let source = || io::Error::from_raw_os_error(number);
            let create = IoError::Create { path: "out.npy".into(), source: source() }.to_string();
            let read = IoError::Read { path: "in.npy".into(), source: source() }.to_string();
            assert!(create.ends_with("raise the limit (ulimit -n)") && read.ends_with("raise the limit (ulimit -n)"));
        }
    }

    #[test]
    fn a_full_disk_is_named_with_the_bytes_wanted() {
        let error =
            IoError::Write { path: "out.npy".into(), bytes: 2048, source: io::Error::from(ErrorKind::StorageFull) };
        let text = error.to_string();
        assert!(text.contains("out.npy") && text.contains("disk is full") && text.contains("2048 bytes"), "{text}");
    }
}
