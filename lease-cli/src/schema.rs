//! `lease schema`: the SQL that makes a store's tables, for whoever may run it.

use leases::postgres::PostgresOptions;
use leases::queue::postgres::PostgresQueues;

use crate::args;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::store::Target;

/// Prints it, and connects to nothing.
pub(crate) fn schema(target: &Target, args: &args::Schema) -> Result<Exit, Failure> {
    let (options, queues) = options(target)?;
    let mut sql = options.schema_sql();
    if queues {
        // Beside those of leases, in which the gate's is.
        sql += "\n";
        sql += &PostgresQueues::schema_sql(&options);
    }
    if let Some(role) = &args.role {
        sql += "\n";
        sql += &options.grants_sql(role);
        if queues {
            sql += "\n";
            sql += &PostgresQueues::grants_sql(&options, role);
        }
    }
    output::print(sql)?;
    Ok(Exit::Success)
}

/// The options, and whether they are of queues.
fn options(target: &Target) -> Result<(PostgresOptions, bool), Failure> {
    // None for the user's own file.
    let url = target.for_child().unwrap_or("sqlite:");
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    let scheme = scheme.to_ascii_lowercase();
    let (scheme, queues) = match scheme.strip_prefix("queue+") {
        Some(plain) => (plain.to_owned(), true),
        None => (scheme, false),
    };
    if !["postgres", "postgresql"].contains(&scheme.as_str()) {
        return Err(Failure::new(
            Exit::Usage,
            "this store needs no schema: only one on Postgres has tables that somebody else may \
             have to make; give it as --store postgres://user@host/database",
        ));
    }
    let rest = if queues {
        without_queue(rest)
    } else {
        rest.to_owned()
    };
    let options = PostgresOptions::from_url(&format!("{scheme}:{rest}"));
    let options = options.map_err(|error| target.failure(error.into()))?;
    Ok((options, queues))
}

/// All queues are in the same tables.
fn without_queue(rest: &str) -> String {
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let others = options.split('&').filter(|one| !one.starts_with("queue="));
    let others: Vec<_> = others.filter(|one| !one.is_empty()).collect();
    match others.is_empty() {
        true => place.to_owned(),
        false => format!("{place}?{}", others.join("&")),
    }
}
