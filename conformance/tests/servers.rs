//! The test servers do what they say, and leave nothing behind.
#![cfg(unix)]
// Helpers of tests, too.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lease_conformance::servers::ServerError;
use lease_conformance::servers::redis::{Persistence, RedisServer, RedisUrl, Reply};
use lease_conformance::{LoseData, Pause, Restart};

const PATIENCE: Duration = Duration::from_secs(20);

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the process runs; one that ended and was not waited for does not.
fn runs(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    !stat.rsplit_once(") ").unwrap().1.starts_with('Z')
}

fn set(server: &RedisServer, key: &str) {
    assert_eq!(
        server.command(&["SET", key, "x"]).unwrap().text(),
        Some("OK")
    );
}

fn has(server: &RedisServer, key: &str) -> bool {
    server.command(&["EXISTS", key]).unwrap() == Reply::Integer(1)
}

fn start(persistence: Persistence) -> RedisServer {
    RedisServer::builder()
        .persistence(persistence)
        .start()
        .unwrap()
}

#[test]
fn each_persistence_keeps_what_it_says() {
    for (persistence, over_a_kill, over_a_stop) in [
        (Persistence::None, false, false),
        (Persistence::Rdb, false, true),
        (Persistence::AofEverysec, true, true),
        (Persistence::AofAlways, true, true),
    ] {
        let server = start(persistence);
        set(&server, "killed");
        let port = server.address();
        server.kill().unwrap();
        server.start().unwrap();
        assert_eq!(server.address(), port);
        assert_eq!(has(&server, "killed"), over_a_kill, "{persistence:?}");
        set(&server, "stopped");
        server.restart().unwrap();
        assert_eq!(has(&server, "stopped"), over_a_stop, "{persistence:?}");
        server.restart_empty().unwrap();
        assert!(!has(&server, "stopped"), "{persistence:?}");
    }
}

#[test]
fn a_saved_snapshot_survives_a_kill() {
    let server = start(Persistence::Rdb);
    set(&server, "before");
    server.save().unwrap();
    set(&server, "after");
    server.kill().unwrap();
    server.start().unwrap();
    assert!(has(&server, "before") && !has(&server, "after"));
}

#[test]
fn a_backup_brings_older_data_back() {
    let server = start(Persistence::AofAlways);
    set(&server, "before");
    let backup = server.backup().unwrap();
    set(&server, "after");
    server.restart_from(&backup).unwrap();
    assert!(has(&server, "before") && !has(&server, "after"));
}

#[test]
fn calls_to_a_server_that_cannot_answer_are_typed_errors() {
    let server = start(Persistence::None);
    assert!(matches!(server.start(), Err(ServerError::Running)));
    server.pause().unwrap();
    assert!(matches!(
        server.command(&["PING"]),
        Err(ServerError::Paused)
    ));
    server.resume().unwrap();
    server.command(&["PING"]).unwrap();
    let refused = server.command(&["NOSUCH"]).unwrap_err().to_string();
    assert!(refused.contains("NOSUCH"), "{refused}");
    server.kill().unwrap();
    assert!(matches!(server.kill(), Err(ServerError::NotRunning)));
    assert!(matches!(
        server.command(&["PING"]),
        Err(ServerError::NotRunning)
    ));
    assert_eq!(server.pid(), None);
}

#[test]
fn a_server_that_does_not_start_shows_its_log() {
    let error = RedisServer::builder()
        .config("no-such-setting 7")
        .start()
        .unwrap_err();
    assert!(matches!(error, ServerError::Start { .. }));
    assert!(error.to_string().contains("no-such-setting"), "{error}");
}

#[test]
fn a_port_that_stays_taken_is_given_up_with_the_reason() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = RedisServer::builder()
        .config(&format!("port {port}"))
        .start()
        .unwrap_err();
    // The words by which the kit knows that another port is worth a try.
    assert!(
        error.to_string().contains("Address already in use"),
        "{error}"
    );
}

