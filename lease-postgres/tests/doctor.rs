//! What the doctor says of real servers, well and badly kept.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::postgres::{
    PgBouncer, PoolMode, PostgresBuilder, PostgresServer, PostgresUrl,
};
use lease_core::{Diagnosis, Finding, LeaseBackend, Severity, StoreErrorKind, Ttl};
use lease_postgres::PostgresOptions;

fn server() -> PostgresServer {
    quick().start().unwrap()
}

/// As a server that is kept well, but for its `fsync`.
fn quick() -> PostgresBuilder {
    PostgresServer::builder()
        .fsync(false)
        .role("app", "secret", "")
}

fn options(url: PostgresUrl) -> PostgresOptions {
    PostgresOptions::from_url(&url.to_string()).unwrap()
}

async fn look(options: PostgresOptions) -> Diagnosis {
    let ttl = Ttl::new(Duration::from_secs(30)).unwrap();
    let store = options.open_lazily().unwrap();
    store.diagnose(ttl).await.unwrap()
}

/// The one finding about something.
#[track_caller]
fn about<'f>(found: &'f Diagnosis, subject: &str) -> &'f Finding {
    let mut of = found.findings.iter().filter(|finding| {
        let rest = finding.what.strip_prefix(subject);
        rest.is_some_and(|rest| rest.starts_with(':'))
    });
    let one = of.next();
    assert!(of.next().is_none(), "{subject} twice: {found:?}");
    one.unwrap_or_else(|| panic!("{subject} is missing: {found:?}"))
}

#[track_caller]
fn is(found: &Diagnosis, subject: &str, severity: Severity, part: &str) {
    let one = about(found, subject);
    assert_eq!(one.severity, severity, "{one:?}");
    assert!(one.what.contains(part), "{one:?}");
    assert!(!one.why.is_empty());
    let tells = one.advice.is_some() || severity <= Severity::Note;
    assert!(tells, "{one:?}");
}

#[tokio::test]
async fn a_server_that_is_kept_well_is_sound_in_everything() {
    let server = PostgresServer::builder()
        .role("boss", "secret", "SUPERUSER")
        .start()
        .unwrap();
    options(server.url()).open().await.unwrap();
    // By its administrator, who may look at all of it.
    let found = look(options(server.url().user("boss", "secret"))).await;
    assert_eq!(found.worst(), Severity::Healthy, "{found:?}");
    for subject in [
        "server",
        "role",
        "writes",
        "fsync",
        "full_page_writes",
        "encoding",
        "wraparound",
        "synchronous_commit",
        "standbys",
        "tables",
        "unlogged",
        "keys",
        "rights",
        "statement_timeout",
        "lock_timeout",
        "idle_in_transaction_session_timeout",
        "autovacuum",
        "old versions",
        "long transactions",
        "replication slots",
        "pooler",
        "connections",
        "TLS",
        "logins",
        "clock",
        "round trips",
    ] {
        about(&found, subject);
    }
    let place = format!(
        "at {}, database \"postgres\", role \"boss\"",
        server.address()
    );
    is(&found, "server", Severity::Healthy, &place);
    // A user of its own sees less, and is told so.
    let found = look(options(server.url())).await;
    assert_eq!(found.worst(), Severity::Note, "{found:?}");
    is(&found, "logins", Severity::Note, "could not be found out");
}

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
async fn a_server_that_forgets_in_a_crash_is_critical() {
    let server = quick().config("full_page_writes", "off").start().unwrap();
    let found = look(options(server.url())).await;
    is(&found, "fsync", Severity::Critical, "off");
    is(&found, "full_page_writes", Severity::Warning, "off");
    is(&found, "tables", Severity::Note, "missing");
    // It was only looked at.
    let made = server.sql("SELECT to_regclass('lease_keys') IS NULL");
    assert!(made.unwrap().is_true());
}

