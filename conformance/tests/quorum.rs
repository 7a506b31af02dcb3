//! A quorum of stores is a store: it keeps the contract, whatever its size.

// A test's helpers may panic: that is how a test fails.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use lease_conformance::{Fixture, check, fixture_fn};
use lease_core::{LeaseBackend, MemoryStore, Quorum};

fn memory(nodes: usize) -> impl Fixture {
    fixture_fn(move || async move {
        let stores: Vec<MemoryStore> = (0..nodes).map(|_| MemoryStore::new()).collect();
        Ok(move || {
            let nodes = stores.iter().enumerate();
            let nodes = nodes.map(|(i, store)| {
                (
                    format!("node-{i}"),
                    Arc::new(store.clone()) as Arc<dyn LeaseBackend>,
                )
            });
            Arc::new(Quorum::new(nodes).unwrap()) as Arc<dyn LeaseBackend>
        })
    })
}

fn is_green(nodes: usize) {
    let report = check(memory(nodes));
    assert!(report.is_green(), "{report}");
}

#[test]
fn one_node() {
    is_green(1);
}

#[test]
fn three_nodes() {
    is_green(3);
}

#[test]
fn four_nodes() {
    is_green(4);
}

#[test]
fn five_nodes() {
    is_green(5);
}
