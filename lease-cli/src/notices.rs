//! What people are told of while a command waits for a lease, or runs under it.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use leases::{Event, EventKind, RefusedReason, StoreError};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::duration::brief;
use crate::exit::words;
use crate::outage::{Outage, Said};
use crate::{output, stderr};

/// Tells people what keeps them waiting.
pub(crate) struct Notices {
    quiet: bool,
    show_holder: bool,
    outage: Arc<Mutex<Outage>>,
    quarantine: AtomicBool,
    waiting: AtomicBool,
    /// Whether the last request may yet take effect.
    may_be_under_way: AtomicBool,
    /// What the latest try of the release ran into.
    release: Mutex<Option<StoreError>>,
}

impl Notices {
    pub(crate) fn new(quiet: bool) -> Self {
        Self {
            quiet,
            show_holder: !quiet && std::io::stderr().is_terminal(),
            outage: Arc::default(),
            quarantine: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            may_be_under_way: AtomicBool::new(false),
            release: Mutex::default(),
        }
    }

    /// Whether the last request of the acquisition may yet take effect.
    pub(crate) fn may_be_under_way(&self) -> bool {
        self.may_be_under_way.load(Ordering::Relaxed)
    }

    /// Why the release has not succeeded so far, if the store has said so.
    pub(crate) fn release_failed(&self) -> Option<StoreError> {
        let release = self.release.lock().unwrap_or_else(|e| e.into_inner());
        release.clone()
    }

    fn answered(&self, for_good: bool) {
        let mut outage = lock(&self.outage);
        if outage.answered(Instant::now(), for_good).is_some() {
            drop(outage);
            say_it_is_back();
            return;
        }
        // A failure may follow at once; and if none does, the next answer may be long in
        // coming.
        if let Ok(runtime) = Handle::try_current()
            && let Some(at) = outage.due_at()
        {
            let outage = Arc::clone(&self.outage);
            runtime.spawn(async move {
                tokio::time::sleep_until(at).await;
                if due(&outage).is_some() {
                    say_it_is_back();
                }
            });
        }
    }

    fn failed(&self, words: impl FnOnce() -> String) {
        let said = lock(&self.outage).failed(Instant::now());
        if said.is_some() {
            stderr::say(&words());
        }
    }

    pub(crate) fn observe(&self, event: &Event) {
        let under_way = match &event.kind {
            EventKind::Attempt { .. } => Some(true),
            EventKind::AttemptFailed { error, .. } => Some(error.is_unknown_outcome()),
            EventKind::Contended { .. } | EventKind::Refused { .. } => Some(false),
            _ => None,
        };
        if let Some(under_way) = under_way {
            self.may_be_under_way.store(under_way, Ordering::Relaxed);
        }
        self.tell(event);
    }

    /// How a request for items of a queue went. What does not pass ends the worker, and
    /// is said then.
    pub(crate) fn asked_for_items(&self, queue: &str, answer: Result<(), &StoreError>) {
        match answer {
            Ok(()) => self.answered(false),
            Err(error) if error.is_transient() => self.failed(|| {
                let why = output::without_urls(&words(error));
                format!("{why}; trying again for items of {queue:?}")
            }),
            Err(_) => {}
        }
    }

    fn tell(&self, event: &Event) {
        let key = event.key.as_str();
        match &event.kind {
            EventKind::AttemptFailed { error, .. } if error.is_transient() && !self.quiet => {
                self.failed(|| format!("{}; trying again for {key:?}", words(error)));
            }
            EventKind::RenewalFailed {
                error, valid_for, ..
            } => self.failed(|| {
                let left = brief(*valid_for);
                format!(
                    "{}; {key:?} stays ours for another {left}, trying again",
                    words(error)
                )
            }),
            EventKind::Contended { holder, .. } => {
                self.answered(false);
                if self.show_holder && !self.waiting.swap(true, Ordering::Relaxed) {
                    let holder = output::holder_words(holder);
                    stderr::say(&format!("waiting for {key:?}, held by {holder}"));
                }
            }
            EventKind::Refused {
                reason: RefusedReason::InLine { .. },
                ..
            } => self.answered(false),
            // Any other refusal while waiting is about an owner that a failure
            // has burnt, and the next try has a new one: no end of an outage.
            EventKind::Refused {
                reason: reason @ RefusedReason::Quarantine { .. },
                ..
            } => {
                self.answered(false);
                if !self.quiet && !self.quarantine.swap(true, Ordering::Relaxed) {
                    stderr::say(&format!("waiting for {key:?}: {reason}"));
                }
            }
            EventKind::Granted { .. } => self.answered(true),
            EventKind::Renewed { .. } => self.answered(false),
            EventKind::ReleaseRetried { error } | EventKind::ReleaseFailed { error } => {
                let mut release = self.release.lock().unwrap_or_else(|e| e.into_inner());
                *release = Some(error.clone());
            }
            _ => {}
        }
    }
}

fn lock(outage: &Mutex<Outage>) -> MutexGuard<'_, Outage> {
    outage.lock().unwrap_or_else(|e| e.into_inner())
}

fn due(outage: &Mutex<Outage>) -> Option<Said> {
    lock(outage).due(Instant::now())
}

fn say_it_is_back() {
    stderr::say("the store answers again");
}
