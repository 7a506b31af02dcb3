//! What is kept for how long, and what a batch makes of one record.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lease_conformance::servers::redis::RedisServer;
use lease_core::{
    AcquireOutcome, AcquireRequest, FenceWhen, LeaseBackend, MemoryStore, Owner, RefusedReason,
    RenewOutcome, StoreErrorKind,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::*;

fn milliseconds_left(server: &RedisServer, name: &str) -> i64 {
    let left = server.command(&["PTTL", name]).unwrap();
    left.integer().unwrap()
}

/// Somebody set the clock back. How old the store is cannot be told, and it may
/// have forgotten marks.
#[tokio::test]
async fn a_store_that_was_born_in_the_future_grants_no_token_of_long_ago() {
    let server = plain();
    let store = store(&server).await;
    let time = server.command(&["TIME"]).unwrap();
    let seconds: u64 = time.list().unwrap()[0].text().unwrap().parse().unwrap();
    let in_a_year = (seconds + 365 * 86_400) * 1_000_000;
    let birth = format!("B1 0 0 {in_a_year}");
    server.command(&["SET", "leases:birth", &birth]).unwrap();
    let outcome = store.acquire(&exactly("a", 60_000, 7)).await.unwrap();
    let below = matches!(
        outcome,
        AcquireOutcome::Refused(RefusedReason::BelowMark { .. })
    );
    assert!(below, "{outcome:?}");
}

/// An abandoned request that is still under way must find its tombstone.
#[tokio::test]
async fn no_request_may_be_under_way_for_longer_than_its_tombstone_stands() {
    let server = plain();
    let options = options(&server.url())
        .tombstone_retention(Duration::from_secs(60))
        .response_timeout(Duration::from_secs(61));
    let error = options.open_lazily().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::InvalidInput, "{error}");
}

/// Clients with other options use the same records. Without the record nobody
/// would look for the tombstones beside it.
#[tokio::test]
async fn a_record_outlives_the_tombstones_of_clients_that_keep_theirs_for_longer() {
    let server = plain();
    let careful = options(&server.url()).tombstone_retention(Duration::from_secs(3600));
    let careful = careful.open().await.unwrap();
    let short = options(&server.url()).mark_retention(Duration::from_secs(600));
    let short = short.open().await.unwrap();
    let abandoned = request("a", 60_000);
    let tomb = format!("leases:{{a}}:{}", abandoned.owner);
    let outlives = || {
        let record = milliseconds_left(&server, "leases:{a}");
        let tomb = milliseconds_left(&server, &tomb);
        assert!(record >= tomb, "{record} ms, and {tomb} ms");
    };
    careful
        .abandon(&abandoned.key, abandoned.owner)
        .await
        .unwrap();
    outlives();
    // Each writes the record anew.
    let other = request("a", 50);
    let token = granted(short.acquire(&other).await.unwrap()).token;
    outlives();
    short.renew(&renewal(&other, token)).await.unwrap();
    outlives();
    let release = short.release(&other.key, other.owner, token);
    release.await.unwrap();
    outlives();
    let fence = short.fence(&other.key, token, FenceWhen::AtExpiry);
    fence.await.unwrap();
    outlives();
}

/// Nothing was granted, so there is no mark to keep. Attempts on many keys that
/// were all given up must not fill the server for days.
#[tokio::test]
async fn an_abandoned_attempt_on_a_new_key_leaves_nothing_for_longer_than_its_tombstone() {
    const TOMBSTONES: Duration = Duration::from_secs(100);
    let server = plain();
    let store = options(&server.url()).tombstone_retention(TOMBSTONES);
    let store = store.open().await.unwrap();
    let owner = Owner::random().unwrap();
    store.abandon(&key("a"), owner).await.unwrap();
    let left = milliseconds_left(&server, "leases:{a}");
    let most = i64::try_from(TOMBSTONES.as_millis()).unwrap() + 1000;
    assert!((0..=most).contains(&left), "{left} ms");
}

