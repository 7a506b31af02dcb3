//! What the doctor says of a quorum.

use lease_conformance::servers::redis::RedisServer;
use lease_core::{Diagnosis, Finding, LeaseBackend, Severity};
use lease_redis::RedlockStore;

use crate::kit::{asked, initialised, lasting, opened, options, start};
use crate::support::*;

async fn look(store: &RedlockStore) -> Diagnosis {
    let diagnosis = store.diagnose(ttl_ms(1_000)).await.unwrap();
    for finding in &diagnosis.findings {
        // `cargo test -- --nocapture` shows what people would read.
        println!("{:<9} {}", finding.severity.to_string(), finding.what);
    }
    diagnosis
}

/// The one finding with these words.
fn found<'a>(diagnosis: &'a Diagnosis, words: &str, severity: Severity) -> &'a Finding {
    let all = diagnosis.findings.iter();
    let matching: Vec<_> = all.filter(|f| f.what.contains(words)).collect();
    match matching[..] {
        [finding] if finding.severity == severity => finding,
        _ => panic!("{words:?}: {matching:#?} among {diagnosis:#?}"),
    }
}

#[tokio::test]
async fn what_all_nodes_have_in_common_is_said_once() {
    let nodes = start(3);
    let store = opened(options(&nodes.hosts())).await;
    let diagnosis = look(&store).await;
    found(&diagnosis, "all 3 nodes: server: ", Severity::Healthy);
    found(
        &diagnosis,
        "all 3 nodes: quarantine: it is over",
        Severity::Healthy,
    );
    found(&diagnosis, "grants: 3 of 3 nodes grant", Severity::Healthy);
    found(&diagnosis, "clocks: the nodes' agree", Severity::Healthy);
    found(&diagnosis, "round trips: ", Severity::Healthy);
    assert!(diagnosis.worst() <= Severity::Note, "{diagnosis:#?}");
}

#[tokio::test]
async fn nodes_that_are_new_away_or_in_quarantine_are_named() {
    use Severity::{Note, Warning};
    let nodes = start(3);
    let store = lasting(&nodes.hosts()).open().await.unwrap();
    let new = look(&store).await;
    let advice = found(&new, "grants: 0 of 3 nodes", Note).advice.clone();
    assert!(advice.unwrap().contains("lease quorum init"));
    found(&new, "all 3 nodes: quarantine: it begins with", Note);

    initialised(lasting(&nodes.hosts())).await;
    let [first, second, _] = nodes.servers() else {
        panic!()
    };
    first.kill().unwrap();
    second.restart_empty().unwrap();
    asked(&store, "a", 1_000).await;
    let diagnosis = loop {
        // A connection that was cut is opened anew.
        let diagnosis = look(&store).await;
        let away = |f: &Finding| f.what.contains(&second.address().to_string());
        if diagnosis
            .findings
            .iter()
            .any(|f| away(f) && f.severity < Warning)
        {
            break diagnosis;
        }
    };
    let away = format!("{}: the store is unavailable", first.address());
    found(&diagnosis, &away, Warning);
    let refused = format!(
        "{}: quarantine: grants are refused for another",
        second.address()
    );
    found(&diagnosis, &refused, Note);
    found(&diagnosis, "grants: 1 of 3 nodes grant", Warning);
}

#[tokio::test]
async fn a_server_with_two_names_and_a_node_with_replicas_are_seen() {
    use Severity::{Critical, Healthy, Note};
    let nodes = start(3);
    let [first, second, third] = [0, 1, 2].map(|i| nodes.servers()[i].address());
    let replica = RedisServer::builder().replica_of(&nodes.servers()[1]);
    let replica = replica.start().unwrap();
    replica.wait_until_linked().unwrap();
    nodes.servers()[1].wait_until_followed(1).unwrap();
    let hosts = format!("{first},{second},{third},localhost:{}", first.port());
    let store = lasting(&hosts).open().await.unwrap();
    let diagnosis = look(&store).await;
    let one = found(&diagnosis, "one server with 2 names", Critical);
    assert!(one.what.contains(&first.to_string()) && one.what.contains("localhost"));
    let replicas = found(&diagnosis, "replicas may take the node's place", Note);
    assert!(replicas.what.starts_with(&second.to_string()));
    let even = found(&diagnosis, "3 of 4 nodes must agree", Healthy);
    assert!(even.advice.is_some());
}

#[tokio::test]
async fn without_a_majority_there_is_nothing_to_look_at() {
    let nodes = start(3);
    let store = lasting(&nodes.hosts()).open().await.unwrap();
    nodes.servers()[0].kill().unwrap();
    nodes.servers()[1].kill().unwrap();
    let error = store.diagnose(ttl_ms(1_000)).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}
