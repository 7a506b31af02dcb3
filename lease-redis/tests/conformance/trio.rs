//! One case's sentinels and servers, and everything that can be done to them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_conformance::servers::redis::Persistence;
use lease_conformance::servers::redis::RedisServer;
use lease_conformance::servers::redis::sentinel::{DataNode, SentinelTrio};
use lease_conformance::{FixtureError, LoseData, Network, Pause, Restart, Spoiling, Store};
use lease_core::{LeaseBackend, Ttl};
use lease_redis::{RedisOptions, RedisStore};

use crate::app;
use crate::store::{TOMBSTONES, wait_out_the_quarantine};
use crate::variant::Variant;

/// Longer than a server is away by any hook: a failover is ordered where one is
/// due.
const LONG: Duration = Duration::from_secs(60);

/// At the sentinels.
const ASKER: &str = "asker";

pub(crate) struct OwnTrio {
    variant: Variant,
    trio: SentinelTrio,
}

impl OwnTrio {
    pub(crate) async fn new(variant: Variant) -> Result<Self, FixtureError> {
        let trio = SentinelTrio::builder()
            .nodes(variant.server())
            .sentinel_user(&app::user(ASKER, &[]))
            .replicas(usize::from(variant.replica))
            .down_after(LONG)
            .replicate_directly()
            .start()?;
        if !fails_over(&variant) {
            trio.quiet()?;
        }
        let own = Self { variant, trio };
        if variant.quarantine.is_some() {
            wait_out_the_quarantine(&own.open().await?).await?;
        }
        Ok(own)
    }

    async fn open(&self) -> Result<RedisStore, FixtureError> {
        let url = self.trio.url().user(app::NAME, app::PASSWORD);
        let mut url = url.sentinel_user(ASKER, app::PASSWORD).to_string();
        if let Some(authority) = self.trio.nodes()[0].server().authority_pem() {
            url = format!("{url}&ca={}", authority.display());
        }
        let mut options = RedisOptions::from_url(&url)?.tombstone_retention(TOMBSTONES);
        if let Some(most) = self.variant.quarantine {
            options = options.quarantine(Ttl::new(most)?);
        }
        Ok(options.open().await?)
    }

    pub(crate) fn primary(&self) -> Result<&RedisServer, FixtureError> {
        Ok(self.node()?.server())
    }

    fn node(&self) -> Result<&DataNode, FixtureError> {
        match fails_over(&self.variant) {
            true => Ok(self.trio.primary()?),
            false => Ok(&self.trio.nodes()[0]),
        }
    }
}

/// With a quarantine a restart may be a failover: it claims the same.
fn fails_over(variant: &Variant) -> bool {
    variant.quarantine.is_some()
}

#[async_trait]
impl Store for OwnTrio {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        Ok(Arc::new(self.open().await?))
    }

    fn tombstone_retention(&self) -> Option<Duration> {
        Some(TOMBSTONES)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        (self.variant.persistence != Persistence::None).then_some(self as &dyn Restart)
    }

    fn lose_data(&self) -> Option<&dyn LoseData> {
        Some(self)
    }

    /// A failover would come between.
    fn pause(&self) -> Option<&dyn Pause> {
        (!fails_over(&self.variant)).then(|| self.trio.nodes()[0].server() as &dyn Pause)
    }

    /// Of the first primary, if it stays that.
    fn network(&self) -> Option<&dyn Network> {
        (!fails_over(&self.variant)).then(|| self.trio.nodes()[0].door() as &dyn Network)
    }

    fn spoiling(&self) -> Option<&dyn Spoiling> {
        Some(self)
    }
}

#[async_trait]
impl Restart for OwnTrio {
    async fn restart(&self) -> Result<(), FixtureError> {
        let former = self.node()?;
        if !fails_over(&self.variant) {
            return Restart::restart(former.server()).await;
        }
        former.server().kill()?;
        self.trio.failover()?;
        former.server().start()?;
        Ok(self.trio.settle()?)
    }
}

/// A primary that comes back empty before it is missed empties its replicas.
#[async_trait]
impl LoseData for OwnTrio {
    async fn lose_data(&self) -> Result<(), FixtureError> {
        Ok(self.primary()?.restart_empty()?)
    }
}
