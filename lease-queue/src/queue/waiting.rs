//! What those who wait for an item sleep by: hints, and always a timer.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{StoreError, Subscription};

use crate::queue::Inner;

/// A waiter looks again after this long, whatever it was told: hints may be lost.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// The same while the store gives no hints.
const LOOK_WITHOUT_HINTS: Duration = Duration::from_millis(250);
/// Between two looks at what hints say is ready and is not.
pub(super) const USELESS_HINT: Duration = Duration::from_millis(1);
/// After a failure of the store; twice as long each time.
pub(super) const STORE_FAILED: Duration = Duration::from_millis(20);

impl Inner {
    /// Waits after a failure of the store; the next wait.
    pub(super) async fn wait_out(&self, pause: Duration) -> Duration {
        self.clock.sleep_until(self.clock.now().after(pause)).await;
        (pause * 2).min(Duration::from_secs(2))
    }

    /// Waits until there are hints at the queue, or it is known why there are none.
    pub(super) async fn subscribed(&self, turn: &mut Subscription) -> Result<(), StoreError> {
        let watch = || {
            let (store, name) = (Arc::clone(&self.store), self.name.clone());
            async move { store.watch(&name, None).await }
        };
        turn.made(&self.clock, watch).await
    }

    /// Until something may be ready by itself, or without a hint.
    pub(super) async fn sleep_without_hints(&self, next: Option<Duration>) {
        let by = soon(next).min(LOOK_WITHOUT_HINTS);
        self.clock.sleep_until(self.clock.now().after(by)).await;
    }

    /// Sleeps until something may be ready; whether that was for a hint.
    pub(super) async fn sleep(
        &self,
        turn: &mut Subscription,
        next: Option<Duration>,
        useless: Duration,
    ) -> bool {
        if !turn.stands() {
            self.sleep_without_hints(next).await;
            return false;
        }
        let clock = &*self.clock;
        let now = clock.now();
        let by = now.after(soon(next));
        let hint = async {
            clock.sleep_until(now.after(useless)).await;
            turn.hint().await
        };
        let hinted = tokio::select! {
            biased;
            hint = hint => hint,
            () = clock.sleep_until(by) => return false,
        };
        if hinted.is_none() {
            turn.end();
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
