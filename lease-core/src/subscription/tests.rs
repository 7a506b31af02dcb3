use std::time::Duration;

use futures_util::stream;

use super::*;
use crate::clock::SystemClock;

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// Hangs, and tells when it is dropped.
fn hangs() -> (
    impl Future<Output = Result<Hints, StoreError>> + Send + 'static,
    oneshot::Receiver<()>,
) {
    let (alive, dropped) = oneshot::channel::<()>();
    let watch = async move {
        let _alive = alive;
        std::future::pending().await
    };
    (watch, dropped)
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_dropped() {
    let clock = clock();
    let (watch, dropped) = hangs();
    let mut subscription = Subscription::default();
    let made = subscription.made(&clock, || watch);
    assert!(made.now_or_never().is_none());
    // Whoever waited has gone, and it goes on.
    tokio::task::yield_now().await;
    assert_eq!(format!("{subscription:?}"), "Subscription(under way)");
    drop(subscription);
    assert!(dropped.await.is_err());
}

#[tokio::test]
async fn one_that_is_under_way_goes_on_and_one_that_may_be_broken_does_not() {
    let clock = clock();
    let mut subscription = Subscription::default();
    let (go, gone) = oneshot::channel::<()>();
    let watch = async move {
        let _ = gone.await;
        Ok(stream::pending().boxed())
    };
    let made = subscription.made(&clock, || watch);
    assert!(made.now_or_never().is_none());
    subscription.end();
    assert_eq!(format!("{subscription:?}"), "Subscription(under way)");
    go.send(()).unwrap();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    // It has stood since before this call, though nobody has looked.
    subscription.end();
    assert_eq!(format!("{subscription:?}"), "Subscription(none)");
}

#[tokio::test]
async fn its_end_and_its_panic_are_told_until_they_are_dealt_with() {
    let clock = clock();
    let panics = stream::unfold((), |()| async { panic!("scripted: hints") });
    for hints in [stream::empty().boxed(), panics.boxed()] {
        let mut subscription = Subscription::default();
        let made = subscription.made(&clock, || async { Ok(hints) });
        made.await.unwrap();
        for _ in 0..3 {
            assert!(subscription.stands());
            assert!(subscription.hint().await.is_none());
        }
        subscription.end();
        assert!(!subscription.stands());
        assert!(subscription.hint().now_or_never().is_none());
    }
}

#[tokio::test]
async fn a_store_that_panics_has_failed_and_is_asked_anew() {
    let clock = clock();
    let mut subscription = Subscription::default();
    let watch = || async { panic!("scripted: watch") };
    let error = subscription.made(&clock, watch).await.unwrap_err();
    assert!(error.is_unknown_outcome(), "{error}");
    let watch = || async { Ok(stream::once(async {}).boxed()) };
    subscription.made(&clock, watch).await.unwrap();
    assert_eq!(subscription.hint().await, Some(()));
}

#[test]
fn a_runtime_that_nobody_drives_keeps_nobody_waiting() {
    let clock = clock();
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let (idle, ours) = (runtime(), runtime());
    let mut subscription = Subscription::default();
    let (watch, _) = hangs();
    idle.block_on(async {
        let made = subscription.made(&clock, || watch);
        assert!(made.now_or_never().is_none());
    });
    ours.block_on(async {
        subscription.take_over();
        let made = subscription.made(&clock, || async { Ok(stream::pending().boxed()) });
        tokio::time::timeout(Duration::from_secs(10), made)
            .await
            .expect("made by a runtime that runs")
            .unwrap();
    });
    // Of one that has ended is known that it has.
    let mut subscription = Subscription::default();
    let (watch, _) = hangs();
    let ended = runtime();
    ended.block_on(async {
        let made = subscription.made(&clock, || watch);
        assert!(made.now_or_never().is_none());
    });
    drop(ended);
    let error = ours.block_on(subscription.made(&clock, || hangs().0));
    assert!(error.unwrap_err().is_transient());
    // Outside of any, too.
    let mut subscription = Subscription::default();
    let made = subscription.made(&clock, || hangs().0).now_or_never();
    assert!(made.unwrap().unwrap_err().is_transient());
}
