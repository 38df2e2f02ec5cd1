//! Zip archives of stored (uncompressed) members: the records, and where they are in a file.
//!
//! After PKWARE's APPNOTE 6.3.10. Numbers beyond 32 bits (or 16, the number of members) are in the records of zip64, which
//! are only written where they are needed, so that any reader can read small archives. A field of extra data in the local
//! header of each member pads up to a multiple of 64 bytes (field 0xd935, as Android's `zipalign` writes it).

mod reader;
mod writer;

pub use reader::{contents, entries, not_npz};
pub use writer::directory;

/// What the records begin with: a member's local header, its entry in the central directory, the end of the directory, and
/// that of zip64 with its locator.
const LOCAL: [u8; 4] = *b"PK\x03\x04";
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";
const END64: [u8; 4] = *b"PK\x06\x06";
const LOCATOR64: [u8; 4] = *b"PK\x06\x07";

/// Bytes of these records, without what has a variable length.
const LOCAL_BYTES: usize = 30;
const CENTRAL_BYTES: usize = 46;
const END_BYTES: usize = 22;
const END64_BYTES: usize = 56;
const LOCATOR64_BYTES: usize = 20;

/// The field of extra data with the sizes and offsets of 64 bits.
const EXTRA64: u16 = 0x0001;

/// In a field of 32 bits: the number is in a record of zip64.
const SEE64: u32 = u32::MAX;

/// One member of an archive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Bytes of its contents.
    pub bytes: u64,
    /// Their CRC-32.
    pub crc: u32,
    /// Where its local header begins.
    pub offset: u64,
}
