//! Which tables and functions a kind of store has: those of leases are here, those
//! of queues in a crate of their own.

/// The tables and functions of one kind of store.
#[derive(Debug)]
pub struct Layout {
    /// The SQL that makes the tables.
    pub make_tables: &'static str,
    /// The SQL that makes the functions.
    pub make_functions: &'static str,
    /// The tables; the first one has the version.
    pub tables: &'static [Table],
    /// The functions.
    pub functions: &'static [Function],
    /// Of the tables' layout.
    pub version: i32,
    /// The oldest version that programs may have to work with these tables.
    pub compatible: i32,
    /// The version of the functions' bodies, raised with each change of one.
    pub body: i32,
    /// What is kept in the tables, for words to people.
    pub of: &'static str,
    /// All that is lost with them, for words to people.
    pub all: &'static str,
    /// What prints the SQL that makes all of it.
    pub printed_by: &'static str,
}

/// A table of ours.
#[derive(Debug)]
pub struct Table {
    /// What its name ends with.
    pub suffix: &'static str,
    /// The columns that this version knows, each with its type as `format_type` shows
    /// it.
    pub columns: &'static [&'static str],
    /// The columns of its primary key, in their order.
    pub primary: &'static [&'static str],
    /// What the store needs of SELECT, INSERT, UPDATE and DELETE.
    pub rights: [bool; 4],
    /// Whether it keeps nothing that matters after a crash.
    pub unlogged: bool,
}

/// A function of ours.
#[derive(Debug)]
pub struct Function {
    /// What its name ends with.
    pub suffix: &'static str,
    /// What it takes, as `oidvectortypes` shows it.
    pub takes: &'static str,
    /// What it returns, as `regtype` shows it.
    pub returns: &'static str,
}

/// The rights, in their order.
pub(crate) const RIGHTS: [&str; 4] = ["SELECT", "INSERT", "UPDATE", "DELETE"];

const KEPT: [bool; 4] = [true, true, true, false];

/// The tables of leases.
pub(crate) const LEASES: Layout = Layout {
    make_tables: include_str!("sql/schema.sql"),
    make_functions: include_str!("sql/functions.sql"),
    tables: &[
        Table {
            suffix: "schema",
            columns: &["only boolean", "version integer", "compatible integer"],
            primary: &["only"],
            rights: [true, false, false, false],
            unlogged: false,
        },
        Table {
            suffix: "keys",
            columns: &[
                "key text",
                "mark bigint",
                "version bigint",
                "awaited_us bigint",
                "owner bytea",
                "token bigint",
                "label text",
                "granted_us bigint",
                "expires_us bigint",
                "standing smallint",
                "session bigint",
                "grace_us bigint",
            ],
            primary: &["key"],
            rights: KEPT,
            unlogged: false,
        },
        Table {
            suffix: "tombstones",
            columns: &[
                "key text",
                "owner bytea",
                "reason smallint",
                "until_us bigint",
            ],
            primary: &["key", "owner"],
            rights: [true; 4],
            unlogged: false,
        },
        Table {
            suffix: "gate",
            columns: &["resource text", "token bigint"],
            primary: &["resource"],
            rights: KEPT,
            unlogged: false,
        },
    ],
    functions: &[
        Function {
            suffix: "admit",
            takes: "text, bigint",
            returns: "void",
        },
        Function {
            suffix: "hold",
            takes: "text, bytea, bigint",
            returns: "void",
        },
    ],
    version: 1,
    compatible: 1,
    body: 1,
    of: "leases",
    all: "every grant and every mark",
    printed_by: "`lease schema` (PostgresOptions::schema_sql)",
};

impl Layout {
    /// What the name of the table with the version ends with.
    pub(crate) fn version_table(&self) -> &'static str {
        self.tables.first().map_or("schema", |table| table.suffix)
    }
}
