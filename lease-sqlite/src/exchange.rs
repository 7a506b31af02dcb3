//! Between the rows in the file and the table that decides on them.

use lease_core::{Key, StoreError, Token};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Row as _, query};

use crate::json::Array;
use crate::request::Wanted;
use crate::row::{KeyRow, owner, token};
use crate::sql::{self, Kind};
use crate::table::{Buried, Slot, Table, Tombstone};

/// Tombstones forgotten for each one added: more than one, so that they do not
/// pile up, and few, so that no transaction is slow.
const PURGE_PER_TOMBSTONE: i64 = 4;

/// Loads what is wanted by one of the looks.
pub(crate) async fn look(
    db: &mut SqliteConnection,
    sql: &'static str,
    wanted: &Wanted,
    retention_us: i64,
) -> Result<Table, sqlx::Error> {
    let (mut keys, mut owners, mut resources) = (Array::new(), Array::new(), Array::new());
    for key in &wanted.keys {
        keys.text(key.as_str());
    }
    for owner in &wanted.owners {
        owners.text(&owner.to_string());
    }
    for resource in &wanted.resources {
        resources.text(resource.as_str());
    }
    let rows = query(sql)
        .bind(keys.finish())
        .bind(owners.finish())
        .bind(resources.finish())
        .fetch_all(db)
        .await?;
    let mut table = Table {
        retention_us,
        ..Table::default()
    };
    for row in &rows {
        match row.try_get("kind")? {
            Kind::CLOCK => table.now_us = row.try_get("now_us")?,
            Kind::KEY => {
                let key: String = row.try_get("key")?;
                // It was asked for by its bytes, so it is a key.
                if let Ok(name) = Key::new(&key) {
                    let slot = Slot::loaded(KeyRow::read(&key, row));
                    table.keys.insert(name, slot);
                }
            }
            Kind::TOMBSTONE => {
                if let Ok(owner) = owner(row.try_get("owner")?) {
                    table.tombstones.insert(owner, Slot::loaded(tombstone(row)));
                }
            }
            Kind::ADMITTED => {
                let resource: String = row.try_get("resource")?;
                if let Ok(name) = Key::new(&resource) {
                    let slot = Slot::loaded(admitted(&resource, row));
                    table.gate.insert(name, slot);
                }
            }
            other => return Err(sqlx::Error::Protocol(format!("a row of kind {other}"))),
        }
    }
    Ok(table)
}

fn tombstone(row: &SqliteRow) -> Result<Tombstone, StoreError> {
    let foreign = |what: String| {
        StoreError::refusing(format!(
            "a row of the table lease_tombstones holds what this store does not write: {what}; \
             it was left as it is, repair or delete it"
        ))
    };
    let number = |column| {
        row.try_get::<i64, _>(column)
            .map_err(|e| foreign(e.to_string()))
    };
    let buried = match number("reason")? {
        1 => Buried::Abandoned,
        2 => Buried::Revoked,
        other => return Err(foreign(format!("reason is {other}"))),
    };
    Ok(Tombstone {
        buried,
        until_us: number("until_us")?,
    })
}

fn admitted(resource: &str, row: &SqliteRow) -> Result<Token, StoreError> {
    row.try_get::<i64, _>("token")
        .map_err(|e| e.to_string())
        .and_then(|number| token("token", number))
        .map_err(|what| crate::gate::foreign(resource, &what))
}

/// Writes what was decided.
pub(crate) async fn store(db: &mut SqliteConnection, table: &Table) -> Result<(), sqlx::Error> {
    let mut keys = Array::new();
    for (key, row) in table.changed_keys() {
        keys.array(key_values(key, row));
    }
    let (mut tombstones, mut added) = (Array::new(), 0);
    for (owner, tombstone) in table.changed_tombstones() {
        added += 1;
        let mut values = Array::new();
        values
            .text(&owner.to_string())
            .number(match tombstone.buried {
                Buried::Abandoned => 1,
                Buried::Revoked => 2,
            })
            .number(tombstone.until_us);
        tombstones.array(values);
    }
    let mut gate = Array::new();
    for (resource, token) in table.changed_gate() {
        let mut values = Array::new();
        values.text(resource.as_str()).number(stored(*token));
        gate.array(values);
    }
    if !tombstones.is_empty() {
        query(sql::PURGE_TOMBSTONES)
            .bind(table.now_us)
            .bind(PURGE_PER_TOMBSTONE * added)
            .execute(&mut *db)
            .await?;
    }
    for (sql, array) in [
        (sql::STORE_KEYS, keys),
        (sql::STORE_TOMBSTONES, tombstones),
        (sql::STORE_GATE, gate),
    ] {
        if !array.is_empty() {
            query(sql).bind(array.finish()).execute(&mut *db).await?;
        }
    }
    if table.probe {
        query(sql::PROBE).execute(db).await?;
    }
    Ok(())
}

fn key_values(key: &Key, row: &KeyRow) -> Array {
    let mut values = Array::new();
    values.text(key.as_str()).number(stored(row.mark));
    match &row.grant {
        Some(grant) => values
            .text(&grant.owner.to_string())
            .number(stored(grant.token))
            .text(grant.label.as_str())
            .number(grant.granted_us)
            .number(grant.expires_us)
            .number(grant.standing.code()),
        None => values.null().null().null().null().null().null(),
    };
    values
}

/// A token as the database's 64-bit integer, which all tokens fit.
fn stored(token: Token) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}