#[test]
fn settings_reach_the_server() {
    let server = RedisServer::builder()
        .max_memory("8mb", "noeviction")
        .config("maxclients 77")
        .start()
        .unwrap();
    let setting = |name| {
        let reply = server.command(&["CONFIG", "GET", name]).unwrap();
        reply.list().unwrap()[1].text().unwrap().to_owned()
    };
    assert_eq!(setting("maxmemory"), "8388608");
    assert_eq!(setting("maxclients"), "77");
    server.config_set("maxclients", "78").unwrap();
    assert_eq!(setting("maxclients"), "78");
    server
        .command(&["EVAL", "return 7", "0"])
        .map(|reply| assert_eq!(reply.integer(), Some(7)))
        .unwrap();
    let sha = server.command(&["SCRIPT", "LOAD", "return 8"]).unwrap();
    let call = ["EVALSHA", sha.text().unwrap(), "0"];
    assert_eq!(server.command(&call).unwrap(), Reply::Integer(8));
    server.script_flush().unwrap();
    assert!(
        server
            .command(&call)
            .unwrap_err()
            .to_string()
            .contains("NoScript")
    );
    set(&server, "flushed");
    server.flush_all().unwrap();
    assert!(!has(&server, "flushed"));
}

/// The driver gives up after half a second by itself; a busy machine may not
/// have begun by then.
fn patient() -> redis::AsyncConnectionConfig {
    redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE))
}

async fn ping(client: redis::Client) -> Result<String, redis::RedisError> {
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&patient())
        .await?;
    redis::cmd("PING").query_async(&mut connection).await
}

async fn ping_url(url: RedisUrl) -> Result<String, redis::RedisError> {
    ping(redis::Client::open(url.to_string())?).await
}

#[tokio::test]
async fn a_server_is_reached_by_port_and_by_socket() {
    let server = start(Persistence::None);
    for url in [
        server.url(),
        server.url().db(3),
        server.unix_url(),
        server.unix_url().db(3),
    ] {
        assert_eq!(ping_url(url).await.unwrap(), "PONG");
    }
}

#[tokio::test]
async fn tls_is_the_only_way_in_and_needs_the_authority() {
    let server = RedisServer::builder().tls().start().unwrap();
    let root = std::fs::read(server.authority_pem().unwrap()).unwrap();
    let certificates = |root_cert| redis::TlsCertificates {
        client_tls: None,
        root_cert,
    };
    let url = server.url().to_string();
    assert!(url.starts_with("rediss://"), "{url}");
    let client = redis::Client::build_with_tls(url.as_str(), certificates(Some(root))).unwrap();
    assert_eq!(ping(client).await.unwrap(), "PONG");
    let stranger = RedisServer::builder().tls().start().unwrap();
    let other = std::fs::read(stranger.authority_pem().unwrap()).unwrap();
    let client = redis::Client::build_with_tls(url.as_str(), certificates(Some(other))).unwrap();
    ping(client).await.unwrap_err();
    let plain = format!("redis://{}", server.address());
    ping(redis::Client::open(plain).unwrap()).await.unwrap_err();
}

#[tokio::test]
async fn users_and_passwords_are_asked_for() {
    let server = RedisServer::builder()
        .password("p@ss/word")
        .user("app on >secret ~leases:* +ping +get")
        .start()
        .unwrap();
    for url in [server.url(), server.unix_url()] {
        assert_eq!(ping_url(url.clone()).await.unwrap(), "PONG");
        let app = url.clone().user("app", "secret");
        assert_eq!(ping_url(app).await.unwrap(), "PONG");
        ping_url(url.clone().user("app", "wrong"))
            .await
            .unwrap_err();
        ping_url(url.anonymous()).await.unwrap_err();
    }
    let client = redis::Client::open(server.url().user("app", "secret").to_string()).unwrap();
    let mut app = client
        .get_multiplexed_async_connection_with_config(&patient())
        .await
        .unwrap();
    let mut get = redis::cmd("GET");
    get.arg("leases:a")
        .query_async::<Option<String>>(&mut app)
        .await
        .unwrap();
    let refused = redis::cmd("GET")
        .arg("other")
        .query_async::<Option<String>>(&mut app)
        .await;
    assert_eq!(refused.unwrap_err().code(), Some("NOPERM"));

    let closed = RedisServer::builder().default_user_off().start().unwrap();
    ping_url(closed.url().anonymous()).await.unwrap_err();
    assert_eq!(ping_url(closed.url()).await.unwrap(), "PONG");
}

