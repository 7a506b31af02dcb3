//! Tokens admitted in the user's own transaction, and what others need for that.

use lease_conformance::servers::postgres::PostgresServer;
use lease_core::{AdmitError, Key, Owner, StoreErrorKind, Token};
use lease_postgres::sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, raw_sql};
use lease_postgres::{InTransaction, must_begin_again};

use crate::support::transactions::{LEVELS, kind, open, run, snapshot, token};
use crate::support::{LONG, connection, grant, key, options_at};

#[tokio::test]
async fn a_token_is_admitted_until_a_higher_one_and_never_beside_it() {
    let store = open("admitted").await;
    let guard = store.in_transaction();
    for level in LEVELS {
        let r = key(&level.replace(' ', "_"));
        let (mut one, mut two, mut newer) =
            (connection().await, connection().await, connection().await);
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        run(&mut one, &begin).await;
        guard.admit(&mut one, &r, token(5)).await.unwrap();
        run(&mut one, "COMMIT").await;
        // Two transactions of one holder, side by side.
        run(&mut one, &begin).await;
        run(&mut two, &begin).await;
        guard.admit(&mut one, &r, token(5)).await.unwrap();
        guard.admit(&mut two, &r, token(5)).await.unwrap();
        // The next holder waits for both.
        run(
            &mut newer,
            &format!("{begin}; SET LOCAL lock_timeout TO 50"),
        )
        .await;
        let waits = guard.admit(&mut newer, &r, token(6)).await.unwrap_err();
        let AdmitError::Store(waits) = waits else {
            panic!("{waits}");
        };
        assert_eq!(waits.kind(), StoreErrorKind::Unavailable, "{waits}");
        run(&mut newer, "ROLLBACK").await;
        run(&mut one, "COMMIT").await;
        run(&mut two, "ROLLBACK").await;
        // What is rolled back was not admitted.
        run(&mut newer, &begin).await;
        guard.admit(&mut newer, &r, token(9)).await.unwrap();
        run(&mut newer, "ROLLBACK").await;
        // The snapshot is older than the higher token.
        snapshot(&mut one, level).await;
        run(&mut newer, &begin).await;
        guard.admit(&mut newer, &r, token(6)).await.unwrap();
        run(&mut newer, "COMMIT").await;
        match guard.admit(&mut one, &r, token(5)).await.unwrap_err() {
            AdmitError::Stale(stale) => {
                assert_eq!((stale.presented, stale.admitted), (token(5), token(6)));
                assert_eq!(level, LEVELS[0]);
            }
            error => assert!(must_begin_again(&error) && level != LEVELS[0], "{error}"),
        }
        run(&mut one, "ROLLBACK").await;
        run(&mut one, &begin).await;
        let stale = guard.admit(&mut one, &r, token(5)).await;
        assert!(matches!(stale, Err(AdmitError::Stale(_))), "{stale:?}");
        run(&mut one, "ROLLBACK").await;
    }
}

