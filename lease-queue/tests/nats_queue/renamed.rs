//! A store whose queues have a name of the case before their own: a cluster and its
//! streams serve many cases.

use std::sync::Arc;

use lease_conformance::queue::Wraps;
use lease_queue::{QueueName, QueueStore};

#[derive(Debug)]
pub(crate) struct Renamed {
    pub(crate) store: Arc<dyn QueueStore>,
    pub(crate) case: String,
}

impl Wraps for Renamed {
    fn inner(&self) -> Arc<dyn QueueStore> {
        Arc::clone(&self.store)
    }

    fn queue(&self, queue: &QueueName) -> QueueName {
        QueueName::new(format!("{} {queue}", self.case)).unwrap()
    }
}
