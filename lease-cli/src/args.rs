//! The command line.

mod by_hand;
mod queue;

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use leases::{InvalidInput, Key, Label, Ttl};

use crate::duration;
use crate::exit::{Exit, Failure};

pub(crate) use by_hand::{Acquire, Admit, Fence, Release, Renew};
pub(crate) use queue::{Queue, QueueCommand, QueueList, QueuePut, QueueRequeue, QueueWork};

/// Runs commands under a lease, and looks after leases.
#[derive(Debug, Parser)]
#[command(name = "lease", version, max_term_width = 100)]
#[command(after_help = "\
Exit statuses: 0 done; 1 fence was answered with no, doctor \
found warnings, or requeue an item that is not set aside; 2 wrong \
arguments; 3 doctor found that a promise does not hold; 69 store unavailable; 70 a fault of this \
program or its surroundings; 75 not acquired in time; 76 lost, not held, or a stale token; 78 \
store misconfigured or refusing; 126/127 command not executable/not found; 128+n ended by signal \
n. `lease run` otherwise ends with its command's own.

LEASE_LOG=info (or debug, trace) shows every step of a lease on stderr.")]
pub(crate) struct Cli {
    /// The store, as a URL: sqlite:///absolute/path.db, redis://host:6379/0,
    /// redis+sentinel://host,host/name, redis+cluster://host,host,
    /// redlock://host,host,host, postgres://user@host/database; of queues
    /// queue+redis://host, queue+postgres://user@host/database, nats://host.
    ///
    /// Others on this machine can see arguments: set a URL that holds a
    /// password as $LEASE_STORE.
    ///
    /// Defaults to $LEASE_STORE, then to an SQLite file of this user's,
    /// $XDG_STATE_HOME/lease/leases.db (~/.local/state when unset), which is
    /// created. See `lease stores` for the stores that there are.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Acquire(Acquire),
    Renew(Renew),
    Release(Release),
    Admit(Admit),
    Inspect(Inspect),
    List(List),
    Fence(Fence),
    Stores(Stores),
    Doctor(Doctor),
    Schema(Schema),
    Quorum(Quorum),
    Queue(Queue),
}

/// How long to wait for a key.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Wait for the key at most this long. Defaults to no limit.
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: one attempt.
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
}

/// Run a command while holding a key.
///
/// Waits for the key, runs the command with LEASE_KEY and LEASE_TOKEN in its
/// environment, renews the lease, and releases it when the command ends. Ends
/// with the command's own status, or 128+n if signal n ended it. With --store
/// the command sees that store as LEASE_STORE, so that `lease admit` in it asks
/// the same one.
///
/// The command's process group is the unit of work: the key stays held until no
/// process of the group is left, also when the command itself has ended before
/// the others. Start a daemon with setsid, in a group of its own, to let it go.
///
/// When the lease cannot be confirmed any more, the command's whole process
/// group gets SIGTERM, and SIGKILL before the lease's deadline; the status is
/// then 76, whatever the command made of it.
///
/// Signals are passed on to the process group. Not passed on are the real-time
/// ones (they end `lease run`, and it the command), those that nobody can catch
/// (KILL, STOP), those that say that the receiver itself is broken (ILL, TRAP,
/// ABRT, BUS, FPE, SEGV, PIPE), TTIN and TTOU. Without job control TSTP stops
/// the command, not its renewals. If `lease run` itself is killed outright, the
/// command gets SIGKILL (Linux), and so does the rest of its process group.
///
/// The command may still write a little too late if the machine stood still in
/// the wrong moment. What it writes to should check LEASE_TOKEN, see
/// `lease admit`.
#[derive(Args, Debug)]
#[command(override_usage = "lease run [OPTIONS] <KEY> -- <CMD>...")]
pub(crate) struct Run {
    /// How long the lease lasts without a renewal, as in 500ms, 30s, 1m30s.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse_ttl)]
    pub(crate) ttl: Ttl,

    #[command(flatten)]
    pub(crate) waiting: Waiting,

    /// The time between SIGTERM and SIGKILL when the lease is lost; cut to a
    /// third of the TTL.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub(crate) kill_after: Duration,

    /// Who you are, for people who look. Defaults to command, pid and host.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<Label>,

