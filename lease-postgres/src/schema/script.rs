//! The SQL that makes the tables, and what gives a role the rights to them.

use super::{SIGNATURES, VERSION};
use crate::names::{Names, literal, quoted};
use crate::sql::filled;

/// The oldest version that programs may have to work with these tables.
const COMPATIBLE: i32 = 1;

const TABLES: &str = include_str!("../sql/schema.sql");
pub(super) const FUNCTIONS: &str = include_str!("../sql/functions.sql");

pub(super) fn tables(names: &Names) -> String {
    format!(
        "{}\nINSERT INTO {} (version, compatible) VALUES ({VERSION}, {COMPATIBLE})\n    \
         ON CONFLICT (\"only\") DO NOTHING;\n{}",
        filled(TABLES, names),
        names.full("schema"),
        filled(FUNCTIONS, names)
    )
}

/// Everything that makes the tables, for whoever runs it by hand.
pub(crate) fn all(names: &Names) -> String {
    let (quote, name) = (names.quote(), quoted(names.schema()));
    // Even where it is there, IF NOT EXISTS asks for the right to make it.
    format!(
        "BEGIN;\n\
         DO {quote}\nBEGIN\n    \
         IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = {}) THEN\n        \
         CREATE SCHEMA {name};\n    \
         END IF;\nEND\n{quote};\n\n{}\nCOMMIT;\n",
        literal(names.schema()),
        tables(names)
    )
}

/// The rights that a role needs to use the tables, and no more.
pub(crate) fn grants(names: &Names, role: &str) -> String {
    let role = quoted(role);
    let [schema, keys, tombstones, gate] =
        ["schema", "keys", "tombstones", "gate"].map(|table| names.full(table));
    let functions = SIGNATURES.map(|(name, takes)| format!("{}({takes})", names.full(name)));
    let functions = functions.join(", ");
    format!(
        "GRANT USAGE ON SCHEMA {} TO {role};\n\
         GRANT SELECT ON {schema} TO {role};\n\
         GRANT SELECT, INSERT, UPDATE ON {keys}, {gate} TO {role};\n\
         GRANT SELECT, INSERT, UPDATE, DELETE ON {tombstones} TO {role};\n\
         GRANT EXECUTE ON FUNCTION {functions} TO {role};\n",
        quoted(names.schema())
    )
}
