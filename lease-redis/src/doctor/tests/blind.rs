//! The store's own user, who has no right to INFO or CONFIG.

use std::time::Duration;

use lease_conformance::servers::redis::{Persistence, RedisBuilder, RedisServer, RedisUrl};
use lease_core::{Diagnosis, Severity};

use super::{Facts, facts, found, look, seconds, start, until};

/// The user that the page of the rights lists, and one with what it adds.
fn with_users(builder: RedisBuilder) -> RedisServer {
    let page = include_str!("../../../docs/acl.md");
    let line = |starts: &str| {
        let line = page.lines().find(|line| line.starts_with(starts)).unwrap();
        line.strip_prefix("ACL SETUSER app ").unwrap()
    };
    let store = line("ACL SETUSER app on");
    let more = line("ACL SETUSER app +info");
    start(
        builder
            .user(&format!("app {store}"))
            .user(&format!("seeing {store} {more}"))
            .user(&format!("half {store} +info")),
    )
}

fn store(server: &RedisServer) -> RedisUrl {
    server.url().user("app", "PASSWORD")
}

fn durable() -> Facts {
    Facts {
        durable: true,
        ..facts()
    }
}

fn empty(server: &RedisServer) {
    assert_eq!(server.command(&["DBSIZE"]).unwrap().integer(), Some(0));
}

fn uncertain(diagnosis: &Diagnosis) -> usize {
    let all = diagnosis.findings.iter();
    all.filter(|f| f.what.contains("could not be")).count()
}

#[tokio::test]
async fn what_cannot_be_seen_is_a_warning_where_a_promise_hangs_on_it() {
    use Severity::{Healthy, Warning};
    let server = with_users(RedisServer::builder().persistence(Persistence::AofAlways));
    for facts in [facts(), durable()] {
        let blind = look(&store(&server), &facts).await;
        assert_eq!(blind.worst(), Warning);
        for what in ["persistence", "memory", "role"] {
            let words = found(&blind, &format!("{what}: could not be checked"), Warning);
            assert!(words.contains("administrator"), "{words}");
            assert!(!words.contains("it is not"), "{words}");
        }
    }
    // INFO alone does not tell when the file reaches the disk.
    let half = look(&server.url().user("half", "PASSWORD"), &durable()).await;
    let words = found(
        &half,
        "persistence: an append-only file; how often",
        Warning,
    );
    assert!(!words.contains("it is not"), "{words}");
    found(&half, "memory: ", Healthy);
    assert_eq!(half.worst(), Warning);
    // With all that the page adds, nothing is left open.
    let seeing = look(&server.url().user("seeing", "PASSWORD"), &durable()).await;
    assert_eq!(seeing.worst(), Healthy, "{seeing:#?}");
    assert_eq!(uncertain(&seeing), 0, "{seeing:#?}");
    empty(&server);
}

#[tokio::test]
async fn what_stops_writes_is_seen_without_a_right_to_ask() {
    use Severity::Critical;
    let server = with_users(RedisServer::builder());
    server.config_set("maxmemory", "1").unwrap();
    found(
        &look(&store(&server), &facts()).await,
        "memory: full",
        Critical,
    );
    server.config_set("maxmemory", "0").unwrap();

    server.config_set("min-replicas-to-write", "1").unwrap();
    let alone = look(&store(&server), &facts()).await;
    found(&alone, "min-replicas-to-write: ", Critical);
    server.config_set("min-replicas-to-write", "0").unwrap();

    let short = Facts {
        quarantine: Some(seconds(10)),
        ..facts()
    };
    found(
        &look(&store(&server), &short).await,
        "quarantine: 10s",
        Critical,
    );
    empty(&server);

    let replica = with_users(RedisServer::builder().replica_of(&server));
    replica.wait_until_linked().unwrap();
    server.wait_until_followed(1).unwrap();
    let seen = look(&store(&replica), &facts()).await;
    found(&seen, "role: a replica", Critical);
    empty(&replica);

    server.command(&["SET", "leases:birth", "mine"]).unwrap();
    let foreign = look(&store(&server), &facts()).await;
    found(&foreign, "birth marker: ", Critical);
}

#[tokio::test]
async fn a_cluster_is_seen_without_a_right_to_ask() {
    let server = with_users(RedisServer::builder().config("cluster-enabled yes"));
    let what = "mode: part of a cluster";
    let down = look(&store(&server), &facts()).await;
    found(&down, what, Severity::Critical);
    // Even one that is its own whole cluster.
    let all = ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"];
    server.command(&all).unwrap();
    until(|| {
        let state = server.command(&["CLUSTER", "INFO"]).unwrap();
        state.text().unwrap().contains("cluster_state:ok")
    });
    let whole = look(&store(&server), &facts()).await;
    found(&whole, what, Severity::Critical);
    empty(&server);
}

#[tokio::test]
async fn a_disk_that_fails_is_seen_without_a_right_to_ask() {
    let builder = RedisServer::builder().persistence(Persistence::Rdb);
    let server = with_users(builder.config("dbfilename blocked.rdb"));
    let reply = server.command(&["CONFIG", "GET", "dir"]).unwrap();
    let data = std::path::Path::new(reply.list().unwrap()[1].text().unwrap());
    std::fs::create_dir(data.join("blocked.rdb")).unwrap();
    server.command(&["BGSAVE"]).unwrap();
    until(|| server.info("rdb_bgsave_in_progress").unwrap().as_deref() == Some("0"));
    let seen = look(&store(&server), &facts()).await;
    found(&seen, "disk: ", Severity::Critical);
    // With INFO it is said once.
    let told = look(&server.url(), &facts()).await;
    found(&told, "snapshot: ", Severity::Critical);
    assert!(told.findings.iter().all(|f| !f.what.starts_with("disk")));
}

#[tokio::test]
async fn probing_a_store_that_is_in_use_changes_nothing() {
    let server = with_users(RedisServer::builder());
    server.command(&["SET", "leases:{k}", "x"]).unwrap();
    server
        .command(&["SET", "leases:birth", "B1 0 0 5"])
        .unwrap();
    let changes = || server.info("rdb_changes_since_last_save").unwrap();
    let before = changes();
    let wait = Facts {
        wait: Some((1, Duration::from_millis(100))),
        ..facts()
    };
    for url in [server.url(), store(&server)] {
        look(&url, &wait).await;
    }
    assert_eq!(changes(), before);
}
