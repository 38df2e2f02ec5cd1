//! The sanitizer as an observer of a device.

use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use meshloom::gpu::{DeviceError, DispatchObserver, ObservedDispatch, ObservedKernel, Options, Verdict};

use super::interpreter::Interpreter;
use super::memory::Memory;
use super::program::Program;

/// Steps of invocations that the interpreter runs of a dispatch that the device runs afterwards:
/// some seconds.
const STEPS_CHECKED: u64 = 1 << 28;
/// Steps of invocations that it runs in the device's place: some minutes.
const STEPS_RUN: u64 = 1 << 34;

/// The way the interpreter treats the dispatches of a device. It is thousands of times slower than
/// a device.
///
/// A finding is [`DeviceError::Observer`] of the call that submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sanitizer {
    /// It runs each dispatch, then the device does. Dispatches of too many steps are run in part,
    /// with a warning in the log.
    Check,
    /// Does what `Check` does, and compares the device's results with the interpreter's, to find
    /// driver bugs. Floats may differ by 2^-10 of the largest in the dispatch. Integers that
    /// follow from rounding (the cell of a position on an edge, the nearer of two neighbors at one
    /// distance) may differ where a device legally rounds differently: such a finding is not an
    /// error.
    Compare,
    /// The interpreter runs each dispatch, and the device runs none. Kernels have the form for a
    /// device with subgroups of `subgroup` lanes. A dispatch that takes too many steps is an error.
    Run {
        /// Lanes of a subgroup, a power of two from 4 to 64.
        subgroup: u32,
    },
    /// Same as `Run`, with the last workgroup first: a workgroup that waits for an earlier one
    /// never sees it come.
    RunBackwards {
        /// Lanes of a subgroup, as in `Run`.
        subgroup: u32,
    },
}

/// Returns the options of the environment as [`Options::from_env`] does, and understands
/// `MESHLOOM_SANITIZE`: 1, `compare`, or the lanes of a subgroup.
///
/// # Errors
/// [`DeviceError::Misuse`] if a variable has another value.
pub fn options() -> Result<Options, DeviceError> {
    // One value for the whole process, so that equal options are equal and share a device.
    static SHARED: Mutex<Vec<(Sanitizer, Arc<dyn DispatchObserver>)>> = Mutex::new(Vec::new());
    Options::from_env_with(|text| {
        let sanitizer: Sanitizer = text.parse()?;
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, observer)) = shared.iter().find(|(of, _)| *of == sanitizer) {
            return Ok(observer.clone());
        }
        let observer: Arc<dyn DispatchObserver> = Arc::new(sanitizer);
        shared.push((sanitizer, observer.clone()));
        Ok(observer)
    })
}

impl FromStr for Sanitizer {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        match (text, text.parse()) {
            ("1", _) => Ok(Sanitizer::Check),
            ("compare", _) => Ok(Sanitizer::Compare),
            (_, Ok(subgroup @ (4 | 8 | 16 | 32 | 64))) => Ok(Sanitizer::Run { subgroup }),
            _ => {
                let why =
                    format!("expected 0, 1, compare or the lanes of a subgroup (4, 8, 16, 32 or 64), got `{text}`");
                Err(DeviceError::Misuse { what: "MESHLOOM_SANITIZE".into(), why })
            }
        }
    }
}

impl DispatchObserver for Sanitizer {
    fn subgroup(&self) -> Option<u32> {
        match *self {
            Sanitizer::Run { subgroup } | Sanitizer::RunBackwards { subgroup } => Some(subgroup),
            Sanitizer::Check | Sanitizer::Compare => None,
        }
    }

    fn kernel(&self, text: &str) -> Result<Box<dyn ObservedKernel>, String> {
        Ok(Box::new(Sanitized { sanitizer: *self, program: Program::new(text)? }))
    }
}

/// A kernel that the interpreter can run.
struct Sanitized {
    sanitizer: Sanitizer,
    program: Program,
}

/// Returns the message that ends a submission.
fn stopped(why: &str) -> String {
    format!("the sanitizer stopped: {why}")
}

impl ObservedKernel for Sanitized {
    fn dispatch<'a>(&'a self, dispatch: ObservedDispatch<'_>) -> Result<Verdict<'a>, String> {
        let ObservedDispatch { kernel, groups, buffers, subgroup, fuses, .. } = dispatch;
        let buffers = buffers.into_iter().map(Memory::of_buffer).collect();
        let mut interpreter = Interpreter::new(&self.program, subgroup, groups, buffers);
        interpreter.fused = fuses;
        interpreter.counts = tracing::enabled!(tracing::Level::DEBUG);
        interpreter.backwards = matches!(self.sanitizer, Sanitizer::RunBackwards { .. });
        let runs = self.sanitizer.subgroup().is_some();
        let report = interpreter.run(if runs { STEPS_RUN } else { STEPS_CHECKED });
        if let Some(traffic) = report.traffic {
            tracing::debug!(kernel, ?groups, ?traffic, "the sanitizer ran a dispatch");
        }
        if !report.findings.is_empty() {
            let findings: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
            return Err(stopped(&findings.join("; ")));
        }
        if let Some(what) = report.unknown {
            return Err(stopped(&format!("it does not know {what}")));
        }
        if let Some(last) = report.unfinished {
            if runs {
                return Err(stopped(&format!("the dispatch takes more than {STEPS_RUN} steps; use a smaller problem")));
            }
            tracing::warn!(kernel, last, ?groups, "the sanitizer ran a dispatch only up to this workgroup");
            return Ok(Verdict::Run);
        }
        Ok(match self.sanitizer {
            Sanitizer::Check => Verdict::Run,
            Sanitizer::Compare => Verdict::Inspect(Box::new(move |windows| {
                let difference = (1..).zip(windows).find_map(|(binding, window)| interpreter.compare(binding, window));
                difference.map_or(Ok(()), |difference| Err(stopped(&difference.to_string())))
            })),
            Sanitizer::Run { .. } | Sanitizer::RunBackwards { .. } => {
                let windows = interpreter.buffers.into_iter().skip(1);
                Verdict::Replace(windows.map(|memory| memory.is_changed().then_some(memory.bytes)).collect())
            }
        })
    }
}
