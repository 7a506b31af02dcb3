//! Every store that there is, compiled in or not.

use lease_core::Guarantees;

/// Whether a program can use a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Availability {
    /// Yes, and this is what it promises in its usual configuration.
    CompiledIn(Box<Guarantees>),
    /// Not until its cargo features are turned on.
    FeatureOff,
    /// Not in this version of the crate.
    NotYet,
}

/// One store, as a row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreInfo {
    /// Its name.
    pub name: &'static str,
    /// The URL schemes that name it.
    pub schemes: &'static [&'static str],
    /// The cargo features of this crate that together compile it in; none for one that
    /// always is.
    pub features: &'static [&'static str],
    /// Whether this program can use it.
    pub availability: Availability,
}

/// Every known store: what this program can use and what it could.
#[must_use]
pub fn stores() -> Vec<StoreInfo> {
    KNOWN
        .iter()
        .map(|known| StoreInfo {
            name: known.name,
            schemes: known.schemes,
            features: known.features,
            availability: availability(known),
        })
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
    Redis,
    RedisSentinel,
    RedisCluster,
    Redlock,
    Postgres,
    QueueRedis,
    QueuePostgres,
    Nats,
}

pub(crate) struct Known {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    pub(crate) schemes: &'static [&'static str],
    pub(crate) features: &'static [&'static str],
}

pub(crate) const KNOWN: &[Known] = &[
    Known {
        kind: Kind::Memory,
        name: "memory",
        schemes: &["memory"],
        features: &[],
    },
    Known {
        kind: Kind::Sqlite,
        name: "sqlite",
        schemes: &["sqlite"],
        features: &["sqlite"],
    },
    Known {
        kind: Kind::Redis,
        name: "redis",
        schemes: &[
            "redis",
            "rediss",
            "redis+unix",
            "unix",
            "valkey",
            "valkeys",
            "valkey+unix",
        ],
        features: &["redis"],
    },
    Known {
        kind: Kind::RedisSentinel,
        name: "redis-sentinel",
        schemes: &[
            "redis+sentinel",
            "rediss+sentinel",
            "valkey+sentinel",
            "valkeys+sentinel",
        ],
        features: &["redis"],
    },
    Known {
        kind: Kind::RedisCluster,
        name: "redis-cluster",
        schemes: &[
            "redis+cluster",
            "rediss+cluster",
            "valkey+cluster",
            "valkeys+cluster",
        ],
        features: &["redis"],
    },
    Known {
        kind: Kind::Redlock,
        name: "redlock",
        schemes: &["redlock", "redlocks"],
        features: &["redis"],
    },
    Known {
        kind: Kind::Postgres,
        name: "postgres",
        schemes: &["postgres", "postgresql"],
        features: &["postgres"],
    },
    Known {
        kind: Kind::Nats,
        name: "nats",
        schemes: &["nats", "tls"],
        features: &["nats"],
    },
    Known {
        kind: Kind::QueuePostgres,
        name: "queue-postgres",
        schemes: &["queue+postgres", "queue+postgresql"],
        features: &["queue", "postgres"],
    },
    Known {
        kind: Kind::QueueRedis,
        name: "queue-redis",
        schemes: &[
            "queue+redis",
            "queue+rediss",
            "queue+redis+unix",
            "queue+unix",
            "queue+valkey",
            "queue+valkeys",
            "queue+valkey+unix",
            "queue+redis+sentinel",
            "queue+rediss+sentinel",
            "queue+valkey+sentinel",
            "queue+valkeys+sentinel",
            "queue+redis+cluster",
            "queue+rediss+cluster",
            "queue+valkey+cluster",
            "queue+valkeys+cluster",
        ],
        features: &["queue", "redis"],
    },
];

/// The store that a scheme in lower case names.
pub(crate) fn find(scheme: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.schemes.contains(&scheme))
}

fn availability(known: &Known) -> Availability {
    match known.kind {
        Kind::Memory => {
            let store = lease_core::MemoryStore::new();
            compiled_in(lease_core::LeaseBackend::guarantees(&store))
        }
        #[cfg(feature = "sqlite")]
        Kind::Sqlite => compiled_in(lease_sqlite::SqliteOptions::new("leases.db").guarantees()),
        #[cfg(not(feature = "sqlite"))]
        Kind::Sqlite => Availability::FeatureOff,
        #[cfg(feature = "redis")]
        Kind::Redis => redis("redis://localhost"),
        #[cfg(feature = "redis")]
        Kind::RedisSentinel => redis("redis+sentinel://localhost/leases"),
        #[cfg(feature = "redis")]
        Kind::RedisCluster => redis("redis+cluster://localhost"),
        #[cfg(feature = "redis")]
        Kind::Redlock => match redlock() {
            Ok(guarantees) => compiled_in(guarantees),
            // A URL of our own: never.
            Err(_) => Availability::NotYet,
        },
        #[cfg(not(feature = "redis"))]
        Kind::Redis | Kind::RedisSentinel | Kind::RedisCluster | Kind::Redlock => {
            Availability::FeatureOff
        }
        #[cfg(feature = "postgres")]
        Kind::Postgres => match lease_postgres::PostgresOptions::from_url("postgres://localhost") {
            Ok(options) => compiled_in(options.guarantees()),
            // A URL of our own: never.
            Err(_) => Availability::NotYet,
        },
        #[cfg(not(feature = "postgres"))]
        Kind::Postgres => Availability::FeatureOff,
        #[cfg(all(feature = "queue", feature = "redis"))]
        Kind::QueueRedis => match crate::queues::server::redis_guarantees() {
            Ok(guarantees) => compiled_in(guarantees),
            // A URL of our own: never.
            Err(_) => Availability::NotYet,
        },
        #[cfg(not(all(feature = "queue", feature = "redis")))]
        Kind::QueueRedis => Availability::FeatureOff,
        #[cfg(all(feature = "queue", feature = "postgres"))]
        Kind::QueuePostgres => match crate::queues::server::postgres_guarantees() {
            Ok(guarantees) => compiled_in(guarantees),
            // A URL of our own: never.
            Err(_) => Availability::NotYet,
        },
        #[cfg(not(all(feature = "queue", feature = "postgres")))]
        Kind::QueuePostgres => Availability::FeatureOff,
        #[cfg(feature = "nats")]
        Kind::Nats => match lease_queue::nats::NatsOptions::from_url("nats://localhost") {
            Ok(options) => compiled_in(options.guarantees()),
            // A URL of our own: never.
            Err(_) => Availability::NotYet,
        },
        #[cfg(not(feature = "nats"))]
        Kind::Nats => Availability::FeatureOff,
    }
}

#[cfg(feature = "redis")]
fn redis(url: &str) -> Availability {
    match lease_redis::RedisOptions::from_url(url) {
        Ok(options) => compiled_in(options.guarantees()),
        // A URL of our own: never.
        Err(_) => Availability::NotYet,
    }
}

/// Of three nodes; they are the same for any number that bears the loss of one.
#[cfg(feature = "redis")]
fn redlock() -> Result<Guarantees, lease_core::StoreError> {
    let options = lease_redis::RedlockOptions::from_url("redlock://a,b,c")?;
    let store = options.open_lazily()?;
    Ok(lease_core::LeaseBackend::guarantees(&store))
}

fn compiled_in(guarantees: Guarantees) -> Availability {
    Availability::CompiledIn(Box::new(guarantees))
}
