//! What another kind of store on Redis is built from: scripts over the connections of
//! a [`RedisStore`], and its errors.
//!
//! For the crates of this workspace alone: any version may change it.

use std::fmt;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use lease_core::{Diagnosis, Key, StoreError, StoreErrorKind, Ttl};
use redis::{Cmd, RedisError, Value};

use crate::cluster::{What, slot};
use crate::errors;
use crate::link::Up;
use crate::script::{failed, is_no_script};
use crate::servers::Servers;
use crate::store::{Line, RedisStore};

/// A script, known by its hash.
#[derive(Debug)]
pub struct Program {
    code: String,
    hash: String,
    /// Some server has had it from us.
    sent: AtomicBool,
}

impl Program {
    /// Whether it compiles, the server says when it is run.
    #[must_use]
    pub fn new(code: String) -> Self {
        Self {
            hash: redis::Script::new(&code).get_hash().to_owned(),
            code,
            sent: AtomicBool::new(false),
        }
    }

    /// By its hash, or whole for a server that does not have it. `name` stands for all
    /// the names that the script makes: they share its slot.
    fn command(&self, name: &str, args: &Arguments, whole: bool) -> Cmd {
        let code = if whole { self.code.len() } else { 0 };
        let bytes = 128 + 2 * name.len() + code + args.bytes.len();
        let mut command = Cmd::with_capacity(5 + args.ends.len(), bytes);
        match whole {
            true => command.arg("EVAL").arg(&self.code),
            false => command.arg("EVALSHA").arg(&self.hash),
        };
        // The second is never there: while the slot is on its way to another node of a
        // cluster, a request with some of its names here and some there is turned down, so
        // that no script sees a part of its data.
        command.arg(2).arg(name).arg(format!("{name}:%"));
        let mut begin = 0;
        for end in &args.ends {
            command.arg(args.bytes.get(begin..*end).unwrap_or_default());
            begin = *end;
        }
        command
    }
}

/// Arguments of a call, one behind the other.
#[derive(Debug, Default)]
pub struct Arguments {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Arguments {
    /// None yet; they may grow beyond so many of so many bytes together.
    #[must_use]
    pub fn with_capacity(arguments: usize, bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            ends: Vec::with_capacity(arguments),
        }
    }

    /// One more.
    pub fn push(&mut self, argument: &[u8]) {
        self.bytes.extend_from_slice(argument);
        self.ends.push(self.bytes.len());
    }

    /// One more, as it is written.
    pub fn write(&mut self, argument: impl fmt::Display) {
        // There is always room in memory, and what is written here has no errors of its own.
        let _ = write!(self.bytes, "{argument}");
        self.ends.push(self.bytes.len());
    }
}

/// What a script answered.
#[derive(Debug)]
pub struct Answered {
    /// The answer to the last copy of the request.
    pub value: Value,
    /// Why an earlier copy may have taken effect, or may yet do so: an error of an
    /// unknown outcome.
    pub doubt: Option<StoreError>,
}

/// Settings of the store that its parts share.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// How long the mark of an idle key is kept.
    pub mark_retention: Duration,
    /// How long an abandoned owner is remembered.
    pub tombstone_retention: Duration,
    /// Whether it has a quarantine.
    pub quarantine: bool,
    /// Whether changes wait for replicas.
    pub waits: bool,
    /// Whether it is a cluster, whose channels are sharded ones.
    pub cluster: bool,
}

/// An error that a script caught: nothing of that operation took effect.
#[must_use]
pub fn caught(doing: &str, text: &str) -> StoreError {
    errors::caught(doing, text)
}

impl RedisStore {
    /// Its settings.
    #[doc(hidden)]
    #[must_use]
    pub fn settings(&self) -> Settings {
        let options = self.options();
        Settings {
            mark_retention: options.mark_retention,
            tombstone_retention: options.tombstone_retention,
            quarantine: options.quarantine.is_some(),
            waits: options.wait.is_some(),
            cluster: matches!(options.servers, Servers::Cluster(_)),
        }
    }

    /// What the names of everything in the queue of this name begin with: one slot.
    #[doc(hidden)]
    #[must_use]
    pub fn queue_name(&self, queue: &Key) -> String {
        self.names().queue(queue)
    }

