//! Loss while a claim is held.

use lease_core::{FenceWhen, LostCause, LostReason};
use lease_queue::QueueStore;

use crate::world::{Fault, Op, World, mail, secs};

#[tokio::test(start_paused = true)]
async fn work_is_dropped_at_the_loss_of_its_claim() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    let claim = queue.claim().await.unwrap();
    let mark = claim.token().next().unwrap();
    let lane = &claim.claim_ref().lane;
    let fenced = world
        .memory
        .fence(queue.name(), lane, mark, FenceWhen::Immediately);
    fenced.await.unwrap();
    let lost = claim
        .lease()
        .run(std::future::pending::<()>())
        .await
        .unwrap_err();
    let revoked = matches!(lost.reason, LostReason::Store(LostCause::Revoked));
    assert!(revoked, "{lost}");
    assert!(queue.claim_within(secs(1)).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_hold_and_a_silence_that_are_too_long_end_it() {
    let world = World::new();
    let queue = world.builder().max_hold(secs(25)).build().unwrap();
    queue.put(&mail("ann")).await.unwrap();
    let claim = queue.claim().await.unwrap();
    let lost = claim.lease().lost().await;
    assert!(matches!(lost.reason, LostReason::MaxHold { .. }), "{lost}");
    claim.complete().await.unwrap();

    let queue = world.builder().progress_within(secs(5)).build().unwrap();
    queue.put(&mail("ben")).await.unwrap();
    let claim = queue.claim().await.unwrap();
    for _ in 0..5 {
        tokio::time::sleep(secs(3)).await;
        claim.lease().progress();
    }
    let lost = claim.lease().lost().await;
    assert!(
        matches!(lost.reason, LostReason::NoProgress { .. }),
        "{lost}"
    );
    drop(claim);
    assert!(queue.claim_within(secs(1)).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn an_outage_shorter_than_the_ttl_loses_nothing() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    let claim = queue.claim().await.unwrap();
    world.fails(
        Op::Extend,
        &[Fault::Unavailable, Fault::LosesReply, Fault::Hangs],
    );
    tokio::time::sleep(secs(30)).await;
    assert!(claim.lease().check().is_ok());
    claim.complete().await.unwrap();
}
