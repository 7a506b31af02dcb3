//! The ranges of options.

use std::time::Duration;

use lease_core::{InvalidInput, StoreError, StoreErrorKind};

use super::PostgresOptions;

/// Nobody waits longer than a hundred years.
const FOR_EVER: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);
const MOST_CONNECTIONS: usize = 64;
/// Four pings, a new connection and a renewal must fit into it.
const LEAST_GRACE: Duration = Duration::from_millis(500);
const MOST_GRACE: Duration = Duration::from_secs(60);

impl PostgresOptions {
    /// What the rest of the crate may rely on: durations above zero and no
    /// longer than a hundred years, a number of connections that can be held.
    pub(crate) fn checked(mut self) -> Result<Self, StoreError> {
        self.response_timeout = positive("response_timeout", self.response_timeout)?;
        self.connect_timeout = positive("connect_timeout", self.connect_timeout)?;
        self.tombstone_retention = positive("tombstone_retention", self.tombstone_retention)?;
        if self.tombstone_retention < self.response_timeout {
            return Err(invalid(format!(
                "a tombstone_retention of {:?} is shorter than the response_timeout of {:?}, for \
                 which a request can be under way; make it longer",
                self.tombstone_retention, self.response_timeout
            )));
        }
        if !(1..=MOST_CONNECTIONS).contains(&self.connections) {
            return Err(invalid(format!(
                "{} connections are outside 1 to {MOST_CONNECTIONS}",
                self.connections
            )));
        }
        if let Some(grace) = self.crash_detection
            && !(LEAST_GRACE..=MOST_GRACE).contains(&grace)
        {
            return Err(invalid(format!(
                "a crash_detection with a grace of {grace:?} is outside {LEAST_GRACE:?} to \
                 {MOST_GRACE:?}: four pings, a new connection and renewals must fit into it"
            )));
        }
        Ok(self)
    }
}

pub(crate) fn invalid(words: String) -> StoreError {
    StoreError::new(StoreErrorKind::InvalidInput, words)
}

fn positive(option: &'static str, time: Duration) -> Result<Duration, StoreError> {
    if time < Duration::from_millis(1) {
        return Err(InvalidInput::ZeroDuration { option }.into());
    }
    // Longer is for ever, and would overflow the clock.
    Ok(time.min(FOR_EVER))
}
