//! What the doctor finds at a cluster.

use std::time::Duration;

use lease_conformance::servers::redis::RedisServer;
use lease_conformance::servers::redis::cluster::RedisCluster;
use lease_core::{Diagnosis, LeaseBackend, Severity, StoreErrorKind, Ttl};
use lease_redis::{RedisOptions, RedisStore};

use crate::{options, store};

async fn look(store: &RedisStore, ttl: Duration) -> Diagnosis {
    let diagnosis = store.diagnose(Ttl::new(ttl).unwrap()).await.unwrap();
    for finding in &diagnosis.findings {
        println!("{:<9} {}", finding.severity.to_string(), finding.what);
    }
    let shown = format!("{diagnosis:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    diagnosis
}

const TTL: Duration = Duration::from_secs(30);

/// The one finding that starts so is of this severity.
#[track_caller]
fn found(diagnosis: &Diagnosis, what: &str, severity: Severity) -> String {
    let all = &diagnosis.findings;
    let matching: Vec<_> = all.iter().filter(|f| f.what.starts_with(what)).collect();
    match matching[..] {
        [finding] => {
            assert_eq!(finding.severity, severity, "{finding:?}");
            format!("{} {} {:?}", finding.what, finding.why, finding.advice)
        }
        _ => panic!("{} findings {what:?} among {all:#?}", matching.len()),
    }
}

fn none(diagnosis: &Diagnosis, what: &str) {
    let all = &diagnosis.findings;
    assert!(!all.iter().any(|f| f.what.starts_with(what)), "{all:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sound_cluster_has_nothing_worse_than_that_it_is_one() {
    let cluster = RedisCluster::builder()
        .config("appendonly yes")
        .config("appendfsync always")
        .config("cluster-require-full-coverage no")
        .user("app on >hunter2 ~* &* +@all")
        .start()
        .unwrap();
    cluster.until_replicas_are_named().unwrap();
    let url = cluster.url().user("app", "hunter2");
    let quarantine = options(&url).quarantine(Ttl::new(TTL).unwrap());
    let diagnosis = look(&quarantine.open().await.unwrap(), TTL).await;
    found(
        &diagnosis,
        "cluster: ok, with 3 primaries",
        Severity::Healthy,
    );
    found(&diagnosis, "replicas: 3, ", Severity::Healthy);
    found(&diagnosis, "cluster-node-timeout: 1s", Severity::Healthy);
    found(
        &diagnosis,
        "cluster-require-full-coverage: no",
        Severity::Healthy,
    );
    found(&diagnosis, "clocks: ", Severity::Healthy);
    found(
        &diagnosis,
        "slots: each has a quarantine",
        Severity::Healthy,
    );
    found(&diagnosis, "server: ", Severity::Healthy);
    found(&diagnosis, "rights: ", Severity::Healthy);
    found(&diagnosis, "memory: ", Severity::Healthy);
    found(&diagnosis, "role: ", Severity::Note);
    none(&diagnosis, "mode: ");
    assert!(diagnosis.worst() <= Severity::Note, "{diagnosis:#?}");
    // Looking leaves nothing behind.
    for node in cluster.nodes() {
        assert_eq!(node.command(&["DBSIZE"]).unwrap().integer(), Some(0));
    }
    // Without a quarantine a failover is worth a warning, once.
    let diagnosis = look(&options(&url).open().await.unwrap(), TTL).await;
    found(&diagnosis, "role: ", Severity::Warning);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_at_one_node_names_it() {
    let cluster = RedisCluster::builder().start().unwrap();
    cluster.until_replicas_are_named().unwrap();
    let store = store(&cluster).await;
    let primaries = cluster.primaries();
    let (first, second) = (primaries[0], primaries[1]);
    let odd = cluster.node(first);
    odd.config_set("maxmemory", "100mb").unwrap();
    odd.config_set("maxmemory-policy", "allkeys-lru").unwrap();
    let lonely = cluster.address(second).to_string();
    let dead = cluster.replica_of(second).unwrap();
    cluster.node(dead).kill().unwrap();
    let behind = cluster.replica_of(first).unwrap();
    cluster.hold_replication(behind).unwrap();
    let began = std::time::Instant::now();
    let diagnosis = loop {
        let diagnosis = look(&store, Duration::from_millis(500)).await;
        // The primary hears of the end of its replica.
        let lonely = format!("replicas: {lonely} has none");
        if diagnosis.findings.iter().any(|f| f.what == lonely) {
            break diagnosis;
        }
        assert!(began.elapsed() < crate::support::PATIENCE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let memory = found(&diagnosis, "memory: ", Severity::Critical);
    assert!(
        memory.contains(&cluster.address(first).to_string()),
        "{memory}"
    );
    let behind = format!("replicas: {} does not follow", cluster.address(behind));
    found(&diagnosis, &behind, Severity::Warning);
    found(&diagnosis, "cluster-node-timeout: 1s", Severity::Warning);
    found(
        &diagnosis,
        "cluster-require-full-coverage: yes",
        Severity::Note,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_cannot_be_reached_and_slots_without_one_are_critical() {
    let cluster = RedisCluster::builder().proxied().start().unwrap();
    cluster.until_replicas_are_named().unwrap();
    let url = cluster.url();
    let open = || async {
        let limit = Duration::from_secs(1);
        let options = options(&url).connect_timeout(limit).response_timeout(limit);
        options.open().await.unwrap()
    };
    let (store, primaries) = (open().await, cluster.primaries());
    let (first, second) = (primaries[0], primaries[1]);
    let address = cluster.address(first);
    let proxy = cluster.proxy(first).unwrap();
    proxy.refuse();
    proxy.cut();
    let replica = cluster.replica_of(second).unwrap();
    cluster.proxy(replica).unwrap().refuse();
    cluster.proxy(replica).unwrap().cut();
    let diagnosis = look(&store, TTL).await;
    let said = found(&diagnosis, "address: the primary ", Severity::Critical);
    assert!(said.contains(&address.to_string()), "{said}");
    assert!(said.contains("cluster-announce-ip"), "{said}");
    found(&diagnosis, "address: the replica ", Severity::Warning);
    proxy.heal().unwrap();
    cluster.proxy(replica).unwrap().heal().unwrap();

    // Nobody is left who could take over.
    cluster.node(replica).kill().unwrap();
    cluster.node(second).kill().unwrap();
    let began = std::time::Instant::now();
    loop {
        let diagnosis = look(&store, TTL).await;
        if diagnosis
            .findings
            .iter()
            .any(|f| f.what.starts_with("cluster: down"))
        {
            found(&diagnosis, "cluster: down", Severity::Critical);
            return;
        }
        assert!(began.elapsed() < crate::support::PATIENCE);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_missing_in_a_cluster_are_named() {
    let cluster = RedisCluster::builder()
        .user(
            "app on >hunter2 ~leases:* &leases:* +@all -spublish -asking -cluster|nodes \
             -cluster|info -ssubscribe",
        )
        .start()
        .unwrap();
    let url = cluster.url().user("app", "hunter2");
    let diagnosis = look(&options(&url).open().await.unwrap(), TTL).await;
    for (right, severity) in [
        ("SPUBLISH", Severity::Warning),
        ("ASKING", Severity::Warning),
        ("CLUSTER|NODES", Severity::Warning),
        ("CLUSTER|INFO", Severity::Note),
        ("SSUBSCRIBE", Severity::Warning),
    ] {
        let what = format!("rights: {right} is not allowed");
        let said = found(&diagnosis, &what, severity);
        let give = format!("+{}", right.to_lowercase());
        assert!(said.contains(&give), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_of_the_wrong_kind_is_said_to_be_so() {
    let cluster = RedisCluster::builder().start().unwrap();
    let url = format!("redis://{}", cluster.address(0));
    let single = RedisOptions::from_url(&url).unwrap().open().await.unwrap();
    let diagnosis = look(&single, TTL).await;
    let said = found(&diagnosis, "mode: part of a cluster", Severity::Critical);
    assert!(said.contains("redis+cluster://"), "{said}");

    let server = RedisServer::builder().start().unwrap();
    let url = format!("redis+cluster://{}", server.address());
    let store = RedisOptions::from_url(&url).unwrap().open_lazily().unwrap();
    let refused = store.diagnose(Ttl::new(TTL).unwrap()).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refusing);
    assert!(
        refused.to_string().contains("write redis:// in the URL"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_is_left_on_its_way_is_a_warning() {
    let cluster = RedisCluster::builder().start().unwrap();
    let store = options(&cluster.url()).open().await.unwrap();
    let slot = 0;
    let from = cluster.owner_of_slot(slot).unwrap();
    let to = cluster.primaries().into_iter().find(|node| *node != from);
    let _move = cluster.begin_move(slot, to.unwrap()).unwrap();
    let diagnosis = look(&store, TTL).await;
    found(
        &diagnosis,
        "slots: 0 is on its way to another node",
        Severity::Warning,
    );
}
