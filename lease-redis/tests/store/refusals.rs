//! Servers that answer with something other than what was asked for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lease_conformance::servers::redis::{Persistence, RedisServer};
use lease_core::{LeaseBackend, ReleaseOutcome, RenewOutcome, StoreError, StoreErrorKind};

use crate::support::*;

#[track_caller]
fn refusing<T: std::fmt::Debug>(answer: Result<T, StoreError>, advice: &str) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    assert!(error.message().contains(advice), "{error}");
}

#[tokio::test]
async fn a_replica_refuses_and_says_where_to_go() {
    let primary = plain();
    let replica = RedisServer::builder().replica_of(&primary).start().unwrap();
    let on_primary = store(&primary).await;
    let held = request("held", 60_000);
    let token = granted(on_primary.acquire(&held).await.unwrap()).token;
    replica.wait_until_linked().unwrap();

    let store = store(&replica).await;
    // The link may stand before what was written meanwhile has come over it.
    while store.inspect(&held.key).await.unwrap().holder.is_none() {
        tokio::task::yield_now().await;
    }
    let new = request("new", 60_000);
    let advice = "name the primary in the URL";
    refusing(store.acquire(&new).await, advice);
    refusing(store.abandon(&new.key, new.owner).await, advice);
    refusing(store.release(&held.key, held.owner, token).await, advice);
    let longer = renewal(&request("held", 120_000), token);
    let longer = lease_core::RenewRequest {
        owner: held.owner,
        ..longer
    };
    refusing(store.renew(&longer).await, advice);
    let when = lease_core::FenceWhen::AtExpiry;
    refusing(store.fence(&new.key, token, when).await, advice);
    // Nothing of it took effect.
    assert!(
        on_primary
            .inspect(&held.key)
            .await
            .unwrap()
            .holder
            .is_some()
    );
}

#[tokio::test]
async fn a_full_server_refuses_and_serves_again_when_there_is_room() {
    let server = RedisServer::builder().max_memory("100mb", "noeviction");
    let server = server.start().unwrap();
    let store = store(&server).await;
    let held = request("held", 60_000);
    let token = granted(store.acquire(&held).await.unwrap()).token;
    let ballast = "x".repeat(3_000_000);
    server.command(&["SET", "ballast", &ballast]).unwrap();
    server.config_set("maxmemory", "2mb").unwrap();
    let advice = "maxmemory";
    refusing(store.acquire(&request("new", 60_000)).await, advice);
    refusing(store.abandon(&key("new"), held.owner).await, advice);
    // What is there can be looked at.
    assert!(store.inspect(&held.key).await.unwrap().holder.is_some());

    server.config_set("maxmemory", "0").unwrap();
    let renewed = store.renew(&renewal(&held, token)).await.unwrap();
    assert_eq!(renewed, RenewOutcome::Renewed);
    let release = store.release(&held.key, held.owner, token).await;
    assert_eq!(release.unwrap(), ReleaseOutcome::Released);
    granted(store.acquire(&request("new", 60_000)).await.unwrap());
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_never_shown() {
    const SECRET: &str = "open-sesame-4711";
    let server = RedisServer::builder()
        .password("right")
        .user("app on >right ~leases:* &leases:* +@all");
    let server = server.start().unwrap();
    let url = server.url();
    for url in [
        url.clone().user("app", SECRET),
        url.clone().user("nobody", SECRET),
        url.clone().user("default", SECRET),
    ] {
        let error = options(&url).open().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
        assert!(error.message().contains("password"), "{error}");
        let all = format!("{error} {error:?} {:?}", options(&url));
        assert!(!all.contains(SECRET), "{all}");
    }
    let nobody = options(&url.anonymous()).open_lazily().unwrap();
    refusing(nobody.inspect(&key("a")).await, "password");
}

#[tokio::test]
async fn a_password_that_is_changed_is_told_at_the_next_connection() {
    let server = RedisServer::builder().user("app on >old ~leases:* &leases:* +@all");
    let server = server.start().unwrap();
    let store = options(&server.url().user("app", "old"));
    let store = store.open().await.unwrap();
    store.inspect(&key("a")).await.unwrap();
    server
        .command(&["ACL", "SETUSER", "app", "resetpass", ">new"])
        .unwrap();
    server.command(&["CLIENT", "KILL", "USER", "app"]).unwrap();
    let name = key("a");
    let started = Instant::now();
    loop {
        match store.inspect(&name).await {
            Err(e) if e.is_transient() => assert!(started.elapsed() < PATIENCE),
            answer => break refusing(answer, "password"),
        }
    }
    server.command(&["ACL", "SETUSER", "app", ">old"]).unwrap();
    store.inspect(&name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_its_data_is_unavailable_until_it_has() {
    const COUNT: usize = 300;
    let server = RedisServer::builder()
        .persistence(Persistence::Rdb)
        // Ten milliseconds for each key, with an ear for clients in between.
        .config("key-load-delay 10000")
        .config("loading-process-events-interval-bytes 1024");
    let server = Arc::new(server.start().unwrap());
    let store = store(&server).await;
    let held = request("held", 600_000);
    let token = granted(store.acquire(&held).await.unwrap()).token;
    let value = "x".repeat(2000);
    for number in 0..COUNT {
        server
            .command(&["SET", &format!("ballast/{number}"), &value])
            .unwrap();
    }
    server.config_set("rdbcompression", "no").unwrap();
    server.save().unwrap();
    server.kill().unwrap();
    let starting = {
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || server.start())
    };
    let mut loading = 0;
    let started = Instant::now();
    let state = loop {
        match store.inspect(&held.key).await {
            Ok(state) => break state,
            Err(e) => {
                assert!(e.is_transient(), "{e:?}");
                if e.message().contains("LOADING") || e.message().contains("loading") {
                    assert_eq!(e.kind(), StoreErrorKind::Unavailable, "{e:?}");
                    loading += 1;
                }
            }
        }
        assert!(started.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    starting.await.unwrap().unwrap();
    assert!(loading > 0, "it was never seen to load");
    assert_eq!(state.holder.unwrap().token, token);
}

#[tokio::test]
async fn a_server_that_has_forgotten_the_script_is_sent_it_again() {
    let server = plain();
    let store = store(&server).await;
    let flush = || server.script_flush().unwrap();
    let request = request("a", 60_000);
    flush();
    let token = granted(store.acquire(&request).await.unwrap()).token;
    flush();
    let renew = renewal(&request, token);
    assert_eq!(store.renew(&renew).await.unwrap(), RenewOutcome::Renewed);
    flush();
    for outcome in store.renew_many(&[renew.clone(), renew]).await {
        assert_eq!(outcome.unwrap(), RenewOutcome::Renewed);
    }
    flush();
    assert!(store.inspect(&request.key).await.unwrap().holder.is_some());
    flush();
    let release = store.release(&request.key, request.owner, token).await;
    assert_eq!(release.unwrap(), ReleaseOutcome::Released);
    flush();
    store.abandon(&request.key, request.owner).await.unwrap();
}
