//! Waiters and holders on several runtimes, some of which end. On real time:
//! tokio's paused time ends with its runtime.

use std::sync::{Arc, Mutex};

use futures_util::{FutureExt, StreamExt};
use lease_core::{Key, LeaseBackend};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use super::wait;
use crate::support::{Op, Step, World, ms, secs};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Lets everything that is ready run.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_holder_whose_runtime_ends_is_no_reason_to_sleep() {
    let (world, gone, present) = (World::new(), runtime(), runtime());
    let leases = world.leases();
    let acquire = leases.lease("k").ttl(secs(600)).acquire();
    let holder = gone.block_on(acquire).unwrap();
    let _next = present.spawn(wait(&world, &leases));
    present.block_on(settle());
    assert_eq!(world.store.count(Op::Acquire), 1);
    drop(gone);
    present.block_on(settle());
    // It asks, and then whoever gives the grant back wakes it.
    assert!(world.store.count(Op::Acquire) >= 2);
    holder.check().unwrap_err();
    drop(holder);
}

#[test]
fn a_release_that_its_runtimes_end_cuts_short_is_no_reason_to_sleep() {
    let (world, gone, present) = (World::new(), runtime(), runtime());
    world.store.always(Op::Release, Step::LoseRequest);
    let leases = world.leases();
    let acquire = leases.lease("k").ttl(secs(600)).acquire();
    drop(gone.block_on(acquire).unwrap());
    gone.block_on(settle());
    assert_eq!(world.store.count(Op::Release), 1);
    let _next = present.spawn(wait(&world, &leases));
    present.block_on(settle());
    assert_eq!(world.store.count(Op::Acquire), 1);
    drop(gone);
    present.block_on(settle());
    assert!(world.store.count(Op::Acquire) >= 2);
}

#[test]
fn a_holder_whose_runtime_stands_still_is_followed_by_the_clock() {
    let (world, still, present) = (World::new(), runtime(), runtime());
    let leases = world.leases();
    let acquire = leases.lease("k").ttl(ms(300)).acquire();
    let holder = still.block_on(acquire).unwrap();
    let start = world.now();
    let when = present.block_on(wait(&world, &leases));
    assert!(when.since(start) < secs(3));
    holder.check().unwrap_err();
}

#[test]
fn a_head_on_another_runtime_subscribes_for_itself() {
    let (world, gone, present) = (World::new(), runtime(), runtime());
    // A driver whose subscriptions fall silent with the runtime that they were
    // made on.
    let (memory, kept) = (world.store.memory(), Arc::new(Mutex::new(Vec::new())));
    let hints = move || {
        let key = Key::new("k").unwrap();
        let mut hints = memory.watch(&key).now_or_never().unwrap().unwrap();
        let (tx, rx) = mpsc::unbounded_channel();
        kept.lock().unwrap().push(tx.clone());
        tokio::spawn(async move {
            while let Some(hint) = hints.next().await {
                let _ = tx.send(hint);
            }
        });
        let next = |mut rx: mpsc::UnboundedReceiver<()>| async move {
            rx.recv().await?;
            Some(((), rx))
        };
        futures_util::stream::unfold(rx, next).boxed()
    };
    world.store.always(Op::Watch, Step::Hints(Arc::new(hints)));
    let (ours, theirs) = (world.leases(), world.other());
    let acquire = theirs.lease("k").ttl(secs(600)).acquire();
    let holder = present.block_on(acquire).unwrap();
    let _head = gone.spawn(wait(&world, &ours));
    gone.block_on(settle());
    let next = present.spawn(wait(&world, &ours));
    present.block_on(settle());
    assert_eq!(world.store.count(Op::Watch), 1);
    drop(gone);
    present.block_on(settle());
    assert_eq!(world.store.count(Op::Watch), 2);
    present.block_on(async {
        holder.release().await.unwrap();
        settle().await;
    });
    assert!(next.is_finished());
}
