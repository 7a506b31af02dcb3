//! What every server of the kit needs, whatever it serves.

use std::time::{Duration, Instant};

use super::ServerError;
use super::running::Running;
use crate::ports::PortClaim;

/// For a start, a stop, or a link to a primary: far more than it takes on a
/// busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// Between two looks at something that is waited for.
pub(crate) const LOOK: Duration = Duration::from_millis(2);
/// Another program may take the port between the choice and the start.
pub(crate) const PORTS: usize = 10;

pub(crate) fn claim() -> Result<PortClaim, ServerError> {
    PortClaim::new().map_err(|e| ServerError::io("claim a port", e))
}

/// Whether a server did not start for that alone.
pub(crate) fn port_is_taken(error: &ServerError) -> bool {
    matches!(error, ServerError::Start { log, .. } if log.contains("Address already in use"))
}

/// Nobody else's: a client must not connect by luck.
pub(crate) fn password() -> Result<String, ServerError> {
    let random = getrandom::u64()
        .map_err(|e| ServerError::io("draw a password", std::io::Error::from(e)))?;
    Ok(format!("{random:016x}"))
}

/// Looks until it is done.
pub(crate) fn until(
    what: &str,
    limit: Duration,
    mut done: impl FnMut() -> Result<bool, ServerError>,
) -> Result<(), ServerError> {
    let deadline = Instant::now() + limit;
    while !done()? {
        if Instant::now() > deadline {
            return Err(ServerError::TimedOut {
                what: what.to_owned(),
                limit,
            });
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Percent-encoded, but for what is always plain in a URL.
pub(crate) fn encoded(text: &str) -> String {
    let mut url = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                url.push(char::from(byte));
            }
            _ => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url
}

/// The end of a log.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(50)..].join("\n")
}

/// What can be found to have ended by itself.
pub(crate) trait Ends {
    /// How it ended, if it did.
    fn ended(&mut self) -> Result<Option<String>, ServerError>;
}

impl Ends for Running {
    fn ended(&mut self) -> Result<Option<String>, ServerError> {
        Running::ended(self)
    }
}

/// Whether a server runs, and whether it stands still.
#[derive(Debug)]
pub(crate) struct State<R> {
    running: Option<R>,
    pub(crate) paused: bool,
}

impl<R> Default for State<R> {
    fn default() -> Self {
        Self {
            running: None,
            paused: false,
        }
    }
}

impl<R: Ends> State<R> {
    pub(crate) fn of(running: R) -> Self {
        Self {
            running: Some(running),
            paused: false,
        }
    }

    /// The process, unless it has ended: by itself, or by an earlier call.
    pub(crate) fn running(&mut self) -> Option<&R> {
        let running = self.running.as_mut()?;
        if matches!(running.ended(), Ok(Some(_))) {
            *self = Self::default();
        }
        self.running.as_ref()
    }

    /// The process, to end it.
    pub(crate) fn take(&mut self) -> Result<R, ServerError> {
        self.running().ok_or(ServerError::NotRunning)?;
        let running = self.running.take().ok_or(ServerError::NotRunning)?;
        self.paused = false;
        Ok(running)
    }

    /// An error if it cannot answer.
    pub(crate) fn answers(&mut self) -> Result<(), ServerError> {
        self.running().ok_or(ServerError::NotRunning)?;
        match self.paused {
            true => Err(ServerError::Paused),
            false => Ok(()),
        }
    }
}
