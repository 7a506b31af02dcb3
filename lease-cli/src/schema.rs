//! `lease schema`: the SQL that makes a store's tables, for whoever may run it.

use leases::postgres::PostgresOptions;

use crate::args;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::store::Target;

/// Prints it, and connects to nothing.
pub(crate) fn schema(target: &Target, args: &args::Schema) -> Result<Exit, Failure> {
    let options = options(target)?;
    let mut sql = options.schema_sql();
    if let Some(role) = &args.role {
        sql += "\n";
        sql += &options.grants_sql(role);
    }
    output::print(sql)?;
    Ok(Exit::Success)
}

fn options(target: &Target) -> Result<PostgresOptions, Failure> {
    // None for the user's own file.
    let url = target.for_child().unwrap_or("sqlite:");
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    let scheme = scheme.to_ascii_lowercase();
    if !["postgres", "postgresql"].contains(&scheme.as_str()) {
        return Err(Failure::new(
            Exit::Usage,
            "this store needs no schema: only one on Postgres has tables that somebody else may \
             have to make; give it as --store postgres://user@host/database",
        ));
    }
    PostgresOptions::from_url(&format!("{scheme}:{rest}"))
        .map_err(|error| target.failure(error.into()))
}
