//! Events as metrics. Keys are never labels: their number has no bound.

use metrics::{counter, gauge, histogram};

use super::{Event, EventKind};
use crate::backend::{RefusedReason, ReleaseOutcome};

pub(super) fn held(store: &str, more: bool) {
    let held = gauge!("leases_held", "store" => store.to_owned());
    if more {
        held.increment(1.0);
    } else {
        held.decrement(1.0);
    }
}

pub(super) fn event(store: &str, event: &Event) {
    let store = || store.to_owned();
    let answered = |operation: &'static str, seconds: f64| {
        histogram!("leases_store_seconds", "store" => store(), "operation" => operation)
            .record(seconds);
    };
    let attempt = |outcome: &'static str| {
        counter!("leases_attempts_total", "store" => store(), "outcome" => outcome).increment(1);
    };
    let renewal = |outcome: &'static str| {
        counter!("leases_renewals_total", "store" => store(), "outcome" => outcome).increment(1);
    };
    let release = |outcome: &'static str| {
        counter!("leases_releases_total", "store" => store(), "outcome" => outcome).increment(1);
    };
    let transition = |kind: &'static str| {
        counter!("leases_ownership_transitions_total", "store" => store(), "kind" => kind)
            .increment(1);
    };
    match &event.kind {
        EventKind::Contended { took, .. } => {
            attempt("held");
            answered("acquire", took.as_secs_f64());
        }
        EventKind::Refused { reason, took } => {
            attempt(match reason {
                RefusedReason::InLine { .. } => "in_line",
                _ => "refused",
            });
            answered("acquire", took.as_secs_f64());
        }
        EventKind::AttemptFailed { error, .. } => attempt(error.kind().as_str()),
        EventKind::Granted {
            waited,
            took,
            taken_over,
            ..
        } => {
            attempt("granted");
            answered("acquire", took.as_secs_f64());
            histogram!("leases_acquire_wait_seconds", "store" => store())
                .record(waited.as_secs_f64());
            transition(if taken_over.is_some() {
                "taken_over"
            } else {
                "granted"
            });
        }
        EventKind::GrantedTooLate { .. } => attempt("too_late"),
        EventKind::GaveUp { .. } => {
            counter!("leases_gave_up_total", "store" => store()).increment(1);
        }
        EventKind::Abandoned => {
            counter!("leases_abandoned_total", "store" => store(), "outcome" => "abandoned")
                .increment(1);
        }
        EventKind::AbandonFailed { .. } => {
            counter!("leases_abandoned_total", "store" => store(), "outcome" => "failed")
                .increment(1);
        }
        EventKind::Renewed { took, .. } => {
            renewal("renewed");
            answered("renew", took.as_secs_f64());
        }
        EventKind::RenewalFailed { error, .. } => renewal(error.kind().as_str()),
        EventKind::Lost { reason } => {
            counter!("leases_lost_total", "store" => store(), "reason" => reason.as_str())
                .increment(1);
            transition("lost");
        }
        EventKind::Released { outcome, held_for } => {
            let released = *outcome == ReleaseOutcome::Released;
            release(if released { "released" } else { "not_held" });
            if released {
                transition("released");
                histogram!("leases_held_seconds", "store" => store())
                    .record(held_for.as_secs_f64());
            }
        }
        EventKind::ReleaseFailed { error } => release(error.kind().as_str()),
        EventKind::Detached => transition("detached"),
        // Only how each release ended is counted.
        EventKind::ReleaseRetried { .. } | EventKind::Attempt { .. } => {}
    }
}
