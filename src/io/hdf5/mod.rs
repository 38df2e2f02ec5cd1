//! Snapshots and group catalogues in HDF5, in the layouts of Gadget-4 and SWIFT.
//!
//! - **Reading** ([`Snapshot`]): particles of one file or of many, each rank only its own rows.
//! - **Writing** ([`SnapshotWriter`], [`Files`]): one file that all ranks write, or one file per rank, in a layout that
//!   yt, pynbody and swiftsimio read with the right units.
//! - **Light cones** ([`ConeWriter`]): particles where they cross the light cone of an observer, in the layout of snapshots.
//! - **Groups** ([`write_groups`], [`GroupsWriter`] for many ranks, [`read_groups`]): catalogues in Gadget-4's layout;
//!   [`Centers`]: where the groups of a catalogue are.
//! - **Arrays** ([`ArraysWriter`]): what an `.npz` archive holds, as datasets, with attributes.
//!
//! The serial HDF5 library is enough, also where many ranks write one file: it makes the file without the numbers, which all
//! ranks then write at their offsets at the same time. Nothing here communicates; [`crate::io`] says when ranks must
//! synchronise. All functions may be called from several threads: calls of the library are serialised.
//!
//! The file `docs/files.md` of the repository lists datasets, attributes and units.

mod arrays_writer;
mod attributes;
mod background;
mod centers;
mod cone_writer;
mod element_type;
mod groups;
mod groups_reader;
mod groups_writer;
mod length_unit;
mod part_file;
mod parts;
mod queries;
mod shared_datasets;
mod snapshot_info;
mod snapshot_reader;
mod snapshot_writer;
mod storage;
mod units;
mod velocity_unit;

pub use arrays_writer::{ArraysWriter, Attribute};
pub use background::Background;
pub use centers::Centers;
pub use cone_writer::{ConeInfo, ConeRows, ConeWriter};
pub use groups::{GroupCatalog, Groups, GroupsPlace, SphereColumns};
pub use groups_reader::read_groups;
pub use groups_writer::{GroupsWriter, seal_groups, write_groups};
pub use parts::snapshot_paths;
pub use snapshot_info::SnapshotInfo;
pub use snapshot_reader::{Snapshot, SnapshotOptions};
pub use snapshot_writer::{FilePart, Files, SnapshotWriter, part_path};
pub use velocity_unit::VelocityUnit;
