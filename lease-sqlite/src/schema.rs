//! The tables: made if missing, refused if they are not ours.

use sqlx::sqlite::SqliteConnection;
use sqlx::{query, query_as, query_scalar, raw_sql};

use lease_core::StoreError;

use crate::connection::Failure;
use crate::errors::Phase;
use crate::gate::GATE_TABLE_SQL;

/// Of the tables' layout; a newer one is refused.
const VERSION: i64 = 1;

const TABLES: &str = include_str!("schema.sql");

/// Our tables and their columns. The gate's table may also have been made by
/// itself, by an application that fences writes in its own database.
const COLUMNS: [(&str, &[&str]); 4] = [
    ("lease_schema", &["only", "version"]),
    (
        "lease_keys",
        &[
            "key",
            "mark",
            "owner",
            "token",
            "label",
            "granted_us",
            "expires_us",
            "standing",
        ],
    ),
    ("lease_tombstones", &["owner", "reason", "until_us"]),
    ("lease_gate", &["resource", "token"]),
];

const NAMES: &str = "\
    SELECT lower(name), type FROM sqlite_schema \
    WHERE lower(name) IN ('lease_schema', 'lease_keys', 'lease_tombstones', 'lease_gate', \
        'lease_tombstones_until')";

fn failed(error: sqlx::Error) -> Failure {
    Failure::new(Phase::NoEffect, "looking at the tables", error)
}

fn foreign(what: String) -> Failure {
    Failure::Final(StoreError::refusing(format!(
        "{what}; nothing was changed, name another file"
    )))
}

/// Whether all tables are there. Changes nothing.
pub(crate) async fn check(db: &mut SqliteConnection) -> Result<bool, Failure> {
    let encoding: String = query_scalar("PRAGMA encoding")
        .fetch_one(&mut *db)
        .await
        .map_err(failed)?;
    if encoding != "UTF-8" {
        // Its order of keys would not be that of their bytes.
        return Err(foreign(format!(
            "the database's text encoding is {encoding}, not UTF-8"
        )));
    }
    let found: Vec<(String, String)> = query_as(NAMES).fetch_all(&mut *db).await.map_err(failed)?;
    let has = |name: &str| found.iter().any(|(n, _)| n == name);
    for (name, columns) in COLUMNS {
        let Some((_, kind)) = found.iter().find(|(n, _)| n == name) else {
            continue;
        };
        let there: Vec<String> = query_scalar("SELECT name FROM pragma_table_info(?1)")
            .bind(name)
            .fetch_all(&mut *db)
            .await
            .map_err(failed)?;
        if kind != "table" || there != columns {
            return Err(foreign(format!(
                "the database has a {kind} {name} that is not the leases' own"
            )));
        }
    }
    if !has("lease_schema") {
        return Ok(false);
    }
    let version: Option<i64> = query_scalar("SELECT version FROM lease_schema")
        .fetch_optional(db)
        .await
        .map_err(failed)?;
    match version {
        Some(VERSION) => {
            Ok(COLUMNS.iter().all(|(name, _)| has(name)) && has("lease_tombstones_until"))
        }
        Some(newer) if newer > VERSION => Err(Failure::Final(StoreError::refusing(format!(
            "the tables have version {newer} and this program knows version {VERSION}; \
             nothing was changed, upgrade the program"
        )))),
        other => Err(foreign(format!(
            "the table lease_schema names no version ({other:?}), so it is not the leases' own"
        ))),
    }
}

/// Makes what is missing, in one transaction.
pub(crate) async fn create(db: &mut SqliteConnection) -> Result<(), Failure> {
    let failed = |phase| move |error| Failure::new(phase, "making the tables", error);
    query("BEGIN IMMEDIATE")
        .execute(&mut *db)
        .await
        .map_err(failed(Phase::NoEffect))?;
    let made = async {
        // Somebody else may have made them, or others, since the first look.
        if check(db).await? {
            return Ok(());
        }
        for sql in [TABLES, GATE_TABLE_SQL] {
            raw_sql(sql)
                .execute(&mut *db)
                .await
                .map_err(failed(Phase::NoEffect))?;
        }
        query("INSERT OR IGNORE INTO lease_schema (only, version) VALUES (1, ?1)")
            .bind(VERSION)
            .execute(&mut *db)
            .await
            .map_err(failed(Phase::NoEffect))?;
        query("COMMIT")
            .execute(&mut *db)
            .await
            .map_err(failed(Phase::Commit))?;
        Ok(())
    }
    .await;
    // Nothing is open any more after the commit; then this fails, harmlessly.
    let _ = query("ROLLBACK").execute(db).await;
    made
}
