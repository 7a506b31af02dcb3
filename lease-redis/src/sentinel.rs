//! Which server is the primary: Redis's sentinels say so, and say when it is
//! another one.
//!
//! # Why not the driver's own `Sentinel`
//! It asks three sentinels side by side, and takes their answers in the order in
//! which they are listed: a first one that is silent holds every connection up
//! for the driver's own time limits, which cannot be set. It takes the first
//! answer, however old that sentinel's view, looks at the server's role over
//! another connection than the one it hands out, and tells nothing of a primary
//! that changes. Here all are asked at once, the newest of their answers counts
//! for as long as nobody names a newer one, and the role is asked for over the
//! connection that will be used.

mod answers;
mod ask;
mod follow;
mod look;
mod role;

#[cfg(test)]
mod tests;

use std::time::Duration;

use lease_core::{StoreError, StoreErrorKind};
use redis::RedisResult;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::address::Address;
use crate::client::{Client, Connection};
use crate::errors::{Phase, classify};
use answers::{Candidate, Choice};
pub(crate) use follow::{CHANNELS, Following};
use look::Look;
use role::{Role, role};

/// A primary as a sentinel names it. Each failover has a greater epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) address: Address,
    pub(crate) epoch: u64,
}

/// For whom a look at the sentinels waits. At a failover a single one, its
/// leader, knows of it first; the others hear of it from that one some seconds
/// later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    /// For those who are not much slower than most.
    Usual,
    /// For all, for [`PATIENCE`](look::PATIENCE) at most: there may be a failover.
    Great,
}

/// Some sentinels, and what they call the servers that they watch.
pub(crate) struct Sentinels {
    all: Vec<Client>,
    name: String,
    /// How a server with data is reached, but for its address.
    node: Client,
    /// The primary as it was last found.
    news: watch::Sender<Option<Named>>,
}

impl Sentinels {
    pub(crate) fn new(all: Vec<Client>, name: String, node: Client) -> Self {
        Self {
            all,
            name,
            node,
            news: watch::Sender::new(None),
        }
    }

    /// The same with sockets for short messages: see [`Client::tuned`].
    pub(crate) fn tuned(&self, response_timeout: Duration) -> RedisResult<Self> {
        let tuned = |client: &Client| client.tuned(response_timeout);
        let all = self.all.iter().map(tuned).collect::<RedisResult<_>>()?;
        Ok(Self::new(all, self.name.clone(), tuned(&self.node)?))
    }

    /// How a server with data is reached, but for its address.
    pub(crate) fn node(&self) -> &Client {
        &self.node
    }

    /// The sentinels.
    pub(crate) fn all(&self) -> &[Client] {
        &self.all
    }

    /// What they call the primary.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Asks who the primary is, and tells everybody who is connected to another
    /// server. When the answers differ, the servers themselves are asked, too.
    ///
    /// # Errors
    /// `Unavailable` when no sentinel answers, `Refusing` when those that do let
    /// us not in or know no such name.
    ///
    /// # Cancel safety
    /// Safe: it only asks.
    pub(crate) async fn primary(
        &self,
        within: Duration,
        care: Care,
    ) -> Result<Address, StoreError> {
        Look::begin(self, within).first(care).await
    }

    /// The newest that says itself that it is a primary. One that is a replica is
    /// none; one that cannot be reached may well be, and then only what most of
    /// the sentinels name is taken instead: that one sentinel is wrong must not
    /// shut everybody out.
    async fn choose(&self, candidates: Vec<Candidate>, end: Instant) -> Option<Choice> {
        let first = candidates.first()?.named.clone();
        if candidates.len() == 1 {
            return Some(Choice::of(first));
        }
        let mut dismissed = Vec::new();
        let mut doubt = false;
        for candidate in candidates {
            // Some time must be left for the next one, and to connect.
            let now = Instant::now();
            let until = now + end.saturating_duration_since(now) / 2;
            let role = match self.at(&candidate.named.address) {
                Ok(client) if candidate.most || !doubt => role(&client, until).await,
                _ => Role::Unknown,
            };
            match role {
                Role::Primary => {
                    return Some(Choice {
                        named: candidate.named,
                        dismissed,
                    });
                }
                Role::Replica => {}
                Role::Unknown => doubt = true,
            }
            dismissed.push(candidate.named);
        }
        Some(Choice::of(first))
    }

    /// A client of the primary, and how long it is that.
    ///
    /// # Errors
    /// As of [`primary`](Self::primary), and `Refusing` for an address that the
    /// driver does not take.
    ///
    /// # Cancel safety
    /// As of [`primary`](Self::primary).
    pub(crate) async fn now(&self, within: Duration) -> Result<(Client, Stay), StoreError> {
        let address = self.primary(within, Care::Usual).await?;
        let client = self.at(&address)?;
        let stay = Stay {
            news: self.news.subscribe(),
            here: address,
        };
        Ok((client, stay))
    }

    /// A client of the server with data at this address.
    pub(crate) fn at(&self, address: &Address) -> Result<Client, StoreError> {
        address.client(&self.node).map_err(|error| {
            StoreError::with_source(
                StoreErrorKind::Refusing,
                format!(
                    "the sentinels name a primary at {address}, which is no address to connect to; \
                     see `SENTINEL MASTERS`"
                ),
                error,
            )
        })
    }
}

/// How long a server is the primary.
#[derive(Clone, Debug)]
pub(crate) struct Stay {
    news: watch::Receiver<Option<Named>>,
    here: Address,
}

impl Stay {
    /// Whether another server is known to be the primary.
    pub(crate) fn is_over(&self) -> bool {
        !self.is_here(&self.news.borrow())
    }

    /// Waits until another server is known to be the primary.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn over(&self) {
        let mut news = self.news.clone();
        let moved = news.wait_for(|news| !self.is_here(news)).await.is_ok();
        if !moved {
            // The store is gone, and nobody tells any more.
            std::future::pending::<()>().await;
        }
    }

    fn is_here(&self, news: &Option<Named>) -> bool {
        news.as_ref().is_none_or(|now| now.address == self.here)
    }

    /// Asks the server itself whether it is a primary: the sentinels may not
    /// know yet that it is none any more.
    ///
    /// # Errors
    /// `Unavailable` if it is a replica; else what keeps it from answering.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn check(
        &self,
        connection: &Connection,
        end: Instant,
    ) -> Result<(), StoreError> {
        let here = &self.here;
        let mut connection = connection.clone();
        let role = redis::cmd("ROLE");
        let asking = role.query_async::<redis::Role>(&mut connection);
        match timeout_at(end, asking).await {
            Ok(Ok(redis::Role::Primary { .. })) => Ok(()),
            Ok(Ok(_)) => Err(StoreError::unavailable(format!(
                "the sentinels name {here} as the primary, and it is a replica; try again: they \
                 have not finished a failover, or do not see it"
            ))),
            Ok(Err(error)) => Err(classify(
                Phase::Unsent,
                &format!("the primary {here} that the sentinels name does not tell its ROLE"),
                error,
            )),
            Err(_) => Err(StoreError::unavailable(format!(
                "the primary {here} that the sentinels name did not tell its ROLE in time; check \
                 that it runs"
            ))),
        }
    }

    /// Where it is.
    pub(crate) fn here(&self) -> &Address {
        &self.here
    }
}
