//! A server that refuses: rights, memory, options.

use lease_conformance::servers::redis::RedisServer;
use lease_core::{Severity, StoreErrorKind};
use lease_queue::redis::RedisQueues;
use lease_queue::{QueueStore, Settle, Settled};

use crate::account;
use crate::support::{assert_unchanged, everything, item, items, name, next, put, queues, ttl};

async fn as_user(server: &RedisServer) -> RedisQueues {
    let url = server
        .url()
        .user(account::NAME, account::PASSWORD)
        .to_string();
    RedisQueues::open(RedisQueues::options(&url).unwrap())
        .await
        .unwrap()
}

#[tokio::test]
async fn each_right_of_the_page_is_needed_and_nothing_is_half_done_without() {
    let server = RedisServer::builder()
        .user(&account::acl())
        .start()
        .unwrap();
    let queue = name("jobs");
    let user = account::acl();
    let scripts_own = user.split(' ').filter(|word| word.starts_with('+'));
    let besides = [
        "+@all",
        "+eval",
        "+evalsha",
        "+time",
        "+publish",
        "+subscribe",
        "+unsubscribe",
    ];
    for right in scripts_own.filter(|right| !besides.contains(right) && *right != "+ping") {
        let without = right.replace('+', "-");
        server
            .command(&["ACL", "SETUSER", account::NAME, &without])
            .unwrap();
        let store = as_user(&server).await;
        let error = store.put(&queue, &[item("work", None)]).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
        assert!(error.to_string().contains(right), "{error}");
        assert!(everything(&server, "").is_empty());
        let diagnosis = store.diagnose(ttl(30_000)).await.unwrap();
        let told =
            |f: &lease_core::Finding| f.severity == Severity::Critical && f.what.contains(right);
        assert!(
            diagnosis.findings.iter().any(told),
            "{right}: {diagnosis:?}"
        );
        server
            .command(&["ACL", "SETUSER", account::NAME, right])
            .unwrap();
    }
    let store = as_user(&server).await;
    put(&store, &queue, &[item("work", None)]).await;
    let diagnosis = store.diagnose(ttl(30_000)).await.unwrap();
    let right =
        |f: &&lease_core::Finding| f.what.contains("right") && f.severity >= Severity::Critical;
    assert_eq!(diagnosis.findings.iter().find(right), None);
    // There is a queue, and it has one.
    let of_births = |f: &&lease_core::Finding| f.what.starts_with("birth marker");
    let told = diagnosis.findings.iter().filter(of_births);
    let told: Vec<_> = told.map(|f| f.what.as_str()).collect();
    assert_eq!(told, ["birth markers: each queue has one of its own"]);
}

#[tokio::test]
async fn a_full_memory_takes_nothing_in_and_lets_work_be_done() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    let all: Vec<_> = (0..50).map(|_| item(&"x".repeat(10_000), None)).collect();
    put(&store, &queue, &all).await;
    let claims = items(store.claim(&queue, &next(40, 60_000)).await.unwrap());
    server.config_set("maxmemory", "100000").unwrap();
    let before = everything(&server, "");
    let error = store.put(&queue, &[item("work", None)]).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    let error = store.claim(&queue, &next(1, 60_000)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    assert_unchanged(&server, "", &before);
    let settles = claims.into_iter().map(|c| (c.claim, Settle::Complete));
    let settled = store.settle(&queue, &settles.collect::<Vec<_>>()).await;
    assert!(
        settled.iter().all(|s| matches!(s, Ok(Settled::Done))),
        "{settled:?}"
    );
    assert_eq!(store.depth(&queue).await.unwrap().ready, 10);
}

#[tokio::test]
async fn options_that_queues_do_not_have_are_refused() {
    for url in [
        "queue+redis://h?quarantine_ms=1000",
        "redis://h?wait_replicas=1&wait_timeout_ms=100",
    ] {
        let options = RedisQueues::options(url).unwrap();
        let error = RedisQueues::open_lazily(options).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::InvalidInput);
    }
    let options = RedisQueues::options("queue+redis://h?durable=true").unwrap();
    let store = RedisQueues::open_lazily(options).unwrap();
    assert_eq!(store.capabilities().guarantees.store, "queue+redis");
}
