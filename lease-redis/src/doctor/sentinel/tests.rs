//! Real sentinels, each with something that matters.

use std::time::Duration;

use lease_conformance::servers::redis::RedisServer;
use lease_conformance::servers::redis::sentinel::{SentinelBuilder, SentinelTrio};
use lease_core::{Diagnosis, LeaseBackend, Severity, StoreErrorKind, Ttl};

use super::look::{Node, NodeSeen, Said};
use super::{Address, View, judge};
use crate::RedisOptions;
use crate::doctor::tests::{facts, found};

fn start(builder: SentinelBuilder) -> SentinelTrio {
    builder.start().unwrap()
}

/// Long enough for everything that answers.
const WITHIN: Duration = Duration::from_secs(2);

async fn look(url: &str, ttl_s: u64) -> Diagnosis {
    let options = RedisOptions::from_url(url).unwrap().connect_timeout(WITHIN);
    let store = options.open_lazily().unwrap();
    let ttl = Ttl::new(Duration::from_secs(ttl_s)).unwrap();
    let diagnosis = store.diagnose(ttl).await.unwrap();
    println!("{diagnosis:#?}");
    assert!(!format!("{diagnosis:?}").contains("hunter2"));
    diagnosis
}

#[tokio::test]
async fn sound_sentinels_have_no_warning() {
    use Severity::{Healthy, Note, Warning};
    let persistent = RedisServer::builder()
        .persistence(lease_conformance::servers::redis::Persistence::AofAlways);
    let trio = start(
        SentinelTrio::builder()
            .nodes(persistent)
            .down_after(Duration::from_secs(2)),
    );
    let diagnosis = look(&trio.url().to_string(), 30).await;
    found(&diagnosis, "sentinels: 3 of the 3", Healthy);
    found(&diagnosis, "primary: 127.0.0.1:", Healthy);
    found(&diagnosis, "quorum: 2 of 3 sentinels", Healthy);
    found(&diagnosis, "down-after-milliseconds: 2000", Healthy);
    found(&diagnosis, "replicas: 2 of 2 may take over", Healthy);
    found(&diagnosis, "clocks: the primary's and 2 replicas'", Healthy);
    // Of the primary itself.
    let said = found(&diagnosis, "role: a primary with 2 replicas", Warning);
    assert!(!said.contains("switch automatic failover off"), "{said}");
    found(&diagnosis, "min-replicas-to-write: 0", Note);
    let short = look(&trio.url().to_string(), 5).await;
    let said = found(&short, "down-after-milliseconds: 2000", Warning);
    assert!(said.contains("every lease ends before"), "{said}");
}

