//! What a store promises, as data.
//!
//! A store that claims less is honest. The conformance suite fails a claim that
//! it sees broken, and shows each that it cannot prove as *claimed, and not
//! shown*.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::key::MAX_KEY_BYTES;
use crate::ttl::Ttl;

/// How far "at most one owner" reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exclusion {
    /// Among the tasks of one process.
    Process,
    /// Among the processes of one host.
    Host,
    /// Among all clients of one primary server; nothing is replicated, or not
    /// in time.
    SinglePrimary,
    /// As before, and a standby has every grant before it is answered.
    SynchronousReplication,
    /// Among all clients of a majority of independent servers.
    Quorum,
    /// Among all clients of a store that runs a consensus protocol.
    Consensus,
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "one process",
            Self::Host => "one host",
            Self::SinglePrimary => "single primary",
            Self::SynchronousReplication => "synchronous replication",
            Self::Quorum => "quorum",
            Self::Consensus => "consensus",
        })
    }
}

/// Which events a promise outlives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Survives {
    /// A crash and restart of the store (of every process, for an embedded
    /// one) with its data.
    pub restart: bool,
    /// The store comes back empty or from an older backup. Of tokens: as long as
    /// its clock does not step back by more than was lost, and but for a mark
    /// that a fence had set ahead of the clock.
    pub data_loss: bool,
    /// Another server takes over.
    pub failover: bool,
    /// The store's clock steps forward by more than the drift allowance.
    pub clock_step: bool,
}

impl Survives {
    /// Nothing.
    pub const NOTHING: Self = Self {
        restart: false,
        data_loss: false,
        failover: false,
        clock_step: false,
    };

    /// Also a restart with its data.
    #[must_use]
    pub const fn restart(mut self) -> Self {
        self.restart = true;
        self
    }

    /// Also the loss of its data.
    #[must_use]
    pub const fn data_loss(mut self) -> Self {
        self.data_loss = true;
        self
    }

    /// Also a failover.
    #[must_use]
    pub const fn failover(mut self) -> Self {
        self.failover = true;
        self
    }

    /// Also a forward step of the store's clock.
    #[must_use]
    pub const fn clock_step(mut self) -> Self {
        self.clock_step = true;
        self
    }
}

impl fmt::Display for Survives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            (self.restart, "restart"),
            (self.data_loss, "data loss"),
            (self.failover, "failover"),
            (self.clock_step, "clock step"),
        ];
        let mut any = false;
        for (_, word) in words.iter().filter(|(yes, _)| *yes) {
            if any {
                f.write_str(", ")?;
            }
            f.write_str(word)?;
            any = true;
        }
        if any { Ok(()) } else { f.write_str("nothing") }
    }
}

/// How the store judges that a grant's time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExpiryJudge {
    /// By the store's own clock.
    StoreClock,
    /// The store has no clock: whoever wants to take over has watched the
    /// grant stay unchanged for its TTL.
    UnchangedWhileObserved,
}

impl fmt::Display for ExpiryJudge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StoreClock => "store's clock",
            Self::UnchangedWhileObserved => "unchanged while observed",
        })
    }
}

/// How a waiter learns that a key may be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WakeUps {
    /// The store tells it.
    Push,
    /// Somebody looks, at least this often.
    Poll {
        /// The longest time between two looks.
        every: Duration,
    },
    /// Not at all: only the timer for the holder's remaining time.
    None,
}

impl fmt::Display for WakeUps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Push => f.write_str("push"),
            Self::Poll { every } => write!(f, "poll ({every:?})"),
            Self::None => f.write_str("timer only"),
        }
    }
}

