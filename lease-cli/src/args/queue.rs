//! The command line of `lease queue`.

use std::ffi::OsString;
use std::num::NonZero;
use std::time::Duration;

use clap::{Args, Subcommand};
use leases::queue::{ItemId, QueueName};
use leases::{Key, Label, Ttl};

use super::Form;
use crate::duration;

/// Put items into queues, and work on them.
///
/// The store is one of queues: queue+redis://…, queue+postgres://….
#[derive(Args, Debug)]
pub(crate) struct Queue {
    #[command(subcommand)]
    pub(crate) command: QueueCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    Put(QueuePut),
    Work(QueueWork),
    List(QueueList),
    Dead(QueueList),
    Requeue(QueueRequeue),
}

/// Put an item into a queue, and print the item.
///
/// The payload is what comes from stdin, byte for byte. The queue needs not be
/// made before. With a deduplication key that another item has, nothing is put,
/// and that item is printed; the status is 0 all the same.
#[derive(Args, Debug)]
pub(crate) struct QueuePut {
    /// The queue.
    #[arg(value_parser = queue_name)]
    pub(crate) queue: QueueName,

    /// The payload, instead of stdin. Others on this machine can see it.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) data: Option<String>,

    /// The item's group: its items have one owner at a time, first in, first out.
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<Key>,

    /// No second item with this key while one is in the queue, or was completed
    /// a short time ago (on most stores 10 minutes).
    #[arg(long, value_name = "KEY")]
    pub(crate) dedup: Option<Key>,

    /// Nobody gets the item before this has passed.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub(crate) delay: Duration,

    #[command(flatten)]
    pub(crate) form: Form,
}

/// Run a command for each item of a queue.
///
/// The command gets the payload on its stdin, and in its environment LEASE_QUEUE,
/// LEASE_ITEM, LEASE_GROUP (of an item in a group), LEASE_ATTEMPT (from 1) and
/// LEASE_TOKEN, which rises with each claim of what LEASE_KEY names: the group, or
/// the item without one. With --store it sees that store as LEASE_STORE.
///
/// Status 0 of the command completes its item. Any other, and a signal, fail the
/// attempt: the item comes again after a while, and is set aside after the last
/// attempt (see `lease queue dead`). A command that cannot be run ends the worker
/// with status 126 or 127, and the item goes back.
///
/// A claim is renewed for as long as any process of the command's group is there.
/// When it cannot be confirmed any more, the group is stopped before anybody else
/// can get the item, as by `lease run`. An item may be worked on more than once:
/// let what the command writes to check LEASE_TOKEN.
///
/// The first of the signals TERM, INT, HUP, QUIT, USR1 and USR2 stops the worker
/// from claiming; it ends with status 0 when its commands have ended. The second
/// stops the commands, gives their items back as if they had not been tried, and
/// ends the worker with 128+n. If the worker is killed outright, so are its commands,
/// and their items come again after the TTL.
#[derive(Args, Debug)]
#[command(override_usage = "lease queue work [OPTIONS] <QUEUE> -- <CMD>...")]
pub(crate) struct QueueWork {
    /// The queue.
    #[arg(value_parser = queue_name)]
    pub(crate) queue: QueueName,

    /// So many commands at a time.
    #[arg(short, long, value_name = "N", default_value = "1")]
    pub(crate) jobs: NonZero<u8>,

    /// Work on one item, which is waited for, and end with its command's status;
    /// 76 when the claim was lost.
    #[arg(long, conflicts_with_all = ["until_empty", "jobs"])]
    pub(crate) once: bool,

    /// End when the queue holds nothing but what was set aside. Items that are
    /// delayed, or that others work on, are waited for.
    #[arg(long)]
    pub(crate) until_empty: bool,

    /// How long a claim lasts without a renewal, as in 500ms, 30s, 1m30s.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse_ttl)]
    pub(crate) ttl: Ttl,

    /// An item is set aside after so many attempts.
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) max_attempts: NonZero<u32>,

    /// How long an item waits after its first failed attempt; twice as long after
    /// each other one, up to five minutes (or this, when it is longer).
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    pub(crate) backoff: Duration,

    /// A command that runs for longer is stopped, and its attempt has failed.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,

    /// The time between SIGTERM and SIGKILL when a command is stopped; cut to a
    /// third of the TTL.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub(crate) kill_after: Duration,

    /// Who you are, for people who look. Defaults to command, pid and host.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<Label>,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// List a queue's items, or those that were set aside (`dead`).
///
/// Status 0 whether or not there are any; 78 when some could not be read, which are told
/// of on stderr.
#[derive(Args, Debug)]
pub(crate) struct QueueList {
    /// The queue.
    #[arg(value_parser = queue_name)]
    pub(crate) queue: QueueName,

    #[command(flatten)]
    pub(crate) form: Form,
}

/// Put items that were set aside back into their queue, with no attempts.
///
/// Prints each item that was put back. Status 1 when one of those named was not
/// set aside; the others are put back all the same.
#[derive(Args, Debug)]
pub(crate) struct QueueRequeue {
    /// The queue.
    #[arg(value_parser = queue_name)]
    pub(crate) queue: QueueName,

    /// The items, as `lease queue dead` prints them.
    #[arg(
        value_name = "ITEM",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub(crate) items: Vec<ItemId>,

    /// All that are set aside now.
    #[arg(long)]
    pub(crate) all: bool,
}

fn queue_name(text: &str) -> Result<QueueName, String> {
    QueueName::new(text).map_err(|error| error.to_string())
}
