//! Files that belong together with a description of them that is written last: `run.json` of a run,
//! `snapshot.json` of a snapshot.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use meshloom::comm::Communicator;
use meshloom::gpu::ExchangePath;
use meshloom::io::{IoError, IoErrorKind, OutputDir, Sealed, printable_path, read_text, seal_whole, write_whole};
use meshloom::{Error, Rank};
use serde_json::{Value, json};

use crate::failure::{Ended, Failure};

/// The description of a run, which is written last: with it the files beside it are whole.
pub const DESCRIPTION: &str = "run.json";

/// Commands that write to a directory.
const COMMANDS: [&str; 4] = ["simulate", "reconstruct", "infer", "shallow-water"];

/// Makes the directory, and keeps other runs out of it until rank 0 drops what it gets. Collective,
/// before they look for what an earlier run has left.
///
/// # Errors
/// Same as [`OutputDir::create`], [`OutputDir::lock`] and [`check_command`]: a run of another
/// command may have ended since that was called.
pub fn take(comm: &Communicator, out: &Path, command: &str) -> Result<Option<OutputDir>, Ended> {
    let taken = if comm.rank() == 0 { Some(OutputDir::create(out)?.lock()?) } else { None };
    comm.barrier()?;
    check_command(out, command)?;
    Ok(taken)
}

/// Checks that the run in `out`, if there is one, is of this command: files of two have the same
/// names, and one's would stand beside the other's description.
///
/// # Errors
/// [`Failure::Failed`].
pub fn check_command(out: &Path, command: &str) -> Result<(), Failure> {
    let path = out.join(DESCRIPTION);
    // A file that cannot be read is not a description of this program.
    let said = read(&path).ok().flatten().unwrap_or_default();
    match COMMANDS.into_iter().find(|other| *other != command && said["command"] == *other) {
        Some(other) => Err(Failure::Failed(format!(
            "{}: is of `meshloom {other}`; {command} needs a directory of its own, give another --out",
            printable_path(&path)
        ))),
        None => Ok(()),
    }
}

/// Returns the device of a rank, and the path of its data to other ranks.
pub fn device(rank: &Rank) -> Value {
    let info = rank.gpu.info();
    json!({
        "name": info.name, "driver": info.driver, "driver_info": info.driver_info,
        "backend": format!("{:?}", info.backend),
        "exchange": rank.exchange.path(&rank.gpu).map(ExchangePath::name),
    })
}

/// Bytes of the longest description that is read.
const MAX_BYTES: u64 = 1 << 20;

/// Returns the JSON object in a file; `None` if the file does not exist.
pub fn read(path: &Path) -> Result<Option<Value>, IoError> {
    let text = match read_text(path, MAX_BYTES) {
        Err(IoError { kind: IoErrorKind::NotFound, .. }) => return Ok(None),
        text => text?,
    };
    let read = |source| IoError::read(path, source);
    match serde_json::from_str::<Value>(&text) {
        Ok(value) if value.is_object() => Ok(Some(value)),
        Ok(_) => Err(read(std::io::Error::other("no JSON object"))),
        Err(error) => Err(read(error.into())),
    }
}

/// Publishes sealed files and writes their description `whole` to `path`, beside them. Collective.
/// `clear` first removes an older description on rank 0, and files that would be taken for a part
/// of this one; the new description is published last, so that no description stands beside files
/// that it does not describe. `clear` gets `true` if an earlier call was interrupted between the
/// two.
pub fn publish(
    comm: &Communicator,
    path: &Path,
    whole: &Value,
    files: Vec<Sealed>,
    clear: impl FnOnce(bool) -> Result<(), IoError>,
) -> Result<(), Error> {
    let mark = mark(path);
    let sealed = comm.together(|| match comm.rank() {
        0 => Ok::<_, Error>(Some(seal_whole(path, format!("{whole:#}\n").as_bytes())?)),
        _ => Ok(None),
    })?;
    comm.together(|| {
        if comm.rank() == 0 {
            let unfinished = is_unfinished(path);
            write_whole(&mark, b"")?;
            clear(unfinished)?;
        }
        Ok::<_, Error>(())
    })?;
    comm.together(|| Ok::<_, Error>(files.into_iter().try_for_each(|file| file.publish())?))?;
    comm.together(|| {
        if let Some(sealed) = sealed {
            sealed.publish()?;
            remove(&mark)?;
        }
        Ok(())
    })
}

