//! One store, used from several runtimes.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{LeaseBackend, ReleaseOutcome};
use lease_redis::RedisStore;
use tokio::runtime::Runtime;

use crate::support::*;

async fn one_life(store: &RedisStore, name: &str) {
    let request = request(name, 60_000);
    let token = granted(store.acquire(&request).await.unwrap()).token;
    let release = store.release(&request.key, request.owner, token).await;
    assert_eq!(release.unwrap(), ReleaseOutcome::Released);
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn two_runtimes_use_one_store_at_the_same_time_and_one_after_the_other() {
    let server = plain();
    let (first, second) = (runtime(), runtime());
    let store = first.block_on(store(&server));
    std::thread::scope(|scope| {
        for (runtime, name) in [(&first, "a"), (&second, "b")] {
            let store = &store;
            scope.spawn(move || {
                runtime.block_on(async {
                    for _ in 0..100 {
                        one_life(store, name).await;
                    }
                });
            });
        }
    });
    drop(first);
    second.block_on(one_life(&store, "a"));
    second.shutdown_background();
    for _ in 0..3 {
        runtime().block_on(one_life(&store, "a"));
    }
    // Each runtime's connections went with it.
    let last = runtime();
    last.block_on(async {
        one_life(&store, "a").await;
        let started = std::time::Instant::now();
        loop {
            let clients = server.command(&["CLIENT", "LIST", "TYPE", "normal"]);
            let clients = clients.unwrap();
            // Ours, and the one that asks.
            if clients.text().unwrap().lines().count() == 2 {
                break;
            }
            assert!(started.elapsed() < PATIENCE, "{clients:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn a_runtime_that_ends_under_requests_leaves_the_store_to_others() {
    let server = plain();
    let store = Arc::new(runtime().block_on(store(&server)));
    for round in 0..5 {
        let runtime = runtime();
        for task in 0..20 {
            let store = Arc::clone(&store);
            runtime.spawn(async move {
                loop {
                    let name = format!("{round}/{task}");
                    let request = request(&name, 60_000);
                    let _ = store.acquire(&request).await;
                    let _ = store.abandon(&request.key, request.owner).await;
                }
            });
        }
        std::thread::sleep(Duration::from_millis(20));
        runtime.shutdown_background();
        self::runtime().block_on(one_life(&store, "a"));
    }
}

#[test]
fn outside_of_a_runtime_a_call_is_an_error_and_no_panic() {
    use futures_util::FutureExt;
    let server = plain();
    let store = options(&server.url()).open_lazily().unwrap();
    let name = key("a");
    let error = store.inspect(&name).now_or_never().unwrap().unwrap_err();
    assert!(error.message().contains("tokio runtime"), "{error}");
}
