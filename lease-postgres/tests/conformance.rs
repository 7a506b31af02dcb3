//! The shared suite. A case has a server for itself while it runs, so that it may
//! be killed, paused and emptied; after one that did no such thing, the next takes
//! the server, with a schema of its own.
//!
//! Two ways to the server run at each test; all of them with
//! `LEASES_POSTGRES_VARIANTS=all`, and the ones that it names with
//! `LEASES_POSTGRES_VARIANTS=zones,many`.
#![allow(clippy::unwrap_used)]

#[path = "conformance/zones.rs"]
mod zones;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::postgres::{PgBouncer, PostgresServer};
use lease_conformance::{
    Arguments, Fixture, FixtureError, LoseData, Network, Pause, Restart, Store, Suites,
};
use lease_core::{Key, LeaseBackend, Owner, RenewRequest, Token, Ttl};
use lease_postgres::sqlx::{Connection as _, PgConnection, query, query_as};
use lease_postgres::{PostgresOptions, PostgresStore};
use zones::Zones;

const TOMBSTONES: Duration = Duration::from_secs(10);
/// Longer than any case cuts a client off and goes on believing: cases use the store
/// without handles, and send no pings.
const GRACE: Duration = Duration::from_secs(10);
/// Cases wait most of the time.
const AT_A_TIME: usize = 8;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let chosen = std::env::var("LEASES_POSTGRES_VARIANTS").ok();
    let idle = Arc::default();
    let cases = Arc::default();
    let mut suites = Suites::new();
    for variant in variants(chosen.as_deref()) {
        let servers = Servers {
            variant,
            idle: Arc::clone(&idle),
            cases: Arc::clone(&cases),
        };
        suites = suites.with(variant.name, servers);
    }
    suites.run(&arguments).exit_code()
}

/// One way to use a server.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    always: bool,
    /// By a pooler in transaction mode.
    pooled: bool,
    /// One connection for each client, and others that are there beside.
    many: bool,
    /// Each client in a zone of its own, with dates of its own.
    zones: bool,
    /// With a session that others see gone.
    witness: bool,
}

const DIRECT: Variant = Variant {
    name: "postgres",
    always: true,
    pooled: false,
    many: false,
    zones: false,
    witness: false,
};

const ALL: [Variant; 5] = [
    DIRECT,
    Variant {
        name: "pgbouncer",
        pooled: true,
        ..DIRECT
    },
    Variant {
        name: "many",
        always: false,
        many: true,
        ..DIRECT
    },
    Variant {
        name: "zones",
        always: false,
        zones: true,
        ..DIRECT
    },
    Variant {
        name: "witness",
        always: false,
        witness: true,
        ..DIRECT
    },
];

fn variants(names: Option<&str>) -> Vec<Variant> {
    let named = |name: &str| *ALL.iter().find(|one| one.name == name).expect("a variant");
    match names {
        None => ALL.iter().filter(|one| one.always).copied().collect(),
        Some("all") => ALL.to_vec(),
        Some(names) => names.split(',').map(named).collect(),
    }
}

/// Others than the case's own clients, in a variant with many.
const OTHERS: usize = 18;

/// Servers that were left as they were, for the next case: a start costs a second.
struct Servers {
    variant: Variant,
    idle: Arc<Mutex<Vec<PostgresServer>>>,
    cases: Arc<AtomicUsize>,
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
        let bouncer = match self.variant.pooled {
            true => Some(PgBouncer::before(&server).start()?),
            false => None,
        };
        let address = bouncer
            .as_ref()
            .map_or(server.address(), PgBouncer::address);
        Ok(Box::new(OwnServer {
            variant: self.variant,
            zones: Mutex::default(),
            clients: AtomicUsize::new(0),
            others: Mutex::default(),
            proxy: FaultProxy::start(address)?,
            bouncer,
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

/// That the sessions are as they are meant to be, or the variant shows nothing.
async fn is_in(url: &str, zone: (&str, &str)) -> Result<(), FixtureError> {
    let mut db = PgConnection::connect(url).await?;
    let shown = "SELECT current_setting('TimeZone'), current_setting('DateStyle')";
    let shown: (String, String) = query_as(shown).fetch_one(&mut db).await?;
    match (&*shown.0, &*shown.1) == zone {
        true => Ok(()),
        false => Err(format!("{shown:?} in place of {zone:?}").into()),
    }
}

/// One case's server, until it is over.
struct OwnServer {
    variant: Variant,
    zones: Mutex<Vec<Zones>>,
    clients: AtomicUsize,
    others: Mutex<Vec<PostgresStore>>,
    bouncer: Option<PgBouncer>,
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
        let url = match &self.bouncer {
            Some(bouncer) => bouncer.url(),
            None => self.server().url(),
        };
        let number = self.clients.fetch_add(1, Ordering::Relaxed);
        let url = match self.variant.zones {
            false => url.through(self.proxy.address()).to_string(),
            true => {
                let zone = zones::zone(number);
                let zones = Zones::before(self.proxy.address(), zone).await?;
                let url = url.through(zones.address()).to_string();
                is_in(&url, zone).await?;
                self.zones.lock().unwrap().push(zones);
                url
            }
        };
        let mut options = PostgresOptions::from_url(&url)?
            .schema(&self.schema)?
            .tombstone_retention(TOMBSTONES)
            .crash_detection(self.variant.witness.then_some(GRACE));
        if self.variant.many {
            options = options.connections(1);
            if number == 0 {
                for _ in 0..OTHERS {
                    let other = options.clone().open().await?;
                    self.others.lock().unwrap().push(other);
                }
            }
        }
        let store = options.open().await?;
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
        Restart::restart(self.harm()).await?;
        self.is_back().await
    }
}

#[async_trait]
impl LoseData for OwnServer {
    async fn lose_data(&self) -> Result<(), FixtureError> {
        LoseData::lose_data(self.harm()).await?;
        self.is_back().await
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
