//! Signals that end a program: what is unfinished goes first.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, mpsc};
use std::thread;
use std::time::Duration;

use super::Unfinished;
use crate::io::IoError;

static SILENT: AtomicBool = AtomicBool::new(false);

/// How long the message may take: a pipe that nobody reads must not keep the process.
const MESSAGE: Duration = Duration::from_secs(1);

/// Makes an interrupt (SIGINT, SIGTERM, SIGHUP, SIGXCPU; Ctrl-C) remove what is unfinished, say so once on standard error,
/// and end the process with the exit status that shells expect: 128 and the signal's number. A second one, unless it
/// follows at once, ends the process without waiting. Signals that are ignored stay so (`nohup`). Past a limit on the
/// size of files (SIGXFSZ) a write is an error from now on, and not the end.
///
/// For programs; a library's user may have handlers of their own. Calling it again does nothing. Under MPI every process
/// installs it; all but one call [`silence_interrupt_message`].
///
/// # Errors
/// [`IoError::Handler`] if the system refuses or the program already has such a handler.
pub fn install_interrupt_handler() -> Result<(), IoError> {
    static INSTALLED: Once = Once::new();
    let mut result = Ok(());
    INSTALLED.call_once(|| result = system::install().map_err(|reason| IoError::Handler { reason }));
    result
}

/// Leaves the message to another process: for all MPI ranks but one.
pub fn silence_interrupt_message() {
    SILENT.store(true, Ordering::Relaxed);
}

/// Removes what is unfinished and ends. The lock is held to the end, so that no rank makes another file meanwhile.
fn end(status: i32) -> ! {
    let mut unfinished = Unfinished::lock();
    unfinished.remove();
    if !SILENT.load(Ordering::Relaxed) {
        let (said, is_said) = mpsc::channel();
        let say = move || {
            let mut stderr = std::io::stderr();
            // A progress bar may stand on this line of a terminal.
            let clear = if stderr.is_terminal() { "\r\x1b[K" } else { "" };
            let text = format!("{clear}meshloom: interrupted; unfinished files were removed\n");
            // Where nobody listens there is nobody to tell.
            let _ = stderr.write_all(text.as_bytes());
            let _ = said.send(());
        };
        if thread::Builder::new().spawn(say).is_ok() {
            let _ = is_said.recv_timeout(MESSAGE);
        }
    }
    system::exit(status)
}

#[cfg(unix)]
mod system {
    use std::ffi::c_int;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use std::{io, mem, ptr, thread};

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use signal_hook::{flag, low_level};

    use super::end;

    /// A launcher may pass on what the terminal has sent already: this soon it is the same interrupt.
    const SAME: Duration = Duration::from_millis(300);

    pub fn install() -> Result<(), String> {
        listen().map_err(|error| error.to_string())
    }

    fn listen() -> io::Result<()> {
        let ends = [SIGHUP, SIGINT, SIGTERM, libc::SIGXCPU].into_iter().filter(|&signal| !is_ignored(signal));
        let mut signals = Signals::new(ends.collect::<Vec<_>>())?;
        // Any handler will do: a write past the limit then returns an error.
        flag::register(libc::SIGXFSZ, Arc::default())?;
        let wait = move || {
            let mut first = None;
            for signal in signals.forever() {
                let status = 128 + signal;
                match answer(first, Instant::now()) {
                    Answer::Clean => {
                        first = Some(Instant::now());
                        // Here it goes on to listen, for one who will not wait.
                        if thread::Builder::new().spawn(move || end(status)).is_err() {
                            end(status);
                        }
                    }
                    Answer::Nothing => {}
                    Answer::End => exit(status),
                }
            }
        };
        thread::Builder::new().name("interrupt".into()).spawn(wait)?;
        Ok(())
    }

    #[derive(Debug, PartialEq)]
    enum Answer {
        Clean,
        Nothing,
        End,
    }

    /// What to do about an interrupt at `now`, where the first came at `first`.
    fn answer(first: Option<Instant>, now: Instant) -> Answer {
        match first {
            None => Answer::Clean,
            Some(first) if now.duration_since(first) < SAME => Answer::Nothing,
            Some(_) => Answer::End,
        }
    }

    /// Whether the process was started so that this signal does nothing to it.
    fn is_ignored(signal: c_int) -> bool {
        // SAFETY: zeros are a valid action, and without a new one the call only tells the present one.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            libc::sigaction(signal, ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
        }
    }

    /// Ends without destructors of C libraries: a GPU driver's would run while the ranks' threads still use it.
    pub fn exit(status: c_int) -> ! {
        low_level::exit(status)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_second_interrupt_ends_at_once_unless_it_is_the_first_passed_on() {
            let first = Instant::now();
            assert_eq!(answer(None, first), Answer::Clean);
            assert_eq!(answer(Some(first), first + SAME / 2), Answer::Nothing);
            assert_eq!(answer(Some(first), first + SAME), Answer::End);
        }
    }
}

#[cfg(not(unix))]
mod system {
    /// What shells expect after Ctrl-C.
    const INTERRUPTED: i32 = 130;

    pub fn install() -> Result<(), String> {
        ctrlc::set_handler(|| super::end(INTERRUPTED)).map_err(|error| error.to_string())
    }

    pub fn exit(status: i32) -> ! {
        std::process::exit(status)
    }
}
