//! The metrics of a lease's life, and the page that lists them.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lease_core::{FenceWhen, LeaseBackend, Leases, MemoryStore};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

const PAGE: &str = include_str!("../../leases/docs/observability.md");

/// A life: contended, granted, renewed, lost to a fence, granted, released.
async fn live(store: MemoryStore) {
    let leases = Leases::new(Arc::new(store.clone()));
    let ttl = Duration::from_millis(150);
    let first = leases.lease("secret-key").ttl(ttl).acquire().await.unwrap();
    let second = leases.lease("secret-key").ttl(ttl);
    assert!(second.try_acquire().await.unwrap().lease().is_none());
    let deadline = first.deadline();
    while first.deadline() == deadline {
        tokio::time::sleep(ttl / 20).await; // Until a renewal was confirmed.
    }
    let above = first.token().next().unwrap();
    let key = first.key().clone();
    store
        .fence(&key, above, FenceWhen::Immediately)
        .await
        .unwrap();
    first.lost().await;
    drop(first);
    let third = leases.lease("secret-key").ttl(ttl).acquire().await.unwrap();
    third.release().await.unwrap();
    let dropped = leases.lease("secret-key").acquire().await.unwrap();
    drop(dropped);
    assert!(leases.shutdown(Duration::from_secs(5)).await.settled);
}

#[test]
fn every_step_is_counted_under_a_name_that_the_page_lists() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(live(MemoryStore::new())));

    let mut seen = BTreeMap::<(String, String), f64>::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let key = key.key();
        assert!(
            PAGE.contains(&format!("`{}`", key.name())),
            "{} is not listed",
            key.name()
        );
        let mut labels = Vec::new();
        for label in key.labels() {
            assert!(
                !label.value().contains("secret-key"),
                "a key as a label: {key:?}"
            );
            if label.key() != "store" {
                assert!(PAGE.contains(&format!("`{}`", label.key())), "{key:?}");
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
        let key = (format!("leases_{name}"), labels.to_owned());
        *seen
            .get(&key)
            .unwrap_or_else(|| panic!("no {key:?} in {seen:#?}"))
    };
    assert_eq!(count("attempts_total", "granted"), 3.0);
    assert_eq!(count("attempts_total", "held"), 1.0);
    assert_eq!(count("acquire_wait_seconds", ""), 3.0);
    assert_eq!(count("gave_up_total", ""), 1.0);
    assert_eq!(count("lost_total", "revoked"), 1.0);
    assert_eq!(count("releases_total", "released"), 2.0);
    assert_eq!(count("held_seconds", ""), 2.0);
    assert_eq!(count("held", ""), 0.0);
    assert_eq!(count("ownership_transitions_total", "taken_over"), 1.0);
    assert_eq!(count("ownership_transitions_total", "granted"), 2.0);
    assert_eq!(count("ownership_transitions_total", "lost"), 1.0);
    assert!(count("store_seconds", "acquire") >= 4.0);
}
