//! Leases on Redis: fenced by hybrid logical clocks, one script for each
//! operation.
//!
//! ```no_run
//! use std::time::Duration;
//! use lease_core::{AcquireOutcome, AcquireRequest, Key, Label, LeaseBackend, Owner, TokenRule, Ttl};
//! use lease_redis::RedisOptions;
//!
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisOptions::from_url("redis://127.0.0.1:6379/0")?.open().await?;
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
//! For Redis from version 6 on and for Valkey: **one** primary, with or without
//! replicas, named by its address, or by the sentinels that watch it, see
//! [`sentinel`](guide::sentinel); or a Redis Cluster, see
//! [`cluster`](guide::cluster). A quorum of single servers is [`RedlockOptions`];
//! see [`redlock`](guide::redlock).
//!
//! # What it promises, failure by failure
//! Where exclusion is lost, the former holder learns of it at its next renewal
//! at the latest; until then two may believe, and only the token protects.
//! *Quarantine* is [`RedisOptions::quarantine`].
//!
//! | what happens | exclusion | tokens |
//! | --- | --- | --- |
//! | a client is killed, holder or not | kept; its keys are free when their TTL is over | keep rising |
//! | the server restarts with `appendfsync always` | kept: a grant is on the disk before it is answered, if the disk does what it is told. Say so by [`RedisOptions::durable`]. Over Sentinel a replica may take over instead | keep rising |
//! | it restarts with `appendfsync everysec` | kept if only the server was killed; after a loss of power **lost** for grants and renewals of the last second or two, kept with a quarantine | keep rising, if the clock did not step back behind what was lost |
//! | it restarts with snapshots (RDB) | kept after a clean stop; after a kill **lost** for what came after the last snapshot, kept with a quarantine | likewise |
//! | it restarts without persistence; its data is lost; `FLUSHALL` | **lost** for what was held; kept with a quarantine | likewise; a mark that a fence or `Exactly` had set ahead of the clock is lost, as it is with anything that loses the mark |
//! | a record is evicted (`maxmemory` with any policy but `noeviction`), deleted or overwritten by hand | **lost** for that key, quarantine or not: nothing tells that it was there | keep rising, if the clock did not step back behind the mark |
//! | the server's clock steps forward by more than the holder's drift allowance | **lost**: grants end early, and after a step beyond [`RedisOptions::tombstone_retention`] tombstones do | keep rising |
//! | the clock steps back | kept; grants last longer by the step | keep rising, unless it steps back by more than [`RedisOptions::mark_retention`] and the key had been idle for that long |
//! | a replica takes over | **lost** for what had not reached it; kept with a quarantine, if the former primary answers nobody any more; that it takes over again later begins another | keep rising, if the replica's clock is not behind what was lost |
//! | it takes over, with [`RedisOptions::wait_for_replicas`] | likewise, but less is lost: what was confirmed is on so many replicas, and the one that takes over may be another | likewise |
//! | two servers take themselves for the primary | **lost**, quarantine or not; over Sentinel a client leaves the former one when it hears of the other | each server's rise; between the two they may be equal |
//! | the server stands still (SIGSTOP, swapping, a long script of others) | kept: nobody is granted anything meanwhile. A request without an answer for [`RedisOptions::response_timeout`] is `UnknownOutcome` | keep rising |
//! | a connection is lost | kept; what was under way is asked once more over another one where that can do no harm, else it is `UnknownOutcome`; connections are opened after a pause of at most a second | keep rising |
//! | packets vanish without a word | kept; the connection is given up after the response timeout, or as soon as a caller gives up while it has been silent for far longer than its round trips, and a new one is opened | keep rising |
//! | `SCRIPT FLUSH` between any two requests | kept; nothing is noticed | keep rising |
//! | the memory is full, the disk fails (`MISCONF`), the server is a replica | kept; every change is `Refusing` and did nothing, renewals too, so that leases end at their deadlines | keep rising |
//! | something foreign stands at one of the store's names | kept; what needs it is `Refusing`, and it is left as it is | keep rising |
//!
//! # What a quarantine costs
//! After each restart, each loss of data and each failover no free key is
//! granted for the longest TTL there may be; renewals go on. It counts from the
//! first request for a free key that finds another life of the server, or no
//! trace of one: so **the first grant ever waits as long, too**. It
//! holds only if all clients of the prefix set the same one: its length stands in
//! the birth marker, and a client with another one, or none, is refused with what
//! both are (one without any at keys that are new). To change it, stop all clients, let
//! their last TTL pass, and remove the marker, `prefix:birth`: the new one begins.
//!
//! A server shows that it was made the primary by another replication id of its
//! data. It takes another one, too, when its first replica joins, and when it
//! has been without any for `repl-backlog-ttl` (an hour): each begins a
//! quarantine that nothing called for, so have the replicas before the leases.
//! A free key's grant takes the server about 8 µs more with a quarantine.
//!
//! A store's whole promise as data is [`LeaseBackend::guarantees`]; what a real
//! server does is told by [`LeaseBackend::diagnose`], see [`doctor`](guide::doctor).
//!
//! # Marks are forgotten in the end
//! Every key ever used has a record, since its next token must be higher than
//! all before. Redis keeps it in memory, so it is given back: when a key has
//! been idle for [`RedisOptions::mark_retention`] (a day unless configured),
//! counted from the end of its last grant or from its mark, whichever is later,
//! Redis drops the record. From then on
//!
//! * the key looks as if it had never been used: it is not listed, and has no
//!   mark to look at;
//! * its next token is higher all the same, because no token is lower than the
//!   server's clock, and every mark that was dropped is further back than the
//!   retention;
//! * [`TokenRule::Exactly`] and [`LeaseBackend::fence`] cannot know the old
//!   mark. They take a floor for it that is above every mark that was ever
//!   dropped, if the clock did not step back: the clock less the retention. So `Exactly(T)` is refused for a
//!   `T` at or below that floor, and a fence raises the mark to it at least,
//!   even on a key that was really never used;
//! * while the store is younger than the retention, nothing was dropped yet, and
//!   the floor is none. The store's age is kept in the *birth marker*. Whoever
//!   deletes that, deletes the floor for as long as the retention.
//!
//! The floor is right if all clients of the prefix have the same retention. After
//! it was raised, it is right once the longer one has passed: marks that were
//! dropped earlier may lie above it until then. And data that is lost takes its
//! marks along: `Exactly(T)` may be granted again then for a `T` that was granted
//! before, quarantine or not. `Next`, which is what everybody asks for, is never
//! touched by any of this, since it is never below the clock; and a quorum or a
//! migration asks for `Exactly(T)` only with a `T` that some store has just made
//! by `Next`.
//!
//! # Options
//! See [`RedisOptions`]; as a URL, [`RedisOptions::from_url`]. A client or a
//! connection of your own: [`RedisOptions::from_client`],
//! [`RedisOptions::open_over`].
//!
//! # Permissions
//! See [`acl`](guide::acl): a dozen commands, and the keys and channels under the
//! prefix.
//!
//! # Fenced writes
//! [`RedisGate`] checks a token in the same script as the write, over your own
//! connection: `SET`, `HSET`, `DEL`, or a script of your own. [`RedisStore`]
//! itself is a [`Gate`] for resources that are elsewhere. The driver is
//! re-exported as [`redis`].
//!
//! # How it works inside
//! * **Names.** `prefix:{key}` is the record of a key and its wake-up channel,
//!   `prefix:{key}:owner` the tombstone of an owner, `prefix:birth` the birth
//!   marker (in a cluster `prefix:birth:{number}`, one for each slot),
//!   `prefix:gate:{resource}` a gate's mark. The braces of ours are the
//!   only ones: in keys they are written `%7B` and `%7D`, and `%` is `%25`.
//! * **A record** is one string: `L1`, one letter for where it stands (granted,
//!   released, revoked, no grant yet), five doubles (the mark, then of the last
//!   grant its token, when it was granted and when it expires, and until when
//!   there may be tombstones), the owner, the label. It is packed, since to
//!   read text took most of a script's time. Redis's own expiry only tidies up:
//!   what counts is the time in the record.
//! * **A tombstone** says that an owner was abandoned or revoked. It is looked
//!   for only while the record says that there may be one.
//! * **The birth marker** holds when the store was first used, and, for the
//!   quarantine, its length, the server's life and when that was first seen: its run id,
//!   which changes when it starts, and the replication id of its data, which
//!   changes when it is made a primary.
//! * **One script** does every operation, each for one or many keys. It reads
//!   the server's clock once. Each operation of a batch has its own outcome,
//!   and one that fails has changed nothing. The script is called by its hash,
//!   and sent whole to a server that does not know it.
//! * **Batches.** A lone request goes out at once. While some calls are under
//!   way, others gather, at most 256 each, and one call takes them all. Nothing
//!   waits for company. Renewals of many leases are one call for each 256.
//! * **Links.** One connection for each tokio runtime, in a cluster to each node;
//!   one more with `wait_for_replicas` (a `WAIT` blocks its connection), one for
//!   wake-ups while somebody waits (in a cluster to the key's node), and over
//!   Sentinel one to each sentinel. A dropped request is not unsent: one that
//!   waits for its batch is dropped, one that was sent may take effect.
//! * **Wake-ups.** A release, an abandoned grant and a fence that frees its key
//!   publish on the key's channel. An expiry publishes nothing: the core knows
//!   when it will be. A message that is lost costs a wait, never a lease.
//! * **Listing** goes by `SCAN`, page by page, and then looks at each key. It
//!   sees every key that is there from its begin to its end, once.
//!
//! [`TokenRule::Exactly`]: lease_core::TokenRule::Exactly
//! [`LeaseBackend::fence`]: lease_core::LeaseBackend::fence
//! [`LeaseBackend::guarantees`]: lease_core::LeaseBackend::guarantees
//! [`LeaseBackend::diagnose`]: lease_core::LeaseBackend::diagnose
//! [`Gate`]: lease_core::Gate
#![forbid(unsafe_code)]

mod address;
mod client;
mod cluster;
mod doctor;
mod errors;
mod gate;
pub mod guide;
mod lane;
mod link;
mod list;
mod names;
mod options;
#[doc(hidden)]
pub mod parts;
mod redlock;
mod reply;
mod request;
mod script;
mod sentinel;
mod servers;
mod store;
mod url;
mod wake;
mod wire;

pub use gate::{ADMIT_LUA, FencedScript, RedisGate, ScriptError, stale_token};
pub use options::RedisOptions;
pub use redis;
pub use redlock::{InUse, InitReport, InitState, NodeInit, RedlockOptions, RedlockStore};
pub use store::RedisStore;
