//! Leases: at most one owner at a time, for a limited time, with a number that
//! rises for ever.
//!
//! A *lease* is a lock that ends by itself. Its holder renews it for as long as
//! it works; a holder that crashes, hangs or is cut off loses it after its TTL,
//! and learns of that **before** anybody else can get the key. Each grant comes
//! with a *fencing token*, higher than every one before it: a resource that
//! refuses lower tokens than it has seen is safe even from a holder that acts
//! after its time.
//!
//! ```
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), leases::Error> {
//! // `sqlite:///var/lib/app/leases.db` where processes of one host compete.
//! let leases = leases::connect("memory:").await?;
//!
//! let lease = leases
//!     .lease("reports/daily")
//!     .ttl(Duration::from_secs(30))
//!     .wait(Duration::from_secs(5))
//!     .acquire()
//!     .await?;
//!
//! // Renewed in the background; dropped at its next await point if it is lost.
//! lease
//!     .run(async {
//!         let token = lease.token();
//!         println!("writing with token {token}");
//!     })
//!     .await?;
//!
//! lease.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Where to go from here
//! * [`connect`] gives a client of the store that a URL names; [`open`] gives
//!   the store itself and its [`Gate`], for fencing.
//! * [`Leases`] and [`Lease`] are what an application uses; [`LeaseBackend`] is
//!   what a store implements.
//! * [`stores`] says what each store is, and what it promises.
//! * The [`guide`]: guarantees, operating, queues, observability, writing a backend.
//!
//! # Stores
//! Which stores are compiled in is a matter of cargo features; which of them is
//! used is a matter of the URL. A URL whose store is not compiled in is an
//! error that names the feature.
//!
//! | URL | feature | |
//! | --- | --- | --- |
//! | `memory:` | always | a new, empty store inside this process |
//! | `sqlite:///absolute/path.db`, `sqlite:relative.db` | `sqlite` (default) | the processes of one host |
//! | `redis://host:6379/0`, `rediss://…` by TLS, `redis+unix:///path/to/socket` | `redis` | whoever reaches that server |
//! | `redis+sentinel://host:26379,host:26379/name/0`, `rediss+sentinel://…` by TLS | `redis` | whoever reaches the primary that these sentinels name |
//! | `redis+cluster://host:6379,host:6379`, `rediss+cluster://…` by TLS | `redis` | whoever reaches that Redis Cluster |
//! | `redlock://host,host,host/0`, `redlocks://…` by TLS | `redis` | whoever reaches a majority of those servers |
//! | `postgres://user@host:5432/database`, also `postgresql://…`; `?sslmode=verify-full` for TLS, `?host=/run/postgresql` for a socket | `postgres` | whoever reaches that database |
//!
//! | `queue+redis://…`, `queue+rediss://…`, `queue+redis+sentinel://…`, `queue+redis+cluster://…` | `queue`, `redis` | the keys of a queue on Redis, and queues |
//! | `queue+postgres://…`, `queue+postgresql://…` | `queue`, `postgres` | the keys of a queue in Postgres, and queues |
//! | `nats://user:password@host:4222,host:4222`, `tls://…` by TLS | `nats` | a queue on NATS JetStream, and the keys of one |
//!
//! Of these three `?queue=NAME` names the queue whose keys are leased (`leases` unless
//! said otherwise); with the feature `queue`, `open_queue` gives the first two, and
//! `memory:`, as stores of queues.
//!
//! `valkey://`, `valkeys://`, `valkey+unix://`, `valkey+sentinel://`,
//! `valkeys+sentinel://`, `valkey+cluster://`, `valkeys+cluster://` and `unix://`
//! mean the same as their kin of Redis.
//!
//! # Cargo features
//! * `sqlite` (default): leases in an SQLite file.
//! * `redis`: leases on a Redis or Valkey server, a cluster or a quorum of them, by TLS
//!   too.
//! * `postgres`: leases in a Postgres database, by TLS too.
//! * `queue`: queues whose claims are leases, in memory, and on the servers whose features
//!   are on.
//! * `nats`: queues and leases on NATS JetStream, by TLS too.
//! * `metrics`: counters, histograms and gauges through the `metrics` facade.
//! * `full`: all of them.
#![forbid(unsafe_code)]

mod connect;
pub mod guide;
mod known;
#[cfg(feature = "queue")]
mod queues;
mod store;
mod url;

pub use connect::{connect, open, open_lazily, open_to_look};
pub use known::{Availability, StoreInfo, stores};
pub use lease_core::*;
/// Leases in a Postgres database: options, the SQL of its tables and rights.
#[cfg(feature = "postgres")]
pub use lease_postgres as postgres;
/// Queues whose claims are leases: `open_queue` gives a store of them.
#[cfg(feature = "queue")]
pub use lease_queue as queue;
/// Leases on a Redis server: options, and fenced writes there.
#[cfg(feature = "redis")]
pub use lease_redis as redis;
/// Leases in an SQLite file: options, and fenced writes in the caller's own
/// transaction.
#[cfg(feature = "sqlite")]
pub use lease_sqlite as sqlite;
#[cfg(feature = "queue")]
pub use queues::{open_queue, open_queue_lazily, open_queue_to_look};
pub use store::Store;

/// The README's program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
