//! Sessions that end, requests that are dropped, servers that are full.

use std::time::Duration;

use futures_util::FutureExt as _;
use lease_conformance::servers::postgres::PostgresServer;
use lease_core::{LeaseBackend, RenewOutcome, StoreErrorKind};

use crate::support::{LONG, ask, grant, key, options, options_at, owner, renewal, server};

const OURS: &str = "application_name = 'leases'";

#[tokio::test]
async fn ended_sessions_cost_no_request() {
    let server = PostgresServer::builder().fsync(false).start().unwrap();
    let store = options_at(&server, "own").open().await.unwrap();
    let (me, token) = grant(&store, "k", LONG).await.unwrap();
    for _ in 0..3 {
        assert!(server.terminate_backends(OURS).unwrap() > 0);
        let renewed = store.renew(&renewal("k", me, token)).await.unwrap();
        assert_eq!(renewed, RenewOutcome::Renewed);
        store.inspect(&key("k")).await.unwrap();
    }
    server.restart().unwrap();
    let renewed = store.renew(&renewal("k", me, token)).await.unwrap();
    assert_eq!(renewed, RenewOutcome::Renewed);
}

#[tokio::test]
async fn a_dropped_request_leaves_its_connection_in_order() {
    let store = options("dropping").connections(2).open().await.unwrap();
    for polls in 0..40 {
        let (name, me) = (format!("k{polls}"), owner());
        let request = ask(&name, me, LONG);
        let mut acquiring = Box::pin(store.acquire(&request));
        for _ in 0..polls {
            if (&mut acquiring).now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(acquiring);
        store.abandon(&key(&name), me).await.unwrap();
        grant(&store, &name, LONG).await.unwrap();
    }
    // Two, two for renewals, and whatever other tests have in their schemas is
    // not counted.
    let count = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%\"dropping\"%' AND pid <> \
                 pg_backend_pid()";
    let open = server().sql(count).unwrap().integer().unwrap();
    assert!(open <= 4, "{open}");
}

#[tokio::test]
async fn a_server_without_room_is_unavailable_and_used_when_there_is_some() {
    let server = PostgresServer::builder()
        .fsync(false)
        .role("app", "p", "CONNECTION LIMIT 1")
        .start()
        .unwrap();
    let owner = options_at(&server, "own");
    owner.clone().open().await.unwrap();
    server.sql(&owner.grants_sql("app")).unwrap();
    let url = server.url().user("app", "p").to_string();
    let options = || {
        let options = lease_postgres::PostgresOptions::from_url(&url).unwrap();
        options.schema("own").unwrap()
    };
    let first = options().open().await.unwrap();
    let (me, token) = grant(&first, "a", LONG).await.unwrap();
    // There is no connection for renewals, so they use the other one.
    let many = first.renew_many(&[renewal("a", me, token)]).await;
    assert!(matches!(many[..], [Ok(RenewOutcome::Renewed)]), "{many:?}");
    let error = options().open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    drop(first);
    let second = options().open_lazily().unwrap();
    let mut tries = 0;
    while let Err(error) = grant(&second, "b", LONG).await {
        tries += 1;
        assert!(error.is_transient() && tries < 500, "{error}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn a_runtime_that_ends_takes_its_connections_along_and_no_other() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (first, second) = (runtime(), runtime());
    let store = first.block_on(options("runtimes").open()).unwrap();
    let use_it = |name: &'static str| {
        let store = store.clone();
        async move {
            let (me, token) = grant(&store, name, LONG).await.unwrap();
            let hints = store.watch(&key(name)).await.unwrap();
            store.release(&key(name), me, token).await.unwrap();
            hints
        }
    };
    let hints = first.block_on(use_it("a"));
    second.block_on(async { drop(use_it("b").await) });
    drop(first);
    // Its streams end.
    let left = futures_util::StreamExt::collect::<Vec<_>>(hints);
    assert!(second.block_on(left).len() <= 1);
    second.block_on(async { drop(use_it("c").await) });
}
