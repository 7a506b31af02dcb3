//! Settling: what each does, and what is done about silence.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lease_core::{Event, EventKind, LostCause, LostReason};
use lease_queue::{Backoff, Phase, SettleError};

use crate::world::{Fault, Op, World, mail, ms, secs};

#[tokio::test(start_paused = true)]
async fn failed_attempts_back_off_and_the_last_buries() {
    let world = World::new();
    let queue = world
        .builder()
        .max_attempts(3)
        .backoff(Backoff::new(secs(8), secs(100)))
        .build()
        .unwrap();
    queue.put(&mail("ann")).await.unwrap();
    for (attempt, least, most) in [(1, 4, 8), (2, 8, 16)] {
        let claim = queue.claim().await.unwrap();
        assert_eq!(claim.attempt(), attempt);
        claim.fail(format!("no. {attempt}")).await.unwrap();
        let Phase::Delayed(wait) = world.item().await.unwrap().phase else {
            panic!("not delayed");
        };
        assert!(wait >= secs(least) && wait <= secs(most), "{wait:?}");
        tokio::time::sleep(wait).await;
    }
    queue.claim().await.unwrap().fail("no. 3\0").await.unwrap();
    let item = world.item().await.unwrap();
    assert_eq!(item.phase, Phase::Dead("no. 3?".into()));
    assert_eq!(item.attempts, 3);
}

