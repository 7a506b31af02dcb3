//! Servers, stores and requests.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use lease_conformance::servers::postgres::PostgresServer;
use lease_core::{Key, Label, Owner, Ttl};
use lease_postgres::sqlx::{AssertSqlSafe, Connection as _, PgConnection, raw_sql};
use lease_queue::postgres::{PostgresOptions, PostgresQueues};
use lease_queue::{
    Answer, ClaimRef, ClaimRequest, Claimed, ItemId, NewItem, QueueName, QueueStore as _, Settle,
    Settled, What,
};

pub(crate) const LONG: Duration = Duration::from_secs(60);

/// One server for all tests that do nothing to it; each has a schema of its own.
pub(crate) fn server() -> &'static PostgresServer {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    SERVER.get_or_init(|| {
        PostgresServer::builder()
            .fsync(false)
            .config("max_connections", "300")
            .start()
            .unwrap()
    })
}

pub(crate) fn options(schema: &str) -> PostgresOptions {
    options_at(server(), schema)
}

pub(crate) fn options_at(server: &PostgresServer, schema: &str) -> PostgresOptions {
    let options = PostgresQueues::options(&format!("queue+{}", server.url())).unwrap();
    options.schema(schema).unwrap()
}

pub(crate) async fn open(schema: &str) -> PostgresQueues {
    PostgresQueues::open(options(schema)).await.unwrap()
}

/// A connection beside the store's.
pub(crate) async fn connection() -> PgConnection {
    PgConnection::connect(&server().url().to_string())
        .await
        .unwrap()
}

pub(crate) async fn run(db: &mut PgConnection, sql: &str) {
    raw_sql(AssertSqlSafe(sql)).execute(db).await.unwrap();
}

pub(crate) fn jobs() -> QueueName {
    QueueName::new("jobs").unwrap()
}

pub(crate) fn owner() -> Owner {
    Owner::random().unwrap()
}

pub(crate) fn item(group: Option<&str>, body: &str) -> NewItem {
    NewItem {
        id: ItemId::random().unwrap(),
        body: Bytes::from(body.to_owned()),
        group: group.map(|group| Key::new(group).unwrap()),
        dedup: None,
        delay: Duration::ZERO,
    }
}

pub(crate) fn next(owner: Owner, max: usize, ttl: Duration) -> ClaimRequest {
    ClaimRequest {
        owner,
        ttl: Ttl::new(ttl).unwrap(),
        label: Label::EMPTY,
        what: What::Next { max },
    }
}

/// Claims what is ready.
pub(crate) async fn claim(store: &PostgresQueues, max: usize) -> Vec<Claimed> {
    match store
        .claim(&jobs(), &next(owner(), max, LONG))
        .await
        .unwrap()
    {
        Answer::Claimed { items, .. } => items,
        Answer::Nothing { .. } => Vec::new(),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn settle(store: &PostgresQueues, claim: &ClaimRef, how: Settle) -> Settled {
    let outcome = store.settle(&jobs(), &[(claim.clone(), how)]).await;
    outcome.into_iter().next().unwrap().unwrap()
}
