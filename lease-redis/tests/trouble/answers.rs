//! Answers that no sound server gives, or gives seldom.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use lease_conformance::servers::redis::RedisServer;
use lease_core::{AcquireOutcome, FenceWhen, Gate, LeaseBackend, Owner, StoreErrorKind};
use lease_redis::{RedisOptions, RedisStore};

use crate::odd_server::odd_server;
use crate::support::*;

async fn odd_store(words: &'static [u8]) -> RedisStore {
    let address = odd_server(words).await;
    let url = format!("redis://{address}/?response_timeout_ms=300");
    RedisOptions::from_url(&url).unwrap().open_lazily().unwrap()
}

/// Other programs' records may be made so.
#[tokio::test]
async fn a_label_that_is_no_text_keeps_nobody_from_the_key() {
    let server = plain();
    let store = store(&server).await;
    granted(store.acquire(&request("a", 300)).await.unwrap());
    let spoil = "return redis.call('APPEND', KEYS[1], '\\255\\254')";
    let spoilt = server.command(&["EVAL", spoil, "1", "leases:{a}"]);
    spoilt.unwrap();
    let request = request("a", 60_000);
    let started = Instant::now();
    let grant = loop {
        match store.acquire(&request).await.unwrap() {
            AcquireOutcome::Granted(grant) => break grant,
            held => assert!(started.elapsed() < PATIENCE, "{held:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let label = grant.taken_over.unwrap().label;
    assert_eq!(label.as_str(), "test\u{fffd}\u{fffd}");
}

/// Each the answer to a whole batch, and none of them one.
const GARBAGE: &[&[u8]] = &[
    b"*-1\r\n",
    b"$-1\r\n",
    b"*0\r\n",
    b"*1\r\n*0\r\n",
    b"*1\r\n*1\r\n:-1\r\n",
    b"*1\r\n-ERR x\r\n",
    b"*1\r\n-NOSCRIPT x\r\n",
    b"*1\r\n$3\r\nabc\r\n",
    b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    b"-\r\n",
    b"-NOSCRIPT\r\n",
    b"+OK\r\n",
    b"%1\r\n+a\r\n:1\r\n",
    b"~1\r\n:1\r\n",
    b",1.5\r\n",
    b"#t\r\n",
    b"_\r\n",
    b"(123\r\n",
    b">1\r\n:1\r\n",
    b"=5\r\ntxt:a\r\n",
    b"!5\r\nERR x\r\n",
    b"|1\r\n+a\r\n+b\r\n:1\r\n",
    // Lengths that nothing must be allocated for.
    b"*2147483647\r\n",
    b"*4294967296\r\n",
    b"*99999999999999999999\r\n",
    b"$536870912\r\n",
    b"$9223372036854775807\r\n",
    b"$-5\r\n",
    // Other protocols.
    b"garbage\r\n",
    b"\xff\xfe\r\n",
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
];

async fn is_unknown_whatever_is_asked(words: &'static [u8]) {
    let store = odd_store(words).await;
    let request = request("a", 60_000);
    let (name, owner, token) = (&request.key, request.owner, token(5));
    let renewal = renewal(&request, token);
    let errors = [
        store.acquire(&request).await.map(drop),
        store.renew(&renewal).await.map(drop),
        store.release(name, owner, token).await.map(drop),
        store.abandon(name, owner).await,
        store.inspect(name).await.map(drop),
        store
            .fence(name, token, FenceWhen::Immediately)
            .await
            .map(drop),
    ];
    let words = String::from_utf8_lossy(words);
    for (at, error) in errors.into_iter().enumerate() {
        let error = error.unwrap_err();
        assert_eq!(
            error.kind(),
            StoreErrorKind::UnknownOutcome,
            "{at} of {words}: {error}"
        );
    }
    Gate::admit(&store, name, token).await.unwrap_err();
    let listed: Vec<_> = store.list("").collect().await;
    assert!(matches!(&listed[..], [Err(_)]), "{words}: {listed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_makes_no_sense_is_an_unknown_outcome_and_no_panic() {
    let all = join_all(
        GARBAGE
            .iter()
            .map(|words| is_unknown_whatever_is_asked(words)),
    );
    tokio::time::timeout(2 * PATIENCE, all).await.unwrap();
}

/// Numbers of the right shape that are far out of range.
#[tokio::test]
async fn an_answer_with_numbers_out_of_range_is_no_grant_and_no_panic() {
    for words in [
        &b"*1\r\n:-1\r\n"[..],
        b"*1\r\n:9223372036854775807\r\n",
        b"*1\r\n*2\r\n:5\r\n:-9223372036854775808\r\n",
        b"*1\r\n*2\r\n:5\r\n:9223372036854775807\r\n",
        b"*1\r\n*5\r\n:0\r\n:1\r\n:1\r\n:9223372036854775807\r\n$1\r\na\r\n",
        b"*1\r\n*2\r\n:-1\r\n$0\r\n\r\n",
    ] {
        let store = odd_store(words).await;
        let request = request("a", 60_000);
        let outcome = store.acquire(&request).await;
        assert!(
            !matches!(outcome, Ok(AcquireOutcome::Granted(_))),
            "{outcome:?}"
        );
        store.renew(&renewal(&request, token(5))).await.unwrap_err();
        store.inspect(&request.key).await.unwrap_err();
    }
}

/// A proxy gives up on a server that has the request already, and says so with
/// an error of its own.
#[tokio::test]
async fn an_error_that_is_not_known_is_an_unknown_outcome() {
    for words in [
        &b"-ERR Connection timed out\r\n"[..],
        b"-upstream failure\r\n",
    ] {
        let store = odd_store(words).await;
        let error = store.acquire(&request("a", 60_000)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::UnknownOutcome, "{error}");
    }
}

#[tokio::test]
async fn an_error_that_comes_before_any_effect_is_told_from_one_that_is_not_known() {
    for (words, kind) in [
        (&b"-LOADING x\r\n"[..], StoreErrorKind::Unavailable),
        (b"-NOPERM x\r\n", StoreErrorKind::Refusing),
        (
            b"-ERR unknown command 'EVALSHA'\r\n",
            StoreErrorKind::Refusing,
        ),
    ] {
        let store = odd_store(words).await;
        let owner = Owner::random().unwrap();
        let error = store.abandon(&key("a"), owner).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}

/// The server is well, and will have room again.
#[tokio::test]
async fn a_server_without_room_for_a_connection_is_unavailable() {
    let server = RedisServer::builder()
        .user("app on >secret ~* &* +@all")
        .start()
        .unwrap();
    let urls = [server.url(), server.url().user("app", "secret")];
    server.config_set("maxclients", "1").unwrap();
    let started = Instant::now();
    // Once its answer is there, it has taken all that there is room for.
    let _only = loop {
        let connection = TcpStream::connect(server.address()).unwrap();
        if is_served(&connection) {
            break connection;
        }
        assert!(started.elapsed() < PATIENCE);
    };
    for url in urls {
        let store = options(&url).open_lazily().unwrap();
        for _ in 0..3 {
            let error = store.inspect(&key("a")).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        }
    }
}

fn is_served(mut connection: &TcpStream) -> bool {
    use std::io::{Read, Write};
    let mut answer = [0; 5];
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection.write_all(b"PING\r\n").is_ok()
        && connection.read_exact(&mut answer).is_ok()
        && answer == *b"+PONG"
}

/// Who reads up to the first error has all that was read before it.
#[tokio::test]
async fn nothing_follows_an_error_in_a_list() {
    let server = RedisServer::builder()
        .user("app on >secret ~leases:{a* ~leases:birth &* +@all")
        .start()
        .unwrap();
    let all = store(&server).await;
    let some = options(&server.url().user("app", "secret"));
    let some = some.open().await.unwrap();
    // A page of the scan, which is looked at in more than one call.
    let allowed: Vec<_> = (0..500)
        .map(|number| request(&format!("a{number}"), 600_000))
        .collect();
    for outcome in join_all(allowed.iter().map(|one| all.acquire(one))).await {
        granted(outcome.unwrap());
    }
    // The call that would read it fails as a whole, be it the first or the second:
    // that is as the server's hash has it.
    let mut behind = 0;
    for round in 0..24 {
        let forbidden = format!("b{round}");
        granted(all.acquire(&request(&forbidden, 600_000)).await.unwrap());
        let listed: Vec<_> = some.list("").collect().await;
        let at = listed.iter().position(Result::is_err);
        assert_eq!(at.unwrap() + 1, listed.len());
        behind += usize::from(listed.len() > 1);
        let name = format!("leases:{{{forbidden}}}");
        server.command(&["DEL", &name]).unwrap();
    }
    assert!(behind > 0);
}
