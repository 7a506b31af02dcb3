//! Against a real server.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lease_conformance::servers::redis::RedisServer;
use lease_core::StoreErrorKind;
use redis::aio::MultiplexedConnection;

use super::*;

/// Far more than anything here takes.
const LIMIT: Duration = Duration::from_secs(30);

type Hints = BoxStream<'static, ()>;

fn server() -> RedisServer {
    RedisServer::builder().start().unwrap()
}

fn wake_ups_at(url: &str, response: Duration) -> WakeUps {
    let options = crate::RedisOptions::from_url(url).unwrap();
    let options = options.response_timeout(response).checked().unwrap();
    WakeUps::new(options.servers.clone(), Duration::from_secs(5), response)
}

fn wake_ups(server: &RedisServer) -> WakeUps {
    wake_ups_at(&server.url().to_string(), Duration::from_secs(5))
}

/// Publishes as anybody would; returns how many connections got it.
async fn publish(connection: &mut MultiplexedConnection, channel: &str) -> u64 {
    redis::cmd("PUBLISH")
        .arg(channel)
        .arg("")
        .query_async(connection)
        .await
        .unwrap()
}

async fn connection(server: &RedisServer) -> MultiplexedConnection {
    let limit = redis::AsyncConnectionConfig::new().set_response_timeout(Some(LIMIT));
    redis::Client::open(server.url().to_string())
        .unwrap()
        .get_multiplexed_async_connection_with_config(&limit)
        .await
        .unwrap()
}

async fn hint(hints: &mut Hints) {
    let hint = tokio::time::timeout(LIMIT, hints.next()).await;
    hint.expect("a hint").expect("no end");
}

fn no_hint(hints: &mut Hints) {
    assert!(hints.next().now_or_never().is_none());
}

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let end = tokio::time::timeout(LIMIT, looking).await;
    end.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"));
}

fn subscribers(server: &RedisServer, channel: &str) -> i64 {
    let reply = server.command(&["PUBSUB", "NUMSUB", channel]).unwrap();
    reply.list().unwrap()[1].integer().unwrap()
}

/// Of clients; the server's administrator has another name.
fn connections(server: &RedisServer) -> usize {
    let reply = server.command(&["CLIENT", "LIST"]).unwrap();
    let lines = reply.text().unwrap().lines();
    lines.filter(|line| line.contains("user=default")).count()
}

/// How often the server was asked whether it is there.
fn pings(server: &RedisServer) -> u64 {
    let stats = server.info("cmdstat_ping").unwrap().unwrap_or_default();
    let calls = stats.split([',', '=']).nth(1).unwrap_or("0").to_owned();
    calls.parse().unwrap()
}

