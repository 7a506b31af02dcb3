//! What wakes the head of a queue: the store's hints, a release by its own
//! client, and always a timer. Each is bounded, so that nothing turns into busy
//! polling.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use tokio::runtime::{self, Handle};

use super::Terms;
use crate::clock::Moment;
use crate::lease::Word;
use crate::queue::Place;
use crate::retry::{Backoff, acquire_limit};

/// Hints further apart than this are taken one by one. The hint of a release
/// and its answer are not.
const HINTS_APART: Duration = Duration::from_millis(50);
/// Hints that lie ready are one hint; at most this many are looked for.
const HINTS_TOGETHER: usize = 1024;
/// A hair later than the instant of an expiry.
pub(super) const HAIR: Duration = Duration::from_millis(1);
/// A subscription that lasted longer than this was a good one.
const LASTING: Duration = Duration::from_secs(5);

/// What ended a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// The store said that something has changed.
    Hint,
    /// This client may have freed the key.
    Ourselves,
    /// Nobody said anything.
    Timer,
}

/// What a head hears with. It goes from head to head, so that one subscription
/// is enough for all of them.
pub(crate) struct WakeUps {
    hints: Option<BoxStream<'static, ()>>,
    /// Where the subscription was made.
    runtime: Option<runtime::Id>,
    /// A hint came that no answer of the store is later than.
    heard: bool,
    subscribed: Moment,
    hinted: Moment,
    /// Between looks that hints ask for.
    storm: Backoff,
    /// Between subscriptions that end.
    ended: Backoff,
}

impl Default for WakeUps {
    fn default() -> Self {
        Self {
            hints: None,
            runtime: None,
            heard: false,
            subscribed: Moment::START,
            hinted: Moment::START,
            storm: Backoff::hints(),
            ended: Backoff::store(),
        }
    }
}

impl WakeUps {
    /// Takes over from the head before.
    pub(super) fn take_over(&mut self) {
        // A subscription may live by the runtime that it was made on, and that
        // one may end before ours.
        if self.runtime != this_runtime() {
            self.unsubscribe();
        }
    }

    /// Whether a hint asks for a look.
    pub(super) fn heard(&self) -> bool {
        self.heard
    }

    /// A look is about to be sent: it answers the hints that lie ready. Not
    /// those that come while it is under way, since it may have been served
    /// before what they tell of.
    pub(super) fn looks(&mut self) {
        self.drain();
    }

    /// The look was answered.
    pub(super) fn looked(&mut self) {
        self.heard = false;
    }

    /// The key is ours, after what woke us.
    pub(super) fn leased(&mut self, woken: Option<Woken>) {
        // The next head starts afresh, or this client would be slow to follow
        // hints for as long as others hand the key on.
        self.storm.reset();
        if woken == Some(Woken::Timer) {
            // It was freed, and no hint said so.
            self.unsubscribe();
        }
    }

    /// Waits beside a lease of our own client that is in the way, until it is
    /// worth looking at it again or at the store. What woke us, if we slept.
    pub(super) async fn beside(
        &mut self,
        word: &Word,
        terms: &Terms,
        place: &Place,
        end: Moment,
    ) -> Option<Woken> {
        let clock = &*terms.inner.clock;
        if clock.now() < word.echo_until {
            tokio::select! {
                biased;
                () = place.freed() => {}
                () = clock.sleep_until(word.echo_until.min(end)) => {}
            }
            self.drain();
            return None;
        }
        // Only now: of most leases that are so short nobody else needs to tell
        // us anything. There is nothing to try after it: a release by ourselves
        // is not missed, and whatever else ends our lease its renewals find.
        // Nor is it worth it for one that is about to go.
        let until = word.good_until.min(end);
        if !word.releasing && self.subscribe(terms, place, until).await {
            return None;
        }
        let wake = word.good_until.after(HAIR).min(end);
        Some(self.sleep(terms, place, wake).await)
    }

    /// Subscribes unless a subscription stands; gives up at `until`, when the
    /// timer is due anyway. Whether to try once more before sleeping.
    pub(super) async fn subscribe(&mut self, terms: &Terms, place: &Place, until: Moment) -> bool {
        if self.hints.is_some() {
            return false;
        }
        let inner = &terms.inner;
        let clock = &*inner.clock;
        let limit = clock.now().after(acquire_limit(inner, terms.ttl));
        let watch = || inner.backend.watch(&terms.key);
        let watching = tokio::select! {
            biased;
            watching = crate::renewal::attempt(clock, limit.min(until), watch) => watching,
            () = place.freed() => return true,
        };
        match watching {
            Ok(hints) => {
                self.hints = Some(hints);
                self.runtime = this_runtime();
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

    /// The subscription may be broken: a request has failed, or a change went
    /// unheard.
    pub(super) fn unsubscribe(&mut self) {
        self.hints = None;
    }

    /// Sleeps until something may have changed.
    pub(super) async fn sleep(&mut self, terms: &Terms, place: &Place, mut wake: Moment) -> Woken {
        let clock = &*terms.inner.clock;
        loop {
            let hint = tokio::select! {
                biased;
                () = place.freed() => return Woken::Ourselves,
                hint = next(&mut self.hints) => hint,
                () = clock.sleep_until(wake) => return Woken::Timer,
            };
            let now = clock.now();
            if hint.is_some() {
                self.heard = true;
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
        let mut pause = self.storm.next(&terms.inner.chance);
        if place.word(self.hinted).is_some_and(|own| own.releasing) {
            // The hint of our own release comes about when its answer does: one
            // look is enough for both.
            pause = HINTS_APART;
        }
        // The first hint is followed at once: that is the hand-over.
        if pause > HAIR {
            let until = clock.now().after(pause).min(wake);
            tokio::select! {
                biased;
                () = place.freed() => {}
                () = clock.sleep_until(until) => {}
            }
        }
        Woken::Hint
    }

    /// Takes the hints that lie ready.
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

impl fmt::Debug for WakeUps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeUps")
            .field("subscribed", &self.hints.is_some())
            .field("heard", &self.heard)
            .finish_non_exhaustive()
    }
}

fn this_runtime() -> Option<runtime::Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
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
