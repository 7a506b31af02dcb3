//! Opening: tables that are missing, there, or somebody else's.

use lease_conformance::servers::postgres::PostgresServer;
use lease_core::{AcquireOutcome, Gate, LeaseBackend, StoreErrorKind, Token};
use lease_postgres::PostgresOptions;
use lease_postgres::sqlx::Connection as _;

use crate::support::{LONG, ask, connection, grant, key, options, options_at, owner, server};

/// Tells a process of this test that it is one of the twenty, and which.
const ONE_OF_THEM: &str = "LEASES_POSTGRES_ONE_OF_TWENTY";

#[test]
fn twenty_processes_start_at_once_on_an_empty_database() {
    if let Ok(one) = std::env::var(ONE_OF_THEM) {
        let (key, url) = one.split_once(' ').unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        return runtime.block_on(async {
            let options = PostgresOptions::from_url(url).unwrap();
            let options = options.schema("at once").unwrap().connections(1);
            grant(&options.open().await.unwrap(), key, LONG)
                .await
                .unwrap();
        });
    }
    let server = PostgresServer::builder()
        .fsync(false)
        .config("max_connections", "100")
        .start()
        .unwrap();
    let name = "opening::twenty_processes_start_at_once_on_an_empty_database";
    let started: Vec<_> = (0..20)
        .map(|n| {
            std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name])
                .env(ONE_OF_THEM, format!("k{n} {}", server.url()))
                .spawn()
                .unwrap()
        })
        .collect();
    for mut process in started {
        assert!(process.wait().unwrap().success());
    }
    let rows = server
        .sql("SELECT count(*) FROM \"at once\".lease_keys")
        .unwrap();
    assert_eq!(rows.integer(), Some(20));
}

#[tokio::test]
async fn the_printed_script_makes_what_the_store_needs_and_may_run_twice() {
    let options = options("by \"hand\"").migrate(false);
    let error = options.clone().open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    assert!(error.to_string().contains("schema"), "{error}");
    for _ in 0..2 {
        server().sql(&options.schema_sql()).unwrap();
    }
    server()
        .sql(&options.grants_sql(server().url().user_name()))
        .unwrap();
    let store = options.open().await.unwrap();
    grant(&store, "k", LONG).await.unwrap();
}

#[tokio::test]
async fn the_owner_of_a_schema_runs_the_script_without_a_right_to_make_schemas() {
    server()
        .sql("CREATE ROLE owning; CREATE SCHEMA \"o'w$leases$n\" AUTHORIZATION owning")
        .unwrap();
    let options = options("o'w$leases$n").migrate(false);
    let script = options.schema_sql();
    server()
        .sql(&format!("SET ROLE owning; {script} RESET ROLE"))
        .unwrap();
    let user = server().url().user_name().to_owned();
    server().sql(&options.grants_sql(&user)).unwrap();
    options.clone().open().await.unwrap();
    // What is gone is named.
    server()
        .sql("DROP FUNCTION \"o'w$leases$n\".lease_hold(text, bytea, bigint)")
        .unwrap();
    let error = options.open().await.unwrap_err().to_string();
    assert!(error.contains("lacks lease_hold(text, bytea"), "{error}");
}

#[tokio::test]
async fn tables_of_somebody_else_are_left_alone() {
    server()
        .sql("CREATE SCHEMA taken; CREATE TABLE taken.lease_keys (id int)")
        .unwrap();
    let error = options("taken").open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    assert!(error.to_string().contains("not the store's own"), "{error}");
    server().sql("SELECT id FROM taken.lease_keys").unwrap();
}

#[tokio::test]
async fn functions_of_somebody_else_are_refused_and_earlier_ones_replaced() {
    let open = |migrate| options("functions").migrate(migrate).open();
    open(true).await.unwrap();
    let make = |returns: &str, language: &str, body: &str| {
        server()
            .sql(&format!(
                "DROP FUNCTION functions.lease_hold; CREATE FUNCTION \
                 functions.lease_hold(key text, owner bytea, token bigint) RETURNS {returns} \
                 LANGUAGE {language} AS '{body}'; ALTER FUNCTION functions.lease_hold OWNER TO \"{}\"",
                server().url().user_name()
            ))
            .unwrap();
    };
    for (returns, language, body) in [
        ("boolean", "sql", "SELECT false"),
        ("void", "sql", "SELECT 1"),
        ("boolean", "plpgsql", "BEGIN RETURN false; END"),
    ] {
        make(returns, language, body);
        let error = open(true).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
        assert!(error.to_string().contains("not the store's own"), "{error}");
    }
    make("void", "plpgsql", "BEGIN END");
    let error = open(false).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    assert!(error.to_string().contains("schema"), "{error}");
    let store = open(true).await.unwrap();
    let mut db = connection().await;
    let mut tx = db.begin().await.unwrap();
    let guard = store.in_transaction();
    let token = Token::new(5).unwrap();
    let held = guard.hold_grant(&mut tx, &key("k"), owner(), token).await;
    assert!(matches!(held, Err(lease_core::Error::Lost(_))), "{held:?}");
    drop(tx);
    // A later program's stay as they are.
    make("void", "plpgsql", "/* leases: body 999 */ BEGIN END");
    let store = open(true).await.unwrap();
    let mut tx = db.begin().await.unwrap();
    let guard = store.in_transaction();
    guard
        .hold_grant(&mut tx, &key("k"), owner(), token)
        .await
        .unwrap();
}