async fn hold_and_admit(
    db: &mut PgConnection,
    guard: &InTransaction,
    me: Owner,
    mine: Token,
    k: &Key,
) {
    let mut tx = db.begin().await.unwrap();
    guard.hold_grant(&mut tx, k, me, mine).await.unwrap();
    guard.admit(&mut tx, k, mine).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn the_printed_rights_are_enough_and_settings_of_the_session_change_nothing() {
    let server = PostgresServer::builder()
        .fsync(false)
        .role("app", "p", "")
        .role("stranger", "p", "")
        .start()
        .unwrap();
    // Names that would end a function's body, or a string.
    let options = options_at(&server, "o'$leases$")
        .table_prefix("$$ \"x\\")
        .unwrap();
    let store = options.open().await.unwrap();
    let (me, mine) = grant(&store, "k", LONG).await.unwrap();
    let options = options_at(&server, "o'$leases$")
        .table_prefix("$$ \"x\\")
        .unwrap();
    server.sql(&options.grants_sql("app")).unwrap();
    server
        .sql(
            "CREATE SCHEMA wrong; GRANT USAGE ON SCHEMA wrong TO PUBLIC; \
             CREATE FUNCTION wrong.clock_timestamp() RETURNS timestamptz LANGUAGE sql \
                AS $$ SELECT timestamptz '1999-01-01' $$; \
             CREATE FUNCTION wrong.differs(timestamptz, timestamptz) RETURNS boolean LANGUAGE sql \
                AS $$ SELECT false $$; \
             CREATE OPERATOR wrong.<> (FUNCTION = wrong.differs, LEFTARG = timestamptz, \
                RIGHTARG = timestamptz); \
             ALTER ROLE app SET search_path TO wrong, pg_catalog; \
             ALTER ROLE app SET timezone TO 'Asia/Kathmandu'; \
             ALTER ROLE app SET bytea_output TO 'escape'; \
             ALTER ROLE app SET standard_conforming_strings TO off",
        )
        .unwrap();
    let url = server.url().user("app", "p").to_string();
    let mut db = PgConnection::connect(&url).await.unwrap();
    hold_and_admit(&mut db, &store.in_transaction(), me, mine, &key("k")).await;
    let url = server.url().user("stranger", "p").to_string();
    let mut db = PgConnection::connect(&url).await.unwrap();
    let mut tx = db.begin().await.unwrap();
    let refused = store
        .in_transaction()
        .hold_grant(&mut tx, &key("k"), me, mine)
        .await;
    let refused = refused.unwrap_err();
    assert_eq!(kind(&refused), StoreErrorKind::Refusing, "{refused}");
    assert!(refused.to_string().contains("rights"), "{refused}");
}

#[tokio::test]
async fn the_recipe_of_the_guide_fences_what_other_programs_write() {
    let page = include_str!("../../docs/transactions.md");
    let recipe: Vec<_> = page
        .split("```sql")
        .skip(1)
        .filter_map(|block| block.split("```").next())
        .collect();
    let [trigger, write] = recipe[..] else {
        panic!("the page has {} pieces of SQL", recipe.len());
    };
    let server = PostgresServer::builder().fsync(false).start().unwrap();
    let options = lease_postgres::PostgresOptions::from_url(&server.url().to_string()).unwrap();
    let store = options.open().await.unwrap();
    let mut db = PgConnection::connect(&server.url().to_string())
        .await
        .unwrap();
    run(
        &mut db,
        "CREATE TABLE ledger (id bigint PRIMARY KEY, total bigint)",
    )
    .await;
    run(&mut db, "INSERT INTO ledger VALUES (1, 0)").await;
    run(&mut db, trigger).await;
    run(&mut db, write).await;
    let written = raw_sql("SELECT total FROM ledger")
        .fetch_one(&mut db)
        .await
        .unwrap();
    assert_eq!(written.get::<i64, _>(0), 10);
    let code = |error: lease_postgres::sqlx::Error| {
        let error = error.into_database_error().unwrap();
        error.code().unwrap().into_owned()
    };
    // Without a token, whatever is written, also after one was shown.
    for sql in [
        "UPDATE ledger SET total = 0",
        "DELETE FROM ledger",
        "TRUNCATE ledger",
        "INSERT INTO ledger VALUES (2, 2)",
    ] {
        let refused = raw_sql(sql).execute(&mut db).await.unwrap_err();
        assert_eq!(code(refused), "22004", "{sql}");
    }
    let shown: u64 = write.split("'").nth(1).unwrap().parse().unwrap();
    lease_core::Gate::admit(&store, &key("ledger"), token(shown + 1))
        .await
        .unwrap();
    let refused = raw_sql(AssertSqlSafe(write))
        .execute(&mut db)
        .await
        .unwrap_err();
    assert_eq!(code(refused), "LE001");
}