#[tokio::test(start_paused = true)]
async fn abandon_does_not_count_and_retry_after_does() {
    let world = World::new();
    let queue = world.builder().max_attempts(1).build().unwrap();
    queue.put(&mail("ann")).await.unwrap();
    for _ in 0..3 {
        let claim = queue.claim().await.unwrap();
        assert_eq!(claim.attempt(), 1);
        claim.abandon().await.unwrap();
    }
    let claim = queue.claim().await.unwrap();
    claim.retry_after(secs(7)).await.unwrap();
    let item = world.item().await.unwrap();
    assert_eq!(item.attempts, 1);
    assert_eq!(item.phase, Phase::Delayed(secs(7)));
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_asked_again_and_takes_effect_once() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    let claim = queue.claim().await.unwrap();
    world.fails(
        Op::Settle,
        &[Fault::LosesReply, Fault::Unavailable, Fault::Hangs],
    );
    claim.complete().await.unwrap();
    assert!(world.item().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn after_silence_the_claim_is_given_back_and_can_be_settled_again() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    let claim = queue.claim().await.unwrap();
    world.fails(Op::Settle, &[Fault::LosesReply]);
    world.fails(Op::Settle, &[Fault::Unavailable; 200]);
    let error = claim.complete().await.unwrap_err();
    assert!(matches!(error, SettleError::Unsettled { .. }), "{error}");
    let claim = error.into_claim().unwrap();
    world.heals();
    assert_eq!(claim.payload(), &mail("ann"));
    // The first one had taken effect, which the repeated one is told.
    claim.complete().await.unwrap();
    assert!(world.item().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_refused_stays_held() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    let claim = queue.claim().await.unwrap();
    world.fails(Op::Settle, &[Fault::Refuses]);
    let claim = claim.complete().await.unwrap_err().into_claim().unwrap();
    tokio::time::sleep(secs(60)).await;
    assert!(claim.lease().check().is_ok());
    claim.complete().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_delay_over_the_limit_gives_the_claim_back() {
    let queue = World::new().queue();
    queue.put(&mail("ann")).await.unwrap();
    let claim = queue.claim().await.unwrap();
    let error = claim.retry_after(secs(400 * 86_400)).await.unwrap_err();
    assert!(error.to_string().contains("limit"), "{error}");
    error.into_claim().unwrap().complete().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_completion_goes_on_in_the_background() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    let claim = queue.claim().await.unwrap();
    world.fails(Op::Settle, &[Fault::Unavailable; 3]);
    let completing = tokio::time::timeout(ms(5), claim.complete()).await;
    assert!(completing.is_err());
    assert!(
        world.until_free().await.is_none(),
        "completed, not given back"
    );
}

#[tokio::test(start_paused = true)]
async fn a_claim_settled_elsewhere_sends_nothing() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    let claim = queue.claim().await.unwrap();
    let own = claim.claim_ref().clone();
    let name = queue.name().clone();
    let batch = [(own, lease_queue::Settle::Complete)];
    lease_queue::QueueStore::settle(&world.memory, &name, &batch).await[0]
        .as_ref()
        .unwrap();
    claim.settled();
    assert!(queue.shutdown(secs(5)).await.settled);
    assert_eq!(world.calls(Op::Settle), 0);
}

#[tokio::test(start_paused = true)]
async fn a_zombie_is_told_that_it_lost_and_harms_nobody() {
    let world = World::new();
    let (one, two) = (world.queue(), world.queue());
    one.put(&mail("ann")).await.unwrap();
    let first = one.claim().await.unwrap();
    // Its renewals do not come through, and its claim expires.
    world.fails(Op::Extend, &[Fault::Unavailable; 1000]);
    let lost = first.lease().lost().await;
    assert!(matches!(lost.reason, LostReason::Unconfirmed { .. }));
    let second = two.claim_within(secs(20)).await.unwrap().unwrap();
    world.heals();
    assert!(second.token() > first.token());
    let error = first.complete().await.unwrap_err();
    let SettleError::Lost(lost) = error else {
        panic!("{error}");
    };
    assert!(
        matches!(lost.reason, LostReason::Store(LostCause::TakenOver)),
        "{lost}"
    );
    tokio::time::sleep(secs(30)).await;
    assert!(second.lease().check().is_ok());
    second.complete().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_beside_a_settle_tells_of_no_loss() {
    let world = World::new();
    let losses = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&losses);
    let queue = world.builder().observer(move |event: &Event| {
        let lost = matches!(event.kind, EventKind::Lost { .. });
        counting.fetch_add(usize::from(lost), Ordering::SeqCst);
    });
    let queue = queue.build().unwrap();
    queue.put(&mail("ann")).await.unwrap();
    let claim = queue.claim().await.unwrap();
    let extends = world.calls(Op::Extend);
    // The first one completes the item; for seconds nobody is told so.
    world.fails(Op::Settle, &[Fault::LosesReply]);
    world.fails(Op::Settle, &[Fault::Unavailable; 11]);
    claim.complete().await.unwrap();
    assert!(
        world.calls(Op::Extend) > extends,
        "a renewal was sent meanwhile"
    );
    assert!(queue.shutdown(secs(5)).await.settled);
    assert_eq!(losses.load(Ordering::SeqCst), 0);
}

/// Of its own, at the store they are the same claim's.
#[tokio::test(start_paused = true)]
async fn an_item_that_a_shutdown_gave_back_is_not_completed() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    let claim = queue.claim().await.unwrap();
    queue.shutdown(secs(4)).await;
    assert_eq!(world.item().await.unwrap().phase, Phase::Ready);
    let Err(SettleError::Lost(lost)) = claim.complete().await else {
        panic!("somebody else will do it again");
    };
    let reason = LostReason::Store(LostCause::Released);
    assert_eq!(lost.reason.to_string(), reason.to_string());
    assert_eq!(world.item().await.unwrap().phase, Phase::Ready);
}

#[tokio::test(start_paused = true)]
async fn what_was_completed_unheard_is_not_said_to_have_failed() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    let claim = queue.claim().await.unwrap();
    world.fails(Op::Settle, &[Fault::LosesReply; 64]);
    let Err(SettleError::Unsettled { claim, .. }) = claim.complete().await else {
        panic!("no answer came");
    };
    world.heals();
    let failed = claim.fail("a second thought").await;
    assert!(matches!(failed, Err(SettleError::Lost(_))), "{failed:?}");
    assert!(world.item().await.is_none(), "it was completed");
}
