//! A store of queues with a witness: notes what its client asked for, and what came of
//! it, and changes nothing.

use std::sync::Arc;

use async_trait::async_trait;
use lease_conformance::queue::{Wrapped, Wraps};
use lease_core::{DriftAllowance, Key, Owner, StoreError, Ttl};
use lease_queue::{
    Answer, ClaimRef, ClaimRequest, Claimed, Lane, QueueName, QueueStore, Settle, Settled,
};

use crate::record::{Answered, Of, Record, Seen, now};

#[derive(Debug)]
pub(crate) struct Witness {
    store: Arc<dyn QueueStore>,
    record: Arc<Record>,
}

/// The group's number.
pub(crate) fn group(lane: &Lane) -> usize {
    let Lane::Group(group) = lane else {
        panic!("all items are in groups, not in {lane:?}");
    };
    group.as_str().parse().unwrap()
}

pub(crate) fn of(claim: &ClaimRef) -> Of {
    Of::new(group(&claim.lane), claim.owner, claim.token)
}

/// The last moment at which its holder may act on what was asked for then.
fn deadline(asked: u64, ttl: Ttl) -> u64 {
    let validity = DriftAllowance::default().validity(ttl);
    asked + u64::try_from(validity.as_nanos()).unwrap()
}

impl Witness {
    pub(crate) fn of(store: Arc<dyn QueueStore>, record: Arc<Record>) -> Arc<Wrapped<Self>> {
        Arc::new(Wrapped(Self { store, record }))
    }

    fn claimed(&self, item: &Claimed, asked: u64, from: u64, ttl: Ttl) {
        self.record.note(&Seen::Claimed {
            of: of(&item.claim),
            work: serde_json::from_slice(&item.body).unwrap(),
            attempt: item.attempt,
            asked,
            from,
            until: deadline(asked, ttl),
        });
    }

    fn answered(&self, claim: &ClaimRef, settle: &Settle, sent: u64, settled: Settled) {
        let of = of(claim);
        match (settle, settled) {
            (Settle::Extend(ttl), Settled::Done) => self.record.note(&Seen::Extended {
                of,
                until: deadline(sent, *ttl),
            }),
            (Settle::Extend(_), _) => {}
            (settle, settled) => self.record.note(&Seen::Ended {
                of,
                completes: *settle == Settle::Complete,
                answered: match settled {
                    Settled::Done => Answered::Done,
                    Settled::Before => Answered::Before,
                    Settled::Lost(_) => Answered::Lost,
                },
            }),
        }
    }
}

#[async_trait]
impl Wraps for Witness {
    fn inner(&self) -> Arc<dyn QueueStore> {
        Arc::clone(&self.store)
    }

    async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
        let asked = now();
        let answer = self.store.claim(queue, request).await?;
        let from = now();
        if let Answer::Claimed { items, .. } = &answer {
            for item in items {
                self.claimed(item, asked, from, request.ttl);
            }
        }
        Ok(answer)
    }

    async fn settle(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        let sent = now();
        for (claim, settle) in claims {
            if !matches!(settle, Settle::Extend(_)) {
                let of = of(claim);
                self.record.note(&Seen::Ending { of, at: sent });
            }
        }
        let answers = self.store.settle(queue, claims).await;
        for ((claim, settle), answer) in claims.iter().zip(&answers) {
            if let Ok(settled) = answer {
                self.answered(claim, settle, sent, *settled);
            }
        }
        answers
    }

    async fn abandon(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
        owner: Owner,
    ) -> Result<(), StoreError> {
        self.record.note(&Seen::Abandoning {
            owner: u128::from_be_bytes(*owner.as_bytes()),
            at: now(),
        });
        self.store.abandon(queue, key, owner).await
    }
}