/// Polls once.
async fn is_ready<F: Future>(mut future: Pin<&mut F>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

fn nobody_sits(wake_ups: &WakeUps) -> bool {
    let hubs = wake_ups.hubs.lock();
    hubs.values()
        .all(|hub| hub.with(|channels| channels.is_empty()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_a_hint() {
    let server = server();
    for protocol in ["resp2", "resp3"] {
        let url = format!("{}?protocol={protocol}", server.url());
        let wake_ups = wake_ups_at(&url, Duration::from_secs(5));
        let mut hints = wake_ups.watch("a".to_owned()).await.unwrap();
        // The server has confirmed it: this very message is received.
        assert_eq!(publish(&mut connection(&server).await, "a").await, 1);
        hint(&mut hints).await;
        no_hint(&mut hints);
        drop(hints);
        eventually("unsubscribed", || subscribers(&server, "a") == 0).await;
    }
}

#[tokio::test]
async fn one_thread_is_enough() {
    let server = server();
    let wake_ups = wake_ups(&server);
    let mut hints = wake_ups.watch("a".to_owned()).await.unwrap();
    assert_eq!(publish(&mut connection(&server).await, "a").await, 1);
    hint(&mut hints).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_watchers_share_a_subscription_and_a_connection() {
    let server = server();
    let wake_ups = wake_ups(&server);
    let mut publisher = connection(&server).await;
    let watching = (0..1000).map(|_| wake_ups.watch("a".to_owned()));
    let mut all: Vec<_> = join_all(watching).await;
    let others = (0..1000).map(|n| wake_ups.watch(format!("other {n}")));
    let mut others: Vec<_> = join_all(others).await;
    assert_eq!(subscribers(&server, "a"), 1);
    // The publisher's and ours.
    assert_eq!(connections(&server), 2);
    assert_eq!(publish(&mut publisher, "a").await, 1);
    for hints in &mut all {
        hint(hints.as_mut().unwrap()).await;
    }
    for hints in &mut others {
        no_hint(hints.as_mut().unwrap());
    }
    publish(&mut publisher, "other 7").await;
    hint(others[7].as_mut().unwrap()).await;
    no_hint(others[8].as_mut().unwrap());
    drop((all, others));
    eventually("unsubscribed", || nobody_sits(&wake_ups)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_watcher_has_one_hint_waiting() {
    let server = server();
    let wake_ups = wake_ups(&server);
    let mut publisher = connection(&server).await;
    let mut slow = wake_ups.watch("slow".to_owned()).await.unwrap();
    let mut last = wake_ups.watch("last".to_owned()).await.unwrap();
    for _ in 0..1000 {
        publish(&mut publisher, "slow").await;
    }
    // One connection: when this one has come, all have.
    publish(&mut publisher, "last").await;
    hint(&mut last).await;
    hint(&mut slow).await;
    no_hint(&mut slow);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_messages_keeps_nobody_from_watching() {
    let server = server();
    let wake_ups = wake_ups(&server);
    let mut publisher = connection(&server).await;
    let mut flooded = wake_ups.watch("flood".to_owned()).await.unwrap();
    let mut end = wake_ups.watch("end".to_owned()).await.unwrap();
    let flood = tokio::spawn(async move {
        let mut messages = redis::pipe();
        for _ in 0..1000 {
            messages.cmd("PUBLISH").arg("flood").arg("");
        }
        messages.cmd("PUBLISH").arg("end").arg("");
        loop {
            messages.exec_async(&mut publisher).await.unwrap();
            // As fast as they are read, and no faster.
            hint(&mut end).await;
        }
    });
    for _ in 0..50 {
        hint(&mut flooded).await;
        let watching = wake_ups.watch("a".to_owned());
        let watched = tokio::time::timeout(LIMIT, watching).await;
        assert!(watched.unwrap().is_ok());
    }
    flood.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_connection_is_made_up_for() {
    let server = server();
    let wake_ups = wake_ups(&server);
    let mut publisher = connection(&server).await;
    let mut all = Vec::new();
    for n in 0..10 {
        all.push(wake_ups.watch(format!("{n}")).await.unwrap());
    }
    for _ in 0..3 {
        let kill = server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert_eq!(kill.unwrap().integer(), Some(1));
        for hints in &mut all {
            hint(hints).await;
            no_hint(hints);
        }
        for (n, hints) in all.iter_mut().enumerate() {
            assert_eq!(publish(&mut publisher, &n.to_string()).await, 1);
            hint(hints).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_is_subscribed_to_again() {
    let server = server();
    let wake_ups = wake_ups(&server);
    let mut old = wake_ups.watch("a".to_owned()).await.unwrap();
    server.kill().unwrap();
    // Who comes now learns that there is no server, in bounded time.
    let mut error = None;
    while error.is_none() {
        // The first may come before the loss is known, and is a spurious one.
        error = wake_ups.watch("b".to_owned()).await.err();
    }
    let error = error.unwrap();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("check that"), "{error}");
    no_hint(&mut old);
    server.start().unwrap();
    hint(&mut old).await;
    assert_eq!(publish(&mut connection(&server).await, "a").await, 1);
    hint(&mut old).await;
    assert!(wake_ups.watch("b".to_owned()).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_not_overrun() {
    let server = server();
    let wake_ups = wake_ups(&server);
    let mut hints = wake_ups.watch("a".to_owned()).await.unwrap();
    let address = server.address();
    server.kill().unwrap();
    // In its place somebody who hangs up at once.
    let counted = Arc::new(AtomicUsize::new(0));
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let count = Arc::clone(&counted);
    let hang_up = tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            drop(connection);
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    let attempts = counted.load(Ordering::SeqCst);
    // 10, 20, 40, … ms, each up to one half shorter; then 1 s.
    assert!((3..=12).contains(&attempts), "{attempts}");
    // New watchers do not hurry it.
    let asking = join_all((0..100).map(|n| wake_ups.watch(format!("{n}"))));
    assert!(asking.await.iter().all(Result::is_err));
    let attempts = counted.load(Ordering::SeqCst) - attempts;
    assert!(attempts <= 3, "{attempts}");
    hang_up.abort();
    let _ = hang_up.await;
    server.start().unwrap();
    hint(&mut hints).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_is_noticed() {
    let server = server();
    let response = Duration::from_millis(200);
    let wake_ups = wake_ups_at(&server.url().to_string(), response);
    let mut hints = wake_ups.watch("a".to_owned()).await.unwrap();
    server.pause().unwrap();
    let error = wake_ups.watch("b".to_owned()).await.err().unwrap();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    server.resume().unwrap();
    hint(&mut hints).await;

    // Also when nobody asks for anything.
    server.pause().unwrap();
    let beats = {
        let hubs = wake_ups.hubs.lock();
        let hub = hubs.values().next().unwrap();
        hub.with(|channels| channels.join(&Arc::from("a")))
    };
    let before = beats.borrow().failures;
    eventually("cut off", || beats.borrow().failures > before).await;
    server.resume().unwrap();
    hint(&mut hints).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_that_is_alive_stays() {
    let server = server();
    let response = Duration::from_millis(50);
    let wake_ups = wake_ups_at(&server.url().to_string(), response);
    let mut hints = wake_ups.watch("a".to_owned()).await.unwrap();
    let before = pings(&server);
    eventually("asked", || pings(&server) >= before + 5).await;
    assert_eq!(publish(&mut connection(&server).await, "a").await, 1);
    hint(&mut hints).await;
    no_hint(&mut hints);
}

/// Polls a watch `polls` times and drops it; whether it came to its end.
async fn begin_to_watch(wake_ups: &WakeUps, polls: usize) -> bool {
    let mut watching = pin!(wake_ups.watch("a".to_owned()));
    for _ in 0..polls {
        if is_ready(watching.as_mut()).await {
            return true;
        }
        // The connection's task goes on by another thread.
        std::thread::sleep(Duration::from_micros(50));
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_future_anywhere_leaves_nothing_behind() {
    let server = server();
    // While it connects.
    for polls in 0.. {
        let wake_ups = wake_ups(&server);
        let done = begin_to_watch(&wake_ups, polls).await;
        eventually("empty", || nobody_sits(&wake_ups)).await;
        drop(wake_ups);
        eventually("closed", || connections(&server) == 0).await;
        if done {
            break;
        }
    }
    // On a connection that stands.
    let wake_ups = wake_ups(&server);
    let kept = wake_ups.watch("kept".to_owned()).await.unwrap();
    for polls in 0.. {
        let done = begin_to_watch(&wake_ups, polls).await;
        eventually("unsubscribed", || subscribers(&server, "a") == 0).await;
        if done {
            break;
        }
    }
    drop(kept);
    eventually("empty", || nobody_sits(&wake_ups)).await;
    let mut hints = wake_ups.watch("a".to_owned()).await.unwrap();
    assert_eq!(publish(&mut connection(&server).await, "a").await, 1);
    hint(&mut hints).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_after_watch_is_missed_in_a_throng() {
    let server = server();
    let wake_ups = Arc::new(wake_ups(&server));
    let publisher = connection(&server).await;
    let tasks = (0..8).map(|task| {
        let wake_ups = Arc::clone(&wake_ups);
        let mut publisher = publisher.clone();
        tokio::spawn(async move {
            for round in 0..200 {
                // Some give up in the middle.
                if (task + round) % 3 == 0 {
                    let mut watching = pin!(wake_ups.watch("a".to_owned()));
                    is_ready(watching.as_mut()).await;
                    tokio::task::yield_now().await;
                }
                let mut hints = wake_ups.watch("a".to_owned()).await.unwrap();
                assert_eq!(publish(&mut publisher, "a").await, 1, "{task} {round}");
                hint(&mut hints).await;
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    eventually("unsubscribed", || subscribers(&server, "a") == 0).await;
    eventually("empty", || nobody_sits(&wake_ups)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_nobody_needs_is_closed() {
    let server = server();
    let mut wake_ups = wake_ups(&server);
    wake_ups.limits.linger = Duration::from_millis(100);
    let hints = wake_ups.watch("a".to_owned()).await.unwrap();
    assert_eq!(connections(&server), 1);
    drop(hints);
    eventually("closed", || connections(&server) == 0).await;
    eventually("retired", || wake_ups.hubs.lock().is_empty()).await;
    // And opened again.
    assert!(wake_ups.watch("a".to_owned()).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_outlive_the_store_and_connections_do_not_outlive_both() {
    let server = server();
    let wake_ups = wake_ups(&server);
    let mut hints = wake_ups.watch("a".to_owned()).await.unwrap();
    drop(wake_ups);
    assert_eq!(publish(&mut connection(&server).await, "a").await, 1);
    hint(&mut hints).await;
    drop(hints);
    // Long before the time that it is kept for others.
    let begun = std::time::Instant::now();
    eventually("closed", || connections(&server) == 0).await;
    assert!(begun.elapsed() < LINGER);
}

#[test]
fn a_runtime_takes_its_own_streams_with_it() {
    let server = server();
    let wake_ups = wake_ups(&server);
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let (first, second) = (runtime(), runtime());
    let mut of_first = first.block_on(wake_ups.watch("a".to_owned())).unwrap();
    let mut of_second = second.block_on(wake_ups.watch("a".to_owned())).unwrap();
    assert_eq!(subscribers(&server, "a"), 2);
    drop(first);
    second.block_on(async {
        let end = tokio::time::timeout(LIMIT, of_first.next()).await;
        assert_eq!(end.unwrap(), None);
        eventually("unsubscribed", || subscribers(&server, "a") == 1).await;
        assert_eq!(publish(&mut connection(&server).await, "a").await, 1);
        hint(&mut of_second).await;
    });
    let third = runtime();
    let again = third.block_on(wake_ups.watch("a".to_owned()));
    assert!(again.is_ok());
    drop((second, third));
    assert!(wake_ups.hubs.lock().is_empty());
}

#[test]
fn outside_of_a_runtime_there_are_no_wake_ups() {
    let wake_ups = wake_ups_at("redis://127.0.0.1", Duration::from_secs(1));
    let error = wake_ups.watch("a".to_owned()).now_or_never().unwrap();
    let error = error.err().unwrap();
    assert!(error.to_string().contains("tokio runtime"), "{error}");
}

/// As the documentation has it.
fn least_rights() -> String {
    let page = include_str!("../../docs/acl.md");
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("ACL SETUSER "))
        .unwrap();
    line.replace("PASSWORD", "secret")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_rights_are_enough_and_fewer_are_told() {
    let server = RedisServer::builder()
        .user(&least_rights())
        .default_user_off()
        .start()
        .unwrap();
    let url = server.url().user("app", "secret").to_string();
    let wake_ups = wake_ups_at(&url, Duration::from_millis(100));
    let mut hints = wake_ups.watch("leases:{a}".to_owned()).await.unwrap();
    let before = pings(&server);
    eventually("asked", || pings(&server) >= before + 3).await;
    let mut publisher = connection(&server).await;
    assert_eq!(publish(&mut publisher, "leases:{a}").await, 1);
    hint(&mut hints).await;
    no_hint(&mut hints);

    let error = wake_ups.watch("other:{a}".to_owned()).await.err().unwrap();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    assert!(error.to_string().contains("rights"), "{error}");

    let url = server.url().user("app", "wr0ng").to_string();
    let wake_ups = wake_ups_at(&url, Duration::from_secs(5));
    let error = wake_ups.watch("leases:{a}".to_owned()).await.err().unwrap();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    assert!(!format!("{error:?}").contains("wr0ng"), "{error:?}");
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn tls_checks_the_server_and_shows_a_certificate() {
    let server = RedisServer::builder()
        .tls()
        .config("tls-auth-clients yes")
        .start()
        .unwrap();
    let file = |name: &str| server.folder().join(name).display().to_string();
    let trust = format!("{}?ca={}", server.url(), file("ca.pem"));
    // The server's own certificate is good for clients, too.
    let show = format!(
        "{trust}&cert={}&key={}",
        file("server.pem"),
        file("server.key")
    );
    let watch = async |url: &str| {
        let wake_ups = wake_ups_at(url, Duration::from_secs(5));
        wake_ups.watch("a".to_owned()).await
    };
    let mut hints = watch(&show).await.unwrap();
    server.command(&["PUBLISH", "a", ""]).unwrap();
    hint(&mut hints).await;
    for url in [trust, server.url().to_string()] {
        let error = watch(&url).await.err().unwrap();
        assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
        assert!(error.to_string().contains("?ca="), "{error}");
    }
}
