//! Whether the role may do what the store does, and the GRANT for what it may not.

use lease_core::Finding;

use super::server::Look;
use super::tables::Tables;
use super::{Facts, critical, healthy, unchecked};
use crate::layout::RIGHTS;
use crate::names::quoted;

pub(super) fn judge(tables: &Tables, look: &Look, facts: &Facts) -> Option<Finding> {
    let why = "without one of its rights the store refuses what needs it";
    let asked = (&tables.all, &tables.functions, &tables.schema);
    let (all, functions, schema) = match asked {
        (Ok(all), Ok(functions), Ok(schema)) => (all, functions, schema),
        (Err(refusal), _, _) | (_, Err(refusal), _) | (_, _, Err(refusal)) => {
            return Some(unchecked("rights", why, refusal));
        }
    };
    // A look at the tables has said it already.
    if !schema.there || !tables.missing().is_empty() {
        return None;
    }
    let role = quoted(&look.role());
    let (mut lacks, mut grants) = (Vec::new(), Vec::new());
    if !schema.usage {
        let name = quoted(facts.names.schema());
        lacks.push(format!("USAGE of the schema {name}"));
        grants.push(format!("GRANT USAGE ON SCHEMA {name} TO {role};"));
    }
    for table in all {
        let Some(is) = &table.is else { continue };
        let wanted = table.needed.into_iter().zip(is.rights);
        let lacking: Vec<_> = RIGHTS
            .into_iter()
            .zip(wanted)
            .filter(|(_, (needs, has))| *needs && !has)
            .map(|(name, _)| name)
            .collect();
        if !lacking.is_empty() {
            let (rights, name) = (lacking.join(", "), facts.names.full(table.suffix));
            lacks.push(format!("{rights} of {name}"));
            grants.push(format!("GRANT {rights} ON {name} TO {role};"));
        }
    }
    for function in functions.iter().filter(|function| !function.execute) {
        let name = function.full(facts);
        lacks.push(format!("EXECUTE of {name}"));
        grants.push(format!("GRANT EXECUTE ON FUNCTION {name} TO {role};"));
    }
    Some(match lacks.as_slice() {
        [] => healthy(format!("rights: {role} has all that it needs"), why),
        lacks => critical(format!("rights: {role} lacks {}", lacks.join("; ")), why)
            .advice(grants.join(" ")),
    })
}
