//! The functions for others' transactions: whether they are there, ours, and of a
//! body that this program knows.

use lease_core::StoreError;
use sqlx::postgres::PgConnection;

use super::{Found, SIGNATURES};
use crate::errors::{self, Phase};
use crate::names::Names;

/// The body that `functions.sql` gives them, raised with each change of it.
const BODY: i32 = 1;

/// Those that are missing, and what the others are. Changes nothing.
pub(super) async fn look(
    names: &Names,
    db: &mut PgConnection,
) -> Result<(Vec<String>, Found), StoreError> {
    let sql = "SELECT p.proname::text, \
                   p.prokind = 'f' AND p.prorettype = 'pg_catalog.void'::regtype \
                       AND l.lanname = 'plpgsql', \
                   coalesce(substring(p.prosrc FROM 'leases: body ([0-9]{1,6})')::integer, 0) \
               FROM pg_proc AS p \
               JOIN pg_namespace AS s ON s.oid = p.pronamespace \
               JOIN pg_language AS l ON l.oid = p.prolang \
               JOIN unnest($2::text[], $3::text[]) AS f (name, takes) \
                   ON p.proname = f.name AND oidvectortypes(p.proargtypes) = f.takes \
               WHERE s.nspname = $1";
    let found: Vec<(String, bool, i32)> = sqlx::query_as(sql)
        .bind(names.schema())
        .bind(SIGNATURES.map(|(name, _)| names.bare(name)))
        .bind(SIGNATURES.map(|(_, takes)| takes))
        .persistent(false)
        .fetch_all(db)
        .await
        .map_err(|error| errors::classify(Phase::Unsent, "looking at the functions", error))?;
    if let Some((name, ..)) = found.iter().find(|(_, ours, _)| !ours) {
        return Err(StoreError::refusing(format!(
            "the function {name:?} in the schema {:?} is not the leases' own; nothing was changed, \
             drop it, or choose another schema or table prefix",
            names.schema()
        )));
    }
    let missing = SIGNATURES.into_iter().filter_map(|(name, takes)| {
        let name = names.bare(name);
        let there = found.iter().any(|(found, ..)| *found == name);
        (!there).then(|| format!("{name}({takes})"))
    });
    // A later program's do what ours do, and stay.
    let known = match found.iter().all(|(.., body)| *body >= BODY) {
        true => Found::Complete,
        false => Found::Older,
    };
    Ok((missing.collect(), known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_says_of_which_body_it_is() {
        let mark = format!("-- leases: body {BODY}\n");
        let marked = super::super::script::FUNCTIONS.matches(&mark).count();
        assert_eq!(marked, SIGNATURES.len());
    }
}
