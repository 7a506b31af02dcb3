//! The gate of a store of queues that keeps no other data.

use std::sync::Arc;

use async_trait::async_trait;
use lease_core::{AdmitError, FenceWhen, Gate, Key, StaleToken, StoreError, Token};
use lease_queue::{Lane, QueueName, QueueStore};

/// The queue whose keys are the resources.
const RESOURCES: &str = "leases:gate";

/// Remembers the highest admitted token of a resource as the mark of a key that nobody
/// leases: a fence raises it to a token or leaves a higher one, in one step.
#[derive(Debug)]
pub(super) struct MarkGate {
    store: Arc<dyn QueueStore>,
    resources: QueueName,
}

impl MarkGate {
    pub(super) fn new(store: Arc<dyn QueueStore>) -> Result<Self, StoreError> {
        let resources = QueueName::new(RESOURCES);
        let resources = resources.map_err(|error| StoreError::refusing(error.to_string()))?;
        Ok(Self { store, resources })
    }
}

#[async_trait]
impl Gate for MarkGate {
    async fn admit(&self, resource: &Key, token: Token) -> Result<(), AdmitError> {
        let lane = Lane::Key(resource.clone());
        let fence = self
            .store
            .fence(&self.resources, &lane, token, FenceWhen::Immediately);
        let admitted = fence.await?;
        if admitted == token {
            return Ok(());
        }
        Err(AdmitError::Stale(StaleToken {
            resource: resource.clone(),
            presented: token,
            admitted,
        }))
    }
}
