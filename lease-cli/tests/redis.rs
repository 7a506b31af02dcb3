//! The program on real Redis servers, on good days and bad ones.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::redis::cluster::{Failover, RedisCluster};
use lease_conformance::servers::redis::{Persistence, RedisServer};
use nix::sys::signal::Signal;
use support::{Place, Running, lives, number, until};

fn plain() -> RedisServer {
    RedisServer::builder().start().unwrap()
}

fn durable() -> RedisServer {
    let builder = RedisServer::builder().persistence(Persistence::AofAlways);
    builder.start().unwrap()
}

fn on(server: &RedisServer) -> Place {
    Place::with_store(server.url())
}

/// `lease run OPTIONS k -- sh -c SCRIPT` whose stderr can be read meanwhile.
fn run_logged(place: &Place, options: &[&str], script: &str) -> std::process::Child {
    let mut args = vec!["run"];
    args.extend(options);
    args.extend(["k", "--", "sh", "-c", script]);
    let log = fs::File::create(place.path("stderr")).unwrap();
    let mut command = place.lease(&args);
    command.stdout(Stdio::piped()).stderr(log).spawn().unwrap()
}

/// Every command does what it should.
fn use_every_command(place: &Place, store: &str) {
    let acquire = ["acquire", "a/k", "--ttl", "1m", "--label", "me", "--json"];
    let grant = place.done(&acquire).ok().json();
    let owner = grant["owner"].as_str().unwrap();
    let token = grant["token"].as_u64().unwrap().to_string();
    place
        .done(&["acquire", "a/k", "--ttl", "1m", "-n"])
        .code(75);
    let held = ["a/k", "--owner", owner, "--token", &token];
    let renew = [&["renew"][..], &held, &["--ttl", "2m"]].concat();
    let release = [&["release"][..], &held].concat();
    place.done(&renew).ok();
    assert_eq!(place.holder("a/k")["label"], "me");
    let listed = place.done(&["list", "a/", "--json"]).ok().json();
    assert_eq!(listed[0]["holder"]["token"], grant["token"]);
    place.done(&release).ok();
    place.done(&release).code(76);
    place.done(&renew).code(76);

    let script = "echo $LEASE_KEY; \"$LEASE\" admit ledger --token $LEASE_TOKEN";
    let ran = place.run(&[], "a/k", script).end().ok();
    assert_eq!(ran.out, "a/k\n");
    let stale = place.done(&["admit", "ledger", "--token", &token]);
    stale.code(76).error_line("stale");

    place.done(&["acquire", "f", "--ttl", "1m"]).ok();
    let fenced = place.done(&["fence", "f", "--yes", "--json"]).ok().json();
    let cut_off = fenced["cut_off"]["token"].as_u64().unwrap();
    assert!(fenced["high_water"].as_u64().unwrap() > cut_off);
    place.done(&["acquire", "f", "--ttl", "1m", "-n"]).code(75);
    place.done(&["fence", "f", "--yes", "--now"]).ok();
    place.done(&["acquire", "f", "--ttl", "1m", "-n"]).ok();
    let found = place.done(&["doctor", "--json"]).json();
    assert_eq!(found["store"], store);
}

#[test]
fn every_command_works_by_every_way_to_a_server() {
    let server = plain();
    use_every_command(&on(&server), "redis");
    server.flush_all().unwrap();
    use_every_command(&Place::with_store(server.unix_url()), "redis");

    let server = RedisServer::builder().tls().start().unwrap();
    let authority = server.authority_pem().unwrap().display().to_string();
    let url = format!("rediss://{}?ca={authority}", server.address());
    use_every_command(&Place::with_store(url), "redis");
}

