//! The file of a state, of a fit or of chains.

use std::path::{Path, PathBuf};

use super::error::{InferenceError, Result};
use super::groups::SampleGroups;
use super::log_likelihood::Identity;
use crate::io::{IoError, NpyFile, NpzFile, OutputDir};

/// The use of a state that is in the directory of a fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// The state is an error.
    #[default]
    Refuse,
    /// The fit continues from the state.
    Resume,
    /// The first iteration replaces the state.
    Overwrite,
}

/// The file of a state.
pub(super) struct StateFile {
    pub path: PathBuf,
    /// Identity of the likelihood.
    pub identity: Identity,
    pub seed: u64,
}

impl StateFile {
    /// Opens a state in `directory`, which is created if it does not exist. Collective.
    pub fn new(
        (directory, name): (&Path, &str),
        existing: Existing,
        groups: &SampleGroups,
        identity: Identity,
        seed: u64,
    ) -> Result<Self> {
        let path = directory.join(name);
        let mut refused = [u32::from(existing == Existing::Refuse && groups.all().rank() == 0 && path.exists())];
        groups.all().broadcast(0, &mut refused)?;
        if refused[0] == 1 {
            let why = "it would be lost: go on from it with `resume` (in Python `resume=True`), \
                       replace it with `overwrite` (`overwrite=True`), or give another directory";
            return Err(InferenceError::State { path, why: why.into() });
        }
        groups.all().together::<_, InferenceError>(|| {
            if groups.all().rank() == 0 {
                // The directory stays although it is empty before the first iteration ends.
                std::mem::forget(OutputDir::create(directory)?);
            }
            Ok(())
        })?;
        Ok(StateFile { path, identity, seed })
    }

    pub fn wrong(&self, why: impl Into<String>) -> InferenceError {
        InferenceError::State { path: self.path.clone(), why: why.into() }
    }

    /// Returns the error of a file that cannot be read.
    fn broken(&self, error: IoError) -> InferenceError {
        self.wrong(format!("{error}; remove it to start again"))
    }

    /// Opens the file and checks that it is whole; `None` if it does not exist. Collective over all
    /// groups.
    pub fn open(&self, groups: &SampleGroups) -> Result<Option<OpenState<'_>>> {
        let mut is_there = [u32::from(groups.all().rank() == 0 && self.path.exists())];
        groups.all().broadcast(0, &mut is_there)?;
        if is_there[0] == 0 {
            return Ok(None);
        }
        let archive = NpzFile::open(&self.path).map_err(|error| self.broken(error))?;
        if groups.all().rank() == 0 {
            archive.check().map_err(|error| self.broken(error))?;
        }
        Ok(Some(OpenState { state: self, archive }))
    }

    /// Refuses the state of another likelihood.
    pub fn check_identity(&self, saved: &[i64]) -> Result<()> {
        let parts = self.identity.parts();
        if saved.len() != parts.len() {
            return Err(self.wrong("it is no state of a fit or of chains; give another directory"));
        }
        match parts.iter().zip(saved).find(|((_, mark), saved)| *mark as i64 != **saved) {
            Some(((name, _), _)) => Err(self.wrong(format!(
                "it is of another posterior, whose {name} differ from this one's; give the same, another directory, or start again"
            ))),
            None => Ok(()),
        }
    }
}

/// A state that is read.
pub(super) struct OpenState<'a> {
    pub state: &'a StateFile,
    archive: NpzFile,
}

impl OpenState<'_> {
    pub fn member(&self, name: &str) -> Result<NpyFile> {
        self.or_broken(self.archive.member(name))
    }

    pub fn integers(&self, name: &str) -> Result<Vec<i64>> {
        let member = self.member(name)?;
        self.or_broken(member.read_i64(0..member.len()))
    }

    pub fn numbers(&self, name: &str) -> Result<Vec<f64>> {
        let member = self.member(name)?;
        self.or_broken(member.read_f64(0..member.len()))
    }

    /// Returns what was read, or the error of a file that cannot be read.
    pub fn or_broken<T>(&self, read: Result<T, IoError>) -> Result<T> {
        read.map_err(|error| self.state.broken(error))
    }
}
