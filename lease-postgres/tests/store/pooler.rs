//! Poolers between the store and its server.

use std::time::Duration;

use futures_util::StreamExt as _;
use lease_conformance::servers::postgres::{PgBouncer, PoolMode, PostgresServer};
use lease_core::{AcquireOutcome, LeaseBackend, RenewOutcome, StoreErrorKind, WakeUps};
use lease_postgres::{PostgresOptions, PostgresStore};

use crate::support::{LONG, ask, grant, key, owner, renewal, server};

fn options(bouncer: &PgBouncer, schema: &str) -> PostgresOptions {
    let options = PostgresOptions::from_url(&bouncer.url().to_string()).unwrap();
    options.schema(schema).unwrap()
}

fn polls(store: &PostgresStore) -> bool {
    matches!(store.guarantees().wake_ups, WakeUps::Poll { .. })
}

/// Every operation, and wake-ups.
async fn use_it(store: &PostgresStore) {
    let (me, token) = grant(store, "k", LONG).await.unwrap();
    let held = store.acquire(&ask("k", owner(), LONG)).await.unwrap();
    assert!(matches!(held, AcquireOutcome::Held(_)));
    let mut hints = store.watch(&key("k")).await.unwrap();
    let renewed = store.renew(&renewal("k", me, token)).await.unwrap();
    assert_eq!(renewed, RenewOutcome::Renewed);
    store.release(&key("k"), me, token).await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), hints.next())
        .await
        .unwrap()
        .unwrap();
    assert!(grant(store, "k", LONG).await.unwrap().1 > token);
}

#[tokio::test]
async fn a_pooler_by_transaction_is_found_out_and_worked_with() {
    for size in [1, 3, 20] {
        for more in ["extra_float_digits", "options"] {
            let bouncer = PgBouncer::before(server())
                .pool_mode(PoolMode::Transaction)
                .pool_size(size)
                .config("ignore_startup_parameters", more)
                .start()
                .unwrap();
            let schema = format!("transaction {size} {more}");
            let store = options(&bouncer, &schema).open().await.unwrap();
            assert!(polls(&store), "{schema}");
            use_it(&store).await;
        }
    }
}

#[tokio::test]
async fn pgbouncer_needs_no_setting_for_the_store() {
    let bouncer = PgBouncer::before(server())
        .config("ignore_startup_parameters", "")
        .start()
        .unwrap();
    let store = options(&bouncer, "as it comes").open().await.unwrap();
    use_it(&store).await;
}

#[tokio::test]
async fn a_pooler_by_session_and_none_are_not_taken_for_one_by_transaction() {
    let bouncer = PgBouncer::before(server())
        .pool_mode(PoolMode::Session)
        .start()
        .unwrap();
    let store = options(&bouncer, "by session").open().await.unwrap();
    assert!(!polls(&store));
    use_it(&store).await;
    let direct = crate::support::options("no pooler").open().await.unwrap();
    assert!(!polls(&direct));
}

#[tokio::test]
async fn a_pooler_that_refuses_settings_of_the_url_is_told_of() {
    let bouncer = PgBouncer::before(server()).start().unwrap();
    let url = bouncer.url().to_string();
    let sign = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{sign}options=-c%20timezone=UTC");
    let options = PostgresOptions::from_url(&url).unwrap();
    let error = options.open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    let words = error.to_string();
    assert!(words.contains("ignore_startup_parameters"), "{words}");
}

