//! A wgpu device that is open, and what has gone wrong on it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::copy_queues::CopyQueues;
use super::{Capabilities, DeviceError};
use crate::parallel::locked;
use crate::timeline;

/// Whose device it is, and so who hears of its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceOwner {
    /// The library's: its handlers note errors that come after the fact.
    Library,
    /// A caller's, whose handlers are left alone: errors are caught in scopes around the library's
    /// own calls.
    Caller,
}

/// Bytes that are written to buffers at most before they are handed over: wgpu keeps a copy of them
/// until something is submitted.
const UPLOAD: usize = 64 << 20;

/// Bytes written to buffers.
#[derive(Default)]
struct Uploads {
    /// Bytes since something was last handed over for them.
    bytes: usize,
    last: Option<wgpu::SubmissionIndex>,
}

/// A device as wgpu opens it.
pub(super) struct RawDevice {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    /// Queues for copies that ranks share, if it was opened with any.
    pub copies: Option<CopyQueues>,
}

/// A device with its queue.
pub(super) struct OpenDevice {
    /// No other device of this process ever has it.
    pub number: u64,
    /// Queues for copies beside kernels, if it has them. Dropped before the device.
    pub copies: Option<CopyQueues>,
    pub info: wgpu::AdapterInfo,
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub capabilities: Capabilities,
    owner: DeviceOwner,
    pub failure: FirstFailure,
    uploads: Mutex<Uploads>,
    /// Kernels that were compiled since somebody waited last.
    pub new_kernels: AtomicU64,
}

/// The first thing that went wrong.
#[derive(Clone, Default)]
pub(super) struct FirstFailure(Arc<OnceLock<String>>);

impl FirstFailure {
    /// Notes what went wrong, unless something did before.
    pub fn note(&self, why: String) {
        let _ = self.0.set(why);
    }
}

/// Error scopes of this thread, ended in the reverse order whatever happens: wgpu insists on that.
struct Scopes(Vec<wgpu::ErrorScopeGuard>);

impl Scopes {
    fn begin(device: &wgpu::Device) -> Self {
        let kinds = [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation];
        Scopes(kinds.map(|kind| device.push_error_scope(kind)).into())
    }

    /// Ends them and gives the first error.
    fn end(mut self) -> Option<wgpu::Error> {
        let mut first = None;
        while let Some(scope) = self.0.pop() {
            first = first.or(pollster::block_on(scope.pop()));
        }
        first
    }
}

