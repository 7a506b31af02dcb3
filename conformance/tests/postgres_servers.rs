//! The Postgres servers of the kit do what they say, and leave nothing behind.
#![cfg(unix)]
// Helpers of tests, too.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::ServerError;
use lease_conformance::servers::postgres::{OWNER, PgBouncer, PostgresServer, PostgresUrl};
use lease_conformance::{LoseData, Pause, Restart};
use sqlx::{Connection, PgConnection};

const PATIENCE: Duration = Duration::from_secs(20);
/// For what must not happen.
const WHILE: Duration = Duration::from_millis(200);

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

/// The first process and all its children.
fn family(server: &PostgresServer) -> Vec<u32> {
    let first = server.pid().unwrap();
    let parent = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let children = pids.filter(|pid| parent(*pid) == Some(first));
    std::iter::once(first).chain(children).collect()
}

/// The number of the server's segment of shared memory.
fn segment(folder: &Path) -> String {
    let text = std::fs::read_to_string(folder.join("data/postmaster.pid")).unwrap();
    let line = text.lines().nth(6).unwrap();
    line.split_whitespace().nth(1).unwrap().to_owned()
}

fn has_segment(id: &str) -> bool {
    let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    table
        .lines()
        .any(|line| line.split_whitespace().nth(1) == Some(id))
}

/// Where nothing hangs on the time or the setting.
fn start() -> PostgresServer {
    let server = PostgresServer::builder().fsync(false).start().unwrap();
    server.sql("CREATE TABLE seen (what text)").unwrap();
    server
}

fn put(server: &PostgresServer, what: &str) {
    server
        .sql(&format!("INSERT INTO seen VALUES ('{what}')"))
        .unwrap();
}

fn has(server: &PostgresServer, what: &str) -> bool {
    let found = server
        .sql(&format!("SELECT count(*) FROM seen WHERE what = '{what}'"))
        .unwrap();
    found.integer() == Some(1)
}

#[test]
fn every_end_keeps_what_was_committed() {
    let server = start();
    let address = server.address();
    put(&server, "first");
    server.kill().unwrap();
    server.start().unwrap();
    assert_eq!(server.address(), address);
    assert!(has(&server, "first"));
    put(&server, "second");
    server.stop_immediately().unwrap();
    server.start().unwrap();
    put(&server, "third");
    server.restart().unwrap();
    assert!(has(&server, "first") && has(&server, "second") && has(&server, "third"));
    server.restart_empty().unwrap();
    assert!(
        !server
            .sql("SELECT to_regclass('seen') IS NOT NULL")
            .unwrap()
            .is_true()
    );
    server.sql_at(&server.url(), "SELECT 1").unwrap();
}

#[test]
fn a_server_is_durable_unless_it_is_told_otherwise() {
    for (fsync, word) in [(true, "on"), (false, "off")] {
        let server = PostgresServer::builder().fsync(fsync).start().unwrap();
        for name in ["synchronous_commit", "full_page_writes", "autovacuum"] {
            assert_eq!(server.setting(name).unwrap().as_deref(), Some("on"));
        }
        assert_eq!(server.setting("fsync").unwrap().as_deref(), Some(word));
    }
}

#[test]
fn settings_reach_the_server() {
    let server = PostgresServer::builder()
        .fsync(false)
        .config("max_connections", "17")
        .config("autovacuum", "off")
        .config("application_name", "it's \\ odd")
        .start()
        .unwrap();
    let setting = |name| server.setting(name).unwrap();
    assert_eq!(setting("max_connections").as_deref(), Some("17"));
    assert_eq!(setting("autovacuum").as_deref(), Some("off"));
    assert_eq!(setting("no.such"), None);
    server.config_set("work_mem", "77kB").unwrap();
    assert_eq!(setting("work_mem").as_deref(), Some("77kB"));
    server.config_set("max_connections", "18").unwrap();
    assert_eq!(setting("max_connections").as_deref(), Some("17"));
    for (name, value) in [("work_mem", "much"), ("no_such_setting", "7")] {
        let refused = server.config_set(name, value).unwrap_err().to_string();
        assert!(refused.contains(name), "{refused}");
    }
    server.restart().unwrap();
    assert_eq!(setting("work_mem").as_deref(), Some("77kB"));
    assert_eq!(setting("max_connections").as_deref(), Some("18"));
}

