//! The records of an archive: what they begin with, how long they are, and what one of a member says.

/// What the records begin with: a member's local header, its entry in the central directory, the end of the directory, and
/// that of zip64 with its locator.
pub(super) const LOCAL: [u8; 4] = *b"PK\x03\x04";
pub(super) const CENTRAL: [u8; 4] = *b"PK\x01\x02";
pub(super) const END: [u8; 4] = *b"PK\x05\x06";
pub(super) const END64: [u8; 4] = *b"PK\x06\x06";
pub(super) const LOCATOR64: [u8; 4] = *b"PK\x06\x07";

/// Bytes of these records, without what has a variable length.
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
    /// Where its local header begins.
    pub offset: u64,
}
