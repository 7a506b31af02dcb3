//! Who waits far from the server.

use std::sync::Arc;

use lease_conformance::proxy::FaultProxy;
use lease_queue::postgres::PostgresQueues;

use crate::support::{open, server};
use crate::trips::{self, Far};

#[tokio::test]
async fn what_becomes_free_is_claimed_within_three_round_trips() {
    let near = Arc::new(open("far").await);
    let proxy = FaultProxy::start(server().address()).unwrap();
    let url = server().url().through(proxy.address()).to_string();
    let options = PostgresQueues::options(&url).unwrap();
    let far = PostgresQueues::open(options.schema("far").unwrap()).await;
    trips::are_three_at_most(near, Far::new(far.unwrap(), proxy)).await;
}
