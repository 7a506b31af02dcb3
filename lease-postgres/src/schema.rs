//! The tables, and the functions for others' transactions: made if they are
//! missing, refused if they are not ours.

mod functions;
pub(crate) mod script;
pub(crate) mod shape;

use std::time::Duration;

use lease_core::{StoreError, StoreErrorKind};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, raw_sql};
use tokio::time::timeout;

use crate::connection::Up;
use crate::errors::{self, Phase};
use crate::layout::Layout;
use crate::names::{Names, quoted};

/// For all of it: many programs that start at once wait for each other.
const TIME: Duration = Duration::from_secs(60);

/// The tables of one store.
#[derive(Debug)]
pub(crate) struct Schema {
    layout: &'static Layout,
    names: Names,
    making: Making,
}

/// What to make of what is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Making {
    /// Whatever is missing.
    Missing,
    Nothing,
    /// And leave the functions out of account: they are for those who change something.
    NothingToLook,
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Complete,
    /// Not even the schema.
    Nowhere,
    /// These tables, or the version in its table, and functions.
    Missing(Vec<String>),
    /// All of the tables, without these functions.
    NoFunctions(Vec<String>),
    /// All of it, with functions of an earlier program.
    Older,
}

impl Schema {
    pub(crate) fn new(layout: &'static Layout, names: Names, making: Making) -> Self {
        Self {
            layout,
            names,
            making,
        }
    }

    /// Sees to it that the tables are there.
    ///
    /// # Cancel safety
    /// Safe: they are made in one transaction.
    pub(crate) async fn ensure(&self, up: &mut Up) -> Result<(), StoreError> {
        let ensured = timeout(TIME, async {
            let found = self.look(up).await?;
            let begin = up.begin.as_deref().unwrap_or("BEGIN");
            match (found, self.making) {
                (Found::Complete, _)
                | (Found::NoFunctions(_) | Found::Older, Making::NothingToLook) => Ok(()),
                (Found::Older, Making::Missing) => {
                    let made = self.make(&mut up.db, begin).await;
                    // Most likely they belong to another role.
                    made.map_err(|error| match error.kind() {
                        StoreErrorKind::Refusing => self.older(&format!(" ({error})")),
                        _ => error,
                    })
                }
                (_, Making::Missing) => self.make(&mut up.db, begin).await,
                (Found::Older, _) => Err(self.older("")),
                (Found::Nowhere, _) => Err(self.absent(format!(
                    "there is no schema {:?} in this database",
                    self.names.schema()
                ))),
                (Found::Missing(missing) | Found::NoFunctions(missing), _) => {
                    Err(self.absent(format!(
                        "the schema {:?} lacks {} of the store's",
                        self.names.schema(),
                        missing.join(", ")
                    )))
                }
            }
        });
        ensured.await.unwrap_or_else(|_| {
            Err(StoreError::unavailable(format!(
                "looking at the tables: no answer within {TIME:?}; see who holds locks on them"
            )))
        })
    }

    fn absent(&self, what: String) -> StoreError {
        let why = match self.making {
            Making::NothingToLook => "whoever only looks makes nothing",
            _ => "the store was told not to make them (migrate=false)",
        };
        StoreError::refusing(format!(
            "{what}, and {why}; see whether ?schema= and ?table_prefix= in the URL are right, or \
             run what {} prints",
            self.layout.printed_by
        ))
    }

    fn older(&self, why: &str) -> StoreError {
        StoreError::refusing(format!(
            "the functions of {} in the schema {:?} are an earlier program's, and were not \
             replaced{why}; let their owner run what {} prints",
            self.layout.of,
            self.names.schema(),
            self.layout.printed_by
        ))
    }

    /// In one session.
    async fn look(&self, up: &mut Up) -> Result<Found, StoreError> {
        let failed = |error| errors::classify(Phase::Unsent, "looking at the tables", error);
        let Some(begin) = &up.begin else {
            return self.check(&mut up.db).await;
        };
        let begin = raw_sql(AssertSqlSafe(begin.as_str()));
        begin.execute(&mut up.db).await.map_err(failed)?;
        let found = self.check(&mut up.db).await;
        let ended = raw_sql("ROLLBACK").execute(&mut up.db).await;
        ended.map_err(failed)?;
        found
    }