#[test]
fn every_command_works_on_a_cluster() {
    let cluster = RedisCluster::builder().start().unwrap();
    let place = Place::with_store(cluster.url());
    use_every_command(&place, "redis-cluster");
    // Every node has some.
    for number in 0..20 {
        place
            .done(&["acquire", &number.to_string(), "--ttl", "1m"])
            .ok();
    }
    let listed = place.done(&["list", "--json"]).ok().json();
    assert!(listed.as_array().unwrap().len() >= 20, "{listed}");
    let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 3";
    let mut running = run_logged(&place, &["--ttl", "20s"], script);
    until("the command", || place.path("ready").exists());
    let token = place.holder("k")["token"].clone();
    cluster.failover("leases:{k}", Failover::Agreed).unwrap();
    cluster.until_settled().unwrap();
    assert_eq!(place.holder("k")["token"], token);
    fs::write(place.path("go"), "").unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(3));
    assert!(place.holder("k").is_null(), "{}", place.text("stderr"));

    let found = place.done(&["doctor", "--ttl", "30s", "--json"]).json();
    let found = found["findings"].to_string();
    assert!(found.contains("cluster: ok, with 3 primaries"), "{found}");
}

#[test]
fn every_command_works_with_the_rights_that_the_page_lists() {
    let acl = include_str!("../../lease-redis/docs/acl.md");
    let line = acl.lines().find(|line| line.starts_with("ACL SETUSER"));
    let user = line.unwrap().trim_start_matches("ACL SETUSER ");
    let builder = RedisServer::builder().default_user_off();
    let server = builder.user(user).start().unwrap();
    use_every_command(
        &Place::with_store(server.url().user("app", "PASSWORD")),
        "redis",
    );
}

#[test]
fn forty_increments_make_forty() {
    let server = plain();
    let place = on(&server);
    fs::write(place.path("counter"), "0").unwrap();
    let script = "
        n=$(cat counter); sleep 0.01; echo $((n + 1)) > counter
        echo $LEASE_TOKEN >> tokens";
    let crowd: Vec<_> = (0..40).map(|_| place.run(&[], "k", script)).collect();
    for one in crowd {
        one.end().ok();
    }
    assert_eq!(number(&place.text("counter")), 40);
    let tokens: Vec<_> = place.text("tokens").lines().map(number).collect();
    assert_eq!(tokens.len(), 40);
    assert!(tokens.windows(2).all(|w| w[0] < w[1]), "{tokens:?}");
}

#[test]
fn a_command_goes_on_when_the_server_was_killed_and_comes_back_with_its_data() {
    let server = durable();
    let place = on(&server);
    let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 3";
    let mut running = run_logged(&place, &["--ttl", "15s", "--kill-after", "0s"], script);
    until("the command", || place.path("ready").exists());
    let token = place.holder("k")["token"].clone();
    server.kill().unwrap();
    place.wait_for_text("stderr", "stays ours for another");
    server.start().unwrap();
    place.wait_for_text("stderr", "the store answers again");
    assert_eq!(place.holder("k")["token"], token);
    fs::write(place.path("go"), "").unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(3));
    assert!(place.holder("k").is_null(), "{}", place.text("stderr"));
}

#[test]
fn a_command_is_stopped_when_the_server_comes_back_empty() {
    let server = plain();
    let place = on(&server);
    let script = "echo $LEASE_TOKEN > token; echo $$ > pid; while :; do sleep 0.02; done";
    let running = place.run(&["--ttl", "6s"], "k", script);
    until("the command", || place.text("pid").ends_with('\n'));
    server.restart_empty().unwrap();
    // At once, without a SIGTERM: anybody may have the key.
    let ended = running.end().code(76);
    assert!(ended.err.contains("knows no such grant"), "{ended:?}");
    assert!(!lives(number(&place.text("pid")) as i32));
    // Later tokens are higher all the same.
    let next = place.done(&["acquire", "k", "--ttl", "1m", "--json"]);
    let next = next.ok().json()["token"].as_i64().unwrap();
    assert!(next > number(&place.text("token")));
}

#[test]
fn a_server_that_stands_still_stops_the_command_in_time() {
    let server = plain();
    let place = on(&server);
    let script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let running = place.run(&["--ttl", "3s", "--kill-after", "300ms"], "k", script);
    until("the command", || place.text("pid").ends_with('\n'));
    server.pause().unwrap();
    let ended = running.end().code(76);
    assert!(ended.err.contains("stopping the command"), "{ended:?}");
    assert!(!lives(number(&place.text("pid")) as i32));
    server.resume().unwrap();
    place.done(&["run", "-w", "30s", "k", "--", "true"]).ok();
}

