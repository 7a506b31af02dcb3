//! The shared suite on a quorum of unlike stores: two Redis servers and a file.
#![allow(clippy::unwrap_used)]

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use lease_conformance::servers::redis::RedisServer;
use lease_conformance::{Arguments, Fixture, FixtureError, Store, Suites};
use leases::redis::RedisOptions;
use leases::sqlite::SqliteOptions;
use leases::{LeaseBackend, Owner, Quorum};

/// Cases wait most of the time.
const AT_A_TIME: usize = 16;

fn main() -> ExitCode {
    let servers = [0, 1].map(|_| RedisServer::builder().start().unwrap());
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let suites = Suites::new().with("redis, redis, sqlite", Unlike(servers));
    suites.run(&arguments).exit_code()
}

struct Unlike([RedisServer; 2]);

#[async_trait]
impl Fixture for Unlike {
    async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
        Ok(Box::new(Nodes {
            urls: self.0.each_ref().map(|server| server.url().to_string()),
            prefix: Owner::random()?.to_string(),
            folder: tempfile::tempdir()?,
        }))
    }
}

/// One case's part of the two servers, and its own file.
struct Nodes {
    urls: [String; 2],
    prefix: String,
    folder: tempfile::TempDir,
}

#[async_trait]
impl Store for Nodes {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        let mut nodes = Vec::<(&str, Arc<dyn LeaseBackend>)>::new();
        for (name, url) in ["a", "b"].into_iter().zip(&self.urls) {
            let options = RedisOptions::from_url(url)?.prefix(&self.prefix)?;
            nodes.push((name, Arc::new(options.open().await?)));
        }
        let file = SqliteOptions::new(self.folder.path().join("leases.db"));
        nodes.push(("file", Arc::new(file.open().await?)));
        Ok(Arc::new(Quorum::new(nodes)?))
    }
}
