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
        .waiter_order(WaiterOrder::Fifo)
        .crash_release(CrashRelease::Ttl)
        .listing(true)
}

/// What one operation may have where the server takes messages of the usual size.
const USUAL_ROOM: usize = (1 << 20) - 1024;

/// Before a server was asked how large its messages may be.
pub(super) fn promised(replicas: usize) -> Capabilities {
    capabilities(replicas, USUAL_ROOM)
}

/// Where one operation may have so many bytes.
pub(super) fn capabilities(replicas: usize, room: usize) -> Capabilities {
    let mut capabilities = Capabilities::new(guarantees(replicas));
    // A put is one message: the rest is for the names of its items.
    capabilities.max_put = room / 4 * 3;
    capabilities.max_body = capabilities.max_body.min(capabilities.max_put);
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
