//! What the store does in one process.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

mod support;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lease_core::{
    AcquireOutcome, FenceWhen, LeaseBackend, LostCause, RefusedReason, ReleaseOutcome,
    RenewOutcome, Severity, StoreErrorKind, Token, TokenRule,
};
use lease_sqlite::sqlx;
use lease_sqlite::{SqliteOptions, SqliteStore};
use support::*;

#[tokio::test]
async fn a_grant_lasts_its_ttl_by_the_stores_clock_and_no_less() {
    let folder = Folder::new();
    let store = SqliteStore::open(folder.file("a.db")).await.unwrap();
    for round in 0..20 {
        let (mine, other) = (request("k", 60), request("k", 60));
        let asked = Instant::now();
        let first = granted(store.acquire(&mine).await.unwrap());
        let second = loop {
            match store.acquire(&other).await.unwrap() {
                AcquireOutcome::Held(holder) => {
                    assert_eq!((holder.token, holder.label.as_str()), (first.token, "test"));
                    assert!(holder.remaining <= mine.ttl.get(), "{holder:?}");
                    tokio::task::yield_now().await;
                }
                AcquireOutcome::Granted(second) => break second,
                refused => panic!("{refused:?}"),
            }
        };
        assert!(second.token > first.token);
        assert_eq!(second.taken_over.unwrap().token, first.token);
        // Both grants were made between these two instants.
        let lasted = asked.elapsed();
        assert!(lasted >= mine.ttl.get(), "round {round}: {lasted:?}");
        let lost = store.renew(&renewal(&mine, first.token)).await.unwrap();
        assert_eq!(lost, RenewOutcome::Lost(LostCause::TakenOver));
        let released = store.release(&other.key, mine.owner, first.token).await;
        assert_eq!(released.unwrap(), ReleaseOutcome::NotHeld);
        store.abandon(&other.key, other.owner).await.unwrap();
    }
}

#[tokio::test]
async fn a_dead_grant_is_not_renewed_back_to_life() {
    let folder = Folder::new();
    let store = SqliteStore::open(folder.file("a.db")).await.unwrap();
    let mine = request("k", 50);
    let token = granted(store.acquire(&mine).await.unwrap()).token;
    until(&store, "k", |s| s.holder.is_none()).await;
    let lost = store.renew(&renewal(&mine, token)).await.unwrap();
    assert_eq!(lost, RenewOutcome::Lost(LostCause::Expired));
    let released = store.release(&mine.key, mine.owner, token).await.unwrap();
    assert_eq!(released, ReleaseOutcome::NotHeld);
    let state = store.inspect(&mine.key).await.unwrap();
    assert_eq!((state.high_water, state.holder), (Some(token), None));
}

#[tokio::test]
async fn renewals_neither_add_up_nor_shorten() {
    let folder = Folder::new();
    let store = SqliteStore::open(folder.file("a.db")).await.unwrap();
    let mine = request("k", 10_000);
    let token = granted(store.acquire(&mine).await.unwrap()).token;
    for _ in 0..50 {
        let renewed = store.renew(&renewal(&mine, token)).await.unwrap();
        assert_eq!(renewed, RenewOutcome::Renewed);
    }
    let mut short = renewal(&mine, token);
    short.ttl = ttl_ms(50);
    assert_eq!(store.renew(&short).await.unwrap(), RenewOutcome::Renewed);
    let mut again = mine.clone();
    again.ttl = ttl_ms(50);
    assert_eq!(granted(store.acquire(&again).await.unwrap()).token, token);
    let holder = store.inspect(&mine.key).await.unwrap().holder.unwrap();
    assert!(holder.remaining <= mine.ttl.get());
    assert!(holder.remaining > Duration::from_secs(5), "{holder:?}");
}

