//! Spans and events for timelines, as the crate documentation describes under "Tracing".
//!
//! They cost one load and one comparison each if no subscriber wants level `trace`.

use std::sync::LazyLock;
use std::time::Instant;

use tracing::span::EnteredSpan;

/// Target of all spans and events of the timeline.
pub(crate) const TARGET: &str = "meshloom::timeline";

/// Enters a span of this name and fields until the value is dropped: what the thread of a rank
/// does.
macro_rules! activity {
    ($($name_and_fields:tt)*) => {
        tracing::trace_span!(target: $crate::timeline::TARGET, $($name_and_fields)*).entered()
    };
}
pub(crate) use activity;

/// Returns `true` if a subscriber wants the timeline.
pub(crate) fn is_enabled() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::TRACE)
}

/// Returns the time if a subscriber wants the timeline.
pub(crate) fn now() -> Option<Instant> {
    is_enabled().then(Instant::now)
}

/// Returns the time of an instant on the clock of events: nanoseconds since its first use in this
/// process.
fn clock(instant: Instant) -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(instant.saturating_duration_since(*ORIGIN).as_nanos()).unwrap_or(u64::MAX)
}

/// Enters the span of a rank, which says what the clock of events shows at its beginning.
pub(crate) fn rank(rank: usize, ranks: usize) -> EnteredSpan {
    activity!("rank", rank, ranks, clock = clock(Instant::now()))
}

/// Emits the event of a message that was sent or received from `begin` until now, to or from rank
/// `peer` of the whole run.
pub(crate) fn message(name: &str, peer: usize, bytes: u64, begin: Option<Instant>) {
    if let Some(begin) = begin {
        let [begin, end] = [begin, Instant::now()].map(clock);
        tracing::trace!(target: TARGET, track = "messages", name, begin, end, peer, bytes);
    }
}

/// Emits the event of a chunk that the device was asked to copy from `begin` until now.
pub(crate) fn chunk(name: &str, bytes: u64, begin: Option<Instant>) {
    if let Some(begin) = begin {
        let [begin, end] = [begin, Instant::now()].map(clock);
        tracing::trace!(target: TARGET, track = "messages", name, begin, end, bytes);
    }
}

/// Emits the event of a compute pass of `kernel`.
pub(crate) fn pass(kernel: &str, times: [Instant; 2]) {
    let [begin, end] = times.map(clock);
    tracing::trace!(target: TARGET, track = "device", name = kernel, begin, end);
}
