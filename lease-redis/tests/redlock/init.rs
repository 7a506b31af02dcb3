//! A new quorum is opened once, and only if it is new.

use lease_conformance::servers::redis::RedisServer;
use lease_core::{AcquireOutcome, LeaseBackend, RefusedReason, StoreErrorKind};
use lease_redis::{InUse, InitReport, InitState, RedlockOptions};

use crate::kit::{initialised, lasting, options, start};
use crate::support::*;

const BIRTH: &str = "leases:birth";

async fn report(options: &RedlockOptions) -> InitReport {
    options.clone().init().await.unwrap()
}

fn states(report: &InitReport) -> Vec<String> {
    let states = report.nodes.iter().map(|node| match &node.state {
        InitState::Failed(error) => format!("{:?}", error.kind()),
        state => format!("{state:?}"),
    });
    states.collect()
}

#[tokio::test]
async fn a_new_quorum_grants_at_once_and_is_opened_only_once() {
    let nodes = start(3);
    let options = lasting(&nodes.hosts());
    let store = options.clone().open().await.unwrap();
    let report = initialised(options.clone()).await;
    let names: Vec<_> = report.nodes.iter().map(|node| &node.name).collect();
    assert_eq!(names, options.node_names().collect::<Vec<_>>());
    granted(store.acquire(&request("a", 30_000)).await.unwrap());

    let again = self::report(&options).await;
    assert!(!again.is_done() && again.opened() == 0);
    assert_eq!(states(&again), ["InUse(Marker)"; 3]);
    assert!(again.nodes[0].state.to_string().contains("in use"));
}

#[tokio::test]
async fn without_it_the_first_grant_waits_out_the_quarantine() {
    let nodes = start(3);
    let store = options(&nodes.hosts()).open().await.unwrap();
    let asked = request("a", 500);
    match store.acquire(&asked).await.unwrap() {
        AcquireOutcome::Refused(RefusedReason::Quarantine { remaining }) => {
            tokio::time::sleep(remaining).await;
        }
        other => panic!("{other:?}"),
    }
    granted(store.acquire(&asked).await.unwrap());
}

#[tokio::test]
async fn one_node_in_use_keeps_all_from_being_opened() {
    let nodes = start(3);
    let options = lasting(&nodes.hosts());
    let second = &nodes.servers()[1];
    let single = store(second).await;
    granted(single.acquire(&request("a", 50_000)).await.unwrap());
    let refused = report(&options).await;
    assert_eq!(states(&refused), ["Empty", "InUse(Marker)", "Empty"]);
    // Its marker was lost, its records were not.
    second.command(&["DEL", BIRTH]).unwrap();
    let refused = report(&options).await;
    assert!(matches!(
        refused.nodes[1].state,
        InitState::InUse(InUse::Record)
    ));
    assert_eq!(states(&refused), ["Empty", "InUse(Record)", "Empty"]);
    // Whatever stands at the marker's name.
    second.command(&["FLUSHALL"]).unwrap();
    second.command(&["RPUSH", BIRTH, "x"]).unwrap();
    assert_eq!(
        states(&report(&options).await),
        ["Empty", "InUse(Marker)", "Empty"]
    );
    // Nothing was written anywhere; another prefix is another quorum.
    assert_eq!(keys(&nodes.servers()[0]) + keys(&nodes.servers()[2]), 0);
    initialised(options.prefix("other").unwrap()).await;
}

#[tokio::test]
async fn a_node_out_of_reach_keeps_all_from_being_opened() {
    let nodes = start(3);
    let options = lasting(&nodes.hosts());
    nodes.servers()[2].kill().unwrap();
    let refused = report(&options).await;
    assert_eq!(states(&refused), ["Empty", "Empty", "Unavailable"]);
    nodes.servers()[2].start().unwrap();
    nodes.servers()[2].pause().unwrap();
    // A quarter of the quarantine is all the time that there is.
    let hurried = self::options(&nodes.hosts());
    let refused = report(&hurried).await;
    assert_eq!(refused.opened(), 0, "{refused:?}");
    nodes.servers()[2].resume().unwrap();
    initialised(options).await;
}

#[tokio::test]
async fn two_names_of_one_server_are_not_two_nodes() {
    let nodes = start(2);
    let [first, second] = [0, 1].map(|i| nodes.servers()[i].address());
    let hosts = format!("{first},{second},localhost:{}", first.port());
    let refused = report(&lasting(&hosts)).await;
    let last = format!("Same {{ node: \"{first}\" }}");
    assert_eq!(states(&refused), ["Empty", "Empty", &last]);
}

#[tokio::test]
async fn a_replica_is_not_a_node() {
    let nodes = start(1);
    let replica = RedisServer::builder()
        .replica_of(&nodes.servers()[0])
        .start()
        .unwrap();
    replica.wait_until_linked().unwrap();
    let refused = report(&lasting(&format!(
        "{},{}",
        nodes.hosts(),
        replica.address()
    )))
    .await;
    assert_eq!(states(&refused), ["Empty", "Refusing"]);
    let InitState::Failed(error) = &refused.nodes[1].state else {
        panic!("{refused:?}");
    };
    assert_eq!(error.kind(), StoreErrorKind::Refusing);
    assert!(error.to_string().contains("replica"), "{error}");
}

/// What an end in the middle leaves behind: some nodes open, some as they were.
#[tokio::test]
async fn a_quorum_that_was_opened_in_part_comes_up_by_itself() {
    let nodes = start(3);
    let servers = nodes.servers();
    initialised(options(&servers[0].address().to_string())).await;
    let store = options(&nodes.hosts()).open().await.unwrap();
    let asked = request("a", 500);
    let AcquireOutcome::Refused(RefusedReason::Quarantine { remaining }) =
        store.acquire(&asked).await.unwrap()
    else {
        panic!("one node of three is no majority");
    };
    let refused = report(&options(&nodes.hosts())).await;
    assert_eq!(states(&refused), ["InUse(Marker)"; 3]);
    tokio::time::sleep(remaining).await;
    granted(store.acquire(&asked).await.unwrap());
}

/// Why all of the nodes belong into the URL: what the page warns of.
#[tokio::test]
async fn an_opening_that_leaves_a_node_out_does_not_see_its_leases() {
    let nodes = start(3);
    let (servers, all) = (nodes.servers(), lasting(&nodes.hosts()));
    initialised(all.clone()).await;
    let store = all.clone().open().await.unwrap();
    granted(store.acquire(&request("a", 50_000)).await.unwrap());
    for server in &servers[..2] {
        server.restart_empty().unwrap();
    }
    // With all of them nothing is opened.
    let refused = report(&all).await;
    assert_eq!(states(&refused), ["Empty", "Empty", "InUse(Marker)"]);

    let [one, two] = [0, 1].map(|number| servers[number].address());
    initialised(lasting(&format!("{one},{two}"))).await;
    // A second holder, whose token need not be above the first one's.
    let rival = request("a", 50_000);
    granted(persist(|| store.acquire(&rival)).await);
}
