//! From a URL to a store.

use std::sync::Arc;

use lease_core::{Error, InvalidInput, Leases, LocalGate, MemoryStore};

use crate::known::{self, KNOWN, Kind};
#[cfg(all(
    feature = "queue",
    any(feature = "redis", feature = "postgres", feature = "nats")
))]
use crate::queues;
use crate::store::Store;
use crate::url;

/// A client of the store that `url` names, with the usual settings.
///
/// `memory:` is a new, empty store each time. Use [`open`] for settings of your
/// own or for the store's gate.
///
/// # Errors
/// [`Error::Invalid`] with [`InvalidInput::Url`] for a URL that names no store,
/// or one that is not compiled in: the message says which cargo feature to turn
/// on. [`Error::Store`] when the store cannot be reached or refuses. No error
/// repeats the URL: it may hold a password.
///
/// # Cancel safety
/// Safe: what was opened is closed again.
pub async fn connect(url: &str) -> Result<Leases, Error> {
    Ok(open(url).await?.leases().build())
}

/// The store that `url` names.
///
/// # Errors
/// As [`connect`].
///
/// # Cancel safety
/// As [`connect`].
pub async fn open(url: &str) -> Result<Store, Error> {
    opened(url, Connect::Now).await
}

/// As [`open`], without waiting for servers: for a program that must start while
/// they may be away, or that looks for what ails them. A file is opened all the
/// same.
///
/// # Errors
/// As [`connect`], but that a server is out of reach shows when the store is used.
///
/// # Cancel safety
/// As [`connect`].
pub async fn open_lazily(url: &str) -> Result<Store, Error> {
    opened(url, Connect::Later).await
}

/// As [`open`], for a program that only looks: tables that a store would make on a
/// server are not made, and their absence is an error. A slip in the name of a schema is
/// told then, and makes no new one. (A file is made all the same.)
///
/// # Errors
/// As [`connect`]; [`Error::Store`] when the store is not there.
///
/// # Cancel safety
/// As [`connect`].
pub async fn open_to_look(url: &str) -> Result<Store, Error> {
    opened(url, Connect::ToLook).await
}

/// When a store connects to its servers, and to what end.
#[derive(Clone, Copy)]
pub(crate) enum Connect {
    Now,
    Later,
    /// Now, and make nothing.
    ToLook,
}

async fn opened(url: &str, connect: Connect) -> Result<Store, Error> {
    #[cfg(not(any(feature = "redis", feature = "postgres", feature = "nats")))]
    let _ = connect;
    let scheme = url::scheme(url)?;
    let Some(known) = known::find(&scheme) else {
        return Err(unknown(&scheme));
    };
    match known.kind {
        Kind::Memory => memory(url),
        #[cfg(feature = "sqlite")]
        Kind::Sqlite => sqlite(&scheme, url).await,
        #[cfg(not(feature = "sqlite"))]
        Kind::Sqlite => Err(feature_off(known)),
        #[cfg(feature = "redis")]
        Kind::Redis | Kind::RedisSentinel | Kind::RedisCluster => {
            redis(&scheme, url, connect).await
        }
        #[cfg(feature = "redis")]
        Kind::Redlock => redlock(&scheme, url, connect).await,
        #[cfg(not(feature = "redis"))]
        Kind::Redis | Kind::RedisSentinel | Kind::RedisCluster | Kind::Redlock => {
            Err(feature_off(known))
        }
        #[cfg(feature = "postgres")]
        Kind::Postgres => postgres(&scheme, url, connect).await,
        #[cfg(not(feature = "postgres"))]
        Kind::Postgres => Err(feature_off(known)),
        #[cfg(all(feature = "queue", feature = "redis"))]
        Kind::QueueRedis => queues::server::keyed(known.kind, &scheme, url, connect).await,
        #[cfg(not(all(feature = "queue", feature = "redis")))]
        Kind::QueueRedis => Err(feature_off(known)),
        #[cfg(all(feature = "queue", feature = "postgres"))]
        Kind::QueuePostgres => queues::server::keyed(known.kind, &scheme, url, connect).await,
        #[cfg(not(all(feature = "queue", feature = "postgres")))]
        Kind::QueuePostgres => Err(feature_off(known)),
        #[cfg(feature = "nats")]
        Kind::Nats => queues::server::keyed(known.kind, &scheme, url, connect).await,
        #[cfg(not(feature = "nats"))]
        Kind::Nats => Err(feature_off(known)),
    }
}

