//! Claims: renewal, batches, what is dropped, what is never handed out.

use lease_queue::{Phase, QueueError};

use crate::world::{Fault, Op, World, mail, ms, secs};

#[tokio::test(start_paused = true)]
async fn a_claim_is_renewed_for_as_long_as_it_is_held() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    let claim = queue.claim().await.unwrap();
    tokio::time::sleep(secs(100)).await;
    assert_eq!(claim.lease().check().unwrap(), claim.token());
    assert!(queue.try_claim().await.unwrap().is_none());
    assert!(world.calls(Op::Extend) >= 10);
    claim.complete().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_claims_of_their_own() {
    let world = World::new();
    let queue = world.queue();
    let all: Vec<_> = (0..20).map(|n| mail(&n.to_string())).collect();
    queue.put_many(&all).await.unwrap();
    let mut claims = queue.claim_batch(16).await.unwrap();
    assert_eq!(claims.len(), 16);
    tokio::time::sleep(secs(30)).await;
    assert!(claims.iter().all(|claim| claim.lease().check().is_ok()));
    claims.pop().unwrap().complete().await.unwrap();
    claims.pop().unwrap().fail("no").await.unwrap();
    assert!(claims.iter().all(|claim| claim.lease().check().is_ok()));
    let depth = queue.depth().await.unwrap();
    assert_eq!((depth.in_flight, depth.ready), (14, 5));
    drop(claims);
    assert!(queue.shutdown(secs(5)).await.settled);
    assert_eq!(queue.depth().await.unwrap().ready, 19);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_claim_gives_its_item_back_uncounted() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    drop(queue.claim().await.unwrap());
    let next = queue.claim().await.unwrap();
    assert_eq!(next.attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_takes_no_item() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    world.fails(Op::Claim, &[Fault::Hangs]);
    // It takes effect at the store; the caller has gone by then.
    let claim = tokio::time::timeout(ms(100), queue.claim()).await;
    assert!(claim.is_err());
    let next = queue.claim_within(secs(1)).await.unwrap().unwrap();
    assert_eq!(next.attempt(), 1);
    assert_eq!(world.calls(Op::Abandon), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_outcome_is_unknown_is_abandoned() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    world.fails(Op::Claim, &[Fault::LosesReply]);
    let error = queue.try_claim().await.unwrap_err();
    assert!(matches!(error, QueueError::Store(e) if e.is_unknown_outcome()));
    world.fails(Op::Claim, &[Fault::LosesReply]);
    let claim = queue.claim_within(secs(1)).await.unwrap().unwrap();
    assert_eq!(claim.attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_comes_too_late_is_not_handed_out() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    // Silent for longer than the TTL: then nothing is handed out, and the next is.
    world.fails(Op::Claim, &[Fault::Hangs]);
    let claim = queue.claim_within(secs(30)).await.unwrap().unwrap();
    assert!(claim.lease().check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_workers_crash_is_buried_after_its_last_attempt() {
    let world = World::new();
    let queue = world.builder().max_attempts(2).build().unwrap();
    queue.put(&mail("ann")).await.unwrap();
    for due in [1, 2] {
        let claim = queue.claim_within(secs(30)).await.unwrap().unwrap();
        assert_eq!(claim.attempt(), due);
        // A crash: nobody renews, nobody releases.
        std::mem::forget(claim.lease().cancellation_token());
        world.fails(Op::Extend, &[Fault::Unavailable; 1000]);
        world.fails(Op::Settle, &[Fault::Unavailable; 1000]);
        drop(claim);
        tokio::time::sleep(secs(60)).await;
        world.heals();
    }
    assert!(queue.claim_within(secs(30)).await.unwrap().is_none());
    let item = world.until_free().await.unwrap();
    assert!(
        matches!(item.phase, Phase::Dead(ref why) if why.contains('2')),
        "{item:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_cannot_be_read_fails_and_is_buried() {
    let world = World::new();
    let raw = lease_queue::Queue::<Vec<u8>, lease_queue::Raw>::raw_builder(
        std::sync::Arc::new(world.memory.clone()),
        "mail",
    );
    raw.build()
        .unwrap()
        .put(&b"no json".to_vec())
        .await
        .unwrap();
    let queue = world.builder().max_attempts(3).build().unwrap();
    assert!(queue.claim_within(secs(10)).await.unwrap().is_none());
    let item = world.until_free().await.unwrap();
    assert_eq!(item.attempts, 3);
    assert!(
        matches!(item.phase, Phase::Dead(ref why) if why.contains("payload")),
        "{item:?}"
    );
    assert!(queue.requeue(item.id).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn after_a_shutdown_nothing_is_claimed_and_what_was_is_given_back() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    let claim = queue.claim().await.unwrap();
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.claim().await.map(drop) }
    });
    tokio::time::sleep(ms(10)).await;
    let stopping = tokio::spawn({
        let queue = queue.clone();
        async move { queue.shutdown(secs(5)).await }
    });
    claim.lease().lost().await;
    drop(claim);
    assert!(stopping.await.unwrap().settled);
    assert!(matches!(waiting.await.unwrap(), Err(QueueError::Closed)));
    assert!(matches!(queue.try_claim().await, Err(QueueError::Closed)));
    assert_eq!(world.attempts().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_who_asks_and_what_it_got_is_given_back() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    world.fails(Op::Claim, &[Fault::Hangs]);
    let asking = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.claim().await.map(drop) })
    };
    while world.calls(Op::Claim) == 0 {
        tokio::task::yield_now().await;
    }
    let report = queue.shutdown(secs(8)).await;
    assert!(report.settled, "{report:?}");
    assert_eq!(world.item().await.unwrap().phase, Phase::Ready);
    assert!(asking.await.unwrap().is_err());
}
