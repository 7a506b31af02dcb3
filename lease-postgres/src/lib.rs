//! Leases on Postgres: fenced by hybrid logical clocks, one statement for each
//! operation.
//!
//! ```no_run
//! use std::time::Duration;
//! use lease_core::{AcquireOutcome, AcquireRequest, Key, Label, LeaseBackend, Owner, TokenRule, Ttl};
//! use lease_postgres::PostgresOptions;
//!
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! let store = PostgresOptions::from_url("postgres://app@127.0.0.1/app")?.open().await?;
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
//! # Ok(()) }
//! ```
//!
//! For a primary of Postgres from version 12 on (tested with 15), reached
//! directly or by PgBouncer (tested with 1.18); see [below](#poolers).
//!
//! # What it promises, failure by failure
//! Where exclusion is lost, the former holder learns of it at its next renewal
//! at the latest; until then two may believe, and only the token protects.
//!
//! | what happens | exclusion | tokens |
//! | --- | --- | --- |
//! | a client is killed, holder or not | kept; its keys are free when their TTL is over, or with [`PostgresOptions::crash_detection`] about a second and the grace later: less than 3 s by default | keep rising |
//! | the server restarts, crashes or loses its power | kept: a grant is on the disk before it is answered, if the disk does what it is told. A release may be undone; its key is free when the TTL is over | keep rising |
//! | the same with [`PostgresOptions::asynchronous_commit`], or with `fsync` off | **lost** for grants and renewals of the last moments | keep rising, if the clock did not step back behind what was lost |
//! | the tables are dropped, or an older backup comes back | **lost** for what was held | likewise; a mark that a fence or `Exactly` had set ahead of the clock is lost |
//! | a synchronous standby takes over (one of `synchronous_standby_names`) | kept: a grant has reached it before it is answered. Not with [`PostgresOptions::asynchronous_commit`], nor where somebody cancels a commit that waits for it (`pg_cancel_backend`): Postgres then answers as if it had not | keep rising |
//! | an asynchronous standby takes over | **lost** for what had not reached it: two hold the key, and a fenced write of the older one is refused | likewise, if its clock is not behind what was lost |
//! | the old primary goes on beside the new one | **lost**: a client that is still connected to it holds and renews there. Only the token protects; see to it that the old one is stopped, or has synchronous standbys without which it answers no grant | may repeat between the two, if their clocks differ |
//! | the server's clock steps forward by more than the holder's drift allowance | **lost**: grants end early, and after a step beyond [`PostgresOptions::tombstone_retention`] tombstones do | keep rising |
//! | the clock steps back | kept; grants last longer by the step | keep rising |
//! | the server stands still | kept: nobody is granted anything meanwhile. A request without an answer for [`PostgresOptions::response_timeout`] is `UnknownOutcome` | keep rising |
//! | a connection is lost, or its session is ended | kept; what was under way is asked once more over another one where that can do no harm (of an acquire, `Granted` says so, and any other answer is `UnknownOutcome`), else it is `UnknownOutcome`; connections are opened after a pause of at most a second | keep rising |
//! | the same with [`PostgresOptions::crash_detection`], for less than the grace | kept; the client takes another session and renews its leases at once | keep rising |
//! | an outage, a restart or a failover lasts longer than that grace | kept; **every lease of the client is lost**, whatever its TTL: its holder knows before another can be granted it | keep rising |
//! | the application has used up its own pool | kept: no connection of it is used | keep rising |
//! | the server takes no more connections, or answers no new one | kept; `Unavailable` where a new one is needed; renewals go over any that is open | keep rising |
//! | somebody's transaction keeps a key's row locked, as [`InTransaction::hold`] does | kept; what would change that key is `Unavailable` after the response timeout. Where an expired grant is kept so, acquiring finds it `Held`. Other keys notice nothing | keep rising |
//! | serialization failures, deadlocks | none is seen: the statement is asked again | keep rising |
//! | what the store had prepared is gone or changed: somebody altered a table or sent `DISCARD`, or a pooler began to share sessions | none is seen: the statement is asked again over a new connection | keep rising |
//! | somebody wrote into the tables by hand | kept: where part of a grant is missing or cannot be understood, and its time is not known to be over, its key is `Refusing` and granted to nobody until it is repaired. A list leaves such a key out, with a warning in the log. An expired grant is in nobody's way, whatever it holds. A `session` or a `grace_us` that somebody wrote counts as one | keep rising, unless the mark of a key that nobody holds was lowered |
//! | somebody changed the tables | `Refusing` by whoever opens the store: columns of other types, another primary key, a table that inherits from one of ours, another function of the same name. The doctor names them. Do not do so while programs run: they looked when they began | keep rising |
//! | the server is a standby or read-only, its disk is full | kept; every change is `Refusing` and did nothing, renewals too, so that leases end at their deadlines | keep rising |
//!
//! # Poolers
//! Whether the way leads by a pooler, and by which kind, is found out at each
//! connection by trying. Where each client keeps a session of its own (`pool_mode =
//! session`, or no pooler) nothing differs. Where sessions are shared by
//! transaction, or where it cannot be shown that they are not:
//!
//! * each statement goes in a transaction of its own, with all settings that it
//!   relies on, and without a prepared statement that has a name. That is four
//!   round trips instead of one. The server ends the session of a client that stands
//!   still in the midst of it for [`PostgresOptions::response_timeout`], so that it
//!   keeps no row locked and no session of the pooler's;
//! * nobody can listen. Waiters look every 500 ms, and when the holder's time is
//!   over; the guarantees of a store that is connected say so;
//! * a pooler that was found to share sessions is taken to do so by the same store
//!   from then on.
//!
//! PgBouncer needs no setting for it. It logs a warning, `unsupported startup parameter:
//! options`, for each new connection: the trial. It refuses `options` in the URL, unless
//! its `ignore_startup_parameters` names them; then they have no effect. `pool_mode =
//! statement` is `Refusing`: there are no transactions there. A user or database that
//! PgBouncer does not know is, too. A pooler that passes a client's start on to the server
//! and then shares that session with others is not found out.
//!
//! # Failover
//! The driver knows one address: after a failover it must lead to the new primary,
//! by a name, a virtual address or a pooler. A server that has become a standby, or
//! that somebody made read-only (`default_transaction_read_only`, which the store
//! leaves as it is), says so at the next change: its connections are closed, and
//! opened anew. A former primary that goes on without its synchronous standby grants
//! nothing: its commits are not answered, and are `UnknownOutcome`.
//!
//! # Options
//! See [`PostgresOptions`]; as a URL, [`PostgresOptions::from_url`]; like a pool
//! of your own, [`PostgresOptions::from_pool`]. What a real server does is told by
//! [`LeaseBackend::diagnose`], see [`doctor`](guide::doctor).
//!
//! | in a URL | by default | what it does |
//! | --- | --- | --- |
//! | `schema`, `table_prefix` | `public`, `lease_` | where the tables are; clients exclude each other only in the same ones |
//! | `migrate` | `true` | make schema and tables that are missing |
//! | `connections` | 4 | for acquiring and the like, at most 64; two for renewals and one for wake-ups come on top |
//! | `asynchronous_commit` | `false` | answer before it is on the disk: exclusion survives no restart |
//! | `crash_detection` | `false` | free a crashed client's keys by a session that others see gone: `true` (a grace of 1.5 s) or a grace such as `1500ms`, from 500 ms to 60 s; see [`PostgresOptions::crash_detection`] for its price |
//! | `response_timeout_ms` | 5,000 | give up on a silent server, or on a row that somebody keeps locked |
//! | `connect_timeout_ms` | 5,000 | for a connection, its login and TLS |
//! | `tombstone_retention_ms` | 600,000 | how long an abandoned owner is remembered |
//! | `sslmode`, `sslrootcert`, `sslcert`, `sslkey` | `prefer` | TLS: only `verify-full` proves who answers |
//! | `host`, `port`, `user`, `password`, `dbname`, `application_name`, `options` | | as every client of Postgres has them |
//!
//! # The environment
//! What neither the URL nor the code says comes from `PGHOST` (or `PGHOSTADDR`),
//! `PGPORT`, `PGUSER`, `PGPASSWORD`, `PGDATABASE`, `PGAPPNAME`, `PGSSLMODE`,
//! `PGSSLROOTCERT`, `PGSSLCERT` and `PGSSLKEY`, as with every client, and the password
//! then from the file that `PGPASSFILE` names, `~/.pgpass` unless set. `PGOPTIONS` comes
//! before the URL's `options`. No other `PG…` variable counts (`PGSERVICE` and
//! `PGTARGETSESSIONATTRS` do not), and a socket is looked for where there is neither
//! host nor variable. A `PGPORT` or `PGSSLMODE` that cannot be read is an error of
//! [`PostgresOptions::from_url`]. So a password need not stand in a URL; wherever it
//! comes from, no error, log or `Debug` shows it.
//!
//! # Tables and permissions
//! The store makes its schema and tables if they are missing, however many
//! programs start at once, and nothing by [`PostgresOptions::only_look`], as `lease list`
//! and `lease inspect` open it. [`PostgresOptions::schema_sql`] gives the same as SQL
//! for somebody else to run, and [`PostgresOptions::grants_sql`] the rights that a
//! role needs then (`lease schema --role NAME` prints both): `USAGE` of the schema; `SELECT` of the table with the version;
//! `SELECT`, `INSERT` and `UPDATE` of the keys and the gate; `DELETE` too of the
//! tombstones; and `EXECUTE` of the two functions. `lease doctor` names each right
//! that a role lacks, with its `GRANT`. The database's encoding must be UTF8.
//!
//! A key's row stays for good. A few million of them do no harm; keys that name each
//! piece of work instead of what is to be guarded make more.
//!
//! # Inside your own transaction
//! The lease and the data that it guards commit together: [`InTransaction`] proves a
//! lease live and keeps it until the commit, or checks its token in the transaction
//! that writes; so do SQL functions, for any other program. See
//! [`transactions`](guide::transactions). [`PostgresStore`] itself is a [`Gate`] for
//! resources that are elsewhere.
//!
//! # How it works inside
//! * **A key is a row**, found by its bytes: the mark, the last grant and where
//!   it stands, a version. It is never deleted, so that its tokens never start
//!   again. A renewal touches no index.
//! * **A tombstone** says that an owner was abandoned or revoked. Old ones are
//!   deleted along the way.
//! * **One statement** over arrays is one operation for one or many keys, each
//!   with an outcome of its own. It looks at a snapshot and answers from there
//!   what changes nothing. What it changes it locks first, without waiting, and
//!   reads the clock after that.
//! * **A locked row** is skipped and asked for again, so that no other key, and no
//!   connection, waits with it.
//! * **Batches.** A lone request goes out at once. While as many statements are
//!   under way as there are connections, others gather, and one statement takes
//!   all of a kind, up to 256. A statement that fails is asked again for each of
//!   them. Renewals of many leases are one pass over the rows of 1,000; those that
//!   find no live grant, or a locked row, ask again for the reason.
//! * **Connections** are the store's own, opened as needed and then held, for each
//!   tokio runtime: up to [`PostgresOptions::connections`], two for renewals
//!   alone, one for wake-ups while somebody waits, one for crash detection if that
//!   is on.
//! * **A release** is not flushed to the disk before it is answered.
//! * **Wake-ups.** Waiters `LISTEN`, and write into the key's row until when they
//!   wait. A release, an abandoned grant and a fence that frees its key notify
//!   only then. An expiry notifies nobody: the core knows when it will be.
//! * **Crash detection** is one advisory lock for each client, on a random number
//!   and over one connection, which the client's grants name. Who finds a key held
//!   tries that lock, shared, in a statement of its own; if it is free, the grant's
//!   time is cut to the holder's grace, if it still names that session. A holder
//!   that lives has renewed it under its next session by then, with a new number,
//!   or knows that it is lost. A ping, four times in a grace, answers for all
//!   leases of a client; a lease is renewed at a third of its TTL as ever, soon after
//!   its grant, and with each new session.
//! * **Listing** goes page by page in the order of the keys' bytes.
//!
//! [`Gate`]: lease_core::Gate
//! [`LeaseBackend::diagnose`]: lease_core::LeaseBackend::diagnose
#![forbid(unsafe_code)]

mod address;
mod connection;
mod doctor;
mod errors;
mod exchange;
pub mod guide;
mod held;
mod in_transaction;
mod lane;
mod layout;
mod list;
mod names;
mod options;
#[doc(hidden)]
pub mod parts;
mod pooler;
mod renewals;
mod reply;
mod request;
mod runtimes;
mod schema;
mod sql;
mod store;
mod url;
mod wake;
mod wire;
mod witness;

pub use in_transaction::{InTransaction, must_begin_again};
pub use options::PostgresOptions;
pub use sqlx;
pub use store::PostgresStore;
