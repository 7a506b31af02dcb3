//! What a log does where nothing fails.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lease_conformance::servers::nats::NatsServer;
use lease_core::StoreErrorKind;
use tokio::time::Instant;

use super::toy::{Add, add};
use super::{Client, soon};
use crate::name::QueueName;

#[tokio::test(flavor = "multi_thread")]
async fn operations_are_answered_in_one_order_for_all_clients() {
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let (one, two) = (Client::new(&url).await, Client::new(&url).await);
    for number in 0..10 {
        let client = if number % 2 == 0 { &one } else { &two };
        let place = client.log().submit(add(number), soon()).await.unwrap();
        assert_eq!(place as u64, number);
    }
    let seen = two.log().read(Clone::clone, soon()).await.unwrap();
    assert_eq!(seen.applied, (0..10).collect::<Vec<_>>());
    assert_eq!(one.log().read(Clone::clone, soon()).await.unwrap(), seen);
    // And for one that comes late.
    let late = Client::new(&url).await.log();
    assert_eq!(late.read(Clone::clone, soon()).await.unwrap(), seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_lies_scattered_in_the_stream_is_read_in_few_requests() {
    // So many that a busy server has made a consumer before a quarter of them is read.
    const EACH: u64 = 1500;
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let busy = Client::new(&url).await;
    let other = busy.logs.of(&QueueName::new("other").unwrap());
    for number in 0..EACH {
        busy.log().submit(add(number), soon()).await.unwrap();
        other.submit(add(number), soon()).await.unwrap();
    }
    let late = Client::new(&url).await;
    let statistics = late.link().context.client().statistics();
    let sent = || statistics.out_messages.load(Ordering::Relaxed);
    let before = sent();
    let seen = late.log().read(Clone::clone, soon()).await.unwrap();
    assert_eq!(seen.applied, (0..EACH).collect::<Vec<_>>());
    let sent = sent() - before;
    assert!(sent < EACH / 4, "{sent} requests for {EACH} messages");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_no_message_takes_is_refused_and_harms_nobody() {
    let server = NatsServer::builder()
        .config("max_payload: 65536")
        .start()
        .unwrap();
    let log = Client::new(&server.url().to_string()).await.log();
    let large = |bytes: usize| Add {
        number: 1,
        body: vec![7; bytes].into(),
    };
    let error = log.submit(large(65_536), soon()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::InvalidInput);
    assert!(error.to_string().contains("max_payload"), "{error}");
    assert_eq!(log.submit(large(64_000), soon()).await.unwrap(), 0);
    assert_eq!(log.submit(add(2), soon()).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_of_many_tasks_go_out_together() {
    let server = NatsServer::builder().start().unwrap();
    let log = Client::new(&server.url().to_string()).await.log();
    log.submit(add(0), soon()).await.unwrap();
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..64 {
        let log = std::sync::Arc::clone(&log);
        tasks.spawn(async move {
            for number in 0..50 {
                log.submit(add(task * 1000 + number), soon()).await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    println!("3200 operations in {:?}", began.elapsed());
    let messages = server
        .request("$JS.API.STREAM.INFO.leases-queues", "")
        .unwrap();
    let messages: serde_json::Value = serde_json::from_str(&messages).unwrap();
    let messages = messages
        .pointer("/state/messages")
        .unwrap()
        .as_u64()
        .unwrap();
    assert!(messages < 1600, "{messages} messages for 3201 operations");
    let applied = log.peek(|toy| toy.applied.len());
    assert_eq!(applied, 3201);
    assert!(began.elapsed() < Duration::from_secs(20));
}
