//! What the store promises, as data.

use std::time::Duration;

use lease_core::{
    CrashRelease, Exclusion, ExpiryJudge, Guarantees, InvalidInput, StoreError, Survives, Ttl,
    TtlRange, WaiterOrder, WakeUps,
};

use crate::store::Capabilities;

/// With a stream of so many replicas.
pub(super) fn guarantees(replicas: usize) -> Guarantees {
    // No clock of a server takes part in it.
    let alone = Survives::NOTHING.restart().clock_step();
    let (reach, survives) = match replicas {
        0..=2 => (Exclusion::SinglePrimary, alone),
        _ => (Exclusion::Consensus, alone.failover()),
    };
    Guarantees::new("queue+nats")
        .exclusion(reach, survives)
        // A token is the mark + 1: it rises as long as the mark is there.
        .tokens_survive(survives)
        .ttl(TtlRange::new(Ttl::MIN, Ttl::MAX, Duration::from_millis(1)))
        .expiry(ExpiryJudge::UnchangedWhileObserved)
        .wake_ups(WakeUps::Push)
        .waiter_order(WaiterOrder::None)
        .crash_release(CrashRelease::Ttl)
        .listing(true)
}

pub(super) fn capabilities(replicas: usize) -> Capabilities {
    let mut capabilities = Capabilities::new(guarantees(replicas));
    capabilities.items = false;
    capabilities.groups = false;
    capabilities.delay = false;
    capabilities.dedup_window = Duration::ZERO;
    capabilities.max_body = 0;
    capabilities
}

pub(super) fn check_ttl(ttl: Ttl, guarantees: &Guarantees) -> Result<(), StoreError> {
    let range = guarantees.ttl;
    if ttl.get() < range.min || ttl.get() > range.max {
        return Err(InvalidInput::TtlOutOfRange {
            ttl: ttl.get(),
            min: range.min,
            max: range.max,
        }
        .into());
    }
    Ok(())
}
