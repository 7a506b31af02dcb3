//! A server that runs, wherever it does.

use std::time::Duration;

use super::ServerError;
#[cfg(feature = "containers")]
use super::container::Container;
use super::process::Process;

#[derive(Debug)]
pub(crate) enum Running {
    Process(Process),
    #[cfg(feature = "containers")]
    Container(Container),
}

impl Running {
    /// The number of its process, if that is one of ours.
    pub(crate) fn id(&self) -> Option<u32> {
        match self {
            Self::Process(process) => Some(process.id()),
            #[cfg(feature = "containers")]
            Self::Container(_) => None,
        }
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Result<Option<String>, ServerError> {
        match self {
            Self::Process(process) => Ok(process.ended()?.map(|status| status.to_string())),
            #[cfg(feature = "containers")]
            Self::Container(container) => container.ended(),
        }
    }

    /// Kills it at once and waits for its end.
    pub(crate) fn kill(self) -> Result<(), ServerError> {
        match self {
            Self::Process(process) => process.kill(),
            #[cfg(feature = "containers")]
            Self::Container(container) => container.kill(),
        }
    }

    /// Asks it to end, and waits until it did.
    pub(crate) fn terminate(self, limit: Duration) -> Result<(), ServerError> {
        match self {
            Self::Process(process) => process.terminate(limit),
            #[cfg(feature = "containers")]
            Self::Container(container) => container.terminate(limit),
        }
    }

    /// Makes it stand still.
    pub(crate) fn pause(&self) -> Result<(), ServerError> {
        match self {
            Self::Process(process) => process.pause(),
            #[cfg(feature = "containers")]
            Self::Container(container) => container.pause(),
        }
    }

    pub(crate) fn resume(&self) -> Result<(), ServerError> {
        match self {
            Self::Process(process) => process.resume(),
            #[cfg(feature = "containers")]
            Self::Container(container) => container.resume(),
        }
    }
}