impl Drop for Scopes {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

impl OpenDevice {
    pub fn new(raw: RawDevice, info: wgpu::AdapterInfo, capabilities: Capabilities, owner: DeviceOwner) -> Self {
        let RawDevice { device, queue, copies } = raw;
        let failure = FirstFailure::default();
        if owner == DeviceOwner::Library {
            let seen = failure.clone();
            device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| seen.note(error.to_string())));
            let seen = failure.clone();
            device.set_device_lost_callback(move |reason, message| {
                if reason != wgpu::DeviceLostReason::Destroyed {
                    seen.note(format!("the device was lost ({message})"));
                }
            });
        }
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (uploads, new_kernels) = (Mutex::default(), AtomicU64::new(0));
        OpenDevice { number, copies, info, device, queue, capabilities, owner, failure, uploads, new_kernels }
    }

    /// Runs `work`, which may call the device or its queue but not wait for other threads. Errors
    /// of it become [`DeviceError::Lost`] of the next [`check`](Self::check), on a caller's device
    /// as on the library's own.
    pub fn guarded<R>(&self, work: impl FnOnce() -> R) -> R {
        if self.owner == DeviceOwner::Library {
            return work();
        }
        let scopes = Scopes::begin(&self.device);
        let result = work();
        if let Some(error) = scopes.end() {
            self.failure.note(error.to_string());
        }
        result
    }

    /// Writes to a buffer, after everything submitted before and before everything submitted later.
    /// Copies of what is on its way take twice [`UPLOAD`] at most; beyond, it waits.
    pub fn write(&self, buffer: &wgpu::Buffer, offset: u64, data: &[u8]) {
        for (piece, offset) in data.chunks(UPLOAD).zip((offset..).step_by(UPLOAD)) {
            self.guarded(|| self.queue.write_buffer(buffer, offset, piece));
            self.flush(piece.len());
        }
    }

    /// Records written bytes; if they are many by now, submits them and waits for those before.
    fn flush(&self, bytes: usize) {
        let mut uploads = locked(&self.uploads);
        uploads.bytes += bytes;
        if uploads.bytes >= UPLOAD {
            uploads.bytes = 0;
            let submission_index = uploads.last.replace(self.guarded(|| self.queue.submit([])));
            drop(uploads);
            if submission_index.is_some() {
                // That the device is lost is for the next call to say.
                let _ = self.poll_once(wgpu::PollType::Wait { submission_index, timeout: None });
            }
        }
    }

    /// Runs `work` and gives the first error that the device reports of it; no handler hears of it.
    pub fn attempt<R>(&self, work: impl FnOnce() -> R) -> Result<R, wgpu::Error> {
        let scopes = Scopes::begin(&self.device);
        let result = work();
        scopes.end().map_or(Ok(result), Err)
    }

    /// Returns the first asynchronous error.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] after an asynchronous error.
    pub fn check(&self) -> Result<(), DeviceError> {
        self.failure.0.get().map_or(Ok(()), |why| Err(DeviceError::Lost(why.clone())))
    }

    /// Lets callbacks of finished work run, and waits for work if `how` says so.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub fn poll(&self, how: wgpu::PollType) -> Result<(), DeviceError> {
        self.poll_once(how)?;
        self.check()
    }

    /// Same as [`poll`](Self::poll), regardless of earlier errors.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub fn poll_once(&self, how: wgpu::PollType) -> Result<(), DeviceError> {
        let failed = |why: String| {
            self.failure.note(why.clone());
            DeviceError::Lost(why)
        };
        let waits = matches!(how, wgpu::PollType::Wait { .. });
        let new = if waits { self.new_kernels.swap(0, Ordering::Relaxed) } else { 0 };
        // Software renderers compile kernels when they first run.
        let _told = (new > 0).then(|| tell_of_compilation(new));
        let _activity = waits.then(|| timeline::activity!("wait for device", kernels = new));
        let polled = caught(|| self.spin(&how).unwrap_or_else(|| self.device.poll(how))).map_err(failed)?;
        polled.map(drop).map_err(|error| DeviceError::Lost(error.to_string()))
    }

    /// Polls for [`SPIN`] before a wait; returns what the last poll found if nothing is left to
    /// wait for. A thread that sleeps until the driver wakes it takes some tens of microseconds
    /// longer.
    fn spin(&self, how: &wgpu::PollType) -> Option<Result<wgpu::PollStatus, wgpu::PollError>> {
        let begin = Instant::now();
        while matches!(how, wgpu::PollType::Wait { .. }) && begin.elapsed() < SPIN {
            let polled = self.device.poll(wgpu::PollType::Poll);
            if !matches!(&polled, Ok(status) if !status.is_queue_empty()) {
                return Some(polled);
            }
            std::thread::yield_now();
        }
        None
    }
}

/// Time for which a wait polls before it sleeps.
const SPIN: Duration = Duration::from_micros(100);

/// Target of messages about the compilation of kernels.
pub(super) const COMPILATION: &str = "meshloom::compilation";

/// Longest time without a message while kernels are compiled.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Logs that kernels are compiled, unless the returned value is dropped within a second. Time
/// limits of wgpu's own waits are unreliable where several threads wait for a device.
fn tell_of_compilation(kernels: u64) -> Sender<()> {
    let (ended, end) = channel();
    let watch = move || {
        if end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::info!(
                target: COMPILATION,
                "{kernels} kernels run for the first time, and the driver compiles them now; most drivers keep them \
                 for later runs"
            );
        }
    };
    // A failure to start the thread only costs the message.
    let _ = std::thread::Builder::new().name("meshloom watch".into()).spawn(watch);
    ended
}

/// Returns the result of `work`, or the text of its panic: wgpu 30 panics if the driver loses the
/// device during a wait. No lock is held then, and later calls return the loss as an error. (A
/// program that aborts on panics ends there.)
fn caught<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        text.unwrap_or("wgpu gave up").to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_text() {
        assert_eq!(caught(|| 3), Ok(3));
        let cause = "the parent device is lost";
        assert_eq!(
            caught(|| panic!("Error in Device::poll: {cause}")),
            Err::<(), _>(format!("Error in Device::poll: {cause}"))
        );
        assert_eq!(caught(|| std::panic::panic_any("a text")), Err::<(), _>("a text".into()));
        assert_eq!(caught(|| std::panic::panic_any(7)), Err::<(), _>("wgpu gave up".into()));
    }
}
