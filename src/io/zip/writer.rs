//! The records of an archive as bytes.

/// First bytes of the records: a member's local header, its entry in the central directory, the end
/// of the directory, and the end record of zip64 with its locator.
pub(super) const LOCAL: [u8; 4] = *b"PK\x03\x04";
pub(super) const CENTRAL: [u8; 4] = *b"PK\x01\x02";
pub(super) const END: [u8; 4] = *b"PK\x05\x06";
pub(super) const END64: [u8; 4] = *b"PK\x06\x06";
pub(super) const LOCATOR64: [u8; 4] = *b"PK\x06\x07";

/// Bytes of the fixed parts of these records.
pub(super) const LOCAL_BYTES: usize = 30;
pub(super) const CENTRAL_BYTES: usize = 46;
pub(super) const END_BYTES: usize = 22;
pub(super) const END64_BYTES: usize = 56;
pub(super) const LOCATOR64_BYTES: usize = 20;

/// The field of extra data with the sizes and offsets of 64 bits.
pub(super) const EXTRA64: u16 = 0x0001;

/// In a field of 32 bits: the number is in a record of zip64.
pub(super) const SEE64: u32 = u32::MAX;

/// One member of an archive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Bytes of its contents.
    pub bytes: u64,
    /// Their CRC-32.
    pub crc: u32,
    /// Offset of its local header.
    pub offset: u64,
}

/// The contents of a member begin at a multiple of this many bytes, as those of a `.npy` file do.
pub(super) const ALIGNMENT: u64 = 64;

/// The field of extra data that pads.
const PADDING: u16 = 0xd935;
/// Bytes of the shortest field of padding: its number and length, and the alignment.
const LEAST_PADDING: u64 = 6;

/// Versions of the format that a reader needs: the plain one, and that of zip64.
const PLAIN: u16 = 20;
const ZIP64: u16 = 45;
/// Written on a system with Unix permissions.
const UNIX: u16 = 3 << 8;
/// 1 January 1980, the first day there is: equal contents make equal files.
const DATE: u16 = 1 << 5 | 1;
/// A regular file that its owner may read and write and others may read.
const PERMISSIONS: u32 = 0o100_644 << 16;

impl Entry {
    fn large(&self) -> bool {
        self.bytes >= u64::from(SEE64)
    }

    /// Returns the bytes of the local header with its padding; the contents follow it.
    pub fn local_bytes(&self) -> u64 {
        let extra64 = if self.large() { 20 } else { 0 };
        let unpadded = LOCAL_BYTES as u64 + self.name.len() as u64 + extra64;
        let gap = (self.offset + unpadded).next_multiple_of(ALIGNMENT) - (self.offset + unpadded);
        let padding = match gap {
            0 => 0,
            short if short < LEAST_PADDING => short + ALIGNMENT,
            long => long,
        };
        unpadded + padding
    }

    /// Returns the local header. The name has at most 65,535 bytes.
    pub fn local(&self) -> Vec<u8> {
        let size = or_see64(self.bytes);
        let unpadded = LOCAL_BYTES + self.name.len() + if self.large() { 20 } else { 0 };
        let padding = self.local_bytes() as usize - unpadded;
        let mut out = LOCAL.to_vec();
        self.put_common(&mut out, self.large());
        // In this header the field of zip64 has both sizes or is missing.
        put32(&mut out, &[self.crc, size, size]);
        put16(
            &mut out,
            &[self.name.len() as u16, (self.local_bytes() as usize - LOCAL_BYTES - self.name.len()) as u16],
        );
        out.extend(self.name.as_bytes());
        if self.large() {
            put16(&mut out, &[EXTRA64, 16]);
            put64(&mut out, &[self.bytes, self.bytes]);
        }
        if padding > 0 {
            put16(&mut out, &[PADDING, padding as u16 - 4, ALIGNMENT as u16]);
            out.resize(out.len() + padding - LEAST_PADDING as usize, 0);
        }
        out
    }

    /// Writes version, flags, method, time and date, which both headers of a member have.
    fn put_common(&self, out: &mut Vec<u8>, zip64: bool) {
        // Bit 11: the name is UTF-8.
        let flags = if self.name.is_ascii() { 0 } else { 1 << 11 };
        put16(out, &[if zip64 { ZIP64 } else { PLAIN }, flags, 0, 0, DATE]);
    }

    /// Writes the entry in the central directory.
    fn put_central(&self, out: &mut Vec<u8>) {
        let (size, offset) = (or_see64(self.bytes), or_see64(self.offset));
        let mut extra64 = Vec::new();
        if self.large() {
            put64(&mut extra64, &[self.bytes, self.bytes]);
        }
        if offset == SEE64 {
            put64(&mut extra64, &[self.offset]);
        }
        let zip64 = !extra64.is_empty();
        out.extend(CENTRAL);
        put16(out, &[UNIX | if zip64 { ZIP64 } else { PLAIN }]);
        self.put_common(out, zip64);
        put32(out, &[self.crc, size, size]);
        let extra = if zip64 { extra64.len() as u16 + 4 } else { 0 };
        // No comment, on the first disk, not text.
        put16(out, &[self.name.len() as u16, extra, 0, 0, 0]);
        put32(out, &[PERMISSIONS, offset]);
        out.extend(self.name.as_bytes());
        if zip64 {
            put16(out, &[EXTRA64, extra64.len() as u16]);
            out.extend(extra64);
        }
    }
}

/// Returns the central directory and the end records of an archive whose contents end at `offset`.
/// Its length does not depend on the members' CRCs.
pub fn directory(entries: &[Entry], offset: u64) -> Vec<u8> {
    let mut out = Vec::new();
    entries.iter().for_each(|entry| entry.put_central(&mut out));
    let (count, bytes) = (entries.len() as u64, out.len() as u64);
    let count16 = u16::try_from(count).unwrap_or(u16::MAX);
    if count16 == u16::MAX || or_see64(bytes) == SEE64 || or_see64(offset) == SEE64 {
        out.extend(END64);
        put64(&mut out, &[END64_BYTES as u64 - 12]);
        put16(&mut out, &[UNIX | ZIP64, ZIP64]);
        put32(&mut out, &[0, 0]);
        put64(&mut out, &[count, count, bytes, offset]);
        out.extend(LOCATOR64);
        put32(&mut out, &[0]);
        put64(&mut out, &[offset + bytes]);
        put32(&mut out, &[1]);
    }
    out.extend(END);
    put16(&mut out, &[0, 0, count16, count16]);
    put32(&mut out, &[or_see64(bytes), or_see64(offset)]);
    put16(&mut out, &[0]);
    out
}

/// Returns a number of 32 bits, or the mark that it is in a record of zip64.
fn or_see64(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(SEE64)
}

fn put16(out: &mut Vec<u8>, numbers: &[u16]) {
    numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
}

fn put32(out: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
}

fn put64(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
}
