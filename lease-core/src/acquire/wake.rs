//! What wakes the head of a queue: the store's hints, a release by its own
//! client, and always a timer. Each is bounded, so that nothing turns into busy
//! polling.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::Terms;
use crate::clock::Moment;
use crate::lease::Word;
use crate::queue::Place;
use crate::retry::Backoff;
use crate::subscription::Subscription;

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
    subscription: Subscription,
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
            subscription: Subscription::default(),
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
        self.subscription.take_over();
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

    /// Waits for a subscription unless one stands; until `until`, when the timer is
    /// due. It is made beside the look that comes then. Whether to try once more before
    /// sleeping.
    pub(super) async fn subscribe(&mut self, terms: &Terms, place: &Place, until: Moment) -> bool {
        if self.subscription.stands() {
            return false;
        }
        let inner = &terms.inner;
        let clock = &*inner.clock;
        let watch = || {
            let (backend, key) = (Arc::clone(&inner.backend), terms.key.clone());
            async move { backend.watch(&key).await }
        };
        let made = tokio::select! {
            biased;
            made = self.subscription.made(&inner.clock, watch) => made,
            () = place.freed() => return true,
            () = clock.sleep_until(until) => return false,
        };
        match made {
            Ok(()) => self.subscribed = clock.now(),
            Err(error) => tracing::debug!(
                target: "leases",
                key = terms.key.as_str(),
                error = %error,
                "no wake-ups for now; the timer stays"
            ),
        }
        self.subscription.stands()
    }

    /// The subscription may be broken: a request has failed, or a change went
    /// unheard.
    pub(super) fn unsubscribe(&mut self) {
        self.subscription.end();
    }

    /// Sleeps until something may have changed.
    pub(super) async fn sleep(&mut self, terms: &Terms, place: &Place, mut wake: Moment) -> Woken {
        let clock = &*terms.inner.clock;
        loop {
            let hint = tokio::select! {
                biased;
                () = place.freed() => return Woken::Ourselves,
                hint = self.subscription.hint() => hint,
                () = clock.sleep_until(wake) => return Woken::Timer,
            };
            let now = clock.now();
            if hint.is_some() {
                self.heard = true;
                break;
            }
            // It ended, and may have missed something: look again soon, which
            // also subscribes again.
            self.subscription.end();
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
            // Its end is the next sleep's to deal with.
            if self.subscription.hint().now_or_never() != Some(Some(())) {
                return;
            }
        }
    }
}

impl fmt::Debug for WakeUps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeUps")
            .field("subscription", &self.subscription)
            .field("heard", &self.heard)
            .finish_non_exhaustive()
    }
}