#[test]
fn a_replica_follows_its_primary() {
    for tls in [false, true] {
        let builder = || match tls {
            true => RedisServer::builder().tls(),
            false => RedisServer::builder(),
        };
        let primary = builder()
            .password("secret")
            .min_replicas(1, Duration::from_secs(10))
            .start()
            .unwrap();
        let alone = primary.command(&["SET", "a", "b"]).unwrap_err();
        assert!(
            alone.to_string().contains("NoReplicas") || alone.to_string().contains("NOREPLICAS"),
            "{alone}"
        );
        let replica = builder().replica_of(&primary).start().unwrap();
        replica.wait_until_linked().unwrap();
        assert_eq!(replica.info("role").unwrap().as_deref(), Some("slave"));
        until("the primary hears of its replica", || {
            primary.command(&["SET", "a", "b"]).is_ok()
        });
        let seen = primary.command(&["WAIT", "1", "10000"]).unwrap();
        assert_eq!(seen, Reply::Integer(1));
        assert_eq!(replica.command(&["GET", "a"]).unwrap().text(), Some("b"));
    }
}

#[tokio::test]
async fn a_paused_server_takes_connections_and_answers_when_it_goes_on() {
    let server = start(Persistence::None);
    server.pause().unwrap();
    let asked = tokio::spawn(ping_url(server.url()));
    let early = tokio::time::timeout(Duration::from_millis(200), async {
        while !asked.is_finished() {
            tokio::task::yield_now().await;
        }
    });
    assert!(early.await.is_err(), "an answer of a paused server");
    server.resume().unwrap();
    assert_eq!(asked.await.unwrap().unwrap(), "PONG");
    // A paused one is stopped and dropped like any other.
    server.pause().unwrap();
    server.stop().unwrap();
    server.start().unwrap();
    server.pause().unwrap();
}

#[tokio::test]
async fn a_server_is_the_hook_of_a_fixture() {
    let server = start(Persistence::Rdb);
    set(&server, "unsaved");
    let (restart, loses, pause): (&dyn Restart, &dyn LoseData, &dyn Pause) =
        (&server, &server, &server);
    restart.restart().await.unwrap();
    assert!(!has(&server, "unsaved"), "a crash, not a stop");
    set(&server, "saved");
    server.save().unwrap();
    restart.restart().await.unwrap();
    assert!(has(&server, "saved"));
    loses.lose_data().await.unwrap();
    assert!(!has(&server, "saved"));
    pause.pause().await.unwrap();
    assert!(matches!(
        server.command(&["PING"]),
        Err(ServerError::Paused)
    ));
    pause.resume().await.unwrap();
    server.command(&["PING"]).unwrap();
}

#[test]
fn dropping_leaves_nothing_behind() {
    let server = start(Persistence::AofAlways);
    let (pid, folder) = (server.pid().unwrap(), server.folder().to_owned());
    assert!(runs(pid) && folder.exists());
    drop(server);
    assert!(!runs(pid) && !folder.exists());
}

#[test]
fn a_panic_leaves_nothing_behind() {
    let server = start(Persistence::None);
    let (pid, folder) = (server.pid().unwrap(), server.folder().to_owned());
    let panicked = std::thread::spawn(move || {
        let _server = server;
        panic!("a deliberate panic");
    });
    panicked.join().unwrap_err();
    assert!(!runs(pid) && !folder.exists());
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(|| start(Persistence::None))
        .join()
        .unwrap();
    set(&server, "alive");
}

const HELPER: &str = "LEASES_TEST_HELPER";

#[test]
fn a_killed_test_takes_its_server_with_it() {
    let mut test = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_that_waits", "--ignored", "--nocapture"])
        .env(HELPER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(test.stdout.take().unwrap()).lines();
    let said: Vec<String> = lines
        .map_while(Result::ok)
        .filter_map(|line| line.split_once("server ").map(|(_, rest)| rest.to_owned()))
        .take(1)
        .collect();
    let (pid, folder) = said[0].split_once(' ').unwrap();
    let pid = pid.parse().unwrap();
    assert!(runs(pid));
    test.kill().unwrap();
    test.wait().unwrap();
    until("the server is gone", || !runs(pid));
    std::fs::remove_dir_all(folder).unwrap();
}

/// The test that is killed.
#[test]
#[ignore = "run by a_killed_test_takes_its_server_with_it"]
fn helper_that_waits() {
    if std::env::var_os(HELPER).is_none() {
        return;
    }
    let server = start(Persistence::None);
    println!(
        "server {} {}",
        server.pid().unwrap(),
        server.folder().display()
    );
    loop {
        std::thread::park();
    }
}
