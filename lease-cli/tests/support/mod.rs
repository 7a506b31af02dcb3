//! The real program in real processes, on a store of each test's own.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Longer than anything here takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a store in it.
pub struct Place {
    dir: tempfile::TempDir,
    /// The store, where it is not in the folder.
    url: Option<String>,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, url: None }
    }

    /// With a store that is elsewhere.
    pub fn with_store(url: impl ToString) -> Self {
        Self {
            url: Some(url.to_string()),
            ..Self::new()
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn database(&self) -> PathBuf {
        self.path("leases.db")
    }

    /// The program with this place's store.
    pub fn lease(&self, args: &[&str]) -> Command {
        let mut command = program();
        let file = || format!("sqlite://{}", self.database().display());
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("LEASE_STORE", self.url.clone().unwrap_or_else(file))
            // Where the scripts of the tests find it.
            .env("LEASE", env!("CARGO_BIN_EXE_lease"));
        command
    }

    /// Runs to its end.
    pub fn done(&self, args: &[&str]) -> Done {
        done(&mut self.lease(args))
    }

    /// `lease run OPTIONS KEY -- sh -c SCRIPT`, in the background.
    pub fn run(&self, options: &[&str], key: &str, script: &str) -> Running {
        let mut args = vec!["run"];
        args.extend(options);
        args.extend([key, "--", "sh", "-c", script]);
        Running::start(&mut self.lease(&args))
    }

    pub fn inspect(&self, key: &str) -> Value {
        self.done(&["inspect", key, "--json"]).ok().json()
    }

    pub fn holder(&self, key: &str) -> Value {
        self.inspect(key)["holder"].clone()
    }

    /// Everything that was written to a file, if it is there.
    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub fn wait_for_text(&self, name: &str, wanted: &str) {
        until(&format!("{wanted:?} in {name}"), || {
            self.text(name).contains(wanted)
        });
    }
}

pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lease"));
    command.env_remove("LEASE_LOG").env_remove("LEASE_STORE");
    command.stdin(Stdio::null());
    command
}

/// A process that has ended.
#[derive(Debug)]
pub struct Done {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn done(command: &mut Command) -> Done {
    let output = command.output().unwrap();
    from_output(output)
}

fn from_output(output: Output) -> Done {
    Done {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Done {
    #[track_caller]
    pub fn ok(self) -> Self {
        self.code(0)
    }

    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// Errors are one line.
    #[track_caller]
    pub fn error_line(&self, part: &str) {
        assert!(self.err.starts_with("lease: "), "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        assert!(self.err.contains(part), "{self:?}");
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// A process in the background, killed when the test ends.
pub struct Running {
    child: Option<Child>,
    pub pid: i32,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            pid: child.id() as i32,
            child: Some(child),
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid), signal).unwrap();
    }

    pub fn end(mut self) -> Done {
        from_output(self.child.take().unwrap().wait_with_output().unwrap())
    }

    pub fn status(mut self) -> ExitStatus {
        self.child.take().unwrap().wait().unwrap()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process is there and has not ended.
pub fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map_or("", |(_, rest)| rest.trim());
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

pub fn number(text: &str) -> i64 {
    text.trim()
        .parse()
        .unwrap_or_else(|e| panic!("{e}: {text:?}"))
}

pub fn exists(path: &Path) -> bool {
    path.exists()
}

pub fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys
}