/// That a memory store's URL says nothing more.
pub(crate) fn plain_memory(url: &str) -> Result<(), Error> {
    let rest = url.split_once(':').map_or("", |(_, rest)| rest);
    if !matches!(rest, "" | "//") {
        return Err(InvalidInput::Url(
            "a memory: URL takes nothing after the colon: the store is new and has no name"
                .to_owned(),
        )
        .into());
    }
    Ok(())
}

fn memory(url: &str) -> Result<Store, Error> {
    plain_memory(url)?;
    Ok(Store::new(
        Arc::new(MemoryStore::new()),
        Arc::new(LocalGate::new()),
    ))
}

#[cfg(feature = "sqlite")]
async fn sqlite(scheme: &str, url: &str) -> Result<Store, Error> {
    let options = lease_sqlite::SqliteOptions::from_url(&with_scheme(scheme, url))?;
    Ok(options.open().await?.into())
}

#[cfg(feature = "redis")]
async fn redis(scheme: &str, url: &str, connect: Connect) -> Result<Store, Error> {
    let options = lease_redis::RedisOptions::from_url(&with_scheme(scheme, url))?;
    Ok(match connect {
        Connect::Now | Connect::ToLook => options.open().await?.into(),
        Connect::Later => options.open_lazily()?.into(),
    })
}

#[cfg(feature = "redis")]
async fn redlock(scheme: &str, url: &str, connect: Connect) -> Result<Store, Error> {
    let options = lease_redis::RedlockOptions::from_url(&with_scheme(scheme, url))?;
    Ok(match connect {
        Connect::Now | Connect::ToLook => options.open().await?.into(),
        Connect::Later => options.open_lazily()?.into(),
    })
}

#[cfg(feature = "postgres")]
async fn postgres(scheme: &str, url: &str, connect: Connect) -> Result<Store, Error> {
    let options = lease_postgres::PostgresOptions::from_url(&with_scheme(scheme, url))?;
    Ok(match connect {
        Connect::Now => options.open().await?.into(),
        Connect::ToLook => options.only_look().open().await?.into(),
        Connect::Later => options.open_lazily()?.into(),
    })
}

/// Schemes are not case-sensitive; what follows is.
#[cfg(any(
    feature = "sqlite",
    feature = "redis",
    feature = "postgres",
    feature = "nats"
))]
pub(crate) fn with_scheme(scheme: &str, url: &str) -> String {
    let rest = url.get(scheme.len()..).unwrap_or_default();
    format!("{scheme}{rest}")
}

#[cfg(not(all(
    feature = "sqlite",
    feature = "redis",
    feature = "postgres",
    feature = "queue",
    feature = "nats"
)))]
pub(crate) fn feature_off(known: &known::Known) -> Error {
    let name = known.name;
    let features: Vec<_> = known.features.iter().map(|f| format!("{f:?}")).collect();
    let (plural, features) = (
        if features.len() > 1 { "s" } else { "" },
        features.join(" and "),
    );
    InvalidInput::Url(format!(
        "the store {name} is not compiled in; turn on the cargo feature{plural} {features} of the \
         crate leases"
    ))
    .into()
}

pub(crate) fn unknown(scheme: &str) -> Error {
    let known: Vec<_> = KNOWN.iter().flat_map(|k| k.schemes).copied().collect();
    InvalidInput::Url(format!(
        "no store is known by the scheme {scheme:?}; known are {}; {}",
        known.join(", "),
        usable()
    ))
    .into()
}

fn usable() -> String {
    let names: Vec<_> = crate::stores()
        .into_iter()
        .filter(|s| matches!(s.availability, crate::Availability::CompiledIn(_)))
        .flat_map(|s| s.schemes)
        .map(|scheme| format!("{scheme}:"))
        .collect();
    format!("usable here: {}", names.join(", "))
}
