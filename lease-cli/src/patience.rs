//! How long a command waits for a store that does not answer.

use std::sync::Mutex;
use std::time::Duration;

use leases::{Error, StoreError};
use tokio::time::Instant;

use crate::{output, stderr};

/// The longest that a command waits for a store's first answer.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// A silence of this long is told of, so that nobody wonders.
const QUIET: Duration = Duration::from_secs(1);

/// Until when a store may stay silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    start: Instant,
    until: Instant,
    once: bool,
}

impl Patience {
    /// Tries again and again, for as long as this.
    pub(crate) fn new(limit: Duration) -> Self {
        let start = Instant::now();
        Self {
            start,
            until: start + limit.min(FIRST_ANSWER),
            once: false,
        }
    }

    /// Tries once; a store that hangs gets the usual time.
    pub(crate) fn once() -> Self {
        Self {
            once: true,
            ..Self::new(FIRST_ANSWER)
        }
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Asks until there is an answer, a permanent error, or no time left, and
    /// says so when it takes long.
    pub(crate) async fn ask<T, E, F>(&self, request: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, E>>,
        E: Into<Error>,
    {
        let last = Mutex::new(None);
        let mut asked = std::pin::pin!(self.ask_silently(request, &last));
        let tell_at = self.start + QUIET;
        // Once for all that is asked with this patience: whatever took so long
        // before has said so.
        if !self.once && Instant::now() < tell_at && tell_at < self.until {
            tokio::select! {
                biased;
                answer = &mut asked => return answer,
                () = tokio::time::sleep_until(tell_at) => {
                    let last = last.lock().unwrap_or_else(|e| e.into_inner());
                    stderr::say(&away(last.as_ref(), self.until - self.start));
                }
            }
        }
        asked.await
    }

    async fn ask_silently<T, E, F>(
        &self,
        mut request: impl FnMut() -> F,
        last: &Mutex<Option<Error>>,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, E>>,
        E: Into<Error>,
    {
        let last = || last.lock().unwrap_or_else(|e| e.into_inner());
        loop {
            let error = match tokio::time::timeout_at(self.until, request()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error.into(),
                Err(_) => return Err(last().take().unwrap_or_else(silence)),
            };
            let transient = matches!(&error, Error::Store(e) if e.is_transient());
            if !transient || self.once || self.left() <= PAUSE {
                return Err(error);
            }
            *last() = Some(error);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// That a store is out of reach so far. A driver's words may hold a URL.
fn away(last: Option<&Error>, limit: Duration) -> String {
    let reason = match last {
        Some(Error::Store(error)) => output::without_urls(error.message()),
        _ => "no answer".to_owned(),
    };
    let limit = humantime::format_duration(limit);
    format!("the store cannot be reached yet ({reason}); trying for {limit}")
}

fn silence() -> Error {
    StoreError::unavailable("it has not answered; check that it runs and can be reached from here")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn transient_errors_are_asked_again_and_others_not() {
        let patience = Patience::new(Duration::from_secs(5));
        let mut tries = 0;
        let answer = patience
            .ask(|| {
                tries += 1;
                let now = tries;
                async move {
                    if now < 3 {
                        Err(StoreError::unavailable("busy"))
                    } else {
                        Ok(now)
                    }
                }
            })
            .await;
        assert_eq!(answer.unwrap(), 3);
        let refused = patience.ask(|| async { Err::<(), _>(StoreError::refusing("no")) });
        assert!(refused.await.unwrap_err().to_string().contains("refuses"));
        let once = Patience::once();
        let failed = once.ask(|| async { Err::<(), _>(StoreError::unavailable("x")) });
        assert!(failed.await.is_err());
    }
}
