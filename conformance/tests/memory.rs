//! The reference store keeps the contract.

use std::process::ExitCode;
use std::sync::Arc;

use lease_conformance::fixture_fn;
use lease_core::{LeaseBackend, MemoryStore};

fn main() -> ExitCode {
    let memory = fixture_fn(|| async {
        let store = MemoryStore::new();
        Ok(move || Arc::new(store.clone()) as Arc<dyn LeaseBackend>)
    });
    lease_conformance::main("memory", memory)
}
