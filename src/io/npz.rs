//! Writing and reading `.npz` archives, each rank its own parts of each array.

use std::path::Path;
use std::sync::Arc;

use crc32fast::Hasher;

use super::npy_writer::{Plan, little_endian, plan};
use super::zip::{Entry, contents, directory, entries, not_npz};
use super::{Input, IoError, IoErrorKind, NpyElement, NpyFile, Result, Sealed, SharedFile};

/// An array to be written as a member of an archive: its name, type and shape.
#[derive(Clone, Debug)]
pub struct Member {
    pub(super) name: String,
    pub(super) shape: Vec<u64>,
    pub(super) descr: &'static str,
    pub(super) element_bytes: u64,
}

impl Member {
    /// Creates an array of `T`, which NumPy finds under `name`: at most 100 ASCII letters, digits,
    /// `_`, `-` and `.`.
    #[must_use]
    pub fn new<T: NpyElement>(name: &str, shape: &[u64]) -> Self {
        let (name, shape) = (name.to_string(), shape.to_vec());
        Member { name, shape, descr: T::DESCR, element_bytes: size_of::<T>() as u64 }
    }
}

/// Elements of a member that a rank has written, with the CRC-32 of their bytes. Plain data that is
/// sent to rank 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[must_use = "rank 0 needs all parts to finish the archive"]
pub struct PartCrc {
    /// Number of the member, in the order of creation.
    pub member: u32,
    /// CRC-32 of the bytes.
    pub crc: u32,
    /// First element.
    pub first: u64,
    /// Number of elements.
    pub len: u64,
}

/// The offsets of the members of an archive.
#[derive(Debug)]
struct Layout {
    members: Vec<PlacedMember>,
    /// Offset of the directory.
    directory: u64,
    total_bytes: u64,
}

#[derive(Debug)]
struct PlacedMember {
    member: Member,
    plan: Plan,
    /// Its entry in the directory, without the CRC.
    entry: Entry,
    /// Offset of the `.npy` file in the archive.
    npy: u64,
}

impl PlacedMember {
    /// Returns the offset of the elements.
    fn data(&self) -> u64 {
        self.npy + self.plan.header.len() as u64
    }
}

impl Layout {
    fn new(path: &Path, members: &[Member]) -> Result<Self> {
        let refused = |name: &str, reason| {
            let message = format!("the name `{name}` of an array {reason}; give another");
            IoError::new(IoErrorKind::Misuse, path, message)
        };
        let mut placed: Vec<PlacedMember> = Vec::with_capacity(members.len());
        let mut end = 0u64;
        for member in members {
            let good = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            if !(1..=100).contains(&member.name.len()) || !member.name.chars().all(good) {
                return Err(refused(&member.name, "is not 1 to 100 ASCII letters, digits, `_`, `-` or `.`"));
            }
            if placed.iter().any(|other| other.member.name == member.name) {
                return Err(refused(&member.name, "is there twice"));
            }
            let plan = plan(path, member.descr, member.element_bytes, &member.shape)?;
            let name = format!("{}.npy", member.name);
            let entry = Entry { name, bytes: plan.total_bytes, crc: 0, offset: end };
            let npy = end + entry.local_bytes();
            // File offsets are signed in every operating system; some space is left for the
            // directory.
            end = npy
                .checked_add(plan.total_bytes)
                .filter(|&end| end < 1 << 62)
                .ok_or_else(|| IoError::shape(path, member.shape.clone(), format!("a smaller `{}`", member.name)))?;
            placed.push(PlacedMember { member: member.clone(), plan, entry, npy });
        }
        let entries: Vec<_> = placed.iter().map(|placed| placed.entry.clone()).collect();
        let total_bytes = end + directory(&entries, end).len() as u64;
        Ok(Layout { members: placed, directory: end, total_bytes })
    }
}

