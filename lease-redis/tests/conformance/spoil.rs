//! Somebody else's values at the names of leases.

use async_trait::async_trait;
use lease_conformance::{FixtureError, Spoil, Spoiling};
use lease_core::Key;

use crate::cluster::OwnCluster;
use crate::record;
use crate::store::OwnServer;
use crate::trio::OwnTrio;

#[async_trait]
impl Spoiling for OwnServer {
    async fn spoil(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
        record::spoil(&self.server, key, how)
    }

    async fn spoiled_is_intact(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
        record::is_intact(&self.server, key, how)
    }
}

#[async_trait]
impl Spoiling for OwnTrio {
    async fn spoil(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
        record::spoil(self.primary()?, key, how)
    }

    async fn spoiled_is_intact(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
        record::is_intact(self.primary()?, key, how)
    }
}

#[async_trait]
impl Spoiling for OwnCluster {
    async fn spoil(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
        record::spoil(self.owner(key)?, key, how)
    }

    async fn spoiled_is_intact(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
        record::is_intact(self.owner(key)?, key, how)
    }
}
