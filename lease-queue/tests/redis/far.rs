//! Who waits far from the server.

use std::sync::Arc;

use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::redis::RedisServer;
use lease_queue::redis::RedisQueues;

use crate::support::queues;
use crate::trips::{self, Far};

#[tokio::test]
async fn what_becomes_free_is_claimed_within_three_round_trips() {
    let server = RedisServer::builder().start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let url = server.url().through(proxy.address()).to_string();
    let far = RedisQueues::open(RedisQueues::options(&url).unwrap()).await;
    let near = Arc::new(queues(&server).await);
    trips::are_three_at_most(near, Far::new(far.unwrap(), proxy)).await;
}
