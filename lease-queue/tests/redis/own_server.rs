//! What the shared suites run against: a server for each case, so that it may be killed,
//! paused and emptied. Everybody comes as the user of `docs/redis.md`.
use std::sync::Arc;
use std::time::Duration;

use crate::account;
use async_trait::async_trait;
use lease_conformance::proxy::FaultProxy;
use lease_conformance::queue::{QueueFixture, QueueTarget};
use lease_conformance::servers::redis::{Persistence, RedisServer, Reply};
use lease_conformance::{
    Fixture, FixtureError, LoseData, Network, Pause, Restart, Spoil, Spoiling, Store,
};
use lease_core::{Key, LeaseBackend};
use lease_queue::redis::RedisQueues;
use lease_queue::{KeyedLeases, QueueName, QueueStore};

const TOMBSTONES: Duration = Duration::from_secs(10);
/// None is kept for as long by the store itself, nor for ever.
const KEPT_MS: i64 = 3_600_000;
const TEXT: &str = "somebody else's";

#[derive(Debug)]
pub(crate) struct AofAlways;

#[async_trait]
impl Fixture for AofAlways {
    async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
        Ok(Box::new(OwnServer::start()?))
    }
}

#[async_trait]
impl QueueFixture for AofAlways {
    async fn open(&self) -> Result<Box<dyn QueueTarget>, FixtureError> {
        Ok(Box::new(OwnServer::start()?))
    }
}

struct OwnServer {
    server: RedisServer,
    proxy: FaultProxy,
}

impl OwnServer {
    fn start() -> Result<Self, FixtureError> {
        let server = RedisServer::builder()
            .persistence(Persistence::AofAlways)
            .default_user_off()
            .user(&account::acl())
            .start()?;
        Ok(Self {
            proxy: FaultProxy::start(server.address())?,
            server,
        })
    }

    async fn queues(&self) -> Result<RedisQueues, FixtureError> {
        let url = self.server.url().through(self.proxy.address());
        let url = url.user(account::NAME, account::PASSWORD).to_string();
        let options = RedisQueues::options(&format!("queue+{url}"))?
            .tombstone_retention(TOMBSTONES)
            .durable(true);
        Ok(RedisQueues::open(options).await?)
    }
}

#[async_trait]
impl Store for OwnServer {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        let queues = Arc::new(self.queues().await?);
        let leases = KeyedLeases::new(queues, QueueName::new("lea{}ses: é")?);
        Ok(Arc::new(leases))
    }

    fn tombstone_retention(&self) -> Option<Duration> {
        Some(TOMBSTONES)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(&self.server)
    }

    fn lose_data(&self) -> Option<&dyn LoseData> {
        Some(self)
    }

    fn pause(&self) -> Option<&dyn Pause> {
        Some(&self.server)
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(&self.proxy)
    }

    fn spoiling(&self) -> Option<&dyn Spoiling> {
        Some(self)
    }
}

#[async_trait]
impl LoseData for OwnServer {
    async fn lose_data(&self) -> Result<(), FixtureError> {
        Ok(self.server.restart_empty()?)
    }
}

#[async_trait]
impl QueueTarget for OwnServer {
    async fn client(&self) -> Result<Arc<dyn QueueStore>, FixtureError> {
        Ok(Arc::new(self.queues().await?))
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(&self.server)
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(&self.proxy)
    }
}

/// The name of a key's record.
fn record(key: &Key) -> String {
    format!("leases:queue:{{lea%7B%7Dses: é}}:k:{key}")
}

/// A record by its head and its length, and nonsense in between.
fn torn() -> String {
    format!("Q1g{}", "\u{7f}".repeat(120))
}

#[async_trait]
impl Spoiling for OwnServer {
    async fn spoil(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
        let (name, kept) = (record(key), KEPT_MS.to_string());
        let server = &self.server;
        server.command(&["DEL", &name])?;
        match how {
            Spoil::ForeignType => server.command(&["RPUSH", &name, TEXT])?,
            Spoil::ForeignText => server.command(&["SET", &name, TEXT, "PX", &kept])?,
            Spoil::Torn => server.command(&["SET", &name, &torn(), "PX", &kept])?,
            _ => return Ok(false),
        };
        Ok(true)
    }

    async fn spoiled_is_intact(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
        let name = record(key);
        let server = &self.server;
        let left = server.command(&["PTTL", &name])?.integer();
        let kept = left.is_some_and(|ms| ms > KEPT_MS / 2 && ms <= KEPT_MS);
        Ok(match how {
            Spoil::ForeignType => {
                let all = server.command(&["LRANGE", &name, "0", "-1"])?;
                all == Reply::List(vec![Reply::Bytes(TEXT.into())]) && left == Some(-1)
            }
            Spoil::ForeignText => {
                server.command(&["GET", &name])? == Reply::Bytes(TEXT.into()) && kept
            }
            _ => server.command(&["GET", &name])? == Reply::Bytes(torn().into()) && kept,
        })
    }
}
