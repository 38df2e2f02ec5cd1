//! Snapshots and group catalogues in HDF5, as Gadget-4, SWIFT and the tools around them have them.
//!
//! - **Reading** ([`Snapshot`]): particles of one file or of many, each rank only its own rows.
//! - **Writing** ([`SnapshotWriter`], [`Files`]): one file that all ranks fill, or one file a rank, in a layout that yt,
//!   pynbody and swiftsimio read with the right units.
//! - **Groups** ([`write_groups`], [`read_groups`]): catalogues in Gadget-4's layout.
//!
//! The serial HDF5 library is enough, also for many ranks at one file: it makes the file but for the numbers, which all
//! ranks then write in their places at the same time. Nothing here communicates; who waits for whom is said in
//! [`crate::io`]. Threads may call everything here at the same time: the library is entered by one after another.
//!
//! The file `docs/files.md` of the repository lists datasets, attributes and units.

mod ask;
mod attributes;
mod columns;
mod groups;
mod groups_reader;
mod groups_writer;
mod info;
mod number_type;
mod part_file;
mod parts;
mod snapshot_reader;
mod snapshot_writer;
mod storage;
mod units;

pub use groups::{GroupCatalog, Groups};
pub use groups_reader::read_groups;
pub use groups_writer::{seal_groups, write_groups};
pub use info::SnapshotInfo;
pub use snapshot_reader::Snapshot;
pub use snapshot_writer::{FilePart, Files, SnapshotWriter, part_path};
