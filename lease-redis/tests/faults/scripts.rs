//! A server that forgets its scripts.

use std::sync::Arc;

use lease_conformance::servers::redis::RedisServer;

use crate::harm::harm;
use crate::load::Load;
use crate::support::{options, plain};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_of_scripts_between_any_two_operations_harms_nobody() {
    let server = Arc::new(plain());
    let all = (0..4).map(|_| options(&server.url())).collect();
    let load = Load::start(300..=1000, all).await;
    let mut flushes = 0;
    while load.goes_on() {
        harm(&server, RedisServer::script_flush).await;
        flushes += 1;
    }
    let seen = load.end(true).await;
    assert!(flushes > 50, "{flushes} flushes");
    // Nobody noticed.
    assert_eq!(seen.transient, 0, "{seen:?}");
}
