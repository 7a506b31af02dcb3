//! The SQL that makes the tables, and what gives a role the rights to them.

use crate::layout::{Layout, RIGHTS};
use crate::names::{Names, literal, quoted};
use crate::sql::filled;

pub(super) fn tables(layout: &Layout, names: &Names) -> String {
    format!(
        "{}\nINSERT INTO {} (version, compatible) VALUES ({}, {})\n    \
         ON CONFLICT (\"only\") DO NOTHING;\n{}",
        filled(layout.make_tables, names),
        names.full(layout.version_table()),
        layout.version,
        layout.compatible,
        filled(layout.make_functions, names)
    )
}

/// Everything that makes the tables, for whoever runs it by hand.
pub(crate) fn all(layout: &Layout, names: &Names) -> String {
    let (quote, name) = (names.quote(), quoted(names.schema()));
    // Even where it is there, IF NOT EXISTS asks for the right to make it.
    format!(
        "BEGIN;\n\
         DO {quote}\nBEGIN\n    \
         IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = {}) THEN\n        \
         CREATE SCHEMA {name};\n    \
         END IF;\nEND\n{quote};\n\n{}\nCOMMIT;\n",
        literal(names.schema()),
        tables(layout, names)
    )
}

/// The rights that a role needs to use the tables, and no more.
pub(crate) fn grants(layout: &Layout, names: &Names, role: &str) -> String {
    let role = quoted(role);
    let mut grants = format!(
        "GRANT USAGE ON SCHEMA {} TO {role};\n",
        quoted(names.schema())
    );
    for table in layout.tables {
        let needed = RIGHTS.into_iter().zip(table.rights);
        let needed: Vec<_> = needed.filter(|(_, needs)| *needs).map(|(n, _)| n).collect();
        let (needed, table) = (needed.join(", "), names.full(table.suffix));
        grants.push_str(&format!("GRANT {needed} ON {table} TO {role};\n"));
    }
    for function in layout.functions {
        let name = names.full(function.suffix);
        let takes = function.takes;
        grants.push_str(&format!(
            "GRANT EXECUTE ON FUNCTION {name}({takes}) TO {role};\n"
        ));
    }
    grants
}
