//! Log lines of the code under test.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex, Once, PoisonError},
};

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    subscriber::{DefaultGuard, set_default, set_global_default},
};
use tracing_subscriber::{
    Layer, Registry,
    layer::{Context, SubscriberExt as _},
};

/// The log of the thread that made this, until it is dropped.
pub(crate) struct Log {
    lines: Lines,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

/// The fields of an event, the message first.
struct Text(String);

impl Log {
    pub(crate) fn of_this_thread() -> Self {
        // Without a global subscriber, tracing caches a callsite as disabled if a thread that has
        // no subscriber reaches it first.
        static ALL_WANTED: Once = Once::new();
        ALL_WANTED.call_once(|| {
            set_global_default(Registry::default()).expect("the only one of this process");
        });
        let lines = Lines::default();
        let guard = set_default(Registry::default().with(lines.clone()));
        Self {
            lines,
            _guard: guard,
        }
    }

    /// The lines so far: level, message, fields.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        if !event.metadata().target().starts_with("flannel_store") {
            return;
        }
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(text.0);
    }
}

impl Visit for Text {
    fn record_debug(&mut self, _field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, " {value:?}").expect("a string takes all");
    }
}
