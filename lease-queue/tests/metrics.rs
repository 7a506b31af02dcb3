//! The metrics of a queue, and the page that lists them.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lease_queue::{Backoff, MemoryQueues, Queue};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

const PAGE: &str = include_str!("../../leases/docs/observability.md");

/// Two items: one completed after a failure, one given back.
async fn live() {
    let store = Arc::new(MemoryQueues::new());
    let builder = Queue::<String>::builder(store, "mail").backoff(Backoff::NONE);
    let queue = builder.build().unwrap();
    let item = "secret-payload".to_owned();
    queue
        .put(&item)
        .group("secret-group")
        .dedup("d")
        .await
        .unwrap();
    queue.put(&item).dedup("d").await.unwrap();
    queue.claim().await.unwrap().fail("no").await.unwrap();
    queue.claim().await.unwrap().complete().await.unwrap();
    queue.put(&item).await.unwrap();
    drop(queue.claim().await.unwrap());
    queue.depth().await.unwrap();
    assert!(queue.shutdown(Duration::from_secs(5)).await.settled);
}

#[test]
fn every_step_is_counted_under_a_name_that_the_page_lists() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(live()));

    let mut seen = BTreeMap::<(String, String), f64>::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let key = key.key();
        let listed = PAGE.contains(&format!("`{}`", key.name()));
        assert!(listed, "{} is not listed", key.name());
        let mut labels = Vec::new();
        for label in key.labels() {
            assert!(!label.value().contains("secret"), "{key:?}");
            assert!(PAGE.contains(&format!("`{}`", label.key())), "{key:?}");
            if label.key() != "queue" && label.key() != "store" {
                labels.push(label.value().to_owned());
            }
        }
        let number = match value {
            DebugValue::Counter(n) => n as f64,
            DebugValue::Gauge(n) => n.into_inner(),
            DebugValue::Histogram(values) => values.len() as f64,
        };
        seen.insert((key.name().to_owned(), labels.join(",")), number);
    }
    let count = |name: &str, labels: &str| {
        let key = (format!("leases_queue_{name}"), labels.to_owned());
        *seen
            .get(&key)
            .unwrap_or_else(|| panic!("no {key:?} in {seen:#?}"))
    };
    assert_eq!(count("puts_total", "added"), 2.0);
    assert_eq!(count("puts_total", "duplicate"), 1.0);
    assert_eq!(count("claims_total", ""), 3.0);
    assert_eq!(count("attempts", ""), 3.0);
    assert_eq!(count("age_seconds", ""), 3.0);
    assert_eq!(count("settles_total", "retry,done"), 1.0);
    assert_eq!(count("settles_total", "complete,done"), 1.0);
    assert_eq!(count("settles_total", "abandon,done"), 1.0);
    let depth = count("depth", "ready") + count("depth", "in_flight");
    assert_eq!(depth, 1.0);
    assert!(count("oldest_seconds", "") >= 0.0);
}
