//! The files of a call, checked before the work.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use meshloom::comm::Communicator;
use meshloom::io::collective::{same_contents, same_directory};
use meshloom::io::{IoError, check_replaceable, is_hdf5, printable_path};

use crate::coordinates;
use crate::failure::{Ended, Failure};

/// The files that a call names, in the same order in all processes.
#[derive(Clone, Debug, Default)]
pub struct Files {
    pub inputs: Vec<PathBuf>,
    pub outputs: Vec<PathBuf>,
}

impl Files {
    /// Checks that all ranks read the same inputs and see the directories of outputs. Collective,
    /// before anything is read or made.
    ///
    /// # Errors
    /// [`Failure::Failed`] on all ranks.
    pub fn check(&self, comm: &Communicator) -> Result<(), Ended> {
        if comm.size() == 1 {
            return Ok(());
        }
        // A snapshot may have several files. One that cannot be opened fails when it is read.
        let parts = |input: &PathBuf| coordinates::files(input).unwrap_or_else(|_| vec![input.clone()]);
        let inputs: Vec<PathBuf> = self.inputs.iter().flat_map(parts).collect();
        same_contents(comm, &inputs)?.map_err(Failure::from)?;
        let directories: BTreeSet<&Path> = self.outputs.iter().filter_map(|output| output.parent()).collect();
        for directory in directories {
            same_directory(comm, directory)?.map_err(Failure::from)?;
        }
        Ok(())
    }
}

/// Returns `true` if two paths are of one file, also through links or spelled differently. The file
/// need not exist.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| -> PathBuf {
        let whole = path.canonicalize();
        whole.unwrap_or_else(|_| {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let parent = parent.canonicalize().unwrap_or_else(|_| parent.into());
            path.file_name().map_or_else(|| parent.clone(), |name| parent.join(name))
        })
    };
    place(one) == place(other)
}

/// Returns the files of an input that may be replaced by `output`: all files of a snapshot that has
/// several, instead of the one that names it. Files that cannot be opened are left to the reader.
fn files_of(input: &Path, output: &Path) -> Vec<PathBuf> {
    // Parts of a snapshot have the name of the given file, except for a number.
    let may_be_part = output.extension() == input.extension() && output.exists();
    let parts = if may_be_part && is_hdf5(input) { coordinates::files(input).ok() } else { None };
    parts.unwrap_or_else(|| vec![input.into()])
}

/// Checks the files of a call. `-` is refused, since ranks read parts of inputs and write parts of
/// outputs, which a stream has not. So is an output with the name of an input (of any file of a
/// snapshot), which it would replace, or of another output, or of a file that may not be written,
/// or of a directory. Gives the files, for `Common::launch`.
///
/// # Errors
/// [`Failure::Usage`]; [`Failure::Failed`] for what cannot be replaced.
pub fn check_files<'a>(
    inputs: impl IntoIterator<Item = &'a Path>,
    outputs: impl IntoIterator<Item = &'a Path>,
) -> Result<Files, Failure> {
    let (inputs, outputs): (Vec<_>, Vec<_>) = (inputs.into_iter().collect(), outputs.into_iter().collect());
    let dash = |paths: &[&Path], error: IoError| match paths.iter().any(|path| path.as_os_str() == "-") {
        true => Err(Failure::Usage(error.to_string())),
        false => Ok(()),
    };
    dash(&inputs, IoError::input_is_dash())?;
    dash(&outputs, IoError::output_is_dash())?;
    for (number, output) in outputs.iter().enumerate() {
        let path = printable_path(output);
        if inputs.iter().flat_map(|input| files_of(input, output)).any(|input| is_same_file(&input, output)) {
            return Err(Failure::Usage(format!(
                "{path} is an input and an output, which are the same file; give the output another name"
            )));
        }
        if outputs[..number].iter().any(|other| is_same_file(other, output)) {
            return Err(Failure::Usage(format!("{path}: two outputs are the same file; give two names")));
        }
    }
    outputs.iter().filter(|output| output.exists()).try_for_each(check_replaceable)?;
    let owned = |paths: Vec<&Path>| paths.into_iter().map(PathBuf::from).collect();
    Ok(Files { inputs: owned(inputs), outputs: owned(outputs) })
}

/// Checks on rank 0 before the work that the output file can be created.
pub fn writable(comm: &Communicator, output: &Path) -> Result<(), IoError> {
    if comm.rank() > 0 {
        return Ok(());
    }
    let create = |source| IoError::create(output, source);
    if let Some(directory) = output.parent().filter(|parent| !parent.as_os_str().is_empty())
        && !directory.metadata().map_err(create)?.is_dir()
    {
        return Err(create(ErrorKind::NotADirectory.into()));
    }
    if output.is_dir() { Err(IoError::not_a_file(output)) } else { Ok(()) }
}
