//! Real servers for tests: each on a free port and in a folder of its own,
//! killed, paused and restarted at will.
//!
//! ```
//! use lease_conformance::servers::redis::{Persistence, RedisServer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = RedisServer::builder()
//!     .persistence(Persistence::AofAlways)
//!     .start()?;
//! server.command(&["SET", "color", "blue"])?;
//! server.kill()?;
//! server.start()?;
//! assert_eq!(server.command(&["GET", "color"])?.text(), Some("blue"));
//! println!("connect to {}", server.url());
//! # Ok(())
//! # }
//! ```
//!
//! [`postgres`] has servers of that kind, their standbys, and a pooler before
//! them; [`nats`] has them with JetStream, and a cluster of three.
//!
//! # What stays behind
//! Nothing: dropping a server kills it and removes its folder, also when the
//! test panics. When the test's own process is killed, Linux kills the server
//! with it; only the folder in the system's temporary folder remains, and of
//! Postgres not even that. (On other systems than Linux the server remains, too.)
//!
//! # In a fixture of the suite
//! A [`RedisServer`](redis::RedisServer), a
//! [`PostgresServer`](postgres::PostgresServer) and a
//! [`NatsServer`](nats::NatsServer) are themselves the hooks for a
//! restart, for lost data and for a pause, and a
//! [`FaultProxy`](crate::proxy::FaultProxy) is the one for a network:
//!
//! ```
//! # use std::sync::Arc;
//! use lease_conformance::proxy::FaultProxy;
//! use lease_conformance::servers::redis::{Persistence, RedisServer};
//! use lease_conformance::{Fixture, FixtureError, LoseData, Network, Pause, Restart, Store};
//! # use lease_core::{LeaseBackend, MemoryStore};
//!
//! struct OwnServers;
//!
//! #[async_trait::async_trait]
//! impl Fixture for OwnServers {
//!     async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
//!         let server = RedisServer::builder()
//!             .persistence(Persistence::AofAlways)
//!             .start()?;
//!         let proxy = FaultProxy::start(server.address())?;
//!         Ok(Box::new(OwnServer { server, proxy }))
//!     }
//! }
//!
//! struct OwnServer {
//!     server: RedisServer,
//!     proxy: FaultProxy,
//! }
//!
//! #[async_trait::async_trait]
//! impl Store for OwnServer {
//!     async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
//!         let url = self.server.url().through(self.proxy.address()).to_string();
//!         # let _ = url;
//!         # Ok(Arc::new(MemoryStore::new()))
//!         // … connect your backend to it.
//!     }
//!
//!     fn restart(&self) -> Option<&dyn Restart> {
//!         Some(&self.server)
//!     }
//!
//!     fn lose_data(&self) -> Option<&dyn LoseData> {
//!         Some(&self.server)
//!     }
//!
//!     fn pause(&self) -> Option<&dyn Pause> {
//!         Some(&self.server)
//!     }
//!
//!     fn network(&self) -> Option<&dyn Network> {
//!         Some(&self.proxy)
//!     }
//! }
//! # let _ = OwnServers;
//! ```
//!
//! # From async code
//! The calls block: most for milliseconds, a start for some tens of them (of
//! Postgres some hundreds), a restart of much data for longer. They need no runtime and work within one;
//! where other tasks must go on in the same thread meanwhile, call them from
//! `spawn_blocking`.

#[cfg(feature = "containers")]
pub mod container;
pub mod nats;
pub mod postgres;
pub mod redis;

mod account;
mod error;
mod hooks;
mod parts;
mod proc;
mod process;
mod running;
mod tls;
mod tool;

pub use error::ServerError;
