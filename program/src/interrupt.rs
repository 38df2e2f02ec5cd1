//! Signals that end a program: unfinished files are removed first.

use std::cell::Cell;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use meshloom::comm;
use meshloom::io::cleanup::{remove_and_block, try_remove_and_block};

static SILENT: AtomicBool = AtomicBool::new(false);

static BEFORE_EXIT: OnceLock<fn()> = OnceLock::new();

/// [`StopRequests`] there are, and the signal that one of them has not answered; 0 for none.
static LISTENERS: AtomicUsize = AtomicUsize::new(0);
static REQUEST: AtomicI32 = AtomicI32::new(0);

/// Time for the message: a pipe without a reader must not block the process.
const MESSAGE: Duration = Duration::from_secs(1);

/// Makes an interrupt (SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU; Ctrl-C) remove unfinished files,
/// print one message on standard error, and end the process with the exit status that shells
/// expect: 128 plus the signal's number. A second one, unless it follows at once, ends the process
/// without waiting. Ignored signals stay ignored (`nohup`). A write beyond the limit on the size of
/// files (SIGXFSZ) is an error from now on and does not end the process.
///
/// Calling it again does nothing. Under MPI every process calls it, and all but one also call
/// [`silence_interrupt_message`].
///
/// # Errors
/// The system's message if it refuses or the program already has such a handler.
pub fn install_interrupt_handler() -> Result<(), String> {
    static INSTALLED: Once = Once::new();
    let mut result = Ok(());
    INSTALLED.call_once(|| result = system::install());
    result
}

/// While one of these exists, the first SIGTERM or SIGUSR1 does not end the process: it requests an
/// end at the next point from which the work can be resumed. Batch systems send these signals some
/// time before they kill. A second one ends the process as usual.
///
/// Under MPI the first one ends it nevertheless once another process has [said that it
/// fails](meshloom::comm::is_ending). Each rank that is a thread has one; the last one that is
/// dropped with a request unanswered ends the process.
#[derive(Debug)]
pub struct StopRequests(());

impl StopRequests {
    /// Begins to listen; needs [`install_interrupt_handler`].
    #[expect(clippy::new_without_default, reason = "it changes what the process does")]
    pub fn new() -> Self {
        LISTENERS.fetch_add(1, Ordering::SeqCst);
        StopRequests(())
    }

    /// Returns the number of the signal that asks for an end; 0 for none. Processes of one job may
    /// differ: all must agree on it.
    pub fn signal(&self) -> i32 {
        REQUEST.load(Ordering::SeqCst)
    }

    /// Notes that the request was answered: the state is on disk. Signals end the process from now
    /// on.
    pub fn answered(self) {
        REQUEST.store(0, Ordering::SeqCst);
    }
}

impl Drop for StopRequests {
    fn drop(&mut self) {
        if LISTENERS.fetch_sub(1, Ordering::SeqCst) == 1 {
            let signal = REQUEST.swap(0, Ordering::SeqCst);
            if signal != 0 {
                end(128 + signal);
            }
        }
    }
}

