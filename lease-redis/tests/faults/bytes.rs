//! Connections that are cut at every byte of a reply.

use lease_conformance::proxy::{FaultProxy, On};
use lease_conformance::servers::redis::RedisServer;
use lease_core::{
    AcquireOutcome, AcquireRequest, FenceWhen, LeaseBackend, ReleaseOutcome, RenewOutcome,
    StoreError, Token,
};
use lease_redis::RedisStore;

use crate::support::*;

/// Longer than a run.
const TTL_MS: u64 = 600_000;
/// No reply here is longer.
const MOST_BYTES: u64 = 2000;

struct Cut {
    server: RedisServer,
    proxy: FaultProxy,
    /// Through the proxy; a new one for each byte, since one that is cut again
    /// and again waits longer and longer before it connects.
    store: RedisStore,
    /// Beside it.
    other: RedisStore,
}

impl Cut {
    async fn new() -> Self {
        let server = plain();
        let proxy = FaultProxy::start(server.address()).unwrap();
        Self {
            store: through(&server, &proxy).await,
            other: store(&server).await,
            server,
            proxy,
        }
    }

    async fn renew_store(&mut self) {
        self.store = through(&self.server, &self.proxy).await;
    }

    /// Makes the call with a cut behind so many bytes of its reply. `None` when
    /// the reply was no longer than that: then it was answered well.
    async fn behind<T, F>(&self, bytes: u64, call: F) -> Option<Result<T, StoreError>>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        // So that the next bytes are of this call.
        let probe = key("probe");
        persist(|| self.store.inspect(&probe)).await;
        let armed = self.proxy.cut_reply_after(bytes, On::Any);
        let answer = tokio::time::timeout(PATIENCE, call).await.unwrap();
        let cut = armed.has_happened();
        self.proxy.heal().unwrap();
        match cut {
            true => Some(answer),
            false => {
                answer.map(drop).unwrap();
                None
            }
        }
    }

    async fn grant(&self, name: &str) -> (AcquireRequest, Token) {
        let request = request(name, TTL_MS);
        let outcome = persist(|| self.other.acquire(&request)).await;
        (request, granted(outcome).token)
    }

    /// Whether the key can be had at once; leaves it free.
    async fn is_free(&self, name: &str, above: Token) {
        let request = request(name, TTL_MS);
        let token = granted(self.other.acquire(&request).await.unwrap()).token;
        assert!(token > above);
        let released = self.other.release(&request.key, request.owner, token);
        assert_eq!(released.await.unwrap(), ReleaseOutcome::Released);
    }
}

async fn through(server: &RedisServer, proxy: &FaultProxy) -> RedisStore {
    let through = options(&server.url().through(proxy.address()));
    through.open().await.unwrap()
}

/// An answer that was cut is an unknown outcome; one that was whole before the
/// cut is right.
fn right_or_unknown<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(e) => {
            assert!(e.is_unknown_outcome(), "{e:?}");
            None
        }
    }
}

/// Runs `each` for each byte, until a reply is whole.
async fn for_each_byte(mut each: impl AsyncFnMut(&Cut, u64) -> bool) {
    let mut cut = Cut::new().await;
    for bytes in 0..MOST_BYTES {
        cut.renew_store().await;
        if !each(&cut, bytes).await {
            assert!(bytes > 4, "a reply of {bytes} bytes");
            println!("a reply of {bytes} bytes");
            return;
        }
    }
    panic!("no reply was whole");
}

#[tokio::test]
async fn acquire() {
    for_each_byte(async |cut, bytes| {
        let name = format!("acquire/{bytes}");
        let request = request(&name, TTL_MS);
        let Some(answer) = cut.behind(bytes, cut.store.acquire(&request)).await else {
            return false;
        };
        let first = right_or_unknown(answer).map(|outcome| granted(outcome).token);
        let again = granted(persist(|| cut.store.acquire(&request)).await).token;
        assert!(first.is_none_or(|first| first == again));
        let state = cut.other.inspect(&request.key).await.unwrap();
        assert_eq!(state.holder.unwrap().token, again);
        let released = cut.store.release(&request.key, request.owner, again);
        assert_eq!(released.await.unwrap(), ReleaseOutcome::Released);
        cut.is_free(&name, again).await;
        true
    })
    .await;
}

