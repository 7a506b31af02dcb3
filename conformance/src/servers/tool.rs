//! Programs that do one thing and end: in the way of the test, not beside it.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::ServerError;
use super::account::Account;

/// Between two looks at one that is waited for.
const LOOK: Duration = Duration::from_millis(1);

/// What a program said, and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) errors: String,
}

/// The program, as this account.
pub(crate) fn as_account(program: &Path, account: Option<Account>) -> Command {
    let mut command = match account {
        None => Command::new(program),
        Some(account) => {
            let mut command = Command::new("setpriv");
            command.args(account.arguments()).arg("--").arg(program);
            command
        }
    };
    plainly(&mut command);
    command
}

/// Nothing that the user has set for Postgres by hand, in the environment or at
/// home, and words that do not hang on a language.
pub(crate) fn plainly(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command.env("LC_ALL", "C").env("HOME", "/nonexistent");
    command.stdin(Stdio::null());
    // Postgres wants to be able to come back to where it was started.
    command.current_dir("/");
}

/// Runs it to its end, which must come within the limit.
pub(crate) fn run(mut command: Command, limit: Duration) -> Result<Said, ServerError> {
    let name = words(&command);
    let failed = |e| ServerError::io(format!("run {name}"), e);
    // Files, not pipes: what is forked and stays cannot keep us waiting.
    let mut output = tempfile::tempfile().map_err(failed)?;
    let mut errors = tempfile::tempfile().map_err(failed)?;
    command.stdout(output.try_clone().map_err(failed)?);
    command.stderr(errors.try_clone().map_err(failed)?);
    let mut child = command.spawn().map_err(failed)?;
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            let what = format!("let {name} end");
            return Err(ServerError::TimedOut { what, limit });
        }
        std::thread::sleep(LOOK);
    };
    let said = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    Ok(Said {
        status,
        output: said(&mut output).map_err(failed)?,
        errors: said(&mut errors).map_err(failed)?,
    })
}

/// As [`run`], and it must end well.
pub(crate) fn succeed(command: Command, limit: Duration) -> Result<(), ServerError> {
    let name = words(&command);
    let said = run(command, limit)?;
    if said.status.success() {
        return Ok(());
    }
    let words = format!("{}, and said: {}{}", said.status, said.output, said.errors);
    Err(ServerError::io(
        format!("run {name}"),
        std::io::Error::other(words),
    ))
}

/// The program's own name: its arguments may have secrets in them.
fn words(command: &Command) -> String {
    let own = command.get_program();
    let program = match own == "setpriv" {
        true => command.get_args().skip_while(|a| *a != "--").nth(1),
        false => None,
    };
    format!("`{}`", program.unwrap_or(own).to_string_lossy())
}
