//! Slots that move from one primary to another.

use std::sync::Arc;
use std::time::Duration;

use lease_conformance::servers::redis::cluster::RedisCluster;
use lease_core::{
    AcquireOutcome, FenceWhen, LeaseBackend, RefusedReason, ReleaseOutcome, RenewOutcome,
};

use crate::load::{KEYS, Load};
use crate::support::{exactly, granted, key, persist, renewal, request, token};
use crate::{harm, holder, options, record, store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_under_load_make_no_two_holders() {
    let cluster = Arc::new(RedisCluster::builder().start().unwrap());
    let all = (0..4).map(|_| options(&cluster.url()));
    let load = Load::start(500..=2000, all.collect()).await;
    let mut number = 0;
    while load.goes_on() {
        let name = record(holder::key(number % KEYS).as_str());
        harm(&cluster, move |cluster| {
            let slot = cluster.slot_of(&name)?;
            let from = cluster.owner_of_slot(slot)?;
            let to = cluster.primaries().into_iter().find(|to| *to != from);
            cluster.move_slot(slot, to.unwrap())
        })
        .await;
        number += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let seen = load.end(true).await;
    println!("{number} moves: {seen:?}");
    assert!(number > KEYS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_key_is_renewed_and_released_on_either_side_of_a_move() {
    let cluster = RedisCluster::builder().start().unwrap();
    let client = store(&cluster).await;
    let held = request("a", 20_000);
    let grant = granted(client.acquire(&held).await.unwrap());
    let slot = cluster.slot_of(&record("a")).unwrap();
    let from = cluster.owner_of_slot(slot).unwrap();
    let to = cluster.primaries().into_iter().find(|to| *to != from);
    let moving = cluster.begin_move(slot, to.unwrap()).unwrap();

    // Its record has not moved, and then it has, and the birth marker has not.
    let renew = renewal(&held, grant.token);
    assert_eq!(client.renew(&renew).await.unwrap(), RenewOutcome::Renewed);
    moving.move_these(&[record("a")]).unwrap();
    assert_eq!(client.renew(&renew).await.unwrap(), RenewOutcome::Renewed);
    let all = client.renew_many(&[renew.clone(), renew.clone()]).await;
    assert!(
        all.into_iter()
            .all(|one| one.unwrap() == RenewOutcome::Renewed)
    );
    let state = client.inspect(&key("a")).await.unwrap();
    assert_eq!(state.holder.unwrap().token, grant.token);

    // What needs both waits, and says so.
    let torn = client.acquire(&request("a", 1000)).await.unwrap_err();
    assert!(torn.is_transient() && !torn.is_unknown_outcome(), "{torn}");
    assert!(torn.to_string().contains("on its way"), "{torn}");

    let release = client.release(&held.key, held.owner, grant.token);
    assert_eq!(release.await.unwrap(), ReleaseOutcome::Released);
    moving.move_keys().unwrap();
    // All of it is on the other side, which does not have the slot yet.
    let next = granted(client.acquire(&request("a", 1000)).await.unwrap());
    assert!(next.token > grant.token);
    moving.finish().unwrap();
    let fenced = key("a");
    let fenced = client.fence(&fenced, token(5), FenceWhen::Immediately);
    assert_eq!(fenced.await.unwrap(), next.token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_owner_gave_up_stays_given_up_when_its_slot_moves() {
    let cluster = RedisCluster::builder().start().unwrap();
    let client = store(&cluster).await;
    let given_up = request("a", 1000);
    client.abandon(&given_up.key, given_up.owner).await.unwrap();
    let mark = granted(client.acquire(&request("a", 50)).await.unwrap()).token;
    let slot = cluster.slot_of(&record("a")).unwrap();
    for _ in 0..2 {
        let from = cluster.owner_of_slot(slot).unwrap();
        let to = cluster.primaries().into_iter().find(|to| *to != from);
        cluster.move_slot(slot, to.unwrap()).unwrap();
        let late = persist(|| client.acquire(&given_up)).await;
        assert_eq!(late, AcquireOutcome::Refused(RefusedReason::Abandoned));
        let below = exactly("a", 1000, mark.get());
        // While the last grant lasts, that is in the way.
        let refused = loop {
            match client.acquire(&below).await.unwrap() {
                AcquireOutcome::Held(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                other => break other,
            }
        };
        assert_eq!(
            refused,
            AcquireOutcome::Refused(RefusedReason::BelowMark { high_water: mark })
        );
    }
}