#[test]
fn rows_come_as_postgres_prints_them() {
    let server = PostgresServer::builder().fsync(false).start().unwrap();
    let rows = server
        .sql("SELECT 0; SELECT * FROM (VALUES (1, 'a|b', NULL), (2, E'c\\nd', '')) AS v")
        .unwrap();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        rows.rows(),
        [
            vec![some("1"), some("a|b"), None],
            vec![some("2"), some("c\nd"), some("")],
        ]
    );
    assert_eq!(server.sql("SELECT 1 WHERE false").unwrap().rows().len(), 0);
    let error = server.sql("SELECT 1/0").unwrap_err().to_string();
    assert!(error.contains("22012"), "{error}");
    let error = server.sql("\\! false").unwrap_err().to_string();
    assert!(error.contains("42601"), "{error}");
}

#[test]
fn calls_to_a_server_that_cannot_answer_are_typed_errors() {
    let server = PostgresServer::builder().fsync(false).start().unwrap();
    assert!(matches!(server.start(), Err(ServerError::Running)));
    assert!(matches!(server.promote(), Err(ServerError::NotAStandby)));
    assert!(matches!(
        server.wait_until_linked(),
        Err(ServerError::NotAStandby)
    ));
    server.pause().unwrap();
    assert!(matches!(server.sql("SELECT 1"), Err(ServerError::Paused)));
    server.resume().unwrap();
    server.sql("SELECT 1").unwrap();
    server.kill().unwrap();
    assert!(matches!(server.kill(), Err(ServerError::NotRunning)));
    assert!(matches!(server.stop(), Err(ServerError::NotRunning)));
    assert!(matches!(
        server.sql("SELECT 1"),
        Err(ServerError::NotRunning)
    ));
    assert_eq!(server.pid(), None);
}

#[test]
fn a_server_that_does_not_start_shows_its_log() {
    let error = PostgresServer::builder()
        .fsync(false)
        .config("no_such_setting", "7")
        .start()
        .unwrap_err();
    assert!(matches!(error, ServerError::Start { .. }));
    assert!(error.to_string().contains("no_such_setting"), "{error}");
}

#[test]
fn a_port_that_stays_taken_is_given_up_with_the_reason() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let error = PostgresServer::builder()
        .fsync(false)
        .config("port", &port)
        .start()
        .unwrap_err();
    // The words by which the kit knows that another port is worth a try.
    assert!(
        error.to_string().contains("Address already in use"),
        "{error}"
    );
}

async fn one(url: impl ToString) -> Result<i32, sqlx::Error> {
    let mut connection = PgConnection::connect(&url.to_string()).await?;
    sqlx::query_scalar("SELECT 1")
        .fetch_one(&mut connection)
        .await
}

#[tokio::test]
async fn a_server_is_reached_by_port_and_by_socket() {
    let server = PostgresServer::builder().fsync(false).start().unwrap();
    for url in [server.url(), server.unix_url(), server.superuser_url()] {
        assert_eq!(one(&url).await.unwrap(), 1);
        assert_eq!(server.sql_at(&url, "SELECT 1").unwrap().integer(), Some(1));
    }
    let proxy = FaultProxy::start(server.address()).unwrap();
    assert_eq!(one(server.url().through(proxy.address())).await.unwrap(), 1);
    let url = server.url().option("options", "-c search_path=elsewhere");
    let mut connection = PgConnection::connect(&url.to_string()).await.unwrap();
    let path: String = sqlx::query_scalar("SHOW search_path")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(path, "elsewhere");
    assert_eq!(
        server.sql_at(&url, "SHOW search_path").unwrap().value(),
        Some("elsewhere")
    );
}

#[tokio::test]
async fn tls_is_the_only_way_in_and_needs_the_authority() {
    let tls = || {
        PostgresServer::builder()
            .fsync(false)
            .tls()
            .start()
            .unwrap()
    };
    let (server, stranger) = (tls(), tls());
    let proxy = FaultProxy::start(server.address()).unwrap();
    assert_eq!(one(server.url()).await.unwrap(), 1);
    assert_eq!(one(server.url().through(proxy.address())).await.unwrap(), 1);
    let text = server.url().to_string();
    assert!(text.contains("sslmode=verify-full"), "{text}");
    one(text.replace("verify-full", "disable"))
        .await
        .unwrap_err();
    one(stranger.url().through(server.address()))
        .await
        .unwrap_err();
    assert_eq!(one(server.unix_url()).await.unwrap(), 1);
}

