//! Leases of grants that were made by other means.

use lease_core::{
    AcquireOutcome, AcquireRequest, Adoption, Error, Granted, Key, Label, LeaseBackend, Leases,
    LostReason, Moment, Owner, TokenRule, Ttl,
};

use crate::support::{World, ms, secs};

/// A grant of `k` that the test asked for itself, and when.
async fn granted(world: &World, leases: &Leases, ttl: Ttl) -> (Owner, Granted, Moment) {
    let owner = Owner::random().unwrap();
    let request = AcquireRequest {
        key: Key::new("k").unwrap(),
        owner,
        ttl,
        label: Label::EMPTY,
        rule: TokenRule::NEXT,
        waits: None,
    };
    let sent = leases.clock().now();
    match world.store.acquire(&request).await.unwrap() {
        AcquireOutcome::Granted(granted) => (owner, granted, sent),
        other => panic!("{other:?}"),
    }
}

fn adoption(owner: Owner, granted: &Granted, ttl: Ttl, sent: Moment) -> Adoption {
    Adoption::new(Key::new("k").unwrap(), owner, granted.token, ttl, sent)
}

#[tokio::test(start_paused = true)]
async fn an_adopted_lease_is_renewed_and_released_as_any_other() {
    let world = World::new();
    let leases = world.builder().build();
    let ttl = Ttl::new(secs(1)).unwrap();
    let (owner, grant, sent) = granted(&world, &leases, ttl).await;
    let lease = leases.adopt(adoption(owner, &grant, ttl, sent)).unwrap();
    assert_eq!(lease.token(), grant.token);
    tokio::time::sleep(secs(5)).await;
    assert_eq!(lease.check().unwrap(), grant.token);
    lease.release().await.unwrap();
    let state = leases.inspect("k").await.unwrap();
    assert!(state.holder.is_none());
}

#[tokio::test(start_paused = true)]
async fn one_whose_grant_the_store_has_ended_is_told_of_once_and_asks_for_nothing() {
    let world = World::new();
    let leases = world.builder().build();
    let ttl = Ttl::new(secs(1)).unwrap();
    let (owner, grant, sent) = granted(&world, &leases, ttl).await;
    let lease = leases.adopt(adoption(owner, &grant, ttl, sent)).unwrap();
    world
        .store
        .release(lease.key(), owner, grant.token)
        .await
        .unwrap();
    let before = world.store.calls().len();
    lease.ended();
    lease.ended();
    tokio::time::sleep(secs(5)).await;
    drop(lease);
    // Nothing is kept any more.
    assert!(leases.shutdown(secs(1)).await.settled);
    assert_eq!(world.store.calls().len(), before);
    assert_eq!(world.words(), ["granted", "released"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_released_with_its_client_is_not_told_of_again() {
    let world = World::new();
    let leases = world.builder().build();
    let ttl = Ttl::new(secs(60)).unwrap();
    let (owner, grant, sent) = granted(&world, &leases, ttl).await;
    let lease = leases.adopt(adoption(owner, &grant, ttl, sent)).unwrap();
    assert!(leases.shutdown(secs(2)).await.settled);
    assert_eq!(world.words(), ["granted", "lost", "released"]);
    lease.ended();
    drop(lease);
    tokio::time::sleep(secs(1)).await;
    assert_eq!(world.words(), ["granted", "lost", "released"]);
}

#[tokio::test(start_paused = true)]
async fn its_deadline_counts_from_before_the_request() {
    let world = World::new();
    let leases = world.builder().build();
    let ttl = Ttl::new(secs(10)).unwrap();
    let (owner, grant, sent) = granted(&world, &leases, ttl).await;
    tokio::time::sleep(secs(3)).await;
    let lease = leases.adopt(adoption(owner, &grant, ttl, sent)).unwrap();
    assert!(lease.remaining() < secs(7));
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_after_its_deadline_is_lost_and_released() {
    let world = World::new();
    let leases = world.builder().build();
    let ttl = Ttl::new(secs(10)).unwrap();
    let (owner, grant, sent) = granted(&world, &leases, ttl).await;
    // The store may run slow: it is live there for a while.
    tokio::time::sleep(ms(9_950)).await;
    let lease = leases.adopt(adoption(owner, &grant, ttl, sent)).unwrap();
    let lost = lease.check().unwrap_err();
    assert!(
        matches!(lost.reason, LostReason::Unconfirmed { .. }),
        "{lost}"
    );
    drop(lease);
    leases.shutdown(secs(1)).await;
    let state = leases.inspect("k").await.unwrap();
    assert!(state.holder.is_none());
}

#[tokio::test(start_paused = true)]
async fn its_limits_are_kept_and_checked() {
    let world = World::new();
    let leases = world.builder().build();
    let ttl = Ttl::new(secs(1)).unwrap();
    let (owner, grant, sent) = granted(&world, &leases, ttl).await;
    let zero = adoption(owner, &grant, ttl, sent).max_hold(secs(0));
    assert!(matches!(leases.adopt(zero), Err(Error::Invalid(_))));
    let short = adoption(owner, &grant, ttl, sent).max_hold(secs(3));
    let lease = leases.adopt(short).unwrap();
    let lost = lease.lost().await;
    assert!(matches!(lost.reason, LostReason::MaxHold { .. }), "{lost}");
}

#[tokio::test(start_paused = true)]
async fn after_a_shutdown_it_is_lost_at_once() {
    let world = World::new();
    let leases = world.builder().build();
    let ttl = Ttl::new(secs(10)).unwrap();
    let (owner, grant, sent) = granted(&world, &leases, ttl).await;
    leases.shutdown(secs(1)).await;
    let lease = leases.adopt(adoption(owner, &grant, ttl, sent)).unwrap();
    assert!(matches!(lease.lost().await.reason, LostReason::Shutdown));
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_abandoned_in_the_background() {
    let world = World::new();
    let leases = world.builder().build();
    let ttl = Ttl::new(secs(60)).unwrap();
    let (owner, ..) = granted(&world, &leases, ttl).await;
    leases.abandon(Key::new("k").unwrap(), owner);
    assert!(leases.shutdown(secs(1)).await.settled);
    let state = leases.inspect("k").await.unwrap();
    assert!(state.holder.is_none());
}
