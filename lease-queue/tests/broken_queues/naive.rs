//! Groups as a naive query keeps them: *claim an unlocked item of a group of which no
//! item is claimed* (`NOT EXISTS` … `FOR UPDATE SKIP LOCKED`). Two such queries that see
//! the same state each find no claim, and lock different items of one group.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use lease_conformance::queue::Wraps;
use lease_core::{Key, Owner, StoreError};
use lease_queue::{
    Added, Answer, ClaimRef, ClaimRequest, Depth, ItemId, ItemState, Lane, MemoryQueues, NewItem,
    Phase, QueueName, QueueStore, Settle, Settled, What,
};
use tokio::sync::oneshot;

/// Every item is a queue of its own in a reference store: what is locked is the item.
#[derive(Clone, Debug, Default)]
pub(crate) struct NaiveGroups {
    items: MemoryQueues,
    order: Arc<Mutex<Vec<Place>>>,
    /// A query that has its snapshot, and waits for another one.
    looked: Arc<Mutex<Option<oneshot::Sender<()>>>>,
}

/// How long a query waits for another one that has its snapshot too.
const TOGETHER: Duration = Duration::from_millis(20);

/// An item, and its group.
type Place = (ItemId, Option<Key>);

/// The queue of one item.
fn alone(item: ItemId) -> QueueName {
    QueueName::new(item.to_string()).unwrap()
}

impl NaiveGroups {
    fn order(&self) -> MutexGuard<'_, Vec<Place>> {
        self.order.lock().unwrap()
    }

    async fn state(&self, item: ItemId) -> Option<ItemState> {
        let state = self.items.items(&alone(item), false).next().await;
        state.and_then(Result::ok)
    }

    /// Statements take time: others' run between the snapshot and the locks. Here they do
    /// so for sure, however busy the machine is: two go on together.
    async fn meets_another(&self) {
        let met = {
            let mut looked = self.looked.lock().unwrap();
            if looked.take().is_some_and(|other| other.send(()).is_ok()) {
                return;
            }
            let (other, met) = oneshot::channel();
            *looked = Some(other);
            met
        };
        // Nobody comes, when there is only one that asks.
        let _ = tokio::time::timeout(TOGETHER, met).await;
    }

    /// The query's snapshot: items of groups without a claim, in order.
    async fn candidates(&self) -> Vec<Place> {
        let (mut claimed, mut free) = (HashSet::new(), Vec::new());
        let order = self.order().clone();
        for (item, group) in order {
            match self.state(item).await.map(|state| state.phase) {
                Some(Phase::Claimed(_)) => claimed.extend(group),
                Some(Phase::Ready) => free.push((item, group)),
                _ => {}
            }
        }
        let exists = |group: &Option<Key>| group.as_ref().is_some_and(|g| claimed.contains(g));
        free.retain(|(_, group)| !exists(group));
        free
    }
}

#[async_trait]
impl Wraps for NaiveGroups {
    fn inner(&self) -> Arc<dyn QueueStore> {
        Arc::new(self.items.clone())
    }

    async fn put(&self, _: &QueueName, items: &[NewItem]) -> Result<Vec<Added>, StoreError> {
        for item in items {
            let new = NewItem {
                group: None,
                ..item.clone()
            };
            self.items.put(&alone(item.id), &[new]).await?;
            self.order().push((item.id, item.group.clone()));
        }
        Ok(vec![Added::Added; items.len()])
    }

    async fn claim(&self, _: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
        let What::Next { max } = request.what else {
            return Err(StoreError::refusing("no keys here"));
        };
        let candidates = self.candidates().await;
        self.meets_another().await;
        let (mut claims, mut groups) = (Vec::new(), HashMap::new());
        for (item, group) in candidates {
            let taken = group.as_ref().is_some_and(|g| groups.contains_key(g));
            if claims.len() == max || taken {
                continue;
            }
            let locked = self.items.claim(&alone(item), request).await?;
            let Answer::Claimed { items, .. } = locked else {
                // SKIP LOCKED.
                continue;
            };
            for mut claimed in items {
                if let Some(group) = &group {
                    claimed.claim.lane = Lane::Group(group.clone());
                    groups.insert(group.clone(), item);
                }
                claims.push(claimed);
            }
        }
        Ok(match claims.is_empty() {
            true => Answer::Nothing { next: None },
            false => Answer::Claimed {
                items: claims,
                taken_over: None,
                repeated: false,
            },
        })
    }

    async fn settle(
        &self,
        _: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        let mut answers = Vec::new();
        for (claim, settle) in claims {
            let lane = Lane::Item(claim.item);
            let own = ClaimRef {
                lane,
                ..claim.clone()
            };
            let one = [(own, settle.clone())];
            answers.extend(self.items.settle(&alone(claim.item), &one).await);
        }
        answers
    }

    async fn abandon(&self, _: &QueueName, _: Option<&Key>, _: Owner) -> Result<(), StoreError> {
        Ok(())
    }

    async fn requeue(&self, _: &QueueName, item: ItemId) -> Result<bool, StoreError> {
        self.items.requeue(&alone(item), item).await
    }

    async fn depth(&self, _: &QueueName) -> Result<Depth, StoreError> {
        let mut depth = Depth::default();
        let order = self.order().clone();
        for (item, _) in order {
            let one = self.items.depth(&alone(item)).await?;
            depth.ready += one.ready;
            depth.in_flight += one.in_flight;
        }
        Ok(depth)
    }
}