/// One `.npz` file of arrays that ranks write together: a zip archive without compression, as
/// `numpy.savez` writes it.
///
/// - Shapes and types are fixed at creation. Each member is a `.npy` file whose elements begin at a
///   multiple of 64 bytes. Files above 4 GiB use zip64, as NumPy's do. Equal arrays give equal
///   files.
/// - Rank 0 creates it, the others open it with the same members and token. All write disjoint
///   ranges, send their [`PartCrc`]s to rank 0, and finish. The barriers are those of
///   [`SharedFile`].
/// - Each element must be written once, by one rank; otherwise finishing fails.
///
/// ```
/// use meshloom::io::{Member, NpzFile, NpzWriter, token};
/// # fn main() -> Result<(), meshloom::io::IoError> {
/// let path = std::env::temp_dir().join(format!("meshloom-doc-{}.npz", token()));
/// let (members, token) = ([Member::new::<i64>("index", &[2, 2]), Member::new::<f32>("distance", &[2, 2])], token());
/// let first = NpzWriter::create(&path, &members, &token)?; // rank 0
/// let second = NpzWriter::open(&path, &members, &token)?; // rank 1
/// let theirs = [second.write(0, 2, &[1i64, 0])?, second.write(1, 2, &[0.0f32, 0.5])?];
/// let mine = [first.write(0, 0, &[0i64, 1])?, first.write(1, 0, &[0.0f32, 0.5])?];
/// second.finish(&[])?;
/// first.finish(&[mine, theirs].concat())?; // now the file exists
///
/// let file = NpzFile::open(&path)?;
/// assert_eq!(file.names().collect::<Vec<_>>(), ["index", "distance"]);
/// assert_eq!(file.member("index")?.read_i64(0..4)?, [0, 1, 1, 0]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct NpzWriter {
    file: SharedFile,
    layout: Layout,
    creator: bool,
}

impl NpzWriter {
    /// Creates the file. Called by rank 0.
    ///
    /// # Errors
    /// `IoErrorKind::Misuse`, `IoErrorKind::Shape` if no file could hold an array, and those of
    /// [`SharedFile::create`].
    pub fn create(path: impl AsRef<Path>, members: &[Member], token: &str) -> Result<Self> {
        let path = path.as_ref();
        let layout = Layout::new(path, members)?;
        let file = SharedFile::create(path, layout.total_bytes, &[], token)?;
        Ok(Self { file, layout, creator: true })
    }

    /// Opens the file that rank 0 has created. Called by all other ranks, after a barrier.
    ///
    /// # Errors
    /// Same as [`create`](Self::create); `IoErrorKind::Shape` if rank 0 created arrays of another
    /// size, and those of [`SharedFile::open`].
    pub fn open(path: impl AsRef<Path>, members: &[Member], token: &str) -> Result<Self> {
        let path = path.as_ref();
        let layout = Layout::new(path, members)?;
        let file = SharedFile::open(path, token)?;
        if file.total_bytes() != layout.total_bytes {
            let wanted = format!("members of {} bytes in all, as rank 0 has them,", file.total_bytes());
            let found: Vec<u64> = members.iter().flat_map(|member| member.shape.clone()).collect();
            return Err(IoError::shape(path, found, wanted));
        }
        Ok(Self { file, layout, creator: false })
    }

    /// Writes elements of member number `member` from element `first` on, in C order of the whole
    /// array. May be called any number of times; no element may be written twice.
    ///
    /// # Errors
    /// `IoErrorKind::ElementType` for elements of another type or no such member,
    /// `IoErrorKind::Misuse` beyond the end of the array, `IoErrorKind::Write`.
    pub fn write<T: NpyElement>(&self, member: usize, first: u64, elements: &[T]) -> Result<PartCrc> {
        let path = || self.file.path().to_path_buf();
        let placed = self.layout.members.get(member).filter(|placed| placed.member.descr == T::DESCR);
        let Some(placed) = placed else {
            let found = self.layout.members.get(member).map_or("none", |placed| placed.member.descr).to_string();
            return Err(IoError::element_type(path(), found, T::DESCR));
        };
        let (len, end) = (placed.plan.len, first.saturating_add(elements.len() as u64));
        if end > len {
            return Err(IoError::range(path(), first..end, len));
        }
        let bytes = little_endian(elements);
        self.file.write_at(placed.data() + first * placed.member.element_bytes, &bytes)?;
        Ok(PartCrc { member: member as u32, crc: crc32fast::hash(&bytes), first, len: elements.len() as u64 })
    }

