//! The command's process and its group.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use leases::Lease;
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group, waitid,
};

use super::group::Group;
use super::guard::{Guard, Line};
use super::terminal::Terminal;
use crate::exit::{Exit, Failure};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(i32),
    Signalled(i32),
}

impl Ended {
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Exited(code) => Exit::Command(code as u8),
            Self::Signalled(signal) => Exit::Signalled(signal),
        }
    }

    /// For people.
    pub(crate) fn words(self) -> String {
        match self {
            Self::Exited(code) => format!("the command ended with status {code}"),
            Self::Signalled(signal) => format!("the command was ended by signal {signal}"),
        }
    }

    pub(crate) fn by_itself(self) -> bool {
        matches!(self, Self::Exited(_))
    }
}

/// What is started, and what it is given.
pub(crate) struct Given<'a> {
    pub(crate) command: &'a [OsString],
    /// Set in its environment, or taken out of what it inherits.
    pub(crate) variables: Vec<(&'static str, Option<String>)>,
    /// What it reads from its stdin; without, it has ours.
    pub(crate) input: Option<Vec<u8>>,
}

impl<'a> Given<'a> {
    /// A command under a lease.
    pub(super) fn under(lease: &Lease, command: &'a [OsString], store: Option<&str>) -> Self {
        let mut variables = vec![
            ("LEASE_KEY", Some(lease.key().as_str().to_owned())),
            ("LEASE_TOKEN", Some(lease.token().to_string())),
        ];
        if let Some(store) = store {
            variables.push(("LEASE_STORE", Some(store.to_owned())));
        }
        Self {
            command,
            variables,
            input: None,
        }
    }
}

/// A command that was started, leader of its own process group.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    /// Whether the leader was waited for: its pid may be somebody else's then.
    reaped: Cell<bool>,
    /// Ends with the child's supervision.
    _guard: Option<Guard>,
}

impl Child {
    /// Starts a command. With a terminal whose foreground is ours, its group gets
    /// that.
    ///
    /// Must be called on a thread that lives as long as the process: the
    /// parent-death signal fires when the *thread* that forked ends. The
    /// runtime has one thread, the main one.
    pub(crate) fn spawn(given: Given<'_>, terminal: Option<&Terminal>) -> Result<Self, Failure> {
        let program = given.command.first().map_or(OsStr::new(""), |p| p);
        // Once: of a second time the mask from before would be our own.
        let mask = match terminal {
            Some(_) => block_ttou(),
            None => SigSet::thread_get_mask().map_err(io::Error::from),
        };
        let mask = mask.map_err(|error| cannot_run(program, &error))?;
        let guard = Guard::start();
        let mut command_ = Command::new(program);
        command_.args(given.command.iter().skip(1)).process_group(0);
        for (name, value) in given.variables {
            match value {
                Some(value) => command_.env(name, value),
                None => command_.env_remove(name),
            };
        }
        if given.input.is_some() {
            command_.stdin(Stdio::piped());
        }
        let us = getpid();
        let foreground = terminal.is_some_and(Terminal::goes_to_child);
        let line = guard.as_ref().and_then(|guard| guard.line().ok());
        let prepare = move || prepare(us, foreground, &mask, line.as_ref());
        // SAFETY: the closure runs between fork and exec, where only
        // async-signal-safe calls are sound. It makes plain system calls
        // (prctl, getppid, sigaction, write, ioctl, rt_sigprocmask) and touches
        // neither the heap nor a lock. There is no other way to set a parent-death signal
        // before the command runs.
        #[allow(unsafe_code)]
        unsafe {
            command_.pre_exec(prepare);
        }
        match command_.spawn() {
            Ok(mut child) => {
                let pid = Pid::from_child(&child);
                if let (Some(mut pipe), Some(input)) = (child.stdin.take(), given.input) {
                    // A command need not read, and a pipe holds little: a thread waits
                    // for it, and ends with the last reader.
                    std::thread::spawn(move || pipe.write_all(&input));
                }
                // The process ends without `child.wait()`: it is waited for by
                // its pid, stops included.
                Ok(Self {
                    pid,
                    reaped: Cell::new(false),
                    _guard: guard,
                })
            }
            Err(error) => {
                if foreground && let Some(terminal) = terminal {
                    terminal.hand_to_us();
                }
                Err(cannot_run(program, &error))
            }
        }
    }

    pub(crate) fn group(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the whole group.
    pub(crate) fn signal(&self, signal: Signal) {
        let sent = kill_process_group(self.pid, signal).is_ok();
        if !self.reaped.get() && (!sent || signal == Signal::KILL) {
            // It may have left its group, or taken another user's rights.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// How the leader ended, if it has. It stays a zombie until `reap`, so that
    /// its group's number cannot go to somebody else.
    pub(crate) fn ended(&self) -> Option<Ended> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.pid), options) {
            Ok(Some(status)) => status
                .exit_status()
                .map(Ended::Exited)
                .or_else(|| status.terminating_signal().map(Ended::Signalled)),
            Ok(None) => None,
            // Somebody else reaped it; nothing is known but that it is gone.
            Err(_) => Some(Ended::Exited(i32::from(Exit::Internal.code()))),
        }
    }

    /// The signal that stopped the leader, once for each stop.
    pub(crate) fn stopped(&self) -> Option<i32> {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(self.pid), options).ok()??;
        status.stopping_signal()
    }

    /// Ends the zombie of a leader that has ended.
    pub(crate) fn reap(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        if !matches!(waitid(WaitId::Pid(self.pid), options), Ok(None)) {
            self.reaped.set(true);
        }
    }

    /// The leader's group, once the leader has ended and is reaped.
    pub(crate) fn rest(&self) -> Group {
        Group::new(self.pid)
    }
}

/// Between fork and exec. See `Child::spawn` for what is allowed in here.
fn prepare(parent: Pid, foreground: bool, mask: &SigSet, guard: Option<&Line>) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before that took effect.
        if rustix::process::getppid() != Some(parent) {
            return Err(rustix::io::Errno::SRCH.into());
        }
    }
    if let Some(guard) = guard {
        guard.name_ourselves();
    }
    if foreground {
        // SIGTTOU is still blocked; a terminal that is gone is no reason not
        // to run.
        let _ = rustix::termios::tcsetpgrp(rustix::stdio::stdin(), getpid());
    }
    mask.thread_set_mask()?;
    Ok(())
}

/// Blocks SIGTTOU, so that the foreground can be given and taken back from the
/// background. Returns the mask from before, which belongs to the child.
fn block_ttou() -> io::Result<SigSet> {
    let mut ttou = SigSet::empty();
    ttou.add(nix::sys::signal::Signal::SIGTTOU);
    Ok(ttou.thread_swap_mask(SigmaskHow::SIG_BLOCK)?)
}

/// As a shell says it: 127 when it was not found, 126 when it cannot be run.
fn cannot_run(program: &OsStr, error: &io::Error) -> Failure {
    let program = program.to_string_lossy();
    if error.kind() == io::ErrorKind::NotFound {
        let words = format!("{program:?} was not found; check its name and PATH");
        return Failure::new(Exit::NotFound, words);
    }
    Failure::new(
        Exit::NotExecutable,
        format!("{program:?} cannot be run: {error}"),
    )
}
