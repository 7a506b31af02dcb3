//! A server's process: it ends with the test, however the test ends.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::ServerError;
use super::account::Account;
use super::parts::{Ends, until};
use super::proc::Seen;

/// A signal has its effect in far less.
pub(crate) const SIGNAL_LIMIT: Duration = Duration::from_secs(10);

/// A running server. Dropping it kills it, and all that it forked.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Pid,
}

impl Process {
    /// Starts `program` in a process group of its own.
    pub(crate) fn spawn(
        program: &Path,
        configure: impl FnOnce(&mut Command),
    ) -> Result<Self, ServerError> {
        Self::spawn_as(None, program, configure)
    }

    /// As [`spawn`](Self::spawn), as this account.
    pub(crate) fn spawn_as(
        account: Option<Account>,
        program: &Path,
        configure: impl FnOnce(&mut Command),
    ) -> Result<Self, ServerError> {
        let mut command = dies_with_us(program, account);
        configure(&mut command);
        // What the server forks (a background save) is killed and paused with
        // it, and a Ctrl-C in the terminal is the test's alone.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let wrapper = command.get_program().to_string_lossy().into_owned();
        let child = spawn_on_a_lasting_thread(command).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => ServerError::MissingProgram {
                program: wrapper.clone(),
                advice: "install it; on Debian, `apt-get install util-linux` has `setpriv`, \
                         without which a killed test would leave its servers behind"
                    .into(),
            },
            _ => ServerError::io(format!("run `{wrapper}`"), e),
        })?;
        let pid = Pid::from_child(&child);
        Ok(Self { child, pid })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, ServerError> {
        self.child
            .try_wait()
            .map_err(|e| ServerError::io("look at the server's process", e))
    }

    /// Kills it at once and waits for its end.
    pub(crate) fn kill(mut self) -> Result<(), ServerError> {
        self.end()
    }

    /// Asks it to end, and waits until it did.
    pub(crate) fn terminate(mut self, limit: Duration) -> Result<(), ServerError> {
        self.ask_to_end(Signal::TERM)?;
        self.wait(limit)
    }

    /// Sends a signal that ends it, sooner or later.
    pub(crate) fn ask_to_end(&self, signal: Signal) -> Result<(), ServerError> {
        kill_process(self.pid, signal).map_err(|e| ServerError::io("ask the server to end", e))
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<(), ServerError> {
        until("end when asked to", limit, || Ok(self.ended()?.is_some()))
    }

    /// Stops its threads where they are; returns when they stand still.
    pub(crate) fn pause(&self) -> Result<(), ServerError> {
        kill_process_group(self.pid, Signal::STOP)
            .map_err(|e| ServerError::io("pause the server", e))?;
        stands_still(self.pid.as_raw_pid())
    }

    pub(crate) fn resume(&self) -> Result<(), ServerError> {
        kill_process_group(self.pid, Signal::CONT)
            .map_err(|e| ServerError::io("resume the server", e))
    }

    fn end(&mut self) -> Result<(), ServerError> {
        // A paused process is killed all the same. The group may be gone.
        let _ = kill_process_group(self.pid, Signal::KILL);
        self.child
            .wait()
            .map(drop)
            .map_err(|e| ServerError::io("wait for the server's end", e))
    }
}

impl Ends for Process {
    fn ended(&mut self) -> Result<Option<String>, ServerError> {
        Ok(Process::ended(self)?.map(|status| status.to_string()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Once it was waited for, its number may be somebody else's.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.end();
        }
    }
}

/// Waits until a process does nothing any more. (On systems that do not tell, it
/// is taken for granted.)
pub(crate) fn stands_still(pid: i32) -> Result<(), ServerError> {
    until("stand still", SIGNAL_LIMIT, || {
        Ok(Seen::of(pid).is_none_or(|seen| seen.stands_still()))
    })
}

/// The program, run so that the system kills it when this process ends.
///
/// `setpriv` asks for that, takes the account on, and then becomes the program:
/// the process that is started is the server itself.
fn dies_with_us(program: &Path, account: Option<Account>) -> Command {
    if !cfg!(target_os = "linux") && account.is_none() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    // It asks after it has changed the account: the change would undo it.
    command.args(account.map(Account::arguments).into_iter().flatten());
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

type Job = (Command, Sender<io::Result<Child>>);

/// Linux sends the signal when the *thread* ends that started the process, and
/// the threads of tests end before their process does.
fn spawn_on_a_lasting_thread(command: Command) -> io::Result<Child> {
    static SPAWNER: LazyLock<Mutex<Option<Sender<Job>>>> = LazyLock::new(|| {
        let (jobs, todo) = channel::<Job>();
        let thread = std::thread::Builder::new()
            .name("server-spawner".into())
            .spawn(move || {
                for (mut command, answer) in todo {
                    let _ = answer.send(command.spawn());
                }
            });
        Mutex::new(thread.is_ok().then_some(jobs))
    });
    let no_thread = || io::Error::other("there is no thread to start servers from");
    let (answer, answered) = channel();
    let spawner = SPAWNER.lock().unwrap_or_else(|e| e.into_inner());
    let jobs = spawner.as_ref().ok_or_else(no_thread)?;
    jobs.send((command, answer)).map_err(|_| no_thread())?;
    answered.recv().map_err(|_| no_thread())?
}

/// Where the program is; one with a slash is taken as a path.
pub(crate) fn find(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return path.is_file().then(|| path.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}