#[tokio::test]
async fn keys_are_their_bytes() {
    let folder = Folder::new();
    let store = SqliteStore::open(folder.file("a.db")).await.unwrap();
    let long = "x".repeat(511);
    let names = [
        "a", "a/b", "ab", "A", "a ", "a.", "{x}", "{}", "a}b{c", "\u{e9}", "e\u{301}", "%", "_",
        "*", "'", "''", "\"", "\\", "a:b", "[", "😀", "1", "1.0", "null", "\u{feff}",
    ];
    let longest = [format!("{long}y"), format!("{long}z"), "é".repeat(256)];
    let names: Vec<&str> = names
        .into_iter()
        .chain(longest.iter().map(|s| &**s))
        .collect();
    for name in &names {
        granted(store.acquire(&request(name, 60_000)).await.unwrap());
    }
    for name in &names {
        held(store.acquire(&request(name, 60_000)).await.unwrap());
        assert_eq!(store.inspect(&key(name)).await.unwrap().key.as_str(), *name);
    }
    let listed = |prefix: &'static str| {
        let store = store.clone();
        async move {
            let all: Vec<_> = store.list(prefix).collect().await;
            all.into_iter()
                .map(|state| state.unwrap().key.as_str().to_owned())
                .collect::<Vec<_>>()
        }
    };
    let mut all = names.clone();
    all.sort_unstable();
    assert_eq!(listed("").await, all);
    assert_eq!(
        listed("a").await,
        ["a", "a ", "a.", "a/b", "a:b", "ab", "a}b{c"]
    );
    assert_eq!(listed("a/").await, ["a/b"]);
    assert_eq!(listed("%").await, ["%"]);
    assert_eq!(listed("_").await, ["_"]);
    assert_eq!(listed("'").await, ["'", "''"]);
    assert_eq!(listed("e").await, ["e\u{301}"]);
    assert!(listed("nothing").await.is_empty());
    assert!(listed("\0").await.is_empty());
}

#[tokio::test]
async fn a_thousand_renewals_are_a_few_transactions_with_an_outcome_each() {
    let folder = Folder::new();
    let store = SqliteStore::open(folder.file("a.db")).await.unwrap();
    let requests: Vec<_> = (0..1_000)
        .map(|n| request(&format!("k/{n:04}"), 60_000))
        .collect();
    let grants = futures_util::future::join_all(requests.iter().map(|r| store.acquire(r))).await;
    let mut renewals: Vec<_> = requests
        .iter()
        .zip(grants)
        .map(|(request, outcome)| renewal(request, granted(outcome.unwrap()).token))
        .collect();
    store
        .release(&renewals[7].key, renewals[7].owner, renewals[7].token)
        .await
        .unwrap();
    renewals[8].token = token(1);
    renewals[9].key = key("never");
    let started = Instant::now();
    let outcomes = store.renew_many(&renewals).await;
    println!("1,000 renewals: {:?}", started.elapsed());
    assert_eq!(outcomes.len(), renewals.len());
    for (n, outcome) in outcomes.into_iter().enumerate() {
        let expected = match n {
            7 => RenewOutcome::Lost(LostCause::Released),
            8 => RenewOutcome::Lost(LostCause::TakenOver),
            9 => RenewOutcome::Lost(LostCause::Unknown),
            _ => RenewOutcome::Renewed,
        };
        assert_eq!(outcome.unwrap(), expected, "{n}");
    }
    let listed = store.list("k/").count().await;
    assert_eq!(listed, 1_000);
    assert!(store.renew_many(&[]).await.is_empty());
}

#[tokio::test]
async fn tokens_end_before_they_wrap() {
    let folder = Folder::new();
    let store = SqliteStore::open(folder.file("a.db")).await.unwrap();
    let mut mine = request("k", 60_000);
    mine.rule = TokenRule::Exactly(Token::MAX);
    assert_eq!(
        granted(store.acquire(&mine).await.unwrap()).token,
        Token::MAX
    );
    store.abandon(&mine.key, mine.owner).await.unwrap();
    let exhausted = AcquireOutcome::Refused(RefusedReason::TokensExhausted);
    assert_eq!(
        store.acquire(&request("k", 60_000)).await.unwrap(),
        exhausted
    );
    let mut after = request("other", 60_000);
    after.rule = TokenRule::Next {
        after: Some(Token::MAX),
    };
    assert_eq!(store.acquire(&after).await.unwrap(), exhausted);
    let error = store
        .fence(&mine.key, Token::MAX, FenceWhen::AtExpiry)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::InvalidInput);
}

#[tokio::test]
async fn a_dropped_acquire_leaves_nothing_that_abandon_does_not_free() {
    let folder = Folder::new();
    let store = SqliteStore::open(folder.file("a.db")).await.unwrap();
    for polls in 0..40_u32 {
        let mine = request("k", 600_000);
        {
            let mut acquire = pin!(store.acquire(&mine));
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..polls {
                if let Poll::Ready(outcome) = acquire.as_mut().poll(&mut context) {
                    granted(outcome.unwrap());
                    break;
                }
                // Lets the store's thread come a different way each time.
                std::thread::sleep(Duration::from_micros(u64::from(polls) * 20));
            }
        }
        store.abandon(&mine.key, mine.owner).await.unwrap();
        assert_eq!(store.inspect(&mine.key).await.unwrap().holder, None);
        let refused = AcquireOutcome::Refused(RefusedReason::Abandoned);
        assert_eq!(store.acquire(&mine).await.unwrap(), refused, "{polls}");
        let next = request("k", 600_000);
        let token = granted(store.acquire(&next).await.unwrap()).token;
        let released = store.release(&next.key, next.owner, token).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
    }
}

