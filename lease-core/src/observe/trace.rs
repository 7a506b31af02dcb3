//! Events as `tracing` events, with stable field names.

use tracing::{debug, enabled, info, trace, warn};

use super::{Event, EventKind};
use crate::backend::RefusedReason;

const TARGET: &str = "leases";

/// One `tracing` event with the fields that all of them share, then its own.
macro_rules! emit {
    ($level:ident, $store:expr, $event:expr, { $($fields:tt)* }, $words:literal) => {
        $level!(
            target: TARGET,
            event = $event.kind.as_str(),
            store = $store,
            key = $event.key.as_str(),
            owner = ?$event.owner,
            token = $event.token.map(|t| t.get()),
            $($fields)*
            $words
        )
    };
}

fn ms(duration: &std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

pub(super) fn event(store: &str, event: &Event) {
    if !enabled!(target: TARGET, tracing::Level::ERROR) {
        return;
    }
    attempts(store, event);
}

fn attempts(store: &str, event: &Event) {
    match &event.kind {
        EventKind::Attempt { number } => {
            emit!(trace, store, event, { attempt = number, }, "asking for the key");
        }
        EventKind::Contended { holder, took } => emit!(debug, store, event, {
            holder = holder.label.as_str(),
            holder_token = holder.token.get(),
            holder_age_ms = ms(&holder.age),
            holder_remaining_ms = ms(&holder.remaining),
            took_ms = ms(took),
        }, "the key is held"),
        // It waits, as behind a holder.
        EventKind::Refused {
            reason: reason @ RefusedReason::InLine { .. },
            took,
        } => {
            emit!(debug, store, event, { reason = %reason, took_ms = ms(took), }, "in line");
        }
        EventKind::Refused { reason, took } => {
            emit!(warn, store, event, { reason = %reason, took_ms = ms(took), }, "refused");
        }
        EventKind::AttemptFailed { error, took } => emit!(warn, store, event, {
            error = %error,
            error_kind = error.kind().as_str(),
            took_ms = ms(took),
        }, "an attempt failed"),
        EventKind::Granted {
            waited,
            attempts,
            took,
            valid_for,
            taken_over,
        } => {
            emit!(info, store, event, {
                waited_ms = ms(waited),
                attempts = attempts,
                took_ms = ms(took),
                valid_for_ms = ms(valid_for),
                taken_over_from = taken_over.as_ref().map(|t| t.label.as_str()),
                taken_over_token = taken_over.as_ref().map(|t| t.token.get()),
            }, "granted");
        }
        EventKind::GrantedTooLate { took } => emit!(warn, store, event, {
            took_ms = ms(took),
        }, "a grant came after its own deadline and was dropped"),
        EventKind::GaveUp { waited, attempts } => emit!(debug, store, event, {
            waited_ms = ms(waited),
            attempts = attempts,
        }, "gave up"),
        EventKind::Abandoned => emit!(debug, store, event, {}, "abandoned"),
        EventKind::AbandonFailed { error } => emit!(warn, store, event, {
            error = %error,
            error_kind = error.kind().as_str(),
        }, "could not abandon; an orphan may block the key for one TTL"),
        _ => holding(store, event),
    }
}

fn holding(store: &str, event: &Event) {
    match &event.kind {
        EventKind::Renewed { took, valid_for } => emit!(debug, store, event, {
            took_ms = ms(took),
            valid_for_ms = ms(valid_for),
        }, "renewed"),
        EventKind::RenewalFailed {
            error,
            failures,
            valid_for,
        } => {
            emit!(warn, store, event, {
                error = %error,
                error_kind = error.kind().as_str(),
                failures = failures,
                valid_for_ms = ms(valid_for),
            }, "a renewal failed; trying again");
        }
        EventKind::Lost { reason } => emit!(warn, store, event, {
            reason = reason.as_str(),
            detail = %reason,
        }, "lost"),
        EventKind::Released { outcome, held_for } => emit!(info, store, event, {
            outcome = ?outcome,
            held_for_ms = ms(held_for),
        }, "released"),
        EventKind::ReleaseRetried { error } => emit!(debug, store, event, {
            error = %error,
            error_kind = error.kind().as_str(),
        }, "a release failed; sending it again"),
        EventKind::ReleaseFailed { error } => emit!(warn, store, event, {
            error = %error,
            error_kind = error.kind().as_str(),
        }, "a release could not be confirmed; the key is free at its expiry"),
        EventKind::Detached => emit!(debug, store, event, {}, "detached"),
        _ => {}
    }
}
