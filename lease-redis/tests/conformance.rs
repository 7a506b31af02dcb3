#![allow(missing_docs, clippy::unwrap_used)]
use async_trait::async_trait;
use lease_conformance::{Fixture, FixtureError, Store};
use lease_core::*;
use lease_redis::*;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
fn main() -> ExitCode {
    lease_conformance::main("redis", F)
}
struct F;
#[async_trait]
impl Fixture for F {
    async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
        Ok(Box::new(S(Owner::random().unwrap().to_string())))
    }
}
struct S(String);
#[async_trait]
impl Store for S {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        let o = RedisOptions::from_url("redis://127.0.0.1:7777")?
            .prefix(&self.0)?
            .tombstone_retention(Duration::from_secs(10));
        Ok(Arc::new(o.open().await?))
    }
    fn tombstone_retention(&self) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }
}
