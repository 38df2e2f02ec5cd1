//! Events that the library reports by `tracing`.

use std::sync::{Arc, Mutex};

/// Collects the events of a thread up to a level.
#[derive(Clone)]
pub struct Events(tracing::Level, Arc<Mutex<Vec<String>>>);

impl Events {
    /// Returns the texts of the events of the library while `work` runs.
    pub fn of(level: tracing::Level, work: impl FnOnce()) -> Vec<String> {
        let events = Events(level, Arc::default());
        // While there is one subscriber, the first thread that reaches an event decides whether it
        // is wanted, and threads of other tests have no subscriber.
        let _another = tracing::Dispatch::new(events.clone());
        tracing::subscriber::with_default(events.clone(), work);
        std::mem::take(&mut events.1.lock().unwrap())
    }
}

impl tracing::Subscriber for Events {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= self.0 && metadata.target().starts_with("meshloom")
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Text<'a>(&'a mut String);
        impl tracing::field::Visit for Text<'_> {
            fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                *self.0 += &format!("{value:?} ");
            }
        }
        let mut text = String::new();
        event.record(&mut Text(&mut text));
        self.1.lock().unwrap().push(text);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
