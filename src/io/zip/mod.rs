//! Zip archives of stored (uncompressed) members: the records, and where they are in a file.
//!
//! Source: PKWARE's APPNOTE 6.3.10. Numbers beyond 32 bits (or 16, the number of members) are in
//! the records of zip64, which are only written where needed, so that any reader can read small
//! archives. A field of extra data in the local header of each member pads up to a multiple of 64
//! bytes (field 0xd935, as Android's `zipalign` writes it).

mod reader;
mod writer;

pub use reader::{contents, entries, not_npz};
pub use writer::{Entry, directory};
