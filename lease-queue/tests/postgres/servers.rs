//! Servers for the suites, each for one case at a time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::postgres::{PgBouncer, PostgresServer};
use lease_conformance::{FixtureError, LoseData, Pause, Restart};
use lease_postgres::sqlx::{Connection as _, PgConnection, query};
use lease_queue::postgres::{PostgresOptions, PostgresQueues};

pub(crate) const TOMBSTONES: Duration = Duration::from_secs(10);

/// Whether to run every way to a server, and not the direct one alone.
pub(crate) fn all_variants() -> bool {
    std::env::var("LEASES_POSTGRES_VARIANTS").is_ok_and(|chosen| chosen == "all")
}

/// Servers that were left as they were, for the next case: a start costs a second.
#[derive(Clone, Default)]
pub(crate) struct Servers {
    idle: Arc<Mutex<Vec<PostgresServer>>>,
    cases: Arc<AtomicUsize>,
    /// By a pooler in transaction mode.
    pooled: bool,
}

impl Servers {
    pub(crate) fn pooled(&self) -> Self {
        let pooled = true;
        Self {
            pooled,
            ..self.clone()
        }
    }

    pub(crate) fn case(&self) -> Result<Case, FixtureError> {
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
        let bouncer = match self.pooled {
            true => Some(PgBouncer::before(&server).start()?),
            false => None,
        };
        let address = bouncer
            .as_ref()
            .map_or(server.address(), PgBouncer::address);
        Ok(Case {
            proxy: FaultProxy::start(address)?,
            bouncer,
            server: Some(server),
            schema: format!("case \"{case}\""),
            idle: Arc::clone(&self.idle),
            harmed: AtomicBool::new(false),
        })
    }
}

/// One case's server, until it is over.
pub(crate) struct Case {
    bouncer: Option<PgBouncer>,
    server: Option<PostgresServer>,
    proxy: FaultProxy,
    schema: String,
    idle: Arc<Mutex<Vec<PostgresServer>>>,
    harmed: AtomicBool,
}

impl Case {
    pub(crate) async fn client(&self) -> Result<PostgresQueues, FixtureError> {
        let url = match &self.bouncer {
            Some(bouncer) => bouncer.url(),
            None => self.server().url(),
        };
        let url = url.through(self.proxy.address()).to_string();
        let options = PostgresOptions::from_url(&url)?
            .schema(&self.schema)?
            .tombstone_retention(TOMBSTONES);
        let store = PostgresQueues::open(options).await?;
        // Renewals have a connection of their own, and a case that loses a reply is to
        // lose none of what it is opened by.
        store.connect_renewals().await?;
        Ok(store)
    }

    #[allow(dead_code)]
    pub(crate) fn is_pooled(&self) -> bool {
        self.bouncer.is_some()
    }

    pub(crate) fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    fn server(&self) -> &PostgresServer {
        self.server.as_ref().expect("it is there until the end")
    }

    /// For something after which it is not used again.
    fn harm(&self) -> &PostgresServer {
        self.harmed.store(true, Ordering::Relaxed);
        self.server()
    }

    /// A pooler that found no server refuses everybody for a second, and does not
    /// ask the server meanwhile.
    async fn is_back(&self) -> Result<(), FixtureError> {
        const LIMIT: Duration = Duration::from_secs(60);
        // Of one login: the pooler may keep one waiting for a server that is gone.
        const LOGIN: Duration = Duration::from_secs(5);
        const LOOK: Duration = Duration::from_millis(20);
        let Some(bouncer) = &self.bouncer else {
            return Ok(());
        };
        let url = bouncer.url().to_string();
        // A login alone may be answered by the pooler from memory.
        let asks = || async {
            let mut db = PgConnection::connect(&url).await?;
            query("SELECT 1").execute(&mut db).await
        };
        let logs_in = async {
            while !matches!(tokio::time::timeout(LOGIN, asks()).await, Ok(Ok(_))) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(LIMIT, logs_in)
            .await
            .map_err(|_| format!("the pooler reached no server for {LIMIT:?}").into())
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        let harmed = self.harmed.load(Ordering::Relaxed) || std::thread::panicking();
        if let Some(server) = self.server.take_if(|_| !harmed) {
            self.idle.lock().unwrap().push(server);
        }
    }
}

#[async_trait]
impl Restart for Case {
    async fn restart(&self) -> Result<(), FixtureError> {
        Restart::restart(self.harm()).await?;
        self.is_back().await
    }
}

#[async_trait]
impl LoseData for Case {
    async fn lose_data(&self) -> Result<(), FixtureError> {
        LoseData::lose_data(self.harm()).await?;
        self.is_back().await
    }
}

#[async_trait]
impl Pause for Case {
    async fn pause(&self) -> Result<(), FixtureError> {
        Pause::pause(self.harm()).await
    }

    async fn resume(&self) -> Result<(), FixtureError> {
        Pause::resume(self.harm()).await
    }
}
