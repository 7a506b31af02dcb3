//! The one script, and how a batch of operations is sent to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lease_core::{StoreError, StoreErrorKind};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

use crate::cluster::slot;
use crate::errors::{self, Phase};
use crate::link::{Link, Up};
use crate::names;
use crate::options::Wait;
use crate::reply::{Reply, odd};
use crate::request::Request;

const CODE: &str = include_str!("lease.lua");

/// The script with a store's settings.
#[derive(Debug)]
pub(crate) struct Script {
    code: String,
    hash: String,
    birth: String,
    mark_retention_us: u64,
}

impl Script {
    pub(crate) fn new(
        mark_retention: Duration,
        tombstone_retention: Duration,
        quarantine: Option<Duration>,
        birth: String,
        publish: &'static str,
    ) -> Self {
        let [marks, tombstones, quarantine] = [
            mark_retention.as_micros(),
            tombstone_retention.as_micros(),
            quarantine.unwrap_or_default().as_micros(),
        ];
        // In the text, not as arguments of each call.
        let code = format!(
            "local retention, tombstones, quarantine = {marks}, {tombstones}, {quarantine}\n\
             local publish = '{publish}'\n{CODE}"
        );
        Self {
            hash: redis::Script::new(&code).get_hash().to_owned(),
            code,
            birth,
            mark_retention_us: u64::try_from(marks).unwrap_or(u64::MAX),
        }
    }

    /// One request to a node of a cluster. Its names share a slot, and it names
    /// the birth marker only if it may look at it: of a slot that is on its way
    /// to another node, a request with one of its names here and one there is
    /// turned down.
    pub(crate) fn single(&self, request: &Request, whole: bool) -> Cmd {
        let mut command = self.begin(1, whole);
        if request.may_need_birth() {
            let birth = names::in_slot(&self.birth, slot::of(request.record()));
            command.arg(2).arg(request.record()).arg(birth);
        } else {
            command.arg(1).arg(request.record());
        }
        request.write_args(&mut command, self.mark_retention_us);
        command
    }

    /// By its hash, or whole for a server that does not have it.
    fn begin(&self, requests: usize, whole: bool) -> Cmd {
        // Sizes that seldom need to grow.
        let mut command = Cmd::with_capacity(4 + 8 * requests, 96 + 112 * requests);
        if whole {
            command.arg("EVAL").arg(&self.code);
        } else {
            command.arg("EVALSHA").arg(&self.hash);
        }
        command
    }

    fn command(&self, requests: &[Request], whole: bool) -> Cmd {
        let mut command = self.begin(requests.len(), whole);
        command.arg(requests.len() + 1);
        for request in requests {
            command.arg(request.record());
        }
        command.arg(&self.birth);
        for request in requests {
            request.write_args(&mut command, self.mark_retention_us);
        }
        command
    }
}

/// Sends batches, each one call of the script, over one link.
#[derive(Debug)]
pub(crate) struct Sender {
    link: Arc<Link>,
    script: Arc<Script>,
    /// Each batch waits for replicas.
    wait: Option<Wait>,
    /// The server has had the script from us.
    known: AtomicBool,
}