#[test]
fn a_zombie_is_stopped_and_its_late_write_is_refused() {
    let server = plain();
    let place = on(&server);
    let script = "
        echo $LEASE_TOKEN > token; while [ ! -e write ]; do sleep 0.02; done
        \"$LEASE\" admit ledger --token $LEASE_TOKEN 2> refused; echo $? > status
        while :; do sleep 0.02; done";
    let first = place.run(&["--ttl", "2s"], "k", script);
    until("the first", || place.text("token").ends_with('\n'));
    first.signal(Signal::SIGSTOP);
    let script = "echo $LEASE_TOKEN > token2; \"$LEASE\" admit ledger --token $LEASE_TOKEN";
    place.run(&[], "k", script).end().ok();
    fs::write(place.path("write"), "").unwrap();
    until("the late write", || place.text("status").ends_with('\n'));
    assert_eq!(place.text("status"), "76\n");
    let (old, new) = (place.text("token"), place.text("token2"));
    assert!(number(&old) < number(&new));
    let refused = place.text("refused");
    assert!(
        refused.contains(old.trim()) && refused.contains(new.trim()),
        "{refused}"
    );
    first.signal(Signal::SIGCONT);
    first.end().code(76);
}

#[test]
fn an_outage_while_waiting_is_ridden_out() {
    let server = durable();
    let place = on(&server);
    place.done(&["acquire", "k", "--ttl", "6s"]).ok();
    let log = fs::File::create(place.path("stderr")).unwrap();
    let mut waiter = place.lease(&["run", "k", "--", "echo", "got it"]);
    let waiter = waiter.env("LEASE_LOG", "leases=debug");
    let waiter = waiter.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    place.wait_for_text("stderr", "the key is held");
    server.kill().unwrap();
    place.wait_for_text("stderr", "trying again");
    server.start().unwrap();
    let output = waiter.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", place.text("stderr"));
    assert_eq!(output.stdout, b"got it\n");
    assert!(place.text("stderr").contains("the store answers again"));
}

#[test]
fn a_server_that_is_away_is_status_69_as_late_as_the_wait_allows() {
    let server = plain();
    let place = on(&server);
    server.kill().unwrap();
    let timed = |args: &[&str]| {
        let start = Instant::now();
        let ended = place.done(args).code(69);
        assert!(ended.err.starts_with("lease: "), "{ended:?}");
        start.elapsed()
    };
    let at_once = timed(&["run", "-n", "k", "--", "true"]);
    let short = timed(&["acquire", "k", "--ttl", "1m", "-w", "1s"]);
    let long = timed(&["inspect", "k"]);
    assert!(at_once < Duration::from_secs(5), "{at_once:?}");
    assert!(short < Duration::from_secs(8), "{short:?}");
    assert!(long > Duration::from_secs(9), "{long:?}");
    // One that comes back meanwhile is found.
    let waiting = Running::start(&mut place.lease(&["run", "k", "--", "echo", "here"]));
    server.start().unwrap();
    assert_eq!(waiting.end().ok().out, "here\n");
}

#[test]
fn a_server_that_refuses_is_status_78() {
    let server = RedisServer::builder().password("s3cret").start().unwrap();
    let url = |password: &str| format!("redis://:{password}@{}", server.address());
    for place in [
        Place::with_store(url("hunter2")),
        Place::with_store(format!("redis://{}", server.address())),
    ] {
        let refused = place.done(&["inspect", "k"]).code(78);
        refused.error_line("user name and a password");
    }
    let replica = RedisServer::builder().replica_of(&server).start().unwrap();
    replica.wait_until_linked().unwrap();
    let place = on(&replica);
    let refused = place.done(&["run", "k", "--", "true"]).code(78);
    refused.error_line("name the primary");
    place.done(&["doctor"]).code(3);
}

