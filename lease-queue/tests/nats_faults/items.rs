//! Items where servers are killed, logs are spoiled, and clients come late.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use lease_conformance::servers::nats::NatsServer;
use lease_conformance::servers::nats::cluster::NatsCluster;
use lease_core::{Key, Label, Owner, StoreError, StoreErrorKind, Ttl};
use lease_queue::nats::{NatsOptions, NatsStore};
use lease_queue::{
    Added, Answer, ClaimRequest, Claimed, ItemId, NewItem, Queue, QueueInput, QueueName,
    QueueStore, Settle, Settled, What,
};
use tokio::time::Instant;

const LONG: Duration = Duration::from_secs(300);

async fn open(url: &str) -> NatsStore {
    NatsOptions::from_url(url).unwrap().open().await.unwrap()
}

fn jobs() -> QueueName {
    QueueName::new("jobs").unwrap()
}

fn item(body: &str, group: Option<&str>) -> NewItem {
    NewItem {
        id: ItemId::random().unwrap(),
        body: Bytes::copy_from_slice(body.as_bytes()),
        group: group.map(|group| Key::new(group).unwrap()),
        dedup: None,
        delay: Duration::ZERO,
    }
}

/// Asks again after what may pass.
async fn persist<T, F>(mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    let give_up = Instant::now() + Duration::from_secs(40);
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(e) => {
                assert!(e.is_transient(), "{e:?}");
                assert!(Instant::now() < give_up, "{e:?}");
            }
        }
    }
}

/// One claim for a new owner, if there is something to claim. An owner whose claim may
/// have taken effect is given up.
async fn claim(store: &NatsStore, ttl: Duration) -> Option<Claimed> {
    loop {
        let request = ClaimRequest {
            owner: Owner::random().unwrap(),
            ttl: Ttl::new(ttl).unwrap(),
            label: Label::EMPTY,
            what: What::Next { max: 1 },
        };
        match store.claim(&jobs(), &request).await {
            Ok(Answer::Claimed { mut items, .. }) => return items.pop(),
            Ok(Answer::Nothing { .. }) => return None,
            Ok(other) => panic!("{other:?}"),
            Err(e) => {
                assert!(e.is_transient(), "{e:?}");
                persist(|| async { store.abandon(&jobs(), None, request.owner).await }).await;
            }
        }
    }
}

async fn settle(store: &NatsStore, claimed: &Claimed, settle: Settle) -> Settled {
    let claims = [(claimed.claim.clone(), settle)];
    persist(|| async { store.settle(&jobs(), &claims).await.pop().unwrap() }).await
}

