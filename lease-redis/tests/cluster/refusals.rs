//! What goes not with a cluster, and says so.

use lease_conformance::servers::redis::RedisServer;
use lease_conformance::servers::redis::cluster::RedisCluster;
use lease_core::{InvalidInput, LeaseBackend, StoreErrorKind};
use lease_redis::RedisOptions;

use crate::support::{granted, persist, request};
use crate::{options, store};

fn invalid(url: &str) -> String {
    match RedisOptions::from_url(url) {
        Err(InvalidInput::Url(why)) => why,
        Err(other) => panic!("{url}: {other}"),
        Ok(_) => panic!("{url} was read"),
    }
}

#[test]
fn a_url_of_a_cluster_names_nodes_and_no_database() {
    for good in [
        "redis+cluster://h",
        "redis+cluster://u:p%40@h1,h2:7,[::1]:8/0?prefix=x",
        "valkey+cluster://h1,h2/",
        "Redis+Cluster://h",
    ] {
        RedisOptions::from_url(good).unwrap();
    }
    #[cfg(feature = "tls")]
    for good in ["rediss+cluster://h", "valkeys+cluster://h1,h2"] {
        RedisOptions::from_url(good).unwrap();
    }
    for (bad, words) in [
        ("redis+cluster://h/1", "no database but 0"),
        ("redis+cluster://h/x", "no database but 0"),
        ("redis+cluster://", "an empty host"),
        ("redis+cluster://h,h", "twice"),
        ("redis+cluster://h?db=1", "not an option"),
        ("redis+cluster://u@h", "no password"),
        ("redis+cluster:///tmp/socket", "an empty host"),
    ] {
        let said = invalid(bad);
        assert!(said.contains(words), "{bad}: {said}");
    }
    let options = RedisOptions::from_url("redis+cluster://u:secret@h1,h2").unwrap();
    let shown = format!("{options:?}");
    assert!(
        shown.contains("h1:6379") && shown.contains("h2:6379"),
        "{shown}"
    );
    assert!(!shown.contains("secret"), "{shown}");
    // Nothing that a failover could break.
    let claimed = options.durable(true).guarantees();
    assert!(!claimed.exclusion_survives.restart && !claimed.exclusion_survives.failover);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_replicas_is_refused() {
    let url = "redis+cluster://h?wait_replicas=1&wait_timeout_ms=100";
    let options = RedisOptions::from_url(url).unwrap();
    let refused = options.open_lazily().unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::InvalidInput);
    assert!(refused.to_string().contains("leave it out"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_of_the_applications_own_is_refused() {
    let server = RedisServer::builder().start().unwrap();
    let client = redis::Client::open(server.url().to_string()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let options = RedisOptions::from_url("redis+cluster://h").unwrap();
    let refused = options.open_over(connection).unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::InvalidInput);
    assert!(refused.to_string().contains("to each node"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_its_own_is_no_cluster_and_a_node_of_one_is_no_server_of_its_own() {
    let server = RedisServer::builder().start().unwrap();
    let url = format!("redis+cluster://{}", server.address());
    let refused = RedisOptions::from_url(&url)
        .unwrap()
        .open()
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refusing, "{refused}");
    assert!(
        refused.to_string().contains("write redis:// in the URL"),
        "{refused}"
    );

    let cluster = RedisCluster::builder().start().unwrap();
    let url = format!("redis://{}", cluster.address(0));
    let single = RedisOptions::from_url(&url).unwrap().open().await.unwrap();
    let refused = single.acquire(&request("a", 1000)).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refusing, "{refused}");
    assert!(
        refused.to_string().contains("redis+cluster://"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_refused_and_shown_nowhere() {
    let cluster = RedisCluster::builder().default_user_off().start().unwrap();
    let url = cluster.url().user("nobody", "the secret");
    let refused = options(&url).open().await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refusing, "{refused}");
    let shown = format!("{refused} {refused:?}");
    assert!(!shown.contains("secret"), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_right_to_see_the_cluster_is_told() {
    let cluster = RedisCluster::builder()
        .user("app on >p ~leases:* &leases:* +@all -cluster")
        .start()
        .unwrap();
    let url = cluster.url().user("app", "p");
    let refused = options(&url).open().await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refusing, "{refused}");
    assert!(refused.to_string().contains("rights"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_forgotten_are_sent_again() {
    let cluster = RedisCluster::builder().start().unwrap();
    let client = store(&cluster).await;
    for number in 0..20 {
        let asked = request(&format!("k{number}"), 60_000);
        cluster
            .nodes()
            .for_each(|node| node.script_flush().unwrap());
        let grant = granted(persist(|| client.acquire(&asked)).await);
        cluster
            .nodes()
            .for_each(|node| node.script_flush().unwrap());
        client
            .release(&asked.key, asked.owner, grant.token)
            .await
            .unwrap();
    }
}