    /// Flushes this rank's parts to the disk. Rank 0, whose call comes last, passes the `parts` of
    /// all ranks in any order, and the file then gets its name; on other ranks `parts` is ignored.
    ///
    /// # Errors
    /// Same as [`seal`](Self::seal) and [`Sealed::publish`].
    pub fn finish(self, parts: &[PartCrc]) -> Result<()> {
        self.seal(parts)?.publish()
    }

    /// Flushes like [`finish`](Self::finish); the file gets its name only by [`Sealed::publish`].
    ///
    /// # Errors
    /// On rank 0 `IoErrorKind::Misuse` unless the parts cover each member once, and those of
    /// [`SharedFile::seal`].
    pub fn seal(self, parts: &[PartCrc]) -> Result<Sealed> {
        if self.creator {
            let mut parts: Vec<_> = parts.iter().filter(|part| part.len > 0).copied().collect();
            parts.sort_unstable_by_key(|part| (part.member, part.first));
            let mut entries = Vec::with_capacity(self.layout.members.len());
            for (number, placed) in self.layout.members.iter().enumerate() {
                let from = parts.partition_point(|part| (part.member as usize) < number);
                let to = parts.partition_point(|part| part.member as usize <= number);
                let crc = self.crc(placed, &parts[from..to])?;
                let entry = Entry { crc, ..placed.entry.clone() };
                let mut head = entry.local();
                head.extend(&placed.plan.header);
                self.file.write_at(entry.offset, &head)?;
                entries.push(entry);
            }
            self.file.write_at(self.layout.directory, &directory(&entries, self.layout.directory))?;
        }
        self.file.seal()
    }

    /// Returns the CRC of a member, combined from the CRCs of its header and its parts.
    fn crc(&self, placed: &PlacedMember, parts: &[PartCrc]) -> Result<u32> {
        let mut hasher = Hasher::new();
        hasher.update(&placed.plan.header);
        let wrong = |found: u64| {
            let (name, wanted) = (&placed.member.name, placed.plan.len);
            let message = format!(
                "{found} of {wanted} elements of `{name}` were written, or some twice; please report this as a bug"
            );
            IoError::new(IoErrorKind::Misuse, self.file.path(), message)
        };
        let mut end = 0;
        for part in parts {
            let next = end + part.len;
            if part.first != end || next > placed.plan.len {
                return Err(wrong(end));
            }
            end = next;
            hasher.combine(&Hasher::new_with_initial_len(part.crc, part.len * placed.member.element_bytes));
        }
        if end == placed.plan.len { Ok(hasher.finalize()) } else { Err(wrong(end)) }
    }

    /// Removes the temporary file, on any rank.
    pub fn abandon(self) {
        self.file.abandon();
    }
}

/// An `.npz` archive of arrays on disk, as `numpy.savez` and [`NpzWriter`](super::NpzWriter) write
/// it.
///
/// Opening reads only the directory at the end of the file. Every rank opens the file by itself;
/// members are read like any [`NpyFile`]. Compressed archives are an error: they cannot be read in
/// parts.
#[derive(Debug)]
pub struct NpzFile {
    input: Arc<Input>,
    entries: Vec<Entry>,
}

