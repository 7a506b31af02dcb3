//! How many round trips it takes until somebody who waits has what became free.
//!
//! The one who waits is far from the server, by a proxy, and the others are near. The
//! proxy counts what follows from each other, so that a trip is one whatever else the
//! machine does; and each look must follow a hint, so that nothing is waited for that is
//! not of the network. That all of it takes no longer than its trips is timed as well.

mod counting;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lease_conformance::proxy::FaultProxy;
use lease_core::{Key, Leases, Owner};
use lease_queue::{
    Answer, ClaimRequest, ItemId, KeyedLeases, NewItem, Queue, QueueName, QueueStore, Raw, What,
};
use tokio::time::Instant;

use counting::Counting;

/// What a trip takes, there and back: by far more than what is done in between.
const TRIP: Duration = Duration::from_millis(300);
const MOST: u32 = 3;
/// Something else on the machine may take long, and a client that has heard nothing for a
/// while may look whether it still hears: either only ever adds, to the time or to what
/// seems to follow from each other. One of them shows how many trips it takes.
const TRIES: usize = 3;

/// A client behind a proxy.
pub(crate) struct Far {
    store: Arc<dyn QueueStore>,
    proxy: FaultProxy,
}

/// Until something that became free was claimed.
#[derive(Debug)]
struct Took {
    /// From when who freed it knew that it was.
    time: Duration,
    /// Half a trip is one.
    hops: u64,
    looks: usize,
    /// That followed no hint.
    by_timer: usize,
}

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

impl Far {
    /// Of a client that is over the proxy, which is far away from now on.
    pub(crate) fn new(store: impl QueueStore, proxy: FaultProxy) -> Self {
        proxy.delay(TRIP / 2, TRIP / 2);
        let store = Arc::new(store);
        Self { store, proxy }
    }

    /// Frees what `claim` waits for on this client, once it sleeps: what that took.
    async fn claims<T>(
        &self,
        counting: &Counting,
        claim: impl Future<Output = T>,
        free: impl Future<Output = ()>,
    ) -> (Took, T) {
        let claimed = async {
            let claimed = claim.await;
            (Instant::now(), self.proxy.hops(), counting.asked(), claimed)
        };
        let freed = async {
            counting.until_asleep().await;
            self.proxy.count_hops();
            free.await;
            Instant::now()
        };
        let ((then, hops, (looks, by_timer), claimed), known) = tokio::join!(claimed, freed);
        let took = Took {
            time: then.saturating_duration_since(known),
            hops,
            looks,
            by_timer,
        };
        (took, claimed)
    }
}

/// Checks both kinds of waiting on a store.
pub(crate) async fn are_three_at_most(near: Arc<dyn QueueStore>, far: Far) {
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
    F: Future<Output = Took>,
{
    let mut all = Vec::new();
    for _ in 0..TRIES {
        let took = once().await;
        // The hint, and each look.
        assert!(took.looks < MOST as usize, "{way}: {took:?}");
        assert_eq!(took.by_timer, 0, "{way}: {took:?}");
        let is_short = took.time <= TRIP * MOST && took.hops <= 2 * u64::from(MOST);
        all.push(took);
        if is_short {
            return;
        }
    }
    panic!("{way}: {all:?}, and a trip takes {TRIP:?}");
}

async fn item_after(event: Event, near: &Arc<dyn QueueStore>, far: &Far) -> Took {
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
    let counting = Counting::over(Arc::clone(&far.store));
    let theirs = queue(Arc::clone(&counting) as Arc<dyn QueueStore>);
    let free = async {
        match (event, held) {
            (Event::Put, _) => drop(near.put(&jobs(), &[item(None)]).await.unwrap()),
            (Event::GivenBack, Some(held)) => held.abandon().await.unwrap(),
            (Event::Completed, Some(held)) => held.complete().await.unwrap(),
            _ => near.abandon(&jobs(), None, owner).await.unwrap(),
        }
    };
    let (took, claim) = far.claims(&counting, theirs.claim(), free).await;
    claim.unwrap().complete().await.unwrap();
    took
}

async fn key_after_a_release(near: &Arc<dyn QueueStore>, far: &Far) -> Took {
    let leases = |store| Leases::new(Arc::new(KeyedLeases::new(store, jobs())));
    let mine = leases(Arc::clone(near));
    let counting = Counting::over(Arc::clone(&far.store));
    let theirs = leases(Arc::clone(&counting) as Arc<dyn QueueStore>);
    let held = mine.lease("key").acquire().await.unwrap();
    let free = async {
        held.release().await.unwrap();
    };
    let claim = theirs.lease("key").acquire();
    let (took, lease) = far.claims(&counting, claim, free).await;
    lease.unwrap().release().await.unwrap();
    took
}
