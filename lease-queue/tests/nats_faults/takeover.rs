//! What is left of a grant, and when it is over.

use std::time::Duration;

use lease_conformance::servers::nats::NatsServer;
use lease_conformance::servers::nats::cluster::NatsCluster;
use lease_core::{
    AcquireOutcome, FenceWhen, Finding, LeaseBackend, ReleaseOutcome, Severity, Token, Ttl,
};
use lease_queue::KeyedLeases;
use tokio::time::Instant;

use crate::{ask, client, granted};

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_and_its_mark_survive_a_kill_of_the_server() {
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let (one, two) = (client(&url).await, client(&url).await);
    let (held, mine) = (ask("held", 60_000), ask("free", 60_000));
    let token = granted(&one, &held).await.unwrap();
    let mut last = Token::MIN;
    for round in 0..3 {
        let free = granted(&two, &mine).await.unwrap();
        assert!(round == 0 || free > last, "{free} after {last}");
        last = free;
        let released = two.release(&mine.key, mine.owner, free).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
        server.kill().unwrap();
        server.start().unwrap();
        assert_eq!(granted(&two, &ask("held", 60_000)).await, None);
    }
    assert_eq!(granted(&one, &held).await, Some(token));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crashed_holders_key_is_free_within_twice_its_ttl_and_not_before_its_end() {
    const TTL: Duration = Duration::from_millis(400);
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let (crashed, late) = (client(&url).await, client(&url).await);
    let sent = Instant::now();
    granted(&crashed, &ask("k", 400)).await.unwrap();
    drop(crashed);
    // Looks for the first time shortly before the end.
    tokio::time::sleep_until(sent + TTL * 9 / 10).await;
    let looked = Instant::now();
    let next = ask("k", 400);
    let waited = loop {
        match late.acquire(&next).await.unwrap() {
            AcquireOutcome::Granted(_) => break looked.elapsed(),
            AcquireOutcome::Held(holder) => {
                assert!(holder.remaining <= TTL);
                tokio::time::sleep(holder.remaining).await;
            }
            other => panic!("{other:?}"),
        }
    };
    assert!(waited >= TTL, "{waited:?} after the first look");
    assert!(waited < TTL + Duration::from_secs(5), "{waited:?}");
}

/// A dead holder's grant ends, however often others leave their marks on its record.
#[tokio::test(flavor = "multi_thread")]
async fn tombstones_and_fences_do_not_keep_a_dead_grant_alive() {
    let server = NatsServer::builder().start().unwrap();
    let url = server.url().to_string();
    let (crashed, other) = (client(&url).await, client(&url).await);
    granted(&crashed, &ask("k", 500)).await.unwrap();
    drop(crashed);
    let began = Instant::now();
    let mut next = ask("k", 500);
    while granted(&other, &next).await.is_none() {
        other.abandon(&next.key, next.owner).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(10), "it never ends");
        next = ask("k", 500);
    }
    assert!(began.elapsed() >= Duration::from_millis(490));
}

/// Waits until the doctor says this of a server that it has no connection to.
async fn doctor_names(backend: &KeyedLeases, words: &str) {
    let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
    let give_up = Instant::now() + Duration::from_secs(40);
    loop {
        let diagnosis = backend.diagnose(ttl).await;
        let named = |finding: &&Finding| finding.what.contains(words);
        let found = diagnosis.as_ref().ok();
        if let Some(found) = found.and_then(|told| told.findings.iter().find(named)) {
            assert_eq!(found.severity, Severity::Warning, "{found:?}");
            return;
        }
        assert!(Instant::now() < give_up, "{diagnosis:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_go_on_without_the_one_that_led() {
    let cluster = NatsCluster::start_new().unwrap();
    let url = cluster.url().to_string();
    let (one, two) = (client(&url).await, client(&url).await);
    let (held, free) = (ask("held", 300_000), ask("free", 300_000));
    let token = granted(&one, &held).await.unwrap();
    let before = granted(&two, &free).await.unwrap();
    two.abandon(&free.key, free.owner).await.unwrap();
    let leader = cluster.stream_leader("leases-owners").unwrap();
    cluster.node(leader).kill().unwrap();
    assert_eq!(granted(&two, &ask("held", 60_000)).await, None);
    let after = granted(&two, &ask("free", 60_000)).await.unwrap();
    assert!(after > before, "{after} after {before}");
    assert_eq!(granted(&one, &held).await, Some(token));
    doctor_names(&two, &format!("not up to date: node-{leader}")).await;
    // And the one that was away agrees when it is back.
    cluster.start().unwrap();
    let cut_off = Token::new(token.get() + 10).unwrap();
    let fence = two.fence(&held.key, cut_off, FenceWhen::Immediately);
    assert_eq!(fence.await.unwrap(), cut_off);
    assert!(granted(&two, &ask("held", 60_000)).await > Some(cut_off));
}