#[tokio::test]
async fn how_commits_are_made_is_told_as_the_store_makes_them() {
    let server = server();
    let found = look(options(server.url())).await;
    let subject = "synchronous_commit";
    is(&found, subject, Severity::Healthy, "on, by default");
    let found = look(options(server.url()).asynchronous_commit(true)).await;
    is(&found, subject, Severity::Warning, "asynchronous_commit");
    server
        .sql("ALTER ROLE app SET synchronous_commit TO off")
        .unwrap();
    let found = look(options(server.url().user("app", "secret"))).await;
    is(&found, subject, Severity::Note, "setting of the role");
    let url = server
        .url()
        .option("options", "-c synchronous_commit=local");
    is(&look(options(url)).await, subject, Severity::Healthy, "URL");
}

#[tokio::test]
async fn standbys_are_judged_by_what_a_commit_waits_for() {
    let server = server();
    let url = || options(server.url());
    url().open().await.unwrap();
    server
        .config_set("synchronous_standby_names", "FIRST 1 (gone)")
        .unwrap();
    let found = look(url()).await;
    is(&found, "standbys", Severity::Critical, "0 of them");
    server.config_set("synchronous_standby_names", "").unwrap();

    let standby = quick().standby_of(&server).start().unwrap();
    standby.wait_until_linked().unwrap();
    let found = look(url()).await;
    is(
        &found,
        "standbys",
        Severity::Warning,
        "could not be checked",
    );
    server.sql("GRANT pg_monitor TO leases").unwrap();
    is(
        &look(url()).await,
        "standbys",
        Severity::Note,
        "asynchronous",
    );
    server.set_synchronous(&[&standby]).unwrap();
    let found = look(url()).await;
    is(
        &found,
        "standbys",
        Severity::Note,
        "waits for 1 of 1, and none",
    );
    let spare = quick().standby_of(&server).start().unwrap();
    spare.wait_until_linked().unwrap();
    let both = format!("FIRST 1 ({}, {})", standby.name(), spare.name());
    server
        .config_set("synchronous_standby_names", &both)
        .unwrap();
    spare.wait_until_linked().unwrap();
    let found = look(url()).await;
    is(&found, "standbys", Severity::Healthy, "waits for 1 of 2");
    let found = look(url().asynchronous_commit(true)).await;
    is(&found, "standbys", Severity::Warning, "wait for none");

    standby.wait_until_linked().unwrap();
    let found = look(options(standby.url())).await;
    is(&found, "role", Severity::Critical, "standby");
    is(&found, "writes", Severity::Critical, "standby");
}

#[tokio::test]
async fn tables_that_are_not_kept_are_critical() {
    let server = server();
    let at = |schema: &str| options(server.url()).schema(schema).unwrap();
    let found = look(at("none").migrate(false)).await;
    is(&found, "tables", Severity::Critical, "lease_keys");
    let theirs = options(server.url().user("app", "secret"));
    let found = look(theirs.schema("public").unwrap()).await;
    is(&found, "tables", Severity::Critical, "missing");

    at("it's \\ \"own\"").open().await.unwrap();
    let found = look(at("it's \\ \"own\"")).await;
    is(&found, "tables", Severity::Healthy, "version 1");

    at("one").open().await.unwrap();
    server
        .sql(
            "ALTER TABLE one.lease_keys SET UNLOGGED; \
             ALTER TABLE one.lease_gate ENABLE ROW LEVEL SECURITY; \
             UPDATE one.lease_schema SET version = 8, compatible = 7",
        )
        .unwrap();
    let found = look(at("one")).await;
    is(&found, "unlogged", Severity::Critical, "lease_keys");
    is(&found, "row security", Severity::Critical, "lease_gate");
    is(&found, "tables", Severity::Critical, "from version 7");
    let advice = about(&found, "unlogged").advice.clone().unwrap();
    server.sql(&advice).unwrap();
    is(&look(at("one")).await, "unlogged", Severity::Healthy, "no");
}

