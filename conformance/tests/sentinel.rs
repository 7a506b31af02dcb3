//! The kit's sentinels do what they say.
#![cfg(unix)]
// Helpers of tests, too.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use lease_conformance::servers::redis::sentinel::{DataNode, SentinelTrio};
use lease_conformance::servers::redis::{Persistence, RedisServer, Reply};

fn set(node: &DataNode, key: &str) {
    let reply = node.server().command(&["SET", key, "x"]).unwrap();
    assert_eq!(reply.text(), Some("OK"));
}

fn has(node: &DataNode, key: &str) -> bool {
    node.server().command(&["EXISTS", key]).unwrap() == Reply::Integer(1)
}

fn role(node: &DataNode) -> String {
    node.server().info("role").unwrap().unwrap()
}

#[test]
fn a_failover_makes_a_replica_the_primary_and_it_has_the_data() {
    let begun = Instant::now();
    let trio = SentinelTrio::builder().start().unwrap();
    println!("started in {:?}", begun.elapsed());
    assert_eq!((trio.nodes().len(), trio.sentinels().len()), (3, 3));
    let former = trio.primary().unwrap();
    assert_eq!(former.address(), trio.nodes()[0].address());
    set(former, "before");
    trio.wait_until_replicated().unwrap();
    let begun = Instant::now();
    let next = trio.failover().unwrap();
    println!("failed over in {:?}", begun.elapsed());
    assert_ne!(next.address(), former.address());
    assert_eq!(role(next), "master");
    assert!(has(next, "before"));
    trio.settle().unwrap();
    println!("settled in {:?}", begun.elapsed());
    assert_eq!(role(former), "slave");
    assert_eq!(trio.replicas().unwrap().len(), 2);
    // And again.
    assert_ne!(trio.failover().unwrap().address(), next.address());
}

#[test]
fn a_primary_that_is_killed_is_replaced_and_comes_back_as_a_replica() {
    let trio = SentinelTrio::builder()
        .nodes(RedisServer::builder().persistence(Persistence::AofAlways))
        .start()
        .unwrap();
    let former = trio.primary().unwrap();
    former.server().kill().unwrap();
    let begun = Instant::now();
    let next = trio.primary_other_than(former.address()).unwrap();
    println!("replaced in {:?}", begun.elapsed());
    set(next, "after");
    former.server().start().unwrap();
    trio.settle().unwrap();
    println!("settled in {:?}", begun.elapsed());
    assert!(has(former, "after"));
}

#[test]
fn a_promotion_with_replication_paused_loses_what_was_written() {
    let trio = SentinelTrio::builder().start().unwrap();
    let former = trio.primary().unwrap();
    trio.pause_replication().unwrap();
    set(former, "lost");
    let next = trio.failover().unwrap();
    assert!(!has(next, "lost"));
    trio.resume_replication().unwrap();
    assert!(!has(former, "lost"));
    set(next, "kept");
    trio.wait_until_replicated().unwrap();
    let third = trio.failover().unwrap();
    assert!(has(third, "kept"));
}

#[test]
fn a_primary_that_is_hidden_is_replaced_and_goes_on_with_its_clients() {
    let trio = SentinelTrio::builder().replicas(1).start().unwrap();
    let former = trio.primary().unwrap();
    trio.hide_from_sentinels(former).unwrap();
    let next = trio.primary_other_than(former.address()).unwrap();
    assert_eq!(
        (role(former), role(next)),
        ("master".into(), "master".into())
    );
    set(former, "there");
    set(next, "here");
    trio.show_to_sentinels(former).unwrap();
    trio.settle().unwrap();
    assert!(has(former, "here") && !has(former, "there"));
}

#[test]
fn a_sentinel_may_be_away() {
    let trio = SentinelTrio::builder().replicas(1).start().unwrap();
    let [first, second, _] = trio.sentinels() else {
        panic!("three sentinels");
    };
    first.kill().unwrap();
    trio.failover().unwrap();
    trio.start_sentinel(first).unwrap();
    trio.settle().unwrap();
    second.pause().unwrap();
    trio.failover().unwrap();
    second.resume().unwrap();
    trio.settle().unwrap();
}

#[test]
fn passwords_and_tls_are_everywhere() {
    let trio = SentinelTrio::builder()
        .nodes(
            RedisServer::builder()
                .tls()
                .default_user_off()
                .user("app on >secret ~* &* +@all"),
        )
        .sentinel_user("asker on >question -@all +sentinel|get-master-addr-by-name")
        .down_after(Duration::from_secs(5))
        .replicas(1)
        .start()
        .unwrap();
    let url = trio
        .url()
        .user("app", "secret")
        .sentinel_user("asker", "question");
    let url = url.db(2).to_string();
    assert!(
        url.starts_with("rediss+sentinel://app:secret@127.0.0.1:"),
        "{url}"
    );
    let end = "/leases/2?sentinel_user=asker&sentinel_password=question";
    assert!(url.ends_with(end), "{url}");
    trio.failover().unwrap();
    trio.settle().unwrap();
    assert!(trio.nodes()[0].server().authority_pem().unwrap().is_file());
}
