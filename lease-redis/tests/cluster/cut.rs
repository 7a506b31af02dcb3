//! Nodes that clients cannot reach.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lease_conformance::servers::redis::cluster::RedisCluster;
use lease_core::{LeaseBackend, Leases, RenewOutcome, StoreErrorKind};
use lease_redis::RedisStore;

use crate::load::Load;
use crate::support::{PATIENCE, granted, persist, renewal, request};
use crate::{harm, key_at, options, record, store};

/// How long the others may take meanwhile: far less than any time limit.
const QUICK: Duration = Duration::from_secs(2);

/// One held key at each primary.
async fn held(cluster: &RedisCluster, client: &RedisStore) -> Vec<lease_core::RenewRequest> {
    let mut all = Vec::new();
    for primary in cluster.primaries() {
        let asked = request(&key_at(cluster, "held", primary), 60_000);
        let grant = granted(client.acquire(&asked).await.unwrap());
        all.push(renewal(&asked, grant.token));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_swallows_everything_delays_no_key_of_the_others() {
    let cluster = Arc::new(RedisCluster::builder().proxied().start().unwrap());
    let client = store(&cluster).await;
    let [first, second, third] = held(&cluster, &client).await.try_into().unwrap();
    let primaries = cluster.primaries();
    cluster.proxy(primaries[0]).unwrap().black_hole();
    let began = Instant::now();
    let lost = tokio::spawn({
        let (client, first) = (client.clone(), first.clone());
        async move { tokio::time::timeout(QUICK, client.renew(&first)).await }
    });
    let mut slowest = Duration::ZERO;
    let mut moved = false;
    while began.elapsed() < QUICK {
        for one in [&second, &third] {
            let sent = Instant::now();
            assert_eq!(persist(|| client.renew(one)).await, RenewOutcome::Renewed);
            slowest = slowest.max(sent.elapsed());
        }
        if !moved && began.elapsed() > QUICK / 2 {
            // And whoever looks for a slot that has moved meets the node, too.
            let (name, to) = (record(second.key.as_str()), primaries[2]);
            harm(&cluster, move |cluster| {
                cluster.move_slot(cluster.slot_of(&name)?, to)
            })
            .await;
            moved = true;
        }
    }
    println!("the slowest of the others took {slowest:?}");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    assert!(lost.await.unwrap().is_err(), "the node swallows everything");

    let healed = Instant::now();
    cluster.proxy(primaries[0]).unwrap().heal().unwrap();
    assert_eq!(
        persist(|| client.renew(&first)).await,
        RenewOutcome::Renewed
    );
    println!("it was reached {:?} after it could be", healed.elapsed());
    assert!(healed.elapsed() < QUICK, "{:?}", healed.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_at_other_nodes_outlive_a_node_that_swallows_everything() {
    const TTL: Duration = Duration::from_secs(3);
    let cluster = Arc::new(RedisCluster::builder().proxied().start().unwrap());
    let leases = Leases::new(Arc::new(store(&cluster).await));
    let dark = cluster.primaries()[0];
    let (mut held, mut doomed) = (Vec::new(), Vec::new());
    for number in 0..60 {
        let name = format!("k{number}");
        let lease = leases.lease(name.as_str()).ttl(TTL);
        let lease = lease.acquire().await.unwrap();
        let owner = cluster.owner_of(&record(&name)).unwrap();
        if owner == dark {
            &mut doomed
        } else {
            &mut held
        }
        .push(lease);
    }
    assert!(doomed.len() > 3 && held.len() > 10);
    cluster.proxy(dark).unwrap().black_hole();
    // They are renewed in one go with those that nobody answers for.
    for lease in &doomed {
        let lost = tokio::time::timeout(PATIENCE, lease.lost()).await;
        lost.expect("nobody could renew it");
    }
    tokio::time::sleep(TTL).await;
    for lease in &held {
        lease.check().unwrap();
    }
    cluster.proxy(dark).unwrap().heal().unwrap();
    leases.shutdown(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_cut_off_again_and_again_make_no_two_holders() {
    let cluster = Arc::new(RedisCluster::builder().proxied().start().unwrap());
    let all = (0..4).map(|_| options(&cluster.url()));
    let load = Load::start(500..=1500, all.collect()).await;
    let mut turn = 0;
    while load.goes_on() {
        let primaries = cluster.primaries();
        let proxy = cluster.proxy(primaries[turn % primaries.len()]).unwrap();
        match turn % 3 {
            0 => proxy.black_hole(),
            1 => proxy.cut(),
            _ => {
                proxy.refuse();
                proxy.cut();
            }
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        proxy.heal().unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        turn += 1;
    }
    load.end(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_goes_on_without_the_nodes_of_its_url() {
    let cluster = Arc::new(RedisCluster::builder().proxied().start().unwrap());
    // A replica is as good as a primary to ask who has what.
    let seed = cluster.replica_of(cluster.primaries()[0]).unwrap();
    let url = cluster.url().seeds([cluster.address(seed)]);
    let client = options(&url).open().await.unwrap();
    let all = held(&cluster, &client).await;
    let proxy = cluster.proxy(seed).unwrap();
    proxy.refuse();
    proxy.cut();
    for one in &all {
        assert_eq!(persist(|| client.renew(one)).await, RenewOutcome::Renewed);
    }
    // Nobody new gets in that way.
    let refused = options(&url).open().await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Unavailable, "{refused}");
    proxy.heal().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_all_away_is_unavailable_and_comes_back() {
    let cluster = Arc::new(RedisCluster::builder().proxied().start().unwrap());
    let client = store(&cluster).await;
    let all = held(&cluster, &client).await;
    for node in 0..6 {
        let proxy = cluster.proxy(node).unwrap();
        proxy.refuse();
        proxy.cut();
    }
    for one in &all {
        let began = Instant::now();
        let failed = client.renew(one).await.unwrap_err();
        assert!(failed.is_transient(), "{failed}");
        assert!(
            began.elapsed() < Duration::from_secs(6),
            "{:?}",
            began.elapsed()
        );
    }
    for node in 0..6 {
        cluster.proxy(node).unwrap().heal().unwrap();
    }
    let healed = Instant::now();
    for one in &all {
        assert_eq!(persist(|| client.renew(one)).await, RenewOutcome::Renewed);
    }
    println!(
        "all were reached {:?} after they could be",
        healed.elapsed()
    );
}
