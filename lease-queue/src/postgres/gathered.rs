//! Claims and settles of many tasks in one call: one plan, one answer, and one flush to
//! the disk for all of them.

use async_trait::async_trait;
use lease_core::{StoreError, StoreErrorKind};
use lease_postgres::parts::odd;

use super::PostgresQueues;
use super::claim::Looked;
use super::settle::{One, Outcome};
use crate::gather::Sends;
use crate::item::ClaimRef;
use crate::keyed::unanswered;
use crate::name::QueueName;
use crate::store::{ClaimRequest, Settle};

/// What one task asks for.
pub(crate) enum Asked {
    Claim(ClaimRequest, usize),
    Settle((ClaimRef, Settle)),
}

/// What it is told.
pub(crate) enum Told {
    Claim(Looked),
    /// None where the lane's row is locked.
    Settle(Option<Outcome>),
}

#[async_trait]
impl Sends for PostgresQueues {
    type Request = Asked;
    type Answer = Told;

    fn go_together(one: &Asked, other: &Asked) -> bool {
        match (one, other) {
            // Whoever asks for many fills an answer alone.
            (Asked::Claim(_, one), Asked::Claim(_, other)) => *one == 1 && *other == 1,
            (Asked::Settle(_), Asked::Settle(_)) => true,
            _ => false,
        }
    }

    async fn send(&self, queue: &QueueName, requests: &[Asked]) -> Vec<Result<Told, StoreError>> {
        let error = match self.send_together(queue, requests).await {
            Ok(told) => return told,
            Err(error) => error,
        };
        // It had no effect, and one of them may be the reason.
        if error.kind() != StoreErrorKind::Refusing || requests.len() == 1 {
            return requests.iter().map(|_| Err(error.clone())).collect();
        }
        let mut told = Vec::with_capacity(requests.len());
        for request in requests {
            let one = self
                .send_together(queue, std::slice::from_ref(request))
                .await;
            told.push(one.and_then(|one| one.into_iter().next().unwrap_or_else(|| Err(odd()))));
        }
        told
    }
}

impl PostgresQueues {
    async fn send_together(
        &self,
        queue: &QueueName,
        requests: &[Asked],
    ) -> Result<Vec<Result<Told, StoreError>>, StoreError> {
        let (mut claims, mut settles) = (Vec::new(), Vec::new());
        for request in requests {
            match request {
                Asked::Claim(claim, max) => claims.push((claim, *max)),
                Asked::Settle(settle) => settles.push(settle),
            }
        }
        let mut told = Vec::with_capacity(requests.len());
        if !claims.is_empty() {
            let looked = self.look_for_all(queue, &claims).await?.into_iter();
            told.extend(looked.map(|one| one.map(Told::Claim)));
        }
        if !settles.is_empty() {
            let settled = self.ask(queue, &settles).await?.into_iter();
            told.extend(settled.map(|one| Ok(Told::Settle(one))));
        }
        Ok(told)
    }

    pub(super) async fn gathered_claim(
        &self,
        queue: &QueueName,
        request: &ClaimRequest,
        max: usize,
    ) -> Result<Looked, StoreError> {
        let asked = Asked::Claim(request.clone(), max);
        match self.gather.ask(self, queue, asked).await? {
            Told::Claim(looked) => Ok(looked),
            Told::Settle(_) => Err(unanswered()),
        }
    }

    /// None where the lane's row is locked.
    pub(super) async fn gathered_settle(
        &self,
        queue: &QueueName,
        one: One<'_>,
    ) -> Result<Option<Outcome>, StoreError> {
        match self
            .gather
            .ask(self, queue, Asked::Settle(one.clone()))
            .await?
        {
            Told::Settle(settled) => Ok(settled),
            Told::Claim(_) => Err(unanswered()),
        }
    }
}
