//! Reading the directory of an archive and finding its members.

use std::fmt::Display;
use std::ops::Range;

use super::writer::{
    CENTRAL, CENTRAL_BYTES, END, END_BYTES, END64, END64_BYTES, EXTRA64, Entry, LOCAL, LOCAL_BYTES, LOCATOR64,
    LOCATOR64_BYTES, SEE64,
};
use crate::io::{Input, IoError, IoErrorKind, Result};

/// Bytes of the longest directory that is read: 65,535 members with names of 100 bytes need 10 MB.
const MAX_DIRECTORY: u64 = 16 << 20;

/// Creates the error of a broken or foreign archive.
pub fn not_npz(archive: &Input, reason: impl Display) -> IoError {
    IoError::new(IoErrorKind::Format, archive.path(), format!("not a NumPy .npz file that can be read: {reason}"))
}

/// Returns the members of an archive, in the order of its directory.
pub fn entries(archive: &Input) -> Result<Vec<Entry>> {
    let broken = |reason: &str| not_npz(archive, reason);
    let end = End::find(archive)?;
    let end =
        end.ok_or_else(|| broken("it has no directory at its end, as if it were cut off or not a zip archive"))?;
    let (count, bytes, offset) = end.extent(archive)?.ok_or_else(|| broken("its directory cannot be found"))?;
    if bytes > MAX_DIRECTORY {
        let reason = format!("its directory has {bytes} bytes, of {MAX_DIRECTORY} at most; use fewer arrays");
        return Err(not_npz(archive, reason));
    }
    let directory = part(archive, offset, bytes)?.ok_or_else(|| broken("its directory does not lie in the file"))?;
    let mut rest = &directory[..];
    let mut entries = Vec::new();
    for _ in 0..count {
        let (entry, length) = central(rest).map_err(|reason| not_npz(archive, reason))?;
        entries.push(entry);
        rest = &rest[length..];
    }
    Ok(entries)
}

/// Returns the range of a member's contents.
pub fn contents(archive: &Input, entry: &Entry) -> Result<Range<u64>> {
    let header = part(archive, entry.offset, LOCAL_BYTES as u64)?.filter(|header| header.starts_with(&LOCAL));
    let header = header.ok_or_else(|| not_npz(archive, format!("the header of {} is broken", entry.name)))?;
    let begin = entry.offset + LOCAL_BYTES as u64 + u64::from(get16(&header, 26)) + u64::from(get16(&header, 28));
    let reason = "does not lie in the file, as if that were cut off; copy or write it again";
    inside(archive, begin, entry.bytes).ok_or_else(|| not_npz(archive, format!("{} {reason}", entry.name)))
}

/// The last bytes of an archive, with its end record.
struct End {
    tail: Vec<u8>,
    /// Position of the end record in these bytes.
    at: usize,
}

impl End {
    /// Finds the end record: only a comment of up to 65,535 bytes follows it, and the locator of
    /// zip64 precedes it.
    fn find(archive: &Input) -> Result<Option<Self>> {
        let longest = (LOCATOR64_BYTES + END_BYTES) as u64 + u64::from(u16::MAX);
        let tail = archive.bytes(archive.len().saturating_sub(longest)..archive.len())?;
        Ok(find_end(&tail).map(|at| End { tail, at }))
    }

    /// Returns the number of members, and the bytes and the offset of the directory.
    fn extent(&self, archive: &Input) -> Result<Option<(u64, u64, u64)>> {
        let End { tail, at } = self;
        let plain = (get16(tail, at + 10).into(), get32(tail, at + 12).into(), get32(tail, at + 16).into());
        let locator = at.checked_sub(LOCATOR64_BYTES).filter(|&at| tail[at..].starts_with(&LOCATOR64));
        let Some(locator) = locator else { return Ok(Some(plain)) };
        let end64 = part(archive, get64(tail, locator + 8), END64_BYTES as u64)?;
        let end64 = end64.filter(|end64| end64.starts_with(&END64));
        Ok(end64.map(|end64| (get64(&end64, 32), get64(&end64, 40), get64(&end64, 48))))
    }
}

