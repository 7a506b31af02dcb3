//! The end of a log is lost, as after a loss of power or from a backup.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use lease_conformance::proxy::{FaultProxy, On};
use lease_conformance::servers::nats::NatsServer;
use tokio::time::Instant;

use super::toy::{Add, add};
use super::{Client, now, soon, subject};
use crate::nats::link::{Set, Which};

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.unwrap().success());
}

/// Submits until it is told that it is done.
async fn done(client: &Client, number: u64) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while let Err(error) = client.log().submit(add(number), soon()).await {
        assert!(
            error.is_transient() && !error.is_unknown_outcome(),
            "{error:?}"
        );
        assert!(Instant::now() < give_up, "{error:?}");
    }
}

/// A server whose data go back by ten operations; and then others write some.
async fn goes_back(others: u64) {
    let server = NatsServer::builder().start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let data = server.folder().join("data");
    let backup = server.folder().join("backup");
    let far = Client::new(&server.url().through(proxy.address()).to_string()).await;
    for number in 0..10 {
        done(&far, number).await;
    }
    server.stop().unwrap();
    copy(&data, &backup);
    server.start().unwrap();
    for number in 10..20 {
        done(&far, number).await;
    }
    assert_eq!(now(&far).await.applied.len(), 20);
    let history = far.log().history();
    // It is away meanwhile.
    proxy.refuse();
    server.stop().unwrap();
    copy(&backup, &data);
    server.start().unwrap();
    let near = Client::new(&server.url().to_string()).await;
    for number in 0..others {
        done(&near, 100 + number).await;
    }
    let mut changes = far.log().changes();
    proxy.heal().unwrap();
    let anew = changes.wait_for(|_| far.log().history() != history);
    tokio::time::timeout(Duration::from_secs(30), anew)
        .await
        .unwrap()
        .unwrap();
    done(&far, 200).await;
    let expected: Vec<_> = (0..10).chain(100..100 + others).chain([200]).collect();
    assert_eq!(now(&far).await.applied, expected);
    assert_eq!(now(&near).await.applied, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_notices_that_the_end_of_the_log_was_lost() {
    goes_back(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_notices_that_the_end_of_the_log_was_written_anew() {
    goes_back(25).await;
}

/// Whoever did not see it come by sends the same bytes again, and they are stored where
/// they were before, at another time: what follows from that time is another state.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_notices_that_the_end_of_the_log_was_written_anew_with_the_same_message() {
    let server = NatsServer::builder().start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let data = server.folder().join("data");
    let backup = server.folder().join("backup");
    let far = Client::new(&server.url().through(proxy.address()).to_string()).await;
    done(&far, 0).await;
    server.stop().unwrap();
    copy(&data, &backup);
    server.start().unwrap();
    done(&far, 1).await;
    let (log, subject) = (far.log(), subject());
    let link = &log.shared.link;
    let last = link.read(&subject, Which::Last, link.deadline());
    let last = last.await.unwrap().unwrap();
    let history = far.log().history();
    proxy.refuse();
    server.stop().unwrap();
    copy(&backup, &data);
    server.start().unwrap();
    let near = Client::new(&server.url().to_string()).await;
    let log = near.log();
    let link = &log.shared.link;
    let set = link.set(&subject, None, last.payload, link.deadline());
    assert!(matches!(set.await, Set::Done(revision) if revision == last.revision));
    let mut changes = far.log().changes();
    proxy.heal().unwrap();
    let anew = changes.wait_for(|_| far.log().history() != history);
    let anew = tokio::time::timeout(Duration::from_secs(30), anew).await;
    anew.map(drop).unwrap();
    assert_eq!(now(&far).await, now(&near).await);
}

/// The same of one that comes late, while a consumer brings it the log: behind a connection
/// that ended, that consumer goes on with whatever stands there.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_late_notices_that_what_it_is_brought_is_another_history() {
    const MESSAGES: u64 = 80;
    // Read one by one are the first of them, and what stands at the end.
    const READ: u64 = 30;
    let large = |number| Add {
        number,
        body: Bytes::from(vec![b'x'; 16 << 10]),
    };
    let [server, other] = [(); 2].map(|()| NatsServer::builder().start().unwrap());
    let near = Client::new(&server.url().to_string()).await;
    for number in 0..10 {
        near.log().submit(large(number), soon()).await.unwrap();
    }
    // As of now are the data of the other one.
    server.stop().unwrap();
    other.stop().unwrap();
    copy(&server.folder().join("data"), &other.folder().join("data"));
    server.start().unwrap();
    other.start().unwrap();
    let behind = Client::new(&other.url().to_string()).await;
    for number in 10..MESSAGES {
        near.log().submit(large(number), soon()).await.unwrap();
        let number = 1000 + number;
        behind.log().submit(large(number), soon()).await.unwrap();
    }
    let proxy = FaultProxy::start(server.address()).unwrap();
    let far = Client::new(&server.url().through(proxy.address()).to_string()).await;
    proxy.lead_to(other.address());
    let log = far.log();
    let read = READ * (16 << 10) * 4 / 3;
    let cut = proxy.cut_reply_after(read, On::Any);
    let cut = tokio::time::timeout(Duration::from_secs(30), cut.happened());
    cut.await.unwrap().unwrap();
    assert_eq!(now(&far).await, now(&behind).await);
    drop(log);
}

/// What was decided in one history is not sent in another.
#[tokio::test(flavor = "multi_thread")]
async fn an_operation_of_another_history_is_not_sent() {
    let server = NatsServer::builder().start().unwrap();
    let client = Client::new(&server.url().to_string()).await;
    let log = client.log();
    log.submit(add(0), soon()).await.unwrap();
    let history = log.history();
    log.submit_in(history, add(1), soon()).await.unwrap();
    let refused = log.submit_in(history + 1, add(2), soon()).await;
    assert!(refused.unwrap_err().is_transient());
    assert_eq!(now(&client).await.applied, [0, 1]);
}
