//! One node: sends to it, and reads what a cluster answers.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lease_core::StoreError;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

use crate::address::Address;
use crate::errors;
use crate::link::{Link, Origin};
use crate::request::Request;
use crate::script::{Script, Sender, is_no_script};
use crate::wake::WakeUps;

/// What is sent to the node of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What<'a> {
    /// An operation, by the script.
    Request(&'a Request),
    /// A command as it is, which must not be repeated when it may have been
    /// done.
    Command(&'a Cmd),
    /// One that does no harm twice.
    Repeatable(&'a Cmd),
}

impl What<'_> {
    pub(super) fn may_repeat(self) -> bool {
        match self {
            Self::Request(request) => request.may_repeat(),
            Self::Command(_) => false,
            Self::Repeatable(_) => true,
        }
    }
}

/// Why a node did not do it.
#[derive(Debug)]
pub(super) enum Problem {
    /// It cannot be reached: nothing was sent.
    Unreached(StoreError),
    /// The connection went away, and the request may have been done.
    Gone(RedisError),
    /// Another node has the slot.
    Moved(Address),
    /// Another node has this key of a slot that is on its way there.
    Ask(Address),
    /// Some names of the request have moved and others have not.
    Torn(StoreError),
    /// It cannot serve the slot now; nothing was done.
    Down(RedisError),
    /// Anything else.
    Failed(RedisError),
}

/// A node, as one runtime knows it.
pub(crate) struct Node {
    pub(crate) address: Address,
    sender: Sender,
    /// Made when somebody first watches a key of this node.
    pub(super) wake_ups: OnceLock<WakeUps>,
}

impl Node {
    pub(super) fn new(address: Address, origin: Origin, script: Arc<Script>) -> Self {
        Self {
            address,
            sender: Sender::new(Link::new(origin, Duration::ZERO), script, None),
            wake_ups: OnceLock::new(),
        }
    }

    pub(crate) fn link(&self) -> &Link {
        self.sender.link()
    }

    /// Sends it; `asking` for a key that another node sent us here for, of a
    /// slot that this node does not have yet.
    ///
    /// # Cancel safety
    /// It may or may not be done.
    pub(super) async fn send(&self, what: What<'_>, asking: bool) -> Result<Value, Problem> {
        let connected = self.link().connection().await;
        let up = connected.map_err(|error| Problem::Unreached(self.names(error)))?;
        let script = self.sender.script();
        let ask = async |command: &Cmd| {
            if !asking {
                return self.sender.ask(&up, command).await;
            }
            let mut both = Pipeline::with_capacity(2);
            both.cmd("ASKING");
            both.add_command(command.clone());
            let answers = self.sender.ask_all(&up, &both, 2).await?;
            let answer = answers.into_iter().next_back().unwrap_or(Value::Nil);
            answer.extract_error()
        };
        let answer = match what {
            What::Command(command) | What::Repeatable(command) => ask(command).await,
            What::Request(request) => match ask(&script.single(request, false)).await {
                // Nothing ran.
                Err(error) if is_no_script(&error) => ask(&script.single(request, true)).await,
                answer => answer,
            },
        };
        match answer {
            Ok(value) => match torn(&value) {
                Some(error) => Err(Problem::Torn(error)),
                None => Ok(value),
            },
            Err(error) => Err(self.problem(error)),
        }
    }

    /// The same error, with which node it is of.
    pub(super) fn names(&self, error: StoreError) -> StoreError {
        let words = format!("the cluster's node {}: {}", self.address, error.message());
        StoreError::with_source(error.kind(), words, error)
    }

    /// Of an answer to a question that changes nothing.
    pub(super) fn unreadable(&self, question: &str) -> StoreError {
        StoreError::unavailable(format!(
            "the cluster's node {} answers {question} with something that cannot be read; check \
             that no proxy or look-alike of Redis stands between",
            self.address
        ))
    }

    fn problem(&self, error: RedisError) -> Problem {
        let redirect = || {
            let (address, _) = error.redirect_node()?;
            Address::parse(address, &self.address)
        };
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => match redirect() {
                Some(address) => Problem::Moved(address),
                None => Problem::Down(error),
            },
            ErrorKind::Server(ServerErrorKind::Ask) => match redirect() {
                Some(address) => Problem::Ask(address),
                None => Problem::Down(error),
            },
            ErrorKind::Server(ServerErrorKind::TryAgain) => {
                Problem::Torn(crate::script::failed(error))
            }
            ErrorKind::Server(
                ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::BusyLoading,
            ) => Problem::Down(error),
            _ if error.is_connection_dropped() => Problem::Gone(error),
            _ => Problem::Failed(error),
        }
    }
}

/// The error of a script that met a name which has moved: that operation changed
/// nothing.
fn torn(answer: &Value) -> Option<StoreError> {
    let Value::Array(replies) = answer else {
        return None;
    };
    let [Value::Array(fields)] = replies.as_slice() else {
        return None;
    };
    let [Value::Int(-1), Value::BulkString(text)] = fields.as_slice() else {
        return None;
    };
    let text = String::from_utf8_lossy(text);
    (errors::meant_by(&text) == "TRYAGAIN").then(|| errors::caught("a lease in a cluster", &text))
}
