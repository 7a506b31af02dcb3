//! Waiters of different clients, in line.

use std::sync::Arc;
use std::time::Duration;

use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::postgres::PostgresServer;
use lease_core::{Key, Label, RefusedReason, Severity, TokenRule, Ttl};
use lease_postgres::sqlx::{AssertSqlSafe, Row as _, query};
use lease_queue::postgres::PostgresQueues;
use lease_queue::{Answer, ClaimRequest, QueueStore as _, Settle, Settled, What};

use crate::in_line::{self, Client, WAITERS};
use crate::support::{LONG, connection, jobs, open, options, owner, run, server, settle};

async fn client(schema: &str, proxy: Option<&FaultProxy>) -> Client {
    let store = match proxy {
        Some(proxy) => {
            let url = server().url().through(proxy.address());
            let options = PostgresQueues::options(&format!("queue+{url}")).unwrap();
            PostgresQueues::open(options.schema(schema).unwrap()).await
        }
        None => PostgresQueues::open(options(schema)).await,
    };
    Client::new(Arc::new(store.unwrap()))
}

async fn clients(schema: &str, proxy: &FaultProxy, dead: &[usize]) -> Vec<Client> {
    let mut clients = Vec::new();
    for number in 0..WAITERS {
        let proxy = dead.contains(&number).then_some(proxy);
        clients.push(client(schema, proxy).await);
    }
    clients
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_clients_are_served_in_the_order_in_which_they_asked() {
    let proxy = FaultProxy::start(server().address()).unwrap();
    let clients = clients("in_order", &proxy, &[]).await;
    let holder = client("in_order", None).await;
    in_line::eight_clients_are_served_in_order(&clients, &holder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_died_in_line_cost_a_turn_each() {
    let proxy = FaultProxy::start(server().address()).unwrap();
    let dead = [0, 4];
    let clients = clients("dead_in_line", &proxy, &dead).await;
    let holder = client("dead_in_line", None).await;
    in_line::the_dead_cost_a_turn_each(&clients, dead, &holder, || proxy.black_hole()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_in_line_follows_a_holder_that_died() {
    let proxy = FaultProxy::start(server().address()).unwrap();
    let clients = clients("lapsed", &proxy, &[]).await;
    let holder = client("lapsed", Some(&proxy)).await;
    in_line::a_lapsed_holder_is_followed_by_the_first(&clients, &holder, || proxy.black_hole())
        .await;
}

fn asks(waits: Option<Duration>) -> ClaimRequest {
    ClaimRequest {
        owner: owner(),
        ttl: Ttl::new(LONG).unwrap(),
        label: Label::new("line").unwrap(),
        what: What::Key {
            key: Key::new("k").unwrap(),
            rule: TokenRule::NEXT,
            waits,
        },
    }
}

fn waits() -> ClaimRequest {
    asks(Some(Duration::from_secs(5)))
}

fn back() -> Settle {
    Settle::Retry {
        delay: Duration::ZERO,
        counts: false,
        error: None,
    }
}

async fn count(schema: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {schema}.lease_queue_waiters");
    let row = query(AssertSqlSafe(sql))
        .fetch_one(&mut connection().await)
        .await;
    row.unwrap().get(0)
}

/// A claim of the key that must succeed.
async fn granted(store: &PostgresQueues, request: &ClaimRequest) -> lease_queue::Claimed {
    match store.claim(&jobs(), request).await.unwrap() {
        Answer::Claimed { mut items, .. } => items.pop().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_line_is_lost_in_a_crash_and_waiters_take_new_places() {
    let server = PostgresServer::builder().start().unwrap();
    let store = PostgresQueues::open(crate::support::options_at(&server, "crashed"))
        .await
        .unwrap();
    let held = granted(&store, &asks(None)).await;
    let (first, second) = (waits(), waits());
    for request in [&first, &second] {
        let answer = store.claim(&jobs(), request).await.unwrap();
        assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
    }
    server.kill().unwrap();
    server.start().unwrap();
    let store = PostgresQueues::open(crate::support::options_at(&server, "crashed"))
        .await
        .unwrap();
    // The grant is kept, and nobody has a place.
    let answer = store.claim(&jobs(), &second).await.unwrap();
    assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
    assert_eq!(settle(&store, &held.claim, back()).await, Settled::Done);
    granted(&store, &second).await;
}

#[tokio::test]
async fn the_doctor_has_nothing_against_the_unlogged_table_of_waiters() {
    let store = open("unlogged").await;
    let diagnosis = store.diagnose(Ttl::new(LONG).unwrap()).await.unwrap();
    let found = diagnosis
        .findings
        .iter()
        .find(|f| f.what.starts_with("unlogged"));
    assert_eq!(found.unwrap().severity, Severity::Healthy, "{found:?}");
    let mut db = connection().await;
    run(
        &mut db,
        "ALTER TABLE unlogged.lease_queue_lanes SET UNLOGGED",
    )
    .await;
    let diagnosis = store.diagnose(Ttl::new(LONG).unwrap()).await.unwrap();
    let found = diagnosis
        .findings
        .iter()
        .find(|f| f.what.starts_with("unlogged"));
    let found = found.unwrap();
    assert_eq!(found.severity, Severity::Critical, "{found:?}");
    assert!(found.why.contains("every item, every grant"), "{found:?}");
}

#[tokio::test]
async fn nothing_is_left_of_a_line_that_nobody_is_in() {
    let store = open("nobody").await;
    let held = granted(&store, &asks(None)).await;
    let (first, second) = (waits(), waits());
    for request in [&first, &second] {
        store.claim(&jobs(), request).await.unwrap();
    }
    assert_eq!(count("nobody").await, 2);
    assert_eq!(settle(&store, &held.claim, back()).await, Settled::Done);
    let answer = store.claim(&jobs(), &second).await.unwrap();
    let in_line = matches!(
        answer,
        Answer::Refused(RefusedReason::InLine { ahead: 1, .. })
    );
    assert!(in_line, "{answer:?}");
    granted(&store, &first).await;
    let key = Key::new("k").unwrap();
    store
        .abandon(&jobs(), Some(&key), second.owner)
        .await
        .unwrap();
    assert_eq!(count("nobody").await, 0);
}

#[tokio::test]
async fn places_of_a_clock_that_stepped_back_keep_nobody_out() {
    let store = open("stepped").await;
    let held = granted(&store, &asks(None)).await;
    let first = waits();
    store.claim(&jobs(), &first).await.unwrap();
    let ahead = "UPDATE stepped.lease_queue_waiters SET until_us = until_us + 3600000000";
    run(&mut connection().await, ahead).await;
    assert_eq!(settle(&store, &held.claim, back()).await, Settled::Done);
    let held = granted(&store, &waits()).await;
    store.claim(&jobs(), &first).await.unwrap();
    assert_eq!(settle(&store, &held.claim, back()).await, Settled::Done);
    granted(&store, &first).await;
}
