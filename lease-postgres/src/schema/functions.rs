//! The functions for others' transactions: whether they are there, ours, and of a
//! body that this program knows.

use lease_core::StoreError;
use sqlx::postgres::PgConnection;

use super::Found;
use crate::errors::{self, Phase};
use crate::layout::{Function, Layout};
use crate::names::Names;

/// Those that are missing, and what the others are. Changes nothing.
pub(super) async fn look(
    layout: &Layout,
    names: &Names,
    db: &mut PgConnection,
) -> Result<(Vec<String>, Found), StoreError> {
    let sql = "SELECT p.proname::text, \
                   p.prokind = 'f' AND format_type(p.prorettype, NULL) = f.returns \
                       AND l.lanname = 'plpgsql', \
                   coalesce(substring(p.prosrc FROM 'leases: body ([0-9]{1,6})')::integer, 0) \
               FROM pg_proc AS p \
               JOIN pg_namespace AS s ON s.oid = p.pronamespace \
               JOIN pg_language AS l ON l.oid = p.prolang \
               JOIN unnest($2::text[], $3::text[], $4::text[]) AS f (name, takes, returns) \
                   ON p.proname = f.name AND oidvectortypes(p.proargtypes) = f.takes \
               WHERE s.nspname = $1";
    let column = |of: &dyn Fn(&Function) -> String| -> Vec<String> {
        layout.functions.iter().map(of).collect()
    };
    let found: Vec<(String, bool, i32)> = sqlx::query_as(sql)
        .bind(names.schema())
        .bind(column(&|one| names.bare(one.suffix)))
        .bind(column(&|one| one.takes.to_owned()))
        .bind(column(&|one| one.returns.to_owned()))
        .persistent(false)
        .fetch_all(db)
        .await
        .map_err(|error| errors::classify(Phase::Unsent, "looking at the functions", error))?;
    if let Some((name, ..)) = found.iter().find(|(_, ours, _)| !ours) {
        return Err(StoreError::refusing(format!(
            "the function {name:?} in the schema {:?} is not the store's own; nothing was changed, \
             drop it, or choose another schema or table prefix",
            names.schema()
        )));
    }
    let missing = layout.functions.iter().filter_map(|one| {
        let (name, takes) = (names.bare(one.suffix), one.takes);
        let there = found.iter().any(|(found, ..)| *found == name);
        (!there).then(|| format!("{name}({takes})"))
    });
    // A later program's do what ours do, and stay.
    let known = match found.iter().all(|(.., body)| *body >= layout.body) {
        true => Found::Complete,
        false => Found::Older,
    };
    Ok((missing.collect(), known))
}

#[cfg(test)]
mod tests {
    use crate::layout::LEASES;

    #[test]
    fn every_function_says_of_which_body_it_is() {
        let mark = format!("-- leases: body {}\n", LEASES.body);
        let marked = LEASES.make_functions.matches(&mark).count();
        assert_eq!(marked, LEASES.functions.len());
    }
}
