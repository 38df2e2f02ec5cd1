//! The one place where the program writes to standard output and standard error.
//!
//! Either may be a pipe whose reader has left or a device without room, and what is written may hold names that were
//! chosen to take a terminal over. Nothing here panics, and control characters come out escaped. All else that prints
//! (`println!` and its kin) panics in such places: a test sees that none comes in.

use std::io::{self, ErrorKind, IsTerminal, Write};

use meshloom::io::{is_unprintable, printable};
use serde_json::Value;

use crate::common::Failure;

/// Prints what a command has found, at its end.
///
/// # Errors
/// [`Failure::Failed`] where it cannot be written. A reader that has left is none: the work is done.
pub fn print(text: &str) -> Result<(), Failure> {
    written(write_all(&mut io::stdout().lock(), &printable(text)))
}

/// [`print()`] of one object on a line of its own.
///
/// # Errors
/// As [`print()`].
pub fn print_object(object: &Value) -> Result<(), Failure> {
    let mut line = String::new();
    for c in object.to_string().chars() {
        // What JSON leaves as it is, and a terminal would obey. There are none beyond 16 bits.
        if is_unprintable(c) { line += &format!("\\u{:04x}", u32::from(c)) } else { line.push(c) }
    }
    print(&(line + "\n"))
}

/// Writes bytes that are no text to standard output.
///
/// # Errors
/// [`Failure::Usage`] where it is a terminal; else as [`print()`].
pub fn write_binary(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        return Err(Failure::Usage("this is binary and no text for a terminal; name a file with --output".into()));
    }
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

/// What came of writing to standard output.
///
/// # Errors
/// As [`print()`].
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

/// Says something on standard error. Where that cannot be written there is nobody to tell.
pub fn complain(message: &str) {
    let _ = write_all(&mut io::stderr().lock(), &(printable(message).into_owned() + "\n"));
}

fn write_all(to: &mut impl Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}

/// Where diagnostics (`MESHLOOM_LOG`) go: to standard error, whether it can be written or not.
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