/// Returns the position of the end record in the last bytes of an archive.
fn find_end(tail: &[u8]) -> Option<usize> {
    let last = tail.len().checked_sub(END_BYTES)?;
    (last.saturating_sub(usize::from(u16::MAX))..=last)
        .rev()
        .find(|&at| tail[at..].starts_with(&END) && at + END_BYTES + usize::from(get16(tail, at + 20)) == tail.len())
}

/// Returns the entry at the start of `directory`, and its length.
fn central(directory: &[u8]) -> Result<(Entry, usize), String> {
    let broken = "its directory is broken";
    let header = directory.get(..CENTRAL_BYTES).filter(|header| header.starts_with(&CENTRAL)).ok_or(broken)?;
    let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(get16(header, at)));
    let length = CENTRAL_BYTES + name + extra + comment;
    let tail = directory.get(CENTRAL_BYTES..length).ok_or(broken)?;
    let (name, tail) = tail.split_at(name);
    let name = String::from_utf8_lossy(name).into_owned();
    let (flags, method) = (get16(header, 8), get16(header, 10));
    if flags & 1 != 0 {
        return Err(format!("{name} is encrypted"));
    }
    if method != 0 {
        return Err(format!("{name} is compressed; save the arrays with numpy.savez(), not savez_compressed()"));
    }
    // The field of zip64 has the numbers that are SEE64 in the header, in this order.
    let mut wide = extra64(&tail[..extra]).chunks_exact(8).map(|bytes| get64(bytes, 0));
    let mut number = |at: usize| match get32(header, at) {
        SEE64 => wide.next().ok_or(broken),
        small => Ok(small.into()),
    };
    let (bytes, stored, offset) = (number(24)?, number(20)?, number(42)?);
    if stored != bytes {
        return Err(broken.into());
    }
    Ok((Entry { name, bytes, crc: get32(header, 16), offset }, length))
}

/// Returns the field of zip64 among fields of extra data; empty if there is none.
fn extra64(mut fields: &[u8]) -> &[u8] {
    while fields.len() >= 4 {
        let (number, length) = (get16(fields, 0), usize::from(get16(fields, 2)));
        let Some(field) = fields.get(4..4 + length) else { break };
        if number == EXTRA64 {
            return field;
        }
        fields = &fields[4 + length..];
    }
    &[]
}

/// Reads bytes of the archive; `None` if the range is not in the file.
fn part(archive: &Input, offset: u64, bytes: u64) -> Result<Option<Vec<u8>>> {
    inside(archive, offset, bytes).map(|range| archive.bytes(range)).transpose()
}

fn inside(archive: &Input, offset: u64, bytes: u64) -> Option<Range<u64>> {
    let end = offset.checked_add(bytes).filter(|&end| end <= archive.len())?;
    Some(offset..end)
}

/// Returns the number at `at`, all of whose bytes must be in the slice.
fn get16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn get32(bytes: &[u8], at: usize) -> u32 {
    u32::from(get16(bytes, at)) | u32::from(get16(bytes, at + 2)) << 16
}

