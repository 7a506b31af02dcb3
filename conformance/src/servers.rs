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
//! # What stays behind
//! Nothing: dropping a server kills it and removes its folder, also when the
//! test panics. When the test's own process is killed, Linux kills the server
//! with it; only the folder in the system's temporary folder remains. (On other
//! systems than Linux the server remains, too.)
//!
//! # From async code
//! The calls block: most for milliseconds, a start for some tens of them, a
//! restart of much data for longer. They need no runtime and work within one;
//! where other tasks must go on in the same thread meanwhile, call them from
//! `spawn_blocking`.

pub mod redis;

mod error;
mod process;
mod tls;

pub use error::ServerError;
