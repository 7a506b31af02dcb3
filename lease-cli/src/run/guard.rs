//! A second process that outlives a `lease run` which is killed outright, and
//! then kills the rest of the command's process group.
//!
//! The kernel's parent-death signal reaches the command itself and nobody
//! below it: of `sh -c 'a; b'` it ends the shell, and `b` would write on
//! without a lease. The guard holds one end of a pipe; when the other end goes
//! away while the guard still runs, `lease run` was killed.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use nix::sys::signal::{SigHandler, signal};
use rustix::process::{Pid, Signal, getpid, kill_process_group};

/// The hidden first argument that makes this program a guard.
pub(crate) const ARGUMENT: &str = "__guard";

/// The guard, as `lease run` knows it. Dropping it ends the guard: there is
/// nothing to guard any more.
#[derive(Debug)]
pub(super) struct Guard(Child);

impl Guard {
    /// Starts a guard before there is anything to guard. Without one (no more
    /// processes, no /proc) the parent-death signal must do.
    pub(super) fn start() -> Option<Self> {
        let program = std::env::current_exe().ok()?;
        let guard = Command::new(program)
            .arg(ARGUMENT)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Out of reach of signals meant for us or for the command.
            .process_group(0)
            .spawn();
        guard.ok().map(Self)
    }

    /// By which the command names itself, before it is run: told by us
    /// afterwards, the guard would never hear of it if we were killed between.
    pub(super) fn line(&self) -> io::Result<Line> {
        let pipe = self.0.stdin.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        pipe.as_fd().try_clone_to_owned().map(Line)
    }
}

/// To the guard, from the process that becomes the command.
#[derive(Debug)]
pub(super) struct Line(OwnedFd);

impl Line {
    /// Tells the guard that this process leads the group to guard.
    ///
    /// For a process between fork and exec, whose handling of signals nobody
    /// else looks at: plain system calls, no heap, no lock. A guard that is gone
    /// is no reason not to run.
    #[allow(unsafe_code)]
    pub(super) fn name_ourselves(&self) {
        // SAFETY: no handler of ours is put in, and the one that was there is
        // put back.
        let before = unsafe { signal(nix::sys::signal::Signal::SIGPIPE, SigHandler::SigIgn) };
        let _ = rustix::io::write(&self.0, &getpid().as_raw_pid().to_ne_bytes());
        if let Ok(before) = before {
            // SAFETY: as above.
            let _ = unsafe { signal(nix::sys::signal::Signal::SIGPIPE, before) };
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Killed and waited for before its pipe is closed: it must not take
        // that for our death, nor stay as a zombie where nobody reaps.
        let _ = self.0.kill();
        let pipe = self.0.stdin.take();
        let _ = self.0.wait();
        drop(pipe);
    }
}

/// The guard itself.
pub(crate) fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    {
        // Not "lease": whoever kills all of those by name means the others.
        let _ = rustix::thread::set_name(c"lguard");
    }
    let mut pipe = std::io::stdin().lock();
    let mut group = [0; 4];
    if pipe.read_exact(&mut group).is_err() {
        return ExitCode::SUCCESS;
    }
    // Nothing comes after that but the end.
    let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    if let Some(group) = Pid::from_raw(i32::from_ne_bytes(group)) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    ExitCode::SUCCESS
}
