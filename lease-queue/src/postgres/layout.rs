//! Which tables and functions there are.

use lease_postgres::parts::{Function, Layout, Table};

const ALL: [bool; 4] = [true; 4];

/// The tables of queues, beside those of leases in the same schema.
pub(super) const LAYOUT: Layout = Layout {
    make_tables: include_str!("sql/schema.sql"),
    make_functions: concat!(
        include_str!("sql/claim.sql"),
        include_str!("sql/settle.sql"),
        include_str!("sql/revoke.sql"),
    ),
    tables: &[
        Table {
            suffix: "queue_schema",
            columns: &["only boolean", "version integer", "compatible integer"],
            primary: &["only"],
            rights: [true, false, false, false],
            unlogged: false,
        },
        Table {
            suffix: "queue_lanes",
            columns: &[
                "queue text",
                "kind smallint",
                "name text",
                "mark bigint",
                "item bytea",
                "owner bytea",
                "token bigint",
                "label text",
                "granted_us bigint",
                "expires_us bigint",
                "standing smallint",
                "next_us bigint",
                "place bigint",
            ],
            primary: &["queue", "kind", "name"],
            rights: ALL,
            unlogged: false,
        },
        Table {
            suffix: "queue_items",
            columns: &[
                "queue text",
                "id bytea",
                "seq bigint",
                "grp text",
                "dedup text",
                "body bytea",
                "put_us bigint",
                "ready_us bigint",
                "attempts integer",
                "state smallint",
                "reason text",
                "last_error text",
            ],
            primary: &["queue", "id"],
            rights: ALL,
            unlogged: false,
        },
        Table {
            suffix: "queue_settled",
            columns: &[
                "queue text",
                "item bytea",
                "token bigint",
                "owner bytea",
                "completed boolean",
                "until_us bigint",
            ],
            primary: &["queue", "item", "token"],
            rights: ALL,
            unlogged: false,
        },
        Table {
            suffix: "queue_tombs",
            columns: &[
                "queue text",
                "owner bytea",
                "reason smallint",
                "until_us bigint",
            ],
            primary: &["queue", "owner"],
            rights: ALL,
            unlogged: false,
        },
        Table {
            suffix: "queue_waiters",
            columns: &[
                "queue text",
                "key text",
                "owner bytea",
                "seq bigint",
                "label text",
                "since_us bigint",
                "until_us bigint",
                "missed boolean",
            ],
            primary: &["queue", "key", "owner"],
            rights: ALL,
            unlogged: true,
        },
        Table {
            suffix: "queue_dedup",
            columns: &["queue text", "key text", "item bytea", "until_us bigint"],
            primary: &["queue", "key"],
            rights: ALL,
            unlogged: false,
        },
    ],
    functions: &[
        Function {
            suffix: "queue_put",
            takes: "text, bytea[], bytea[], text[], text[], bigint[]",
            returns: "record",
        },
        Function {
            suffix: "queue_claim",
            takes: "text, bytea[], bigint[], bigint[], text[], integer[]",
            returns: "record",
        },
        Function {
            suffix: "queue_key",
            takes: "text, text, bytea, bigint, bigint, text, bigint, bigint, bigint",
            returns: "record",
        },
        Function {
            suffix: "queue_wait",
            takes: "text, text, bytea, text, bigint, bigint",
            returns: "void",
        },
        Function {
            suffix: "queue_free",
            takes: "text, smallint, text, smallint, bigint",
            returns: "void",
        },
        Function {
            suffix: "queue_settle",
            takes: "text, smallint[], text[], bytea[], bytea[], bigint[], smallint[], bigint[], \
                    boolean[], text[], bigint",
            returns: "record",
        },
        Function {
            suffix: "queue_abandon",
            takes: "text, text, bytea, bigint, bigint",
            returns: "boolean",
        },
        Function {
            suffix: "queue_fence",
            takes: "text, smallint, text, bigint, boolean, bigint",
            returns: "bigint",
        },
        Function {
            suffix: "queue_requeue",
            takes: "text, bytea",
            returns: "integer",
        },
        Function {
            suffix: "queue_complete",
            takes: "text, smallint, text, bytea, bytea, bigint, bigint",
            returns: "void",
        },
    ],
    version: 1,
    compatible: 1,
    body: 1,
    of: "queues",
    all: "every item, every grant and every mark",
    printed_by: "`lease schema` (PostgresQueues::schema_sql)",
};

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lease_core::{WAITER_TURN, place_lasts};

    use super::LAYOUT;

    #[test]
    fn every_function_says_of_which_body_it_is() {
        let mark = format!("-- leases: body {}\n", LAYOUT.body);
        let marked = LAYOUT.make_functions.matches(&mark).count();
        assert_eq!(marked, LAYOUT.functions.len());
    }

    #[test]
    fn turns_and_places_last_as_everywhere() {
        let turn = format!("ahead * {}\n", WAITER_TURN.as_micros());
        let most = format!("_now + {}", place_lasts(Duration::MAX).as_micros());
        assert_eq!(LAYOUT.make_functions.matches(&turn).count(), 1);
        assert_eq!(LAYOUT.make_functions.matches(&most).count(), 3);
    }

    #[test]
    fn no_name_is_longer_than_a_prefix_leaves_room_for() {
        let names = LAYOUT.make_tables.split("{local:").skip(1);
        let names = names
            .filter_map(|rest| rest.split_once('}'))
            .map(|(name, _)| name);
        let tables = LAYOUT.tables.iter().map(|table| table.suffix);
        let functions = LAYOUT.functions.iter().map(|one| one.suffix);
        for name in names.chain(tables).chain(functions) {
            assert!(name.len() <= "tombstones_until".len(), "{name}");
        }
    }
}