/// In which order waiters of different clients are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaiterOrder {
    /// First come, first served, in the order in which waiters took their places:
    ///
    /// * A request that [waits](crate::AcquireRequest::waits) and is not granted the key
    ///   takes a place at the end of its line. The owner is the place's name: its next
    ///   request finds the place again, and makes it last for
    ///   [`place_lasts`](crate::place_lasts) from then on. The first waiter of each
    ///   client has a place; those behind it in their own client's queue come after it.
    /// * A place ends with its owner's grant, when the owner is abandoned, or when its
    ///   time is over: whoever died in the line fades out of it. An owner that is burnt (a
    ///   grant that came too late, say) loses its place, and the acquisition goes on at
    ///   the end.
    /// * A free key goes to the first in line. Each further one may have it once
    ///   [`WAITER_TURN`](crate::WAITER_TURN) has passed for everybody ahead of it, counted from
    ///   the instant at which the key became free. Whoever has missed its turn keeps its
    ///   place, and is not waited for again until it asks. So one that is dead or slow
    ///   costs one turn, and no order is broken while waiters come when they are called.
    /// * Whose turn has not come is answered
    ///   [`InLine`](crate::RefusedReason::InLine). A request that does not wait takes no
    ///   place and comes after the whole line. While it may not have the key it is
    ///   answered [`Held`](crate::AcquireOutcome::Held), by the first in line: to whoever asks
    ///   once, somebody else is to have the key.
    /// * All of that is in the same atomic step as the acquire. The line need not be
    ///   durable: after its loss waiters take new places as they ask.
    ///
    /// It is an order, and no part of exclusion; hints of when a key is free stay hints.
    Fifo,
    /// No order between clients. (Within one client it is always first come,
    /// first served.)
    None,
}

impl fmt::Display for WaiterOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "first in, first out",
            Self::None => "none",
        })
    }
}

/// What frees a key whose holder crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CrashRelease {
    /// The end of the TTL.
    Ttl,
    /// The loss of the holder's session, after a grace.
    SessionLost {
        /// How long after the loss.
        grace: Duration,
    },
}

impl fmt::Display for CrashRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ttl => f.write_str("the TTL"),
            Self::SessionLost { grace } => write!(f, "a lost session ({grace:?})"),
        }
    }
}

/// Which TTLs a store takes and how finely it keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TtlRange {
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    /// A grant may last this much longer than its TTL, never less.
    pub resolution: Duration,
}

impl TtlRange {
    /// A range; outside it the store answers with a typed error.
    #[must_use]
    pub const fn new(min: Ttl, max: Ttl, resolution: Duration) -> Self {
        Self {
            min: min.get(),
            max: max.get(),
            resolution,
        }
    }
}

impl Default for TtlRange {
    fn default() -> Self {
        Self::new(Ttl::MIN, Ttl::MAX, Duration::from_millis(1))
    }
}

impl fmt::Display for TtlRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.max.as_secs() / 86_400;
        if days >= 1 && self.max.as_secs().is_multiple_of(86_400) {
            write!(f, "{:?} to {days} d", self.min)
        } else {
            write!(f, "{:?} to {:?}", self.min, self.max)
        }
    }
}

/// What one store, as configured, promises.
///
/// [`new`](Self::new) claims the least; a store raises what it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guarantees {
    /// The store's name.
    pub store: Cow<'static, str>,
    /// How far exclusion reaches.
    pub exclusion: Exclusion,
    /// What exclusion survives.
    pub exclusion_survives: Survives,
    /// What the strict rise of tokens survives.
    pub tokens_survive: Survives,
    /// Which TTLs it takes.
    pub ttl: TtlRange,
    /// How it judges expiry.
    pub expiry: ExpiryJudge,
    /// How waiters wake up.
    pub wake_ups: WakeUps,
    /// In which order clients are served.
    pub waiter_order: WaiterOrder,
    /// What frees a crashed holder's key.
    pub crash_release: CrashRelease,
    /// Whether [`list`](crate::LeaseBackend::list) gives every key.
    pub listing: bool,
    /// The longest key it takes, in bytes.
    pub max_key_bytes: usize,
}

