//! The one wait policy: how long until the next try.

use std::sync::Mutex;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::client::Parts;
use crate::error::InvalidInput;
use crate::owner::Owner;
use crate::ttl::Ttl;

/// The longest that one attempt may take before it counts as unanswered.
pub(crate) const ATTEMPT_LIMIT: Duration = Duration::from_secs(10);

/// A waiter looks again after this long, whatever it was told: hints may be
/// lost and a holder's remaining time may be wrong.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The same where a holder's key is free soon after the loss of its session.
pub(crate) const LOOK_AT_SESSION: Duration = Duration::from_secs(1);

/// A release is waited for at least this long, by whoever sent it and by those
/// who wait for its key.
pub(crate) const RELEASE_PATIENCE: Duration = Duration::from_secs(1);

/// Exponential backoff from `first` to `most`, each step with jitter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    step: u32,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most,
            step: 0,
        }
    }

    /// For a store that failed while somebody waits for a key.
    pub(crate) const fn store() -> Self {
        Self::new(Duration::from_millis(20), Duration::from_secs(2))
    }

    /// Between two looks at a key that hints say is free and is not: bounds
    /// what a storm of hints can cost.
    pub(crate) const fn hints() -> Self {
        Self::new(Duration::from_millis(1), Duration::from_millis(32))
    }

    /// For the renewal of a lease of this TTL, or of this time for it.
    pub(crate) fn renewal(ttl: Duration) -> Self {
        let first = (ttl / 60).max(Duration::from_millis(2));
        Self::new(first, (ttl / 10).max(first))
    }

    /// The next pause: half of it for certain, the rest by chance.
    pub(crate) fn next(&mut self, chance: &Chance) -> Duration {
        let full = self
            .first
            .saturating_mul(1 << self.step.min(20))
            .min(self.most);
        self.step = self.step.saturating_add(1);
        full / 2 + (full / 2).mul_f64(chance.fraction())
    }

    pub(crate) fn reset(&mut self) {
        self.step = 0;
    }
}

/// When the renewals of a lease are due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// After the send of the last confirmed request.
    pub(crate) renew_after: Duration,
    /// How long one renewal may stay unanswered before another is sent beside
    /// it.
    pub(crate) patience: Duration,
}

impl Pace {
    /// For a lease that a confirmed request makes good for `validity`: its TTL
    /// without the drift allowance, which may be most of it.
    pub(crate) fn of(ttl: Ttl, validity: Duration, chance: &Chance) -> Self {
        let third = validity / 3;
        Self {
            // A tenth of jitter, towards earlier only.
            renew_after: third - (third / 10).mul_f64(chance.fraction()),
            patience: (ttl.get() / 6)
                .min(validity / 3)
                .max(Duration::from_millis(10)),
        }
    }
}

impl Pace {
    /// With no attempt that stays unanswered for longer than a part of this.
    pub(crate) fn within(self, time: Duration) -> Self {
        let patience = self.patience.min(time / 3).max(Duration::from_millis(10));
        Self { patience, ..self }
    }
}

/// How long an attempt to acquire may take: later than that a grant would be
/// worth nothing.
pub(crate) fn acquire_limit(parts: &Parts, ttl: Ttl) -> Duration {
    parts.validity(ttl).min(ATTEMPT_LIMIT)
}

/// Where chance comes from: the operating system, or one seed for all of it.
#[derive(Debug)]
pub(crate) struct Chance {
    seeded: bool,
    random: Mutex<StdRng>,
}

impl Chance {
    /// Jitter needs no secrecy and must not fail: the generator is only seeded
    /// by the system, if that can. Owners are always the system's own.
    pub(crate) fn from_system() -> Self {
        let mut seed = [0; 32];
        if let Ok(random) = Owner::random() {
            seed[..16].copy_from_slice(random.as_bytes());
        }
        Self {
            seeded: false,
            random: Mutex::new(StdRng::from_seed(seed)),
        }
    }

    pub(crate) fn seeded(seed: u64) -> Self {
        Self {
            seeded: true,
            random: Mutex::new(StdRng::seed_from_u64(seed)),
        }
    }

    /// From 0 to 1, without the 1.
    pub(crate) fn fraction(&self) -> f64 {
        self.with(|random| random.random())
    }

    /// A new owner: the system's randomness unless a seed was given.
    pub(crate) fn owner(&self) -> Result<Owner, InvalidInput> {
        if self.seeded {
            Ok(Owner::from_bytes(self.with(|random| random.random())))
        } else {
            Owner::random()
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut StdRng) -> T) -> T {
        f(&mut self.random.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_to_its_limit_and_never_overflows() {
        let chance = Chance::seeded(1);
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));
        let mut last = Duration::ZERO;
        for step in 0..200 {
            last = backoff.next(&chance);
            assert!(last <= Duration::from_secs(1));
            assert!(step > 0 || last <= Duration::from_millis(10));
        }
        assert!(last >= Duration::from_millis(500));
        backoff.reset();
        assert!(backoff.next(&chance) <= Duration::from_millis(10));
    }

    #[test]
    fn one_seed_gives_the_same_owners() {
        let (a, b) = (Chance::seeded(7), Chance::seeded(7));
        assert_eq!(a.owner().unwrap(), b.owner().unwrap());
        let (a, b) = (Chance::from_system(), Chance::seeded(7));
        assert_ne!(a.owner().unwrap(), b.owner().unwrap());
    }
}
