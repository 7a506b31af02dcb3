//! The program over sentinels, and a failover while a command runs.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use lease_conformance::servers::redis::Persistence;
use lease_conformance::servers::redis::RedisServer;
use lease_conformance::servers::redis::sentinel::SentinelTrio;
use support::{Place, until};

fn trio() -> SentinelTrio {
    let nodes = RedisServer::builder().persistence(Persistence::AofAlways);
    SentinelTrio::builder()
        .replicas(1)
        .nodes(nodes)
        .start()
        .unwrap()
}

#[test]
fn a_command_goes_on_over_a_failover_and_its_token_stays() {
    let trio = trio();
    let place = Place::with_store(trio.url());
    let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 3";
    let mut args = vec!["run", "--ttl", "15s", "--kill-after", "0s"];
    args.extend(["k", "--", "sh", "-c", script]);
    let log = fs::File::create(place.path("stderr")).unwrap();
    let mut command = place.lease(&args);
    let mut running = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    until("the command", || place.path("ready").exists());
    let holder = place.holder("k");
    // What the replica has not got yet would be lost.
    let (primary, replica) = (&trio.nodes()[0], &trio.nodes()[1]);
    trio.wait_until_replicated().unwrap();
    primary.server().kill().unwrap();
    trio.primary_other_than(primary.address()).unwrap();

    // Renewed there, by now or soon.
    until("a renewal at the new primary", || {
        let holder = place.holder("k");
        assert!(!holder.is_null(), "{}", place.text("stderr"));
        holder["remaining_ms"]
            .as_u64()
            .is_some_and(|ms| ms > 12_000)
    });
    assert_eq!(
        replica.server().info("role").unwrap().as_deref(),
        Some("master")
    );
    assert_eq!(place.holder("k")["token"], holder["token"]);
    fs::write(place.path("go"), "").unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(3));
    assert!(place.holder("k").is_null(), "{}", place.text("stderr"));
}

#[test]
fn commands_find_the_primary_and_the_doctor_looks_at_the_sentinels() {
    let trio = SentinelTrio::builder()
        .replicas(1)
        .down_after(Duration::from_secs(2))
        .sentinel_user("asker on >hunter2 &* -@all +sentinel +subscribe +ping")
        .start()
        .unwrap();
    let place = Place::with_store(trio.url().sentinel_user("asker", "hunter2"));
    place.done(&["acquire", "a", "--ttl", "1m"]).ok();
    trio.wait_until_replicated().unwrap();
    trio.failover().unwrap();
    assert!(place.inspect("a")["high_water"].is_u64());
    trio.settle().unwrap();
    let found = place.done(&["doctor", "--ttl", "30s"]);
    for part in [
        "sentinels: 3 of the 3",
        "quorum: 2 of 3",
        "replicas: 1 of 1",
    ] {
        assert!(found.out.contains(part), "{}", found.out);
    }
    assert!(!found.out.contains("hunter2"), "{}", found.out);
    let found = place.done(&["doctor", "--json"]).json();
    assert_eq!(found["store"], "redis-sentinel");

    let wrong = trio.url().sentinel_user("asker", "hunter3");
    let refused = Place::with_store(wrong).done(&["inspect", "a"]).code(78);
    refused.error_line("sentinel_password");
    let known = trio.url().sentinel_user("asker", "hunter2").to_string();
    let nobody = Place::with_store(known.replace("/leases?", "/other?"));
    nobody.done(&["inspect", "a"]).code(78).error_line("other");
}

#[test]
fn the_doctor_says_what_ails_a_store_that_cannot_be_used() {
    let trio = trio();
    let place = Place::with_store(trio.url());
    trio.settle().unwrap();
    // Two sentinels may not vote anybody primary.
    trio.sentinels()[0].kill().unwrap();
    trio.sentinels()[1].kill().unwrap();
    trio.nodes()[0].server().kill().unwrap();
    let found = place.done(&["doctor", "--ttl", "30s"]).code(3);
    for part in ["primary: cannot be looked at", "sentinels: 1 of the 3"] {
        assert!(found.out.contains(part), "{}", found.out);
    }
}