impl Guarantees {
    /// The least that a store can promise: exclusion within one process that
    /// survives nothing, expiry by its own clock, no wake-ups.
    #[must_use]
    pub fn new(store: impl Into<Cow<'static, str>>) -> Self {
        Self {
            store: store.into(),
            exclusion: Exclusion::Process,
            exclusion_survives: Survives::NOTHING,
            tokens_survive: Survives::NOTHING,
            ttl: TtlRange::default(),
            expiry: ExpiryJudge::StoreClock,
            wake_ups: WakeUps::None,
            waiter_order: WaiterOrder::None,
            crash_release: CrashRelease::Ttl,
            listing: false,
            max_key_bytes: MAX_KEY_BYTES,
        }
    }

    /// Sets how far exclusion reaches and what it survives.
    #[must_use]
    pub fn exclusion(mut self, reach: Exclusion, survives: Survives) -> Self {
        self.exclusion = reach;
        self.exclusion_survives = survives;
        self
    }

    /// Sets what the rise of tokens survives.
    #[must_use]
    pub fn tokens_survive(mut self, survives: Survives) -> Self {
        self.tokens_survive = survives;
        self
    }

    /// Sets the TTL range. Defaults to 50 ms to 366 days by the millisecond.
    #[must_use]
    pub fn ttl(mut self, ttl: TtlRange) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how expiry is judged. Defaults to the store's clock.
    #[must_use]
    pub fn expiry(mut self, expiry: ExpiryJudge) -> Self {
        self.expiry = expiry;
        self
    }

    /// Sets how waiters wake up. Defaults to the timer only.
    #[must_use]
    pub fn wake_ups(mut self, wake_ups: WakeUps) -> Self {
        self.wake_ups = wake_ups;
        self
    }

    /// Sets the order between clients. Defaults to none.
    #[must_use]
    pub fn waiter_order(mut self, order: WaiterOrder) -> Self {
        self.waiter_order = order;
        self
    }

    /// Sets what frees a crashed holder's key. Defaults to the TTL.
    #[must_use]
    pub fn crash_release(mut self, crash_release: CrashRelease) -> Self {
        self.crash_release = crash_release;
        self
    }

    /// Sets whether keys can be listed. Defaults to no.
    #[must_use]
    pub fn listing(mut self, listing: bool) -> Self {
        self.listing = listing;
        self
    }

    /// Sets the longest key. Defaults to the contract's own limit.
    #[must_use]
    pub fn max_key_bytes(mut self, bytes: usize) -> Self {
        self.max_key_bytes = bytes.min(MAX_KEY_BYTES);
        self
    }

    /// The headings that belong to [`table_row`](Self::table_row).
    #[must_use]
    pub const fn table_headings() -> [&'static str; 10] {
        [
            "store",
            "exclusion",
            "exclusion survives",
            "tokens survive",
            "TTL",
            "expiry by",
            "wake-ups",
            "waiter order",
            "after a crash",
            "listing",
        ]
    }

    /// One row of a table of stores.
    #[must_use]
    pub fn table_row(&self) -> [String; 10] {
        [
            self.store.to_string(),
            self.exclusion.to_string(),
            self.exclusion_survives.to_string(),
            self.tokens_survive.to_string(),
            self.ttl.to_string(),
            self.expiry.to_string(),
            self.wake_ups.to_string(),
            self.waiter_order.to_string(),
            self.crash_release.to_string(),
            if self.listing { "yes" } else { "no" }.to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_set_of_guarantees_claims_the_least() {
        let least = Guarantees::new("x");
        assert_eq!(least.exclusion_survives.to_string(), "nothing");
        assert_eq!(
            least.table_row(),
            [
                "x",
                "one process",
                "nothing",
                "nothing",
                "50ms to 366 d",
                "store's clock",
                "timer only",
                "none",
                "the TTL",
                "no"
            ]
        );
        let more = least.tokens_survive(Survives::NOTHING.restart().data_loss());
        assert_eq!(more.table_row()[3], "restart, data loss");
    }
}
