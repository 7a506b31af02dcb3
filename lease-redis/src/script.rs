//! The one script, and how a batch of operations is sent to it.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{StoreError, StoreErrorKind};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

use crate::errors::{self, Phase};
use crate::link::{Link, Up};
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
    ) -> Self {
        let [marks, tombstones, quarantine] = [
            mark_retention.as_micros(),
            tombstone_retention.as_micros(),
            quarantine.unwrap_or_default().as_micros(),
        ];
        // In the text, not as arguments of each call.
        let code = format!(
            "local retention, tombstones, quarantine = {marks}, {tombstones}, {quarantine}\n{CODE}"
        );
        Self {
            hash: redis::Script::new(&code).get_hash().to_owned(),
            code,
            birth,
            mark_retention_us: u64::try_from(marks).unwrap_or(u64::MAX),
        }
    }

    /// By its hash, or whole for a server that does not have it.
    fn command(&self, requests: &[Request], whole: bool) -> Cmd {
        // Sizes that seldom need to grow.
        let mut command = Cmd::with_capacity(4 + 8 * requests.len(), 96 + 112 * requests.len());
        if whole {
            command.arg("EVAL").arg(&self.code);
        } else {
            command.arg("EVALSHA").arg(&self.hash);
        }
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
}

impl Sender {
    pub(crate) fn new(link: Arc<Link>, script: Arc<Script>, wait: Option<Wait>) -> Self {
        Self { link, script, wait }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// The answers, one for each request.
    ///
    /// # Cancel safety
    /// The batch may or may not take effect. After a while without an answer
    /// the connection is given up too.
    pub(crate) async fn send(
        &self,
        requests: &[Request],
    ) -> Result<Vec<Result<Reply, StoreError>>, StoreError> {
        let up = self.link.connection().await?;
        let Some(wait) = self.wait else {
            let answer = self.call(&up, requests).await?;
            let replies = Reply::all(answer, requests.len())?;
            return Ok(replies.into_iter().map(Ok).collect());
        };
        let (answer, replicas) = self.call_and_wait(&up, requests, wait).await?;
        let replies = Reply::all(answer, requests.len())?;
        if replicas >= i64::from(wait.replicas) {
            return Ok(replies.into_iter().map(Ok).collect());
        }
        self.fall_short(&up, requests, replies, wait, replicas)
            .await
    }

    /// One call. `NOSCRIPT` says that nothing ran, so that asking again with
    /// the whole script cannot double an effect; loading it first and calling
    /// it by its hash then could meet the next `SCRIPT FLUSH`.
    async fn call(&self, up: &Up, requests: &[Request]) -> Result<Value, StoreError> {
        match self.ask(up, &self.script.command(requests, false)).await {
            Err(error) if is_no_script(&error) => {
                self.ask(up, &self.script.command(requests, true)).await
            }
            result => result,
        }
        .map_err(failed)
    }

    /// Sends one command, and gives the connection up if it fails.
    pub(crate) async fn ask(&self, up: &Up, command: &Cmd) -> Result<Value, RedisError> {
        let asking = self.link.ask(up);
        let result = up.wire.send(command).await;
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
    ) -> Result<(Value, i64), StoreError> {
        for whole in [false, true] {
            let mut both = Pipeline::with_capacity(2);
            both.add_command(self.script.command(requests, whole));
            let within = u64::try_from(wait.within.as_millis()).unwrap_or(u64::MAX);
            // 0 would wait for ever.
            both.cmd("WAIT").arg(wait.replicas).arg(within.max(1));
            let asking = self.link.ask(up);
            let result = up.wire.send_all(&both, 2).await;
            match &result {
                Err(error) if spoils(error) => asking.failed(),
                _ => asking.answered(),
            }
            let answers = result.map_err(failed)?;
            let mut answers = answers.into_iter().map(Value::extract_error);
            let (Some(answer), Some(replicas)) = (answers.next(), answers.next()) else {
                return Err(odd());
            };
            match answer {
                Err(error) if is_no_script(&error) => {}
                Err(error) => return Err(failed(error)),
                Ok(answer) => {
                    return match replicas {
                        Ok(Value::Int(replicas)) => Ok((answer, replicas)),
                        Ok(_) => Err(odd()),
                        Err(error) => Err(after_the_fact(error)),
                    };
                }
            }
        }
        Err(odd())
    }

    /// Too few replicas confirmed: what was granted is abandoned, and whatever
    /// changed something is an error.
    async fn fall_short(
        &self,
        up: &Up,
        requests: &[Request],
        replies: Vec<Reply>,
        wait: Wait,
        replicas: i64,
    ) -> Result<Vec<Result<Reply, StoreError>>, StoreError> {
        let give_back: Vec<_> = requests
            .iter()
            .zip(&replies)
            .filter(|(_, reply)| reply.is_grant())
            .filter_map(|(request, _)| request.to_abandon())
            .collect();
        let given_back = give_back.is_empty() || self.give_back(up, &give_back).await;
        let outcomes = requests.iter().zip(replies).map(|(request, reply)| {
            if !reply.changed(request) {
                return Ok(reply);
            }
            let gone = given_back && request.to_abandon().is_some();
            let (kind, then) = match gone {
                true => (StoreErrorKind::Unavailable, "it was given back"),
                false => (StoreErrorKind::UnknownOutcome, "a failover may undo it"),
            };
            let Wait {
                replicas: wanted,
                within,
            } = wait;
            Err(StoreError::new(
                kind,
                format!(
                    "{replicas} of {wanted} replicas confirmed within {within:?}, so {then}; \
                     bring replicas back or ask for fewer"
                ),
            ))
        });
        Ok(outcomes.collect())
    }

    async fn give_back(&self, up: &Up, requests: &[Request]) -> bool {
        let answer = self.call(up, requests).await;
        answer
            .and_then(|answer| Reply::all(answer, requests.len()))
            .is_ok_and(|all| all.iter().all(|reply| reply.abandoned().is_ok()))
    }
}

fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

fn failed(error: RedisError) -> StoreError {
    errors::classify(Phase::Sent, "Redis did not answer the lease script", error)
}

/// The script ran, but not the wait: whatever the reason, the effect is there.
fn after_the_fact(error: RedisError) -> StoreError {
    let doing = "the lease script ran, but WAIT for its replicas failed";
    let kind = match errors::classify(Phase::Sent, doing, error.clone()).kind() {
        StoreErrorKind::Refusing => StoreErrorKind::Refusing,
        _ => StoreErrorKind::UnknownOutcome,
    };
    StoreError::with_source(kind, format!("{doing}: {error}"), error)
}

/// Whether the connection must not be used again.
pub(crate) fn spoils(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_io_error() || error.is_timeout()
}