#[tokio::test]
async fn what_is_wrong_with_sentinels_is_found() {
    use Severity::{Critical, Note, Warning};
    let trio = start(
        SentinelTrio::builder()
            .nodes(RedisServer::builder().user("app on >hunter2 ~* &* +@all"))
            .replicas(1)
            .down_after(Duration::from_millis(500)),
    );
    let url = trio.url().user("app", "hunter2").to_string();
    let diagnosis = look(&url, 30).await;
    found(&diagnosis, "down-after-milliseconds: 500", Note);
    let said = found(
        &diagnosis,
        "persistence: the primary keeps nothing",
        Warning,
    );
    assert!(said.contains("empties its replicas"), "{said}");
    found(&diagnosis, "persistence: replicas keep nothing", Warning);

    let one = format!(
        "redis+sentinel://app:hunter2@{}/leases",
        trio.sentinels()[0].address()
    );
    found(
        &look(&one, 30).await,
        "sentinels: the URL names 1 of 3",
        Warning,
    );

    // Whom the replica is not reached by: clients.
    let replica = &trio.nodes()[1];
    replica.server().kill().unwrap();
    let diagnosis = look(&url, 30).await;
    let place = format!("replica {}: cannot be reached", replica.address());
    found(&diagnosis, &place, Warning);
    replica.server().start().unwrap();
    trio.settle().unwrap();

    let set = |name: &str, value: &str, count: usize| {
        for sentinel in trio.sentinels().iter().take(count) {
            let set = ["SENTINEL", "SET", trio.name(), name, value];
            sentinel.command(&set).unwrap();
        }
    };
    set("quorum", "1", 3);
    found(&look(&url, 30).await, "quorum: 1 of 3 sentinels", Note);
    set("quorum", "4", 3);
    found(&look(&url, 30).await, "quorum: 4 of 3 sentinels", Critical);
    set("quorum", "2", 1);
    found(
        &look(&url, 30).await,
        "quorum: 2 at some sentinels",
        Warning,
    );
    set("quorum", "2", 3);

    trio.sentinels()[2].pause().unwrap();
    let diagnosis = look(&url, 30).await;
    found(
        &diagnosis,
        "sentinels: 2 of the 3 in the URL answer",
        Warning,
    );
    trio.sentinels()[2].resume().unwrap();
    trio.sentinels()[2].kill().unwrap();
    trio.sentinels()[1].kill().unwrap();
    // When it has missed them.
    let mut left = 1000;
    let check = ["SENTINEL", "CKQUORUM", trio.name()];
    while trio.sentinels()[0].command(&check).is_ok() {
        assert!(left > 0, "the sentinel does not miss the others");
        left -= 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    found(&look(&url, 30).await, "quorum: 2 of 3 sentinels", Critical);

    trio.nodes()[0].server().kill().unwrap();
    let diagnosis = look(&url, 30).await;
    found(&diagnosis, "primary: cannot be looked at", Critical);
    trio.sentinels()[0].kill().unwrap();
    let store = RedisOptions::from_url(&url).unwrap().open_lazily().unwrap();
    let ttl = Ttl::new(Duration::from_secs(30)).unwrap();
    let error = store.diagnose(ttl).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_user_that_may_not_listen_to_the_sentinels_is_told() {
    let asks = "+sentinel|get-master-addr-by-name +sentinel|master";
    let hears = "+subscribe +ping";
    let user =
        |name: &str, rights: &str| format!("{name} on >hunter2 resetchannels -@all {rights}");
    let channels = "&+switch-master &+promoted-slave";
    let trio = start(
        SentinelTrio::builder()
            .replicas(0)
            .sentinel_user(&user("well", &format!("{channels} {asks} {hears}")))
            .sentinel_user(&user("half", &format!("{asks} {hears}")))
            .sentinel_user(&user("deaf", &format!("{channels} {asks}"))),
    );
    let deaf = "sentinels: the store cannot listen to 3 of the 3 that answer";
    for (name, told) in [("well", false), ("half", true), ("deaf", true)] {
        let url = trio.url().sentinel_user(name, "hunter2").to_string();
        let diagnosis = look(&url, 30).await;
        match told {
            true => assert!(found(&diagnosis, deaf, Severity::Warning).contains("+subscribe")),
            false => assert!(!format!("{diagnosis:?}").contains("cannot listen")),
        }
    }
}

fn address(port: u16) -> Address {
    let host = "10.0.0.1".into();
    Address { host, port }
}

fn node(port: u16, ahead_us: (i64, i64)) -> Node {
    Node {
        place: address(port),
        seen: Ok(NodeSeen {
            ahead_us: Some(ahead_us),
            keeps_nothing: Some(false),
        }),
    }
}

fn said(place: &str, port: u16, epoch: &str) -> Said {
    let master = [("config-epoch", epoch), ("quorum", "2")];
    Said {
        place: place.to_owned(),
        primary: Ok(Some(("10.0.0.1".to_owned(), port))),
        master: Ok(master.map(|(a, b)| (a.to_owned(), b.to_owned())).into()),
        replicas: Ok(Vec::new()),
        quorum: Ok(()),
        deaf: false,
    }
}

fn view(said: Vec<Said>, nodes: Vec<Node>) -> Diagnosis {
    let view = View {
        named: said.len(),
        said,
        silent: Vec::new(),
        primary: Ok(address(1)),
        nodes,
    };
    Diagnosis {
        findings: judge::judge(&view, &facts()),
    }
}

#[test]
fn clocks_are_apart_by_what_round_trips_cannot_explain() {
    use Severity::{Healthy, Warning};
    // Of a TTL of thirty seconds holders allow 302 ms.
    for (replica, what, severity) in [
        (
            (0, 1_000),
            "clocks: the primary's and 1 replicas' agree",
            Healthy,
        ),
        ((302_000, 900_000), "clocks: the primary's", Healthy),
        ((-900_000, -302_000), "clocks: the primary's", Healthy),
        (
            (304_000, 304_100),
            "clocks: a failover to 10.0.0.1:2 moves the store's clock forward",
            Warning,
        ),
        (
            (-304_100, -303_000),
            "clocks: a failover to 10.0.0.1:2 moves the store's clock back",
            Warning,
        ),
        (
            (i64::MIN, i64::MIN),
            "clocks: a failover to 10.0.0.1:2 moves the store's clock back",
            Warning,
        ),
        (
            (i64::MAX, i64::MAX),
            "clocks: a failover to 10.0.0.1:2 moves the store's clock forward",
            Warning,
        ),
    ] {
        let nodes = vec![node(1, (0, 1_000)), node(2, replica)];
        let diagnosis = view(vec![said("a", 1, "3")], nodes);
        found(&diagnosis, what, severity);
    }
}

#[test]
fn sentinels_that_disagree_are_named() {
    let split = vec![said("a", 1, "3"), said("b", 2, "2")];
    let diagnosis = view(split, vec![node(1, (0, 0))]);
    let told = found(
        &diagnosis,
        "primary: 10.0.0.1:1, and not all agree",
        Severity::Warning,
    );
    assert!(told.contains("b names 10.0.0.1:2 (epoch 2)"), "{told}");
    // Nothing that they say is taken for granted.
    let mut odd = said("a", 1, "x");
    odd.master = Ok([("quorum".to_owned(), "many".to_owned())].into());
    odd.replicas = Ok(vec![[("ip".to_owned(), String::new())].into()]);
    view(vec![odd], Vec::new());
    view(Vec::new(), Vec::new());
}
