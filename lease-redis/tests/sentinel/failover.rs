//! A store goes where the sentinels send it.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lease_core::{AcquireOutcome, LeaseBackend, ReleaseOutcome, RenewOutcome};

use crate::support::*;
use crate::trio::{act, failover, has, node, pair, primary, start, store, until};
use lease_conformance::servers::redis::sentinel::SentinelTrio;

/// To be served by the new primary once the sentinels agree on it.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_clients_acquire_after_each_of_two_failovers() {
    let trio = start(SentinelTrio::builder()).await;
    let clients = [store(&trio).await, store(&trio).await];
    for round in 0..3 {
        if round > 0 {
            failover(&trio).await;
        }
        // It has never seen the script, or not any more.
        let at = primary(&trio).await;
        node(&trio, at).server().script_flush().unwrap();
        let served = Instant::now();
        let mut last = None;
        for client in &clients {
            let request = request(&format!("round {round}"), 60_000);
            // Until it has heard of the failover it may be answered by the former
            // primary; then what is under way there is given up.
            let token = loop {
                let token = granted(persist(|| client.acquire(&request)).await).token;
                let renewed = client.renew(&renewal(&request, token)).await;
                let there = has(node(&trio, at).server(), &format!("round {round}"));
                let release = || client.release(&request.key, request.owner, token);
                let released = persist(release).await;
                let renewed = renewed.is_ok_and(|renewed| renewed == RenewOutcome::Renewed);
                if there && renewed && released == ReleaseOutcome::Released {
                    break token;
                }
                assert!(served.elapsed() < SOON, "{:?}", served.elapsed());
            };
            assert!(Some(token) > last);
            last = Some(token);
        }
        assert!(served.elapsed() < SOON, "{:?}", served.elapsed());
        assert!(has(node(&trio, at).server(), &format!("round {round}")));
        act(&trio, SentinelTrio::settle).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_keeps_what_was_replicated() {
    let trio = pair().await;
    let client = store(&trio).await;
    let mine = request("mine", 60_000);
    let token = granted(client.acquire(&mine).await.unwrap()).token;
    until("replicated", || has(node(&trio, 1).server(), "mine")).await;
    failover(&trio).await;
    let renewal = renewal(&mine, token);
    assert_eq!(
        persist(|| client.renew(&renewal)).await,
        RenewOutcome::Renewed
    );
    let other = request("mine", 1000);
    let held = persist(|| client.acquire(&other)).await;
    assert!(matches!(held, AcquireOutcome::Held(_)), "{held:?}");
}

/// It would go on granting what the new one grants, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_former_primary_that_still_answers_is_left() {
    // With the rights that the page lists, and no more.
    let page = include_str!("../../docs/acl.md");
    let user = page
        .lines()
        .find_map(|line| line.strip_prefix("ACL SETUSER asker "));
    let user = format!("asker {}", user.unwrap());
    let trio = start(SentinelTrio::builder().replicas(1).sentinel_user(&user)).await;
    let url = trio.url().sentinel_user("asker", "PASSWORD");
    let store = async || options(&url).open().await.unwrap();
    let client = store().await;
    granted(client.acquire(&request("before", 60_000)).await.unwrap());
    act(&trio, |trio| trio.hide_from_sentinels(&trio.nodes()[0])).await;
    let former = node(&trio, 0).address();
    act(&trio, move |trio| trio.primary_other_than(former).map(drop)).await;

    // The connection is as good as ever, and nothing was sent over it.
    let (old, new) = (node(&trio, 0).server(), node(&trio, 1).server());
    assert_eq!(old.info("role").unwrap().as_deref(), Some("master"));
    let mut round = 0;
    let since = Instant::now();
    loop {
        round += 1;
        let name = format!("after {round}");
        let request = request(&name, 60_000);
        granted(persist(|| client.acquire(&request)).await);
        if has(new, &name) {
            break;
        }
        assert!(since.elapsed() < SOON, "still with the former primary");
    }
    println!("left {:?} after the sentinels agreed", since.elapsed());
    // And for good: a new client goes there as well.
    for (client, name) in [(&client, "last"), (&store().await, "new")] {
        granted(client.acquire(&request(name, 60_000)).await.unwrap());
        assert!(has(new, name) && !has(old, name));
    }
}

/// What a server that is none any more says does not count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_a_primary_that_stands_still_is_asked_again_of_the_next() {
    let trio = pair().await;
    let client = store(&trio).await;
    granted(client.acquire(&request("before", 60_000)).await.unwrap());
    act(&trio, |trio| trio.nodes()[0].server().pause()).await;
    let asked = Instant::now();
    // The store's own limit is five seconds, and the sentinels' two.
    let request = request("meanwhile", 60_000);
    let answer = client.acquire(&request).await;
    let took = asked.elapsed();
    println!("{took:?}: {answer:?}");
    granted(persist(|| client.acquire(&request)).await);
    assert!(asked.elapsed() < Duration::from_secs(15), "{took:?}");
    assert!(has(node(&trio, 1).server(), "meanwhile"));
    act(&trio, |trio| trio.nodes()[0].server().resume()).await;
    act(&trio, SentinelTrio::settle).await;
    assert!(has(node(&trio, 0).server(), "meanwhile"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wake_ups_move_with_the_primary() {
    let trio = pair().await;
    let (waiter, holder) = (store(&trio).await, store(&trio).await);
    let mut hints = waiter.watch(&key("a")).await.unwrap();
    // The waiter asks for nothing else.
    act(&trio, |trio| trio.hide_from_sentinels(&trio.nodes()[0])).await;
    let former = node(&trio, 0).address();
    act(&trio, move |trio| trio.primary_other_than(former).map(drop)).await;
    let since = Instant::now();
    loop {
        let request = request("a", 60_000);
        let token = granted(persist(|| holder.acquire(&request)).await).token;
        let release = holder.release(&request.key, request.owner, token).await;
        assert_eq!(release.unwrap(), ReleaseOutcome::Released);
        // The first hint says that the connection is another one.
        let hint = tokio::time::timeout(Duration::from_millis(200), hints.next());
        if hint.await.is_ok() && has(node(&trio, 1).server(), "a") {
            break;
        }
        assert!(since.elapsed() < PATIENCE, "no hint");
    }
    let request = request("a", 60_000);
    let token = granted(persist(|| holder.acquire(&request)).await).token;
    until("subscribed at the new primary", || {
        let channels = ["PUBSUB", "NUMSUB", "leases:{a}"];
        let reply = node(&trio, 1).server().command(&channels).unwrap();
        reply.list().unwrap()[1].integer() == Some(1)
    })
    .await;
    let release = holder.release(&request.key, request.owner, token).await;
    assert_eq!(release.unwrap(), ReleaseOutcome::Released);
    let hint = tokio::time::timeout(PATIENCE, hints.next()).await;
    assert_eq!(hint.unwrap(), Some(()));
}
