//! Files that only show whether and when a directory can be written.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::cleanup;
use super::temporary::temporary_name;

/// A new hidden file that is removed when this is dropped.
pub(super) struct Probe {
    pub path: PathBuf,
    /// Its lock tells other runs that it is in use.
    pub file: File,
}

impl Probe {
    /// Creates a file beside `path`, with the [temporary name] of `token`.
    ///
    /// [temporary name]: temporary_name
    pub fn beside(path: &Path, token: &str) -> io::Result<Self> {
        let path = temporary_name(path, token);
        let file = cleanup::create_file(&path)?;
        Ok(Probe { path, file })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        cleanup::remove_file(&self.path);
    }
}
