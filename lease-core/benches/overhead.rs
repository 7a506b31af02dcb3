//! What the core costs over the memory store, without any I/O: the floor is
//! the store's own calls. Run with `cargo bench -p lease-core`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use lease_core::{
    AcquireOutcome, AcquireRequest, Key, Label, LeaseBackend, Leases, MemoryStore, Owner,
    TokenRule, Ttl,
};

const PAIRS: u32 = 20_000;
const CHECKS: u32 = 1_000_000;
const ROUNDS: usize = 7;

/// The store's own acquire and release.
async fn floor(store: &MemoryStore, key: &Key) {
    let request = AcquireRequest {
        key: key.clone(),
        owner: Owner::random().unwrap(),
        ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
        label: Label::EMPTY,
        rule: TokenRule::NEXT,
        waits: None,
    };
    let AcquireOutcome::Granted(granted) = store.acquire(&request).await.unwrap() else {
        unreachable!("nobody else asks");
    };
    let released = store.release(key, request.owner, granted.token).await;
    black_box(released.unwrap());
}

async fn pair(leases: &Leases, key: &Key) {
    let lease = leases.lease(key).acquire().await.unwrap();
    black_box(lease.release().await.unwrap());
}

/// Microseconds and allocations for each of `PAIRS` calls.
fn each<F: Future<Output = ()>>(runtime: &Runtime, mut call: impl FnMut() -> F) -> (f64, f64) {
    let start = Instant::now();
    let counted = allocation_counter::measure(|| {
        runtime.block_on(async {
            for _ in 0..PAIRS {
                call().await;
            }
        });
    });
    let us = start.elapsed().as_secs_f64() * 1e6 / f64::from(PAIRS);
    (us, counted.count_total as f64 / f64::from(PAIRS))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let (store, key) = (MemoryStore::new(), Key::new("bench").unwrap());
    let leases = Leases::new(Arc::new(store.clone()));
    let (mut bare, mut ours, mut allocated) = (Vec::new(), Vec::new(), (0.0, 0.0));
    for _ in 0..ROUNDS {
        // In turn, so that a machine that drifts harms both alike.
        let (us, n) = each(&runtime, || floor(&store, &key));
        bare.push(us);
        allocated.0 = n;
        let (us, n) = each(&runtime, || pair(&leases, &key));
        ours.push(us);
        allocated.1 = n;
    }
    let (bare, ours) = (median(bare), median(ours));
    println!("acquire + release, memory store, median of {ROUNDS} rounds of {PAIRS}");
    println!(
        "  the store's own calls  {bare:8.3} µs  {:5.1} allocations",
        allocated.0
    );
    println!(
        "  through Leases         {ours:8.3} µs  {:5.1} allocations",
        allocated.1
    );
    println!("  ratio                  {:8.2}", ours / bare);

    let lease = runtime.block_on(leases.lease(&key).acquire()).unwrap();
    let mut checks = Vec::new();
    let counted = allocation_counter::measure(|| {
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for _ in 0..CHECKS {
                black_box(lease.check().unwrap());
            }
            checks.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(CHECKS));
        }
    });
    println!(
        "check()                  {:8.1} ns  {:5} allocations in all",
        median(checks),
        counted.count_total
    );
    runtime.block_on(lease.release()).unwrap();
}
