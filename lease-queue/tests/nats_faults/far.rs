//! Who waits far from the server.

use std::sync::Arc;

use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::nats::NatsServer;
use lease_queue::nats::{NatsOptions, NatsStore};

use crate::trips::{self, Far};

async fn open(url: &str) -> NatsStore {
    NatsOptions::from_url(url).unwrap().open().await.unwrap()
}

#[tokio::test]
async fn what_becomes_free_is_claimed_within_three_round_trips() {
    let server = NatsServer::builder().start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let url = server.url().through(proxy.address()).to_string();
    let far = Far::new(open(&url).await, proxy);
    let near = open(&server.url().to_string()).await;
    trips::are_three_at_most(Arc::new(near), far).await;
}
