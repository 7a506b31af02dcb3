//! The server itself: what it keeps, and for whom.

use lease_conformance::servers::postgres::PostgresServer;
use lease_core::Severity;

use crate::support::{about, is, look, options, quick, server};

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
    server.set_synchronous_of(1, &[&standby, &spare]).unwrap();
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
async fn a_database_of_another_encoding_is_critical() {
    let server = server();
    server
        .sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0 OWNER leases")
        .unwrap();
    let found = look(options(server.url().database("latin"))).await;
    is(&found, "encoding", Severity::Critical, "LATIN1");
}
