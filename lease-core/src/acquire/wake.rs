//! What wakes a waiter: the store's hints, a release by its own client, and
//! always a timer. Each is bounded, so that nothing turns into busy polling.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};

use super::Terms;
use crate::clock::Moment;
use crate::queue::Place;
use crate::retry::{Backoff, LOOK_AGAIN, acquire_limit};

/// Hints further apart than this are taken one by one.
const HINTS_APART: Duration = Duration::from_millis(50);
/// Hints that lie ready are one hint; at most this many are looked for.
const HINTS_TOGETHER: usize = 1024;
/// A remaining time below this is looked after at once, but not for ever.
const HARDLY_ANY: Duration = Duration::from_millis(10);
/// A subscription that lasted longer than this was a good one.
const LASTING: Duration = Duration::from_secs(5);

pub(super) struct WakeUps {
    hints: Option<BoxStream<'static, ()>>,
    subscribed: Moment,
    hinted: Moment,
    /// Between looks that hints ask for.
    storm: Backoff,
    /// Between subscriptions that end.
    ended: Backoff,
    /// Between looks at a holder that has hardly any time left.
    hardly: Backoff,
}

impl WakeUps {
    pub(super) fn new() -> Self {
        Self {
            hints: None,
            subscribed: Moment::START,
            hinted: Moment::START,
            storm: Backoff::hints(),
            ended: Backoff::store(),
            hardly: Backoff::hints(),
        }
    }

    /// When the timer wakes a waiter whom the store told how long it takes.
    pub(super) fn look_after(&mut self, remaining: Duration, terms: &Terms) -> Moment {
        // A hair later than the store's own instant of expiry.
        let mut wait = remaining.min(LOOK_AGAIN) + Duration::from_millis(1);
        if remaining < HARDLY_ANY {
            // A store may go on saying so: its clock may be coarse.
            wait = wait.max(self.hardly.next(&terms.inner.chance));
        } else {
            self.hardly.reset();
        }
        terms.inner.clock.now().after(wait)
    }

    /// Subscribes unless a subscription stands; gives up at `until`, when the
    /// timer is due anyway. Whether to try once more before sleeping.
    pub(super) async fn subscribe(&mut self, terms: &Terms, place: &Place, until: Moment) -> bool {
        if self.hints.is_some() {
            return false;
        }
        let inner = &terms.inner;
        let clock = &*inner.clock;
        let limit = clock.now().after(acquire_limit(terms.ttl, inner.drift));
        let watch = || inner.backend.watch(&terms.key);
        let watching = tokio::select! {
            biased;
            watching = crate::renewal::attempt(clock, limit.min(until), watch) => watching,
            () = place.freed() => return true,
        };
        match watching {
            Ok(hints) => {
                self.hints = Some(hints);
                self.subscribed = clock.now();
            }
            Err(error) => tracing::debug!(
                target: "leases",
                key = terms.key.as_str(),
                error = %error,
                "no wake-ups for now; the timer stays"
            ),
        }
        self.hints.is_some()
    }

    /// The subscription may be as broken as the request that failed.
    pub(super) fn unsubscribe(&mut self) {
        self.hints = None;
    }

    /// Sleeps until something may have changed.
    pub(super) async fn sleep(&mut self, terms: &Terms, place: &Place, mut wake: Moment) {
        let clock = &*terms.inner.clock;
        loop {
            let hint = tokio::select! {
                biased;
                () = place.freed() => return,
                hint = next(&mut self.hints) => hint,
                () = clock.sleep_until(wake) => return,
            };
            let now = clock.now();
            if hint.is_some() {
                break;
            }
            // It ended, and may have missed something: look again soon, which
            // also subscribes again.
            self.hints = None;
            if now.since(self.subscribed) > LASTING {
                self.ended.reset();
            }
            wake = wake.min(now.after(self.ended.next(&terms.inner.chance)));
        }
        // Hints that come one by one are hand-overs; many at once are a storm.
        if clock.now().since(self.hinted) > HINTS_APART {
            self.storm.reset();
        }
        self.hinted = clock.now();
        let pause = self.storm.next(&terms.inner.chance);
        // The first hint is followed at once: that is the hand-over.
        if pause > Duration::from_millis(1) {
            let until = clock.now().after(pause).min(wake);
            clock.sleep_until(until).await;
        }
        self.drain();
    }

    /// Takes the hints that lie ready: one look answers them all.
    fn drain(&mut self) {
        for _ in 0..HINTS_TOGETHER {
            match next(&mut self.hints).now_or_never() {
                Some(Some(())) => {}
                Some(None) => {
                    // Its end is the next sleep's to deal with; a stream must
                    // not be polled after it.
                    self.hints = Some(stream::empty().boxed());
                    return;
                }
                None => return,
            }
        }
    }
}

/// The next hint; `None` at the end of the stream, and when it panics.
async fn next(hints: &mut Option<BoxStream<'static, ()>>) -> Option<()> {
    match hints {
        Some(stream) => AssertUnwindSafe(stream.next())
            .catch_unwind()
            .await
            .unwrap_or_default(),
        None => std::future::pending().await,
    }
}
