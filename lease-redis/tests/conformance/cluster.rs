//! A store on a Redis Cluster, one cluster for each case.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_conformance::servers::redis::RedisServer;
use lease_conformance::servers::redis::cluster::RedisCluster;
use lease_conformance::{FixtureError, LoseData, Network, Pause, Restart, Spoiling, Store};
use lease_core::{Key, LeaseBackend};
use lease_redis::{RedisOptions, RedisStore};

use crate::store::TOMBSTONES;
use crate::variant::Variant;
use crate::{app, record};

/// Longer than a case lets it stand still: nobody is voted away for that.
const NODE_TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) struct OwnCluster {
    cluster: RedisCluster,
    /// A key at each node, until slots move.
    keys: Mutex<Vec<Key>>,
}

impl OwnCluster {
    pub(crate) fn new(variant: Variant) -> Result<Self, FixtureError> {
        let cluster = RedisCluster::builder()
            .persistence(variant.persistence)
            .default_user_off()
            .user(&app::acl(&variant.rights()))
            .node_timeout(NODE_TIMEOUT)
            .proxied();
        Ok(Self {
            cluster: cluster.start()?,
            keys: Mutex::default(),
        })
    }

    async fn open(&self) -> Result<RedisStore, FixtureError> {
        let url = self
            .cluster
            .url()
            .user(app::NAME, app::PASSWORD)
            .to_string();
        let options = RedisOptions::from_url(&url)?.tombstone_retention(TOMBSTONES);
        Ok(options.open().await?)
    }

    fn one_at_each(&self) -> Result<Vec<Key>, FixtureError> {
        let mut keys = self.keys.lock().unwrap();
        if keys.is_empty() {
            let mut left = self.cluster.primaries();
            for number in 0.. {
                let key = Key::new(format!("hello {number}"))?;
                let owner = self.cluster.owner_of(&record::name(&key))?;
                if left.contains(&owner) {
                    left.retain(|node| *node != owner);
                    keys.push(key);
                }
                if left.is_empty() {
                    break;
                }
            }
        }
        Ok(keys.clone())
    }

    /// The node that has this key.
    pub(crate) fn owner(&self, key: &Key) -> Result<&RedisServer, FixtureError> {
        let owner = self.cluster.owner_of(&record::name(key))?;
        Ok(self.cluster.node(owner))
    }
}

#[async_trait]
impl Store for OwnCluster {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        let client = self.open().await?;
        // To every node: a reply is lost only on a connection that is there.
        for key in self.one_at_each()? {
            client.inspect(&key).await?;
        }
        Ok(Arc::new(client))
    }

    fn tombstone_retention(&self) -> Option<Duration> {
        Some(TOMBSTONES)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(&self.cluster)
    }

    fn lose_data(&self) -> Option<&dyn LoseData> {
        Some(&self.cluster)
    }

    fn pause(&self) -> Option<&dyn Pause> {
        Some(&self.cluster)
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(&self.cluster)
    }

    fn spoiling(&self) -> Option<&dyn Spoiling> {
        Some(self)
    }
}
