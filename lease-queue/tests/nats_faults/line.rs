//! Waiters of different clients, in line.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::nats::NatsServer;
use lease_conformance::servers::nats::cluster::NatsCluster;
use lease_core::{AcquireOutcome, Error, LeaseBackend, Leases, RefusedReason, ReleaseOutcome};
use lease_queue::nats::NatsOptions;
use tokio::time::Instant;

use crate::in_line::{self, Client, WAITERS};
use crate::{ask, granted};

async fn opened(url: &str) -> Client {
    let store = NatsOptions::from_url(url).unwrap().open().await.unwrap();
    Client::new(Arc::new(store))
}

async fn client(server: &NatsServer, proxy: Option<&FaultProxy>) -> Client {
    let url = match proxy {
        Some(proxy) => server.url().through(proxy.address()),
        None => server.url(),
    };
    opened(&url.to_string()).await
}

async fn clients(server: &NatsServer, proxy: &FaultProxy, dead: &[usize]) -> Vec<Client> {
    let mut clients = Vec::new();
    for number in 0..WAITERS {
        let proxy = dead.contains(&number).then_some(proxy);
        clients.push(client(server, proxy).await);
    }
    clients
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_clients_are_served_in_the_order_in_which_they_asked() {
    let server = NatsServer::builder().start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let clients = clients(&server, &proxy, &[]).await;
    let holder = client(&server, None).await;
    in_line::eight_clients_are_served_in_order(&clients, &holder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_keep_the_order_of_eight_clients() {
    let cluster = NatsCluster::start_new().unwrap();
    let url = cluster.url().to_string();
    let mut clients = Vec::new();
    for _ in 0..WAITERS {
        clients.push(opened(&url).await);
    }
    let holder = opened(&url).await;
    in_line::eight_clients_are_served_in_order(&clients, &holder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_died_in_line_cost_a_turn_each() {
    let server = NatsServer::builder().start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let dead = [0, 4];
    let clients = clients(&server, &proxy, &dead).await;
    let holder = client(&server, None).await;
    in_line::the_dead_cost_a_turn_each(&clients, dead, &holder, || proxy.black_hole()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_in_line_follows_a_holder_that_died() {
    let server = NatsServer::builder().start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let clients = clients(&server, &proxy, &[]).await;
    let holder = client(&server, Some(&proxy)).await;
    in_line::a_lapsed_holder_is_followed_by_the_first(&clients, &holder, || proxy.black_hole())
        .await;
}

/// The records that were ever written.
fn written(server: &NatsServer) -> u64 {
    let told = server
        .request("$JS.API.STREAM.INFO.leases-owners", "")
        .unwrap();
    let at = told.find("\"last_seq\":").unwrap();
    let digits = told[at..].chars().skip("\"last_seq\":".len());
    let digits: String = digits.take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Each comes, waits, gives up, and comes again: all of that are writes to the record that
/// the holder has to renew.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_keeps_its_key_beside_thirty_two_waiters_that_come_and_go() {
    const TTL: Duration = Duration::from_secs(3);
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let holder = Leases::new(crate::client(&url).await);
    let lease = holder.lease("k").ttl(TTL).acquire().await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut waiters = Vec::new();
    for number in 0..32 {
        let (leases, stop) = (Leases::new(crate::client(&url).await), Arc::clone(&stop));
        waiters.push(tokio::spawn(async move {
            let patience = Duration::from_millis(100 + number * 10);
            let mut came = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                match leases.lease("k").ttl(TTL).wait(patience).acquire().await {
                    Err(Error::Contended { .. }) => {}
                    Err(Error::Store(e)) if e.is_transient() => {}
                    other => panic!("{other:?}"),
                }
                came += 1;
            }
            came
        }));
    }
    let (before, began) = (written(&server), Instant::now());
    while began.elapsed() < TTL * 2 {
        lease.check().unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let records = written(&server) - before;
    stop.store(true, Ordering::Relaxed);
    let mut came = 0;
    for waiter in waiters {
        came += waiter.await.unwrap();
    }
    println!("{came} waits, {records} records");
    assert!(
        came > 100 && records > 50,
        "{came} waits, {records} records"
    );
    lease.release().await.unwrap();
}

/// Were each a write of its own, those who wait for a moment and come again would leave
/// more than a record takes, and a free key would be nobody's for as long as they do.
#[tokio::test(flavor = "multi_thread")]
async fn those_of_a_client_who_give_up_together_leave_in_few_writes() {
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let one = crate::client(&url).await;
    granted(&one, &ask("k", 60_000)).await.unwrap();
    let other = crate::client(&url).await;
    let mut waiters = Vec::new();
    for _ in 0..64 {
        let mut waiter = ask("k", 60_000);
        waiter.waits = Some(Duration::from_secs(60));
        assert_eq!(granted(&other, &waiter).await, None);
        waiters.push(waiter);
    }
    let before = written(&server);
    let leave = waiters.iter().map(|w| other.abandon(&w.key, w.owner));
    for left in futures_util::future::join_all(leave).await {
        left.unwrap();
    }
    let records = written(&server) - before;
    assert!(records <= 8, "{records} records");
    for waiter in &waiters {
        let refused = one.acquire(waiter).await.unwrap();
        let abandoned = AcquireOutcome::Refused(RefusedReason::Abandoned);
        assert_eq!(refused, abandoned);
    }
}

/// A try is a program of its own, which has watched nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_the_dead_keeps_no_program_out_that_only_tries() {
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let one = crate::client(&url).await;
    let held = ask("k", 60_000);
    let token = granted(&one, &held).await.unwrap();
    let mut dead = ask("k", 60_000);
    dead.waits = Some(Duration::ZERO);
    let other = crate::client(&url).await;
    assert_eq!(granted(&other, &dead).await, None);
    let released = one.release(&held.key, held.owner, token).await.unwrap();
    assert_eq!(released, ReleaseOutcome::Released);
    let freed = Instant::now();
    let give_up = freed + Duration::from_secs(20);
    loop {
        let program = crate::client(&url).await;
        match program.acquire(&ask("k", 60_000)).await.unwrap() {
            AcquireOutcome::Granted(_) => break,
            AcquireOutcome::Held(_) => assert!(Instant::now() < give_up),
            other => panic!("{other:?}"),
        }
    }
}

/// What others did meanwhile is not read one by one, and is no flood.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_looks_again_after_very_many_changes_finds_the_last() {
    let cluster = NatsCluster::start_new().unwrap();
    let url = cluster.url().to_string();
    let (seldom, often) = (crate::client(&url).await, crate::client(&url).await);
    let first = ask("k", 60_000);
    let token = granted(&seldom, &first).await.unwrap();
    seldom
        .release(&first.key, first.owner, token)
        .await
        .unwrap();
    let mut last = token;
    for _ in 0..520 {
        let next = ask("k", 60_000);
        last = granted(&often, &next).await.unwrap();
        let released = often.release(&next.key, next.owner, last).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
    }
    let again = granted(&seldom, &ask("k", 60_000)).await.unwrap();
    assert!(again > last, "{again} after {last}");
}

/// By the clients that an answer comes to.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_found_again_after_the_server_was_killed() {
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let one = crate::client(&url).await;
    let held = ask("k", 60_000);
    let token = granted(&one, &held).await.unwrap();
    let (first, second) = (crate::client(&url).await, crate::client(&url).await);
    let mut asks = [ask("k", 60_000), ask("k", 60_000)];
    for ask in &mut asks {
        ask.waits = Some(Duration::from_secs(60));
    }
    assert_eq!(granted(&first, &asks[0]).await, None);
    assert_eq!(granted(&second, &asks[1]).await, None);
    server.kill().unwrap();
    server.start().unwrap();
    // Watches once more, so that nobody's turn has begun.
    assert_eq!(granted(&second, &asks[1]).await, None);
    let released = one.release(&held.key, held.owner, token).await.unwrap();
    assert_eq!(released, ReleaseOutcome::Released);
    let kept = second.acquire(&asks[1]).await.unwrap();
    let AcquireOutcome::Refused(RefusedReason::InLine { ahead, .. }) = kept else {
        panic!("{kept:?}");
    };
    assert_eq!(ahead, 1);
    assert!(granted(&first, &asks[0]).await.is_some());
}