/// Returns `true` if a signal is taken as a request to stop, which there is none of yet. Where
/// another MPI process fails none is: it is the launcher's, which soon kills, and the ranks can
/// reach no end together any more.
#[cfg(unix)]
fn is_request(signal: i32) -> bool {
    LISTENERS.load(Ordering::SeqCst) > 0
        && !comm::is_ending()
        && REQUEST.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// Prints no message on an interrupt: for all MPI ranks but one.
pub fn silence_interrupt_message() {
    SILENT.store(true, Ordering::Relaxed);
}

/// Sets what the process does before an interrupt ends it. Only the first call has an effect.
pub fn before_exit(work: fn()) {
    let _ = BEFORE_EXIT.set(work);
}

/// Removes unfinished files and ends the process. Outputs are blocked to the end, so that no rank
/// creates another file.
fn end(status: i32) -> ! {
    let _blocked = remove_and_block();
    if let Some(work) = BEFORE_EXIT.get() {
        work();
    }
    if !SILENT.load(Ordering::Relaxed) {
        let (sender, printed) = mpsc::channel();
        let print = move || {
            let mut stderr = std::io::stderr();
            // There may be a progress bar on this line of a terminal.
            let clear = if stderr.is_terminal() { "\r\x1b[K" } else { "" };
            let text = format!("{clear}meshloom: interrupted; unfinished files were removed\n");
            let _ = stderr.write_all(text.as_bytes());
            let _ = sender.send(());
        };
        if thread::Builder::new().spawn(print).is_ok() {
            let _ = printed.recv_timeout(MESSAGE);
        }
    }
    system::exit(status)
}

/// Removes unfinished files, prints `message` on standard error and ends the process with exit code
/// 1, without allocating memory: for a program that has none left. It may be called anywhere, also
/// by several threads at once: the first one's message is printed.
///
/// Files stay where another thread, or a caller of this thread, is at work on the list of
/// unfinished files for a second; the next run that writes there removes them. So do files whose
/// path is longer than 383 bytes.
pub fn end_without_memory(message: fmt::Arguments<'_>) -> ! {
    static ENDING: AtomicBool = AtomicBool::new(false);
    thread_local! {
        static ENDING_HERE: Cell<bool> = const { Cell::new(false) };
    }
    if ENDING_HERE.replace(true) {
        // Removing a file needs memory: its path is long.
        system::exit(1);
    }
    if ENDING.swap(true, Ordering::SeqCst) {
        thread::sleep(10 * MESSAGE);
        system::exit(1);
    }
    let mut text = [0; 512];
    let mut rest = &mut text[..];
    // What does not fit is cut off.
    let _ = writeln!(rest, "{message}");
    let unused = rest.len();
    // Written first: it must appear even where a file system does not answer. Standard error has no
    // buffer.
    let _ = std::io::stderr().write_all(&text[..text.len() - unused]);
    let tries = 100;
    for _ in 0..tries {
        // Held to the end, so that no rank creates another file.
        if let Some(_blocked) = try_remove_and_block() {
            system::exit(1);
        }
        thread::sleep(MESSAGE / tries);
    }
    system::exit(1)
}

#[cfg(unix)]
mod system {
    use std::ffi::c_int;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use std::{io, mem, ptr, thread};

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
    use signal_hook::iterator::Signals;
    use signal_hook::{flag, low_level};

    use super::{end, is_request};

    /// Signals this close are one interrupt: a launcher may pass on a signal that the terminal has
    /// sent, too.
    const SAME_INTERRUPT: Duration = Duration::from_millis(300);

    pub fn install() -> Result<(), String> {
        listen().map_err(|error| error.to_string())
    }

    fn listen() -> io::Result<()> {
        let ends = [SIGHUP, SIGINT, SIGTERM, SIGUSR1, libc::SIGXCPU].into_iter().filter(|&signal| !is_ignored(signal));
        let mut signals = Signals::new(ends.collect::<Vec<_>>())?;
        // With any handler, a write beyond the limit returns an error.
        flag::register(libc::SIGXFSZ, Arc::default())?;
        let wait = move || {
            let (mut first, mut asked) = (None, None);
            for signal in signals.forever() {
                let (status, now) = (128 + signal, Instant::now());
                if [SIGTERM, SIGUSR1].contains(&signal) {
                    if is_request(signal) {
                        asked = Some(now);
                        continue;
                    }
                    if action(asked, now) == Action::Ignore {
                        continue;
                    }
                }
                match action(first, now) {
                    Action::CleanUp => {
                        first = Some(now);
                        // Another thread cleans up; this one waits for a second interrupt.
                        if thread::Builder::new().spawn(move || end(status)).is_err() {
                            end(status);
                        }
                    }
                    Action::Ignore => {}
                    Action::ExitNow => exit(status),
                }
            }
        };
        thread::Builder::new().name("interrupt".into()).spawn(wait)?;
        Ok(())
    }

    #[derive(Debug, PartialEq)]
    enum Action {
        CleanUp,
        Ignore,
        ExitNow,
    }

    /// Returns the action on an interrupt at `now`, where the first came at `first`.
    fn action(first: Option<Instant>, now: Instant) -> Action {
        match first {
            None => Action::CleanUp,
            Some(first) if now.duration_since(first) < SAME_INTERRUPT => Action::Ignore,
            Some(_) => Action::ExitNow,
        }
    }

    /// Returns `true` if the process was started with this signal ignored.
    fn is_ignored(signal: c_int) -> bool {
        // SAFETY: zeros are a valid action, and without a new one the call only returns the present
        // one.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            libc::sigaction(signal, ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
        }
    }

    /// Ends without destructors of C libraries: those of a GPU driver would run while threads of
    /// ranks still use it.
    pub fn exit(status: c_int) -> ! {
        low_level::exit(status)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_second_interrupt_ends_at_once_unless_it_is_the_first_passed_on() {
            let first = Instant::now();
            assert_eq!(action(None, first), Action::CleanUp);
            assert_eq!(action(Some(first), first + SAME_INTERRUPT / 2), Action::Ignore);
            assert_eq!(action(Some(first), first + SAME_INTERRUPT), Action::ExitNow);
        }
    }
}

#[cfg(not(unix))]
mod system {
    /// Exit status after Ctrl-C, by the convention of shells.
    const INTERRUPTED: i32 = 130;

    pub fn install() -> Result<(), String> {
        ctrlc::set_handler(|| super::end(INTERRUPTED)).map_err(|error| error.to_string())
    }

    pub fn exit(status: i32) -> ! {
        std::process::exit(status)
    }
}
