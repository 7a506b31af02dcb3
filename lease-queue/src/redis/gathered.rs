//! Claims and settles of many tasks in one call of a script.

use async_trait::async_trait;
use lease_core::{Owner, StoreError};

use super::RedisQueues;
use super::args::Args;
use super::reply::{self, Reply};
use super::scripts::Op;
use crate::MAX_BATCH;
use crate::gather::Sends;
use crate::item::ClaimRef;
use crate::keyed::unanswered;
use crate::name::QueueName;
use crate::store::{Answer, ClaimRequest, Settle, Settled, What};

/// What one task asks for.
pub(crate) enum Asked {
    Claim(ClaimRequest),
    Settle((ClaimRef, Settle)),
}

/// What it is told.
pub(crate) enum Told {
    Claim(Answer),
    Settle(Settled),
}

#[async_trait]
impl Sends for RedisQueues {
    type Request = Asked;
    type Answer = Told;

    fn go_together(one: &Asked, other: &Asked) -> bool {
        match (one, other) {
            // Whoever asks for many fills an answer alone.
            (Asked::Claim(one), Asked::Claim(other)) => most(one) == 1 && most(other) == 1,
            (Asked::Settle(_), Asked::Settle(_)) => true,
            _ => false,
        }
    }

    async fn send(&self, queue: &QueueName, requests: &[Asked]) -> Vec<Result<Told, StoreError>> {
        let (mut claims, mut settles) = (Vec::new(), Vec::new());
        for request in requests {
            match request {
                Asked::Claim(claim) => claims.push(claim),
                Asked::Settle(settle) => settles.push(settle),
            }
        }
        let mut claims = self.claim_all(queue, &claims).await.into_iter();
        let mut settles = self.settle_some(queue, &settles).await.into_iter();
        let told = |request: &Asked| match request {
            Asked::Claim(_) => claims
                .next()
                .unwrap_or_else(|| Err(unanswered()))
                .map(Told::Claim),
            Asked::Settle(_) => {
                let settled = settles.next().unwrap_or_else(|| Err(unanswered()));
                settled.map(Told::Settle)
            }
        };
        requests.iter().map(told).collect()
    }
}

fn most(request: &ClaimRequest) -> usize {
    match request.what {
        What::Next { max } => max,
        What::Key { .. } => 1,
    }
}

impl RedisQueues {
    pub(super) async fn gathered_claim(
        &self,
        queue: &QueueName,
        request: &ClaimRequest,
    ) -> Result<Answer, StoreError> {
        let asked = Asked::Claim(request.clone());
        match self.gather.ask(self, queue, asked).await? {
            Told::Claim(answer) => Ok(answer),
            Told::Settle(_) => Err(reply::odd()),
        }
    }

    pub(super) async fn gathered_settle(
        &self,
        queue: &QueueName,
        claim: &ClaimRef,
        settle: &Settle,
    ) -> Result<Settled, StoreError> {
        let asked = Asked::Settle((claim.clone(), settle.clone()));
        match self.gather.ask(self, queue, asked).await? {
            Told::Settle(settled) => Ok(settled),
            Told::Claim(_) => Err(reply::odd()),
        }
    }

    /// Of `What::Next` alone. Never twice: of a copy that took effect behind the answer
    /// nobody would know.
    async fn claim_all(
        &self,
        queue: &QueueName,
        claims: &[&ClaimRequest],
    ) -> Vec<Result<Answer, StoreError>> {
        if claims.is_empty() {
            return Vec::new();
        }
        let mut args = Args::of_many(claims.len());
        claims
            .iter()
            .for_each(|request| args.claim(request, most(request)));
        let read =
            |(reply, owner): (Reply, Owner)| reply.read(Op::Claim.doing())?.claimed_next(owner);
        let owners = claims.iter().map(|request| request.owner);
        match self.ask(Op::Claim, queue, args, false).await {
            Ok((replies, _)) if replies.len() == claims.len() => {
                replies.into_iter().zip(owners).map(read).collect()
            }
            Ok(_) => owners.map(|_| Err(reply::odd())).collect(),
            Err(error) => owners.map(|_| Err(error.clone())).collect(),
        }
    }

    /// In as many requests as it takes.
    pub(super) async fn settle_all(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        let mut settled = Vec::with_capacity(claims.len());
        for batch in claims.chunks(MAX_BATCH) {
            let batch: Vec<_> = batch.iter().collect();
            settled.extend(self.settle_some(queue, &batch).await);
        }
        settled
    }

    async fn settle_some(
        &self,
        queue: &QueueName,
        claims: &[&(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        if claims.is_empty() {
            return Vec::new();
        }
        let mut args = Args::of_many(claims.len());
        for (claim, settle) in claims {
            args.settle(claim, settle);
        }
        // Whoever does not know what came of the others repeats them, and is told so.
        let may_repeat = claims
            .iter()
            .all(|(_, settle)| matches!(settle, Settle::Extend(_)));
        match self.ask(Op::Settle, queue, args, may_repeat).await {
            Ok((replies, doubt)) if replies.len() == claims.len() => {
                let settled = replies.into_iter().map(|reply| {
                    let settled = reply.read(Op::Settle.doing()).and_then(|it| it.settled());
                    settled.map_err(|error| reply::doubtful(error, doubt.as_ref()))
                });
                settled.collect()
            }
            Ok(_) => claims.iter().map(|_| Err(reply::odd())).collect(),
            Err(error) => claims.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}
