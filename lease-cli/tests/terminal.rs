//! On a terminal: the command gets it, Ctrl-C and Ctrl-Z do what they should,
//! and questions are asked.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use support::{PATIENCE, Place};

/// A terminal with a program on it, which it controls.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    fn new(place: &Place, program: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap();
        let open = || {
            let path = path.to_str().unwrap();
            File::options().read(true).write(true).open(path).unwrap()
        };
        // A session of its own whose terminal is this one. (util-linux is
        // essential on Debian.)
        let base = place.lease(&[]);
        let mut command = std::process::Command::new("setsid");
        command.args(["-c", "-w"]).args(program);
        for (name, value) in base.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let folder = std::path::Path::new(env!("CARGO_BIN_EXE_lease"));
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", folder.parent().unwrap().display());
        let child = command
            .current_dir(base.get_current_dir().unwrap())
            .env("PATH", path)
            .env("PS1", "ready> ")
            .stdin(Stdio::from(open()))
            .stdout(Stdio::from(open()))
            .stderr(Stdio::from(open()))
            .spawn()
            .unwrap();
        let keyboard = File::from(master);
        let mut output = keyboard.try_clone().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Ends when nobody has the terminal open any more.
            while let Ok(n @ 1..) = output.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..n]);
                shown.lock().unwrap().push_str(&text);
            }
        });
        Self {
            child,
            keyboard,
            screen,
        }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.screen.lock().unwrap().contains(text) {
            let shown = self.screen.lock().unwrap().clone();
            assert!(Instant::now() < end, "no {text:?} on the screen: {shown:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn clear(&self) {
        self.screen.lock().unwrap().clear();
    }

    fn status(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

/// Without its line editor, so that all echo is the terminal's own.
const SHELL: &[&str] = &["bash", "--norc", "--noediting", "-i"];
const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const CTRL_Z: &str = "\u{1a}";

#[test]
fn the_command_reads_the_terminal_and_gets_its_ctrl_c() {
    let place = Place::new();
    let mut terminal = Terminal::new(&place, &["lease", "run", "k", "--", "cat"]);
    terminal.press("hello\n");
    terminal.wait_for("hello\r\nhello");
    terminal.press(CTRL_C);
    assert_eq!(terminal.status(), Some(130));
    place.done(&["run", "-n", "k", "--", "true"]).ok();
}

#[test]
fn ctrl_z_where_nobody_could_continue_it_does_no_harm() {
    let place = Place::new();
    let mut terminal = Terminal::new(&place, &["lease", "run", "k", "--", "cat"]);
    terminal.press("one\n");
    terminal.wait_for("one\r\none");
    terminal.press(CTRL_Z);
    terminal.wait_for("^Z");
    terminal.press("two\n");
    terminal.wait_for("two\r\ntwo");
    terminal.press(CTRL_D);
    assert_eq!(terminal.status(), Some(0));
}

#[test]
fn a_shell_can_stop_it_and_continue_it() {
    let place = Place::new();
    let mut terminal = Terminal::new(&place, SHELL);
    terminal.wait_for("ready> ");
    terminal.press("lease run --ttl 2m k -- cat\n");
    terminal.press("one\n");
    terminal.wait_for("one\r\none");
    terminal.press(CTRL_Z);
    terminal.wait_for("Stopped");
    terminal.press("fg\n");
    terminal.wait_for("fg\r\nlease run");
    terminal.press("two\n");
    terminal.wait_for("two\r\ntwo");
    terminal.press(CTRL_D);
    terminal.press("echo status $?\n");
    terminal.wait_for("status 0");
    terminal.press("exit 0\n");
    assert_eq!(terminal.status(), Some(0));
}

#[test]
fn one_that_was_stopped_for_too_long_is_killed_when_it_is_continued() {
    let place = Place::new();
    let mut terminal = Terminal::new(&place, SHELL);
    terminal.wait_for("ready> ");
    terminal.press("lease run --ttl 2s k -- cat\n");
    terminal.press("one\n");
    terminal.wait_for("one\r\none");
    terminal.press(CTRL_Z);
    terminal.wait_for("Stopped");
    // Somebody else gets the key.
    place.done(&["run", "k", "--", "true"]).ok();
    terminal.clear();
    terminal.press("fg\n");
    terminal.wait_for("lost");
    terminal.press("echo status $?\n");
    terminal.wait_for("status 76");
    terminal.press("exit 0\n");
    terminal.status();
}

#[test]
fn a_reader_behind_a_pipe_keeps_the_terminal() {
    let place = Place::new();
    let mut terminal = Terminal::new(&place, SHELL);
    terminal.wait_for("ready> ");
    // The right side asks the terminal, as a pager does.
    terminal.press("lease run k -- echo x | { cat; read y < /dev/tty; echo got $y; }\n");
    terminal.press("answer\n");
    terminal.wait_for("got answer");
    terminal.press("exit 0\n");
    assert_eq!(terminal.status(), Some(0));
}

#[test]
fn fence_says_who_is_cut_off_and_asks() {
    let place = Place::new();
    let acquire = ["acquire", "k", "--ttl", "5m", "--label", "the holder"];
    place.done(&acquire).ok();
    for answer in ["n\n", "\n", CTRL_D] {
        let mut terminal = Terminal::new(&place, &["lease", "fence", "k"]);
        terminal.wait_for("[y/N]");
        terminal.wait_for("k is held by the holder");
        terminal.press(answer);
        assert_eq!(terminal.status(), Some(1));
        assert_eq!(place.holder("k")["label"], "the holder");
    }
    let mut terminal = Terminal::new(&place, &["lease", "fence", "k"]);
    terminal.wait_for("[y/N]");
    terminal.press("y\n");
    assert_eq!(terminal.status(), Some(0));
    assert!(place.holder("k").is_null());
    // Nobody to cut off, nothing to ask.
    let terminal = Terminal::new(&place, &["lease", "fence", "k"]);
    assert_eq!(terminal.status(), Some(0));
}

#[test]
fn freeing_a_blocked_key_at_once_is_asked_about_too() {
    let place = Place::new();
    place.done(&["acquire", "k", "--ttl", "5m"]).ok();
    place.done(&["fence", "k"]).ok();
    let mut terminal = Terminal::new(&place, &["lease", "fence", "k", "--now"]);
    terminal.wait_for("two may believe");
    terminal.wait_for("Free it? [y/N]");
    terminal.press("n\n");
    assert_eq!(terminal.status(), Some(1));
    assert!(place.inspect("k")["blocked_ms"].is_u64());
    let mut terminal = Terminal::new(&place, &["lease", "fence", "k", "--now"]);
    terminal.wait_for("[y/N]");
    terminal.press("y\n");
    terminal.wait_for("not blocked any more");
    assert_eq!(terminal.status(), Some(0));
    assert!(place.inspect("k")["blocked_ms"].is_null());
    // Without --now it changes nothing for anybody, and does not ask.
    place.done(&["acquire", "k", "--ttl", "5m"]).ok();
    place.done(&["fence", "k"]).ok();
    let terminal = Terminal::new(&place, &["lease", "fence", "k"]);
    terminal.wait_for("the key is free in");
    assert_eq!(terminal.status(), Some(0));
}

#[test]
fn whoever_took_the_key_while_the_question_stood_is_asked_about_anew() {
    let place = Place::new();
    let acquire = |label: &str| {
        let args = ["acquire", "k", "--ttl", "5m", "--json", "--label", label];
        place.done(&args).ok().json()
    };
    let first = acquire("the first");
    let mut terminal = Terminal::new(&place, &["lease", "fence", "k"]);
    terminal.wait_for("k is held by the first");
    let (owner, token) = (&first["owner"], first["token"].to_string());
    let owner = owner.as_str().unwrap();
    let release = ["release", "k", "--owner", owner, "--token", &token];
    place.done(&release).ok();
    acquire("the second");
    terminal.press("y\n");
    terminal.wait_for("k is held by the second");
    assert_eq!(place.holder("k")["label"], "the second");
    terminal.press("y\n");
    terminal.wait_for("cut off: the second");
    assert_eq!(terminal.status(), Some(0));
    assert!(place.holder("k").is_null());
}