#[tokio::test]
async fn roles_and_passwords_are_asked_for() {
    let server = PostgresServer::builder()
        .fsync(false)
        .role("app", "p@ss/w'rd", "CONNECTION LIMIT 1")
        .role("barred", "secret", "")
        .hba("host all barred 127.0.0.1/32 reject")
        .start()
        .unwrap();
    for url in [server.url(), server.unix_url()] {
        assert_eq!(one(url.clone().user("app", "p@ss/w'rd")).await.unwrap(), 1);
        until("the connection is free again", || {
            let free = "SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = 'app'";
            server.sql(free).unwrap().is_true()
        });
        one(url.clone().user("app", "wrong")).await.unwrap_err();
        one(url.clone().user("nobody", "")).await.unwrap_err();
    }
    one(server.url().user("barred", "secret"))
        .await
        .unwrap_err();
    // The owner may make tables, and is no superuser; others may not.
    let owner = server.url();
    server.sql_at(&owner, "CREATE TABLE own (id int)").unwrap();
    let limits = "SELECT rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication \
                  FROM pg_roles WHERE rolname = current_user";
    assert_eq!(server.sql_at(&owner, limits).unwrap().value(), Some("f"));
    let app = server.unix_url().user("app", "p@ss/w'rd");
    let refused = server.sql_at(&app, "SELECT * FROM own").unwrap_err();
    assert!(refused.to_string().contains("42501"), "{refused}");
    // They are there again after the loss of everything.
    server.restart_empty().unwrap();
    assert_eq!(one(app).await.unwrap(), 1);
}

#[tokio::test]
async fn sessions_are_ended_by_choice() {
    let server = start();
    let named = |name| server.url().option("application_name", name).to_string();
    let mut a = PgConnection::connect(&named("a")).await.unwrap();
    let mut b = PgConnection::connect(&named("b")).await.unwrap();
    assert_eq!(
        server.terminate_backends("application_name = 'a'").unwrap(),
        1
    );
    let ended = sqlx::query("SELECT 1").execute(&mut a).await;
    let ended = ended.unwrap_err();
    let code = ended.as_database_error().and_then(|e| e.code());
    assert_eq!(code.as_deref(), Some("57P01"), "{ended}");
    sqlx::query("SELECT 1").execute(&mut b).await.unwrap();
    assert_eq!(server.terminate_backends("true").unwrap(), 1);
    assert_eq!(server.terminate_backends("false").unwrap(), 0);
}

#[tokio::test]
async fn a_paused_server_takes_connections_and_answers_when_it_goes_on() {
    let server = PostgresServer::builder().fsync(false).start().unwrap();
    let mut session = PgConnection::connect(&server.url().to_string())
        .await
        .unwrap();
    server.pause().unwrap();
    let url = server.url();
    let fresh = tokio::spawn(one(url));
    let old = tokio::spawn(async move { sqlx::query("SELECT 1").execute(&mut session).await });
    let early = tokio::time::timeout(WHILE, async {
        while !fresh.is_finished() && !old.is_finished() {
            tokio::task::yield_now().await;
        }
    });
    assert!(early.await.is_err(), "an answer of a paused server");
    server.resume().unwrap();
    assert_eq!(fresh.await.unwrap().unwrap(), 1);
    old.await.unwrap().unwrap();
    // A paused one is stopped, killed and dropped like any other.
    server.pause().unwrap();
    server.stop().unwrap();
    server.start().unwrap();
    server.pause().unwrap();
    server.kill().unwrap();
    server.start().unwrap();
    server.pause().unwrap();
    let family = family(&server);
    drop(server);
    assert!(!family.into_iter().any(runs));
}

#[tokio::test]
async fn a_server_is_the_hook_of_a_fixture() {
    let server = start();
    put(&server, "committed");
    let (restart, loses, pause): (&dyn Restart, &dyn LoseData, &dyn Pause) =
        (&server, &server, &server);
    restart.restart().await.unwrap();
    assert!(has(&server, "committed"));
    assert!(server.log().contains("not properly shut down"), "a crash");
    loses.lose_data().await.unwrap();
    assert!(
        !server
            .sql("SELECT to_regclass('seen') IS NOT NULL")
            .unwrap()
            .is_true()
    );
    pause.pause().await.unwrap();
    assert!(matches!(server.sql("SELECT 1"), Err(ServerError::Paused)));
    pause.resume().await.unwrap();
    server.sql("SELECT 1").unwrap();
}

fn standby_of(primary: &PostgresServer) -> PostgresServer {
    let standby = PostgresServer::builder()
        .fsync(false)
        .standby_of(primary)
        .start()
        .unwrap();
    standby.wait_until_linked().unwrap();
    standby
}

