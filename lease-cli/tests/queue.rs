//! `lease queue` on real servers: items there and back, workers on good days and bad
//! ones.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::Write as _;
use std::process::Stdio;

use lease_conformance::servers::nats::NatsServer;
use lease_conformance::servers::postgres::PostgresServer;
use lease_conformance::servers::redis::{Persistence, RedisServer};
use nix::sys::signal::Signal;
use serde_json::Value;
use support::{Done, Place, Running, done, lives, number, program, until};

/// Every byte, no line's end at the end, and more than a pipe holds.
fn odd_bytes() -> Vec<u8> {
    (0..=255)
        .cycle()
        .take(200_000)
        .chain([0, b'\n', 255])
        .collect()
}

fn redis() -> (RedisServer, Place) {
    let builder = RedisServer::builder().persistence(Persistence::AofAlways);
    let server = builder.start().unwrap();
    let place = Place::with_store(format!("queue+{}", server.url()));
    (server, place)
}

/// Nothing here ends the machine, so no commit has to wait for the disk.
fn postgres() -> (PostgresServer, Place) {
    let server = PostgresServer::builder().fsync(false).start().unwrap();
    let place = Place::with_store(format!("queue+{}", server.url()));
    (server, place)
}

fn nats() -> (NatsServer, Place) {
    let server = NatsServer::builder().start().unwrap();
    let place = Place::with_store(server.url());
    (server, place)
}