#[tokio::test]
async fn acquire_that_is_given_up() {
    for_each_byte(async |cut, bytes| {
        let name = format!("given-up/{bytes}");
        let request = request(&name, TTL_MS);
        let Some(answer) = cut.behind(bytes, cut.store.acquire(&request)).await else {
            return false;
        };
        right_or_unknown(answer);
        persist(|| cut.store.abandon(&request.key, request.owner)).await;
        let late = cut.store.acquire(&request).await.unwrap();
        assert!(matches!(late, AcquireOutcome::Refused(_)), "{late:?}");
        cut.is_free(&name, token(1)).await;
        true
    })
    .await;
}

#[tokio::test]
async fn acquire_of_a_held_key() {
    for_each_byte(async |cut, bytes| {
        let (theirs, token) = cut.grant("held").await;
        let request = request("held", TTL_MS);
        let answer = cut.behind(bytes, cut.store.acquire(&request)).await;
        let is_held = |outcome| match outcome {
            AcquireOutcome::Held(holder) => assert_eq!(holder.token, token),
            other => panic!("{other:?}"),
        };
        let cut_off = answer.is_some();
        if let Some(outcome) = answer.and_then(right_or_unknown) {
            is_held(outcome);
        }
        is_held(persist(|| cut.store.acquire(&request)).await);
        let released = cut.other.release(&theirs.key, theirs.owner, token);
        assert_eq!(released.await.unwrap(), ReleaseOutcome::Released);
        cut_off
    })
    .await;
}

#[tokio::test]
async fn renew() {
    let (mut held, mut lost) = (None, None);
    for_each_byte(async |cut, bytes| {
        let (request, token) = match held.take() {
            Some(grant) => grant,
            None => cut.grant("renew").await,
        };
        let renewal = renewal(&request, token);
        let answer = cut.behind(bytes, cut.store.renew(&renewal)).await;
        let cut_off = answer.is_some();
        if let Some(outcome) = answer.and_then(right_or_unknown) {
            assert_eq!(outcome, RenewOutcome::Renewed);
        }
        let again = persist(|| cut.store.renew(&renewal)).await;
        assert_eq!(again, RenewOutcome::Renewed);
        held = Some((request, token));
        cut_off
    })
    .await;
    for_each_byte(async |cut, bytes| {
        // Released by its owner, so that it is lost.
        let (request, token) = match lost.take() {
            Some(grant) => grant,
            None => {
                let (request, token) = cut.grant("lost").await;
                let released = cut.other.release(&request.key, request.owner, token);
                released.await.unwrap();
                (request, token)
            }
        };
        let renewal = renewal(&request, token);
        let answer = cut.behind(bytes, cut.store.renew(&renewal)).await;
        let cut_off = answer.is_some();
        let again = persist(|| cut.store.renew(&renewal)).await;
        assert!(matches!(again, RenewOutcome::Lost(_)));
        if let Some(outcome) = answer.and_then(right_or_unknown) {
            assert_eq!(outcome, again);
        }
        lost = Some((request, token));
        cut_off
    })
    .await;
}

#[tokio::test]
async fn renew_many() {
    const COUNT: usize = 5;
    let mut all = Vec::new();
    for_each_byte(async |cut, bytes| {
        while all.len() < COUNT {
            let (request, token) = cut.grant(&format!("many/{}", all.len())).await;
            all.push(renewal(&request, token));
        }
        persist(|| cut.store.inspect(&all[0].key)).await;
        let armed = cut.proxy.cut_reply_after(bytes, On::Any);
        let answers = tokio::time::timeout(PATIENCE, cut.store.renew_many(&all));
        let answers = answers.await.unwrap();
        let cut_off = armed.has_happened();
        cut.proxy.heal().unwrap();
        assert_eq!(answers.len(), COUNT);
        for answer in answers {
            if let Some(outcome) = right_or_unknown(answer) {
                assert_eq!(outcome, RenewOutcome::Renewed);
            } else {
                assert!(cut_off);
            }
        }
        for one in &all {
            let again = persist(|| cut.store.renew(one)).await;
            assert_eq!(again, RenewOutcome::Renewed);
        }
        cut_off
    })
    .await;
}

