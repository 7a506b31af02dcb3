//! The test servers from an image, where a Docker engine runs; where none does,
//! it is said, and with `LEASES_REQUIRE_DOCKER=1` it is a failure.
#![cfg(unix)]
// Helpers of tests, too, and what must be seen in every run.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::process::ExitCode;

use lease_conformance::servers::container::engine;
use lease_conformance::servers::redis::{Persistence, RedisBuilder, RedisServer, Reply};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

const REQUIRE: &str = "LEASES_REQUIRE_DOCKER";

type Test = fn();

const TESTS: [(&str, Test); 4] = [
    (
        "a_server_keeps_what_its_persistence_says",
        a_server_keeps_what_its_persistence_says,
    ),
    (
        "a_server_is_paused_and_goes_on",
        a_server_is_paused_and_goes_on,
    ),
    (
        "a_replica_follows_its_primary",
        a_replica_follows_its_primary,
    ),
    (
        "dropping_leaves_nothing_behind",
        dropping_leaves_nothing_behind,
    ),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = match engine() {
        Ok(()) => TESTS.map(|(name, test)| {
            Trial::test(name, move || {
                test();
                Ok(())
            })
        }),
        Err(e) => TESTS.map(|(name, _)| without(name, &e.to_string(), &arguments)),
    };
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

/// Never a silent success.
fn without(name: &'static str, why: &str, arguments: &Arguments) -> Trial {
    let words = "no Docker engine: the container path was not run";
    let why = format!("{words}: {why}");
    if std::env::var_os(REQUIRE).is_some_and(|value| value == "1") {
        return Trial::test(name, move || Err(Failed::from(why)));
    }
    if !arguments.list && name == TESTS[0].0 {
        eprintln!("\n{why}\n({REQUIRE}=1 makes this a failure)");
    }
    Trial::ignorable_test(name, move || Ok(Completion::ignored_with(words)))
        .with_kind(words)
        .with_ignored_flag(true)
}

/// From the image that `LEASES_REDIS_IMAGE` names, as `name:tag`.
fn builder() -> RedisBuilder {
    let image = std::env::var("LEASES_REDIS_IMAGE").unwrap_or_else(|_| "redis:7.4".into());
    let (name, tag) = image.rsplit_once(':').unwrap_or((&image, "latest"));
    RedisServer::builder().in_container(name, tag)
}

fn has(server: &RedisServer, key: &str) -> bool {
    server.command(&["EXISTS", key]).unwrap() == Reply::Integer(1)
}

fn a_server_keeps_what_its_persistence_says() {
    let server = builder().persistence(Persistence::Rdb).start().unwrap();
    assert_eq!(server.pid(), None);
    server.command(&["SET", "saved", "x"]).unwrap();
    server.save().unwrap();
    server.command(&["SET", "unsaved", "x"]).unwrap();
    let address = server.address();
    server.kill().unwrap();
    server.start().unwrap();
    assert_eq!(server.address(), address);
    assert!(has(&server, "saved") && !has(&server, "unsaved"));
    server.command(&["SET", "stopped", "x"]).unwrap();
    server.restart().unwrap();
    assert!(has(&server, "stopped"));
    server.restart_empty().unwrap();
    assert!(!has(&server, "saved"));
}

fn a_server_is_paused_and_goes_on() {
    let server = builder().start().unwrap();
    server.pause().unwrap();
    server.command(&["PING"]).unwrap_err();
    server.resume().unwrap();
    server.command(&["PING"]).unwrap();
    server.resume().unwrap();
}

fn a_replica_follows_its_primary() {
    let primary = builder().tls().password("secret").start().unwrap();
    let replica = builder().tls().replica_of(&primary).start().unwrap();
    replica.wait_until_linked().unwrap();
    assert_eq!(replica.info("role").unwrap().as_deref(), Some("slave"));
}

fn dropping_leaves_nothing_behind() {
    let server = builder().start().unwrap();
    let (folder, address) = (server.folder().to_owned(), server.address());
    drop(server);
    assert!(!folder.exists());
    std::net::TcpStream::connect(address).unwrap_err();
}
