//! Many threads at once, on real time: what must hold in every interleaving.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lease_core::{Attempt, Leases, MemoryStore};

/// Two clients of one store, as two processes would be.
fn clients() -> [Leases; 2] {
    let store = Arc::new(MemoryStore::new());
    let client = || Leases::new(Arc::<MemoryStore>::clone(&store) as _);
    [client(), client()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_holder_at_a_time_and_rising_tokens() {
    let clients = clients();
    // The owner of each key at the moment (zero: nobody), and its last token.
    let keys: Arc<[(AtomicU64, AtomicU64); 3]> = Arc::default();
    let tasks = (0..48_u64).map(|n| {
        let (leases, keys) = (clients[(n % 2) as usize].clone(), Arc::clone(&keys));
        tokio::spawn(async move {
            let key = (n % 3) as usize;
            let (inside, last) = &keys[key];
            for _ in 0..25 {
                let lease = leases.lease(format!("k{key}")).acquire().await.unwrap();
                assert_eq!(inside.swap(n + 1, Ordering::SeqCst), 0, "two holders");
                let token = lease.token().get();
                assert!(last.swap(token, Ordering::SeqCst) < token);
                tokio::task::yield_now().await;
                lease.check().unwrap();
                assert_eq!(inside.swap(0, Ordering::SeqCst), n + 1, "two holders");
                if n % 4 == 0 {
                    drop(lease);
                } else {
                    lease.release().await.unwrap();
                }
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiters_that_are_aborted_at_any_moment_leave_the_key_to_the_others() {
    let clients = clients();
    for round in 0..30 {
        let tasks: Vec<_> = (0..16)
            .map(|n| {
                let acquire = clients[n % 2].lease("k").ttl(Duration::from_secs(600));
                tokio::spawn(async move {
                    let lease = acquire.acquire().await.unwrap();
                    tokio::task::yield_now().await;
                    lease.check().unwrap();
                })
            })
            .collect();
        for task in tasks.iter().skip(round % 2).step_by(2) {
            tokio::task::yield_now().await;
            task.abort();
        }
        for task in tasks {
            let ended = task.await;
            assert!(ended.is_ok() || ended.unwrap_err().is_cancelled());
        }
    }
    // Far sooner than the TTL of any orphan.
    let limit = Duration::from_secs(60);
    for leases in &clients {
        leases
            .lease("k")
            .wait(limit)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_shutdown_among_acquisitions_leaves_nothing_held() {
    for round in 0..20 {
        let [stopped, other] = clients();
        let tasks: Vec<_> = (0..32)
            .map(|n| {
                let acquire = stopped
                    .lease(format!("k{}", n % 8))
                    .ttl(Duration::from_secs(600));
                tokio::spawn(async move {
                    if let Ok(lease) = acquire.acquire().await {
                        let _ = lease.run(std::future::pending::<()>()).await;
                    }
                })
            })
            .collect();
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        assert!(stopped.shutdown(Duration::from_secs(60)).await.settled);
        for n in 0..8 {
            let attempt = other.lease(format!("k{n}")).try_acquire().await.unwrap();
            assert!(
                matches!(attempt, Attempt::Acquired(_)),
                "k{n} in round {round}"
            );
        }
        for task in tasks {
            task.await.unwrap();
        }
    }
}
