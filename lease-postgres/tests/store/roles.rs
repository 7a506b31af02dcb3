//! Roles: with the least rights, and with settings of all kinds.

use std::sync::Arc;

use lease_conformance::servers::postgres::PostgresServer;
use lease_core::{FenceWhen, Gate, LeaseBackend, StoreErrorKind, Token};
use lease_postgres::{PostgresOptions, PostgresStore};

use crate::support::{LONG, grant, key, options_at, owner, renewal};

fn server() -> PostgresServer {
    PostgresServer::builder()
        .fsync(false)
        .role("app", "p:w/", "")
        .start()
        .unwrap()
}

fn as_app(server: &PostgresServer) -> PostgresOptions {
    let url = server.url().user("app", "p:w/").to_string();
    PostgresOptions::from_url(&url)
        .unwrap()
        .schema("own")
        .unwrap()
}

/// Every operation once.
async fn use_it(store: &PostgresStore, name: &str) {
    let (me, token) = grant(store, name, LONG).await.unwrap();
    store.renew(&renewal(name, me, token)).await.unwrap();
    store.release(&key(name), me, token).await.unwrap();
    store.abandon(&key(name), owner()).await.unwrap();
    store
        .fence(&key(name), token, FenceWhen::AtExpiry)
        .await
        .unwrap();
    store.inspect(&key(name)).await.unwrap();
    store.admit(&key(name), Token::MIN).await.unwrap();
    drop(store.watch(&key(name)).await.unwrap());
}

#[tokio::test]
async fn the_rights_that_are_printed_are_enough_and_fewer_are_refused() {
    let server = server();
    let owner = options_at(&server, "own");
    owner.clone().open().await.unwrap();
    let error = as_app(&server).open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    server.sql(&owner.grants_sql("app")).unwrap();
    let store = as_app(&server).open().await.unwrap();
    use_it(&store, "k").await;
    server
        .sql("REVOKE UPDATE ON own.lease_keys FROM app")
        .unwrap();
    let error = grant(&store, "k", LONG).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    assert!(error.to_string().contains("rights"), "{error}");
}

#[tokio::test]
async fn settings_of_the_role_change_nothing() {
    let server = server();
    let owner = options_at(&server, "own");
    owner.clone().open().await.unwrap();
    server.sql(&owner.grants_sql("app")).unwrap();
    // A function and an operator of the wrong kind, before the right ones.
    server
        .sql(
            "CREATE SCHEMA wrong; GRANT USAGE ON SCHEMA wrong TO app; \
             CREATE FUNCTION wrong.clock_timestamp() RETURNS timestamptz LANGUAGE sql \
                AS $$ SELECT timestamptz '1999-01-01' $$; \
             ALTER ROLE app SET search_path TO wrong, pg_catalog; \
             ALTER ROLE app SET default_transaction_isolation TO 'serializable'; \
             ALTER ROLE app SET timezone TO 'Asia/Kathmandu'; \
             ALTER ROLE app SET datestyle TO 'German'; \
             ALTER ROLE app SET intervalstyle TO 'sql_standard'; \
             ALTER ROLE app SET bytea_output TO 'escape'; \
             ALTER ROLE app SET synchronous_commit TO off; \
             ALTER ROLE app SET statement_timeout TO 1000; \
             ALTER ROLE app SET standard_conforming_strings TO off",
        )
        .unwrap();
    let stores: Vec<_> = futures_util::future::join_all(
        (0..4).map(|_| async { Arc::new(as_app(&server).open().await.unwrap()) }),
    )
    .await;
    // They get in each other's way as much as they can.
    let tasks: Vec<_> = (0..40)
        .map(|n| {
            let store = Arc::clone(&stores[n % 4]);
            tokio::spawn(async move {
                for round in 0..5 {
                    use_it(&store, &format!("k{n}.{round}")).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let (_, token) = grant(&stores[0], "now", LONG).await.unwrap();
    let now = server.sql("SELECT (extract(epoch FROM now()) * 1000000)::bigint");
    let now = now.unwrap().integer().unwrap();
    let token = i64::try_from(token.get()).unwrap();
    assert!((token - now).abs() < 60_000_000, "{token} at {now}");
}
