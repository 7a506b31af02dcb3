//! What the public types can be sent and shared as.

use lease_core::{
    Acquire, AcquireRequest, Attempt, Error, Event, Grant, Guarantees, Holder, Key, KeyState,
    Label, Lease, LeaseBackend, Leases, LeasesBuilder, LocalGate, Lost, ManualClock, MemoryStore,
    Moment, Owner, RenewRequest, StoreError, SystemClock, Token, Ttl, Working,
};

fn send<T: Send>() {}
fn send_sync<T: Send + Sync>() {}
fn everywhere<T: Send + Sync + 'static>() {}
fn unwind_safe<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
fn future<F: Future + Send + 'static>(_: &F) {}

#[test]
fn types_are_send_and_sync() {
    everywhere::<Leases>();
    everywhere::<Lease>();
    everywhere::<Working>();
    everywhere::<Grant>();
    everywhere::<Attempt>();
    everywhere::<Acquire>();
    everywhere::<Error>();
    everywhere::<Lost>();
    everywhere::<StoreError>();
    everywhere::<Event>();
    everywhere::<MemoryStore>();
    everywhere::<LocalGate>();
    everywhere::<ManualClock>();
    everywhere::<SystemClock>();
    everywhere::<Guarantees>();
    everywhere::<Box<dyn LeaseBackend>>();
    send::<LeasesBuilder>();
    send_sync::<(Key, Label, Token, Ttl, Owner, Moment)>();
    send_sync::<(AcquireRequest, RenewRequest, Holder, KeyState)>();
    unwind_safe::<(Key, Label, Token, Ttl, Owner, Moment)>();
}

#[tokio::test(start_paused = true)]
async fn futures_can_be_spawned() {
    let leases = Leases::new(std::sync::Arc::new(MemoryStore::new()));
    future(&leases.lease("k").acquire());
    future(&leases.lease("k").try_acquire());
    future(&leases.lease("k").run(|_| async {}));
    let lease = leases.lease("k").acquire().await.unwrap();
    future(&lease.release());
    let stopping = async move { leases.shutdown(std::time::Duration::ZERO).await };
    future(&stopping);
}