#[test]
fn a_synchronous_standby_has_every_commit_and_takes_over() {
    let primary = start();
    let standby = standby_of(&primary);
    assert!(standby.is_standby().unwrap() && !primary.is_standby().unwrap());
    let refused = standby.sql("CREATE TABLE t (id int)").unwrap_err();
    assert!(refused.to_string().contains("25006"), "{refused}");
    primary.set_synchronous(&[&standby]).unwrap();
    put(&primary, "before");
    put(&primary, "after");
    primary.kill().unwrap();
    standby.promote().unwrap();
    assert!(!standby.is_standby().unwrap());
    assert!(has(&standby, "before") && has(&standby, "after"));
    put(&standby, "new");
    // It stays one.
    standby.restart().unwrap();
    assert!(!standby.is_standby().unwrap() && has(&standby, "new"));
}

#[test]
fn a_commit_waits_for_a_synchronous_standby() {
    let primary = start();
    let standby = standby_of(&primary);
    primary.set_synchronous(&[&standby]).unwrap();
    standby.pause().unwrap();
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| put(&primary, "slow"));
        until("the commit waits", || {
            let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            primary.sql(waits).unwrap().integer() == Some(1)
        });
        standby.resume().unwrap();
        commit.join().unwrap();
    });
    standby.kill().unwrap();
    primary.set_synchronous(&[]).unwrap();
    put(&primary, "alone");
    standby.start().unwrap();
    standby.wait_until_linked().unwrap();
    assert!(has(&standby, "slow") && has(&standby, "alone"));
}

#[test]
fn an_asynchronous_standby_lacks_what_a_proxy_holds_back() {
    let primary = PostgresServer::builder()
        .fsync(false)
        .tls()
        .start()
        .unwrap();
    primary.sql("CREATE TABLE seen (what text)").unwrap();
    let proxy = FaultProxy::start(primary.address()).unwrap();
    let standby = PostgresServer::builder()
        .fsync(false)
        .standby_through(&primary, proxy.address())
        .named("far")
        .start()
        .unwrap();
    put(&primary, "arrived");
    standby.wait_until_linked().unwrap();
    let known = primary.sql("SELECT application_name, sync_state FROM pg_stat_replication");
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(known.unwrap().rows(), [[some("far"), some("async")]]);
    proxy.hold();
    put(&primary, "held");
    primary.kill().unwrap();
    proxy.cut();
    standby.promote().unwrap();
    assert!(has(&standby, "arrived") && !has(&standby, "held"));
}

#[test]
fn a_standby_that_lost_its_disk_copies_its_primary_again() {
    let primary = start();
    let standby = standby_of(&primary);
    put(&primary, "kept");
    standby.restart_empty().unwrap();
    standby.wait_until_linked().unwrap();
    assert!(has(&standby, "kept"));
    assert_eq!(
        standby
            .sql_at(&standby.url(), "SELECT current_user")
            .unwrap()
            .value(),
        Some(OWNER)
    );
}

async fn pid(connection: &mut PgConnection) -> i32 {
    // A simple query: named statements do not go through every pooler.
    let row = sqlx::raw_sql("SELECT pg_backend_pid()")
        .fetch_one(connection)
        .await
        .unwrap();
    sqlx::Row::get(&row, 0)
}

#[tokio::test]
async fn a_pooler_hands_one_connection_to_many_transactions() {
    let server = start();
    let pooler = PgBouncer::before(&server).pool_size(1).start().unwrap();
    let connect = || async {
        PgConnection::connect(&pooler.url().to_string())
            .await
            .unwrap()
    };
    let (mut a, mut b) = (connect().await, connect().await);
    assert_eq!(pid(&mut a).await, pid(&mut b).await);
    let pools = pooler.command("SHOW POOLS").unwrap();
    let of_owner = pools
        .rows()
        .iter()
        .find(|row| row[1].as_deref() == Some(OWNER));
    assert!(of_owner.unwrap().contains(&Some("transaction".into())));
    // In a transaction it is one's own.
    sqlx::raw_sql("BEGIN").execute(&mut a).await.unwrap();
    let other = tokio::spawn(async move { pid(&mut b).await });
    tokio::time::sleep(WHILE).await;
    assert!(!other.is_finished());
    sqlx::raw_sql("COMMIT").execute(&mut a).await.unwrap();
    other.await.unwrap();
    // Clients hear of its end; new ones come when it is back.
    pooler.kill().unwrap();
    sqlx::raw_sql("SELECT 1").execute(&mut a).await.unwrap_err();
    assert!(matches!(
        pooler.command("SHOW POOLS"),
        Err(ServerError::NotRunning)
    ));
    pooler.start().unwrap();
    pid(&mut connect().await).await;
    // A server that comes back is found again.
    server.restart().unwrap();
    until("the pooler finds its server again", || {
        server.sql_at(&pooler.url(), "SELECT 1").is_ok()
    });
    let pid = pooler.pid().unwrap();
    let folder = pooler.folder().to_owned();
    drop(pooler);
    assert!(!runs(pid) && !folder.exists());
}