#[derive(Clone, Debug)]
enum Operation {
    Acquire(AcquireRequest),
    Abandon(&'static str, Owner),
    Renew(AcquireRequest, u64),
    Release(&'static str, Owner, u64),
    Fence(&'static str, u64, FenceWhen),
    Inspect(&'static str),
}

const KEYS: [&str; 2] = ["a", "b"];
const OWNERS: usize = 4;
/// Few, so that they meet. All are given ahead, so that two stores have the same.
const TOKENS: std::ops::Range<u64> = 1..41;
const LONG_MS: u64 = 600_000;

fn operation(random: &mut StdRng, owners: &[[Owner; OWNERS]; KEYS.len()]) -> Operation {
    let at = random.random_range(0..KEYS.len());
    let (name, owner) = (KEYS[at], owners[at][random.random_range(0..OWNERS)]);
    let number = random.random_range(TOKENS);
    let request = AcquireRequest {
        owner,
        ..exactly(name, LONG_MS, number)
    };
    match random.random_range(0..12) {
        0..5 => Operation::Acquire(request),
        5 => Operation::Abandon(name, owner),
        6 | 7 => Operation::Renew(request, number),
        8 => Operation::Release(name, owner, number),
        9 if random.random() => Operation::Fence(name, number, FenceWhen::Immediately),
        9 => Operation::Fence(name, number, FenceWhen::AtExpiry),
        _ => Operation::Inspect(name),
    }
}

/// The outcome without its times, in which two stores differ.
async fn outcome(store: &dyn LeaseBackend, operation: &Operation) -> String {
    match operation {
        Operation::Acquire(request) => match store.acquire(request).await.unwrap() {
            AcquireOutcome::Held(holder) => format!("{:?} {:?}", holder.token, holder.label),
            other => format!("{other:?}"),
        },
        Operation::Abandon(name, owner) => {
            format!("{:?}", store.abandon(&key(name), *owner).await)
        }
        Operation::Renew(request, number) => {
            let renewed = store.renew(&renewal(request, token(*number))).await;
            // Causes of a loss are told as well as each store knows them.
            format!("{}", renewed.unwrap() == RenewOutcome::Renewed)
        }
        Operation::Release(name, owner, number) => {
            let released = store.release(&key(name), *owner, token(*number)).await;
            format!("{:?}", released.unwrap())
        }
        Operation::Fence(name, number, when) => {
            let mark = store.fence(&key(name), token(*number), *when).await;
            format!("{:?}", mark.unwrap())
        }
        Operation::Inspect(name) => {
            let state = store.inspect(&key(name)).await.unwrap();
            let holder = state.holder.map(|holder| (holder.token, holder.label));
            let blocked = state.blocked_for.is_some();
            format!("{:?} {holder:?} {blocked}", state.high_water)
        }
    }
}

/// One call of the script keeps a record at hand from one operation to the next.
#[tokio::test]
async fn a_batch_does_to_a_record_as_its_operations_do_one_by_one() {
    const TIME: Duration = Duration::from_secs(3);
    const SEED: u64 = 20;
    let server = plain();
    let mut random = StdRng::seed_from_u64(SEED);
    let started = Instant::now();
    let mut round = 0;
    while round < 10 || started.elapsed() < TIME {
        round += 1;
        let ours = options(&server.url()).prefix(&format!("{round}"));
        let ours = ours.unwrap().open().await.unwrap();
        // So that no batch must be sent again, behind a later one.
        ours.inspect(&key("first")).await.unwrap();
        let reference = MemoryStore::new();
        let owners = [(); KEYS.len()].map(|()| [(); OWNERS].map(|()| Owner::random().unwrap()));
        for _ in 0..6 {
            let batch: Vec<_> = (0..30).map(|_| operation(&mut random, &owners)).collect();
            let outcomes = join_all(batch.iter().map(|one| outcome(&ours, one))).await;
            for (at, ours) in outcomes.iter().enumerate() {
                let expected = outcome(&reference, &batch[at]).await;
                assert_eq!(
                    *ours,
                    expected,
                    "seed {SEED}, round {round}, {at} of {:#?}\n{outcomes:#?}",
                    &batch[..=at]
                );
            }
        }
    }
}
