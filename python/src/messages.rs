//! Messages of the library for Python's `logging`, under the logger `meshloom`.
//!
//! Threads of ranks only note them: who waits for a rank holds the interpreter's lock now and then,
//! and passes them on.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Messages that are kept for a caller; older ones make room.
const MOST: usize = 1000;

static MESSAGES: Mutex<VecDeque<(Level, String)>> = Mutex::new(VecDeque::new());

struct Collector;

impl<S: Subscriber> Layer<S> for Collector {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let mut messages = MESSAGES.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() >= MOST {
            messages.pop_front();
        }
        messages.push_back((*event.metadata().level(), text.0));
    }
}

/// Fields of an event as text: the message, then `name=value` of the others.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let space = if self.0.is_empty() { "" } else { " " };
        let _ = match field.name() {
            "message" => write!(self.0, "{space}{value:?}"),
            name => write!(self.0, "{space}{name}={value:?}"),
        };
    }
}

/// Collects the library's messages of level `INFO` and above from now on, unless another subscriber
/// of this process does.
pub fn collect() {
    let is_ours =
        |metadata: &Metadata<'_>| metadata.target().starts_with("meshloom") && *metadata.level() <= Level::INFO;
    let subscriber = tracing_subscriber::registry().with(Collector.with_filter(filter_fn(is_ours)));
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Passes what was collected on to `logging`.
///
/// # Errors
/// - The exception of a signal handler that ran meanwhile, or of a filter of the logger. Python
///   prints exceptions of the logger's handlers itself.
pub fn pass_on(py: Python<'_>) -> PyResult<()> {
    let messages = std::mem::take(&mut *MESSAGES.lock().unwrap_or_else(PoisonError::into_inner));
    if messages.is_empty() {
        return Ok(());
    }
    let logger = py.import("logging")?.call_method1("getLogger", ("meshloom",))?;
    for (level, text) in messages {
        let method = match level {
            Level::ERROR => "error",
            Level::WARN => "warning",
            _ => "info",
        };
        // Without arguments, `logging` does not format the text.
        logger.call_method1(method, (text,))?;
    }
    Ok(())
}
