//! Workers of `lease queue work` on bad days: killed, cut off, without a server; and
//! groups. On each server that keeps queues.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs::File;
use std::process::Stdio;

use lease_conformance::servers::ServerError;
use lease_conformance::servers::postgres::PostgresServer;
use lease_conformance::servers::redis::{Persistence, RedisServer};
use nix::sys::signal::Signal;
use support::{Place, Running, lives, number, until};

/// A server that keeps queues.
trait Server {
    fn url(&self) -> String;
    fn pause(&self) -> Result<(), ServerError>;
    fn resume(&self) -> Result<(), ServerError>;
    fn kill(&self) -> Result<(), ServerError>;
    fn start(&self) -> Result<(), ServerError>;
}

macro_rules! server {
    ($server:ty) => {
        impl Server for $server {
            fn url(&self) -> String {
                format!("queue+{}", <$server>::url(self))
            }
            fn pause(&self) -> Result<(), ServerError> {
                <$server>::pause(self)
            }
            fn resume(&self) -> Result<(), ServerError> {
                <$server>::resume(self)
            }
            fn kill(&self) -> Result<(), ServerError> {
                <$server>::kill(self)
            }
            fn start(&self) -> Result<(), ServerError> {
                <$server>::start(self)
            }
        }
    };
}

server!(RedisServer);
server!(PostgresServer);

fn redis() -> RedisServer {
    let builder = RedisServer::builder().persistence(Persistence::AofAlways);
    builder.start().unwrap()
}

/// What a killed server has told the system is there when it comes back.
fn postgres() -> PostgresServer {
    PostgresServer::builder().fsync(false).start().unwrap()
}

fn put(place: &Place, options: &[&str], payload: &str) -> String {
    let args = [&["queue", "put"][..], options, &["jobs", "--data", payload]].concat();
    place.done(&args).ok().out.trim().to_owned()
}

fn args<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let command = &["jobs", "--", "sh", "-c", script];
    [&["queue", "work"][..], options, command].concat()
}

fn worker(place: &Place, options: &[&str], script: &str) -> Running {
    Running::start(&mut place.lease(&args(options, script)))
}

fn listed(place: &Place) -> usize {
    let listed = place.done(&["queue", "list", "jobs", "--json"]).ok().json();
    listed.as_array().unwrap().len()
}

fn killed_worker(server: &dyn Server) {
    let place = Place::with_store(server.url());
    put(&place, &[], "x");
    let script = "echo $LEASE_ATTEMPT $LEASE_TOKEN $$ >> log; sleep 1000 & wait";
    let killed = worker(&place, &["--ttl", "1s"], script);
    until("the command", || place.text("log").ends_with('\n'));
    let first = place.text("log");
    killed.signal(Signal::SIGKILL);
    let pid = number(first.split_whitespace().last().unwrap()) as i32;
    until("the end of the command", || !lives(pid));

    let script = "echo $LEASE_ATTEMPT $LEASE_TOKEN > second";
    worker(&place, &["--until-empty"], script).end().ok();
    let second = place.text("second");
    let numbers = |text: &str| text.split_whitespace().map(number).collect::<Vec<_>>();
    let (first, second) = (numbers(&first), numbers(&second));
    assert_eq!((first[0], second[0]), (1, 2));
    assert!(second[1] > first[1], "{first:?} {second:?}");
}

#[test]
fn a_worker_that_is_killed_leaves_its_item_to_the_next_on_redis() {
    killed_worker(&redis());
}

#[test]
fn a_worker_that_is_killed_leaves_its_item_to_the_next_in_postgres() {
    killed_worker(&postgres());
}

