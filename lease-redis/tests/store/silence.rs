//! A server that does not answer in time.

use std::time::{Duration, Instant};

use lease_core::{LeaseBackend, ReleaseOutcome, StoreErrorKind};

use crate::support::*;

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_is_an_unknown_outcome() {
    const LIMIT: Duration = Duration::from_millis(300);
    let server = plain();
    let store = options(&server.url()).response_timeout(LIMIT);
    let store = store.connect_timeout(LIMIT).open().await.unwrap();
    let request = request("a", 60_000);
    server.pause().unwrap();
    let asked = Instant::now();
    let error = store.acquire(&request).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::UnknownOutcome, "{error}");
    assert!(asked.elapsed() >= LIMIT);
    // The next one has to connect first, and was not sent for sure.
    let error = store.acquire(&request).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    server.resume().unwrap();

    // The first did take effect; the same owner gets that grant.
    let token = granted(persist(|| store.acquire(&request)).await).token;
    let release = store.release(&request.key, request.owner, token).await;
    assert_eq!(release.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_server_that_is_away_is_unavailable_at_once_and_found_again() {
    let server = plain();
    let opened = store(&server).await;
    let lazy = options(&server.url()).open_lazily().unwrap();
    server.kill().unwrap();
    let name = key("a");
    let error = lazy.inspect(&name).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    let error = options(&server.url()).open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    for _ in 0..3 {
        let error = opened.inspect(&name).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
    server.start().unwrap();
    let started = Instant::now();
    persist(|| lazy.inspect(&name)).await;
    persist(|| opened.inspect(&name)).await;
    // The pauses between attempts grow to a second.
    assert!(started.elapsed() < Duration::from_secs(5));
}
