//! Wake-ups: the server tells of each record once it is stored.

use async_nats::{Message, Subscriber};
use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{Key, StoreError};
use tokio::sync::watch;

use super::errors;
use super::lane::Lanes;
use super::link::Line;
use super::names::Names;
use super::record::Record;
use super::rules;
use crate::name::QueueName;

/// Where the server says which message of the stream it tells of.
const REVISION: &str = "Nats-Sequence";
/// And which one was the last of its subject before.
const BEFORE: &str = "Nats-Last-Sequence";

struct Watcher {
    told: Subscriber,
    line: watch::Receiver<Line>,
    ends: u64,
    /// The record is noted there as it was told, so that a take-over comes a TTL after
    /// the holder's last renewal, whenever that was.
    lanes: Lanes,
    subject: String,
}

pub(super) async fn watch(
    lanes: &Lanes,
    names: &Names,
    queue: &QueueName,
    key: &Key,
) -> Result<BoxStream<'static, ()>, StoreError> {
    let client = lanes.link.context.client();
    let line = lanes.link.line.clone();
    let ends = line.borrow().ends;
    let told = client
        .subscribe(names.key_told(queue, key))
        .await
        .map_err(|e| errors::unavailable("the subscription was not made; try again", e))?;
    // The server, and the one that leads the stream, take what one connection sends
    // in its order: once this is answered, the subscription stands there.
    let subject = names.key(queue, key);
    lanes.look(&subject, lanes.link.deadline()).await?;
    let watcher = Watcher {
        told,
        line,
        ends,
        lanes: lanes.clone(),
        subject,
    };
    let hints = stream::unfold(watcher, |mut watcher| async move {
        while !watcher.hears().await? {}
        Some(((), watcher))
    });
    Ok(hints.boxed())
}

impl Watcher {
    /// Whether what it hears next is a hint; `None` at the end.
    async fn hears(&mut self) -> Option<bool> {
        let ends = self.ends;
        let told = tokio::select! {
            told = self.told.next() => Some(told?),
            Ok(_) = self.line.wait_for(|line| line.stands && line.ends != ends) => None,
        };
        if let Some(told) = told {
            return Some(self.is_hint(&told));
        }
        // What was told meanwhile is lost.
        self.ends = self.line.borrow().ends;
        Some(true)
    }

    fn is_hint(&self, message: &Message) -> bool {
        let Some(record) = Record::decode(&message.payload) else {
            return true;
        };
        let free = rules::may_be_free(&record);
        if let Some(revision) = number(message, REVISION)
            // What it replaces is what stood there, so that it has effect.
            && number(message, BEFORE) == Some(record.prev)
        {
            let sights = &self.lanes.sights;
            sights.see(&self.subject, revision, revision, record);
        }
        free
    }
}

fn number(message: &Message, header: &str) -> Option<u64> {
    message.headers.as_ref()?.get(header)?.as_str().parse().ok()
}