#[tokio::test]
async fn defaults_of_a_role_change_nothing() {
    let server = PostgresServer::builder()
        .fsync(false)
        .role("odd", "p", "")
        .start()
        .unwrap();
    let url = server.url().to_string();
    let owned = PostgresOptions::from_url(&url).unwrap();
    owned.clone().open().await.unwrap();
    server.sql(&owned.grants_sql("odd")).unwrap();
    server
        .sql(
            "CREATE SCHEMA trap; GRANT USAGE ON SCHEMA trap TO odd; \
             CREATE FUNCTION trap.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS \
             $$SELECT 'epoch'::timestamptz$$; \
             CREATE FUNCTION trap.greatest_mark() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        )
        .unwrap();
    for set in [
        "default_transaction_isolation = 'serializable'",
        "synchronous_commit = off",
        "search_path = trap, pg_catalog, public",
        "\"DateStyle\" = 'German, DMY'",
        "\"TimeZone\" = 'Asia/Kathmandu'",
        "\"IntervalStyle\" = 'iso_8601'",
        "bytea_output = escape",
        "extra_float_digits = -15",
        "statement_timeout = 1",
        "lock_timeout = 1",
    ] {
        server.sql(&format!("ALTER ROLE odd SET {set}")).unwrap();
    }
    let bouncer = PgBouncer::before(&server).pool_size(2).start().unwrap();
    let plain = server.url().user("odd", "p").to_string();
    let pooled = bouncer.url().user("odd", "p").to_string();
    for url in [plain, pooled] {
        let store = PostgresOptions::from_url(&url)
            .unwrap()
            .migrate(false)
            .open()
            .await
            .unwrap();
        let (me, token) = grant(&store, "k", LONG).await.unwrap();
        // Not as many as those before 2020, in microseconds.
        assert!(token.get() > 1_577_836_800_000_000);
        use_it_as(&store, me, token).await;
    }
}

async fn use_it_as(store: &PostgresStore, me: lease_core::Owner, token: lease_core::Token) {
    let renewed = store.renew(&renewal("k", me, token)).await.unwrap();
    assert_eq!(renewed, RenewOutcome::Renewed);
    let state = store.inspect(&key("k")).await.unwrap();
    let holder = state.holder.unwrap();
    assert!(holder.remaining <= LONG && holder.remaining > LONG / 2);
    store.release(&key("k"), me, token).await.unwrap();
}

#[tokio::test]
async fn clients_of_one_pooler_share_sessions_and_exclude_each_other() {
    let bouncer = PgBouncer::before(server()).pool_size(2).start().unwrap();
    let mut stores = Vec::new();
    for _ in 0..6 {
        stores.push(options(&bouncer, "sharing").open().await.unwrap());
    }
    let asked = (0..60).map(|n| {
        let store = stores[n % stores.len()].clone();
        tokio::spawn(async move {
            let request = ask(&format!("k{}", n / 6), owner(), LONG);
            let outcome = store.acquire(&request).await.unwrap();
            usize::from(matches!(outcome, AcquireOutcome::Granted(_)))
        })
    });
    let granted = futures_util::future::join_all(asked).await;
    assert_eq!(granted.into_iter().map(Result::unwrap).sum::<usize>(), 10);
}

#[tokio::test]
async fn a_pooler_that_restarts_costs_no_request() {
    let bouncer = PgBouncer::before(server()).start().unwrap();
    let store = options(&bouncer, "restarts").open().await.unwrap();
    let (me, token) = grant(&store, "k", LONG).await.unwrap();
    store.renew(&renewal("k", me, token)).await.unwrap();
    bouncer.restart().unwrap();
    store.release(&key("k"), me, token).await.unwrap();
    grant(&store, "k", LONG).await.unwrap();
}

/// Before a server with a role of its own.
fn server_with_a_role() -> PostgresServer {
    let builder = PostgresServer::builder().fsync(false);
    builder.role("app", "secret", "").start().unwrap()
}

#[tokio::test]
async fn who_is_not_let_in_through_a_pooler_is_told_what_to_change() {
    let server = server_with_a_role();
    // As it comes, a pooler waits longer than a client does before it tries again.
    let retry = ("server_login_retry", "15");
    let bouncer = PgBouncer::before(&server).start().unwrap();
    let url = || bouncer.url().user("app", "secret");
    for (url, advice) in [
        (url().user("app", "wr0ng"), "a user and a password"),
        (url().user("nobody", "wr0ng"), "a user and a password"),
        (url().database("nowhere"), "create the database"),
    ] {
        let options = || PostgresOptions::from_url(&url.to_string()).unwrap();
        let opened = options().open().await.unwrap_err();
        let ttl = lease_core::Ttl::new(LONG).unwrap();
        let looked = options().open_lazily().unwrap().diagnose(ttl).await;
        for error in [opened, looked.unwrap_err()] {
            assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
            let words = error.to_string();
            assert!(words.contains(advice), "{words}");
            assert!(words.contains(&bouncer.address().to_string()), "{words}");
            assert!(!words.contains("wr0ng"), "{words}");
        }
    }
    for (alter, kind, advice) in [
        ("PASSWORD 'other'", StoreErrorKind::Refusing, "a password"),
        (
            "PASSWORD 'secret' NOLOGIN",
            StoreErrorKind::Refusing,
            "a user",
        ),
        (
            "LOGIN CONNECTION LIMIT 0",
            StoreErrorKind::Unavailable,
            "CONNECTION LIMIT",
        ),
    ] {
        server.sql(&format!("ALTER ROLE app {alter}")).unwrap();
        let (name, value) = retry;
        let bouncer = PgBouncer::before(&server)
            .config(name, value)
            .start()
            .unwrap();
        let url = bouncer.url().user("app", "secret").to_string();
        let options = PostgresOptions::from_url(&url).unwrap();
        let limit = Duration::from_millis(500);
        let store = options.connect_timeout(limit).open_lazily().unwrap();
        let error = store.inspect(&key("k")).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{alter}: {error}");
        assert!(error.to_string().contains(advice), "{alter}: {error}");
        // From now on the pooler says nothing for a while; what it said is not forgotten.
        let error = store.inspect(&key("k")).await.unwrap_err().to_string();
        assert!(error.contains("no answer within"), "{alter}: {error}");
        assert!(error.contains(advice), "{alter}: {error}");
    }
}

#[tokio::test]
async fn a_pooler_by_statement_is_refused_by_its_name() {
    let bouncer = PgBouncer::before(server())
        .pool_mode(PoolMode::Statement)
        .start()
        .unwrap();
    let store = options(&bouncer, "by statement").open_lazily().unwrap();
    let asked = store.acquire(&ask("k", owner(), LONG)).await.unwrap_err();
    let opened = options(&bouncer, "by statement").open().await.unwrap_err();
    for error in [asked, opened] {
        assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
        let words = error.to_string();
        assert!(
            words.contains("pool_mode = transaction or session"),
            "{words}"
        );
    }
}

/// What the store has prepared is gone or is not what it was: asked again, nothing was
/// lost and nobody is told.
async fn goes_on(store: &PostgresStore, name: &str) {
    let (me, token) = grant(store, name, LONG).await.unwrap();
    let renewed = store.renew(&renewal(name, me, token)).await.unwrap();
    assert_eq!(renewed, RenewOutcome::Renewed);
    store.inspect(&key(name)).await.unwrap();
    let listed = store.list(name).count().await;
    assert_eq!(listed, 1);
    store.release(&key(name), me, token).await.unwrap();
}

#[tokio::test]
async fn a_pooler_that_begins_to_share_sessions_costs_no_request() {
    let bouncer = PgBouncer::before(server())
        .pool_mode(PoolMode::Session)
        .pool_size(4)
        .start()
        .unwrap();
    let store = options(&bouncer, "turns").open().await.unwrap();
    goes_on(&store, "before").await;
    assert!(!polls(&store));
    bouncer.command("SET pool_mode = 'transaction'").unwrap();
    // It takes hold of what the pooler's sessions had been told by their clients.
    bouncer.command("RECONNECT").unwrap();
    for n in 0..5 {
        goes_on(&store, &format!("after {n}")).await;
    }
    assert!(polls(&store), "it was found out anew");
}
