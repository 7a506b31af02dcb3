//! What those who wait for an item sleep by: hints, and always a timer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use lease_core::StoreError;

use crate::queue::Inner;
use crate::queue::settling::{ATTEMPT_LIMIT, timed};

/// A waiter looks again after this long, whatever it was told: hints may be lost.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// The same while the store gives no hints.
const LOOK_WITHOUT_HINTS: Duration = Duration::from_millis(250);
/// Between two looks at what hints say is ready and is not.
pub(super) const USELESS_HINT: Duration = Duration::from_millis(1);
/// After a failure of the store; twice as long each time.
pub(super) const STORE_FAILED: Duration = Duration::from_millis(20);

/// What the first of those who wait has, and hands on.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) hints: Option<BoxStream<'static, ()>>,
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("subscribed", &self.hints.is_some())
            .finish()
    }
}

impl Inner {
    /// Waits after a failure of the store; the next wait.
    pub(super) async fn wait_out(&self, pause: Duration) -> Duration {
        self.clock.sleep_until(self.clock.now().after(pause)).await;
        (pause * 2).min(Duration::from_secs(2))
    }

    /// Hints at the queue, or why there are none, in a while at the latest.
    pub(super) fn subscribe(
        &self,
    ) -> BoxFuture<'static, Result<BoxStream<'static, ()>, StoreError>> {
        let (store, name) = (Arc::clone(&self.store), self.name.clone());
        let clock = Arc::clone(&self.clock);
        Box::pin(async move {
            let until = clock.now().after(ATTEMPT_LIMIT);
            timed(&*clock, until, store.watch(&name, None)).await
        })
    }

    /// Until something may be ready by itself, or without a hint.
    pub(super) async fn sleep_without_hints(&self, next: Option<Duration>) {
        let by = soon(next).min(LOOK_WITHOUT_HINTS);
        self.clock.sleep_until(self.clock.now().after(by)).await;
    }

    /// Sleeps until something may be ready; whether that was for a hint.
    pub(super) async fn sleep(
        &self,
        turn: &mut Turn,
        next: Option<Duration>,
        useless: Duration,
    ) -> bool {
        let clock = &*self.clock;
        let now = clock.now();
        let by = now.after(soon(next));
        let Some(hints) = &mut turn.hints else {
            self.sleep_without_hints(next).await;
            return false;
        };
        let hint = async {
            clock.sleep_until(now.after(useless)).await;
            hints.next().await
        };
        let hinted = tokio::select! {
            biased;
            hint = hint => hint,
            () = clock.sleep_until(by) => return false,
        };
        if hinted.is_none() {
            turn.hints = None;
            clock
                .sleep_until(by.min(now.after(LOOK_WITHOUT_HINTS)))
                .await;
            return false;
        }
        true
    }
}

/// A hair later than something is ready by itself, so that the store's clock has passed
/// that, too.
fn soon(next: Option<Duration>) -> Duration {
    let next = next.map_or(LOOK_AGAIN, |next| next + Duration::from_millis(1));
    next.min(LOOK_AGAIN)
}