#[tokio::test]
async fn a_pooler_has_tls_on_both_sides_where_it_is_told_to() {
    let server = PostgresServer::builder()
        .fsync(false)
        .tls()
        .role("app", "secret", "")
        .start()
        .unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let pooler = PgBouncer::before(&server)
        .through(proxy.address())
        .tls()
        .start()
        .unwrap();
    let ssl = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let url: PostgresUrl = pooler.url().user("app", "secret");
    assert!(server.sql_at(&url, ssl).unwrap().is_true());
    assert_eq!(proxy.connections().len(), 1);
    one(url.to_string().replace("verify-full", "disable"))
        .await
        .unwrap_err();
    one(url.user("app", "wrong")).await.unwrap_err();
}

#[test]
fn dropping_leaves_nothing_behind() {
    for killed in [false, true] {
        let server = start();
        let (family, folder) = (family(&server), server.folder().to_owned());
        let segment = segment(&folder);
        assert!(family.len() > 3 && runs(family[0]));
        assert!(has_segment(&segment) && folder.exists());
        if killed {
            server.kill().unwrap();
        }
        drop(server);
        assert!(!family.into_iter().any(runs) && !folder.exists());
        assert!(!has_segment(&segment), "killed: {killed}");
    }
}

#[test]
fn a_panic_leaves_nothing_behind() {
    let server = start();
    let (family, folder) = (family(&server), server.folder().to_owned());
    let panicked = std::thread::spawn(move || {
        let _server = server;
        panic!("a deliberate panic");
    });
    panicked.join().unwrap_err();
    assert!(!family.into_iter().any(runs) && !folder.exists());
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(start).join().unwrap();
    put(&server, "alive");
}

const HELPER: &str = "LEASES_TEST_HELPER";

/// This program again, with one of the tests that are marked as helpers.
fn helper(name: &str, task: &str) -> Command {
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", name, "--ignored", "--nocapture"])
        .env(HELPER, task)
        .stdout(Stdio::piped());
    test
}

#[test]
fn a_killed_test_leaves_nothing_behind_not_even_of_a_paused_server() {
    for task in ["runs", "paused", "killed"] {
        let mut test = helper("helper_that_waits", task).spawn().unwrap();
        let lines = BufReader::new(test.stdout.take().unwrap()).lines();
        let said: Vec<String> = lines
            .map_while(Result::ok)
            .filter_map(|line| line.split_once("server ").map(|(_, rest)| rest.to_owned()))
            .take(1)
            .collect();
        let mut words = said[0].split(' ');
        let folders = [words.next().unwrap(), words.next().unwrap()].map(Path::new);
        let segment = words.next().unwrap();
        let family: Vec<u32> = words.map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(runs(family[0]), task != "killed");
        test.kill().unwrap();
        test.wait().unwrap();
        until("the servers and their folders are gone", || {
            !family.iter().any(|pid| runs(*pid)) && !folders.iter().any(|f| f.exists())
        });
        assert!(!has_segment(segment), "{task}");
    }
}

/// The test that is killed.
#[test]
#[ignore = "run by a_killed_test_leaves_nothing_behind"]
fn helper_that_waits() {
    let Some(task) = std::env::var_os(HELPER) else {
        return;
    };
    let server = start();
    let pooler = PgBouncer::before(&server).start().unwrap();
    let segment = segment(server.folder());
    let mut family = family(&server);
    family.push(pooler.pid().unwrap());
    if task == "paused" {
        server.pause().unwrap();
    } else if task == "killed" {
        server.kill().unwrap();
    }
    let family: Vec<String> = family.iter().map(u32::to_string).collect();
    println!(
        "server {} {} {segment} {}",
        server.folder().display(),
        pooler.folder().display(),
        family.join(" ")
    );
    loop {
        std::thread::park();
    }
}

#[test]
fn a_missing_program_fails_with_advice() {
    let test = helper("helper_without_postgres", "start")
        .env("LEASES_POSTGRES_BIN", "/no/such/folder")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&test.stdout);
    assert!(said.contains("/no/such/folder/postgres"), "{said}");
    assert!(
        said.contains("LEASES_POSTGRES_BIN names its folder"),
        "{said}"
    );
}

/// The test without programs.
#[test]
#[ignore = "run by a_missing_program_fails_with_advice"]
fn helper_without_postgres() {
    if std::env::var_os(HELPER).is_none() {
        return;
    }
    let error = PostgresServer::builder().start().unwrap_err();
    println!("{error}");
}