    /// What at most one command may work on at a time. One that begins with -
    /// stands after the first --, as in `lease run -- -key -- CMD`.
    #[arg(value_name = "KEY")]
    key: Option<Key>,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Run {
    /// The key and the command, wherever the key stands.
    pub(crate) fn work(&mut self) -> Result<Work, Failure> {
        let mut command = std::mem::take(&mut self.command);
        let key = match self.key.take() {
            Some(key) => key,
            None => {
                let key = command.remove(0);
                if command.first().is_some_and(|word| word == "--") {
                    command.remove(0);
                }
                let key = key
                    .to_str()
                    .ok_or_else(|| wrong("the key is not valid text"))?;
                key.parse()
                    .map_err(|error: InvalidInput| wrong(&error.to_string()))?
            }
        };
        if command.is_empty() {
            return Err(wrong("a command is needed: lease run [OPTIONS] KEY -- CMD"));
        }
        Ok(Work { key, command })
    }
}

/// What `lease run` runs.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) key: Key,
    pub(crate) command: Vec<OsString>,
}

fn wrong(what: &str) -> Failure {
    Failure::new(Exit::Usage, format!("{what}; see lease --help"))
}

/// Show who holds a key.
///
/// Status 0 whether or not it is held.
#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// The key.
    pub(crate) key: Key,

    #[command(flatten)]
    pub(crate) form: Form,
}

/// List the keys that were ever granted or fenced.
///
/// Status 0 whether or not there are any; 78 when some could not be read, which are told
/// of on stderr.
#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only keys that start with this.
    #[arg(default_value = "")]
    pub(crate) prefix: String,

    #[command(flatten)]
    pub(crate) form: Form,
}

/// Show what each store promises.
#[derive(Args, Debug)]
pub(crate) struct Stores {
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Look at the store and say what follows for leases.
///
/// Status 0 when nothing is worse than a note, 1 for warnings, 3 when a promise
/// does not hold.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// The store; as --store.
    #[arg(value_name = "URL", conflicts_with = "store")]
    pub(crate) url: Option<String>,

    /// The TTL that your leases have.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse_ttl)]
    pub(crate) ttl: Ttl,

    #[command(flatten)]
    pub(crate) form: Form,
}

/// Print the SQL that makes the tables of a store on Postgres, of queues too.
///
/// For somebody who may make them, where the store's own role may not; the URL
/// then says migrate=false. Nothing is connected to, and the SQL may run twice.
/// Other stores need none: status 2.
#[derive(Args, Debug)]
pub(crate) struct Schema {
    /// Print the rights, too, that this role needs to use the tables.
    #[arg(long, value_name = "NAME", value_parser = role)]
    pub(crate) role: Option<String>,
}

fn role(text: &str) -> Result<String, String> {
    // Longer ones are cut off in silence, and could be another's.
    match text.len() {
        1..=63 => Ok(text.to_owned()),
        _ => Err("a role's name has 1 to 63 bytes".to_owned()),
    }
}

/// Look after a quorum of servers.
#[derive(Args, Debug)]
pub(crate) struct Quorum {
    #[command(subcommand)]
    pub(crate) command: QuorumCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QuorumCommand {
    Init(QuorumInit),
}

/// Open a new quorum, so that it grants at once.
///
/// Nobody can tell a new server from one that has forgotten everything, so a
/// new quorum would grant nothing for as long as the longest TTL. This opens it
/// at once. Do it once and by hand, when nobody holds a lease of it; never where
/// a server or a program starts. Name all of its nodes: one that is left out is
/// not asked, and leases on it are not seen.
///
/// Nothing is done unless every node answers, knows nothing of the prefix, and is
/// another server than the others: then the status is 69 when a node cannot be
/// reached, else 78. When it ends in the middle, that is safe, and nothing needs
/// to be done: nodes that were not opened wait out their quarantine.
#[derive(Args, Debug)]
pub(crate) struct QuorumInit {
    /// The quorum, as redlock://host,host,host; as --store.
    #[arg(value_name = "URL", conflicts_with = "store")]
    pub(crate) url: Option<String>,

    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Form {
    /// Print JSON, for scripts.
    #[arg(long)]
    pub(crate) json: bool,
}
