//! Snapshots: for those who come late, and against a log without an end.

use std::time::Duration;

use bytes::Bytes;
use lease_conformance::servers::nats::NatsServer;
use lease_core::StoreErrorKind;
use serde_json::Value;
use tokio::time::Instant;

use super::toy::{Toy, add};
use super::{Client, now, soon, subject};
use crate::nats::log::message::{self, Encoded, Mark, Nonce};
use crate::nats::log::replica::{KEPT, LOG_MAX, STOP, WINDOW};
use crate::nats::names::Names;

/// Stores messages of nobody, each with an operation, all based on the first one.
pub(super) async fn flood(client: &Client, base: Mark, messages: u64) {
    let nats = client.link().context.client();
    for _ in 0..messages {
        let op = Encoded::of::<Toy>(&add(u64::MAX)).unwrap();
        let nonce = Nonce::random().unwrap();
        let payload = message::encode(nonce, base, None, &[op]).unwrap();
        nats.publish(subject(), payload).await.unwrap();
    }
    nats.flush().await.unwrap();
}

/// What was applied last.
pub(super) fn last(client: &Client) -> Mark {
    client.log().shared.state().replica.last
}

pub(super) fn behind(client: &Client) -> u64 {
    client.log().shared.state().replica.behind()
}

fn messages(server: &NatsServer, stream: &str) -> u64 {
    let info = server.request(&format!("$JS.API.STREAM.INFO.{stream}"), "");
    let info: Value = serde_json::from_str(&info.unwrap()).unwrap();
    info.pointer("/state/messages").unwrap().as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_full_goes_on_behind_a_snapshot_which_a_late_client_finds() {
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let client = Client::new(&url).await;
    client.log().submit(add(0), soon()).await.unwrap();
    flood(&client, last(&client), LOG_MAX + 100).await;
    // Only those that come no later than the memory reaches have an effect.
    let place = client.log().submit(add(1), soon()).await.unwrap();
    assert_eq!(place, 1 + WINDOW);
    assert!(behind(&client) < LOG_MAX);
    let late = Client::new(&url).await;
    assert_eq!(now(&late).await, now(&client).await);
    assert!(behind(&late) < LOG_MAX);
    // And once the beginning is gone.
    flood(&client, last(&client), KEPT - LOG_MAX - 50).await;
    client.log().submit(add(2), soon()).await.unwrap();
    flood(&client, last(&client), KEPT / 4).await;
    client.log().submit(add(3), soon()).await.unwrap();
    assert_eq!(messages(&server, "leases-queues"), KEPT);
    let late = Client::new(&url).await;
    assert_eq!(now(&late).await, now(&client).await);
}

/// Time for several tries.
fn short() -> Instant {
    Instant::now() + Duration::from_secs(2)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_more_is_sent_where_no_snapshot_can_be_written() {
    let server = NatsServer::builder().start().unwrap();
    let client = Client::new(&server.url().to_string()).await;
    client.log().submit(add(0), soon()).await.unwrap();
    server
        .request("$JS.API.STREAM.DELETE.leases-snaps", "")
        .unwrap();
    flood(&client, last(&client), LOG_MAX + 1).await;
    let error = client.log().submit(add(1), short()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
    flood(&client, last(&client), STOP - LOG_MAX).await;
    let give_up = soon();
    while behind(&client) < STOP + 1 {
        assert!(Instant::now() < give_up);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let before = messages(&server, "leases-queues");
    let error = client.log().submit(add(1), short()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("snapshots"), "{error}");
    // So that nothing is dropped.
    assert_eq!(messages(&server, "leases-queues"), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_late_finds_a_whole_snapshot_beside_spoilt_ones() {
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let client = Client::new(&url).await;
    client.log().submit(add(0), soon()).await.unwrap();
    flood(&client, last(&client), LOG_MAX + 1).await;
    client.log().submit(add(1), soon()).await.unwrap();
    let seen = now(&client).await;
    let snap = Names::default().snap(&super::queue());
    let link = client.link();
    let nats = link.context.client();
    let publish = |subject: String, text: String| {
        let nats = nats.clone();
        async move { nats.publish(subject, Bytes::from(text)).await.unwrap() }
    };
    // Half of one: a chunk without its pointer.
    publish(format!("{snap}.0"), "half".into()).await;
    // Pointers to nothing, to what is not in the log, and no pointers at all.
    let here = last(&client);
    for (revision, chunk) in [(here.revision, 999), (here.revision + 10, 1)] {
        let text = format!(
            r#"{{"leases":1,"as_of":[{revision},"{}"],"bytes":3,"chunks":[{chunk}]}}"#,
            here.nonce
        );
        publish(format!("{snap}.p"), text).await;
    }
    publish(format!("{snap}.p"), "pointer".into()).await;
    nats.flush().await.unwrap();
    let late = Client::new(&url).await;
    assert_eq!(now(&late).await, seen);
    assert!(behind(&late) < LOG_MAX);
}