impl Sender {
    pub(crate) fn new(link: Arc<Link>, script: Arc<Script>, wait: Option<Wait>) -> Self {
        Self {
            link,
            script,
            wait,
            known: AtomicBool::new(false),
        }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn script(&self) -> &Script {
        &self.script
    }

    /// The answers, one for each request.
    ///
    /// A connection that turns out to be gone (the server closes idle ones, or
    /// was restarted) gets one more try over a new one, if none of the requests
    /// minds to take effect twice.
    ///
    /// # Cancel safety
    /// The batch may or may not take effect. After a while without an answer
    /// the connection is given up too.
    pub(crate) async fn send(
        &self,
        requests: &[Request],
    ) -> Result<Vec<Result<Reply, StoreError>>, StoreError> {
        let up = self.link.connection().await?;
        let first = match self.send_over(&up, requests).await {
            Ok(replies) => return Ok(replies),
            Err(Failure::Gone(error)) if requests.iter().all(Request::may_repeat) => error,
            Err(Failure::Gone(error)) => return Err(failed(error)),
            Err(Failure::Said(error)) => return Err(error),
        };
        // From here on the first one may have taken effect.
        let unknown = |error: StoreError| match error.kind() {
            StoreErrorKind::UnknownOutcome => error,
            _ => failed(first.clone()),
        };
        let up = self.link.connection().await.map_err(unknown)?;
        match self.send_over(&up, requests).await {
            // An operation that failed this time may have taken effect before, at
            // a server that answers nobody any more, say.
            Ok(replies) => {
                let replies = replies.into_iter().map(failures_unknown).zip(requests);
                let told = replies.map(|(reply, request)| {
                    reply.and_then(|reply| reply.of_copies(request, failed(first.clone())))
                });
                Ok(told.collect())
            }
            Err(Failure::Gone(error)) => Err(failed(error)),
            Err(Failure::Said(error)) => Err(unknown(error)),
        }
    }

    async fn send_over(
        &self,
        up: &Up,
        requests: &[Request],
    ) -> Result<Vec<Result<Reply, StoreError>>, Failure> {
        let Some(wait) = self.wait else {
            let answer = self.call(up, requests).await?;
            let replies = Reply::all(answer, requests.len())?;
            self.look(up, &replies);
            return Ok(taken(up, replies));
        };
        let (answer, replicas) = self.call_and_wait(up, requests, wait).await?;
        let replies = Reply::all(answer, requests.len())?;
        self.look(up, &replies);
        let short = match replicas {
            Ok(replicas) if replicas >= i64::from(wait.replicas) => {
                return Ok(taken(up, replies));
            }
            Ok(replicas) => format!(
                "{replicas} of {} replicas confirmed within {:?}",
                wait.replicas, wait.within
            ),
            Err(error) => format!("WAIT for the replicas failed ({error})"),
        };
        Ok(self.fall_short(up, requests, replies, &short).await)
    }

    /// A server that became a replica refuses for as long as we talk to it; the
    /// address may lead to another one by now.
    fn look(&self, up: &Up, replies: &[Reply]) {
        if replies.iter().filter_map(Reply::error).any(demoted) {
            self.link.retire(up);
        }
    }

    /// One call. `NOSCRIPT` says that nothing ran, so that asking again with
    /// the whole script cannot double an effect; loading it first and calling
    /// it by its hash then could meet the next `SCRIPT FLUSH`.
    async fn call(&self, up: &Up, requests: &[Request]) -> Result<Value, Failure> {
        match self.ask(up, &self.script.command(requests, false)).await {
            Err(error) if is_no_script(&error) => {
                self.ask(up, &self.script.command(requests, true)).await
            }
            result => result,
        }
        .map_err(Failure::from)
    }

    pub(crate) async fn ask(&self, up: &Up, command: &Cmd) -> Result<Value, RedisError> {
        let asking = self.link.ask(up);
        let result = up.while_here(up.wire.send(command)).await;
        match &result {
            Err(error) if spoils(error) => asking.failed(),
            _ => asking.answered(),
        }
        result
    }

    /// Some commands in one go; errors that the server answers stand in the
    /// answers.
    pub(crate) async fn ask_all(
        &self,
        up: &Up,
        commands: &Pipeline,
        count: usize,
    ) -> Result<Vec<Value>, RedisError> {
        let asking = self.link.ask(up);
        let result = up.while_here(up.wire.send_all(commands, count)).await;
        match &result {
            Err(error) if spoils(error) => asking.failed(),
            _ => asking.answered(),
        }
        result
    }

    /// One call and, over the same connection right behind it, a wait for the
    /// replicas: they confirm what this connection has written.
    async fn call_and_wait(
        &self,
        up: &Up,
        requests: &[Request],
        wait: Wait,
    ) -> Result<(Value, Result<i64, StoreError>), Failure> {
        // Whole at first: after a NOSCRIPT the server would still do the wait.
        for whole in [!self.known.load(Ordering::Relaxed), true] {
            let mut both = Pipeline::with_capacity(2);
            both.add_command(self.script.command(requests, whole));
            let within = u64::try_from(wait.within.as_millis()).unwrap_or(u64::MAX);
            // 0 would wait for ever.
            both.cmd("WAIT").arg(wait.replicas).arg(within.max(1));
            let answers = self.ask_all(up, &both, 2).await?;
            let mut answers = answers.into_iter().map(Value::extract_error);
            let (Some(answer), Some(replicas)) = (answers.next(), answers.next()) else {
                return Err(odd().into());
            };
            let replicas = match replicas {
                Ok(Value::Int(replicas)) => Ok(replicas),
                Ok(_) => Err(odd()),
                Err(error) => Err(errors::classify(Phase::Sent, "WAIT", error)),
            };
            match answer {
                Err(error) if is_no_script(&error) => {}
                Err(error) => return Err(error.into()),
                Ok(answer) => {
                    self.known.store(true, Ordering::Relaxed);
                    return Ok((answer, replicas));
                }
            }
        }
        Err(odd().into())
    }

    /// Too few replicas confirmed: what was granted is given back, and whatever
    /// changed something is an error.
    async fn fall_short(
        &self,
        up: &Up,
        requests: &[Request],
        replies: Vec<Reply>,
        short: &str,
    ) -> Vec<Result<Reply, StoreError>> {
        let granted =
            |request: &Request, reply: &Reply| request.acquires().then(|| reply.grant()).flatten();
        let give_back: Vec<_> = requests
            .iter()
            .zip(&replies)
            .filter_map(|(request, reply)| request.to_give_back(granted(request, reply)?))
            .collect();
        let given_back = give_back.is_empty() || self.give_back(up, &give_back).await;
        let outcomes = requests.iter().zip(replies).map(|(request, reply)| {
            if !reply.changed(request) {
                return Ok(reply);
            }
            let (kind, then) = match given_back && granted(request, &reply).is_some() {
                true => (StoreErrorKind::Unavailable, "it was given back"),
                false => (StoreErrorKind::UnknownOutcome, "a failover may undo it"),
            };
            let advice = "bring replicas back or ask for fewer";
            Err(StoreError::new(
                kind,
                format!("{short}, so {then}; {advice}"),
            ))
        });
        outcomes.collect()
    }

    async fn give_back(&self, up: &Up, requests: &[Request]) -> bool {
        let Ok(answer) = self.call(up, requests).await else {
            return false;
        };
        Reply::all(answer, requests.len())
            .is_ok_and(|all| all.iter().all(|reply| reply.released().is_ok()))
    }
}

/// Why a batch has no answers.
enum Failure {
    /// The connection went away.
    Gone(RedisError),
    /// Anything else.
    Said(StoreError),
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        match error.is_connection_dropped() {
            true => Self::Gone(error),
            false => Self::Said(failed(error)),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Said(error)
    }
}

/// Answers as they are, but that where a primary is followed a demoted one is no
/// failure that lasts.
fn taken(up: &Up, replies: Vec<Reply>) -> Vec<Result<Reply, StoreError>> {
    let passes = |reply: &Reply| up.may_end() && reply.error().is_some_and(demoted);
    let take = |reply: Reply| match passes(&reply) {
        false => Ok(reply),
        true => Err(StoreError::unavailable(
            "the server was the primary and is a replica by now; the next request asks the \
             sentinels for the one that took over",
        )),
    };
    replies.into_iter().map(take).collect()
}

/// An answer to a request that was sent before and was not answered then.
fn failures_unknown(answer: Result<Reply, StoreError>) -> Result<Reply, StoreError> {
    let unknown = |error: StoreError| match error.kind() {
        StoreErrorKind::UnknownOutcome => error,
        _ => StoreError::with_source(
            StoreErrorKind::UnknownOutcome,
            "the connection was lost while Redis was asked, and a second try failed",
            error,
        ),
    };
    let reply = answer.map_err(unknown)?;
    match reply.error() {
        Some(text) => Err(unknown(errors::caught("a second try", text))),
        None => Ok(reply),
    }
}

fn demoted(text: &str) -> bool {
    errors::code(text) == "READONLY"
}

pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

pub(crate) fn failed(error: RedisError) -> StoreError {
    errors::classify(Phase::Sent, "Redis did not answer the lease script", error)
}

/// Whether the connection must not be used again.
pub(crate) fn spoils(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_io_error() || error.is_timeout()
}
