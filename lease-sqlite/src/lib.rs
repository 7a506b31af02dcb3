//! Leases in an SQLite file: one host, no server, durable fencing tokens.
#![forbid(unsafe_code)]

mod connection;
mod diagnose;
mod errors;
mod gate;
mod json;
mod options;
mod reader;
mod request;
mod row;
mod schema;
mod sql;
mod store;
mod table;
mod url;
mod watch;
mod writer;

pub use gate::{GATE_TABLE_SQL, admit, create_gate_table};
pub use options::SqliteOptions;
pub use sqlx;
pub use store::SqliteStore;
