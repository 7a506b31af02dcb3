//! A worker that was stopped past its claim's expiry, while another took the item.

use std::time::Duration;

use lease_conformance::servers::redis::RedisServer;
use lease_queue::{QueueStore, Settle, Settled};

use crate::support::{
    assert_unchanged, base, everything, item, name, next, of_key, one, put, queues, retry, ttl,
};

#[tokio::test]
async fn a_late_worker_changes_not_one_byte() {
    let server = RedisServer::builder().start().unwrap();
    let (a, b) = (queues(&server).await, queues(&server).await);
    let queue = name("jobs");
    for group in [None, Some("g")] {
        put(&a, &queue, &[item("work", group)]).await;
        let stale = one(a.claim(&queue, &next(1, 50)).await.unwrap());
        // Until the store says that it is over.
        let fresh = loop {
            if let Ok(lease_queue::Answer::Claimed { mut items, .. }) =
                b.claim(&queue, &next(1, 60_000)).await
            {
                break items.remove(0);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert_eq!(fresh.claim.item, stale.claim.item);
        assert!(fresh.claim.token > stale.claim.token);
        let before = everything(&server, &base("jobs"));
        let bury = Settle::Bury {
            reason: "late".to_owned(),
        };
        for settle in [
            Settle::Extend(ttl(600_000)),
            Settle::Complete,
            retry(),
            bury,
        ] {
            let settled = a.settle(&queue, &[(stale.claim.clone(), settle)]).await;
            assert!(matches!(settled[0], Ok(Settled::Lost(_))), "{settled:?}");
        }
        assert_unchanged(&server, &base("jobs"), &before);
        let done = b.settle(&queue, &[(fresh.claim, Settle::Complete)]).await;
        assert_eq!(done[0].clone().unwrap(), Settled::Done);
    }
}

#[tokio::test]
async fn a_late_holder_of_a_key_changes_not_one_byte() {
    let server = RedisServer::builder().start().unwrap();
    let (a, b) = (queues(&server).await, queues(&server).await);
    let queue = name("locks");
    let stale = one(a.claim(&queue, &of_key("k", 50)).await.unwrap());
    let fresh = loop {
        if let Ok(lease_queue::Answer::Claimed { mut items, .. }) =
            b.claim(&queue, &of_key("k", 60_000)).await
        {
            break items.remove(0);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(fresh.claim.token > stale.claim.token);
    let before = everything(&server, &base("locks"));
    for settle in [Settle::Extend(ttl(600_000)), retry()] {
        let settled = a.settle(&queue, &[(stale.claim.clone(), settle)]).await;
        assert!(matches!(settled[0], Ok(Settled::Lost(_))), "{settled:?}");
    }
    assert_unchanged(&server, &base("locks"), &before);
}
