//! As in a container: nobody reaps what a command leaves behind.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{getpid, set_child_subreaper};
use support::{Place, Running, number, until};

/// A process that ends with its group, whose parent has ended.
const ORPHAN: &str = "
    ( sh -c 'echo $$ > orphan; exec sleep 300' & )
    while [ ! -s orphan ]; do sleep 0.02; done
    touch ready; exec sleep 300";

fn state_of(pid: i64) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest.trim());
    rest.chars().take(1).collect()
}

#[test]
fn a_member_that_nobody_reaps_is_not_waited_for() {
    // Orphans come to this process, which does not look after them.
    set_child_subreaper(Some(getpid())).unwrap();
    let place = Place::new();
    let running = place.run(&["--ttl", "2s"], "k", ORPHAN);
    until("the orphan", || place.path("ready").exists());
    place.done(&["fence", "k", "--yes"]).ok();
    let start = Instant::now();
    running.end().code(76);
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(state_of(number(&place.text("orphan"))), "Z");

    // The same after an end by itself.
    let script = "( sh -c 'echo $$ > second' & ); while [ ! -s second ]; do sleep 0.02; done";
    place.run(&[], "k", script).end().ok();
    assert_eq!(state_of(number(&place.text("second"))), "Z");
}

/// A program in a PID namespace of its own.
fn in_a_namespace(place: &Place, program: &[&str]) -> Command {
    let unshare = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--pid", "--fork", "--mount-proc"]);
        command.args(args);
        for (name, value) in place.lease(&[]).get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(place.path(""));
        command
    };
    let allowed = unshare(&["true"]).status();
    assert!(
        allowed.is_ok_and(|s| s.success()),
        "this test needs namespaces: run it as root, or allow unprivileged user namespaces"
    );
    unshare(program)
}

const LEASE: &str = env!("CARGO_BIN_EXE_lease");

#[test]
fn as_the_first_process_it_reaps_and_ends() {
    let place = Place::new();
    let run = [LEASE, "run", "--ttl", "2s", "k", "--", "sh", "-c", ORPHAN];
    let running = Running::start(&mut in_a_namespace(&place, &run));
    until("the orphan", || place.path("ready").exists());
    place.done(&["fence", "k", "--yes"]).ok();
    let start = Instant::now();
    running.end().code(76);
    assert!(start.elapsed() < Duration::from_secs(10));
}

/// A process that was started into the namespace from outside (`docker exec`,
/// `nsenter`) may have a session and a group that have no number in there.
#[test]
fn a_stop_in_a_session_from_outside_is_between_the_sender_and_the_command() {
    let place = Place::new();
    let script = format!(
        "{LEASE} run --ttl 1s k -- sh -c 'echo $PPID $$ > pids; exec sleep 1000' &
        while [ ! -s pids ]; do sleep 0.02; done
        read lease command < pids
        kill -TSTP $lease
        while ! grep -q '^State:.T' /proc/$command/status; do sleep 0.02; done
        touch stopped
        while [ ! -e go ]; do sleep 0.02; done
        grep '^State:.T' /proc/$command/status
        kill -CONT $lease
        while grep -q '^State:.T' /proc/$command/status; do sleep 0.02; done
        kill -TERM $lease
        wait $!"
    );
    let running = Running::start(&mut in_a_namespace(&place, &["sh", "-c", &script]));
    until("the stop", || place.path("stopped").exists());
    // Longer than its TTL: the lease is renewed meanwhile.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!place.holder("k").is_null());
    std::fs::write(place.path("go"), "").unwrap();
    let ended = running.end();
    assert!(ended.out.contains("State:"), "{ended:?}");
    ended.code(143);
}