#[tokio::test]
async fn a_request_whose_caller_left_while_it_waited_is_not_begun() {
    let folder = Folder::new();
    let path = folder.file("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let mut foreign = raw(&path).await;
    run(&mut foreign, "BEGIN IMMEDIATE").await;
    let mine = request("k", 600_000);
    let waited = tokio::time::timeout(Duration::from_millis(50), store.acquire(&mine)).await;
    assert!(waited.is_err());
    run(&mut foreign, "COMMIT").await;
    // Served in order: what was dropped would have come first.
    granted(store.acquire(&request("other", 600_000)).await.unwrap());
    assert_eq!(store.inspect(&mine.key).await.unwrap().high_water, None);
}

#[tokio::test]
async fn a_foreign_lock_is_waited_for_up_to_the_limit_and_no_time_is_stale() {
    let folder = Folder::new();
    let path = folder.file("a.db");
    let store = SqliteOptions::new(&path)
        .busy_wait(Duration::from_secs(4))
        .open()
        .await
        .unwrap();
    granted(store.acquire(&request("held", 60_000)).await.unwrap());
    let mut foreign = raw(&path).await;
    run(&mut foreign, "BEGIN EXCLUSIVE").await;
    let mine = request("k", 1_000);
    let acquire = {
        let (store, mine) = (store.clone(), mine.clone());
        tokio::spawn(async move { store.acquire(&mine).await })
    };
    // The lock is held for a whole TTL of the waiter.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    // Neither readers nor what would change nothing are stopped meanwhile.
    held(store.acquire(&request("held", 60_000)).await.unwrap());
    let released = store.release(&mine.key, mine.owner, token(1)).await;
    assert_eq!(released.unwrap(), ReleaseOutcome::NotHeld);
    assert_eq!(store.inspect(&mine.key).await.unwrap().high_water, None);
    run(&mut foreign, "COMMIT").await;
    granted(acquire.await.unwrap().unwrap());
    let holder = store.inspect(&mine.key).await.unwrap().holder.unwrap();
    assert!(holder.remaining > Duration::from_millis(500), "{holder:?}");
    assert!(holder.remaining <= mine.ttl.get());

    let impatient = SqliteOptions::new(&path)
        .busy_wait(Duration::from_millis(200))
        .open()
        .await
        .unwrap();
    run(&mut foreign, "BEGIN EXCLUSIVE").await;
    let started = Instant::now();
    let error = impatient
        .acquire(&request("free", 1_000))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("busy_wait"), "{error}");
    assert!(started.elapsed() >= Duration::from_millis(200));
    run(&mut foreign, "ROLLBACK").await;
    assert!(impatient.inspect(&key("k")).await.is_ok());
}

#[tokio::test]
async fn options_that_say_for_ever_do_not_overflow() {
    let folder = Folder::new();
    let options = SqliteOptions::new(folder.file("ever.db"))
        .busy_wait(Duration::MAX)
        .poll_interval(Duration::MAX)
        .tombstone_retention(Duration::MAX);
    let store = options.open().await.unwrap();
    let mine = request("k", 60_000);
    let _hints = store.watch(&mine.key).await.unwrap();
    granted(store.acquire(&mine).await.unwrap());
    assert!(store.inspect(&mine.key).await.unwrap().holder.is_some());
    store.abandon(&mine.key, mine.owner).await.unwrap();
    // Failed looks for changes wait longer and longer.
    std::fs::remove_file(folder.file("ever.db")).unwrap();
    std::fs::create_dir(folder.file("ever.db")).unwrap();
    for _ in 0..3 {
        drop(store.watch(&mine.key).await.unwrap());
    }
    assert!(store.inspect(&mine.key).await.is_err());
}

#[tokio::test]
async fn tombstones_go_when_their_time_is_over() {
    let folder = Folder::new();
    let path = folder.file("a.db");
    let store = SqliteOptions::new(&path)
        .tombstone_retention(Duration::from_millis(1))
        .open()
        .await
        .unwrap();
    for n in 0..200 {
        let mine = request(&format!("k{n}"), 60_000);
        store.abandon(&mine.key, mine.owner).await.unwrap();
    }
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM lease_tombstones")
        .fetch_one(&mut raw(&path).await)
        .await
        .unwrap();
    assert!(count < 20, "{count}");
}

