//! The ways in which a store on Redis is set up.

use std::time::Duration;

use async_trait::async_trait;
use lease_conformance::servers::redis::{Persistence, RedisBuilder, RedisServer};
use lease_conformance::{Fixture, FixtureError, Store};

use crate::app;
use crate::cluster::OwnCluster;
use crate::store::OwnServer;
use crate::trio::OwnTrio;

/// One way, with what it changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) persistence: Persistence,
    pub(crate) tls: bool,
    pub(crate) way: Way,
    pub(crate) quarantine: Option<Duration>,
    pub(crate) replica: bool,
    /// Whether it runs at each test.
    always: bool,
}

/// How clients come to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Resp2,
    Resp3,
    UnixSocket,
    /// By a connection of the application's own.
    Over,
    /// To the primary that sentinels name.
    Sentinels,
    /// To the nodes of a cluster.
    Cluster,
}

const PLAIN: Variant = Variant {
    name: "plain",
    persistence: Persistence::None,
    tls: false,
    way: Way::Resp2,
    quarantine: None,
    replica: false,
    always: false,
};

/// Longer than a case lasts, and short enough to be waited out before each.
const QUARANTINE: Duration = Duration::from_secs(5);

/// The same where each case has five servers, and every write is on two disks.
const LONG_QUARANTINE: Duration = Duration::from_secs(10);

/// What the page on rights lists for a cluster.
const CLUSTER_RIGHTS: [&str; 3] = [
    "+cluster|slots +cluster|info +cluster|nodes +asking",
    "+spublish",
    "+ssubscribe +sunsubscribe",
];

const ALL: &[Variant] = &[
    Variant {
        always: true,
        ..PLAIN
    },
    Variant {
        name: "plain_tls",
        tls: true,
        ..PLAIN
    },
    Variant {
        name: "rdb",
        persistence: Persistence::Rdb,
        ..PLAIN
    },
    Variant {
        name: "rdb_tls",
        persistence: Persistence::Rdb,
        tls: true,
        ..PLAIN
    },
    Variant {
        name: "aof_everysec",
        persistence: Persistence::AofEverysec,
        ..PLAIN
    },
    Variant {
        name: "aof_everysec_tls",
        persistence: Persistence::AofEverysec,
        tls: true,
        ..PLAIN
    },
    Variant {
        name: "aof_always",
        persistence: Persistence::AofAlways,
        ..PLAIN
    },
    Variant {
        name: "aof_always_tls",
        persistence: Persistence::AofAlways,
        tls: true,
        always: true,
        ..PLAIN
    },
    Variant {
        name: "resp3",
        way: Way::Resp3,
        ..PLAIN
    },
    Variant {
        name: "unix",
        way: Way::UnixSocket,
        persistence: Persistence::AofEverysec,
        ..PLAIN
    },
    Variant {
        name: "quarantine",
        persistence: Persistence::Rdb,
        quarantine: Some(QUARANTINE),
        always: true,
        ..PLAIN
    },
    Variant {
        name: "sentinel",
        way: Way::Sentinels,
        persistence: Persistence::AofAlways,
        replica: true,
        always: true,
        ..PLAIN
    },
    Variant {
        name: "sentinel_tls",
        way: Way::Sentinels,
        tls: true,
        ..PLAIN
    },
    Variant {
        name: "sentinel_quarantine",
        way: Way::Sentinels,
        persistence: Persistence::AofAlways,
        replica: true,
        quarantine: Some(LONG_QUARANTINE),
        ..PLAIN
    },
    Variant {
        name: "cluster",
        way: Way::Cluster,
        persistence: Persistence::AofAlways,
        always: true,
        ..PLAIN
    },
    Variant {
        name: "over",
        way: Way::Over,
        ..PLAIN
    },
    Variant {
        name: "replica",
        replica: true,
        persistence: Persistence::AofAlways,
        ..PLAIN
    },
];

/// Those that are named, or that run always.
///
/// # Panics
/// If a name is none: a run that runs nothing must not look well.
pub(crate) fn chosen(names: Option<&str>) -> Vec<Variant> {
    let all = || ALL.iter().filter(|one| cfg!(feature = "tls") || !one.tls);
    match names {
        None => all().filter(|one| one.always).copied().collect(),
        Some("all") => all().copied().collect(),
        Some(names) => names
            .split(',')
            .map(|name| {
                *all()
                    .find(|one| one.name == name)
                    .expect("a variant's name")
            })
            .collect(),
    }
}

impl Variant {
    /// What the page on rights lists for this configuration.
    pub(crate) fn rights(&self) -> Vec<&'static str> {
        let mut rights = Vec::new();
        if self.quarantine.is_some() {
            rights.push("+info");
        }
        match self.way {
            Way::Sentinels => rights.push("+role"),
            Way::Cluster => rights.extend(CLUSTER_RIGHTS),
            _ if self.replica => rights.push("+wait"),
            _ => {}
        }
        rights
    }

    pub(crate) fn server(&self) -> RedisBuilder {
        let server = RedisServer::builder()
            .persistence(self.persistence)
            .default_user_off()
            .user(&app::acl(&self.rights()));
        if self.tls { server.tls() } else { server }
    }
}

#[async_trait]
impl Fixture for Variant {
    async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
        match self.way {
            Way::Sentinels => return Ok(Box::new(OwnTrio::new(*self).await?)),
            Way::Cluster => return Ok(Box::new(OwnCluster::new(*self)?)),
            _ => {}
        }
        let store = OwnServer::new(*self, self.server().start()?)?;
        store.wait_out_the_quarantine().await?;
        Ok(Box::new(store))
    }
}
