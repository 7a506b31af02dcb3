//! Drops a future after it was polled a number of times.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// The future's output, or `None` when it was dropped after `polls` polls.
pub(crate) async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    if polls == 0 {
        return None;
    }
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(|cx| {
        polled += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polled >= polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_future_is_dropped_at_its_poll() {
        let twice = || async {
            tokio::task::yield_now().await;
            7
        };
        assert_eq!(dropped_after(0, twice()).await, None);
        assert_eq!(dropped_after(1, twice()).await, None);
        assert_eq!(dropped_after(2, twice()).await, Some(7));
    }
}