#[tokio::test]
async fn watchers_hear_of_releases_expiries_apart_and_end_with_the_store() {
    let folder = Folder::new();
    let store = SqliteStore::open(folder.file("a.db")).await.unwrap();
    let mine = request("k", 60_000);
    let token = granted(store.acquire(&mine).await.unwrap()).token;
    let mut hints = store.watch(&mine.key).await.unwrap();
    let mut others = store.watch(&key("held elsewhere")).await.unwrap();
    store.release(&mine.key, mine.owner, token).await.unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(5), hints.next()).await;
    assert_eq!(waited.unwrap(), Some(()));
    let again = request("k", 60_000);
    let token = granted(store.acquire(&again).await.unwrap()).token;
    store
        .fence(&again.key, token.next().unwrap(), FenceWhen::Immediately)
        .await
        .unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(5), hints.next()).await;
    assert_eq!(waited.unwrap(), Some(()));
    drop(store);
    let ends = async {
        while hints.next().await.is_some() {}
        while others.next().await.is_some() {}
    };
    tokio::time::timeout(Duration::from_secs(5), ends)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_healthy_file_has_no_complaint_and_promises_are_as_written() {
    let folder = Folder::new();
    let store = SqliteStore::open(folder.file("a.db")).await.unwrap();
    granted(store.acquire(&request("k", 60_000)).await.unwrap());
    let found = store.diagnose(ttl_ms(60_000)).await.unwrap();
    for finding in &found.findings {
        println!("{}: {} | {}", finding.severity, finding.what, finding.why);
        assert!(finding.severity < Severity::Critical, "{finding:?}");
    }
    assert!(found.findings.iter().any(|f| f.what == "journal_mode: wal"));
    assert!(found.findings.iter().any(|f| f.what == "synchronous: 2"));
    assert_eq!(
        store.guarantees().table_row(),
        [
            "sqlite",
            "one host",
            "restart",
            "restart, data loss",
            "50ms to 366 d",
            "store's clock",
            "poll (20ms)",
            "none",
            "the TTL",
            "yes"
        ]
    );
}

#[tokio::test]
async fn a_file_that_was_deleted_is_made_anew_and_tokens_go_on_rising() {
    let folder = Folder::new();
    let path = folder.file("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let before = granted(store.acquire(&request("k", 60_000)).await.unwrap()).token;
    let mut hints = store.watch(&key("k")).await.unwrap();
    // Whatever the client keeps in mind of the old file must not count.
    held(store.acquire(&request("k", 60_000)).await.unwrap());
    for name in ["a.db", "a.db-wal", "a.db-shm"] {
        std::fs::remove_file(folder.file(name)).unwrap();
    }
    // Nobody holds it in the new file, and watchers learn that.
    let hint = tokio::time::timeout(Duration::from_secs(5), hints.next());
    assert_eq!(hint.await.unwrap(), Some(()));
    let again = granted(store.acquire(&request("k", 50)).await.unwrap()).token;
    assert!(again > before);
    until(&store, "k", |s| s.holder.is_none()).await;
    let other = SqliteStore::open(&path).await.unwrap();
    let after = granted(other.acquire(&request("k", 60_000)).await.unwrap()).token;
    assert!(after > again);
    // The client that had the old file open leases in the new one, too.
    held(store.acquire(&request("k", 60_000)).await.unwrap());
    assert_eq!(
        store.inspect(&key("k")).await.unwrap().high_water,
        Some(after)
    );
}

#[tokio::test]
async fn many_tasks_on_one_key_get_it_once_a_round() {
    let folder = Folder::new();
    let store = SqliteStore::open(folder.file("a.db")).await.unwrap();
    let mut last = None;
    for _ in 0..20 {
        let tasks: Vec<_> = (0..100).map(|_| request("k", 60_000)).collect();
        let outcomes = futures_util::future::join_all(tasks.iter().map(|r| store.acquire(r))).await;
        let mut winners = tasks
            .iter()
            .zip(outcomes)
            .filter_map(|(request, outcome)| match outcome.unwrap() {
                AcquireOutcome::Granted(granted) => Some((request, granted.token)),
                _ => None,
            });
        let (winner, token) = winners.next().unwrap();
        assert!(winners.next().is_none());
        assert!(Some(token) > last);
        last = Some(token);
        store
            .release(&winner.key, winner.owner, token)
            .await
            .unwrap();
    }
}

/// Without a runtime, on a plain thread, and after one was shut down.
#[test]
fn the_store_needs_no_runtime_of_its_callers() {
    let folder = Folder::new();
    let path = folder.file("a.db");
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let store = runtime().block_on(SqliteStore::open(&path)).unwrap();
    let mine = request("k", 60_000);
    let first = runtime();
    first.block_on(async {
        let cut = tokio::time::timeout(Duration::from_micros(50), store.acquire(&mine)).await;
        drop(cut);
    });
    drop(first);
    block_on(store.abandon(&mine.key, mine.owner)).unwrap();
    granted(block_on(store.acquire(&request("k", 60_000))).unwrap());
}

/// The smallest executor there is.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}
