//! What others publish, answers that are lost, callers that go, and logs that nobody
//! uses.

use std::sync::Arc;
use std::time::Duration;

use lease_conformance::proxy::{FaultProxy, On, Then};
use lease_conformance::servers::nats::NatsServer;
use lease_core::StoreErrorKind;
use tokio::time::Instant;

use super::snapshots::{behind, flood, last};
use super::toy::{Toy, add};
use super::{Client, now, queue, soon, subject};
use crate::nats::NatsOptions;
use crate::nats::log::logs::Logs;
use crate::nats::log::stream;

/// That a message is refused that this version has not written, by all and for good.
async fn is_refused(payload: &str, because: &str) {
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let one = Client::new(&url).await;
    one.log().submit(add(1), soon()).await.unwrap();
    server.request(&subject(), payload).unwrap();
    let late = Client::new(&url).await;
    for client in [one, late] {
        let error = loop {
            match client.log().submit(add(2), soon()).await {
                // It was faster than the message of the others; or in the log behind it.
                Ok(_) => {}
                Err(error) if error.is_unknown_outcome() => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error:?}");
        assert!(error.to_string().contains(because), "{error}");
        let read = client.log().read(|_| (), soon()).await.unwrap_err();
        assert_eq!(read.kind(), StoreErrorKind::Refusing, "{read:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_message_makes_the_queue_refuse_and_names_itself() {
    Box::pin(is_refused("hello", "is not one of leases")).await;
    Box::pin(is_refused(
        r#"{"leases":1,"nonce":"x"}"#,
        "is not one of leases",
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_a_newer_version_asks_for_that_version() {
    Box::pin(is_refused(
        "{\"leases\":2,\"more\":true}\nbytes",
        "newer version",
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_whose_acknowledgement_is_lost_has_its_effect_once() {
    let server = NatsServer::builder().start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let client = Client::new(&server.url().through(proxy.address()).to_string()).await;
    let log = client.log();
    log.submit(add(0), soon()).await.unwrap();
    for number in 1..6 {
        let lost = proxy.lose_reply(Then::Cut, On::Any);
        let place = log.submit(add(number), soon()).await.unwrap();
        assert_eq!(place as u64, number);
        lost.happened().await.unwrap();
    }
    let seen = now(&client).await;
    assert_eq!(seen.applied, (0..6).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_does_not_come_by_is_unknown_and_one_that_was_not_sent_is_not() {
    let server = NatsServer::builder().start().unwrap();
    let client = Client::new(&server.url().to_string()).await;
    let log = client.log();
    log.submit(add(0), soon()).await.unwrap();
    server.pause().unwrap();
    let short = Instant::now() + Duration::from_millis(300);
    // As many as may be under way, each for itself; and one behind them.
    let under_way = async |messages| {
        while log.shared.state().flights.len() < messages {
            tokio::task::yield_now().await;
        }
    };
    let (one, other, waits) = tokio::join!(
        log.submit(add(1), short),
        async {
            under_way(1).await;
            log.submit(add(2), short).await
        },
        async {
            under_way(2).await;
            log.submit(add(3), short).await
        }
    );
    for sent in [one, other] {
        assert_eq!(sent.unwrap_err().kind(), StoreErrorKind::UnknownOutcome);
    }
    assert_eq!(waits.unwrap_err().kind(), StoreErrorKind::Unavailable);
    // Dropped in the middle: nobody else is harmed.
    let dropped = tokio::time::timeout(Duration::from_millis(50), log.submit(add(4), soon()));
    assert!(dropped.await.is_err());
    server.resume().unwrap();
    log.submit(add(5), soon()).await.unwrap();
    let mut seen = now(&client).await.applied;
    seen.retain(|number| ![1, 2].contains(number));
    assert_eq!(seen, [0, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_removed_is_a_refusal_and_no_loss_of_words() {
    let server = NatsServer::builder().start().unwrap();
    let client = Client::new(&server.url().to_string()).await;
    let log = client.log();
    log.submit(add(0), soon()).await.unwrap();
    server
        .request("$JS.API.STREAM.DELETE.leases-queues", "")
        .unwrap();
    let error = loop {
        let error = log.submit(add(1), soon()).await.unwrap_err();
        if !error.is_transient() && !error.is_unknown_outcome() {
            break error;
        }
    };
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error:?}");
    assert!(error.to_string().contains("not there any more"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_uses_is_followed_no_more_unless_somebody_holds_it() {
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let options = NatsOptions::from_url(&url).unwrap();
    let store = options.clone().open().await.unwrap();
    let (logs, snaps) = stream::ready(store.link(), &options).await.unwrap();
    let logs = Logs::<Toy>::new(logs, snaps, options.names.clone());
    let logs = logs.idle(Duration::from_millis(200));
    let held = logs.of(&queue());
    held.submit(add(0), soon()).await.unwrap();
    let weak = Arc::downgrade(&held);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(Arc::ptr_eq(&held, &logs.of(&queue())));
    drop(held);
    let give_up = soon();
    while weak.upgrade().is_some() {
        assert!(Instant::now() < give_up);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let seen = logs.of(&queue()).read(Clone::clone, soon()).await.unwrap();
    assert_eq!(seen.applied, [0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_in_no_error() {
    let server = NatsServer::builder().closed().start().unwrap();
    let url = server.url();
    let (_, password) = url.login().unwrap();
    let password = password.to_owned();
    let client = Client::new(&url.to_string()).await;
    client.log().submit(add(0), soon()).await.unwrap();
    server.kill().unwrap();
    let short = Instant::now() + Duration::from_millis(300);
    let error = client.log().submit(add(1), short).await.unwrap_err();
    let words = format!("{error} {error:?} {:?}", client.log());
    assert!(!words.contains(&password), "{words}");
}

/// A server, and how a user comes who gets no consumer: as everybody does for some seconds
/// once the server is lost that led JetStream.
fn without_consumers() -> (NatsServer, String) {
    let users = "authorization { users: [ { user: all, password: all }, { user: narrow, \
                 password: narrow, permissions: { publish: { deny: \"$JS.API.CONSUMER.>\" } } } ] }";
    let server = NatsServer::builder().config(users);
    let server = server.config("no_auth_user: all").start().unwrap();
    let narrow = server.url().user("narrow", "narrow").to_string();
    (server, narrow)
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_gets_no_consumer_reads_on_to_the_end_although_nobody_asks() {
    const MESSAGES: u64 = 3000;
    let (server, narrow) = without_consumers();
    let client = Client::new(&server.url().to_string()).await;
    client.log().submit(add(0), soon()).await.unwrap();
    let narrow = Client::new(&narrow).await;
    assert_eq!(now(&narrow).await.applied, [0]);
    flood(&client, last(&client), MESSAGES).await;
    // It looks every two seconds.
    let log = narrow.log();
    let mut changes = log.changes();
    let all = changes.wait_for(|_| behind(&narrow) > MESSAGES);
    let all = tokio::time::timeout(Duration::from_secs(10), all).await;
    assert!(all.is_ok(), "{}", behind(&narrow));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_late_and_gets_no_consumer_does_not_wait_for_one() {
    let (server, narrow) = without_consumers();
    let client = Client::new(&server.url().to_string()).await;
    for number in 0..100 {
        client.log().submit(add(number), soon()).await.unwrap();
    }
    let narrow = Client::new(&narrow).await;
    let start = Instant::now();
    assert_eq!(now(&narrow).await, now(&client).await);
    // It would be given up after two.
    assert!(start.elapsed() < Duration::from_secs(2));
}
