//! Many clients at once, and what must be true of what they were told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_core::StoreErrorKind;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::toy::{Toy, add};
use super::{Client, soon};
use crate::nats::log::Log;

const CLIENTS: u64 = 16;

/// How long a run lasts, in default runs or as told.
pub(super) fn seconds(slice: u64) -> Duration {
    let told = std::env::var("LEASES_NATS_FAULT_SECONDS").ok();
    Duration::from_secs(told.and_then(|s| s.parse().ok()).unwrap_or(slice))
}

#[derive(Default)]
struct Told {
    next: AtomicU64,
    /// Numbers with their places.
    done: Mutex<Vec<(u64, usize)>>,
    /// Of which it was said that they have no effect.
    not: Mutex<Vec<u64>>,
    unknown: AtomicUsize,
    stop: AtomicBool,
}

async fn work(log: Arc<Log<Toy>>, told: Arc<Told>, mut random: StdRng) {
    while !told.stop.load(Ordering::Relaxed) {
        let number = told.next.fetch_add(1, Ordering::Relaxed);
        let deadline = Instant::now() + Duration::from_millis(random.random_range(500..6000));
        let submitted = log.submit(add(number), deadline);
        // Some give up at any point of the way.
        let patience = match random.random_range(0..20) {
            0 => Duration::from_micros(random.random_range(0..2000)),
            _ => Duration::from_secs(60),
        };
        match timeout(patience, submitted).await {
            Ok(Ok(place)) => told.done.lock().unwrap().push((number, place)),
            Ok(Err(error)) if error.kind() == StoreErrorKind::UnknownOutcome => {
                told.unknown.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Err(error)) => {
                assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
                told.not.lock().unwrap().push(number);
            }
            Err(_) => {}
        }
        let rest = Duration::from_micros(random.random_range(0..3000));
        tokio::time::sleep(rest).await;
    }
}

/// Lets clients go on until `harm` has returned; all agree on all that they were told.
pub(super) async fn run(urls: Vec<String>, harm: impl FnOnce(&mut StdRng) + Send + 'static) {
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let told = Arc::new(Told::default());
    let (mut clients, mut tasks) = (Vec::new(), JoinSet::new());
    let began = Instant::now();
    for number in 0..CLIENTS {
        let client = Client::new(&urls[number as usize % urls.len()]).await;
        for task in 0..2 {
            let random = StdRng::seed_from_u64(seed.wrapping_add(number * 2 + task));
            tasks.spawn(work(client.log(), Arc::clone(&told), random));
        }
        clients.push(client);
    }
    let mut random = StdRng::seed_from_u64(seed.wrapping_sub(1));
    let harmed = tokio::task::spawn_blocking(move || harm(&mut random));
    harmed.await.unwrap();
    // It goes on once all is well again.
    let mut last = Vec::new();
    for client in &clients {
        let number = told.next.fetch_add(1, Ordering::Relaxed);
        let give_up = Instant::now() + Duration::from_secs(60);
        while let Err(error) = client.log().submit(add(number), soon()).await {
            assert!(
                error.is_transient() || error.is_unknown_outcome(),
                "{error:?}"
            );
            assert!(Instant::now() < give_up, "{error:?}");
            if error.is_unknown_outcome() {
                break;
            }
        }
        last.push(number);
    }
    println!("well again {:?} after it began", began.elapsed());
    told.stop.store(true, Ordering::Relaxed);
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    judge(&told, &clients, &urls[0]).await;
}

async fn judge(told: &Told, clients: &[Client], url: &str) {
    let all = Client::new(url).await.log();
    let all = all.read(Clone::clone, soon()).await.unwrap();
    let mut places = HashMap::new();
    for (place, number) in all.applied.iter().enumerate() {
        let before = places.insert(*number, place);
        assert_eq!(before, None, "{number} had its effect twice");
    }
    let done = told.done.lock().unwrap().clone();
    for (number, place) in &done {
        assert_eq!(
            places.get(number),
            Some(place),
            "{number} is not where it was"
        );
    }
    for number in &*told.not.lock().unwrap() {
        assert_eq!(places.get(number), None, "{number} was to have no effect");
    }
    let mut anew = 0;
    for client in clients {
        let seen = client.log().read(Clone::clone, soon()).await.unwrap();
        assert!(seen == all, "clients do not agree");
        anew += client.log().history();
    }
    println!(
        "{} done, {} of them told, {} unknown, {} refused; made anew {anew} times",
        all.applied.len(),
        done.len(),
        told.unknown.load(Ordering::Relaxed),
        told.not.lock().unwrap().len(),
    );
    assert!(done.len() > 100, "only {} were told", done.len());
}