impl NpzFile {
    /// Opens the file and reads its directory.
    ///
    /// # Errors
    /// `IoErrorKind::FileType`, `IoErrorKind::NotFound`, `IoErrorKind::Read`, and
    /// `IoErrorKind::Format` for a broken or compressed archive.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let input = Input::open(path.as_ref())?;
        let entries = entries(&input)?;
        Ok(Self { input: Arc::new(input), entries })
    }

    /// Returns the path as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.input.path()
    }

    /// Returns the names of the arrays, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.strip_suffix(".npy").unwrap_or(&entry.name))
    }

    /// Opens the array of this name.
    ///
    /// # Errors
    /// `IoErrorKind::Missing`, `IoErrorKind::Format` for a broken archive, and those of
    /// [`NpyFile::open`].
    pub fn member(&self, name: &str) -> Result<NpyFile> {
        let Some(number) = self.names().position(|found| found == name) else {
            let found = self.names().collect::<Vec<_>>().join(", ");
            return Err(IoError::no_member(self.path(), name, found));
        };
        let entry = &self.entries[number];
        let range = self.contents(entry)?;
        NpyFile::within(self.input.clone(), self.path().join(&entry.name), range)
    }

    /// Reads all members and compares them with the CRCs in the archive. Other reads do not check
    /// CRCs.
    ///
    /// # Errors
    /// `IoErrorKind::Format` with the first member that has changed since it was written.
    pub fn check(&self) -> Result<()> {
        for entry in &self.entries {
            let mut hasher = crc32fast::Hasher::new();
            self.input.pieces(self.contents(entry)?, |piece| hasher.update(piece))?;
            if hasher.finalize() != entry.crc {
                let reason = format!("{} has changed since it was written; copy or write it again", entry.name);
                return Err(not_npz(&self.input, reason));
            }
        }
        Ok(())
    }

    /// Returns the byte range of a member's contents.
    fn contents(&self, entry: &Entry) -> Result<std::ops::Range<u64>> {
        self.input.expect(self.input.len())?;
        contents(&self.input, entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(members: &[Member]) -> Result<Layout> {
        Layout::new(Path::new("out.npz"), members)
    }

    #[test]
    fn members_lie_behind_each_other_aligned_like_files() {
        let members = [
            Member::new::<i64>("offset", &[11]),
            Member::new::<i64>("index", &[0]),
            Member::new::<f32>("a.b-c_d", &[3, 1 << 40]),
            Member::new::<f64>("last", &[]),
        ];
        let layout = layout(&members).unwrap();
        let mut end = 0;
        for placed in &layout.members {
            assert_eq!(placed.entry.offset, end);
            assert_eq!((placed.npy % 64, placed.data() % 64), (0, 0));
            assert_eq!(placed.npy, end + placed.entry.local_bytes());
            end = placed.npy + placed.plan.total_bytes;
        }
        assert_eq!(layout.directory, end);
        assert!(end > 12 << 40 && layout.total_bytes < end + 1000);
        let lens: Vec<_> = layout.members.iter().map(|placed| placed.plan.len).collect();
        assert_eq!(lens, [11, 0, 3 << 40, 1]);
    }

    #[test]
    fn names_that_would_be_lost_and_arrays_beyond_any_file_are_refused() {
        for name in ["", "a/b", "ä", "a b", &"n".repeat(101)] {
            assert!(
                matches!(layout(&[Member::new::<f32>(name, &[1])]), Err(IoError { kind: IoErrorKind::Misuse, ref message, .. }) if message.contains("the name `")),
                "{name}"
            );
        }
        let twice = [Member::new::<f32>("a", &[1]), Member::new::<i64>("a", &[2])];
        assert!(layout(&twice).unwrap_err().to_string().contains("twice"));
        let large = Member::new::<f64>("a", &[1 << 60]);
        assert!(matches!(layout(&[large]), Err(IoError { kind: IoErrorKind::Shape, .. })));
        let large = Member::new::<f64>("a", &[1 << 58]);
        let two = [large.clone(), Member { name: "b".into(), ..large }];
        assert!(layout(&two[..1]).is_ok());
        assert!(matches!(layout(&two), Err(IoError { kind: IoErrorKind::Shape, .. })));
    }
}