fn get64(bytes: &[u8], at: usize) -> u64 {
    u64::from(get32(bytes, at)) | u64::from(get32(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::super::directory;
    use super::super::writer::ALIGNMENT;
    use super::*;
    use crate::io::scratch::Scratch;

    /// Creates an archive of these bytes.
    fn archive(scratch: &Scratch, bytes: &[u8]) -> Input {
        let path = scratch.path().join("a.npz");
        std::fs::write(&path, bytes).unwrap();
        Input::open(&path).unwrap()
    }

    fn entry(name: &str, bytes: u64, offset: u64) -> Entry {
        Entry { name: name.into(), bytes, crc: 0x1234_5678, offset }
    }

    #[test]
    fn contents_are_aligned_wherever_the_header_begins() {
        for offset in [0, 1, 63, 64, 100, 1 << 32, (1 << 40) + 17] {
            for length in 0..70 {
                for bytes in [0, 1 << 33] {
                    let entry = entry(&"n".repeat(length), bytes, offset);
                    assert_eq!((offset + entry.local_bytes()) % ALIGNMENT, 0);
                    let header = entry.local();
                    assert_eq!(header.len() as u64, entry.local_bytes());
                    // Fields of extra data fill their space to the last byte.
                    let mut fields = &header[LOCAL_BYTES + length..];
                    while !fields.is_empty() {
                        fields = &fields[4 + usize::from(get16(fields, 2))..];
                    }
                }
            }
        }
    }

    #[test]
    fn a_directory_says_again_what_was_written_small_or_large() {
        let limit = u64::from(SEE64);
        let sizes = [0, 1, limit - 1, limit, limit + 1, 1 << 62];
        for bytes in sizes {
            for offset in sizes {
                let entries = [entry("a.npy", 7, 0), entry("b.npy", bytes, offset)];
                let directory = directory(&entries, 3);
                let mut rest = &directory[..];
                for entry in &entries {
                    let (found, length) = central(rest).unwrap();
                    assert_eq!(&found, entry);
                    rest = &rest[length..];
                }
                assert!(rest.starts_with(&END), "nothing of zip64 for a directory that is near");
                let wide = match (bytes >= limit, offset >= limit) {
                    (false, false) => 0,
                    (false, true) => 12,
                    (true, false) => 20,
                    (true, true) => 28,
                };
                assert_eq!(directory.len(), 2 * (CENTRAL_BYTES + 5) + wide + END_BYTES);
            }
        }
    }

    #[test]
    fn the_end_records_are_those_of_zip64_where_the_directory_is_far() {
        let entries = [entry("a.npy", 1 << 40, 0)];
        for (offset, extra) in [(u64::from(SEE64) - 1, 0), (u64::from(SEE64), 76), (1 << 62, 76)] {
            let bytes = directory(&entries, offset);
            let central = CENTRAL_BYTES + 5 + 20;
            assert_eq!(bytes.len(), central + extra + END_BYTES);
            let end = find_end(&bytes).unwrap();
            assert_eq!(end, central + extra);
            if extra > 0 {
                assert_eq!(get64(&bytes, end - LOCATOR64_BYTES + 8), offset + central as u64);
                assert_eq!(get64(&bytes[central..], 48), offset);
            } else {
                assert_eq!((get32(&bytes, end + 12), get32(&bytes, end + 16)), (central as u32, offset as u32));
            }
        }
    }

    #[test]
    fn many_members_are_counted_in_zip64() {
        let entries: Vec<_> = (0..65_535).map(|i| entry(&i.to_string(), 0, 0)).collect();
        let scratch = Scratch::new();
        let bytes = directory(&entries, 0);
        assert_eq!(super::entries(&archive(&scratch, &bytes)).unwrap(), entries);
        let bytes = directory(&entries[..65_534], 0);
        assert_eq!(super::entries(&archive(&scratch, &bytes)).unwrap().len(), 65_534);
        assert_eq!(bytes.windows(4).filter(|four| *four == END64).count(), 0);
    }

    #[test]
    fn broken_archives_are_refused_without_panic() {
        let scratch = Scratch::new();
        let mut bytes = entry("a.npy", 3, 0).local();
        bytes.extend(b"abc");
        let offset = bytes.len() as u64;
        bytes.extend(directory(&[entry("a.npy", 3, 0)], offset));
        let whole = archive(&scratch, &bytes);
        let found = entries(&whole).unwrap();
        assert_eq!(contents(&whole, &found[0]).unwrap(), offset - 3..offset);
        let far = entry("b", u64::MAX, u64::MAX - 5);
        assert!(contents(&whole, &far).is_err());
        for cut in 0..bytes.len() {
            assert!(entries(&archive(&scratch, &bytes[..cut])).is_err(), "cut at {cut}");
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x50, 0xff] {
                let mut broken = bytes.clone();
                broken[at] = value;
                let broken = archive(&scratch, &broken);
                if let Ok(found) = entries(&broken) {
                    found.iter().for_each(|entry| drop(contents(&broken, entry)));
                }
            }
        }
        // A comment at the end does not belong to the directory.
        let end = bytes.len() - 2;
        bytes[end..].copy_from_slice(&[4, 0]);
        bytes.extend(b"PK\x05\x06");
        assert_eq!(entries(&archive(&scratch, &bytes)).unwrap(), found);
        // A directory without an end.
        let mut long = bytes.clone();
        long[end - 8..end - 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = entries(&archive(&scratch, &long)).unwrap_err();
        assert!(error.kind == IoErrorKind::Format && error.message.contains("at most"), "{error:?}");
    }
}