#[test]
fn a_release_that_the_server_refuses_says_why_at_once() {
    let acl = "app on >secret ~leases:* &leases:* -@all +eval +evalsha +scan +time +get +set \
               +psetex +setrange +pttl +publish +subscribe +unsubscribe +ping";
    let server = RedisServer::builder().user(acl).start().unwrap();
    let place = Place::with_store(server.url().user("app", "secret"));
    for ttl in ["3s", "30s"] {
        let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 3";
        let running = place.run(&["--ttl", ttl], "k", script);
        until("the command", || place.path("ready").exists());
        let less = ["ACL", "SETUSER", "app", "-setrange"];
        server.command(&less).unwrap();
        let start = Instant::now();
        fs::write(place.path("go"), "").unwrap();
        let ended = running.end().code(3);
        assert!(start.elapsed() < Duration::from_secs(3), "{ended:?}");
        let last = ended.err.lines().last().unwrap();
        assert!(
            last.contains("could not be released (the store refuses"),
            "{ended:?}"
        );
        assert!(!ended.err.contains("does not answer"), "{ended:?}");
        let more = ["ACL", "SETUSER", "app", "+setrange"];
        server.command(&more).unwrap();
        for name in ["ready", "go"] {
            fs::remove_file(place.path(name)).unwrap();
        }
    }
}

#[test]
fn a_release_that_finds_no_server_says_so() {
    let server = plain();
    let place = on(&server);
    let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 3";
    let running = place.run(&["--ttl", "60s"], "k", script);
    until("the command", || place.path("ready").exists());
    server.kill().unwrap();
    fs::write(place.path("go"), "").unwrap();
    let ended = running.end().code(3);
    let last = ended.err.lines().last().unwrap();
    assert!(
        last.contains("could not be released (the store is unavailable"),
        "{ended:?}"
    );
}

#[test]
fn a_wait_in_which_the_store_fails_and_nobody_holds_is_status_69() {
    let server = plain();
    // There is no replica that could confirm a grant.
    let url = server.url();
    let place = Place::with_store(format!("{url}?wait_replicas=1&wait_timeout_ms=50"));
    let ended = place.done(&["run", "-w", "4s", "k", "--", "true"]).code(69);
    let last = ended.err.lines().last().unwrap();
    assert!(last.contains("replicas"), "{ended:?}");
    for never in ["still held", "abandoned", "answers again"] {
        assert!(!ended.err.contains(never), "{ended:?}");
    }
    assert!(ended.err.lines().count() <= 2, "{ended:?}");
}

#[test]
fn a_server_that_is_away_is_told_of_before_it_is_given_up() {
    let server = plain();
    let place = on(&server);
    server.kill().unwrap();
    for args in [
        &["list"][..],
        &["acquire", "k", "--ttl", "1m"],
        &["run", "k", "--", "true"],
    ] {
        let log = fs::File::create(place.path("stderr")).unwrap();
        let start = Instant::now();
        let mut child = place.lease(args).stderr(log).spawn().unwrap();
        place.wait_for_text("stderr", "\n");
        assert!(start.elapsed() < Duration::from_secs(5));
        assert_eq!(child.wait().unwrap().code(), Some(69));
        let text = place.text("stderr");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains("cannot be reached yet ("), "{text}");
        assert!(lines[0].ends_with("trying for 10s"), "{text}");
        assert!(lines[1].contains("unavailable"), "{text}");
    }
    let once = place.done(&["run", "-n", "k", "--", "true"]).code(69);
    once.error_line("unavailable");
}

#[test]
fn no_output_shows_a_password() {
    let server = RedisServer::builder().password("hunter2").start().unwrap();
    let url = server.url().to_string();
    assert!(url.contains("hunter2"));
    let silent = |place: &Place, args: &[&str]| {
        let mut command = place.lease(args);
        let ended = support::done(command.env("LEASE_LOG", "trace"));
        assert!(!format!("{ended:?}").contains("hunter2"), "{ended:?}");
    };
    let place = Place::with_store(&url);
    let wrong = Place::with_store(url.replace('@', "x@"));
    for place in [&place, &wrong] {
        silent(place, &["acquire", "k", "--ttl", "1m", "-n"]);
        silent(place, &["inspect", "k"]);
        silent(place, &["list", "--json"]);
        silent(place, &["fence", "k", "--yes", "--now"]);
        silent(place, &["admit", "k", "--token", "1"]);
        silent(place, &["doctor"]);
        silent(place, &["--help"]);
        // The command has the URL where it had it before, and nowhere else.
        let show = "env | grep -v '^LEASE_STORE='; cat /proc/$PPID/cmdline /proc/$$/cmdline";
        silent(place, &["run", "-n", "k", "--", "sh", "-c", show]);
    }
    let holder = place.run(&[], "k", "exec sleep 100");
    until("the holder", || !place.holder("k").is_null());
    silent(&place, &["list", "--json"]);
    server.kill().unwrap();
    silent(&place, &["run", "-n", "k", "--", "true"]);
    drop(holder);
}

