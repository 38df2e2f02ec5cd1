//! Writing to standard output and standard error, which the program does nowhere else.
//!
//! Either may be a pipe whose reader has closed it or a full device, and text may hold file names
//! with control characters that a terminal would obey. Nothing here panics, and control characters
//! are escaped. (`println!` and `eprintln!` panic on closed pipes: a test checks that the program
//! has none.)

use std::io::{self, ErrorKind, IsTerminal, Write};

use meshloom::io::{is_unprintable, printable};
use serde_json::Value;

use crate::failure::Failure;

/// Returns `true` in the process that prints: a single one, or the first that a launcher started.
pub fn is_first() -> bool {
    if !meshloom::comm::mpi_launched() {
        return true;
    }
    ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID", "SLURM_PROCID"]
        .iter()
        .find_map(|name| std::env::var(name).ok())
        .is_none_or(|rank| rank.trim() == "0")
}

/// Prints the result of a command. In an MPI job only the first process prints, since all may call
/// it.
///
/// # Errors
/// [`Failure::Failed`] if it cannot be written. A closed pipe is not an error: the work is done.
pub fn print(text: &str) -> Result<(), Failure> {
    if !is_first() {
        return Ok(());
    }
    written(write_all(&mut io::stdout().lock(), &printable(text)))
}

/// [`print()`] of one object on a line of its own.
///
/// # Errors
/// Same as [`print()`].
pub fn print_object(object: &Value) -> Result<(), Failure> {
    let mut line = String::new();
    for c in object.to_string().chars() {
        // Control characters that JSON does not escape; all have 16 bits at most.
        if is_unprintable(c) { line += &format!("\\u{:04x}", u32::from(c)) } else { line.push(c) }
    }
    print(&(line + "\n"))
}

/// Writes binary data to standard output.
///
/// # Errors
/// [`Failure::Usage`] where it is a terminal; else as [`print()`].
pub fn write_binary(bytes: &[u8]) -> Result<(), Failure> {
    if !is_first() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        return Err(Failure::Usage("this is binary and no text for a terminal; name a file with --output".into()));
    }
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Converts the result of writing to standard output.
///
/// # Errors
/// Same as [`print()`].
pub fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let why = match error.kind() {
                ErrorKind::StorageFull => "there is no room left on it".into(),
                _ => error.to_string(),
            };
            Err(Failure::Failed(format!(
                "standard output could not be written: {why}; send it elsewhere (files that were asked for are whole)"
            )))
        }
        _ => Ok(()),
    }
}

/// Same as [`complain`], for problems that may spoil a result that is produced nevertheless.
pub fn warn(words: &str) {
    complain(&format!("meshloom: warning: {words}"));
}

/// Prints a message on standard error; errors of writing are ignored.
pub fn complain(message: &str) {
    let _ = write_all(&mut io::stderr().lock(), &(printable(message).into_owned() + "\n"));
}

fn write_all(to: &mut impl Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}

/// The writer of diagnostics (`MESHLOOM_LOG`): standard error, with errors of writing ignored.
pub struct Diagnostics;

impl Write for Diagnostics {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = write_all(&mut io::stderr().lock(), &printable(&String::from_utf8_lossy(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
