//! What is kept, for how long: with retentions that a test can wait for, which
//! are shorter than any that the options take.

use std::time::{Duration, Instant};

use lease_conformance::servers::redis::RedisServer;
use lease_core::{Label, RefusedReason, TokenRule};

use super::*;

const RETENTION: Duration = Duration::from_millis(300);
/// Far more than anything takes that a test waits for.
const PATIENCE: Duration = Duration::from_secs(30);

fn server() -> RedisServer {
    RedisServer::builder().start().unwrap()
}

async fn store(server: &RedisServer) -> RedisStore {
    let options = RedisOptions::from_url(&server.url().to_string()).unwrap();
    let mut options = options.checked().unwrap();
    options.mark_retention = RETENTION;
    options.tombstone_retention = RETENTION;
    let store = RedisStore::new(options);
    store.connect().await.unwrap();
    store
}

fn key(key: &str) -> Key {
    Key::new(key).unwrap()
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn request(name: &str, rule: TokenRule) -> AcquireRequest {
    AcquireRequest {
        key: key(name),
        owner: Owner::random().unwrap(),
        ttl: Ttl::MIN,
        label: Label::EMPTY,
        rule,
        waits: None,
    }
}

/// Acquires and releases.
async fn used(store: &RedisStore, name: &str) -> Token {
    let request = request(name, TokenRule::NEXT);
    let AcquireOutcome::Granted(granted) = store.acquire(&request).await.unwrap() else {
        panic!("{name} is not free");
    };
    let release = store.release(&request.key, request.owner, granted.token);
    release.await.unwrap();
    granted.token
}

async fn below_mark(store: &RedisStore, name: &str, number: u64) -> Option<Token> {
    let request = request(name, TokenRule::Exactly(token(number)));
    match store.acquire(&request).await.unwrap() {
        AcquireOutcome::Granted(granted) => {
            assert_eq!(granted.token.get(), number);
            None
        }
        AcquireOutcome::Refused(RefusedReason::BelowMark { high_water }) => Some(high_water),
        other => panic!("{other:?}"),
    }
}

/// The server's clock, in microseconds.
fn clock(server: &RedisServer) -> u64 {
    let time = server.command(&["TIME"]).unwrap();
    let parts = time.list().unwrap().iter().map(|part| part.integer());
    let parts: Vec<_> = parts.map(|part| part.unwrap().unsigned_abs()).collect();
    parts[0] * 1_000_000 + parts[1]
}

fn milliseconds_left(server: &RedisServer, name: &str) -> i64 {
    let left = server.command(&["PTTL", &format!("leases:{{{name}}}")]);
    left.unwrap().integer().unwrap()
}

/// Waits until nothing but the birth marker is there; Redis removes what has
/// ended when it comes to it.
async fn until_forgotten(server: &RedisServer) {
    let started = Instant::now();
    while server.command(&["DBSIZE"]).unwrap().integer() != Some(1) {
        assert!(started.elapsed() < PATIENCE, "keys are left");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let left = server.command(&["KEYS", "*"]).unwrap();
    let birth = [lease_conformance::servers::redis::Reply::Bytes(
        b"leases:birth".to_vec(),
    )];
    assert_eq!(left.list().unwrap(), birth);
}

#[tokio::test]
async fn an_idle_key_is_forgotten_and_its_tokens_go_on_rising() {
    let server = server();
    let store = store(&server).await;
    let mut last = None;
    for _ in 0..4 {
        let token = used(&store, "a").await;
        let at = clock(&server);
        assert!(Some(token) > last);
        last = Some(token);
        let state = store.inspect(&key("a")).await.unwrap();
        if clock(&server) < token.get() + 300_000 {
            assert_eq!(state.high_water, last, "forgotten too early");
        }
        until_forgotten(&server).await;
        assert!(clock(&server) >= token.get() + 300_000, "{at}");
        let state = store.inspect(&key("a")).await.unwrap();
        assert_eq!(state.high_water, None);
    }
}

#[tokio::test]
async fn a_mark_ahead_of_the_clock_is_kept_until_the_clock_has_passed_it() {
    const AHEAD_US: u64 = 1_200_000;
    let server = server();
    let store = store(&server).await;
    let mark = token(clock(&server) + AHEAD_US);
    for when in [FenceWhen::AtExpiry, FenceWhen::Immediately] {
        store.fence(&key("a"), mark, when).await.unwrap();
    }
    let far = token(Token::MAX_FENCE.get());
    store
        .fence(&key("far"), far, FenceWhen::AtExpiry)
        .await
        .unwrap();
    for (name, mark) in [("a", mark), ("far", far)] {
        // Read before the clock, which only makes it harder.
        let left = milliseconds_left(&server, name).unsigned_abs();
        let due = mark.get().saturating_sub(clock(&server)) / 1000 + 300;
        assert!(left >= due, "{name}: {left} ms, not {due} ms");
    }
    // Neither a grant nor its release shortens that.
    let next = used(&store, "a").await;
    assert!(next > mark);
    let left = milliseconds_left(&server, "a").unsigned_abs();
    let due = next.get().saturating_sub(clock(&server)) / 1000 + 300;
    assert!(left >= due, "{left} ms, not {due} ms");

    // That one is there for ten years.
    server.command(&["DEL", "leases:{far}"]).unwrap();
    until_forgotten(&server).await;
    assert!(clock(&server) >= next.get() + 300_000);
    assert!(used(&store, "a").await > next);
}

#[tokio::test]
async fn a_token_below_a_forgotten_mark_is_refused() {
    let server = server();
    let store = store(&server).await;
    // A store that is younger than its retention has forgotten nothing.
    assert_eq!(below_mark(&store, "young", 5).await, None);
    let last = used(&store, "a").await;
    until_forgotten(&server).await;
    for number in [1, 5, last.get() - 1, last.get()] {
        let floor = below_mark(&store, "a", number).await;
        assert!(floor >= Some(last), "{number}: {floor:?}");
    }
    // Of a key that was never used as well: the store cannot know.
    assert!(below_mark(&store, "b", 5).await.is_some());
    let ahead = clock(&server) + 1_000_000;
    assert_eq!(below_mark(&store, "a", ahead).await, None);
    // A fence is above all of that, too.
    let unused = key("c");
    let mark = store.fence(&unused, token(5), FenceWhen::AtExpiry);
    assert!(mark.await.unwrap() >= last);
}

#[tokio::test]
async fn tombstones_end_and_leave_nothing() {
    let server = server();
    let store = store(&server).await;
    // Makes the birth marker.
    used(&store, "first").await;
    let late = request("a", TokenRule::NEXT);
    let sent = Instant::now();
    store.abandon(&late.key, late.owner).await.unwrap();
    loop {
        let outcome = store.acquire(&late).await.unwrap();
        // Answered before the end on any clock.
        if sent.elapsed() >= RETENTION {
            break;
        }
        let abandoned = AcquireOutcome::Refused(RefusedReason::Abandoned);
        assert_eq!(outcome, abandoned);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    until_forgotten(&server).await;
    let granted = store.acquire(&late).await.unwrap();
    assert!(matches!(granted, AcquireOutcome::Granted(_)), "{granted:?}");

    // One that revokes lasts so long after the grant's own end.
    let revoked = AcquireRequest {
        ttl: Ttl::new(Duration::from_millis(400)).unwrap(),
        ..request("b", TokenRule::NEXT)
    };
    let AcquireOutcome::Granted(granted) = store.acquire(&revoked).await.unwrap() else {
        panic!("not granted");
    };
    let mark = token(granted.token.get() + 1);
    store
        .fence(&revoked.key, mark, FenceWhen::Immediately)
        .await
        .unwrap();
    let left = server.command(&["PTTL", &format!("leases:{{b}}:{}", revoked.owner)]);
    let left = left.unwrap().integer().unwrap();
    assert!(left > 300 && left <= 700, "{left} ms");
    until_forgotten(&server).await;
}

/// What stands beside a record must not be forgotten before its tombstones:
/// without the record nobody would look for them.
#[tokio::test]
async fn a_record_outlives_its_tombstones() {
    let server = server();
    let store = store(&server).await;
    // Makes the birth marker.
    used(&store, "first").await;
    for round in 0..20 {
        let name = format!("a/{round}");
        let owner = Owner::random().unwrap();
        store.abandon(&key(&name), owner).await.unwrap();
        // Read before the record's, which only makes it harder.
        let record = milliseconds_left(&server, &name);
        let tomb = server.command(&["PTTL", &format!("leases:{{{name}}}:{owner}")]);
        let tomb = tomb.unwrap().integer().unwrap();
        assert!(record >= tomb, "{record} ms, and {tomb} ms");
    }
    until_forgotten(&server).await;
}
