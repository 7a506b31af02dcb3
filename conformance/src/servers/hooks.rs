//! The suite's hooks, by what the kit can do to a server and to a network: a
//! fixture that has them returns them as they are.
//!
//! They block their thread for as long as the server takes: tens of
//! milliseconds, a few hundred where data are made anew.

use async_trait::async_trait;

use super::postgres::PostgresServer;
use super::redis::RedisServer;
use crate::fixture::FixtureError;
use crate::hooks::{LoseData, Pause, Restart};

/// By a kill: what the server has saved until then is what its persistence says.
#[async_trait]
impl Restart for RedisServer {
    async fn restart(&self) -> Result<(), FixtureError> {
        self.kill()?;
        Ok(self.start()?)
    }
}

#[async_trait]
impl LoseData for RedisServer {
    async fn lose_data(&self) -> Result<(), FixtureError> {
        Ok(self.restart_empty()?)
    }
}

#[async_trait]
impl Pause for RedisServer {
    async fn pause(&self) -> Result<(), FixtureError> {
        Ok(RedisServer::pause(self)?)
    }

    async fn resume(&self) -> Result<(), FixtureError> {
        Ok(RedisServer::resume(self)?)
    }
}

/// By a kill, which loses nothing that was committed.
#[async_trait]
impl Restart for PostgresServer {
    async fn restart(&self) -> Result<(), FixtureError> {
        self.kill()?;
        Ok(self.start()?)
    }
}

#[async_trait]
impl LoseData for PostgresServer {
    async fn lose_data(&self) -> Result<(), FixtureError> {
        Ok(self.restart_empty()?)
    }
}

#[async_trait]
impl Pause for PostgresServer {
    async fn pause(&self) -> Result<(), FixtureError> {
        Ok(PostgresServer::pause(self)?)
    }

    async fn resume(&self) -> Result<(), FixtureError> {
        Ok(PostgresServer::resume(self)?)
    }
}