    /// Runs a script over names that share the slot of `name`.
    ///
    /// When the connection turns out to be gone, it is asked once more over a new one,
    /// if that `may_repeat`.
    ///
    /// # Errors
    /// `UnknownOutcome` if it may have taken effect.
    ///
    /// # Cancel safety
    /// It may or may not take effect.
    #[doc(hidden)]
    pub async fn run(
        &self,
        program: &Program,
        name: &str,
        args: &Arguments,
        may_repeat: bool,
    ) -> Result<Answered, StoreError> {
        // Whole at first, to spare the server's no.
        let whole = !program.sent.load(Ordering::Relaxed);
        let first = program.command(name, args, whole);
        match self.try_run(&first, name, may_repeat).await? {
            Ok(answered) => {
                program.sent.store(true, Ordering::Relaxed);
                Ok(answered)
            }
            // Nothing ran. What is sent now carries the code itself, which no SCRIPT
            // FLUSH can take away in between.
            Err(NoScript(doubt)) => {
                let whole = program.command(name, args, true);
                let answered = self.try_run(&whole, name, may_repeat).await?;
                let mut answered = answered.map_err(|_| errors::caught("a script", "NOSCRIPT"))?;
                answered.doubt = answered.doubt.or(doubt);
                Ok(answered)
            }
        }
    }

    async fn try_run(
        &self,
        command: &Cmd,
        name: &str,
        may_repeat: bool,
    ) -> Result<Result<Answered, NoScript>, StoreError> {
        let lane = match self.line()? {
            Line::One(lane) => lane,
            Line::Cluster(router) => {
                let what = match may_repeat {
                    true => What::Repeatable(command),
                    false => What::Command(command),
                };
                return match router.route(slot::of(name), what).await {
                    Ok((value, doubt)) => Ok(Ok(Answered { value, doubt })),
                    Err(trouble) if trouble.is_no_script() => Ok(Err(NoScript(None))),
                    Err(trouble) => Err(trouble.into_error()),
                };
            }
        };
        let link = lane.sender().link();
        let up = link.connection().await?;
        let first = match lane.sender().ask(&up, command).await {
            Err(error) if is_no_script(&error) => return Ok(Err(NoScript(None))),
            Err(error) if error.is_connection_dropped() && may_repeat => failed(error),
            Err(error) => return Err(self.said(&up, error)),
            Ok(value) => return Ok(Ok(Answered { value, doubt: None })),
        };
        // From here on the first one may have taken effect.
        let unknown = |error: StoreError| match error.kind() {
            StoreErrorKind::UnknownOutcome => error,
            _ => first.clone(),
        };
        let up = link.connection().await.map_err(unknown)?;
        match lane.sender().ask(&up, command).await {
            Err(error) if is_no_script(&error) => Ok(Err(NoScript(Some(first)))),
            Err(error) => Err(unknown(self.said(&up, error))),
            Ok(value) => Ok(Ok(Answered {
                value,
                doubt: Some(first),
            })),
        }
    }

    fn said(&self, up: &Up, error: RedisError) -> StoreError {
        // A server that became a replica refuses for as long as we talk to it.
        if error.code() == Some("READONLY") {
            self.leave(up);
        }
        failed(error)
    }

    /// Leaves a connection to a server that became a replica; the address may lead to
    /// another one by now.
    fn leave(&self, up: &Up) {
        if let Ok(Line::One(lane)) = self.line() {
            lane.sender().link().retire(up);
        }
    }

    /// Leaves the connection, if a script caught that the server is a replica; what to
    /// say then, where another one takes over.
    #[doc(hidden)]
    pub async fn demoted(&self, caught: &str) -> Option<StoreError> {
        if errors::code(caught) != "READONLY" {
            return None;
        }
        if let Ok(Line::One(lane)) = self.line()
            && let Ok(up) = lane.sender().link().connection().await
        {
            lane.sender().link().retire(&up);
        }
        self.options().servers.fail_over().then(|| {
            StoreError::unavailable(
                "the server was the primary and is a replica by now; the next request asks for the \
                 one that took over",
            )
        })
    }

    /// The doctor's findings, but for what leases alone need.
    ///
    /// # Errors
    /// As of `LeaseBackend::diagnose`.
    #[doc(hidden)]
    pub async fn diagnose_queues(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.look(ttl, true).await
    }

    /// Hints for each message on `channel`, whose slot is its name's: as
    /// `LeaseBackend::watch`.
    ///
    /// # Errors
    /// As of `LeaseBackend::watch`.
    #[doc(hidden)]
    pub async fn hints(&self, channel: String) -> Result<BoxStream<'static, ()>, StoreError> {
        match (self.wake_ups(), self.line()?) {
            (_, Line::Cluster(router)) => router.watch(channel).await,
            (Some(wake_ups), _) => wake_ups.watch(channel).await,
            (None, _) => Ok(Box::pin(stream::pending())),
        }
    }
}

/// The server has no such script, and ran nothing; and why an earlier copy may have
/// run all the same.
#[derive(Debug)]
struct NoScript(Option<StoreError>);
