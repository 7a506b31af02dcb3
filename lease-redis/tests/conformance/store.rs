//! One case's server, and everything that can be done to it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::redis::{Persistence, RedisServer};
use lease_conformance::{FixtureError, LoseData, Network, Pause, Restart, Spoiling, Store};
use lease_core::{
    AcquireOutcome, AcquireRequest, Key, Label, LeaseBackend, Owner, RefusedReason, RenewRequest,
    Token, TokenRule, Ttl,
};
use lease_redis::{RedisOptions, RedisStore};

use crate::variant::{Variant, Way};
use crate::{app, over};

pub(crate) const TOMBSTONES: Duration = Duration::from_secs(10);
/// For a replica to confirm.
const WITHIN: Duration = Duration::from_secs(4);

pub(crate) struct OwnServer {
    variant: Variant,
    pub(crate) server: RedisServer,
    replica: Option<RedisServer>,
    proxy: FaultProxy,
}

impl OwnServer {
    pub(crate) fn new(variant: Variant, server: RedisServer) -> Result<Self, FixtureError> {
        let replica = variant.replica.then(|| replica_of(&server)).transpose()?;
        Ok(Self {
            variant,
            proxy: FaultProxy::start(server.address())?,
            server,
            replica,
        })
    }

    fn options(&self) -> Result<RedisOptions, FixtureError> {
        let url = match self.variant.way {
            Way::UnixSocket => self.server.unix_url(),
            _ => self.server.url().through(self.proxy.address()),
        };
        let mut url = url.user(app::NAME, app::PASSWORD).to_string();
        if let Some(authority) = self.server.authority_pem() {
            url = format!("{url}?ca={}", authority.display());
        }
        if self.variant.way == Way::Resp3 {
            url = format!("{url}?protocol=resp3");
        }
        let mut options = RedisOptions::from_url(&url)?
            .tombstone_retention(TOMBSTONES)
            .durable(self.variant.persistence == Persistence::AofAlways);
        if let Some(most) = self.variant.quarantine {
            options = options.quarantine(Ttl::new(most)?);
        }
        if self.replica.is_some() {
            options = options.wait_for_replicas(1, WITHIN);
        }
        Ok(options)
    }

    async fn open(&self) -> Result<RedisStore, FixtureError> {
        let options = self.options()?;
        Ok(match self.variant.way {
            Way::Over => {
                let url = self.server.url().through(self.proxy.address());
                let url = url.user(app::NAME, app::PASSWORD).to_string();
                options.open_over(over::Reconnecting::open(&url)?)?
            }
            _ => options.open().await?,
        })
    }

    pub(crate) async fn wait_out_the_quarantine(&self) -> Result<(), FixtureError> {
        match self.variant.quarantine {
            Some(_) => wait_out_the_quarantine(&self.open().await?).await,
            None => Ok(()),
        }
    }

    /// Waits until the system has the whole log: Redis keeps some of it to itself
    /// while the disk is busy.
    async fn until_logged(&self) -> Result<(), FixtureError> {
        while self.server.info("aof_buffer_length")?.as_deref() != Some("0") {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    fn follow(&self) -> Result<(), FixtureError> {
        match &self.replica {
            Some(replica) => Ok(replica.wait_until_linked()?),
            None => Ok(()),
        }
    }
}

/// A store that was never used begins with one, as after a restart.
pub(crate) async fn wait_out_the_quarantine(store: &RedisStore) -> Result<(), FixtureError> {
    let first = AcquireRequest {
        key: Key::new("the first")?,
        owner: Owner::random()?,
        ttl: Ttl::MIN,
        label: Label::EMPTY,
        rule: TokenRule::NEXT,
        waits: None,
    };
    match store.acquire(&first).await? {
        AcquireOutcome::Refused(RefusedReason::Quarantine { remaining }) => {
            tokio::time::sleep(remaining).await;
            Ok(())
        }
        other => Err(format!("a quarantine at first, not {other:?}").into()),
    }
}

fn nothing() -> Result<RenewRequest, FixtureError> {
    Ok(RenewRequest {
        key: Key::new("no key")?,
        owner: Owner::random()?,
        token: Token::MIN,
        ttl: Ttl::MIN,
    })
}

fn replica_of(server: &RedisServer) -> Result<RedisServer, FixtureError> {
    let replica = RedisServer::builder().replica_of(server).start()?;
    replica.wait_until_linked()?;
    Ok(replica)
}

#[async_trait]
impl Store for OwnServer {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        let client = self.open().await?;
        if self.replica.is_some() {
            // What waits has a connection of its own.
            client.renew(&nothing()?).await?;
        }
        Ok(Arc::new(client))
    }

    fn tombstone_retention(&self) -> Option<Duration> {
        Some(TOMBSTONES)
    }

    /// Without persistence there is no data to come back with.
    fn restart(&self) -> Option<&dyn Restart> {
        (self.variant.persistence != Persistence::None).then_some(self as &dyn Restart)
    }

    fn lose_data(&self) -> Option<&dyn LoseData> {
        Some(self)
    }

    fn pause(&self) -> Option<&dyn Pause> {
        Some(&self.server)
    }

    /// There is a proxy for TCP alone.
    fn network(&self) -> Option<&dyn Network> {
        (self.variant.way != Way::UnixSocket).then_some(&self.proxy as &dyn Network)
    }

    fn spoiling(&self) -> Option<&dyn Spoiling> {
        Some(self)
    }
}

#[async_trait]
impl Restart for OwnServer {
    /// With all of its data: the less durable ways would lose some of it.
    async fn restart(&self) -> Result<(), FixtureError> {
        match self.variant.persistence {
            Persistence::Rdb => self.server.save()?,
            Persistence::AofEverysec => self.until_logged().await?,
            _ => {}
        }
        Restart::restart(&self.server).await?;
        self.follow()
    }
}

#[async_trait]
impl LoseData for OwnServer {
    async fn lose_data(&self) -> Result<(), FixtureError> {
        self.server.restart_empty()?;
        self.follow()
    }
}
