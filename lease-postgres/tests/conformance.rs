//! The shared suite. A case has a server for itself while it runs, so that it may
//! be killed, paused and emptied; after one that did no such thing, the next takes
//! the server, with a schema of its own.
#![allow(clippy::unwrap_used)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::postgres::PostgresServer;
use lease_conformance::{
    Arguments, Fixture, FixtureError, LoseData, Network, Pause, Restart, Store, Suites,
};
use lease_core::{Key, LeaseBackend, Owner, RenewRequest, Token, Ttl};
use lease_postgres::PostgresOptions;

const TOMBSTONES: Duration = Duration::from_secs(10);
/// Cases wait most of the time.
const AT_A_TIME: usize = 8;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let servers = Servers {
        idle: Arc::default(),
        cases: AtomicUsize::new(0),
    };
    Suites::new()
        .with("postgres", servers)
        .run(&arguments)
        .exit_code()
}

/// Servers that were left as they were, for the next case: a start costs a second.
struct Servers {
    idle: Arc<Mutex<Vec<PostgresServer>>>,
    cases: AtomicUsize,
}

#[async_trait]
impl Fixture for Servers {
    async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
        let idle = self.idle.lock().unwrap().pop();
        let server = match idle {
            Some(server) => server,
            // What the system has survives the end of the server.
            None => PostgresServer::builder()
                .fsync(false)
                .config("max_connections", "300")
                .start()?,
        };
        let case = self.cases.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(OwnServer {
            proxy: FaultProxy::start(server.address())?,
            server: Some(server),
            schema: format!("case \"{case}\""),
            idle: Arc::clone(&self.idle),
            harmed: AtomicBool::new(false),
        }))
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

/// One case's server, until it is over.
struct OwnServer {
    server: Option<PostgresServer>,
    proxy: FaultProxy,
    schema: String,
    idle: Arc<Mutex<Vec<PostgresServer>>>,
    harmed: AtomicBool,
}

impl OwnServer {
    fn server(&self) -> &PostgresServer {
        self.server.as_ref().expect("it is there until the end")
    }

    /// For something after which it is not used again.
    fn harm(&self) -> &PostgresServer {
        self.harmed.store(true, Ordering::Relaxed);
        self.server()
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let harmed = self.harmed.load(Ordering::Relaxed) || std::thread::panicking();
        if let Some(server) = self.server.take_if(|_| !harmed) {
            self.idle.lock().unwrap().push(server);
        }
    }
}

#[async_trait]
impl Store for OwnServer {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        let url = self.server().url().through(self.proxy.address());
        let store = PostgresOptions::from_url(&url.to_string())?
            .schema(&self.schema)?
            .tombstone_retention(TOMBSTONES)
            .open()
            .await?;
        // Renewals have a connection of their own.
        store.renew(&nothing()?).await?;
        Ok(Arc::new(store))
    }

    fn tombstone_retention(&self) -> Option<Duration> {
        Some(TOMBSTONES)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    fn lose_data(&self) -> Option<&dyn LoseData> {
        Some(self)
    }

    fn pause(&self) -> Option<&dyn Pause> {
        Some(self)
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(&self.proxy)
    }
}

#[async_trait]
impl Restart for OwnServer {
    async fn restart(&self) -> Result<(), FixtureError> {
        Restart::restart(self.harm()).await
    }
}

#[async_trait]
impl LoseData for OwnServer {
    async fn lose_data(&self) -> Result<(), FixtureError> {
        LoseData::lose_data(self.harm()).await
    }
}

#[async_trait]
impl Pause for OwnServer {
    async fn pause(&self) -> Result<(), FixtureError> {
        Pause::pause(self.harm()).await
    }

    async fn resume(&self) -> Result<(), FixtureError> {
        Pause::resume(self.harm()).await
    }
}
