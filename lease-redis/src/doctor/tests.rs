//! Real servers, each with a setting that matters.

use std::time::Duration;

use lease_conformance::servers::redis::{Persistence, RedisBuilder, RedisServer, RedisUrl};
use lease_core::{Diagnosis, Severity, StoreErrorKind, Ttl};

use super::{Facts, diagnose};
use crate::names::Names;

mod blind;
mod slow;

pub(super) fn facts() -> Facts {
    Facts {
        ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
        names: Names::default(),
        quarantine: None,
        wait: None,
        durable: false,
        mark_retention: Duration::from_secs(24 * 60 * 60),
        sentinels: false,
        slot: None,
        queues: false,
    }
}

fn seconds(n: u64) -> Ttl {
    Ttl::new(Duration::from_secs(n)).unwrap()
}

async fn look(url: &RedisUrl, facts: &Facts) -> Diagnosis {
    let client = redis::Client::open(url.to_string()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let diagnosis = diagnose(&mut connection, facts).await.unwrap();
    let text: String = diagnosis.findings.iter().map(human).collect();
    // `cargo test -- --nocapture` shows what people would read.
    println!(
        "=== {}\n{text}",
        std::thread::current().name().unwrap_or_default()
    );
    for secret in ["hunter2", "lease-conformance", "edgar"] {
        assert!(!text.contains(secret), "{text}");
    }
    diagnosis
}

/// As `lease doctor` shows it.
fn human(finding: &lease_core::Finding) -> String {
    let severity = finding.severity.to_string();
    let mut text = format!(
        "{severity:<9} {}\n          {}\n",
        finding.what, finding.why
    );
    if let Some(advice) = &finding.advice {
        text.push_str(&format!("          -> {advice}\n"));
    }
    text
}

/// The one finding whose `what` starts so is of this severity.
#[track_caller]
pub(super) fn found(diagnosis: &Diagnosis, what: &str, severity: Severity) -> String {
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

fn start(builder: RedisBuilder) -> RedisServer {
    builder.start().unwrap()
}

#[tokio::test]
async fn a_sound_server_has_nothing_worse_than_a_note() {
    let builder = RedisServer::builder().persistence(Persistence::AofAlways);
    let server = start(builder.password("hunter2"));
    let durable = Facts {
        durable: true,
        ..facts()
    };
    let diagnosis = look(&server.url(), &durable).await;
    assert_eq!(diagnosis.worst(), Severity::Healthy, "{diagnosis:#?}");
    found(
        &diagnosis,
        "persistence: an append-only file, appendfsync always",
        Severity::Healthy,
    );
    found(&diagnosis, "server: ", Severity::Healthy);
    found(&diagnosis, "mode: ", Severity::Healthy);
    found(&diagnosis, "memory: ", Severity::Healthy);
    found(&diagnosis, "role: ", Severity::Healthy);
    found(&diagnosis, "rights: ", Severity::Healthy);
    found(&diagnosis, "login: by a password", Severity::Healthy);
    found(&diagnosis, "clock: ", Severity::Healthy);
    found(&diagnosis, "round trips: ", Severity::Healthy);
    found(&diagnosis, "timeout: 0", Severity::Healthy);
    found(&diagnosis, "connections: ", Severity::Healthy);
    found(&diagnosis, "lua-time-limit: ", Severity::Healthy);
    found(
        &diagnosis,
        "client-output-buffer-limit pubsub: ",
        Severity::Healthy,
    );
    found(&diagnosis, "birth marker: none", Severity::Healthy);
    found(&diagnosis, "mark_retention: ", Severity::Healthy);
    found(&diagnosis, "disk: ", Severity::Healthy);
    // Looking leaves nothing behind.
    assert_eq!(server.command(&["DBSIZE"]).unwrap().integer(), Some(0));

    // The newer protocol says the same.
    let url = format!("{}/?protocol=resp3", server.url());
    let mut connection = redis::Client::open(url)
        .unwrap()
        .get_multiplexed_async_connection()
        .await
        .unwrap();
    let newer = diagnose(&mut connection, &durable).await.unwrap();
    let whats = |d: &Diagnosis| -> Vec<String> {
        let kept = d.findings.iter().filter(|f| !f.what.starts_with("round"));
        kept.map(|f| f.what.clone()).collect()
    };
    assert_eq!(whats(&newer), whats(&diagnosis));
}

#[tokio::test]
async fn what_a_restart_loses_is_judged_by_what_was_promised() {
    use Severity::{Critical, Note, Warning};
    for (persistence, words) in [
        (Persistence::None, "loses every grant"),
        (Persistence::Rdb, "since the last snapshot"),
        (Persistence::AofEverysec, "one or two seconds"),
    ] {
        let server = start(RedisServer::builder().persistence(persistence));
        let what = "persistence: ";
        let plain = look(&server.url(), &facts()).await;
        assert!(found(&plain, what, Warning).contains(words));
        assert_eq!(plain.worst(), Warning);
        let durable = Facts {
            durable: true,
            ..facts()
        };
        assert!(found(&look(&server.url(), &durable).await, what, Critical).contains(words));
        let quarantine = Facts {
            quarantine: Some(seconds(60)),
            ..facts()
        };
        let covered = look(&server.url(), &quarantine).await;
        assert!(found(&covered, what, Note).contains("60s"));
        found(
            &covered,
            "quarantine: 60s, for a TTL of 30s",
            Severity::Healthy,
        );
        let short = Facts {
            quarantine: Some(seconds(10)),
            ..facts()
        };
        found(
            &look(&server.url(), &short).await,
            "quarantine: 10s",
            Critical,
        );
    }
    let builder = RedisServer::builder().persistence(Persistence::AofAlways);
    let server = start(builder.config("no-appendfsync-on-rewrite yes"));
    let lazy = look(&server.url(), &facts()).await;
    assert!(found(&lazy, "persistence: ", Warning).contains("rewrite"));
    server.config_set("appendfsync", "no").unwrap();
    let never = look(&server.url(), &facts()).await;
    assert!(found(&never, "persistence: ", Warning).contains("half a minute"));
}

#[tokio::test]
async fn a_disk_that_fails_stops_every_renewal() {
    let builder = RedisServer::builder().persistence(Persistence::Rdb);
    let server = start(builder.config("dbfilename blocked.rdb"));
    // No file can take the place of a folder.
    let reply = server.command(&["CONFIG", "GET", "dir"]).unwrap();
    let data = std::path::Path::new(reply.list().unwrap()[1].text().unwrap());
    std::fs::create_dir(data.join("blocked.rdb")).unwrap();
    server.command(&["BGSAVE"]).unwrap();
    until(|| server.info("rdb_bgsave_in_progress").unwrap().as_deref() == Some("0"));
    let diagnosis = look(&server.url(), &facts()).await;
    found(
        &diagnosis,
        "snapshot: the last one failed",
        Severity::Critical,
    );
    server
        .config_set("stop-writes-on-bgsave-error", "no")
        .unwrap();
    let diagnosis = look(&server.url(), &facts()).await;
    found(
        &diagnosis,
        "snapshot: the last one failed",
        Severity::Warning,
    );
}

#[tokio::test]
async fn policies_that_evict_are_critical_where_memory_ends() {
    use Severity::{Critical, Healthy, Note};
    for policy in ["allkeys-lru", "volatile-ttl", "volatile-lru"] {
        let server = start(RedisServer::builder().max_memory("100mb", policy));
        found(&look(&server.url(), &facts()).await, "memory: ", Critical);
        server.config_set("maxmemory", "0").unwrap();
        found(&look(&server.url(), &facts()).await, "memory: ", Note);
    }
    let server = start(RedisServer::builder().max_memory("100mb", "noeviction"));
    found(&look(&server.url(), &facts()).await, "memory: ", Healthy);
    server.config_set("maxmemory", "1").unwrap();
    let full = look(&server.url(), &facts()).await;
    found(&full, "memory: ", Critical);
    found(&full, "rights: what the store does", Healthy);
}

#[tokio::test]
async fn replicas_are_judged_by_what_a_failover_forgets() {
    use Severity::{Critical, Healthy, Note, Warning};
    let primary = start(RedisServer::builder());
    let replica = start(RedisServer::builder().replica_of(&primary));
    replica.wait_until_linked().unwrap();
    primary.wait_until_followed(1).unwrap();
    found(
        &look(&replica.url(), &facts()).await,
        "role: a replica",
        Critical,
    );

    let plain = look(&primary.url(), &facts()).await;
    found(&plain, "role: a primary with 1 replicas", Warning);
    found(&plain, "min-replicas-to-write: 0", Note);
    let wait = |n| Facts {
        wait: Some((n, Duration::from_millis(100))),
        ..facts()
    };
    let one = look(&primary.url(), &wait(1)).await;
    found(&one, "wait_replicas: 1 of 1", Healthy);
    found(&one, "role: ", Note);
    found(
        &look(&primary.url(), &wait(2)).await,
        "wait_replicas: 2 of 1",
        Critical,
    );

    primary.config_set("min-replicas-to-write", "1").unwrap();
    let guarded = look(&primary.url(), &facts()).await;
    found(&guarded, "min-replicas-to-write: 1", Healthy);
    replica.kill().unwrap();
    primary.wait_until_followed(0).unwrap();
    let alone = look(&primary.url(), &wait(1)).await;
    found(&alone, "min-replicas-to-write: 1, and 0", Critical);
    found(&alone, "wait_replicas: 1 of 0", Critical);
}

/// Asks the server again and again.
fn until(done: impl Fn() -> bool) {
    let limit = std::time::Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(std::time::Instant::now() < limit, "it takes too long");
    }
}

#[tokio::test]
async fn a_cluster_is_not_a_server_of_its_own() {
    let server = start(RedisServer::builder().config("cluster-enabled yes"));
    let diagnosis = look(&server.url(), &facts()).await;
    found(&diagnosis, "mode: part of a cluster", Severity::Critical);
}

#[tokio::test]
async fn a_default_user_that_may_not_replay_the_log_is_critical() {
    let builder = RedisServer::builder().persistence(Persistence::AofAlways);
    let server = start(builder.user("app on >hunter2 ~* &* +@all"));
    let url = server.url().user("app", "hunter2");
    let what = "persistence: the default user may not replay the append-only file";
    let missing = |diagnosis: &Diagnosis| !diagnosis.findings.iter().any(|f| f.what == what);
    for sound in ["on nopass ~* &* +@all", "off resetpass ~* &* +@all"] {
        set_default(&server, sound);
        assert!(missing(&look(&url, &facts()).await), "{sound}");
    }
    for bad in ["off -@all", "on resetkeys ~leases:* +@all"] {
        set_default(&server, bad);
        let words = found(&look(&url, &facts()).await, what, Severity::Critical);
        assert!(
            words.contains("ACL SETUSER default off ~* &* +@all"),
            "{words}"
        );
    }
    // Nothing is read back from nowhere.
    server.config_set("appendonly", "no").unwrap();
    assert!(missing(&look(&url, &facts()).await));
}

fn set_default(server: &RedisServer, rules: &str) {
    let words: Vec<_> = ["ACL", "SETUSER", "default"]
        .into_iter()
        .chain(rules.split(' '))
        .collect();
    server.command(&words).unwrap();
}

#[tokio::test]
async fn missing_rights_are_named_one_by_one() {
    use Severity::{Critical, Healthy, Note, Warning};
    // As on the page of the rights, with what the doctor asks for first.
    let everything = "-@all +eval +evalsha +time +get +set +psetex +setrange +pttl +publish +subscribe \
                      +unsubscribe +scan +ping +info";
    let server = start(
        RedisServer::builder()
            .user(&format!(
                "whole on >hunter2 ~leases:* resetchannels &leases:* {everything}"
            ))
            .user("none on >hunter2 ~* &* +ping")
            .user(&format!("keys on >hunter2 ~other:* &* {everything}"))
            .user(&format!(
                "channels on >hunter2 ~leases:* resetchannels {everything}"
            ))
            .user("edgar on >hunter2 ~* &* +@all -subscribe -scan -config -info")
            .user("asks on >hunter2 ~* &* +@all -subscribe"),
    );
    let url = |user: &str| server.url().user(user, "hunter2");

    let whole = look(&url("whole"), &facts()).await;
    found(&whole, "rights: what the store does with leases:*", Healthy);
    found(&whole, "right to SUBSCRIBE: could not be found out", Note);
    found(
        &whole,
        "settings (CONFIG GET): could not be found out",
        Note,
    );
    // Without CONFIG it cannot know that there is no snapshot.
    found(&whole, "persistence: no append-only file", Warning);

    let quarantine = Facts {
        quarantine: Some(seconds(60)),
        wait: Some((1, Duration::from_millis(100))),
        ..facts()
    };
    let none = look(&url("none"), &quarantine).await;
    for command in [
        "EVAL", "EVALSHA", "TIME", "GET", "SET", "PTTL", "INFO", "WAIT",
    ] {
        let words = found(
            &none,
            &format!("rights: {command} is not allowed"),
            Critical,
        );
        assert!(
            words.contains(&format!("+{}", command.to_lowercase())),
            "{words}"
        );
    }
    found(&none, "rights: PUBLISH", Warning);
    found(&none, "rights: SCAN", Warning);
    found(&none, "server: could not be found out", Note);
    found(&none, "clock: could not be found out", Note);

    let keys = look(&url("keys"), &facts()).await;
    found(&keys, "rights: GET is not allowed for leases:*", Critical);
    let words = found(&keys, "rights: SET is not allowed for leases:*", Critical);
    assert!(words.contains("~leases:*"), "{words}");

    let channels = look(&url("channels"), &facts()).await;
    let words = found(
        &channels,
        "rights: PUBLISH is not allowed for the channels",
        Warning,
    );
    assert!(words.contains("&leases:*"), "{words}");

    let edgar = look(&url("edgar"), &facts()).await;
    found(&edgar, "rights: INFO is not allowed", Note);
    found(&edgar, "rights: SCAN is not allowed", Warning);
    found(&edgar, "rights: SUBSCRIBE is not allowed", Warning);
    assert_eq!(server.command(&["DBSIZE"]).unwrap().integer(), Some(0));
}

#[tokio::test]
async fn clients_may_be_few_closed_and_cut_off() {
    use Severity::{Note, Warning};
    let server = start(
        RedisServer::builder()
            .config("maxclients 10")
            .config("timeout 5")
            .config("lua-time-limit 0")
            .config("client-output-buffer-limit pubsub 1kb 1kb 1"),
    );
    let mut others = Vec::new();
    for _ in 0..9 {
        let client = redis::Client::open(server.url().to_string()).unwrap();
        others.push(client.get_multiplexed_async_connection().await.unwrap());
    }
    let url = server.url();
    let mut connection = others.pop().unwrap();
    let diagnosis = diagnose(&mut connection, &facts()).await.unwrap();
    found(&diagnosis, "connections: ", Warning);
    found(&diagnosis, "timeout: ", Warning);
    found(&diagnosis, "lua-time-limit: 0", Note);
    found(&diagnosis, "client-output-buffer-limit pubsub: 1024", Note);
    found(&diagnosis, "login: none is needed", Note);
    drop(others);
    drop(connection);
    let short = Facts {
        ttl: seconds(9),
        ..facts()
    };
    found(&look(&url, &short).await, "timeout: ", Note);
}

#[tokio::test]
async fn the_stores_own_marker_tells_restarts_and_stepped_clocks() {
    use Severity::{Critical, Healthy, Note, Warning};
    let server = start(RedisServer::builder());
    let quarantine = Facts {
        quarantine: Some(seconds(3600)),
        ..facts()
    };
    let info = |field| server.info(field).unwrap().unwrap();
    let life = info("run_id") + &info("master_replid");
    let now = server.info("server_time_usec").unwrap().unwrap();
    let marker = |text: &str| {
        server.command(&["SET", "leases:birth", text]).unwrap();
    };
    let begins = "quarantine: it begins with the next acquire";
    found(&look(&server.url(), &quarantine).await, begins, Note);
    marker(&format!("B1 0 0 {now}"));
    found(
        &look(&server.url(), &facts()).await,
        "birth marker: the store's own",
        Healthy,
    );
    found(&look(&server.url(), &quarantine).await, begins, Note);
    marker(&format!("B1 {life} {now} {now}"));
    let diagnosis = look(&server.url(), &quarantine).await;
    found(
        &diagnosis,
        "quarantine: grants are refused for another",
        Note,
    );
    marker(&format!("B1 {life} 5 5 3600000000"));
    found(
        &look(&server.url(), &quarantine).await,
        "quarantine: it is over",
        Healthy,
    );
    marker(&format!("B1 {life} 5 5 3599000000"));
    for facts in [facts(), quarantine] {
        let diagnosis = look(&server.url(), &facts).await;
        let words = found(&diagnosis, "quarantine lengths: ", Critical);
        assert!(words.contains("3599s among other clients"), "{words}");
    }
    marker("B1 0 0 4000000000000000");
    found(
        &look(&server.url(), &facts()).await,
        "clock: the server's is behind what",
        Warning,
    );
    marker("mine");
    found(
        &look(&server.url(), &facts()).await,
        "birth marker: ",
        Critical,
    );
    server.command(&["DEL", "leases:birth"]).unwrap();
    server.command(&["RPUSH", "leases:birth", "x"]).unwrap();
    found(
        &look(&server.url(), &facts()).await,
        "birth marker: ",
        Critical,
    );
}

#[tokio::test]
async fn only_a_server_out_of_reach_is_an_error() {
    let server = start(RedisServer::builder());
    let client = redis::Client::open(server.url().to_string()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    server.kill().unwrap();
    let error = diagnose(&mut connection, &facts()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);

    let server = start(RedisServer::builder().password("hunter2"));
    let url = server.url().anonymous().to_string();
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let error = diagnose(&mut connection, &facts()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_a_script_keeps_busy_is_out_of_reach() {
    let server = start(RedisServer::builder().config("lua-time-limit 1"));
    let client = redis::Client::open(server.url().to_string()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| server.command(&["EVAL", "while true do end", "0"]));
        until(|| match server.command(&["PING"]) {
            Ok(_) => false,
            Err(error) => error.to_string().contains("BUSY"),
        });
        let looked = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(diagnose(&mut connection, &facts()))
        });
        server.command(&["SCRIPT", "KILL"]).unwrap();
        assert!(busy.join().unwrap().is_err());
        assert_eq!(looked.unwrap_err().kind(), StoreErrorKind::Unavailable);
    });
}

