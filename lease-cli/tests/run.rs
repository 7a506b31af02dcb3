//! `lease run` on a good day: statuses, what the command sees, signals, waits.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use support::{Place, Running, lives, number, until};

#[test]
fn the_command_sees_its_key_and_token_and_the_key_is_free_afterwards() {
    let place = Place::new();
    let ran = place.done(&[
        "run",
        "demo",
        "--",
        "sh",
        "-c",
        "echo \"$LEASE_KEY $LEASE_TOKEN\"",
    ]);
    let ran = ran.ok();
    assert_eq!(ran.err, "");
    let (key, token) = ran.out.trim().split_once(' ').unwrap();
    assert_eq!(key, "demo");
    let state = place.inspect("demo");
    assert_eq!(state["high_water"].as_i64().unwrap(), number(token));
    assert!(state["holder"].is_null());
}

#[test]
fn the_status_is_the_commands_own_or_a_shells() {
    let place = Place::new();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
        ("kill -34 $$", 162),
    ] {
        place
            .done(&["run", "k", "--", "sh", "-c", script])
            .code(code);
    }
    let file = place.path("plain");
    std::fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    place
        .done(&["run", "k", "--", file])
        .code(126)
        .error_line("cannot be run");
    place
        .done(&["run", "k", "--", "/nowhere/at/all"])
        .code(127)
        .error_line("not found");
    place.done(&["run", "k", "--", ""]).code(127);
    // Whatever became of the command, the key is free.
    place.done(&["run", "-n", "k", "--", "true"]).ok();
}

