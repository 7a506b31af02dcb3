//! The store's tables: there, kept, and who may use them.

use lease_core::{Severity, StoreErrorKind};

use crate::support::{about, is, look, options, server};

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

/// What its server would let pass, and its statements rely on.
#[tokio::test]
async fn what_only_looks_like_the_stores_tables_is_refused_and_critical() {
    let server = server();
    for (n, (changed, named)) in [
        ("CREATE TABLE s.kid () INHERITS (s.lease_keys)", "inherits from it"),
        ("ALTER TABLE s.lease_keys DROP CONSTRAINT lease_keys_pkey", "primary key is not (key)"),
        ("ALTER TABLE s.lease_keys ALTER token TYPE numeric", "token is numeric and not bigint"),
        ("ALTER TABLE s.lease_keys ALTER mark TYPE integer", "mark is integer"),
        ("ALTER TABLE s.lease_keys ALTER label TYPE bytea USING NULL", "label is bytea"),
        ("ALTER TABLE s.lease_keys RENAME grace_us TO gg", "no column grace_us"),
        ("ALTER TABLE s.lease_tombstones RENAME TO away; CREATE VIEW s.lease_tombstones AS SELECT 1", "it is no table"),
        ("DROP FUNCTION s.lease_admit; CREATE FUNCTION s.lease_admit(text, bigint) RETURNS void LANGUAGE sql AS 'SELECT NULL::void'", "lease_admit"),
    ]
    .into_iter()
    .enumerate()
    {
        let schema = format!("shape{n}");
        let at = || options(server.url()).schema(&schema).unwrap();
        at().open().await.unwrap();
        server.sql(&changed.replace("s.", &format!("{schema}."))).unwrap();
        let error = at().open().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refusing, "{changed}: {error}");
        assert!(error.to_string().contains(named), "{changed}: {error}");
        let found = look(at()).await;
        is(&found, "not the store's own", Severity::Critical, named);
    }
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
