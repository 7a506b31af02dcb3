//! One worker: it acquires, writes through a gate, and lets go in every way.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lease_conformance::history::{Holding, Holdings};
use lease_core::{Clock, Error, Key, Lease, Leases, LocalGate, Moment, SystemClock, Token};
use rand::RngExt;
use rand::rngs::StdRng;

pub(crate) const KEYS: usize = 3;
/// A holder hears of its loss this late at most, on a machine that does much
/// else. That it may not act any more is exact, and judged apart.
const LATE: Duration = Duration::from_secs(3);
/// Between two writes.
const STEP_MS: Range<u64> = 1..20;

pub(crate) fn key(number: usize) -> Key {
    Key::new(format!("faults/{number}")).unwrap()
}

/// What all workers of a run share.
pub(crate) struct Shared {
    clock: SystemClock,
    start: Moment,
    pub(crate) holdings: Holdings,
    gate: LocalGate,
    stale: AtomicUsize,
    losses: AtomicUsize,
    transient: AtomicUsize,
}

impl Shared {
    pub(crate) fn new() -> Self {
        let clock = SystemClock::new();
        Self {
            clock,
            start: clock.now(),
            holdings: Holdings::new(),
            gate: LocalGate::new(),
            stale: AtomicUsize::new(0),
            losses: AtomicUsize::new(0),
            transient: AtomicUsize::new(0),
        }
    }

    fn since_start(&self, then: Moment) -> Duration {
        then.since(self.start)
    }

    /// The highest token of a key that anybody was given.
    pub(crate) fn highest(&self, number: usize) -> Option<Token> {
        let all = self.holdings.all();
        let of_key = all.iter().filter(|one| one.key == number);
        of_key.map(|one| one.token).max()
    }
}

/// What a run was good for.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen")
            .field("grants", &self.holdings.all().len())
            .field("stale writes", &self.stale)
            .field("losses", &self.losses)
            .field("transient failures", &self.transient)
            .finish()
    }
}

fn one_more(count: &AtomicUsize) {
    count.fetch_add(1, Ordering::Relaxed);
}

pub(crate) struct Worker {
    pub(crate) leases: Leases,
    pub(crate) shared: Arc<Shared>,
    pub(crate) random: StdRng,
    pub(crate) ttls_ms: RangeInclusive<u64>,
}

impl Worker {
    pub(crate) async fn work(mut self, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            let number = self.random.random_range(0..KEYS);
            let asked = self.shared.clock.now();
            if let Some(lease) = self.acquire(number).await {
                self.hold(number, asked, lease).await;
            }
        }
    }

    async fn acquire(&mut self, number: usize) -> Option<Lease> {
        let ttl = Duration::from_millis(self.random.random_range(self.ttls_ms.clone()));
        let acquire = self.leases.lease(key(number)).ttl(ttl);
        // One of five gives up at any point of the way.
        let patience = match self.random.random_range(0..5) {
            0 => Duration::from_micros(self.random.random_range(0..5000)),
            _ => ttl * 2,
        };
        match tokio::time::timeout(patience, acquire.wait(ttl).acquire()).await {
            Ok(Ok(lease)) => return Some(lease),
            Err(_) | Ok(Err(Error::Contended { .. })) => {}
            Ok(Err(Error::Store(e))) if e.is_transient() => {
                println!("{e}");
                one_more(&self.shared.transient);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(Err(other)) => panic!("{other:?}"),
        }
        None
    }

    /// Works for up to some renewals, and lets go.
    async fn hold(&mut self, number: usize, asked: Moment, lease: Lease) {
        let from = self.shared.clock.now();
        // Most are short, so that there are many.
        let part = match self.random.random_range(0..4) {
            0 => self.random.random_range(0.0..1.5),
            _ => self.random.random_range(0.0..0.1),
        };
        let work = lease.ttl().get().mul_f64(part);
        let lost = self.write(number, &lease, from.after(work)).await;
        let now = self.shared.clock.now();
        let until = now.min(lease.deadline());
        if lost {
            one_more(&self.shared.losses);
            let late = now.since(lease.deadline());
            assert!(late <= LATE, "{lease:?} heard of its loss {late:?} late");
        }
        let since = |then| self.shared.since_start(then);
        self.shared.holdings.add(Holding {
            key: number,
            owner: lease.owner(),
            token: lease.token(),
            asked: since(asked),
            from: since(from),
            until: since(until),
        });
        // One of three is dropped; that releases it in the background.
        if self.random.random_range(0..3) > 0 {
            match lease.release().await {
                Ok(_) | Err(Error::Lost(_)) => {}
                Err(Error::Store(e)) if e.is_transient() => {}
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    /// Writes until then; whether the lease was lost meanwhile.
    async fn write(&mut self, number: usize, lease: &Lease, until: Moment) -> bool {
        while self.shared.clock.now() < until {
            let before = self.shared.clock.now();
            if lease.check().is_err() {
                return true;
            }
            // Exact, however late timers are: the deadline only moves ahead.
            assert!(before < lease.deadline(), "{lease:?} believed too long");
            let written = self.shared.gate.write(&key(number), lease.token(), || ());
            if written.is_err() {
                one_more(&self.shared.stale);
            }
            let step = Duration::from_millis(self.random.random_range(STEP_MS));
            if tokio::time::timeout(step, lease.lost()).await.is_ok() {
                assert!(lease.check().is_err(), "{lease:?}");
                return true;
            }
        }
        false
    }
}
