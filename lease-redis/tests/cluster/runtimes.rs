//! Runtimes that end while somebody still uses the store from them.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lease_conformance::servers::redis::cluster::RedisCluster;
use lease_core::LeaseBackend;
use tokio::runtime::{Builder, Runtime};

use crate::options;
use crate::support::key;

const PATIENCE: Duration = Duration::from_secs(20);
const CALLERS: usize = 8;

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// Callers of which all wait for nodes that say nothing, at first (`cold`) for
/// their picture of the cluster.
fn all_hear_of_the_end(cold: bool) {
    let cluster = RedisCluster::builder().start().unwrap();
    let store = options(&cluster.url()).open_lazily().unwrap();
    let ends = runtime();
    if !cold {
        ends.block_on(store.inspect(&key("a"))).unwrap();
    }
    for node in cluster.nodes() {
        node.pause().unwrap();
    }
    let (asked, have_asked) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    for _ in 0..CALLERS {
        let (store, handle) = (store.clone(), ends.handle().clone());
        let (asked, tell) = (asked.clone(), tell.clone());
        thread::spawn(move || {
            // Where a timer outlives its runtime, tokio panics.
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                handle.block_on(async {
                    let name = key("a");
                    let mut call = pin!(store.inspect(&name));
                    let mut asked = Some(asked);
                    poll_fn(|context| {
                        let polled = call.as_mut().poll(context);
                        if let Some(asked) = asked.take() {
                            asked.send(()).unwrap();
                        }
                        polled
                    })
                    .await
                })
            }));
            tell.send(outcome.map(|answer| answer.map(drop))).unwrap();
        });
        have_asked.recv_timeout(PATIENCE).unwrap();
    }
    ends.shutdown_background();
    for heard in 0..CALLERS {
        match told.recv_timeout(PATIENCE) {
            Ok(Ok(answer)) => drop(answer.unwrap_err()),
            Ok(Err(_)) => {}
            Err(_) => panic!("{heard} of {CALLERS} heard"),
        }
    }
    for node in cluster.nodes() {
        node.resume().unwrap();
    }
    // From a thread of its own: a store that is locked up must not lock up the test.
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        // Those that were paused may be voted away, and come back.
        let call = async {
            while store.inspect(&key("a")).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        runtime().block_on(call);
        tell.send(()).unwrap();
    });
    told.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn whoever_waits_for_a_look_when_the_runtime_ends_hears_of_it() {
    all_hear_of_the_end(true);
}

#[test]
fn whoever_waits_for_a_node_when_the_runtime_ends_hears_of_it() {
    all_hear_of_the_end(false);
}
