//! Fenced writes in a cluster.

use std::sync::Arc;

use lease_conformance::servers::redis::cluster::{Failover, RedisCluster};
use lease_core::{AdmitError, Gate, StoreErrorKind};
use lease_redis::redis::cluster::ClusterClient;
use lease_redis::{FencedScript, RedisGate};

use crate::support::{key, token};
use crate::{harm, record, store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stores_own_gate_follows_its_slots() {
    let cluster = Arc::new(RedisCluster::builder().start().unwrap());
    let store = store(&cluster).await;
    for name in ["ledger", "{odd}", "}x{"] {
        let resource = key(name);
        store.admit(&resource, token(5)).await.unwrap();
        let mark = record(name);
        harm(&cluster, move |cluster| {
            let slot = cluster.slot_of(&mark)?;
            let from = cluster.owner_of_slot(slot)?;
            let to = cluster.primaries().into_iter().find(|to| *to != from);
            cluster.move_slot(slot, to.unwrap())
        })
        .await;
        let stale = store.admit(&resource, token(4)).await.unwrap_err();
        assert!(matches!(stale, AdmitError::Stale(_)), "{stale}");
        let mark = record(name);
        harm(&cluster, move |cluster| {
            cluster.failover(&mark, Failover::Agreed)?;
            cluster.until_settled()
        })
        .await;
        let stale = store.admit(&resource, token(4)).await.unwrap_err();
        assert!(matches!(stale, AdmitError::Stale(_)), "{stale}");
        store.admit(&resource, token(6)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fenced_writes_go_where_the_resource_is_the_tag_of_the_data() {
    let cluster = RedisCluster::builder().start().unwrap();
    let url = format!("redis://{}", cluster.address(0));
    let client = ClusterClient::new(vec![url]).unwrap();
    let gate = RedisGate::new(client.get_async_connection().await.unwrap());
    let user = key("user:7");
    gate.set(&user, token(5), "profile:{user:7}", "blue")
        .await
        .unwrap();
    let push = FencedScript::new("return redis.call('RPUSH', KEYS[1], ARGV[1])");
    let length: u64 = gate
        .script(&user, token(5), &push, "history:{user:7}", "blue")
        .await
        .unwrap();
    assert_eq!(length, 1);
    let stale = gate.set(&user, token(4), "profile:{user:7}", "red").await;
    assert!(matches!(stale, Err(AdmitError::Stale(_))), "{stale:?}");

    let apart = gate.set(&user, token(6), "profile:7", "red").await;
    let Err(AdmitError::Store(refused)) = apart else {
        panic!("{apart:?}");
    };
    assert_eq!(refused.kind(), StoreErrorKind::Refusing);
    assert!(refused.to_string().contains("name:{resource}"), "{refused}");
}
