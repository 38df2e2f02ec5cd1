//! Arrays, tables and pictures on disk, for programs of many ranks.
//!
//! - **Reading** ([`NpyFile`]): each rank reads its own range of a NumPy `.npy` file.
//! - **Writing** ([`NpyWriter`], [`SharedFile`]): an output is one file for any number of ranks.
//!   Each rank writes its own byte range, and the file gets its final name only when it is
//!   complete.
//! - **Archives** ([`NpzWriter`], [`NpzFile`]): several arrays in one `.npz` file, written and read
//!   in the same way.
//! - **HDF5** (module `hdf5`, feature `hdf5`): snapshots and catalogs of groups in the layouts of
//!   Gadget-4 and SWIFT.
//! - **Files that belong together** ([`Sealed`]): all are written before any gets its name, so that
//!   either all or none appear.
//! - **Small files** ([`write_whole`], [`write_csv`], `density_png` (feature `image`)): written by
//!   one rank; they also appear complete or not at all.
//! - **Cleaning up** ([`cleanup`]): an error, a panic or an interrupt leaves no partial output
//!   behind, and the next run removes the temporary files of a killed one.
//! - **Messages** ([`printable`], [`printable_path`]): text without control characters for
//!   terminals.
//!
//! # Who synchronizes
//! Only [`collective`] communicates. Without it, where ranks write one file, the caller places the
//! barriers:
//!
//! | step | ranks | before it |
//! |---|---|---|
//! | `token()`, and a broadcast of its string | rank 0 | |
//! | `create(path, .., token)` | rank 0 | |
//! | `open(path, .., token)` | all others | a barrier after `create` |
//! | `write(..)` of own, disjoint ranges | all | |
//! | `finish()` | all others | own writes done |
//! | `finish()` | rank 0 | a barrier after the others' `finish` |
//!
//! To finish an archive, rank 0 also needs the results of `write` from the other ranks.
//! [`collective`] does all of this with a communicator.
//!
//! A rank that fails returns its error and drops its writer. When rank 0 learns of the failure and
//! also drops its writer, the temporary file is removed. A program that ends without destructors
//! (`MPI_Abort`, `std::process::exit`) must call [`cleanup::remove_all`] first.
//!
//! # Example
//! ```
//! use meshloom::io::{NpyFile, NpyWriter, token};
//! # fn main() -> Result<(), meshloom::io::IoError> {
//! let path = std::env::temp_dir().join(format!("meshloom-doc-{}.npy", token()));
//! let token = token();
//! let first = NpyWriter::<f32>::create(&path, &[2, 3], &token)?; // rank 0
//! let second = NpyWriter::<f32>::open(&path, &[2, 3], &token)?; // rank 1
//! second.write(3, &[3.0, 4.0, 5.0])?;
//! first.write(0, &[0.0, 1.0, 2.0])?;
//! second.finish()?;
//! first.finish()?; // now the file exists
//!
//! let file = NpyFile::open(&path)?;
//! assert_eq!(file.shape(), [2, 3]);
//! assert_eq!(file.read_f32(2..5)?, [2.0, 3.0, 4.0]);
//! # std::fs::remove_file(&path).unwrap();
//! # Ok(())
//! # }
//! ```

pub mod cleanup;
pub mod collective;
#[cfg(feature = "image")]
pub(crate) mod diverging;
mod dtype;
mod error;
#[cfg(feature = "hdf5")]
pub mod hdf5;
#[cfg(feature = "image")]
mod image;
mod input;
mod npy;
mod npy_header;
mod npy_writer;
mod npz;
mod output_dir;
mod run_lock;
mod shared_file;
mod tables;
mod temporary;
mod zip;

pub use crate::printable::{is_unprintable, printable, printable_path};
pub use dtype::Dtype;
pub use error::{IoError, IoErrorKind};
#[cfg(feature = "image")]
pub use image::{RgbImage, density_png};
pub use input::{PARTICLE_TYPES, is_hdf5, is_hdf5_name, read_short, read_text};
pub use npy::NpyFile;
pub use npy_writer::{NpyElement, NpyWriter};
pub use npz::{Member, NpzFile, NpzWriter, PartCrc};
pub use output_dir::OutputDir;
pub use shared_file::{Sealed, SharedFile, check_replaceable, seal_whole, write_whole};
pub use tables::{Column, Numbers, csv_text, read_numbers, write_csv};
pub use temporary::token;

use error::Result;
use input::Input;
use temporary::temporary_name;

#[cfg(test)]
pub(crate) mod scratch {
    //! A directory for one test, removed at its end.
    use std::path::{Path, PathBuf};

    pub struct Scratch(PathBuf);

    impl Scratch {
        pub fn new() -> Self {
            let path = std::env::temp_dir().join(format!("meshloom-io-{}", super::token()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        pub fn path(&self) -> &Path {
            &self.0
        }

        pub fn names(&self) -> Vec<String> {
            let mut names: Vec<_> =
                std::fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
