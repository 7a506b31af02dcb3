//! `lease run` on a bad day: the lease is lost, the store is gone, the machine
//! stood still, the program was killed.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use support::{Place, done, lives, number, program, until};

/// The `sqlite3` program holding the store's file for itself alone.
struct Locked {
    sqlite: std::process::Child,
}

impl Locked {
    fn new(database: &Path) -> Self {
        let mut sqlite = Command::new("sqlite3")
            .arg(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the sqlite3 program is needed: apt-get install sqlite3");
        let mut stdin = sqlite.stdin.as_ref().unwrap();
        stdin
            .write_all(b".timeout 10000\nBEGIN EXCLUSIVE;\nSELECT 'locked';\n")
            .unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(sqlite.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        assert_eq!(line, "locked\n");
        Self { sqlite }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = self.sqlite.kill();
        let _ = self.sqlite.wait();
    }
}

/// Milliseconds since the Unix epoch, as a child wrote them.
fn stamps(text: &str, word: &str) -> Vec<i64> {
    text.lines()
        .filter_map(|l| l.strip_prefix(word))
        .map(|ns| number(ns) / 1_000_000)
        .collect()
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_millis() as i64
}

/// Writes the time as long as it lives, and on SIGTERM; does not end by that.
const STUBBORN: &str = "
    trap 'date +\"term %s%N\" >> log' TERM
    echo $$ > pid
    while :; do date +'alive %s%N' >> log; sleep 0.02; done";

#[test]
fn an_outage_stops_the_command_before_the_deadline() {
    let place = Place::new();
    let running = place.run(&["--ttl", "3s", "--kill-after", "500ms"], "k", STUBBORN);
    place.wait_for_text("log", "alive");
    // The grant lasts until then at the store, if nothing more is confirmed.
    let remaining = place.holder("k")["remaining_ms"].as_i64().unwrap();
    let locked = Locked::new(&place.database());
    // At worst it was renewed right before the lock.
    let latest = now_ms() + 3_000;
    let earliest = now_ms() + remaining - 3_000;
    let ended = running.end().code(76);
    let over = now_ms();
    drop(locked);
    assert!(ended.err.contains("stopping the command"), "{ended:?}");
    let log = place.text("log");
    let term = stamps(&log, "term ");
    let last = *stamps(&log, "alive ").last().unwrap();
    assert_eq!(term.len(), 1, "{log}");
    assert!(term[0] > earliest && term[0] < latest - 400, "{ended:?}");
    assert!(last < latest, "alive {} ms too late", last - latest);
    assert!(
        last <= term[0] + 700,
        "lived {} ms after SIGTERM",
        last - term[0]
    );
    assert!(!lives(number(&place.text("pid")) as i32));
    assert!(over < latest + 3_000, "ended long after the deadline");
}

#[test]
fn a_command_that_ends_well_after_being_told_to_stop_is_lost_all_the_same() {
    let place = Place::new();
    let script = "trap 'touch told; while [ ! -e go ]; do sleep 0.02; done; exit 0' TERM
        touch ready; while :; do sleep 0.02; done";
    // The renewal is confirmed again after SIGTERM: that undoes nothing.
    let options = ["--ttl", "12s", "--kill-after", "4s"];
    let running = place.run(&options, "k", script);
    until("the command", || place.path("ready").exists());
    let locked = Locked::new(&place.database());
    until("SIGTERM", || place.path("told").exists());
    drop(locked);
    fs::write(place.path("go"), "").unwrap();
    let ended = running.end().code(76);
    assert!(ended.err.contains("was not confirmed in time"), "{ended:?}");
    // It still held the key at the store: it is released, not left to expire.
    place.done(&["run", "-n", "k", "--", "true"]).ok();
}

#[test]
fn a_short_outage_costs_nothing() {
    let place = Place::new();
    let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 3";
    let running = place.run(&["--ttl", "20s"], "k", script);
    until("the command", || place.path("ready").exists());
    drop(Locked::new(&place.database()));
    fs::write(place.path("go"), "").unwrap();
    running.end().code(3);
}

#[test]
fn a_release_that_fails_is_a_notice_and_the_status_stays_the_commands() {
    let place = Place::new();
    let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 3";
    let running = place.run(&["--ttl", "60s"], "k", script);
    until("the command", || place.path("ready").exists());
    let locked = Locked::new(&place.database());
    fs::write(place.path("go"), "").unwrap();
    let ended = running.end().code(3);
    drop(locked);
    ended.error_line("could not be released");
}

#[test]
fn a_release_that_comes_after_the_expiry_leaves_the_commands_status() {
    let place = Place::new();
    let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 3";
    // Each try to release is told at once that it had no effect.
    let url = format!("sqlite://{}?busy_wait_ms=50", place.database().display());
    let options = ["--store", &url, "--ttl", "4500ms", "--kill-after", "0s"];
    let running = place.run(&options, "k", script);
    until("the command", || place.path("ready").exists());
    // Soon before a renewal, which comes with 3 s left: the grant expires
    // before the release gives up.
    until("the right moment", || {
        let left = place.holder("k")["remaining_ms"].as_i64().unwrap();
        (3_100..3_500).contains(&left)
    });
    let locked = Locked::new(&place.database());
    fs::write(place.path("go"), "").unwrap();
    std::thread::sleep(Duration::from_millis(3_700));
    drop(locked);
    let ended = running.end().code(3);
    assert!(ended.err.contains("released"), "{ended:?}");
    place.done(&["run", "-n", "k", "--", "true"]).ok();
}

#[test]
fn the_whole_group_is_killed_when_the_lease_is_lost() {
    let place = Place::new();
    let script = "
        sh -c 'trap \"\" TERM; echo $$ > grandchild; while :; do sleep 0.05; done' &
        trap '' TERM
        echo $$ > child
        while :; do sleep 0.05; done";
    let running = place.run(&["--ttl", "2s", "--kill-after", "100ms"], "k", script);
    until("both", || {
        place.text("grandchild").ends_with('\n') && place.text("child").ends_with('\n')
    });
    let pids = [place.text("child"), place.text("grandchild")].map(|t| number(&t) as i32);
    place.done(&["fence", "k", "--yes"]).ok();
    let ended = running.end().code(76);
    assert!(ended.err.contains("revoked"), "{ended:?}");
    assert!(pids.iter().all(|pid| !lives(*pid)));
}

#[test]
fn a_fence_cuts_a_command_off_and_frees_the_key_at_expiry_or_now() {
    let place = Place::new();
    for now in [false, true] {
        let key = if now { "now" } else { "later" };
        let script =
            format!("trap 'echo told; exit 0' TERM; touch {key}; while :; do sleep 0.02; done");
        let running = place.run(&["--ttl", "4s"], key, &script);
        until("the command", || place.path(key).exists());
        let mut args = vec!["fence", key, "--yes", "--json"];
        args.extend(now.then_some("--now"));
        let fenced = place.done(&args).ok().json();
        place
            .done(&["run", "-n", key, "--", "true"])
            .code(if now { 0 } else { 75 });
        let ended = running.end().code(76);
        assert_eq!(ended.out, "told\n");
        assert!(ended.err.contains("lost"), "{ended:?}");
        let token = fenced["cut_off"]["token"].as_u64().unwrap();
        assert!(fenced["high_water"].as_u64().unwrap() > token);
        // Free within its TTL.
        place.done(&["run", "-w", "10s", key, "--", "true"]).ok();
    }
}

#[test]
fn a_command_that_ended_before_the_loss_was_known_is_lost() {
    let place = Place::new();
    let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 0";
    // The next renewal is 20 s away: the release is the first to hear of it.
    let running = place.run(&["--ttl", "60s"], "k", script);
    until("the command", || place.path("ready").exists());
    place.done(&["fence", "k", "--yes"]).ok();
    fs::write(place.path("go"), "").unwrap();
    running.end().code(76);
}

#[test]
fn the_rest_of_a_group_is_stopped_when_the_lease_is_lost_after_the_commands_end() {
    let place = Place::new();
    let script = "
        sh -c 'trap \"echo told > told\" TERM; echo $$ > pid; while :; do sleep 0.02; done' &
        while [ ! -s pid ]; do sleep 0.02; done; exit 0";
    let running = place.run(&["--ttl", "2s"], "k", script);
    until("the other", || place.text("pid").ends_with('\n'));
    let pid = number(&place.text("pid")) as i32;
    std::thread::sleep(Duration::from_millis(700));
    assert!(lives(pid) && !place.holder("k").is_null());
    place.done(&["fence", "k", "--yes"]).ok();
    let ended = running.end().code(76);
    assert!(ended.err.contains("revoked"), "{ended:?}");
    assert_eq!(place.text("told"), "told\n");
    assert!(!lives(pid));
}

#[test]
fn a_zombie_is_stopped_and_its_late_write_is_refused() {
    let place = Place::new();
    // The zombie's command goes on while `lease run` is stopped, and writes
    // through the fence when it is told to.
    let script = "
        echo $$ > pid; echo $LEASE_TOKEN > token
        while [ ! -e write ]; do sleep 0.02; done
        \"$LEASE\" admit ledger --token $LEASE_TOKEN 2> refused; echo $? > status
        while :; do sleep 0.02; done";
    let first = place.run(&["--ttl", "2s"], "k", script);
    until("the first", || place.text("token").ends_with('\n'));
    first.signal(Signal::SIGSTOP);
    let second = place.run(
        &[],
        "k",
        "echo $LEASE_TOKEN > token2; \"$LEASE\" admit ledger --token $LEASE_TOKEN",
    );
    // It gets the key although the first one still believes in it.
    second.end().ok();
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
    let continued = Instant::now();
    first.signal(Signal::SIGCONT);
    let ended = first.end().code(76);
    assert!(ended.err.contains("lost"), "{ended:?}");
    assert!(!lives(number(&place.text("pid")) as i32));
    assert!(continued.elapsed() < Duration::from_secs(5));
}

#[test]
fn nothing_of_a_command_outlives_a_lease_run_that_is_killed_outright() {
    let place = Place::new();
    let script = "
        sh -c 'trap \"\" TERM INT HUP; echo $$ > grandchild; while :; do sleep 0.05; done' &
        echo $$ > child
        while :; do sleep 0.05; done";
    let running = place.run(&["--ttl", "1s"], "k", script);
    until("both", || {
        place.text("grandchild").ends_with('\n') && place.text("child").ends_with('\n')
    });
    let pids = [place.text("child"), place.text("grandchild")].map(|t| number(&t) as i32);
    running.signal(Signal::SIGKILL);
    // Not `end`: a grandchild that lived would hold the pipes.
    running.status();
    until("their end", || pids.iter().all(|pid| !lives(*pid)));
    // Nobody released it: free within its TTL.
    place.done(&["run", "-w", "10s", "k", "--", "true"]).ok();
}

#[test]
fn nothing_outlives_a_lease_run_that_is_killed_as_soon_as_the_command_runs() {
    let place = Place::new();
    let script = "
        sh -c 'trap \"\" TERM INT HUP; while :; do sleep 0.05; done' &
        echo $! > grandchild; kill -9 $PPID; while :; do sleep 0.05; done";
    for round in 0..10 {
        let key = round.to_string();
        place.run(&["--ttl", "1s"], &key, script).status();
        until("its number", || place.text("grandchild").ends_with('\n'));
        let grandchild = number(&place.text("grandchild")) as i32;
        until("its end", || !lives(grandchild));
        fs::remove_file(place.path("grandchild")).unwrap();
    }
}

#[test]
fn without_the_guard_the_kernel_still_ends_the_command() {
    let place = Place::new();
    let script = "echo $$ > child; while :; do sleep 0.05; done";
    let running = place.run(&["--ttl", "1s"], "k", script);
    until("the command", || place.text("child").ends_with('\n'));
    let child = number(&place.text("child")) as i32;
    let guard = children(running.pid)
        .into_iter()
        .map(|pid| number(&pid) as i32)
        .find(|pid| *pid != child)
        .unwrap();
    let guard = nix::unistd::Pid::from_raw(guard);
    nix::sys::signal::kill(guard, Signal::SIGKILL).unwrap();
    until("the guard's end", || !lives(guard.as_raw()));
    running.signal(Signal::SIGKILL);
    running.status();
    until("the command's end", || !lives(child));
}

#[test]
fn a_store_that_is_not_there_at_the_start_is_status_69() {
    let place = Place::new();
    place.done(&["inspect", "k"]).ok();
    // Busy means unavailable here, and it is said soon.
    let url = format!("sqlite://{}?busy_wait_ms=50", place.database().display());
    let locked = Locked::new(&place.database());
    let timed = |args: &[&str]| {
        let start = Instant::now();
        let ended = done(program().args(["--store", &url]).args(args));
        (ended.code(69), start.elapsed())
    };
    let (ended, took) = timed(&["run", "-n", "k", "--", "true"]);
    assert!(took < Duration::from_secs(5), "{took:?}");
    ended.error_line("unavailable");
    let (_, took) = timed(&["run", "-w", "1s", "k", "--", "true"]);
    assert!(took < Duration::from_secs(8), "{took:?}");
    let (_, took) = timed(&["run", "k", "--", "true"]);
    assert!(
        took > Duration::from_secs(9) && took < Duration::from_secs(40),
        "{took:?}"
    );
    timed(&["acquire", "k", "--ttl", "1m", "-n"]);
    drop(locked);
    place.done(&["run", "-n", "k", "--", "true"]).ok();
}

#[test]
fn an_outage_while_waiting_is_ridden_out() {
    let place = Place::new();
    let url = format!("sqlite://{}?busy_wait_ms=50", place.database().display());
    // Nobody renews it: what the waiter asks for once it is over is a write,
    // and nobody can write then.
    place.done(&["acquire", "k", "--ttl", "6s"]).ok();
    let mut waiter = place.lease(&["run", "--store", &url, "k", "--", "echo", "got it"]);
    let log = fs::File::create(place.path("stderr")).unwrap();
    let waiter = waiter
        .env("LEASE_LOG", "leases=debug")
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    place.wait_for_text("stderr", "the key is held");
    let locked = Locked::new(&place.database());
    place.wait_for_text("stderr", "trying again");
    drop(locked);
    let output = waiter.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, b"got it\n");
    assert!(place.text("stderr").contains("the store answers again"));
}

#[test]
fn a_reader_of_stderr_that_stands_still_delays_no_stop() {
    let place = Place::new();
    // Nobody reads this pipe, and the command fills it.
    let script = "
        trap '' TERM; echo $$ > pid
        while :; do head -c 65536 /dev/zero >&2; done";
    let running = place.run(&["--ttl", "2s", "--kill-after", "200ms"], "k", script);
    until("the command", || place.text("pid").ends_with('\n'));
    let pid = number(&place.text("pid")) as i32;
    place.done(&["fence", "k", "--yes"]).ok();
    until("the kill", || !lives(pid));
    assert_eq!(running.status().code(), Some(76));
}

#[test]
fn nothing_is_left_of_the_program_when_it_has_ended() {
    let place = Place::new();
    place.run(&[], "k", "true").end().ok();
    let mut running = place.run(&[], "k", "exec sleep 1000");
    until("the holder", || !place.holder("k").is_null());
    assert!(running.is_running());
    let guards = children(running.pid);
    assert_eq!(guards.len(), 2, "the command and its guard: {guards:?}");
    running.signal(Signal::SIGTERM);
    running.end().code(143);
    assert!(
        guards
            .iter()
            .all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    );
}

fn children(pid: i32) -> Vec<String> {
    let mut all = Vec::new();
    until("two children", || {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = fs::read_to_string(path).unwrap_or_default();
        all = text.split_whitespace().map(str::to_owned).collect();
        all.len() >= 2
    });
    all
}