fn back() -> Settle {
    Settle::Retry {
        delay: Duration::ZERO,
        counts: false,
        error: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn items_claims_and_rising_tokens_outlive_kill_9() {
    let server = NatsServer::builder().start().unwrap();
    let store = open(&server.url().to_string()).await;
    let items = [item("a", None), item("b", Some("g")), item("c", Some("g"))];
    store.put(&jobs(), &items).await.unwrap();
    let alone = claim(&store, LONG).await.unwrap();
    let mut grouped = claim(&store, LONG).await.unwrap();
    for _ in 0..3 {
        assert_eq!(settle(&store, &grouped, back()).await, Settled::Done);
        server.kill().unwrap();
        server.start().unwrap();
        // Nothing of it is lost, nor given to somebody else.
        let again = claim(&store, LONG).await.unwrap();
        assert_eq!(again.body, grouped.body);
        assert!(again.claim.token > grouped.claim.token);
        assert_eq!(claim(&store, LONG).await, None);
        let extend = Settle::Extend(Ttl::new(LONG).unwrap());
        assert_eq!(settle(&store, &alone, extend).await, Settled::Done);
        let added = persist(|| async { store.put(&jobs(), &items).await }).await;
        assert_eq!(added, [Added::Added; 3]);
        grouped = again;
    }
    let depth = persist(|| async { store.depth(&jobs()).await }).await;
    assert_eq!((depth.ready, depth.in_flight), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crashed_workers_item_is_free_within_twice_its_ttl_and_not_before_its_end() {
    const TTL: Duration = Duration::from_millis(400);
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let (crashed, early) = (open(&url).await, open(&url).await);
    // It watches from the beginning.
    early.depth(&jobs()).await.unwrap();
    crashed.put(&jobs(), &[item("a", None)]).await.unwrap();
    let sent = Instant::now();
    claim(&crashed, TTL).await.unwrap();
    let granted = Instant::now();
    drop(crashed);
    let late = open(&url).await;
    let looked = Instant::now();
    let patience = Duration::from_secs(5);
    let again = loop {
        if let Some(again) = claim(&early, TTL).await {
            break again;
        }
        assert!(granted.elapsed() < TTL + patience);
    };
    assert!(sent.elapsed() >= TTL);
    assert_eq!(again.attempt, 2);
    drop(early);
    // Who comes later watches that one from when it has seen it.
    let again = loop {
        if let Some(again) = claim(&late, TTL).await {
            break again;
        }
        assert!(looked.elapsed() < 3 * TTL + patience);
    };
    assert_eq!(again.attempt, 3);
}

/// More messages than a snapshot is due after.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_late_sees_what_the_others_see() {
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let store = open(&url).await;
    for n in 0..450 {
        let group = (n % 3 == 0).then_some("g");
        store
            .put(&jobs(), &[item(&n.to_string(), group)])
            .await
            .unwrap();
        let claimed = claim(&store, LONG).await.unwrap();
        let ends = match n % 50 {
            0 => Settle::Bury {
                reason: "poison".into(),
            },
            _ => Settle::Complete,
        };
        if n % 45 != 1 {
            assert_eq!(settle(&store, &claimed, ends).await, Settled::Done);
        }
    }
    let late = open(&url).await;
    let (a, b) = (store.depth(&jobs()).await, late.depth(&jobs()).await);
    let (mut a, mut b) = (a.unwrap(), b.unwrap());
    (a.oldest, b.oldest) = (None, None);
    assert_eq!(a, b);
    for dead in [false, true] {
        let ids = |store: &NatsStore| {
            let items = store.items(&jobs(), dead);
            items
                .map_ok(|state| (state.id, state.attempts))
                .try_collect()
        };
        let (here, there): (Vec<_>, Vec<_>) =
            (ids(&store).await.unwrap(), ids(&late).await.unwrap());
        assert_eq!(here, there);
        assert!(!here.is_empty());
    }
}

#[tokio::test]
async fn a_put_over_the_limit_is_told_and_many_are_put_in_parts() {
    let server = NatsServer::builder().start().unwrap();
    let store = Arc::new(open(&server.url().to_string()).await);
    let can = store.capabilities();
    assert!(can.items && can.groups && can.delay);
    assert_eq!(can.max_body, lease_queue::MAX_BODY_BYTES);
    let half = || NewItem {
        body: Bytes::from(vec![0xff; can.max_put / 2 + 1]),
        ..item("", None)
    };
    let error = store.put(&jobs(), &[half(), half()]).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::InvalidInput);
    let source = std::error::Error::source(&error).unwrap();
    let told = matches!(source.downcast_ref(), Some(QueueInput::Bodies { max, .. }) if *max == can.max_put);
    assert!(told, "{error}");
    assert_eq!(store.depth(&jobs()).await.unwrap().ready, 0);
    let queue = Queue::raw_builder(store, "jobs").build();
    let queue = queue.unwrap();
    let bodies: Vec<Bytes> = (0..5).map(|_| half().body).collect();
    assert_eq!(queue.put_many(&bodies).await.unwrap().len(), 5);
    assert_eq!(queue.depth().await.unwrap().ready, 5);
}

/// What is not ours is never passed over in silence: clients would differ.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_message_in_a_log_is_a_refusal_of_that_queue_alone() {
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let store = open(&url).await;
    store.put(&jobs(), &[item("a", None)]).await.unwrap();
    let hex: String = "jobs".bytes().map(|b| format!("{b:02x}")).collect();
    let log = format!("leases.log.{hex}");
    server.request(&log, "by hand").unwrap();
    for store in [store, open(&url).await] {
        let error = loop {
            match store.put(&jobs(), &[item("b", None)]).await {
                // It was faster than the message by hand, or is in the log behind it.
                Ok(_) => {}
                Err(error) if error.is_unknown_outcome() => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error:?}");
        assert!(error.to_string().contains(&log), "{error}");
        let listed: Vec<_> = store.items(&jobs(), false).collect().await;
        assert!(matches!(listed.as_slice(), [Err(_)]), "{listed:?}");
        let other = QueueName::new("other").unwrap();
        store.put(&other, &[item("c", None)]).await.unwrap();
        let key = Key::new("k").unwrap();
        store.inspect(&jobs(), &key).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn items_go_on_without_the_server_that_led_their_log() {
    let cluster = NatsCluster::start_new().unwrap();
    let url = cluster.url().to_string();
    let (one, two) = (open(&url).await, open(&url).await);
    let items: Vec<_> = (0..6).map(|n| item(&n.to_string(), Some("g"))).collect();
    one.put(&jobs(), &items).await.unwrap();
    let mut last = None;
    for n in 0..6 {
        let store = if n % 2 == 0 { &one } else { &two };
        let claimed = claim(store, LONG).await.unwrap();
        assert_eq!(claimed.body, n.to_string());
        assert!(Some(claimed.claim.token) > last);
        last = Some(claimed.claim.token);
        if n == 2 {
            let leader = cluster.stream_leader("leases-queues").unwrap();
            cluster.node(leader).kill().unwrap();
        }
        let settled = settle(store, &claimed, Settle::Complete).await;
        assert!(
            matches!(settled, Settled::Done | Settled::Before),
            "{settled:?}"
        );
    }
    let depth = persist(|| async { two.depth(&jobs()).await }).await;
    assert_eq!((depth.ready, depth.in_flight, depth.dead), (0, 0, 0));
}
