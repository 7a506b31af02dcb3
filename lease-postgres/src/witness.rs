//! The session witness: one advisory lock that a client keeps over a connection of
//! its own for as long as it lives. Its grants name it, so that others can see in
//! the server that it is gone.
//!
//! Each connection has a number of its own, which is never used again: what was
//! lost stays lost, and whoever looks at the lock of a session that is gone is in
//! nobody's way.

mod look;
mod session;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lease_core::{Session, StoreError};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use crate::connection::Origin;
pub(crate) use look::Looks;
use session::{Checked, Connected};

/// Of a number: the rest counts the connections, so that a late request can be
/// told from a newer one of the same client.
const COUNTING_BITS: u32 = 20;
/// A session that was good this much of the grace ago need not be looked at before
/// it is named in a grant.
const FRESH: u32 = 2;
/// What a ping may take of the grace.
const PATIENCE: u32 = 3;
/// What passes of the grace before another connection is tried.
const PAUSE: u32 = 8;

/// What a statement writes beside a grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    /// The number of the advisory lock.
    pub(crate) id: i64,
    pub(crate) grace_us: i64,
}

/// The session of one client on one runtime.
#[derive(Debug)]
pub(crate) struct Witness {
    origin: Origin,
    grace: Duration,
    runtime: Handle,
    state: Mutex<State>,
    /// Locked by whoever pings or connects.
    live: tokio::sync::Mutex<Live>,
}

#[derive(Debug, Default)]
struct State {
    /// The one that stands, or the last one that did.
    last: Option<(Session, i64)>,
    /// The send of the last ping that was answered, or when it was made.
    good: Option<Instant>,
}

#[derive(Debug, Default)]
struct Live {
    connected: Option<Connected>,
    /// How many there were.
    count: u64,
    /// Chosen by chance, for as many as can be counted.
    client: i64,
    not_before: Option<Instant>,
    /// How the last attempt ended, and when, if it found no session.
    failed: Option<(Instant, StoreError)>,
}

impl Witness {
    pub(crate) fn new(origin: Origin, grace: Duration, runtime: Handle) -> Arc<Self> {
        Arc::new(Self {
            origin,
            grace,
            runtime,
            state: Mutex::default(),
            live: tokio::sync::Mutex::default(),
        })
    }

    /// What requests that are sent now carry.
    pub(crate) fn carried(&self) -> Option<Carried> {
        let (_, id) = self.state().last?;
        let grace_us = i64::try_from(self.grace.as_micros()).unwrap_or(i64::MAX);
        Some(Carried { id, grace_us })
    }

    /// Sees to it that a session stands that a grant can name.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn stand(self: &Arc<Self>) -> Result<(), StoreError> {
        let good = self.state().good;
        if good.is_some_and(|good| good.elapsed() < self.grace / FRESH) {
            return Ok(());
        }
        self.ping().await.map(drop)
    }

    /// The session that stands: looked at now, or made.
    ///
    /// # Cancel safety
    /// Safe: a connection that is being opened is there for whoever comes next.
    pub(crate) async fn ping(self: &Arc<Self>) -> Result<Session, StoreError> {
        let this = Arc::clone(self);
        let pinging = self.runtime.spawn(async move { this.ping_or_open().await });
        pinging.await.unwrap_or_else(|_| {
            Err(StoreError::unavailable(
                "the runtime ended while the session of crash detection was looked at",
            ))
        })
    }

    async fn ping_or_open(&self) -> Result<Session, StoreError> {
        let asked = Instant::now();
        let mut live = self.live.lock().await;
        // Those who waited for one attempt do not make one each.
        if let Some((ended, error)) = &live.failed
            && *ended >= asked
        {
            return Err(error.clone());
        }
        // Taken out: what is not answered is of no more use.
        if let Some(mut connected) = live.connected.take() {
            let sent = Instant::now();
            let last = self.state().last;
            match (connected.check(self.grace / PATIENCE).await, last) {
                (Checked::Mine, Some((session, _))) => {
                    live.connected = Some(connected);
                    self.state().good = Some(sent);
                    return Ok(session);
                }
                (Checked::Another, _) => return Err(session::pooled()),
                (Checked::Lost(error), _) => {
                    tracing::debug!(target: "leases", error, "the session of crash detection is lost");
                }
                (Checked::Mine, None) => {}
            }
        }
        self.open(&mut live).await
    }

    async fn open(&self, live: &mut Live) -> Result<Session, StoreError> {
        if let Some(not_before) = live.not_before {
            sleep_until(not_before).await;
        }
        // Before it is known to stand: it does so from some later instant on.
        let begun = Instant::now();
        let id = live.next_id();
        match Connected::open(&self.origin, self.grace, id).await {
            Ok(connected) => {
                let session = Session::new(live.count);
                live.connected = Some(connected);
                live.not_before = None;
                live.failed = None;
                let mut state = self.state();
                state.last = Some((session, id));
                state.good = Some(begun);
                Ok(session)
            }
            Err(error) => {
                let pause = (self.grace / PAUSE).mul_f64(rand::random_range(0.5..=1.0));
                live.not_before = Some(Instant::now() + pause);
                live.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the state is being changed.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Live {
    /// A number that no session had. Numbers of one client rise.
    fn next_id(&mut self) -> i64 {
        let places = 1 << COUNTING_BITS;
        let place = self.count % places;
        if place == 0 {
            self.client = rand::random_range(1..1 << (i64::BITS - 1 - COUNTING_BITS));
        }
        self.count += 1;
        (self.client << COUNTING_BITS) | place.cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_and_are_never_the_same() {
        let mut live = Live::default();
        let mut last = live.next_id();
        for _ in 0..1000 {
            let next = live.next_id();
            assert!(next > last && next >> COUNTING_BITS == last >> COUNTING_BITS);
            last = next;
        }
        live.count = (1 << COUNTING_BITS) - 1;
        let last = live.next_id();
        assert_ne!(live.next_id() >> COUNTING_BITS, last >> COUNTING_BITS);
        assert_ne!(Live::default().next_id(), Live::default().next_id());
    }
}
