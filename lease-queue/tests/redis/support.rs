//! What the tests share.

use std::time::{Duration, Instant};

use bytes::Bytes;
use lease_conformance::servers::redis::{Persistence, RedisServer, Reply};
use lease_core::{Key, Label, Owner, StoreError, TokenRule, Ttl};
use lease_queue::redis::RedisQueues;
use lease_queue::{
    Added, Answer, ClaimRequest, Claimed, ItemId, NewItem, QueueName, QueueStore, Settle, What,
};

/// Far more than anything takes that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn durable() -> RedisServer {
    let server = RedisServer::builder().persistence(Persistence::AofAlways);
    server.start().unwrap()
}

pub(crate) async fn queues(server: &RedisServer) -> RedisQueues {
    let options = RedisQueues::options(&server.url().to_string()).unwrap();
    RedisQueues::open(options).await.unwrap()
}

pub(crate) fn name(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// What the names of a queue without odd characters begin with.
pub(crate) fn base(queue: &str) -> String {
    format!("leases:queue:{{{queue}}}")
}

pub(crate) fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).unwrap()
}

pub(crate) fn item(body: &str, group: Option<&str>) -> NewItem {
    NewItem {
        id: ItemId::random().unwrap(),
        body: Bytes::from(body.to_owned()),
        group: group.map(|group| Key::new(group).unwrap()),
        dedup: None,
        delay: Duration::ZERO,
    }
}

pub(crate) fn next(max: usize, ms: u64) -> ClaimRequest {
    request(What::Next { max }, ms)
}

pub(crate) fn of_key(key: &str, ms: u64) -> ClaimRequest {
    let key = Key::new(key).unwrap();
    let rule = TokenRule::NEXT;
    let waits = None;
    request(What::Key { key, rule, waits }, ms)
}

fn request(what: What, ms: u64) -> ClaimRequest {
    ClaimRequest {
        owner: Owner::random().unwrap(),
        ttl: ttl(ms),
        label: Label::new("test").unwrap(),
        what,
    }
}

pub(crate) async fn put(store: &RedisQueues, queue: &QueueName, items: &[NewItem]) {
    let added = store.put(queue, items).await.unwrap();
    assert!(added.iter().all(|added| *added == Added::Added));
}

#[track_caller]
pub(crate) fn items(answer: Answer) -> Vec<Claimed> {
    match answer {
        Answer::Claimed { items, .. } => items,
        other => panic!("nothing was claimed: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn one(answer: Answer) -> Claimed {
    let mut items = items(answer);
    assert_eq!(items.len(), 1);
    items.remove(0)
}

pub(crate) fn retry() -> Settle {
    Settle::Retry {
        delay: Duration::ZERO,
        counts: true,
        error: None,
    }
}

/// Asks again until there is an answer, as callers do after a transient error. What
/// was answered before it may have taken effect.
pub(crate) async fn persist<T, F>(mut call: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    let started = Instant::now();
    loop {
        match tokio::time::timeout(PATIENCE, call()).await.unwrap() {
            Ok(answer) => return answer,
            Err(error) => assert!(
                error.is_transient() && started.elapsed() < PATIENCE,
                "{error}"
            ),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Everything at the server under these names, as it stands.
pub(crate) fn everything(server: &RedisServer, base: &str) -> Vec<(String, Reply)> {
    let names = server.command(&["KEYS", "*"]).unwrap();
    let names = names.list().unwrap().iter();
    let names = names.map(|name| name.text().unwrap().to_owned());
    let mut names: Vec<_> = names.filter(|name| name.starts_with(base)).collect();
    names.sort_unstable();
    let value = |name: String| {
        // The order of a set or a hash is nobody's, and may change by itself.
        let kind = server.command(&["TYPE", &name]).unwrap();
        let value = match kind.text() {
            Some("set") => sorted(&server.command(&["SMEMBERS", &name]).unwrap(), 1),
            Some("hash") => sorted(&server.command(&["HGETALL", &name]).unwrap(), 2),
            _ => server.command(&["DUMP", &name]).unwrap(),
        };
        (name, value)
    };
    names.into_iter().map(value).collect()
}

/// Compares with what stood there before, without showing all of it.
#[track_caller]
pub(crate) fn assert_unchanged(server: &RedisServer, base: &str, before: &[(String, Reply)]) {
    let now = everything(server, base);
    let names = |all: &[(String, Reply)]| all.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>();
    assert_eq!(names(&now), names(before));
    let changed = now.iter().zip(before).filter(|(now, before)| now != before);
    let changed: Vec<_> = changed.map(|((name, _), _)| name).collect();
    let changed: Vec<_> = changed
        .iter()
        .filter(|name| !name.contains("}:o:"))
        .collect();
    assert!(changed.is_empty(), "{changed:?}");
}

fn sorted(list: &Reply, each: usize) -> Reply {
    let mut all: Vec<_> = list
        .list()
        .unwrap()
        .chunks(each)
        .map(<[_]>::to_vec)
        .collect();
    all.sort_by_key(|one| format!("{one:?}"));
    Reply::List(all.concat())
}
