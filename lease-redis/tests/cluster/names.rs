//! Every key has its slot, whatever its name.

use std::collections::HashSet;

use futures_util::TryStreamExt;
use lease_conformance::servers::redis::cluster::RedisCluster;
use lease_core::{FenceWhen, LeaseBackend, ReleaseOutcome, RenewOutcome};

use crate::store;
use crate::support::{exactly, granted, key, renewal, request};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_odd_names_take_every_operation() {
    let cluster = RedisCluster::builder().start().unwrap();
    let client = store(&cluster).await;
    let mut names: Vec<_> = [
        "{a}",
        "{}",
        "a}b{c",
        "}{",
        "%7B",
        "é😀",
        "a:{b}:owner",
        "{%}",
    ]
    .map(str::to_owned)
    .into();
    names.extend((0..1000).map(|number| match number % 3 {
        0 => format!("plain/{number}"),
        1 => format!("{{{number}}}"),
        _ => format!("}}{number}{{{{x}}"),
    }));
    let work = names.iter().map(|name| {
        let client = client.clone();
        let name = name.clone();
        tokio::spawn(async move {
            let asked = request(&name, 30_000);
            let first = granted(client.acquire(&asked).await.unwrap());
            let renewed = client.renew(&renewal(&asked, first.token)).await.unwrap();
            assert_eq!(renewed, RenewOutcome::Renewed, "{name}");
            let released = client.release(&asked.key, asked.owner, first.token);
            assert_eq!(released.await.unwrap(), ReleaseOutcome::Released, "{name}");
            client.abandon(&asked.key, asked.owner).await.unwrap();
            let next = exactly(&name, 30_000, first.token.get() + 1);
            let next = granted(client.acquire(&next).await.unwrap());
            let fence = client.fence(&asked.key, next.token, FenceWhen::AtExpiry);
            assert_eq!(fence.await.unwrap(), next.token, "{name}");
            let state = client.inspect(&asked.key).await.unwrap();
            assert_eq!(state.holder.unwrap().token, next.token, "{name}");
        })
    });
    for work in work.collect::<Vec<_>>() {
        work.await.unwrap();
    }
    let listed: Vec<_> = client.list("").try_collect().await.unwrap();
    let listed: Vec<_> = listed.into_iter().map(|state| state.key).collect();
    let once: HashSet<_> = listed.iter().cloned().collect();
    assert_eq!((listed.len(), once.len()), (names.len(), names.len()));
    assert!(names.iter().all(|name| once.contains(&key(name))));
    // All three have some.
    for primary in cluster.primaries() {
        let size = cluster.node(primary).command(&["DBSIZE"]).unwrap();
        assert!(size.integer().unwrap() > 100);
    }
}
