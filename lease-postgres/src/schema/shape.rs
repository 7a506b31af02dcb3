//! Whether what has the names of our tables and functions is what we made, as far as
//! the statements rely on it.

use crate::layout::Layout;
use crate::names::{Names, literal};

/// A query for what is there of a layout: each table's name, and what is wrong with it;
/// null for one that is there and whole. What is wrong with a function comes by its name.
/// Changes nothing, and takes no parameters, so that it works by any way.
pub(crate) fn query(layout: &Layout, names: &Names) -> String {
    let (mut tables, mut columns, mut functions) = (Vec::new(), Vec::new(), Vec::new());
    for table in layout.tables {
        let name = literal(&names.bare(table.suffix));
        let primary = table.primary.join(", ");
        tables.push(format!("({name}, {})", literal(&primary)));
        for column in table.columns {
            let (column, of) = column.rsplit_once(' ').unwrap_or((column, ""));
            columns.push(format!("({name}, {}, {})", literal(column), literal(of)));
        }
    }
    for one in layout.functions {
        let (name, takes) = (literal(&names.bare(one.suffix)), literal(one.takes));
        functions.push(format!("({name}, {takes}, {})", literal(one.returns)));
    }
    SHAPE
        .replace("{schema}", &literal(names.schema()))
        .replace("{tables}", &tables.join(", "))
        .replace("{columns}", &columns.join(", "))
        .replace("{functions}", &functions.join(", "))
}

/// A child by inheritance has rows that are read with its parent's, and that no unique
/// index of the parent knows of: a key could be there twice. Partitions are made by
/// whoever manages the tables, and have the key unique among them.
const SHAPE: &str = "\
WITH t AS (
    SELECT w.name, w.own, c.oid, c.relkind
    FROM (VALUES {tables}) AS w (name, own)
    JOIN pg_class AS c ON c.relname = w.name
    JOIN pg_namespace AS s ON s.oid = c.relnamespace AND s.nspname = {schema}
), w (name, col, kind) AS (VALUES {columns})
SELECT t.name::text AS name, NULL::text AS what FROM t
UNION ALL
SELECT t.name, 'it is no table' FROM t WHERE t.relkind NOT IN ('r', 'p')
UNION ALL
SELECT t.name, CASE WHEN a.attnum IS NULL THEN format('it has no column %s', w.col)
    ELSE format('its column %s is %s and not %s', w.col, format_type(a.atttypid, NULL), w.kind) END
FROM t JOIN w ON w.name = t.name
LEFT JOIN pg_attribute AS a
    ON a.attrelid = t.oid AND a.attname = w.col AND a.attnum > 0 AND NOT a.attisdropped
WHERE t.relkind IN ('r', 'p') AND format_type(a.atttypid, NULL) IS DISTINCT FROM w.kind
UNION ALL
SELECT t.name, format('its primary key is not (%s)', t.own) FROM t
WHERE t.relkind IN ('r', 'p') AND NOT EXISTS (
    SELECT FROM pg_index AS i
    WHERE i.indrelid = t.oid AND i.indisprimary AND i.indisvalid AND t.own = (
        SELECT string_agg(a.attname::text, ', ' ORDER BY k.n)
        FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (at, n)
        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.at))
UNION ALL
SELECT t.name, format('the table %s inherits from it', h.inhrelid::regclass)
FROM t JOIN pg_inherits AS h ON h.inhparent = t.oid WHERE t.relkind = 'r'
UNION ALL
SELECT f.name, 'the function of this name is another one'
FROM (VALUES {functions}) AS f (name, takes, gives)
JOIN pg_proc AS p ON p.proname = f.name AND oidvectortypes(p.proargtypes) = f.takes
JOIN pg_namespace AS s ON s.oid = p.pronamespace AND s.nspname = {schema}
JOIN pg_language AS l ON l.oid = p.prolang
WHERE p.prokind <> 'f' OR format_type(p.prorettype, NULL) <> f.gives OR l.lanname <> 'plpgsql'";
