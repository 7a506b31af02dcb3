//! Leases in an SQLite file: one host, no server, durable fencing tokens.
//!
//! ```
//! use std::time::Duration;
//! use lease_core::{AcquireOutcome, AcquireRequest, Key, Label, LeaseBackend, Owner, TokenRule, Ttl};
//! use lease_sqlite::SqliteStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(Owner::random()?.to_string());
//! # std::fs::create_dir(&folder)?;
//! # let path = folder.join("leases.db");
//! let store = SqliteStore::open(&path).await?;
//! let outcome = store
//!     .acquire(&AcquireRequest {
//!         key: Key::new("nightly-report")?,
//!         owner: Owner::random()?,
//!         ttl: Ttl::new(Duration::from_secs(30))?,
//!         label: Label::new("report on host-7")?,
//!         rule: TokenRule::NEXT,
//!         waits: None,
//!     })
//!     .await?;
//! assert!(matches!(outcome, AcquireOutcome::Granted(_)));
//! # drop(store);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(()) }
//! ```
//!
//! # What it promises, failure by failure
//! | what happens | exclusion | tokens |
//! | --- | --- | --- |
//! | a process crashes or is killed, holder or not | kept; its keys are free when their TTL is over | keep rising |
//! | every process is killed, the machine loses power | kept: a grant is on the disk before it is answered (`synchronous = FULL`), if the disk does what it is told | keep rising |
//! | the file is deleted, or an older copy is put in its place | **lost** for what was held; open clients notice at their next request and go on in the new file (never copy over a file that is open: that damages any SQLite database) | keep rising, if the clock did not step back by more than was lost; a mark that a fence had set ahead of the clock is lost |
//! | the machine's clock steps forward by more than the holder's drift allowance | **lost**: a grant may end before its holder knows, and after a step beyond the retention of tombstones so may one | keep rising |
//! | the clock steps back | kept; grants last longer by the step | keep rising: a key's mark is never lowered |
//! | the disk is full | kept; every change is `Refusing`, and nothing is half done | keep rising |
//! | the disk fails in a commit | kept; that request is `UnknownOutcome` | keep rising |
//! | another connection holds the write lock, or a process was stopped (SIGSTOP, a debugger, a frozen container) while it held it | kept; up to [`SqliteOptions::busy_wait`] an operation waits, then it is `Unavailable`. Renewals wait too, so keep write transactions on the file far shorter than a TTL, or give leases a file of their own | keep rising |
//! | the file is on a network file system | **not promised**: locks and shared memory do not work there; `diagnose` says so | not promised |
//!
//! Exclusion reaches as far as the processes of one host, containers that
//! mount the same local folder included. A store's whole promise as data is
//! [`LeaseBackend::guarantees`]; what a real file looks like is told by
//! [`LeaseBackend::diagnose`].
//!
//! # Options
//! See [`SqliteOptions`]; as a URL, [`SqliteOptions::from_url`].
//!
//! # Permissions
//! Every process needs to read and write the file, its `-wal` and `-shm`
//! companions, and their folder. The file is created with the process's umask,
//! its folder is not created. Who can write the file can break every promise.
//!
//! # Fenced writes
//! [`admit`] checks a token inside the caller's own transaction, in the
//! caller's own database, so that the check and the write are one atomic step.
//! `SqliteStore` itself is a [`Gate`] for resources that are no database. The
//! driver is re-exported as [`sqlx`].
//!
//! # How it works inside
//! * The tables `lease_keys` (a row for every key ever used: its mark and its
//!   last grant), `lease_tombstones`, `lease_gate` and `lease_schema` (the
//!   layout's version). Other tables in the file are left alone.
//! * One thread with one connection makes every change. What waits for it goes
//!   into one `BEGIN IMMEDIATE` transaction, at most 512 requests each, with an
//!   outcome each, and shares its one flush to the disk. The time is read from
//!   SQLite's clock after the write lock is held; no wait makes it stale.
//! * A request that would change nothing (the key is held) is answered by a
//!   plain read if somebody else has the write lock, or if it was held the last
//!   time: waiters do not stand in the way of writers.
//! * A dropped request that was not begun is not begun; one that was is
//!   finished by that thread. The application's runtime may stall or end
//!   without a transaction staying open.
//! * A second thread and connection inspect, list and watch. While somebody
//!   watches, it reads `PRAGMA data_version` every
//!   [`SqliteOptions::poll_interval`], and the watched keys only after it
//!   changed. Releases by the same client are hinted at once.
//! * Opening takes an advisory lock on the folder for a moment, so that many
//!   processes that open a new file at once do not get in each other's way. If
//!   somebody else keeps that lock, it goes on without it.
//! * The threads end with the last clone of the store.
//!
//! [`LeaseBackend::guarantees`]: lease_core::LeaseBackend::guarantees
//! [`LeaseBackend::diagnose`]: lease_core::LeaseBackend::diagnose
//! [`Gate`]: lease_core::Gate
#![forbid(unsafe_code)]

mod connection;
mod diagnose;
mod errors;
mod exchange;
mod gate;
mod json;
mod options;
mod reader;
mod request;
mod row;
mod schema;
mod sql;
mod store;
mod table;
mod url;
mod watch;
mod writer;

pub use gate::{GATE_TABLE_SQL, admit, create_gate_table};
pub use options::SqliteOptions;
pub use sqlx;
pub use store::SqliteStore;
