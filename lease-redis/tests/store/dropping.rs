//! Calls that are dropped half-way.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use lease_core::{AcquireOutcome, LeaseBackend, RefusedReason, RenewOutcome};

use crate::support::*;

/// More polls than any call takes.
const MOST_POLLS: usize = 12;

/// The output, or `None` when the future was dropped after so many polls.
async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(|cx| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        let output = future.as_mut().poll(cx);
        match output {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polled == polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test]
async fn what_a_dropped_acquire_leaves_is_cleaned_by_abandon() {
    let server = plain();
    let other = store(&server).await;
    let mut dropped = 0;
    for connected in [false, true] {
        for polls in 0..MOST_POLLS {
            for crowd in [false, true] {
                let store = options(&server.url()).open_lazily().unwrap();
                if connected {
                    store.inspect(&key("a")).await.unwrap();
                }
                let request = request("a", 600_000);
                // Others' requests go into one batch with it.
                let beside = futures_util::future::join_all(
                    (0..if crowd { 8 } else { 0 }).map(|_| store.inspect(&request.key)),
                );
                let (answer, others) =
                    tokio::join!(dropped_after(polls, store.acquire(&request)), beside);
                for other in others {
                    other.unwrap();
                }
                match answer {
                    Some(outcome) => drop(granted(outcome.unwrap())),
                    None => dropped += 1,
                }
                store.abandon(&request.key, request.owner).await.unwrap();
                let free = self::request("a", 600_000);
                let token = granted(other.acquire(&free).await.unwrap()).token;
                let late = store.acquire(&request).await.unwrap();
                let abandoned = AcquireOutcome::Refused(RefusedReason::Abandoned);
                assert!(
                    late == abandoned || matches!(late, AcquireOutcome::Held(_)),
                    "{late:?}"
                );
                other.release(&free.key, free.owner, token).await.unwrap();
                assert_eq!(store.acquire(&request).await.unwrap(), abandoned);
            }
        }
    }
    assert!(dropped > 8, "{dropped}");
}

#[tokio::test]
async fn a_dropped_renewal_or_release_harms_no_later_one() {
    let server = plain();
    let store = store(&server).await;
    for polls in 0..MOST_POLLS {
        let request = request("a", 600_000);
        let token = granted(store.acquire(&request).await.unwrap()).token;
        let renew = renewal(&request, token);
        dropped_after(polls, store.renew(&renew)).await;
        dropped_after(polls, store.renew_many(&vec![renew.clone(); 3])).await;
        assert_eq!(store.renew(&renew).await.unwrap(), RenewOutcome::Renewed);
        dropped_after(polls, store.release(&request.key, request.owner, token)).await;
        let gone = store.release(&request.key, request.owner, token);
        gone.await.unwrap();
        assert!(store.inspect(&request.key).await.unwrap().holder.is_none());
    }
}

/// A caller that goes away while the server is silent takes the connection with
/// it; one that changes its mind at once does not.
#[tokio::test]
async fn callers_that_give_up_on_a_silent_server_open_the_way_for_others() {
    let server = plain();
    let store = store(&server).await;
    let name = key("a");
    store.inspect(&name).await.unwrap();
    server.pause().unwrap();
    for _ in 0..3 {
        let gave_up = tokio::time::timeout(Duration::from_millis(100), store.inspect(&name));
        assert!(gave_up.await.is_err());
    }
    server.resume().unwrap();
    persist(|| store.inspect(&name)).await;
}
