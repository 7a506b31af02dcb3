//! What observers are told, and that they can harm nothing.

use std::sync::Arc;

use lease_core::{Error, Event, EventKind, Leases, Lost, StoreErrorKind};

use crate::support::{Op, Step, World, lost_of, ms, secs};

#[tokio::test(start_paused = true)]
async fn a_whole_life_is_told_in_its_order() {
    let world = World::new();
    let holder = world
        .other()
        .lease("k")
        .ttl(secs(1))
        .acquire()
        .await
        .unwrap();
    holder.detach().unwrap();
    let unavailable = StoreErrorKind::Unavailable;
    world.store.next(Op::Acquire, [Step::Fail(unavailable)]);
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    world.store.next(Op::Renew, [Step::Fail(unavailable)]);
    tokio::time::sleep(ms(1_200)).await;
    lease.release().await.unwrap();
    assert_eq!(
        world.words(),
        [
            "attempt",
            "attempt_failed",
            "attempt",
            "contended",
            "attempt",
            "contended",
            "attempt",
            "granted",
            "renewal_failed",
            "renewed",
            "released",
        ]
    );
    let events = world.events();
    assert!(events.iter().all(|e| e.owner == events[0].owner));
    for event in &events {
        match &event.kind {
            EventKind::Granted {
                waited,
                attempts,
                valid_for,
                taken_over,
                ..
            } => {
                assert!(*waited >= secs(1) && *attempts == 4);
                assert_eq!(*valid_for, ms(2_968));
                assert!(taken_over.is_some());
            }
            EventKind::Released { held_for, .. } => assert_eq!(*held_for, ms(1_200)),
            EventKind::Renewed { valid_for, .. } => assert_eq!(*valid_for, ms(2_968)),
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_once_with_its_reason() {
    let world = World::new();
    let leases = world.leases();
    let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
    world.store.always(Op::Renew, Step::LoseRequest);
    lease.lost().await;
    lease.check().unwrap_err();
    leases.shutdown(secs(1)).await;
    drop(lease);
    tokio::time::sleep(secs(9)).await;
    let lost: Vec<_> = world
        .events()
        .into_iter()
        .filter_map(|e| match e.kind {
            EventKind::Lost { reason } => Some(reason.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(lost, ["unconfirmed"]);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_harms_nothing() {
    let world = World::new();
    let leases = world
        .builder()
        .observer(|event: &Event| panic!("scripted: {}", event.kind.as_str()))
        .build();
    let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
    tokio::time::sleep(secs(30)).await;
    lease.check().unwrap();
    lease.release().await.unwrap();
    // Also while something else unwinds.
    world.store.next(Op::Acquire, [Step::LoseReply]);
    let acquire = leases.lease("k").ttl(secs(3)).acquire();
    let task = tokio::spawn(async move {
        tokio::select! {
            _ = acquire => {}
            () = tokio::time::sleep(ms(1)) => panic!("scripted: beside it"),
        }
    });
    task.await.unwrap_err();
    tokio::time::sleep(ms(10)).await;
    assert!(world.is_free("k").await);
    // Observers after it are told all the same.
    assert!(world.words().contains(&"abandoned"));
    assert!(leases.shutdown(secs(1)).await.settled);
}

#[tokio::test(start_paused = true)]
async fn an_observer_may_use_the_client() {
    let world = World::new();
    let slot: Arc<std::sync::OnceLock<Leases>> = Arc::default();
    let mine = Arc::clone(&slot);
    let leases = world
        .builder()
        .observer(move |event: &Event| {
            if let Some(leases) = mine.get() {
                drop(leases.lease(event.key.clone()));
                let _ = leases.guarantees();
            }
        })
        .build();
    slot.set(leases.clone()).unwrap();
    let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
    world.store.always(Op::Renew, Step::LoseRequest);
    lease.lost().await;
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_event_and_no_debug_form_shows_an_owner() {
    let world = World::new();
    let leases = world.leases();
    let mut shown = Vec::new();
    let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
    let mut owners = vec![lease.owner().to_string()];
    shown.push(format!("{lease:?} {leases:?}"));
    shown.push(format!("{:?}", leases.lease("k")));
    shown.push(format!(
        "{:?}",
        world.other().lease("k").try_acquire().await
    ));
    world.clock.jump(secs(3));
    let lost: Lost = lease.check().unwrap_err();
    shown.push(format!("{lost:?} {lost}"));
    shown.push(format!("{:?}", lease.release().await));
    let lease = leases.lease("k2").acquire().await.unwrap();
    owners.push(lease.owner().to_string());
    shown.push(format!("{:?}", lease.detach()));
    shown.extend(world.events().iter().map(|e| format!("{e:?}")));
    for owner in owners {
        for text in &shown {
            assert!(!text.contains(&owner), "{text}");
            assert!(!text.contains(&owner[..16]), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn errors_say_what_to_do_and_whose() {
    let world = World::new();
    let leases = world.leases();
    let _holder = world
        .other()
        .lease("k")
        .label("worker-7")
        .acquire()
        .await
        .unwrap();
    let contended = leases.lease("k").wait(ms(10)).acquire().await.unwrap_err();
    assert!(contended.to_string().contains("worker-7"), "{contended}");
    assert!(contended.to_string().contains("\"k\""), "{contended}");
    world.store.next(Op::Acquire, [Step::LoseReply]);
    let silent = leases.lease("x").try_acquire().await.unwrap_err();
    assert!(
        silent
            .to_string()
            .contains("check that the store is reachable"),
        "{silent}"
    );
    world.store.next(Op::Acquire, [Step::Panic]);
    let panicked = leases.lease("x").try_acquire().await.unwrap_err();
    assert!(panicked.to_string().contains("please report"), "{panicked}");
    let lease = leases.lease("y").ttl(secs(3)).acquire().await.unwrap();
    world.store.always(Op::Renew, Step::LoseRequest);
    let lost = lease.lost().await;
    assert!(lost.to_string().contains("stop writing"), "{lost}");
    assert!(
        lost.to_string().contains("check the store's latency"),
        "{lost}"
    );
    world.store.always(
        Op::Release,
        Step::Released(lease_core::ReleaseOutcome::NotHeld),
    );
    let released: Error = lease.release().await.unwrap_err();
    assert_eq!(lost_of(released).to_string(), lost.to_string());
}
