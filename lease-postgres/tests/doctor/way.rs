//! The way to a server: poolers, TLS, time.

use std::time::Duration;

use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::postgres::{PgBouncer, PoolMode, PostgresServer};
use lease_core::{LeaseBackend, Severity, StoreErrorKind, Ttl};

use crate::support::{is, look, options, quick, server};

#[tokio::test]
async fn a_pooler_that_shares_sessions_is_told_and_commits_are_seen_through_it() {
    let server = quick().start().unwrap();
    server
        .sql("ALTER DATABASE postgres SET synchronous_commit TO off")
        .unwrap();
    for (mode, severity, words) in [
        (PoolMode::Transaction, Severity::Note, "shares sessions"),
        (PoolMode::Session, Severity::Healthy, "none"),
    ] {
        let bouncer = PgBouncer::before(&server).pool_mode(mode).start().unwrap();
        let options = || options(bouncer.url());
        options().open().await.unwrap();
        let found = look(options()).await;
        is(&found, "pooler", severity, words);
        is(
            &found,
            "synchronous_commit",
            Severity::Note,
            "on in the store",
        );
        is(&found, "rights", Severity::Healthy, "all");
        let found = look(options().asynchronous_commit(true)).await;
        is(&found, "synchronous_commit", Severity::Warning, "off");
    }
    let by_statement = PgBouncer::before(&server).pool_mode(PoolMode::Statement);
    let bouncer = by_statement.start().unwrap();
    let found = look(options(bouncer.url())).await;
    is(
        &found,
        "pooler",
        Severity::Critical,
        "pool_mode = statement",
    );
}

#[tokio::test]
async fn trust_over_the_network_and_tls_are_told() {
    let builder = PostgresServer::builder().fsync(false).tls();
    let server = builder
        .role("boss", "secret", "SUPERUSER")
        .hba("hostssl all ghost 10.0.0.0/8 trust")
        .start()
        .unwrap();
    let found = look(options(server.url().user("boss", "secret"))).await;
    is(&found, "TLS", Severity::Healthy, "yes");
    is(&found, "logins", Severity::Note, "1 rule of");
}

#[tokio::test]
async fn a_slow_server_is_judged_by_the_ttl_and_a_silent_one_is_unavailable() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let through = || options(server.url().through(proxy.address()));
    let each_way = Duration::from_millis(100);
    proxy.delay(each_way, each_way);
    let store = through().open_lazily().unwrap();
    let ttl = Ttl::new(Duration::from_millis(300)).unwrap();
    let found = store.diagnose(ttl).await.unwrap();
    is(&found, "round trips", Severity::Critical, "300ms");
    server.kill().unwrap();
    let error = store.diagnose(ttl).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
}
