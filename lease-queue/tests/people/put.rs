//! Putting.

use std::sync::Arc;

use bytes::Bytes;
use lease_conformance::queue::Wrapped;
use lease_queue::{Added, MemoryQueues, Queue, QueueError, QueueInput, Raw};

use crate::world::{Fault, Mail, Op, World, mail, ms, secs};

#[tokio::test(start_paused = true)]
async fn payloads_of_the_applications_own_types_come_back() {
    let queue = World::new().queue();
    assert_eq!(queue.put(&mail("ann")).await.unwrap(), Added::Added);
    let claim = queue.claim().await.unwrap();
    assert_eq!(claim.payload(), &mail("ann"));
    assert_eq!((claim.attempt(), claim.group()), (1, None));
    claim.complete().await.unwrap();
    assert_eq!(queue.depth().await.unwrap().ready, 0);
}

#[tokio::test(start_paused = true)]
async fn raw_bytes_are_left_as_they_are() {
    let store = Arc::new(MemoryQueues::new());
    let queue: Queue<Bytes, Raw> = Queue::raw_builder(store, "raw").build().unwrap();
    let body = Bytes::from_static(&[0, 255, 7]);
    queue.put(&body).await.unwrap();
    assert_eq!(queue.claim().await.unwrap().payload(), &body);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_repeated_and_adds_once() {
    let world = World::new();
    let queue = world.queue();
    world.fails(Op::Put, &[Fault::LosesReply, Fault::Unavailable]);
    queue.put(&mail("ann")).await.unwrap();
    assert_eq!(queue.depth().await.unwrap().ready, 1);
    world.fails(Op::Put, &[Fault::LosesReply; 4]);
    let mut put = queue.put(&mail("ben"));
    let error = put.send().await.unwrap_err();
    assert!(matches!(error, QueueError::Store(e) if e.is_unknown_outcome()));
    assert_eq!(put.send().await.unwrap(), Added::Added);
    assert_eq!(queue.depth().await.unwrap().ready, 2);
}

#[tokio::test(start_paused = true)]
async fn group_delay_and_deduplication_go_with_the_item() {
    let queue = World::new().queue();
    let put = queue.put(&mail("ann")).group("g").dedup("d").delay(secs(5));
    let of = put.id().unwrap();
    put.await.unwrap();
    let second = queue.put(&mail("ann")).dedup("d").await.unwrap();
    assert_eq!(second, Added::Duplicate { of });
    assert!(queue.try_claim().await.unwrap().is_none());
    let claim = queue.claim_within(secs(6)).await.unwrap().unwrap();
    assert_eq!(claim.group().unwrap().as_str(), "g");
    assert!(claim.age() >= secs(5));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_valid_is_said_before_anything_is_sent() {
    let world = World::new();
    let queue = world.queue();
    for put in [
        queue.put(&mail("a")).group(""),
        queue.put(&mail("a")).group("g".repeat(481)),
        queue.put(&mail("a")).dedup("d\0"),
    ] {
        let error = put.await.unwrap_err();
        let input = matches!(error, QueueError::Input(_) | QueueError::Invalid(_));
        assert!(input, "{error}");
    }
    assert_eq!(world.calls(Op::Put), 0);
    let large = mail(&"x".repeat(600_000));
    let error = queue.put(&large).await.unwrap_err();
    assert!(error.to_string().contains("524288"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn settings_that_no_queue_takes_are_said_at_once() {
    let world = World::new();
    let builder = || world.builder();
    let bad = [
        builder().ttl(ms(1)).build(),
        builder().max_hold(secs(0)).build(),
        builder().progress_within(secs(0)).build(),
        builder().max_attempts(0).build(),
        builder().label("l".repeat(257)).build(),
    ];
    assert!(bad.iter().all(Result::is_err), "{bad:?}");
    let named = Queue::<Mail>::builder(Arc::new(Wrapped(world)), "\n").build();
    let error = named.unwrap_err();
    assert!(
        matches!(error, QueueError::Input(QueueInput::Name(_))),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn many_are_put_in_order() {
    let queue = World::new().queue();
    let all: Vec<_> = (0..600).map(|n| mail(&n.to_string())).collect();
    assert_eq!(queue.put_many(&all).await.unwrap().len(), 600);
    for due in all.iter().take(3) {
        let claim = queue.claim().await.unwrap();
        assert_eq!(claim.payload(), due);
        claim.complete().await.unwrap();
    }
}