/// Other makes of server leave fields out or fill them in their own way.
#[tokio::test]
async fn odd_answers_make_no_panic() {
    let server = start(RedisServer::builder().max_memory("100mb", "noeviction"));
    let client = redis::Client::open(server.url().to_string()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut facts = facts();
    facts.quarantine = Some(seconds(60));
    facts.wait = Some((1, Duration::from_millis(1)));
    let mut seen = super::Seen::look(&mut connection, &facts).await.unwrap();
    let text = server.command(&["INFO"]).unwrap();
    let lines: Vec<&str> = text.text().unwrap().lines().collect();
    for odd in [
        "",
        "-1",
        "18446744073709551615",
        "99999999999999999999",
        "x,=:y=",
        "é",
    ] {
        for at in 0..lines.len() {
            let mut changed = lines.clone();
            let name = changed[at].split(':').next().unwrap_or_default();
            let line = format!("{name}:{odd}");
            changed[at] = &line;
            seen.info = Ok(super::Info::parse(&changed.join("\n")));
            assert!(!super::judge(&seen, &facts).is_empty());
        }
    }
    seen.birth = Ok(super::Birth::Marker {
        life: String::new(),
        since_us: i64::MIN,
        first_us: i64::MIN,
        length_us: i64::MIN,
    });
    assert!(!super::judge(&seen, &facts).is_empty());
}