#[test]
fn doctor_ends_with_how_bad_it_is() {
    let server = durable();
    let found = on(&server).done(&["doctor", "--json"]).ok().json();
    assert_eq!(found["store"], "redis");
    let forgetful = plain();
    let found = on(&forgetful).done(&["doctor"]).code(1);
    assert!(found.out.contains("warning"), "{found:?}");
    let builder = RedisServer::builder().persistence(Persistence::AofAlways);
    let evicting = builder.max_memory("64mb", "allkeys-lru").start().unwrap();
    let found = on(&evicting).done(&["doctor"]).code(3);
    let last: Vec<_> = found.out.lines().rev().take(4).collect();
    assert!(last[0].starts_with("1 critical"), "{found:?}");
    assert!(last[3].starts_with("critical  memory: "), "{found:?}");
    let url = evicting.url().to_string();
    support::done(support::program().args(["doctor", &url])).code(3);
    evicting.kill().unwrap();
    on(&evicting).done(&["doctor"]).code(69);
}

#[test]
fn doctor_looks_at_a_server_that_is_slow() {
    let server = durable();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let each_way = Duration::from_millis(500);
    proxy.delay(each_way, each_way);
    let place = Place::with_store(format!("redis://{}", proxy.address()));
    let found = place.done(&["doctor", "--ttl", "1s"]).code(3);
    assert!(found.out.contains("critical  round trips: "), "{found:?}");
}

#[test]
fn doctor_never_calls_sound_what_it_may_not_look_at() {
    let acl = include_str!("../../lease-redis/docs/acl.md");
    let line = acl.lines().find(|line| line.starts_with("ACL SETUSER"));
    let user = line.unwrap().trim_start_matches("ACL SETUSER ");
    let server = RedisServer::builder().user(user).start().unwrap();
    let place = Place::with_store(server.url().user("app", "PASSWORD"));
    let found = place.done(&["doctor"]).code(1);
    assert!(found.out.contains("could not be checked"), "{found:?}");
    server.config_set("maxmemory", "1").unwrap();
    place.done(&["doctor"]).code(3);
}

#[test]
fn a_quarantine_is_waited_out_with_a_notice() {
    let server = plain();
    let with = |prefix: &str| {
        let url = server.url();
        Place::with_store(format!("{url}?prefix={prefix}&quarantine_ms=1000"))
    };
    // The first request for a free key begins it.
    let once = ["run", "-n", "--ttl", "1s", "k", "--", "true"];
    let refused = with("a").done(&once).code(75);
    refused.error_line("grants nothing for another");
    let waits = ["run", "--ttl", "1s", "k", "--", "echo", "mine"];
    let ended = with("b").done(&waits).ok();
    assert_eq!(ended.out, "mine\n");
    ended.error_line("waiting for \"k\"");
}

#[test]
fn options_of_a_url_are_right_or_refused() {
    let server = plain();
    let with = |query: &str| Place::with_store(format!("{}?{query}", server.url()));
    let short = with("quarantine_ms=60000");
    let refused = short.done(&["acquire", "k", "--ttl", "2m", "-n"]).code(2);
    refused.error_line("outside 50ms to 60s");
    for bad in ["nosuch=1", "mark_retention_ms=1", "prefix=%7B"] {
        let refused = with(bad).done(&["inspect", "k"]).code(2);
        assert_eq!(refused.err.lines().count(), 1, "{refused:?}");
    }
    // Another prefix is another store.
    with("prefix=one")
        .done(&["acquire", "k", "--ttl", "1m"])
        .ok();
    let other = with("prefix=two").done(&["acquire", "k", "--ttl", "1m", "-n"]);
    other.ok();
}
