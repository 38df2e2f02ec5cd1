//! Snapshots and catalogs of groups in HDF5, in the layouts of Gadget-4 and SWIFT.
//!
//! - **Reading** ([`Snapshot`]): particles of one file or of many, each rank only its own rows.
//! - **Writing** ([`Hdf5Writer`]): one file that all ranks write, whose [`Hdf5Contents`] are a
//!   snapshot that yt, pynbody and swiftsimio read with the right units, a light cone, a catalog of
//!   groups, or arrays as in an `.npz` archive.
//! - **Catalogs of groups** ([`write_groups`], [`read_groups`]) in Gadget-4's layout;
//!   [`open_centers`]: the positions of the groups of a catalog.
//!
//! The serial HDF5 library suffices, even if many ranks write one file: rank 0 creates the file
//! without values, which all ranks then write at their offsets at the same time. Nothing here
//! communicates; [`crate::io`] says when ranks must synchronize, and
//! [`seal_hdf5`](crate::io::collective::seal_hdf5) does it. All functions may be called from
//! several threads: calls of the library are serialized.
//!
//! The file `docs/files.md` of the repository lists datasets, attributes and units.

mod attributes;
mod background;
mod centers;
mod contents;
mod datasets;
mod groups;
mod part_file;
mod parts;
mod point_files;
mod queries;
mod rows;
mod snapshot_reader;
mod units;
mod writer;

pub use background::{Background, VelocityUnit};
pub use centers::open_centers;
pub use contents::{Attribute, ConeInfo, FilePart, Files, Hdf5Contents, part_path};
pub use groups::{GroupCatalog, Groups, GroupsPlace, SphereColumns, read_groups};
pub use parts::snapshot_paths;
pub use point_files::PointFiles;
pub use rows::{ConeRows, SnapshotRows, write_groups};
pub use snapshot_reader::{Snapshot, SnapshotOptions};
pub use units::SnapshotInfo;
pub use writer::Hdf5Writer;

use datasets::DatasetSpec;
use part_file::{Header, Opened, PartFile, Points, broken, group_name, read_rows, wrong};
use units::{KM_S, Quantity};
