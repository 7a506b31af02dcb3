//! `lease queue`: items in queues, and commands that work on them.

mod list;
mod put;
mod requeue;
mod task;
mod work;

use leases::queue::QueueError;

use crate::args::QueueCommand;
use crate::exit::{Exit, Failure, words};
use crate::store::Target;

pub(crate) async fn queue(target: Target, command: QueueCommand) -> Result<Exit, Failure> {
    match command {
        QueueCommand::Put(args) => put::put(target, args).await,
        QueueCommand::Work(args) => work::work(target, args).await,
        QueueCommand::List(args) => list::list(target, args, false).await,
        QueueCommand::Dead(args) => list::list(target, args, true).await,
        QueueCommand::Requeue(args) => requeue::requeue(target, args).await,
    }
}

/// What a queue ran into, without what may be secret.
fn failure(target: &Target, error: QueueError) -> Failure {
    let exit = match error {
        QueueError::Store(error) => return target.failure(error.into()),
        QueueError::Invalid(error) => return target.failure(error.into()),
        QueueError::Input(_) | QueueError::Payload(_) => Exit::Usage,
        QueueError::Refused(_) => Exit::Misconfigured,
        _ => Exit::Internal,
    };
    Failure::new(exit, words(&error))
}