    /// Changes nothing. No statement gets a name, which would be one of the
    /// session's.
    async fn check(&self, db: &mut PgConnection) -> Result<Found, StoreError> {
        let failed = |error| errors::classify(Phase::Unsent, "looking at the tables", error);
        let (encoding, there): (String, bool) = sqlx::query_as(
            "SELECT current_setting('server_encoding'), \
                EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)",
        )
        .bind(self.names.schema())
        .persistent(false)
        .fetch_one(&mut *db)
        .await
        .map_err(failed)?;
        if encoding != "UTF8" {
            // Not every key could be kept.
            return Err(StoreError::refusing(format!(
                "the database's encoding is {encoding}, not UTF8; create one with ENCODING 'UTF8'"
            )));
        }
        if !there {
            return Ok(Found::Nowhere);
        }
        let tables = self.layout.tables;
        let found: Vec<(String, Option<String>)> =
            sqlx::query_as(AssertSqlSafe(shape::query(self.layout, &self.names)))
                .persistent(false)
                .fetch_all(&mut *db)
                .await
                .map_err(failed)?;
        if let Some((name, what)) = found.iter().find_map(|(n, what)| Some((n, what.as_ref()?))) {
            return Err(StoreError::refusing(format!(
                "{name:?} in the schema {:?} is not the store's own: {what}; nothing was changed, \
                 put it right, or choose another schema or table prefix",
                self.names.schema()
            )));
        }
        let names = tables.iter().map(|table| self.names.bare(table.suffix));
        let mut missing: Vec<String> = names
            .filter(|name| !found.iter().any(|(found, _)| found == name))
            .collect();
        let (lacking, functions) = functions::look(self.layout, &self.names, &mut *db).await?;
        if !missing.is_empty() {
            missing.extend(lacking);
            return Ok(Found::Missing(missing));
        }
        let versions = AssertSqlSafe(format!(
            "SELECT version, compatible FROM {}",
            self.names.full(self.layout.version_table())
        ));
        let row: Option<(i32, i32)> = sqlx::query_as(versions)
            .persistent(false)
            .fetch_optional(db)
            .await
            .map_err(failed)?;
        match row {
            None => Ok(Found::Missing(vec![format!(
                "the version in {}",
                self.names.bare(self.layout.version_table())
            )])),
            Some((_, compatible)) if compatible <= self.layout.version => {
                Ok(match lacking.is_empty() {
                    true => functions,
                    false => Found::NoFunctions(lacking),
                })
            }
            Some((version, compatible)) => Err(StoreError::refusing(format!(
                "the tables have version {version}, for programs from version {compatible} on, and \
                 this program knows version {}; upgrade the program",
                self.layout.version
            ))),
        }
    }

    /// Makes what is missing, in one transaction and in turn with others.
    async fn make(&self, db: &mut PgConnection, begin: &str) -> Result<(), StoreError> {
        let failed = |error| errors::classify(Phase::Unsent, "making the tables", error);
        let time = TIME.as_millis();
        let lock = self.names.number().cast_signed();
        let begin = format!(
            "{begin}; SET LOCAL statement_timeout TO {time}; SET LOCAL lock_timeout TO {time}; \
             SELECT pg_advisory_xact_lock({lock})"
        );
        let made = async {
            raw_sql(AssertSqlSafe(begin))
                .execute(&mut *db)
                .await
                .map_err(failed)?;
            // Somebody else may have made them while we waited for our turn.
            if self.check(&mut *db).await? == Found::Complete {
                return Ok(());
            }
            let there: bool =
                sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)")
                    .bind(self.names.schema())
                    .persistent(false)
                    .fetch_one(&mut *db)
                    .await
                    .map_err(failed)?;
            // Even where it is there, IF NOT EXISTS asks for the right to make it.
            let schema = match there {
                true => String::new(),
                false => format!("CREATE SCHEMA {};", quoted(self.names.schema())),
            };
            let make = format!("{schema}\n{}", script::tables(self.layout, &self.names));
            raw_sql(AssertSqlSafe(make))
                .execute(&mut *db)
                .await
                .map_err(failed)?;
            raw_sql("COMMIT").execute(&mut *db).await.map_err(failed)?;
            Ok(())
        }
        .await;
        // Nothing is open any more after the commit; then this does nothing.
        let _ = raw_sql("ROLLBACK").execute(db).await;
        made
    }
}
