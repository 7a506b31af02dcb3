//! Records that no list can show, since something foreign stands in their place: stores
//! pass them over and say so in the log, and whoever lists is to know.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Context;

use crate::exit::{Exit, Failure};
use crate::stderr;

/// So many are shown one by one.
const SHOWN: usize = 10;

static SEEN: AtomicUsize = AtomicUsize::new(0);

/// Listens for them.
pub(crate) fn layer<S>() -> impl Layer<S>
where
    S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    Listening.with_filter(filter_fn(|of| of.target() == leases::UNREADABLE))
}

/// How a list ends that has shown everything that it was given.
pub(crate) fn end_of_list() -> Result<Exit, Failure> {
    match SEEN.load(Ordering::Relaxed) {
        0 => Ok(Exit::Success),
        count => {
            let records = if count == 1 { "record" } else { "records" };
            Err(Failure::new(
                Exit::Misconfigured,
                format!(
                    "{count} {records} could not be read and are not in the list; repair or delete \
                     what somebody else has written there"
                ),
            ))
        }
    }
}

struct Listening;

impl<S: Subscriber> Layer<S> for Listening {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if SEEN.fetch_add(1, Ordering::Relaxed) < SHOWN {
            let mut words = Words(String::from("not in the list"));
            event.record(&mut words);
            stderr::say(&words.0);
        }
    }
}

/// The fields of an event, but for its message.
struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        use fmt::Write as _;
        if field.name() != "message" {
            let _ = write!(self.0, "; {}: {value:?}", field.name());
        }
    }
}
