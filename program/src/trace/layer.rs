//! The library's spans and events of its timeline, as the documentation of the crate describes
//! them.

use std::fmt::{self, Write};
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::recording::{self, Activity, quoted, time};

/// Returns a layer that records the timelines of the ranks of this process.
pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    Timeline.with_filter(Targets::new().with_target("meshloom::timeline", Level::TRACE))
}

struct Timeline;

/// Fields of a span or event.
#[derive(Default)]
struct Fields {
    name: Option<String>,
    track: String,
    rank: u64,
    clock: i64,
    times: [i64; 2],
    /// The others, as members of a JSON object, each with a comma before it.
    arguments: String,
}

impl Fields {
    fn argument(&mut self, field: &Field, value: &str) {
        let _ = write!(self.arguments, ",\"{}\":{value}", field.name());
    }
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        let time = i64::try_from(value).unwrap_or(i64::MAX);
        match field.name() {
            "clock" => self.clock = time,
            "begin" => self.times[0] = time,
            "end" => self.times[1] = time,
            "rank" => self.rank = value,
            _ => self.argument(field, &value.to_string()),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.argument(field, &value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.argument(field, &value.to_string());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "name" => self.name = Some(value.into()),
            "track" => self.track = value.into(),
            _ => self.argument(field, &quoted(value)),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.argument(field, &quoted(&format!("{value:?}")));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Timeline {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let Some(Fields { name, rank, clock, arguments, .. }) = span.extensions_mut().remove() else { return };
        let begin = time(Instant::now());
        let activity = Activity { name: name.unwrap_or_else(|| span.name().into()), arguments, begin };
        match span.name() {
            "rank" => recording::begin_rank(rank, clock, activity),
            _ => _ = recording::here(|recording| recording.enter(activity)),
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        recording::here(recording::Recording::exit);
        if context.span(id).is_some_and(|span| span.name() == "rank") {
            recording::end_rank();
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { name, track, times, arguments, .. } = fields;
        let name = name.unwrap_or_default();
        recording::here(|recording| recording.add_event(&track, name, arguments, times));
    }
}
