//! The logs that one client follows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::sleep;

use super::{Log, Machine};
use crate::name::QueueName;
use crate::nats::link::Link;
use crate::nats::names::Names;

/// How long a log is followed that nobody uses.
const IDLE: Duration = Duration::from_secs(60);

type ByQueue<M> = Mutex<HashMap<QueueName, Arc<Log<M>>>>;

/// The logs of one store, each from its first use on.
#[derive(Debug)]
pub(in crate::nats) struct Logs<M: Machine> {
    link: Link,
    snaps: Link,
    names: Names,
    by_queue: Arc<ByQueue<M>>,
    idle: Duration,
}

/// The same logs.
impl<M: Machine> Clone for Logs<M> {
    fn clone(&self) -> Self {
        Self {
            link: self.link.clone(),
            snaps: self.snaps.clone(),
            names: self.names.clone(),
            by_queue: Arc::clone(&self.by_queue),
            idle: self.idle,
        }
    }
}

impl<M: Machine> Logs<M> {
    /// Over the streams of the logs and of the snapshots.
    pub(in crate::nats) fn new(link: Link, snaps: Link, names: Names) -> Self {
        Self {
            link,
            snaps,
            names,
            by_queue: Arc::default(),
            idle: IDLE,
        }
    }

    #[cfg(test)]
    pub(super) fn idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// The log of a queue, if it is followed already.
    pub(in crate::nats) fn opened(&self, queue: &QueueName) -> Option<Arc<Log<M>>> {
        let logs = self.by_queue.lock().unwrap_or_else(|e| e.into_inner());
        logs.get(queue).map(Arc::clone)
    }

    /// The log of a queue. One that nobody has used for a while, and nobody holds, is
    /// followed no more. Must be called within a runtime.
    pub(in crate::nats) fn of(&self, queue: &QueueName) -> Arc<Log<M>> {
        let mut logs = self.by_queue.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(log) = logs.get(queue) {
            log.touch();
            return Arc::clone(log);
        }
        if logs.is_empty() {
            tokio::spawn(end_idle(Arc::downgrade(&self.by_queue), self.idle));
        }
        let log = Arc::new(Log::start(
            self.link.clone(),
            self.snaps.clone(),
            self.names.log(queue),
            self.names.snap(queue),
        ));
        logs.insert(queue.clone(), Arc::clone(&log));
        log
    }
}

/// Ends logs that nobody uses, as long as there are any.
async fn end_idle<M: Machine>(logs: Weak<ByQueue<M>>, idle: Duration) {
    loop {
        sleep(idle / 4).await;
        let Some(logs) = logs.upgrade() else {
            return;
        };
        let mut logs = logs.lock().unwrap_or_else(|e| e.into_inner());
        logs.retain(|_, log| Arc::strong_count(log) > 1 || log.unused() < idle);
        if logs.is_empty() {
            return;
        }
    }
}
