//! Wake-ups: who is told, and when nobody is.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use lease_conformance::servers::postgres::PostgresServer;
use lease_core::LeaseBackend;
use lease_postgres::sqlx::postgres::PgListener;

use crate::support::{LONG, grant, key, options_at};

const SOON: Duration = Duration::from_secs(20);

/// As the store names it: FNV-1a of the schema and the prefix.
fn channel(schema: &str, prefix: &str) -> String {
    let hash = format!("{schema}\0{prefix}")
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    format!("leases_{hash:016x}")
}

#[tokio::test]
async fn nobody_is_told_of_a_key_that_nobody_waits_for() {
    let server = PostgresServer::builder().fsync(false).start().unwrap();
    let options = options_at(&server, "told").table_prefix("x").unwrap();
    let store = options.open().await.unwrap();
    let mut hints = store.watch(&key("waited for")).await.unwrap();
    let mut listener = PgListener::connect(&server.url().to_string())
        .await
        .unwrap();
    listener.listen(&channel("told", "x")).await.unwrap();
    for name in ["alone", "waited for"] {
        let (me, token) = grant(&store, name, LONG).await.unwrap();
        store.release(&key(name), me, token).await.unwrap();
    }
    let told = tokio::time::timeout(SOON, listener.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(told.payload(), "waited for");
    tokio::time::timeout(SOON, hints.next())
        .await
        .unwrap()
        .unwrap();
    assert!(listener.next_buffered().is_none());
}

#[tokio::test]
async fn an_abandoned_grant_wakes_those_who_wait() {
    let server = PostgresServer::builder().fsync(false).start().unwrap();
    let store = options_at(&server, "own").open().await.unwrap();
    let (me, _) = grant(&store, "k", LONG).await.unwrap();
    let mut hints = store.watch(&key("k")).await.unwrap();
    assert!(hints.next().now_or_never().is_none());
    store.abandon(&key("k"), me).await.unwrap();
    tokio::time::timeout(SOON, hints.next())
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_listener_that_was_cut_off_listens_again_and_wakes_its_watchers() {
    let server = PostgresServer::builder().fsync(false).start().unwrap();
    let store = options_at(&server, "own").open().await.unwrap();
    let (me, token) = grant(&store, "k", LONG).await.unwrap();
    let mut hints = store.watch(&key("k")).await.unwrap();
    server
        .terminate_backends("application_name = 'leases'")
        .unwrap();
    // Something may have been missed meanwhile.
    tokio::time::timeout(SOON, hints.next())
        .await
        .unwrap()
        .unwrap();
    // A release over a connection that is gone would have an unknown outcome.
    store.inspect(&key("k")).await.unwrap();
    store.release(&key("k"), me, token).await.unwrap();
    tokio::time::timeout(SOON, hints.next())
        .await
        .unwrap()
        .unwrap();
}
