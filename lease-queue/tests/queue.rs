//! The suite of queues, on the reference store.
#![allow(clippy::unwrap_used)]

use std::process::ExitCode;
use std::sync::Arc;

use lease_conformance::queue;
use lease_queue::{MemoryQueues, QueueStore};

fn main() -> ExitCode {
    let memory = queue::fixture_fn(|| async {
        let store = MemoryQueues::new();
        Ok(move || Arc::new(store.clone()) as Arc<dyn QueueStore>)
    });
    queue::main("queue+memory", memory)
}