/// `lease queue put OPTIONS jobs` with a payload; the item.
fn put(place: &Place, options: &[&str], payload: &[u8]) -> String {
    let args = [&["queue", "put"][..], options, &["jobs"]].concat();
    let mut command = place.lease(&args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(payload).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn worker(place: &Place, options: &[&str], script: &str) -> Running {
    let args = [
        &["queue", "work"][..],
        options,
        &["jobs", "--", "sh", "-c", script],
    ]
    .concat();
    Running::start(&mut place.lease(&args))
}

fn work(place: &Place, options: &[&str], script: &str) -> Done {
    worker(place, options, script).end()
}

fn list(place: &Place, what: &str) -> Vec<Value> {
    let listed = place.done(&["queue", what, "jobs", "--json"]).ok().json();
    listed.as_array().unwrap().clone()
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

/// Put, list, work, fail, set aside, put back.
fn round_trip(place: &Place) {
    let payload = odd_bytes();
    let item = put(place, &["--dedup", "once"], &payload);
    let args = ["queue", "put", "jobs", "--dedup", "once", "--data", "x"];
    let again = place.done(&args).ok();
    assert_eq!(again.out.trim(), item);
    again.error_line("nothing was put");
    let late = put(place, &["--delay", "1h", "--group", "g"], b"");

    let listed = list(place, "list");
    let find = |id: &str| listed.iter().find(|row| row["item"] == id).unwrap();
    assert_eq!(find(&item)["state"], "ready");
    assert_eq!(find(&item)["bytes"], payload.len());
    assert_eq!(find(&late)["state"], "delayed");
    assert_eq!(find(&late)["group"], "g");
    let table = place.done(&["queue", "list", "jobs"]).ok().out;
    assert!(
        table.starts_with("ITEM") && table.contains(&item),
        "{table}"
    );

    // It fails twice, and is set aside.
    let failing = ["--once", "--max-attempts", "2", "--backoff", "1ms"];
    for attempt in ["1", "2"] {
        let ran = work(
            place,
            &failing,
            "cat > payload; echo $LEASE_ATTEMPT; exit 7",
        )
        .code(7);
        assert_eq!(ran.out.trim(), attempt);
        assert_eq!(std::fs::read(place.path("payload")).unwrap(), payload);
    }
    let dead = list(place, "dead");
    assert_eq!((dead.len(), &dead[0]["item"]), (1, &Value::from(&*item)));
    assert_eq!(dead[0]["reason"], "the command ended with status 7");
    let table = place.done(&["queue", "dead", "jobs"]).ok().out;
    assert!(table.contains("ended with status 7"), "{table}");

    let not_dead = place.done(&["queue", "requeue", "jobs", &late]).code(1);
    not_dead.error_line("not set aside");
    let back = place.done(&["queue", "requeue", "jobs", "--all"]).ok();
    assert_eq!(back.out.trim(), item);
    let script = "test \"$LEASE_QUEUE/$LEASE_ITEM/$LEASE_ATTEMPT/${LEASE_GROUP-none}\" = \
        \"jobs/$1/1/none\" && \"$LEASE\" admit \"$LEASE_KEY\" --token $LEASE_TOKEN";
    let args = [
        "queue", "work", "--once", "jobs", "--", "sh", "-c", script, "sh", &item,
    ];
    let mut command = place.lease(&args);
    done(command.env("LEASE_GROUP", "another")).ok();
    let left = list(place, "list");
    assert_eq!((left.len(), &left[0]["item"]), (1, &Value::from(&*late)));
    assert!(list(place, "dead").is_empty());
}

#[test]
fn items_go_there_and_back_on_redis() {
    let (_server, place) = redis();
    round_trip(&place);
}

#[test]
fn items_go_there_and_back_in_postgres() {
    let (_server, place) = postgres();
    round_trip(&place);
}

#[test]
fn items_go_there_and_back_on_nats() {
    let (_server, place) = nats();
    round_trip(&place);
}

#[test]
fn a_worker_goes_on_when_its_nats_server_is_killed_and_started_again() {
    let (server, place) = nats();
    for n in 0..8 {
        put(
            &place,
            &["--group", &format!("g{}", n % 2)],
            n.to_string().as_bytes(),
        );
    }
    let script = "cat >> $LEASE_GROUP.log; echo >> $LEASE_GROUP.log; sleep 0.1";
    let running = worker(
        &place,
        &["-j", "2", "--ttl", "20s", "--until-empty"],
        script,
    );
    until("the first ones", || lines(&place.text("g0.log")).len() > 1);
    server.kill().unwrap();
    server.start().unwrap();
    running.end().ok();
    assert!(list(&place, "list").is_empty());
    assert!(list(&place, "dead").is_empty());
    for (group, due) in [("g0", ["0", "2", "4", "6"]), ("g1", ["1", "3", "5", "7"])] {
        let log = place.text(&format!("{group}.log"));
        // Each once at least, and in order.
        let mut done = lines(&log);
        done.dedup();
        assert_eq!(done, due, "{log}");
    }
}

#[test]
fn the_printed_schema_of_queues_is_all_that_a_role_needs() {
    let builder = PostgresServer::builder().fsync(false);
    let server = builder.role("app", "p:w/", "").start().unwrap();
    let url = server.url().option("schema", "made");
    let url = url.option("migrate", "false").option("queue", "keys");
    let owner = Place::with_store(format!("queue+{url}"));
    let printed = owner.done(&["schema", "--role", "app"]).ok().out;
    server.sql(&printed).unwrap();
    server.sql(&printed).unwrap();
    let place = Place::with_store(format!("queue+{}", url.user("app", "p:w/")));
    round_trip(&place);
    use_keys(&place, "queue+postgres");
}

#[test]
fn a_worker_that_is_told_to_stop_lets_its_commands_end_and_then_does_not() {
    let (_server, place) = redis();
    for _ in 0..3 {
        put(&place, &["--group", "g"], b"x");
    }
    let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done";
    let running = worker(&place, &[], script);
    until("the command", || place.path("ready").exists());
    running.signal(Signal::SIGTERM);
    std::fs::write(place.path("go"), "").unwrap();
    running.end().ok();
    assert!(list(&place, "list").len() <= 2);

    // The second signal gives the item back, and the attempt does not count.
    put(&place, &["--group", "h"], b"x");
    let running = worker(&place, &["-j", "4"], "echo $$ >> pids; exec sleep 1000");
    let claimed = || {
        list(&place, "list")
            .iter()
            .filter(|i| i["state"] == "claimed")
            .count()
    };
    until("two commands", || {
        lines(&place.text("pids")).len() == 2 && claimed() == 2
    });
    running.signal(Signal::SIGTERM);
    running.signal(Signal::SIGINT);
    // Either may be seen first.
    let ended = running.end();
    assert!(matches!(ended.code, 130 | 143), "{ended:?}");
    for pid in lines(&place.text("pids")) {
        assert!(!lives(number(pid) as i32));
    }
    for item in list(&place, "list") {
        assert_eq!(
            (&item["state"], &item["attempts"]),
            (&"ready".into(), &0.into())
        );
    }
}

#[test]
fn what_cannot_be_run_ends_the_worker_and_gives_the_item_back() {
    let (_server, place) = redis();
    put(&place, &[], b"x");
    let args = ["queue", "work", "jobs", "--", "no-such-program"];
    place.done(&args).code(127).error_line("was not found");
    let item = list(&place, "list").remove(0);
    assert_eq!(
        (&item["state"], &item["attempts"]),
        (&"ready".into(), &0.into())
    );
}

#[test]
fn keys_are_leased_on_a_queue_of_every_server() {
    let (_redis, place) = redis();
    use_keys(&place, "queue+redis");
    let (_postgres, place) = postgres();
    use_keys(&place, "queue+postgres");
    let (_nats, place) = nats();
    use_keys(&place, "queue+nats");
}

fn use_keys(place: &Place, store: &str) {
    let ran = place
        .run(&[], "k", "\"$LEASE\" inspect k --json")
        .end()
        .ok();
    let seen = ran.json();
    assert!(seen["holder"]["token"].is_u64(), "{seen}");
    assert!(place.holder("k").is_null());
    let found = place.done(&["doctor", "--json"]).json();
    assert_eq!(found["store"], store);

    // The gate admits tokens that rise, and keeps the highest.
    let admit = "\"$LEASE\" admit ledger --token $LEASE_TOKEN; echo $LEASE_TOKEN";
    let first = place.run(&[], "k", admit).end().ok().out;
    let first = first.trim();
    place.done(&["admit", "ledger", "--token", first]).ok();
    let second = place.run(&[], "k", admit).end().ok().out;
    assert!(number(&second) > number(first));
    place.done(&["admit", "ledger", "--token", first]).code(76);
}

#[test]
fn another_queue_has_other_keys() {
    let (server, place) = redis();
    let other = Place::with_store(format!("queue+{}?queue=other", server.url()));
    place.done(&["acquire", "k", "--ttl", "1m"]).ok();
    other.done(&["acquire", "k", "--ttl", "1m", "-n"]).ok();
    place.done(&["acquire", "k", "--ttl", "1m", "-n"]).code(75);
}

#[test]
fn wrong_uses_say_what_to_do_and_repeat_no_secret() {
    let place = Place::new();
    let failed = place.done(&["queue", "list", "jobs"]).code(2);
    failed.error_line("keeps leases and no queues");
    let mut none = program();
    none.env("HOME", place.path(""))
        .env_remove("XDG_STATE_HOME");
    done(none.args(["queue", "list", "jobs"]))
        .code(2)
        .error_line("queue+redis://");
    let secret = Place::with_store("redis://:hunter2@h");
    let failed = secret.done(&["queue", "list", "jobs"]).code(2);
    assert!(!failed.err.contains("hunter2"), "{failed:?}");
    failed.error_line("write queue+redis:");

    let memory = Place::with_store("memory:");
    let large = vec![b'x'; 512 * 1024 + 1];
    std::fs::write(memory.path("large"), large).unwrap();
    let large = std::fs::File::open(memory.path("large")).unwrap();
    let mut command = memory.lease(&["queue", "put", "jobs"]);
    done(command.stdin(large))
        .code(2)
        .error_line("524288 bytes");
    for bad in [
        &["queue", "put", "", "--data", "x"][..],
        &["queue", "put", "jobs", "--data", "x", "--delay", "9000d"],
        &["queue", "requeue", "jobs"],
        &["queue", "requeue", "jobs", "xyz"],
        &["queue", "work", "jobs"],
        &["queue", "work", "--max-attempts", "0", "jobs", "--", "true"],
        &["queue", "work", "--ttl", "1ms", "jobs", "--", "true"],
    ] {
        let failed = memory.done(bad);
        assert_eq!(failed.code, 2, "{bad:?}: {failed:?}");
    }
}
