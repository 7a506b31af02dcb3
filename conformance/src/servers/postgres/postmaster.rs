//! The processes of one server: the one that was started, and its children,
//! each of which is in a session and a process group of its own.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use rustix::process::{Pid, Signal, kill_process};

use crate::servers::ServerError;
use crate::servers::account::Account;
use crate::servers::parts::{Ends, LIMIT, until};
use crate::servers::proc::{Seen, users_of_segment};
use crate::servers::process::{Process, SIGNAL_LIMIT, stands_still};
use crate::servers::tool::{as_account, run};

/// For the end of a server that nobody waits for.
const DROP_LIMIT: Duration = Duration::from_secs(5);

/// How an administrator ends a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    /// Sessions are cut, everything is written.
    Fast,
    /// Every process ends where it is.
    Immediate,
}

impl Shutdown {
    fn signal(self) -> Signal {
        match self {
            Self::Fast => Signal::INT,
            Self::Immediate => Signal::QUIT,
        }
    }
}

/// A server that runs. Dropping it ends it at once.
#[derive(Debug)]
pub(super) struct Postmaster {
    process: Option<Process>,
    data: PathBuf,
    account: Option<Account>,
}

impl Postmaster {
    pub(super) fn new(process: Process, data: &Path, account: Option<Account>) -> Self {
        Self {
            process: Some(process),
            data: data.to_owned(),
            account,
        }
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Stops all processes where they are; the first one first, so that it
    /// starts no others.
    pub(super) fn pause(&self) -> Result<(), ServerError> {
        self.process().and_then(Process::pause)?;
        for child in self.children() {
            signal(child, Signal::STOP);
        }
        for child in self.children() {
            stands_still(child.pid)?;
        }
        Ok(())
    }

    pub(super) fn resume(&self) -> Result<(), ServerError> {
        for child in self.children() {
            signal(child, Signal::CONT);
        }
        self.process().and_then(Process::resume)
    }

    pub(super) fn shut_down(mut self, how: Shutdown) -> Result<(), ServerError> {
        self.end_by(how, LIMIT)
    }

    fn end_by(&mut self, how: Shutdown, limit: Duration) -> Result<(), ServerError> {
        self.resume()?;
        let process = self.process.as_mut().ok_or(ServerError::NotRunning)?;
        process.ask_to_end(how.signal())?;
        process.wait(limit)
    }

    /// Kills all of them, as a power cut does: none sees another's end.
    pub(super) fn kill(mut self) -> Result<(), ServerError> {
        self.crush()
    }

    fn crush(&mut self) -> Result<(), ServerError> {
        // So that it starts no more of them, and does not see them end.
        let paused = self.process().and_then(Process::pause);
        let children = self.children();
        for child in &children {
            signal(*child, Signal::KILL);
        }
        let process = self.process.take().ok_or(ServerError::NotRunning)?;
        process.kill()?;
        until("end when killed", SIGNAL_LIMIT, || {
            Ok(children.iter().all(Seen::has_ended))
        })?;
        clear_after_a_crash(&self.data, self.account)?;
        paused
    }

    fn process(&self) -> Result<&Process, ServerError> {
        self.process.as_ref().ok_or(ServerError::NotRunning)
    }

    fn children(&self) -> Vec<Seen> {
        let pid = self.id().and_then(|id| i32::try_from(id).ok());
        pid.map(Seen::children_of).unwrap_or_default()
    }
}

impl Ends for Postmaster {
    fn ended(&mut self) -> Result<Option<String>, ServerError> {
        match self.process.as_mut() {
            Some(process) => Ends::ended(process),
            None => Ok(Some("no process".into())),
        }
    }
}

impl Drop for Postmaster {
    fn drop(&mut self) {
        // It takes back what it has of the system, which no kill does.
        let alive = matches!(self.ended(), Ok(None));
        if alive && self.end_by(Shutdown::Immediate, DROP_LIMIT).is_err() {
            let _ = self.crush();
        }
    }
}

/// A process that is gone has nothing to be told.
fn signal(seen: Seen, signal: Signal) {
    if let Some(pid) = Pid::from_raw(seen.pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Takes away what a server that was killed has left to the system: its segment
/// of shared memory, of which a machine has only so many, once the last of its
/// processes has let go of it; and the file by which the next start would take
/// some other process for it. Nothing happens after a clean end.
pub(super) fn clear_after_a_crash(
    data: &Path,
    account: Option<Account>,
) -> Result<(), ServerError> {
    let file = data.join("postmaster.pid");
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(ServerError::io(format!("read {}", file.display()), e)),
    };
    // Its seventh line: the key and the number of the segment.
    let line = text.lines().nth(6).unwrap_or_default();
    let segment = line.split_ascii_whitespace().nth(1);
    if let Some(segment) = segment.and_then(|s| s.parse().ok()) {
        until("let go of its shared memory", SIGNAL_LIMIT, || {
            Ok(users_of_segment(segment).is_none_or(|users| users == 0))
        })?;
        let mut remove = as_account(Path::new("ipcrm"), account);
        remove.args(["-m", &segment.to_string()]);
        // If it is gone already, so much the better.
        run(remove, LIMIT)?;
    }
    fs::remove_file(&file).map_err(|e| ServerError::io(format!("remove {}", file.display()), e))
}