#[tokio::test]
async fn release() {
    for_each_byte(async |cut, bytes| {
        let name = format!("release/{bytes}");
        let (request, token) = cut.grant(&name).await;
        let release = || cut.store.release(&request.key, request.owner, token);
        let answer = cut.behind(bytes, release()).await;
        let cut_off = answer.is_some();
        if let Some(outcome) = answer.and_then(right_or_unknown) {
            assert_eq!(outcome, ReleaseOutcome::Released);
        }
        // By the first one: its effect does not depend on its reply.
        assert_eq!(persist(release).await, ReleaseOutcome::NotHeld);
        cut.is_free(&name, token).await;
        cut_off
    })
    .await;
}

#[tokio::test]
async fn abandon() {
    for_each_byte(async |cut, bytes| {
        let name = format!("abandon/{bytes}");
        let (request, token) = cut.grant(&name).await;
        let abandon = || cut.store.abandon(&request.key, request.owner);
        let answer = cut.behind(bytes, abandon()).await;
        let cut_off = answer.is_some();
        answer.map(right_or_unknown);
        cut.is_free(&name, token).await;
        persist(abandon).await;
        cut_off
    })
    .await;
}

#[tokio::test]
async fn fence() {
    for_each_byte(async |cut, bytes| {
        let name = format!("fence/{bytes}");
        let (request, token) = cut.grant(&name).await;
        let mark = Token::new(token.get() + 1000).unwrap();
        let fence = || cut.store.fence(&request.key, mark, FenceWhen::Immediately);
        let answer = cut.behind(bytes, fence()).await;
        let cut_off = answer.is_some();
        if let Some(reached) = answer.and_then(right_or_unknown) {
            assert_eq!(reached, mark);
        }
        assert_eq!(persist(fence).await, mark);
        let lost = cut.store.renew(&renewal(&request, token)).await.unwrap();
        assert!(matches!(lost, RenewOutcome::Lost(_)));
        cut.is_free(&name, mark).await;
        cut_off
    })
    .await;
}

#[tokio::test]
async fn inspect() {
    for_each_byte(async |cut, bytes| {
        let (request, token) = cut.grant("inspect").await;
        let inspect = || cut.store.inspect(&request.key);
        let answer = cut.behind(bytes, inspect()).await;
        let cut_off = answer.is_some();
        let is_ours = |holder: Option<lease_core::Holder>| holder.unwrap().token == token;
        if let Some(state) = answer.and_then(right_or_unknown) {
            assert!(is_ours(state.holder));
        }
        assert!(is_ours(persist(inspect).await.holder));
        let released = cut.other.release(&request.key, request.owner, token);
        released.await.unwrap();
        cut_off
    })
    .await;
}

/// Cut within the greeting: nothing was sent yet.
#[tokio::test]
async fn a_new_connection() {
    let mut cut = Cut::new().await;
    for bytes in 0..40 {
        cut.renew_store().await;
        cut.proxy.cut();
        let armed = cut.proxy.cut_reply_after(bytes, On::New);
        let request = request("new", TTL_MS);
        let answer = tokio::time::timeout(PATIENCE, cut.store.acquire(&request));
        match answer.await.unwrap() {
            Ok(outcome) => drop(granted(outcome)),
            Err(e) => assert!(e.is_transient(), "{e:?}"),
        }
        let token = granted(persist(|| cut.store.acquire(&request)).await).token;
        drop(armed);
        cut.proxy.heal().unwrap();
        let release = || cut.store.release(&request.key, request.owner, token);
        persist(release).await;
        cut.is_free("new", token).await;
    }
    assert!(keys(&cut.server) <= 3, "{}", keys(&cut.server));
}
