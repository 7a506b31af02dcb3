//! How many round trips it takes until somebody who waits has what became free.
//!
//! The one who waits is far from the server, by a proxy: what its way takes is that of
//! the trips, and everything else is little beside it. The others are near.

mod counting;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lease_core::{Key, Leases, Owner};
use lease_queue::{
    Answer, ClaimRequest, ItemId, KeyedLeases, NewItem, Queue, QueueName, QueueStore, Raw, What,
};
use tokio::time::Instant;

use counting::Counting;

/// What a trip takes, there and back: by far more than what is done in between.
pub(crate) const TRIP: Duration = Duration::from_millis(300);
const MOST: u32 = 3;
/// Something else on the machine may take long, and only ever adds: one of them shows
/// how many trips it takes.
const TRIES: usize = 3;

fn jobs() -> QueueName {
    QueueName::new("trips").unwrap()
}

fn queue(store: Arc<dyn QueueStore>) -> Queue<Vec<u8>, Raw> {
    let builder = Queue::<Vec<u8>, Raw>::raw_builder(store, jobs().as_str());
    builder.ttl(Duration::from_secs(60)).build().unwrap()
}

fn item(group: Option<&str>) -> NewItem {
    NewItem {
        id: ItemId::random().unwrap(),
        body: Bytes::from_static(b"work"),
        group: group.map(|group| Key::new(group).unwrap()),
        dedup: None,
        delay: Duration::ZERO,
    }
}

/// What makes an item free for who waits.
#[derive(Clone, Copy, Debug)]
enum Event {
    Put,
    GivenBack,
    Completed,
    Abandoned,
}

/// Checks both kinds of waiting on a store of which `far` is a client over the proxy.
pub(crate) async fn are_three_at_most(near: Arc<dyn QueueStore>, far: Arc<dyn QueueStore>) {
    for event in [
        Event::Put,
        Event::GivenBack,
        Event::Completed,
        Event::Abandoned,
    ] {
        let way = format!("{event:?}");
        one_of_some(&way, || item_after(event, &near, &far)).await;
    }
    one_of_some("a key's release", || key_after_a_release(&near, &far)).await;
}

async fn one_of_some<F>(way: &str, mut once: impl FnMut() -> F)
where
    F: Future<Output = (Duration, usize)>,
{
    let mut took = Vec::new();
    for _ in 0..TRIES {
        let (time, asked) = once().await;
        // The hint, and each look.
        assert!(asked < MOST as usize, "{way}: {asked} looks");
        took.push(time);
        if time <= TRIP * MOST {
            return;
        }
    }
    panic!("{way}: {took:?}, and a trip takes {TRIP:?}");
}

/// How long it took from the event's acknowledgement to the claim, and how often was
/// asked for it.
async fn item_after(
    event: Event,
    near: &Arc<dyn QueueStore>,
    far: &Arc<dyn QueueStore>,
) -> (Duration, usize) {
    let mine = queue(Arc::clone(near));
    let group = match event {
        Event::Completed => Some("g"),
        _ => None,
    };
    let owner = Owner::random().unwrap();
    let held = match event {
        Event::Put => None,
        Event::Abandoned => {
            near.put(&jobs(), &[item(None)]).await.unwrap();
            let request = ClaimRequest {
                owner,
                ttl: lease_core::Ttl::new(Duration::from_secs(60)).unwrap(),
                label: lease_core::Label::EMPTY,
                what: What::Next { max: 1 },
            };
            let answer = near.claim(&jobs(), &request).await.unwrap();
            assert!(matches!(answer, Answer::Claimed { .. }), "{answer:?}");
            None
        }
        Event::GivenBack | Event::Completed => {
            let both = [item(group), item(group)];
            let some = if group.is_some() {
                &both[..]
            } else {
                &both[..1]
            };
            near.put(&jobs(), some).await.unwrap();
            Some(mine.claim().await.unwrap())
        }
    };
    let counting = Counting::over(Arc::clone(far));
    let theirs = queue(Arc::clone(&counting) as Arc<dyn QueueStore>);
    let waiting = tokio::spawn(async move {
        let claim = theirs.claim().await.unwrap();
        (Instant::now(), claim)
    });
    counting.until_asleep().await;
    let before = counting.asked();
    match (event, held) {
        (Event::Put, _) => drop(near.put(&jobs(), &[item(None)]).await.unwrap()),
        (Event::GivenBack, Some(held)) => held.abandon().await.unwrap(),
        (Event::Completed, Some(held)) => held.complete().await.unwrap(),
        _ => near.abandon(&jobs(), None, owner).await.unwrap(),
    }
    let known = Instant::now();
    let (then, claim) = waiting.await.unwrap();
    let asked = counting.asked() - before;
    claim.complete().await.unwrap();
    (then.saturating_duration_since(known), asked)
}

async fn key_after_a_release(
    near: &Arc<dyn QueueStore>,
    far: &Arc<dyn QueueStore>,
) -> (Duration, usize) {
    let leases = |store| Leases::new(Arc::new(KeyedLeases::new(store, jobs())));
    let mine = leases(Arc::clone(near));
    let counting = Counting::over(Arc::clone(far));
    let theirs = leases(Arc::clone(&counting) as Arc<dyn QueueStore>);
    let held = mine.lease("key").acquire().await.unwrap();
    let waiting = tokio::spawn(async move {
        let lease = theirs.lease("key").acquire().await.unwrap();
        (Instant::now(), lease)
    });
    counting.until_asleep().await;
    let before = counting.asked();
    held.release().await.unwrap();
    let known = Instant::now();
    let (then, lease) = waiting.await.unwrap();
    let asked = counting.asked() - before;
    lease.release().await.unwrap();
    (then.saturating_duration_since(known), asked)
}