#[tokio::test]
async fn every_right_that_is_missing_comes_with_its_grant() {
    let server = server();
    let own = options(server.url()).schema("own").unwrap();
    own.clone().open().await.unwrap();
    let theirs = || {
        let options = options(server.url().user("app", "secret"));
        options.schema("own").unwrap()
    };
    let found = look(theirs()).await;
    is(&found, "rights", Severity::Critical, "USAGE of the schema");
    let advice = about(&found, "rights").advice.clone().unwrap();
    server.sql(&advice).unwrap();
    is(&look(theirs()).await, "rights", Severity::Healthy, "app");
    theirs().open().await.unwrap();
    server
        .sql("REVOKE UPDATE ON own.lease_keys FROM app")
        .unwrap();
    let found = look(theirs()).await;
    is(&found, "rights", Severity::Critical, "UPDATE of");
    let advice = about(&found, "rights").advice.clone().unwrap();
    assert_eq!(advice, "GRANT UPDATE ON \"own\".\"lease_keys\" TO \"app\";");
    server.sql(&advice).unwrap();
    let hold = "FUNCTION own.lease_hold(text, bytea, bigint)";
    server
        .sql(&format!("REVOKE EXECUTE ON {hold} FROM app"))
        .unwrap();
    let found = look(theirs()).await;
    is(&found, "rights", Severity::Critical, "EXECUTE of");
    let advice = about(&found, "rights").advice.clone().unwrap();
    server.sql(&advice).unwrap();
    is(&look(theirs()).await, "rights", Severity::Healthy, "app");
    server.sql(&format!("DROP {hold}")).unwrap();
    let found = look(theirs()).await;
    is(&found, "tables", Severity::Critical, "lease_hold(text");
}

#[tokio::test]
async fn settings_of_a_role_that_bite_are_told_with_their_place() {
    let server = server();
    let url = || options(server.url().user("app", "secret"));
    server
        .sql(
            "ALTER ROLE app SET statement_timeout TO '2s'; \
             ALTER DATABASE postgres SET lock_timeout TO '3s'; \
             ALTER ROLE app SET idle_in_transaction_session_timeout TO '4s'; \
             ALTER ROLE app CONNECTION LIMIT 3",
        )
        .unwrap();
    let found = look(url()).await;
    is(
        &found,
        "statement_timeout",
        Severity::Note,
        "2s, by a setting of the role",
    );
    is(
        &found,
        "lock_timeout",
        Severity::Note,
        "3s, by a setting of the database",
    );
    let name = "idle_in_transaction_session_timeout";
    is(&found, name, Severity::Note, "4s, by a setting of the role");
    is(
        &found,
        "connections",
        Severity::Warning,
        "1 of the 3 of this role",
    );
    server
        .sql("ALTER ROLE app SET default_transaction_read_only TO on")
        .unwrap();
    is(
        &look(url()).await,
        "writes",
        Severity::Critical,
        "read-only",
    );
}

#[tokio::test]
async fn old_versions_that_pile_up_are_told() {
    let server = server();
    let url = || options(server.url());
    url().open().await.unwrap();
    server
        .sql(
            "ALTER TABLE lease_keys SET (autovacuum_enabled = off); \
             INSERT INTO lease_keys (key, mark, version, awaited_us) VALUES ('k', 1, 1, 0); \
             DO $$ BEGIN FOR n IN 1..30000 LOOP \
                UPDATE lease_keys SET mark = mark + 1; END LOOP; END $$",
        )
        .unwrap();
    let found = look(url()).await;
    is(
        &found,
        "autovacuum",
        Severity::Warning,
        "off for lease_keys",
    );
    is(&found, "old versions", Severity::Warning, "for 1 key,");
    server.config_set("autovacuum", "off").unwrap();
    let found = look(url()).await;
    is(&found, "autovacuum", Severity::Warning, "off");
    server.config_set("track_counts", "off").unwrap();
    server.config_set("autovacuum", "on").unwrap();
    let found = look(url()).await;
    is(&found, "autovacuum", Severity::Warning, "blind");
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
async fn a_database_of_another_encoding_is_critical() {
    let server = server();
    server
        .sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0 OWNER leases")
        .unwrap();
    let found = look(options(server.url().database("latin"))).await;
    is(&found, "encoding", Severity::Critical, "LATIN1");
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