/// Returns the mark that stands for a description while files get their names: a run that finds it
/// knows that they may be of several runs.
pub fn mark(path: &Path) -> PathBuf {
    path.with_extension("unfinished")
}

/// Returns `true` if the call that was to write the description at `path` was interrupted while
/// files got their names. Beside a description the mark says nothing: the call ended in that
/// moment, or had not yet begun to remove.
pub fn is_unfinished(path: &Path) -> bool {
    mark(path).exists() && !path.exists()
}

/// Removes files in a directory by their names.
pub fn remove_files(directory: &Path, is_outdated: impl Fn(&str) -> bool) -> Result<(), IoError> {
    let failed = |source| IoError::read(directory, source);
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A directory is never a file of this program, whatever its name.
        if entry.file_name().to_str().is_some_and(&is_outdated) && !entry.path().is_dir() {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a file if it exists.
pub fn remove(path: &Path) -> Result<(), IoError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(IoError::write(path, 0, source)),
        _ => Ok(()),
    }
}

/// Returns the first value in which two objects differ: its name (`cosmology.h` for one inside
/// another), theirs and ours.
pub fn difference<'a>(theirs: &'a Value, ours: &'a Value) -> Option<(String, &'a Value, &'a Value)> {
    let (Value::Object(their), Value::Object(our)) = (theirs, ours) else {
        return (theirs != ours).then(|| (String::new(), theirs, ours));
    };
    let names: BTreeSet<&String> = their.keys().chain(our.keys()).collect();
    names.into_iter().find_map(|name| {
        let (rest, theirs, ours) = difference(&theirs[name], &ours[name])?;
        let dot = if rest.is_empty() { "" } else { "." };
        Some((format!("{name}{dot}{rest}"), theirs, ours))
    })
}

#[cfg(test)]
mod tests {
    use meshloom::comm::run_solo;
    use meshloom::io::token;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mark_beside_a_whole_description_is_none() {
        let directory = std::env::temp_dir().join(format!("meshloom-described-{}", token()));
        fs::create_dir(&directory).unwrap();
        let (path, mark) = (directory.join("run.json"), directory.join("run.unfinished"));
        for whole in [false, true] {
            fs::write(&mark, "").unwrap();
            assert_eq!(path.exists(), whole);
            let mut told = None;
            let published = run_solo(|comm| {
                publish(&comm, &path, &json!({}), Vec::new(), |unfinished| {
                    told = Some(unfinished);
                    remove(&path)
                })
            });
            published.unwrap();
            assert_eq!((told, path.exists(), mark.exists()), (Some(!whole), true, false));
        }
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_differs_is_named() {
        let ours = json!({ "box": 64.0, "cosmology": { "h": 0.7, "n_s": 0.96 }, "snapshots": ["0.5"] });
        let changed = |name: &str, value: Value| {
            let mut theirs = ours.clone();
            *theirs.pointer_mut(name).unwrap() = value;
            difference(&theirs, &ours).map(|(name, ..)| name)
        };
        assert_eq!(difference(&ours, &ours), None);
        assert_eq!(changed("/box", 65.0.into()).as_deref(), Some("box"));
        assert_eq!(changed("/cosmology/n_s", Value::Null).as_deref(), Some("cosmology.n_s"));
        assert_eq!(changed("/snapshots/0", "0.50".into()).as_deref(), Some("snapshots"));
        assert_eq!(difference(&json!({}), &ours).map(|(name, ..)| name).as_deref(), Some("box"));
        assert_eq!(difference(&ours, &Value::Null).map(|(name, ..)| name).as_deref(), Some(""));
    }
}
