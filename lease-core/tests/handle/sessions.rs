//! Leases that end with their client's session: what counts as a sign of life,
//! and until when each sign is good.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{Error, HolderRules, InvalidInput, Quorum, StoreErrorKind};

use crate::support::{Op, Step, World, is_unconfirmed, ms, secs};

const GRACE: Duration = ms(1500);
/// The grace without the allowance for drift.
const GOOD: Duration = ms(1483);

fn world() -> World {
    let world = World::new();
    world.store.grace(GRACE);
    world.store.session(Ok(1));
    world
}

#[tokio::test(start_paused = true)]
async fn pings_carry_a_long_lease_with_few_renewals() {
    let world = world();
    let lease = world.leases().lease("k").ttl(secs(60)).acquire().await;
    let lease = lease.unwrap();
    for _ in 0..100 {
        tokio::time::sleep(ms(300)).await;
        lease.check().unwrap();
        assert!(lease.remaining() <= GOOD);
    }
    let renewals = world.store.count(Op::Renew);
    assert!((1..=4).contains(&renewals), "{renewals}");
    let pings = world.store.pings().len();
    assert!((70..=90).contains(&pings), "{pings}");
    lease.release().await.unwrap();
    tokio::time::sleep(secs(10)).await;
    let later = world.store.pings().len();
    assert!(later <= pings + 1, "nobody needs them any more");
}

#[tokio::test(start_paused = true)]
async fn without_any_sign_a_lease_is_lost_before_the_grace_is_over() {
    let world = world();
    world.store.session(Err(StoreErrorKind::Unavailable));
    world.store.always(Op::Renew, Step::LoseRequest);
    let sent = world.now();
    let lease = world.leases().lease("k").ttl(secs(60)).acquire().await;
    let lease = lease.unwrap();
    assert_eq!(lease.deadline(), sent.after(GOOD));
    let lost = lease.lost().await;
    assert_eq!(world.now(), sent.after(GOOD));
    assert!(is_unconfirmed(&lost), "{lost}");
}

#[tokio::test(start_paused = true)]
async fn a_ping_counts_only_when_a_confirmed_renewal_carried_its_session() {
    let world = world();
    world.store.always(Op::Renew, Step::LoseRequest);
    let sent = world.now();
    let lease = world.leases().lease("k").ttl(secs(60)).acquire().await;
    lease.unwrap().lost().await;
    assert_eq!(world.now(), sent.after(GOOD));
    assert!(world.store.pings().len() > 2);
}

#[tokio::test(start_paused = true)]
async fn a_new_session_is_carried_to_the_store_at_once() {
    let world = world();
    let leases = world.leases();
    let lease = leases.lease("k").ttl(secs(60)).acquire().await.unwrap();
    let other = leases.lease("l").ttl(secs(61)).acquire().await.unwrap();
    tokio::time::sleep(secs(3)).await;
    let before = world.store.count(Op::Renew) + world.store.count(Op::RenewMany);
    world.store.session(Ok(2));
    tokio::time::sleep(GRACE / 4 + ms(20)).await;
    let after = world.store.count(Op::Renew) + world.store.count(Op::RenewMany);
    assert_eq!(after, before + 1, "both in one batch");
    // From then on its pings count.
    tokio::time::sleep(secs(10)).await;
    lease.check().unwrap();
    other.check().unwrap();
    let later = world.store.count(Op::Renew) + world.store.count(Op::RenewMany);
    assert_eq!(later, after);
}

#[tokio::test(start_paused = true)]
async fn pings_of_a_session_that_no_renewal_could_carry_do_not_count() {
    let world = world();
    let lease = world.leases().lease("k").ttl(secs(60)).acquire().await;
    let lease = lease.unwrap();
    tokio::time::sleep(secs(3)).await;
    world.store.always(Op::Renew, Step::LoseRequest);
    world.store.session(Ok(2));
    let changed = world.now();
    lease.lost().await;
    let last = changed.after(GOOD);
    assert!(world.now() <= last, "{:?} after {last:?}", world.now());
}

#[tokio::test(start_paused = true)]
async fn a_confirmed_renewal_is_a_sign_where_no_session_can_be_had() {
    let world = world();
    world.store.session(Err(StoreErrorKind::Unavailable));
    let lease = world.leases().lease("k").ttl(secs(60)).acquire().await;
    let lease = lease.unwrap();
    for _ in 0..50 {
        tokio::time::sleep(ms(200)).await;
        lease.check().unwrap();
    }
    let renewals = world.store.count(Op::Renew);
    assert!((10..=20).contains(&renewals), "{renewals}");
}

#[tokio::test(start_paused = true)]
async fn a_short_ttl_still_ends_a_lease_before_the_grace() {
    let world = world();
    world.store.always(Op::Renew, Step::LoseRequest);
    let sent = world.now();
    let lease = world.leases().lease("k").ttl(ms(500)).acquire().await;
    lease.unwrap().lost().await;
    assert_eq!(world.now(), sent.after(ms(493)));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_looks_at_the_holders_session_every_second() {
    let world = world();
    let leases = world.leases();
    let held = leases.lease("k").ttl(secs(60)).acquire().await.unwrap();
    let waiting = world.other().lease("k").wait(secs(10)).acquire().await;
    assert!(matches!(waiting, Err(Error::Contended { .. })));
    let looks = world.store.count(Op::Acquire);
    assert!((10..=14).contains(&looks), "{looks}");
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn with_a_rule_taken_out_a_holder_believes_for_too_long() {
    let mut one = HolderRules::ALL;
    one.signs_bound = false;
    let mut other = HolderRules::ALL;
    other.signs_need_renewal = false;
    for rules in [one, other] {
        let world = world();
        world.store.always(Op::Renew, Step::LoseRequest);
        let leases = world.builder().broken_rules(rules).build();
        let lease = leases.lease("k").ttl(secs(60)).acquire().await.unwrap();
        tokio::time::sleep(secs(2)).await;
        assert!(lease.check().is_ok(), "{rules:?} makes no difference");
    }
}

#[tokio::test]
async fn a_quorum_takes_no_node_whose_grants_end_with_a_session() {
    let world = world();
    let node: Arc<dyn lease_core::LeaseBackend> = Arc::new(world.store.clone());
    let refused = Quorum::new([("a", node)]).unwrap_err();
    assert!(matches!(refused, InvalidInput::QuorumNodes { .. }));
    assert!(refused.to_string().contains("crash detection"), "{refused}");
}
