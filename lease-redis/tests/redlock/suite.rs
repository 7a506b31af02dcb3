//! The shared suite on quorums of real servers.
//!
//! Everybody comes as the user of `docs/acl.md`, through a proxy in front of each
//! node. What befalls a store befalls all of its nodes; or a minority, and then a
//! restart of the store is one that takes these nodes' data away.
#![allow(clippy::unwrap_used)]

#[path = "../conformance/app.rs"]
mod app;
#[path = "../conformance/record.rs"]
mod record;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lease_conformance::servers::redis::{NodesWay, Persistence, RedisNodes, RedisServer};
use lease_conformance::{
    Arguments, Fixture, FixtureError, LoseData, Network, Pause, Restart, Spoil, Spoiling, Store,
    Suites,
};
use lease_core::{Key, LeaseBackend, Ttl};
use lease_redis::RedlockOptions;

/// Cases wait most of the time.
const AT_A_TIME: usize = 12;
/// The longest TTL of any case, long enough for a busy machine, and short enough
/// to be waited out in some.
const QUARANTINE: Duration = Duration::from_secs(15);
const TOMBSTONES: Duration = Duration::from_secs(10);

/// A quorum of so many nodes.
#[derive(Clone, Copy, Debug)]
struct Size {
    name: &'static str,
    nodes: usize,
    /// Whom it befalls: all nodes, or as many as a quorum bears.
    minority: bool,
    always: bool,
}

const ALL: &[Size] = &[
    Size {
        name: "three",
        nodes: 3,
        minority: false,
        always: true,
    },
    Size {
        name: "three_less_one",
        nodes: 3,
        minority: true,
        always: false,
    },
    Size {
        name: "five",
        nodes: 5,
        minority: false,
        always: false,
    },
    Size {
        name: "five_less_two",
        nodes: 5,
        minority: true,
        always: false,
    },
];

fn main() -> ExitCode {
    let mut suites = Suites::new();
    for size in chosen() {
        suites = suites.with(size.name, size);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    suites.run(&arguments).exit_code()
}

/// Those that are named in `LEASES_REDIS_QUORUMS`, or that run always; all of them
/// with `LEASES_REDIS_VARIANTS=all`.
///
/// # Panics
/// If a name is none: a run that runs nothing must not look well.
fn chosen() -> Vec<Size> {
    if let Ok(names) = std::env::var("LEASES_REDIS_QUORUMS") {
        let named = |name| ALL.iter().find(|one| one.name == name);
        return names
            .split(',')
            .map(|name| *named(name).expect("a quorum's name"))
            .collect();
    }
    let all = std::env::var("LEASES_REDIS_VARIANTS").is_ok_and(|chosen| chosen == "all");
    let runs = |one: &&Size| all || one.always;
    ALL.iter().filter(runs).copied().collect()
}

#[async_trait]
impl Fixture for Size {
    async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
        // So that there is data to come back with.
        let server = RedisServer::builder()
            .persistence(Persistence::Rdb)
            .default_user_off()
            .user(&app::acl(&["+info"]));
        let nodes = RedisNodes::start(self.nodes, &server)?;
        let store = OwnNodes {
            size: *self,
            way: nodes.way()?,
            nodes,
            turn: AtomicUsize::new(0),
        };
        let report = store.options()?.init().await?;
        match report.is_done() {
            true => Ok(Box::new(store)),
            false => Err(format!("{report:?}").into()),
        }
    }
}

struct OwnNodes {
    size: Size,
    nodes: RedisNodes,
    way: NodesWay,
    /// Whose turn it is to be befallen.
    turn: AtomicUsize,
}

impl OwnNodes {
    fn options(&self) -> Result<RedlockOptions, FixtureError> {
        let (user, password) = (app::NAME, app::encoded_password());
        let url = format!("redlock://{user}:{password}@{}", self.way.hosts());
        Ok(RedlockOptions::from_url(&url)?
            .quarantine(Ttl::new(QUARANTINE)?)
            .tombstone_retention(TOMBSTONES))
    }

    /// The nodes whom it befalls; others the next time.
    fn some(&self) -> Vec<&RedisServer> {
        let servers = self.nodes.servers();
        let count = match self.size.minority {
            true => (servers.len() - 1) / 2,
            false => servers.len(),
        };
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let all = servers.iter().cycle();
        all.skip(first % servers.len()).take(count).collect()
    }
}

#[async_trait]
impl Store for OwnNodes {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        Ok(Arc::new(self.options()?.open().await?))
    }

    fn tombstone_retention(&self) -> Option<Duration> {
        Some(TOMBSTONES)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    /// The others remember what a minority has lost.
    fn lose_data(&self) -> Option<&dyn LoseData> {
        (!self.size.minority).then_some(&self.nodes as &dyn LoseData)
    }

    /// A minority that stands still is not noticed, which a case would take for
    /// a hook that does nothing.
    fn pause(&self) -> Option<&dyn Pause> {
        (!self.size.minority).then_some(&self.nodes as &dyn Pause)
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(&self.way)
    }

    fn spoiling(&self) -> Option<&dyn Spoiling> {
        (!self.size.minority).then_some(self as &dyn Spoiling)
    }
}

#[async_trait]
impl Restart for OwnNodes {
    async fn restart(&self) -> Result<(), FixtureError> {
        for server in self.some() {
            if self.size.minority {
                server.restart_empty()?;
            } else {
                server.save()?;
                Restart::restart(server).await?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Spoiling for OwnNodes {
    async fn spoil(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
        for server in self.nodes.servers() {
            if !record::spoil(server, key, how)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn spoiled_is_intact(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
        for server in self.nodes.servers() {
            if !record::is_intact(server, key, how)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
