//! The kit's NATS servers do what they say, and leave nothing behind.
#![cfg(unix)]
// Helpers of tests, too.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use lease_conformance::servers::ServerError;
use lease_conformance::servers::nats::NatsServer;
use lease_conformance::servers::nats::cluster::{NODES, NatsCluster};
use lease_conformance::{LoseData, Pause, Restart};

const PATIENCE: Duration = Duration::from_secs(20);

fn start() -> NatsServer {
    NatsServer::builder().start().unwrap()
}

fn make_stream(server: &NatsServer, replicas: usize) {
    let config = format!(r#"{{"name":"s","subjects":["s.>"],"num_replicas":{replicas}}}"#);
    server.request("$JS.API.STREAM.CREATE.s", &config).unwrap();
}

fn put(server: &NatsServer) -> Result<String, ServerError> {
    server.request("s.a", "x")
}

fn has(server: &NatsServer, messages: u64) -> bool {
    let info = server.request("$JS.API.STREAM.INFO.s", "");
    info.is_ok_and(|info| info.contains(&format!("\"messages\":{messages},")))
}

#[test]
fn what_was_acknowledged_survives_a_kill_and_a_stop_on_the_same_port() {
    let server = start();
    make_stream(&server, 1);
    put(&server).unwrap();
    let address = server.address();
    server.kill().unwrap();
    server.start().unwrap();
    assert_eq!(server.address(), address);
    assert!(has(&server, 1));
    put(&server).unwrap();
    server.restart().unwrap();
    assert!(has(&server, 2));
    server.restart_empty().unwrap();
    assert!(!has(&server, 2));
}

#[test]
fn calls_to_a_server_that_cannot_answer_are_typed_errors() {
    let server = start();
    assert!(matches!(server.start(), Err(ServerError::Running)));
    server.pause().unwrap();
    let asked = server.request("$JS.API.INFO", "");
    assert!(matches!(asked, Err(ServerError::Paused)));
    server.resume().unwrap();
    server.request("$JS.API.INFO", "").unwrap();
    let nobody = put(&server).unwrap_err().to_string();
    assert!(nobody.contains("nobody answers"), "{nobody}");
    let refused = server.request("$JS.API.STREAM.INFO.none", "").unwrap_err();
    assert!(
        refused.to_string().contains("stream not found"),
        "{refused}"
    );
    server.kill().unwrap();
    assert!(matches!(server.kill(), Err(ServerError::NotRunning)));
    assert_eq!(server.pid(), None);
}

#[test]
fn a_server_that_does_not_start_shows_its_log() {
    let error = NatsServer::builder()
        .config("no_such_setting: 7")
        .start()
        .unwrap_err();
    assert!(matches!(error, ServerError::Start { .. }));
    assert!(error.to_string().contains("no_such_setting"), "{error}");
}

#[tokio::test]
async fn tls_is_the_only_way_in_and_needs_the_authority() {
    let server = NatsServer::builder().tls().start().unwrap();
    let url = server.url().to_string();
    assert!(url.starts_with("tls://"), "{url}");
    let options = || async_nats::ConnectOptions::new().connection_timeout(PATIENCE);
    let authority = server.authority_pem().unwrap().to_owned();
    let client = options().add_root_certificates(authority).connect(&url);
    client.await.unwrap().flush().await.unwrap();
    let stranger = NatsServer::builder().tls().start().unwrap();
    let other = stranger.authority_pem().unwrap().to_owned();
    let client = options().add_root_certificates(other).connect(&url);
    client.await.unwrap_err();
}

#[tokio::test]
async fn a_closed_server_asks_for_its_user() {
    let server = NatsServer::builder().closed().start().unwrap();
    server.request("$JS.API.INFO", "").unwrap();
    for (url, enters) in [
        (server.url(), true),
        (server.url().user("kit", "wrong"), false),
    ] {
        let (name, password) = url.login().unwrap();
        let options = async_nats::ConnectOptions::new().connection_timeout(PATIENCE);
        let options = options.user_and_password(name.into(), password.into());
        assert_eq!(options.connect(url.to_string()).await.is_ok(), enters);
    }
}

#[tokio::test]
async fn a_server_is_the_hook_of_a_fixture() {
    let server = start();
    make_stream(&server, 1);
    put(&server).unwrap();
    let (restart, loses, pause): (&dyn Restart, &dyn LoseData, &dyn Pause) =
        (&server, &server, &server);
    restart.restart().await.unwrap();
    assert!(has(&server, 1));
    pause.pause().await.unwrap();
    assert!(matches!(put(&server), Err(ServerError::Paused)));
    pause.resume().await.unwrap();
    put(&server).unwrap();
    loses.lose_data().await.unwrap();
    put(&server).unwrap_err();
}

#[test]
fn a_cluster_goes_on_without_one_node_and_takes_it_back() {
    let cluster = NatsCluster::start_new().unwrap();
    make_stream(cluster.node(0), NODES);
    let leader = cluster.stream_leader("s").unwrap();
    put(cluster.node(leader)).unwrap();
    cluster.node(leader).kill().unwrap();
    let next = cluster.stream_leader("s").unwrap();
    assert_ne!(next, leader);
    put(cluster.node(next)).unwrap();
    cluster.start().unwrap();
    let all = cluster.stream_leader("s").unwrap();
    assert!(has(cluster.node(all), 2));
    // One that stands still is no leader for long either.
    let leader = cluster.meta_leader().unwrap();
    cluster.node(leader).pause().unwrap();
    cluster.until_led_without(leader).unwrap();
    cluster.node(leader).resume().unwrap();
    cluster.start().unwrap();
}

#[test]
fn dropping_a_cluster_leaves_nothing_behind() {
    let cluster = NatsCluster::start_new().unwrap();
    let left: Vec<_> = cluster
        .nodes()
        .map(|node| (node.pid().unwrap(), node.folder().to_owned()))
        .collect();
    assert_eq!(left.len(), NODES);
    drop(cluster);
    for (pid, folder) in left {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let gone = stat
            .rsplit_once(") ")
            .is_none_or(|(_, s)| s.starts_with('Z'));
        assert!(gone && !folder.exists());
    }
}
