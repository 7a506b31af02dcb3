//! What can go wrong with a test's server.

use std::error::Error as StdError;
use std::io;

/// Why a server did not do what a test asked for. The words say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A program that the kit runs is not on this machine. Never a reason to
    /// skip a test: it would prove nothing and look green.
    #[error("`{program}` is not installed: {advice}")]
    MissingProgram {
        /// What was looked for.
        program: String,
        /// How to get it.
        advice: String,
    },
    /// The server ended, or did not answer, while it was starting.
    #[error("the server did not start: {why}\n--- its log, {log_path} ---\n{log}")]
    Start {
        /// What was seen.
        why: String,
        /// Where the log is, as long as the server's folder is.
        log_path: String,
        /// The end of the log.
        log: String,
    },
    /// The server was killed or stopped, and not started again.
    #[error("the server is not running; call `start` first")]
    NotRunning,
    /// The server runs already.
    #[error("the server runs already; call `kill` or `stop` first, or `restart`")]
    Running,
    /// The server is paused and cannot answer.
    #[error("the server is paused; call `resume` first")]
    Paused,
    /// The server follows no other, or no longer does.
    #[error("the server is no standby; make one with `standby_of`")]
    NotAStandby,
    /// The server did not do within the limit what was waited for.
    #[error("the server did not {what} within {limit:?}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        limit: std::time::Duration,
    },
    /// The server answered a command with an error, or not at all.
    #[error("the command {command} failed: {source}")]
    Command {
        /// The command's name, without its arguments.
        command: String,
        /// What the server or the driver said.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// There is no Docker engine, or none that may be used.
    #[cfg(feature = "containers")]
    #[error(
        "no Docker engine answers ({0}); start one on this machine, give this user access to \
         its socket, or name it in DOCKER_HOST"
    )]
    NoEngine(Box<dyn StdError + Send + Sync>),
    /// The Docker engine did not do what it was asked.
    #[cfg(feature = "containers")]
    #[error("the Docker engine cannot {what}: {source}")]
    Container {
        /// What was asked.
        what: String,
        /// What it said.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A file, a folder or a signal.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The server's certificates could not be made.
    #[error("cannot make the certificates of the server: {0}")]
    Certificates(Box<dyn StdError + Send + Sync>),
}

impl ServerError {
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io {
            what: what.into(),
            source: source.into(),
        }
    }
}
