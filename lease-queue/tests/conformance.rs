//! The shared suite of leases, through the adapter for keyed leases.
#![allow(clippy::unwrap_used)]

use std::process::ExitCode;
use std::sync::Arc;

use lease_conformance::fixture_fn;
use lease_core::LeaseBackend;
use lease_queue::{KeyedLeases, MemoryQueues, QueueName};

fn main() -> ExitCode {
    let memory = fixture_fn(|| async {
        let store = MemoryQueues::new();
        let queue = QueueName::new("leases")?;
        Ok(move || {
            let store = Arc::new(store.clone());
            Arc::new(KeyedLeases::new(store, queue.clone())) as Arc<dyn LeaseBackend>
        })
    });
    lease_conformance::main("queue+memory", memory)
}