fn lost_claim(server: &dyn Server) {
    let place = Place::with_store(server.url());
    let item = put(&place, &[], "x");
    let script = "
        if [ $LEASE_ATTEMPT -gt 1 ]; then exit 0; fi
        trap 'echo term > told' TERM; echo $$ > pid
        while :; do sleep 0.02; done";
    let options = ["--ttl", "2s", "--kill-after", "300ms", "--until-empty"];
    let running = worker(&place, &options, script);
    until("the command", || place.text("pid").ends_with('\n'));
    let pid = number(&place.text("pid")) as i32;
    server.pause().unwrap();
    until("the kill", || !lives(pid));
    assert_eq!(place.text("told"), "term\n");
    server.resume().unwrap();
    let ended = running.end().ok();
    let words = format!("the claim on item {item}");
    assert!(ended.err.contains(&words), "{ended:?}");
    assert_eq!(listed(&place), 0);
}

#[test]
fn a_command_whose_claim_is_lost_is_stopped_and_its_item_comes_again_on_redis() {
    lost_claim(&redis());
}

#[test]
fn a_command_whose_claim_is_lost_is_stopped_and_its_item_comes_again_in_postgres() {
    lost_claim(&postgres());
}

fn groups_in_order(server: &dyn Server) {
    let place = Place::with_store(server.url());
    for n in 0..6 {
        let group = if n % 2 == 0 { "even" } else { "odd" };
        put(&place, &["--group", group], &n.to_string());
    }
    // Whoever finds another one of its group at work says so.
    let script = "
        mkdir $LEASE_GROUP || { echo two >> even.log; exit 1; }
        cat >> $LEASE_GROUP.log; sleep 0.05; rmdir $LEASE_GROUP";
    worker(&place, &["-j", "6", "--until-empty"], script)
        .end()
        .ok();
    assert_eq!(place.text("even.log"), "024");
    assert_eq!(place.text("odd.log"), "135");
}

#[test]
fn a_groups_items_come_one_at_a_time_and_in_order_on_redis() {
    groups_in_order(&redis());
}

#[test]
fn a_groups_items_come_one_at_a_time_and_in_order_in_postgres() {
    groups_in_order(&postgres());
}

#[test]
fn a_claim_whose_server_is_out_of_reach_is_named_as_people_know_it() {
    let server: &dyn Server = &redis();
    let place = Place::with_store(server.url());
    put(&place, &["--group", "g1"], "x");
    let script = "echo > began; while [ ! -e go ]; do sleep 0.02; done";
    let mut command = place.lease(&args(&["--ttl", "6s", "--until-empty"], script));
    let said = File::create(place.path("said")).unwrap();
    let mut working = command.stdout(Stdio::null()).stderr(said).spawn().unwrap();
    until("the command", || !place.text("began").is_empty());
    server.kill().unwrap();
    place.wait_for_text("said", "; \"group g1\" stays ours for another ");
    server.start().unwrap();
    place.wait_for_text("said", "the store answers again\n");
    File::create(place.path("go")).unwrap();
    assert!(working.wait().unwrap().success());
}

/// A worker without work, whose server goes away and comes back, says both, once.
fn outage(server: &dyn Server) {
    let place = Place::with_store(server.url());
    put(&place, &[], "first");
    let mut command = place.lease(&args(&["--ttl", "5s"], "cat >> log"));
    let said = File::create(place.path("said")).unwrap();
    let mut working = command.stdout(Stdio::null()).stderr(said).spawn().unwrap();
    until("the first item's end", || {
        place.text("log") == "first" && listed(&place) == 0
    });
    assert_eq!(place.text("said"), "");
    server.kill().unwrap();
    place.wait_for_text("said", "; trying again for items of \"jobs\"\n");
    server.start().unwrap();
    place.wait_for_text("said", "the store answers again\n");
    put(&place, &[], "second");
    until("the second item's end", || {
        place.text("log") == "firstsecond"
    });
    working.kill().unwrap();
    working.wait().unwrap();
    let said = place.text("said");
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(
        said.lines().all(|line| line.starts_with("lease: ")),
        "{said}"
    );
}

#[test]
fn a_worker_says_when_its_server_is_out_of_reach_and_when_it_is_back_on_redis() {
    outage(&redis());
}

#[test]
fn a_worker_says_when_its_server_is_out_of_reach_and_when_it_is_back_in_postgres() {
    outage(&postgres());
}
