//! A second process that outlives a `lease run` which is killed outright, and
//! then kills the rest of the command's process group.
//!
//! The kernel's parent-death signal reaches the command itself and nobody
//! below it: of `sh -c 'a; b'` it ends the shell, and `b` would write on
//! without a lease. The guard holds one end of a pipe; when the other end goes
//! away while the guard still runs, `lease run` was killed.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

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

    /// Tells the guard whom to guard. `None` when it is gone already.
    pub(super) fn watch(mut self, group: Pid) -> Option<Self> {
        let pipe = self.0.stdin.as_mut()?;
        pipe.write_all(&group.as_raw_pid().to_ne_bytes()).ok()?;
        Some(self)
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