#[tokio::test]
async fn tables_for_later_programs_are_refused() {
    let store = options("later").open().await.unwrap();
    grant(&store, "k", LONG).await.unwrap();
    server()
        .sql("UPDATE later.lease_schema SET version = 9, compatible = 1")
        .unwrap();
    options("later").open().await.unwrap();
    server()
        .sql("UPDATE later.lease_schema SET compatible = 9")
        .unwrap();
    let error = options("later").open().await.unwrap_err();
    assert!(error.to_string().contains("upgrade the program"), "{error}");
}

#[tokio::test]
async fn tables_that_were_dropped_are_made_anew() {
    let store = options("dropped").open().await.unwrap();
    let (_, first) = grant(&store, "k", LONG).await.unwrap();
    server().sql("DROP SCHEMA dropped CASCADE").unwrap();
    let (_, second) = grant(&store, "k", LONG).await.unwrap();
    assert!(second > first);
}

#[tokio::test]
async fn who_may_not_log_in_is_told_and_the_password_is_not() {
    let place = server().address().to_string();
    let url = server().url().user("nobody", "s3cret").to_string();
    let error = PostgresOptions::from_url(&url)
        .unwrap()
        .open()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    assert!(
        !format!("{error} {error:?}").contains("s3cret"),
        "{error:?}"
    );
    assert!(error.to_string().contains(&place), "{error}");
    let url = server().url().database("nowhere").to_string();
    let error = PostgresOptions::from_url(&url)
        .unwrap()
        .open()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    assert!(error.to_string().contains(&place), "{error}");
}

#[tokio::test]
async fn a_role_at_its_limit_of_connections_is_told_whose_limit_it_is() {
    let server = PostgresServer::builder()
        .fsync(false)
        .role("few", "s3cret", "CONNECTION LIMIT 0")
        .start()
        .unwrap();
    server
        .sql("CREATE DATABASE narrow CONNECTION LIMIT 0 OWNER leases")
        .unwrap();
    for (url, words) in [
        (server.url().user("few", "s3cret"), "ALTER ROLE"),
        (server.url().database("narrow"), "ALTER DATABASE"),
    ] {
        let options = PostgresOptions::from_url(&url.to_string()).unwrap();
        let error = options.open().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn a_pool_that_is_used_up_keeps_no_lease_waiting() {
    let pool = lease_postgres::sqlx::postgres::PgPoolOptions::new()
        .max_connections(1)
        .connect(&server().url().to_string())
        .await
        .unwrap();
    let _all_of_it = pool.acquire().await.unwrap();
    let options = PostgresOptions::from_pool(&pool).schema("beside").unwrap();
    let store = options.open().await.unwrap();
    let (me, token) = grant(&store, "k", LONG).await.unwrap();
    let held = store.acquire(&ask("k", owner(), LONG)).await.unwrap();
    assert!(matches!(held, AcquireOutcome::Held(_)));
    store.release(&key("k"), me, token).await.unwrap();
}

#[tokio::test]
async fn the_gate_admits_no_token_below_the_highest() {
    let store = options("gate").open().await.unwrap();
    let token = |n| Token::new(n).unwrap();
    store.admit(&key("r"), token(5)).await.unwrap();
    store.admit(&key("r"), token(5)).await.unwrap();
    store.admit(&key("r"), token(7)).await.unwrap();
    let stale = store.admit(&key("r"), token(6)).await.unwrap_err();
    assert!(stale.to_string().contains('7'), "{stale}");
    store.admit(&key("other"), token(1)).await.unwrap();
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_checks_the_servers_certificate() {
    let server = PostgresServer::builder()
        .fsync(false)
        .tls()
        .start()
        .unwrap();
    let store = options_at(&server, "own").open().await.unwrap();
    grant(&store, "k", LONG).await.unwrap();
    // The system does not know the authority.
    let url = server.url().to_string();
    let (url, _) = url.split_once("&sslrootcert").unwrap();
    let stranger = PostgresOptions::from_url(url).unwrap();
    let error = stranger.open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    assert!(error.to_string().contains("sslrootcert"), "{error}");
    let plain = url.replace("verify-full", "disable");
    let error = PostgresOptions::from_url(&plain)
        .unwrap()
        .open()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
}

#[tokio::test]
async fn a_unix_socket_is_a_way_to_the_server() {
    let url = server().unix_url().to_string();
    let options = PostgresOptions::from_url(&url).unwrap();
    let store = options.schema("by socket").unwrap().open().await.unwrap();
    grant(&store, "k", LONG).await.unwrap();
}
