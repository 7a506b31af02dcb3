//! Whether the user may do what the scripts do: a script that is refused half way would
//! leave half of its work behind.

use lease_core::{Finding, Severity, StoreError, StoreErrorKind};

use super::RedisQueues;
use super::args::Args;
use super::reply::Fields;
use super::scripts::Op;
use crate::name::QueueName;

/// Without it nobody is woken up, and nothing else is missed.
const WAKE_UPS: [&str; 2] = ["PUBLISH", "SPUBLISH"];

const WHY: &str = "what a script of a queue may not do shows when it is half done";

/// What the user may not do; `None` from a server that cannot tell.
fn missing(answer: &Fields) -> Result<Option<Vec<String>>, StoreError> {
    if answer.number(0)? == 0 {
        return Ok(None);
    }
    let names = (1..answer.len()).map(|at| Ok(answer.text(at)?.to_owned()));
    names.collect::<Result<_, _>>().map(Some)
}

impl RedisQueues {
    async fn missing(&self, queue: &QueueName) -> Result<Option<Vec<String>>, StoreError> {
        let answer = self.ask_unchecked(Op::Rights, queue, Args::default(), true);
        let (replies, _) = answer.await?;
        let reply = replies.into_iter().next().ok_or_else(super::reply::odd)?;
        // Nothing was changed, so no outcome is unknown.
        missing(&reply.read(Op::Rights.doing())?)
    }

    /// Refuses a user without the rights, before anything is written by halves.
    pub(super) async fn check_rights(&self, queue: &QueueName) -> Result<(), StoreError> {
        let known = |error: StoreError| match error.kind() {
            StoreErrorKind::UnknownOutcome => StoreError::with_source(
                StoreErrorKind::Unavailable,
                "the rights of the user could not be looked at, and nothing was asked for",
                error,
            ),
            _ => error,
        };
        let missing = self.missing(queue).await.map_err(known)?;
        let mut missing = missing.unwrap_or_default();
        missing.retain(|right| !WAKE_UPS.contains(&&**right));
        match missing.is_empty() {
            true => Ok(()),
            false => Err(StoreError::new(
                StoreErrorKind::Refusing,
                format!("nothing was done: {}", lacks(&missing)),
            )),
        }
    }

    /// The doctor's word on them.
    pub(super) async fn judge_rights(&self) -> Option<Finding> {
        let nobody = QueueName::new("%").ok()?;
        let finding = |severity, what: String| Finding::new(severity, what, WHY);
        Some(match self.missing(&nobody).await {
            Ok(Some(missing)) if missing.is_empty() => finding(
                Severity::Healthy,
                "rights: all that the scripts of queues do is allowed".to_owned(),
            ),
            Ok(Some(missing)) => finding(Severity::Critical, lacks(&missing)),
            Ok(None) => finding(
                Severity::Note,
                "rights of queues: could not be found out (the server is older than Redis 7)"
                    .to_owned(),
            ),
            Err(error) => finding(
                Severity::Warning,
                format!("rights of queues: could not be checked ({error})"),
            ),
        })
    }
}

fn lacks(missing: &[String]) -> String {
    let names: Vec<_> = missing
        .iter()
        .map(|right| format!("+{}", right.to_lowercase()))
        .collect();
    format!(
        "the user lacks {}; give it the rights that the page of queues on Redis lists",
        names.join(" ")
    )
}
