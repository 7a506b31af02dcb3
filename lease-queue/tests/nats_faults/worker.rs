//! One worker: it acquires, works, and lets go, and notes what it believed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lease_conformance::history::{Holding, Holdings};
use lease_core::{Clock, Error, Lease, Leases, Moment, SystemClock};
use rand::RngExt;
use rand::rngs::StdRng;

pub(crate) const KEYS: usize = 2;
pub(crate) const TTL: Duration = Duration::from_millis(600);

#[derive(Debug)]
pub(crate) struct Shared {
    clock: SystemClock,
    start: Moment,
    pub(crate) holdings: Holdings,
}

impl Shared {
    pub(crate) fn new() -> Self {
        let clock = SystemClock::new();
        Self {
            clock,
            start: clock.now(),
            holdings: Holdings::new(),
        }
    }
}

pub(crate) struct Worker {
    pub(crate) leases: Leases,
    pub(crate) shared: Arc<Shared>,
    pub(crate) random: StdRng,
}

impl Worker {
    pub(crate) async fn work(mut self, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            let number = self.random.random_range(0..KEYS);
            let asked = self.shared.clock.now();
            let acquire = self.leases.lease(format!("faults/{number}")).ttl(TTL);
            // One of five gives up at any point of the way.
            let patience = match self.random.random_range(0..5) {
                0 => Duration::from_micros(self.random.random_range(0..5000)),
                _ => TTL * 3,
            };
            match tokio::time::timeout(patience, acquire.wait(TTL * 2).acquire()).await {
                Ok(Ok(lease)) => self.hold(number, asked, lease).await,
                Err(_) | Ok(Err(Error::Contended { .. })) => {}
                Ok(Err(Error::Store(e))) if e.is_transient() => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Ok(Err(other)) => panic!("{other:?}"),
            }
        }
    }

    /// Works for up to two TTLs, most often for a moment, or until the lease is lost.
    async fn hold(&mut self, number: usize, asked: Moment, lease: Lease) {
        let from = self.shared.clock.now();
        let part = match self.random.random_range(0..6) {
            0 => self.random.random_range(0.0..2.0),
            _ => self.random.random_range(0.0..0.1),
        };
        let _ = tokio::time::timeout(TTL.mul_f64(part), lease.lost()).await;
        let until = self.shared.clock.now().min(lease.deadline());
        let since = |then: Moment| then.since(self.shared.start);
        self.shared.holdings.add(Holding {
            key: number,
            owner: lease.owner(),
            token: lease.token(),
            asked: since(asked),
            from: since(from),
            until: since(until),
        });
        // One of three is dropped, which releases it in the background.
        if self.random.random_range(0..3) > 0 {
            match lease.release().await {
                Ok(_) | Err(Error::Lost(_)) => {}
                Err(Error::Store(e)) if e.is_transient() => {}
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}
