//! Waiters of different clients, in line.

use std::sync::Arc;
use std::time::Duration;

use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::redis::RedisServer;
use lease_core::{RefusedReason, WAITER_TURN};
use lease_queue::redis::RedisQueues;
use lease_queue::{Answer, ClaimRequest, QueueStore as _, Settle, Settled, What};

use crate::in_line::{self, Client, WAITERS};
use crate::support::{base, durable, everything, name, of_key, one, queues};

async fn client(server: &RedisServer, proxy: Option<&FaultProxy>) -> Client {
    let url = match proxy {
        Some(proxy) => server.url().through(proxy.address()),
        None => server.url(),
    };
    let options = RedisQueues::options(&url.to_string()).unwrap();
    Client::new(Arc::new(RedisQueues::open(options).await.unwrap()))
}

async fn clients(server: &RedisServer, proxy: &FaultProxy, dead: &[usize]) -> Vec<Client> {
    let mut clients = Vec::new();
    for number in 0..WAITERS {
        let proxy = dead.contains(&number).then_some(proxy);
        clients.push(client(server, proxy).await);
    }
    clients
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_clients_are_served_in_the_order_in_which_they_asked() {
    let server = durable();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let clients = clients(&server, &proxy, &[]).await;
    let holder = client(&server, None).await;
    in_line::eight_clients_are_served_in_order(&clients, &holder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_died_in_line_cost_a_turn_each() {
    let server = durable();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let dead = [0, 4];
    let clients = clients(&server, &proxy, &dead).await;
    let holder = client(&server, None).await;
    in_line::the_dead_cost_a_turn_each(&clients, dead, &holder, || proxy.black_hole()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_in_line_follows_a_holder_that_died() {
    let server = durable();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let clients = clients(&server, &proxy, &[]).await;
    let holder = client(&server, Some(&proxy)).await;
    in_line::a_lapsed_holder_is_followed_by_the_first(&clients, &holder, || proxy.black_hole())
        .await;
}

/// As a waiter asks.
fn waits(key: &str) -> ClaimRequest {
    let mut request = of_key(key, 60_000);
    if let What::Key { waits, .. } = &mut request.what {
        *waits = Some(Duration::from_secs(5));
    }
    request
}

fn back() -> Settle {
    Settle::Retry {
        delay: Duration::ZERO,
        counts: false,
        error: None,
    }
}

#[tokio::test]
async fn a_line_is_in_no_log_and_a_restart_forgets_it() {
    let server = durable();
    let (store, queue) = (queues(&server).await, name("locks"));
    let held = one(store.claim(&queue, &of_key("k", 600_000)).await.unwrap());
    let written = server.command(&["INFO", "persistence"]).unwrap();
    let size = |info: &lease_conformance::servers::redis::Reply| {
        let text = info.text().unwrap().to_owned();
        let line = text.lines().find(|l| l.starts_with("aof_current_size:"));
        line.unwrap().to_owned()
    };
    for _ in 0..3 {
        let answer = store.claim(&queue, &waits("k")).await.unwrap();
        assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
    }
    let after = server.command(&["INFO", "persistence"]).unwrap();
    assert_eq!(size(&written), size(&after));
    assert_eq!(
        everything(&server, &format!("{}:w:", base("locks"))).len(),
        1
    );
    server.kill().unwrap();
    server.start().unwrap();
    assert_eq!(
        everything(&server, &format!("{}:w:", base("locks"))).len(),
        0
    );
    let store = queues(&server).await;
    let settled = store.settle(&queue, &[(held.claim, back())]).await;
    assert_eq!(settled[0].clone().unwrap(), Settled::Done);
    // Nobody has a place any more.
    one(store.claim(&queue, &waits("k")).await.unwrap());
}

#[tokio::test]
async fn a_full_memory_costs_a_place_and_no_more() {
    let server = RedisServer::builder().start().unwrap();
    let (store, queue) = (queues(&server).await, name("locks"));
    one(store.claim(&queue, &of_key("k", 600_000)).await.unwrap());
    server
        .command(&["CONFIG", "SET", "maxmemory", "1"])
        .unwrap();
    let answer = store.claim(&queue, &waits("k")).await.unwrap();
    assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
    assert_eq!(
        everything(&server, &format!("{}:p:", base("locks"))).len(),
        0
    );
}

#[tokio::test]
async fn places_of_a_clock_that_stepped_back_keep_nobody_out() {
    let server = RedisServer::builder().start().unwrap();
    let (store, queue) = (queues(&server).await, name("locks"));
    let held = one(store.claim(&queue, &of_key("k", 600_000)).await.unwrap());
    let first = waits("k");
    store.claim(&queue, &first).await.unwrap();
    // As if the clock had been an hour ahead when it asked.
    let line = format!("{}:w:k", base("locks"));
    let place = format!("u{}", first.owner);
    server
        .command(&["ZINCRBY", &line, "3600000000", &place])
        .unwrap();
    store.settle(&queue, &[(held.claim, back())]).await[0]
        .clone()
        .unwrap();
    let held = one(store.claim(&queue, &waits("k")).await.unwrap());
    // It is back at the end.
    store.claim(&queue, &first).await.unwrap();
    store.settle(&queue, &[(held.claim, back())]).await[0]
        .clone()
        .unwrap();
    one(store.claim(&queue, &first).await.unwrap());
}

#[tokio::test]
async fn nothing_is_left_of_a_line_that_nobody_is_in() {
    let server = RedisServer::builder().start().unwrap();
    let (store, queue) = (queues(&server).await, name("locks"));
    let held = one(store.claim(&queue, &of_key("k", 600_000)).await.unwrap());
    let (one_of_them, other) = (waits("k"), waits("k"));
    for request in [&one_of_them, &other] {
        store.claim(&queue, request).await.unwrap();
    }
    store.settle(&queue, &[(held.claim, back())]).await[0]
        .clone()
        .unwrap();
    let answer = store.claim(&queue, &other).await.unwrap();
    let Answer::Refused(RefusedReason::InLine { ahead, remaining }) = answer else {
        panic!("{answer:?}");
    };
    assert!(ahead == 1 && remaining <= WAITER_TURN);
    one(store.claim(&queue, &one_of_them).await.unwrap());
    let key = lease_core::Key::new("k").unwrap();
    store
        .abandon(&queue, Some(&key), other.owner)
        .await
        .unwrap();
    for part in ["p", "w"] {
        let left = everything(&server, &format!("{}:{part}:", base("locks")));
        assert!(left.is_empty(), "{left:?}");
    }
}
