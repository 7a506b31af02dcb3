#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_core::{
    Event, EventKind, LeaseBackend as _, ReleaseOutcome, RenewRequest, StoreErrorKind,
};

use crate::queue::{Claim, Queue};
use crate::store::Settled;
use crate::{Json, MemoryQueues};

type Heard = Arc<Mutex<Vec<EventKind>>>;

async fn claimed() -> (Queue<u32, Json>, Claim<u32>, Heard) {
    let heard = Heard::default();
    let mine = Arc::clone(&heard);
    let queue = Queue::<u32>::builder(Arc::new(MemoryQueues::new()), "jobs")
        .observer(move |event: &Event| mine.lock().unwrap().push(event.kind.clone()))
        .build()
        .unwrap();
    queue.put(&1).await.unwrap();
    let claim = queue.claim().await.unwrap();
    (queue, claim, heard)
}

#[tokio::test(start_paused = true)]
async fn a_renewal_right_after_the_settle_says_nothing_of_a_loss() {
    let (queue, claim, heard) = claimed().await;
    claim.hold.entry.end(Some(Settled::Done));
    let lease = claim.lease();
    let request = RenewRequest {
        key: lease.key().clone(),
        owner: lease.owner(),
        token: lease.token(),
        ttl: queue.inner().ttl,
    };
    let told = queue.inner().claims.renew(&request).await;
    assert_eq!(told.unwrap_err().kind(), StoreErrorKind::Unavailable);
    drop(claim);
    assert!(queue.shutdown(Duration::from_secs(1)).await.settled);
    let heard = heard.lock().unwrap();
    assert!(matches!(
        heard[..],
        [EventKind::Granted { .. }, EventKind::Released { .. }]
    ));
}

#[tokio::test(start_paused = true)]
async fn one_that_was_settled_and_given_up_is_told_of_as_released() {
    let (queue, claim, heard) = claimed().await;
    claim.hold.entry.end(Some(Settled::Done));
    claim.lease().give_up();
    // Before its release, which is in the background, has looked for it.
    drop(claim);
    assert!(queue.shutdown(Duration::from_secs(1)).await.settled);
    let heard = heard.lock().unwrap();
    let released = heard.iter().find_map(|kind| match kind {
        EventKind::Released { outcome, .. } => Some(*outcome),
        _ => None,
    });
    assert_eq!(released, Some(ReleaseOutcome::Released));
}
