//! The program on a quorum of real Redis servers.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::time::{Duration, Instant};

use lease_conformance::servers::redis::{RedisNodes, RedisServer};
use nix::sys::signal::Signal;
use support::{Done, Place, until};

fn start(count: usize) -> (RedisNodes, Place) {
    let nodes = RedisNodes::start(count, &RedisServer::builder()).unwrap();
    let place = Place::with_store(format!("redlock://{}", nodes.hosts()));
    (nodes, place)
}

fn opened(count: usize) -> (RedisNodes, Place) {
    let (nodes, place) = start(count);
    let init = place.done(&["quorum", "init"]).ok();
    assert_eq!(init.out.matches("open now").count(), count, "{init:?}");
    (nodes, place)
}

fn states(done: &Done) -> Vec<String> {
    let report = done.json();
    let nodes = report["nodes"].as_array().unwrap().clone();
    let states = nodes.iter().map(|node| node["state"].as_str().unwrap());
    states.map(str::to_owned).collect()
}

#[test]
fn every_command_works_on_a_quorum() {
    let (_nodes, place) = opened(3);
    let acquire = ["acquire", "a/k", "--ttl", "1m", "--label", "me", "--json"];
    let grant = place.done(&acquire).ok().json();
    let owner = grant["owner"].as_str().unwrap();
    let token = grant["token"].as_u64().unwrap().to_string();
    place
        .done(&["acquire", "a/k", "--ttl", "1m", "-n"])
        .code(75);
    let held = ["a/k", "--owner", owner, "--token", &token];
    let renew = [&["renew"][..], &held, &["--ttl", "1m"]].concat();
    let release = [&["release"][..], &held].concat();
    place.done(&renew).ok();
    assert_eq!(place.holder("a/k")["label"], "me");
    let listed = place.done(&["list", "a/", "--json"]).ok().json();
    assert_eq!(listed[0]["holder"]["token"], grant["token"]);
    place.done(&release).ok();
    place.done(&release).code(76);

    let script = "echo $LEASE_KEY; \"$LEASE\" admit ledger --token $LEASE_TOKEN";
    let ran = place.run(&[], "a/k", script).end().ok();
    assert_eq!(ran.out, "a/k\n");
    let stale = place.done(&["admit", "ledger", "--token", &token]);
    stale.code(76).error_line("stale");

    place.done(&["acquire", "f", "--ttl", "1m"]).ok();
    let fenced = place.done(&["fence", "f", "--yes", "--json"]).ok().json();
    assert!(fenced["cut_off"]["token"].is_u64());
    place.done(&["acquire", "f", "--ttl", "1m", "-n"]).code(75);
    // Longer than the quarantine.
    let long = place.done(&["acquire", "g", "--ttl", "2m", "-n"]).code(2);
    long.error_line("60s");
    let found = place.done(&["doctor", "--json"]).ok().json();
    assert_eq!(found["store"], "quorum of 3 (redis)");
    let stores = place.done(&["stores"]).ok();
    assert!(stores.out.contains("redlock:"), "{stores:?}");
}

#[test]
fn a_quorum_is_opened_once() {
    let (nodes, place) = start(3);
    nodes.servers()[1].kill().unwrap();
    let away = place.done(&["quorum", "init", "--json"]).code(69);
    assert_eq!(states(&away), ["empty", "failed", "empty"]);
    nodes.servers()[1].start().unwrap();
    let done = place.done(&["quorum", "init", "--json"]).ok();
    assert_eq!(states(&done), ["opened"; 3]);
    assert_eq!(done.json()["done"], true);
    let again = place.done(&["quorum", "init"]).code(78);
    assert_eq!(again.out.matches("is in use").count(), 3, "{again:?}");
    again.error_line("opened before");

    // A node that lost its data heals by itself.
    nodes.servers()[2].restart_empty().unwrap();
    let lost = place.done(&["quorum", "init"]).code(78);
    assert_eq!(lost.out.matches("left as it is").count(), 1, "{lost:?}");
    lost.error_line("waits out its quarantine by itself");
    let url = format!("redlock://{}", nodes.hosts());
    place.done(&["quorum", "init", &url]).code(78);
    let wrong = Place::new().done(&["quorum", "init"]).code(2);
    wrong.error_line("redlock://");
}

#[test]
fn two_of_five_servers_may_die_and_nobody_waits_and_three_are_too_many() {
    let (nodes, place) = opened(5);
    let usual = Instant::now();
    place.run(&[], "a", "true").end().ok();
    let usual = usual.elapsed();
    for server in &nodes.servers()[..2] {
        server.kill().unwrap();
    }
    let begin = Instant::now();
    place.run(&[], "a", "true").end().ok();
    let took = begin.elapsed();
    assert!(
        took < usual * 4 + Duration::from_millis(500),
        "{took:?}, usually {usual:?}"
    );
    let doctor = place.done(&["doctor"]).code(1);
    let refused = doctor
        .out
        .lines()
        .find(|l| l.contains("Connection refused"));
    for server in &nodes.servers()[..2] {
        let address = server.address().to_string();
        assert!(refused.unwrap().contains(&address), "{doctor:?}");
    }

    nodes.servers()[2].kill().unwrap();
    let away = place.done(&["acquire", "b", "--ttl", "1m", "-n"]).code(69);
    assert_eq!(away.err.lines().count(), 1, "{away:?}");
    for server in &nodes.servers()[..3] {
        assert!(away.err.contains(&server.address().to_string()), "{away:?}");
    }
    assert!(away.err.contains("3 of 5 nodes"), "{away:?}");
    assert_eq!(
        away.err.matches("Connection refused").count(),
        1,
        "{away:?}"
    );

    // They are back, empty: two open nodes are no majority.
    for server in &nodes.servers()[..3] {
        server.start().unwrap();
    }
    let early = place.done(&["acquire", "b", "--ttl", "1m", "-n"]).code(75);
    early.error_line("grants nothing for another");
    let doctor = place.done(&["doctor"]).code(1);
    assert!(
        doctor.out.contains("2 of 5 nodes grant free keys now"),
        "{doctor:?}"
    );
}

#[test]
fn a_command_outlives_a_minority_and_is_stopped_when_the_majority_is_lost() {
    let (nodes, place) = opened(3);
    let script =
        "trap 'echo stopped > ended; exit 0' TERM; echo > begun; while :; do sleep 0.05; done";
    let mut running = place.run(&["--ttl", "3s", "--kill-after", "1s"], "k", script);
    until("the command", || place.path("begun").exists());
    nodes.servers()[0].kill().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    assert!(running.is_running());
    nodes.servers()[1].kill().unwrap();
    running.end().code(76);
    assert_eq!(
        fs::read_to_string(place.path("ended")).unwrap(),
        "stopped\n"
    );
}

#[test]
fn a_killed_holder_is_succeeded_with_a_higher_token() {
    let (_nodes, place) = opened(3);
    let holder = place.run(&["--ttl", "1s"], "k", "echo $LEASE_TOKEN > token; sleep 60");
    until("the holder", || !place.text("token").is_empty());
    holder.signal(Signal::SIGKILL);
    let next = place.run(&[], "k", "echo $LEASE_TOKEN").end().ok();
    let first = support::number(&place.text("token"));
    assert!(support::number(&next.out) > first);
}
