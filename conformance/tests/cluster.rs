//! The test cluster does what it says.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use lease_conformance::servers::redis::cluster::{Failover, RedisCluster};
use lease_conformance::servers::redis::{Persistence, RedisServer, Reply};

const PATIENCE: Duration = Duration::from_secs(20);

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn owner<'a>(cluster: &'a RedisCluster, key: &str) -> &'a RedisServer {
    cluster.node(cluster.owner_of(key).unwrap())
}

fn set(node: &RedisServer, key: &str) {
    let reply = node.command(&["SET", key, "x"]).unwrap();
    assert_eq!(reply.text(), Some("OK"));
}

fn has(node: &RedisServer, key: &str) -> bool {
    node.command(&["EXISTS", key]).unwrap() == Reply::Integer(1)
}

#[test]
fn three_primaries_share_all_keys_and_each_has_a_replica() {
    let began = Instant::now();
    let cluster = RedisCluster::builder().start().unwrap();
    println!("it took {:?} to start", began.elapsed());
    let primaries = cluster.primaries();
    assert_eq!(primaries.len(), 3);
    for primary in primaries {
        let replica = cluster.replica_of(primary).unwrap();
        assert_ne!(primary, replica);
    }
    for key in ["a", "b", "c", "d", "e", "f"] {
        let number = cluster.owner_of(key).unwrap();
        set(cluster.node(number), key);
        let other = (0..6).find(|other| *other != number).unwrap();
        let refused = cluster.node(other).command(&["GET", key]).unwrap_err();
        assert!(
            refused.to_string().to_lowercase().contains("moved"),
            "{refused}"
        );
    }
    assert_eq!(cluster.slot_of("123456789").unwrap(), 0x31C3);
    assert_eq!(cluster.url().to_string().matches("127.0.0.1").count(), 3);
}

#[test]
fn an_agreed_failover_loses_nothing_and_a_takeover_what_was_held_back() {
    let cluster = RedisCluster::builder().start().unwrap();
    set(owner(&cluster, "a"), "a");
    let before = cluster.owner_of("a").unwrap();
    let after = cluster.failover("a", Failover::Agreed).unwrap();
    assert_ne!(before, after);
    cluster.until_settled().unwrap();
    assert_eq!(cluster.owner_of("a").unwrap(), after);
    assert!(has(owner(&cluster, "a"), "a"));

    let replica = cluster.replica_of(after).unwrap();
    cluster.hold_replication(replica).unwrap();
    set(owner(&cluster, "{a}late"), "{a}late");
    assert_eq!(cluster.failover("a", Failover::Takeover).unwrap(), replica);
    assert!(has(owner(&cluster, "a"), "a"));
    assert!(!has(owner(&cluster, "a"), "{a}late"));
    cluster.resume_replication(replica).unwrap();
    cluster.until_settled().unwrap();
}

#[test]
fn a_killed_primary_is_voted_away_and_comes_back_as_a_replica() {
    let cluster = RedisCluster::builder().start().unwrap();
    let slot = cluster.slot_of("a").unwrap();
    let dead = cluster.owner_of("a").unwrap();
    cluster.node(dead).kill().unwrap();
    let began = Instant::now();
    let new = cluster.until_other_owner(slot, dead).unwrap();
    println!("the vote took {:?}", began.elapsed());
    cluster.until_settled().unwrap();
    set(cluster.node(new), "a");
    cluster.node(dead).start().unwrap();
    until("the dead one follows the new one", || {
        cluster.replica_of(new).is_ok_and(|replica| replica == dead)
    });
}

#[test]
fn a_slot_moves_with_its_keys_and_asks_and_points_on_the_way() {
    let cluster = RedisCluster::builder().start().unwrap();
    let (from, slot) = (
        cluster.owner_of("a").unwrap(),
        cluster.slot_of("a").unwrap(),
    );
    let primaries = cluster.primaries();
    let to = *primaries.iter().find(|other| **other != from).unwrap();
    set(cluster.node(from), "a");
    set(cluster.node(from), "{a}2");
    let moving = cluster.begin_move(slot, to).unwrap();
    let asked = cluster.node(from).command(&["GET", "{a}new"]).unwrap_err();
    assert!(asked.to_string().to_lowercase().contains("ask"), "{asked}");
    assert_eq!(moving.keys().unwrap().len(), 2);
    moving.move_these(&["a".to_owned()]).unwrap();
    assert_eq!(moving.keys().unwrap(), ["{a}2"]);
    moving.move_keys().unwrap();
    moving.finish().unwrap();
    assert_eq!(cluster.owner_of("a").unwrap(), to);
    assert!(has(cluster.node(to), "a") && has(cluster.node(to), "{a}2"));
}

#[test]
fn it_comes_back_with_its_data_and_without_it() {
    let cluster = RedisCluster::builder()
        .persistence(Persistence::AofAlways)
        .start()
        .unwrap();
    set(owner(&cluster, "a"), "a");
    cluster.restart().unwrap();
    assert!(has(owner(&cluster, "a"), "a"));
    cluster.restart_empty().unwrap();
    assert!(!has(owner(&cluster, "a"), "a"));
}

#[test]
fn clients_are_sent_to_the_proxies_and_the_nodes_vote_without_them() {
    let cluster = RedisCluster::builder()
        .proxied()
        .default_user_off()
        .user("app on >secret ~* &* +@all")
        .start()
        .unwrap();
    let number = cluster.owner_of("a").unwrap();
    let other = (0..6).find(|other| *other != number).unwrap();
    let refused = cluster.node(other).command(&["GET", "a"]).unwrap_err();
    let address = cluster.address(number).to_string();
    assert_eq!(
        address,
        cluster.proxy(number).unwrap().address().to_string()
    );
    assert!(format!("{refused:?}").contains(&address), "{refused:?}");
    // Cut off from clients alone, it stays what it is: the others have had the
    // time to vote.
    cluster.proxy(number).unwrap().black_hole();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(cluster.owner_of("a").unwrap(), number);
    cluster.proxy(number).unwrap().heal().unwrap();
    cluster.until_settled().unwrap();
    let url = cluster.url().user("app", "secret").to_string();
    assert!(
        url.starts_with("redis+cluster://app:secret@127.0.0.1:"),
        "{url}"
    );
}
