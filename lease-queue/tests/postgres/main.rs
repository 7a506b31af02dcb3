//! Tests of the store of queues on Postgres, on real servers.
fn main() {}
