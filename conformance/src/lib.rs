//! The conformance suite of leases: what the contract of
//! [`LeaseBackend`] means, as named cases that any store can be run against.
//!
//! [`LeaseBackend`]: lease_core::LeaseBackend
//!
//! # Run it for your own backend
//! Make a test without the standard harness:
//!
//! ```toml
//! [dev-dependencies]
//! async-trait = "0.1"
//! lease-conformance = "0.1"
//!
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! and give the suite a fresh, empty store for each case, with as many
//! independent clients of it as a case asks for:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::sync::Arc;
//!
//! use lease_conformance::{Fixture, FixtureError, Store};
//! use lease_core::{LeaseBackend, MemoryStore};
//!
//! struct Mine;
//!
//! #[async_trait::async_trait]
//! impl Fixture for Mine {
//!     async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
//!         // A new database, schema or key prefix in a real backend.
//!         Ok(Box::new(MyStore(MemoryStore::new())))
//!     }
//! }
//!
//! struct MyStore(MemoryStore);
//!
//! #[async_trait::async_trait]
//! impl Store for MyStore {
//!     async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
//!         // A new connection in a real backend.
//!         Ok(Arc::new(self.0.clone()))
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     lease_conformance::main("mine", Mine)
//! }
//! ```
//!
//! [`fixture_fn`] is shorter where two closures are enough, and [`Suites`] runs
//! several stores, or one that is set up in several ways, in one binary. `cargo test --test
//! conformance`, `cargo nextest run`, filters (`-- renew::`), `--list` and
//! `--test-threads` work as with other tests. The cases run at the same time;
//! the suite takes seconds, and waits out real TTLs of a few hundred
//! milliseconds, or of the shortest that the store claims to take.
//!
//! # Read the report
//! * **ok**: the rule held.
//! * **FAILED**: the message names the case, the rule of the contract that it
//!   stands for, what was expected and what was seen. A panic, and a call that
//!   never returns, are failures too.
//! * **ignored**, with its reason in brackets: the store does not claim what
//!   the case is about ([`Guarantees`](lease_core::Guarantees)), or the fixture
//!   does not offer the hook that it needs ([`Store::restart`],
//!   [`Store::lose_data`], [`Store::pause`], [`Store::network`],
//!   [`Store::spoiling`], [`Store::tombstone_retention`]). It says nothing about the store. A store
//!   that claims less is honest; one that claims more fails, where a case can
//!   show it.
//! * **ignored**, as *claimed, and not shown by this suite (the fixture has no
//!   hook for it)*: the store claims it, and nothing here proved it. A green
//!   run says nothing for such a claim; prove it elsewhere, or do not make it.
//!
//! [`check`] runs the same cases and gives the results as data;
//! [`Report::not_shown`] lists the claims that stand unproven.
//!
//! # What it holds a store to
//! | group | rules |
//! | --- | --- |
//! | `acquire`, `contention`, `retry` | who is granted a key, what a contender sees, that a retry is safe |
//! | `expiry`, `ttl` | how long a grant lasts, and that a dead one stays dead |
//! | `renew`, `renew_many`, `release`, `abandon` | that each acts on exactly its own grant, once or many times |
//! | `token`, `token_exactly`, `fence`, `fence_blocking` | that tokens only rise, and what a fence revokes |
//! | `late`, `unknown_outcome` | copies in every order; calls dropped at every await point |
//! | `exclusion` | races, and histories of concurrent clients judged by a checker |
//! | `keys`, `listing`, `wake_up` | bytes of keys, pages, hints |
//! | `claims`, `errors`, `restart` | that what the store says of itself is so |
//! | `pause`, `network`, `foreign` | what holders see of a store that stands still, connections that are cut, values that are not ours |
//!
//! Broken stores ship with the suite (`tests/broken_stores`): each leaves one
//! rule out, and a test shows at which case the suite catches it. So do correct
//! ones that are unlike the reference (`tests/plain_stores`), which it must not
//! catch.
//!
//! # Stores of queues
//! The cargo feature `queue` brings `queue`: a suite of its own for
//! `lease_queue::QueueStore`, with a fixture of its own.
//!
//! # A server for each test
//! The cargo feature `servers` brings `servers`: real servers of Redis and
//! Postgres that a test starts, kills, pauses and restarts, with or without their
//! data; replicas and standbys; and a pooler. The feature
//! `proxy`, which is in it, brings `proxy`: a network between a client and any
//! server that delays, cuts, loses replies and goes silent when a test says so.
//! Both are for any test, of this suite or not. With the feature `containers`
//! those of Redis may come from images.
//!
//! # Runs of your own under faults
//! [`history`] judges what the holders of a few keys believed while a test kills,
//! cuts and pauses.
//!
//! # What it does not test
//! * A failover, or a step of the store's clock: these need hands on more than
//!   one server. What a store claims to survive of them is only checked for
//!   consistency here, and shown as such. For a restart, lost data, a pause and
//!   a cut connection there are hooks in [`Store`].
//! * Exclusion beyond one process (among hosts, by replication, a quorum or
//!   consensus): all clients of the fixture live in the test's own process.
//! * What frees a crashed holder's key other than its TTL: nobody loses a
//!   session here, so a claimed grace is not waited out.
//! * The quarantine after an empty start: that it is kept, how long, and that
//!   it ends. Only the cases of a restart and of lost data take it for an
//!   answer.
//! * A TTL to its end beyond a few seconds; longer ones are judged by the remaining
//!   time that the store tells.
//! * That a tombstone lasts the ten minutes of the contract: without a short
//!   [`Store::tombstone_retention`] only that it outlives the case. With one,
//!   that it lasts so long; the retention that a real store is configured with
//!   is its own.
//! * That one operation is one round trip, and how fast it is.
//! * The order in which waiters are served, claimed or not.
//! * The holder's side (deadlines, renewal, loss), which is the same for every
//!   store and tested where it lives. Only `pause` goes through it: what a store
//!   does there could hold a holder up.
//! * A race that did not happen in this run: `exclusion` samples schedules. Its
//!   seed, which a failure prints, repeats the workers' choices but not the
//!   schedule.
#![forbid(unsafe_code)]

#[cfg(all(unix, feature = "bench"))]
pub mod bench;
mod case;
mod cases;
mod client;
mod context;
mod dropping;
mod failure;
mod fixture;
mod harness;
pub mod history;
mod hooks;
#[cfg(all(unix, feature = "proxy"))]
mod ports;
#[cfg(all(unix, feature = "proxy"))]
pub mod proxy;
#[cfg(feature = "queue")]
pub mod queue;
mod report;
mod runner;
#[cfg(all(unix, feature = "servers"))]
pub mod servers;

pub use fixture::{Fixture, FixtureError, Store, fixture_fn};
pub use harness::{Suites, main, run};
pub use hooks::{LoseData, Network, Pause, Restart, Spoil, Spoiling};
pub use libtest_mimic::{Arguments, Conclusion};
pub use report::{Report, case_names, check, check_only};
pub use runner::CaseResult;