#[test]
fn stdin_and_stdout_are_the_commands_own() {
    let place = Place::new();
    let mut command = place.lease(&["run", "k", "--", "sh", "-c", "cat; echo err >&2"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = "line\n".repeat(50_000);
    let mut stdin = child.stdin.take().unwrap();
    let sent = text.clone();
    let writer = std::thread::spawn(move || stdin.write_all(sent.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    assert!(output.stdout == text.as_bytes());
    assert_eq!(output.stderr, b"err\n");
}

#[test]
fn a_key_that_is_held_is_waited_for_as_long_as_was_said() {
    let place = Place::new();
    let holder = place.run(&["--label", "the holder"], "k", "touch held; read x");
    drop(holder); // stdin is empty: it ends at once; the key must be free
    let mut command = place.lease(&["run", "--label", "the holder", "k", "--", "sleep", "1000"]);
    let holder = Running::start(&mut command);
    until("the holder", || !place.holder("k").is_null());

    let none = place.done(&["run", "-n", "k", "--", "true"]).code(75);
    none.error_line("the holder");
    let start = Instant::now();
    let some = place
        .done(&["run", "--wait", "300ms", "k", "--", "true"])
        .code(75);
    some.error_line("still held");
    assert!(start.elapsed() >= Duration::from_millis(300));
    place
        .done(&["acquire", "k", "--ttl", "1m", "-w", "1s"])
        .code(75);

    let waiter = place.run(&[], "k", "echo got it");
    holder.signal(Signal::SIGTERM);
    holder.end().code(143);
    assert_eq!(waiter.end().ok().out, "got it\n");
}

#[test]
fn a_label_says_who_it_is() {
    let place = Place::new();
    let running = place.run(&[], "k", "exec sleep 1000 # secret");
    until("the holder", || !place.holder("k").is_null());
    let label = place.holder("k")["label"].as_str().unwrap().to_owned();
    assert!(label.starts_with("sh by lease["), "{label}");
    assert!(label.contains(&running.pid.to_string()), "{label}");
    assert!(
        !label.contains("secret"),
        "arguments may hold secrets: {label}"
    );
}

#[test]
fn signals_reach_the_whole_process_group() {
    let place = Place::new();
    let script = "
        sh -c 'trap \"echo grandchild >> seen; exit\" USR1; touch ready2
               while :; do sleep 0.02; done' &
        trap 'echo child >> seen' USR1
        trap 'wait; exit 9' TERM
        touch ready1
        while :; do sleep 0.02; done";
    let running = place.run(&[], "k", script);
    until("the traps", || {
        place.path("ready1").exists() && place.path("ready2").exists()
    });
    running.signal(Signal::SIGUSR1);
    place.wait_for_text("seen", "grandchild");
    place.wait_for_text("seen", "child\n");
    running.signal(Signal::SIGTERM);
    running.end().code(9);
    place.done(&["run", "-n", "k", "--", "true"]).ok();
}

#[test]
fn each_signal_is_passed_on_and_shows_in_the_status() {
    let place = Place::new();
    for (signal, code) in [
        (Signal::SIGINT, 130),
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
        (Signal::SIGQUIT, 131),
        (Signal::SIGUSR2, 140),
        (Signal::SIGALRM, 142),
        (Signal::SIGSTKFLT, 144),
        (Signal::SIGXCPU, 152),
        (Signal::SIGXFSZ, 153),
        (Signal::SIGVTALRM, 154),
        (Signal::SIGPROF, 155),
        (Signal::SIGIO, 157),
        (Signal::SIGPWR, 158),
        (Signal::SIGSYS, 159),
    ] {
        let key = format!("k{code}");
        let running = place.run(&[], &key, &format!("touch ready{code}; exec sleep 1000"));
        until("the command", || {
            place.path(&format!("ready{code}")).exists()
        });
        running.signal(signal);
        running.end().code(code);
        place.done(&["run", "-n", &key, "--", "true"]).ok();
    }
}

#[test]
fn signals_without_an_effect_are_passed_on() {
    let place = Place::new();
    // ALRM, URG, IO: without a trap, death or nothing at all.
    for number in [14, 23, 29] {
        let name = format!("seen{number}");
        let script = format!(
            "trap 'touch {name}; exit 5' {number}; touch ready{number}
             while :; do sleep 0.02; done"
        );
        let running = place.run(&[], "k", &script);
        until("the trap", || {
            place.path(&format!("ready{number}")).exists()
        });
        let kill = format!("kill -{number} {}", running.pid);
        let mut shell = std::process::Command::new("bash");
        assert!(shell.args(["-c", &kill]).status().unwrap().success());
        running.end().code(5);
        assert!(place.path(&name).exists());
    }
}

#[test]
fn without_job_control_a_stop_is_between_the_sender_and_the_command() {
    let place = Place::new();
    // One process, that forks nothing: a shell that is stopped while it forks
    // waits for its stopped child instead, and is never seen as stopped.
    let script = "echo $$ > pid; exec sleep 1000";
    let running = place.run(&["--ttl", "1s"], "k", script);
    until("the command", || place.text("pid").ends_with('\n'));
    let pid = number(&place.text("pid")) as i32;
    let is_stopped = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.contains("State:\tT")
    };
    running.signal(Signal::SIGTSTP);
    until("the stop", is_stopped);
    // Longer than its TTL: the lease is renewed meanwhile.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(is_stopped() && !place.holder("k").is_null());
    running.signal(Signal::SIGCONT);
    until("the end of the stop", || !is_stopped());
    running.signal(Signal::SIGTERM);
    running.end().code(143);
}

#[test]
fn a_key_may_look_like_an_option() {
    let place = Place::new();
    let script = "echo \"$LEASE_KEY\" \"$@\"";
    for args in [
        &["run", "--", "-k", "--", "sh", "-c", script, "x", "--", "y"][..],
        &["run", "--", "-k", "sh", "-c", script, "x", "--", "y"],
        &[
            "run", "-n", "--ttl", "9s", "--", "-k", "sh", "-c", script, "x", "--", "y",
        ],
    ] {
        assert_eq!(place.done(args).ok().out, "-k -- y\n");
    }
    let usual = ["run", "k", "--", "sh", "-c", script, "x", "--", "y"];
    assert_eq!(place.done(&usual).ok().out, "k -- y\n");
    for args in [
        &["run", "--", "-k"][..],
        &["run", "--", "-k", "--"],
        &["run", "--", "", "true"],
    ] {
        place.done(args).code(2).error_line("see lease --help");
    }
}

#[test]
fn a_store_that_was_named_is_the_commands_store_too() {
    let place = Place::new();
    let url = format!("sqlite://{}", place.path("other.db").display());
    let script = "echo \"$LEASE_STORE\"; \"$LEASE\" inspect k --json";
    let args = ["run", "--store", &url, "k", "--", "sh", "-c", script];
    let ran = place.done(&args).ok();
    let (store, state) = ran.out.split_once('\n').unwrap();
    assert_eq!(store, url);
    assert!(state.contains("\"token\""), "{state}");
}

#[test]
fn a_store_in_memory_is_said_to_exclude_nobody() {
    let place = Place::new();
    let ran = place
        .done(&["run", "--store", "memory:", "k", "--", "true"])
        .ok();
    ran.error_line("excludes nobody");
}

#[test]
fn signals_that_our_caller_ignores_stay_ignored() {
    let place = Place::new();
    let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 5";
    let lease = env!("CARGO_BIN_EXE_lease");
    let mut command = place.lease(&[]);
    // `nohup` does just this, and more with its output.
    let wrapped = format!("trap '' HUP; exec '{lease}' run k -- sh -c '{script}'");
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", &wrapped])
        .current_dir(command.get_current_dir().unwrap());
    for (name, value) in command.env("X", "x").get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    shell.env_remove("LEASE_LOG");
    let running = Running::start(&mut shell);
    until("the command", || place.path("ready").exists());
    running.signal(Signal::SIGHUP);
    std::fs::write(place.path("go"), "").unwrap();
    running.end().code(5);
}

#[test]
fn a_wait_that_a_signal_ends_leaves_nothing_behind() {
    let place = Place::new();
    let holder = place.run(&[], "k", "exec sleep 1000");
    until("the holder", || !place.holder("k").is_null());
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        for command in ["run", "acquire"] {
            let mut args = vec![command, "k"];
            match command {
                "run" => args.extend(["--", "true"]),
                _ => args.extend(["--ttl", "30s"]),
            }
            let mut waiter = place.lease(&args);
            let waiter = Running::start(waiter.env("LEASE_LOG", "trace").process_group(0));
            // It has asked and goes to sleep: its signals are in place.
            wait_until_it_catches(waiter.pid, signal);
            waiter.signal(signal);
            let ended = waiter.end().code(code);
            assert_eq!(ended.out, "");
        }
    }
    assert!(!place.holder("k").is_null());
    holder.signal(Signal::SIGTERM);
    holder.end().code(143);
    place.done(&["run", "-n", "k", "--", "true"]).ok();
}

/// Until the process has a handler for the signal.
fn wait_until_it_catches(pid: i32, signal: Signal) {
    until("the signal handler", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.unwrap_or(0) >> (signal as i32 - 1) & 1 == 1
    });
}

#[test]
fn a_daemon_in_a_session_of_its_own_is_left_alone() {
    let place = Place::new();
    let script = "setsid sh -c 'echo $$ > pid; exec sleep 1000' > /dev/null 2>&1 &
        while [ ! -s pid ]; do sleep 0.02; done";
    let ended = place.run(&[], "k", script).end().ok();
    assert_eq!(ended.err, "");
    let pid = number(&place.text("pid")) as i32;
    assert!(lives(pid));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

/// Works on after it was told to stop, and says when it has finished.
const THOROUGH: &str = "
    sh -c 'trap \"sleep 1.5; echo finished >> log; exit\" TERM; touch ready
           while :; do sleep 0.02; done' > /dev/null 2>&1 &
    while [ ! -e ready ]; do sleep 0.02; done";

#[test]
fn the_key_stays_held_while_others_of_a_stopped_group_work() {
    let place = Place::new();
    let running = place.run(
        &["--ttl", "1s"],
        "k",
        &format!("{THOROUGH}\nexec sleep 1000"),
    );
    until("the trap", || place.path("ready").exists());
    let waiter = place.run(&[], "k", "echo second >> log");
    running.signal(Signal::SIGTERM);
    let ended = running.end().code(143);
    ended.error_line("others of its process group have not");
    waiter.end().ok();
    assert_eq!(place.text("log"), "finished\nsecond\n");
}

#[test]
fn the_key_stays_held_while_a_background_process_works() {
    let place = Place::new();
    let running = place.run(&["--ttl", "1s"], "k", &format!("{THOROUGH}\nexit 4"));
    until("the trap", || place.path("ready").exists());
    let waiter = place.run(&[], "k", "echo second >> log");
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(place.text("log"), "");
    // Signals still reach the group.
    running.signal(Signal::SIGTERM);
    let ended = running.end().code(4);
    ended.error_line("setsid");
    waiter.end().ok();
    assert_eq!(place.text("log"), "finished\nsecond\n");
}

#[test]
fn what_ends_soon_after_the_command_is_not_talked_about() {
    let place = Place::new();
    let ended = place.run(&[], "k", "sleep 0.1 & exit 6").end().code(6);
    assert_eq!(ended.err, "");
}
