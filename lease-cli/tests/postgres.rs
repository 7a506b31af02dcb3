//! The program on real Postgres servers, on good days and bad ones.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use lease_conformance::servers::postgres::{PostgresServer, PostgresUrl};
use nix::sys::signal::Signal;
use support::{Place, lives, number, until};

/// Nothing here ends the machine, so no commit has to wait for the disk.
fn plain() -> PostgresServer {
    PostgresServer::builder().fsync(false).start().unwrap()
}

fn on(server: &PostgresServer) -> Place {
    Place::with_store(server.url())
}

/// Every command does what it should.
fn use_every_command(place: &Place) {
    let acquire = ["acquire", "a/k", "--ttl", "1m", "--label", "me", "--json"];
    let grant = place.done(&acquire).ok().json();
    let owner = grant["owner"].as_str().unwrap();
    let token = grant["token"].as_u64().unwrap().to_string();
    place
        .done(&["acquire", "a/k", "--ttl", "1m", "-n"])
        .code(75);
    let held = ["a/k", "--owner", owner, "--token", &token];
    let renew = [&["renew"][..], &held, &["--ttl", "2m"]].concat();
    let release = [&["release"][..], &held].concat();
    place.done(&renew).ok();
    assert_eq!(place.holder("a/k")["label"], "me");
    let listed = place.done(&["list", "a/", "--json"]).ok().json();
    assert_eq!(listed[0]["holder"]["token"], grant["token"]);
    place.done(&release).ok();
    place.done(&release).code(76);
    place.done(&renew).code(76);

    let script = "echo $LEASE_KEY; \"$LEASE\" admit ledger --token $LEASE_TOKEN";
    let ran = place.run(&[], "a/k", script).end().ok();
    assert_eq!(ran.out, "a/k\n");
    let stale = place.done(&["admit", "ledger", "--token", &token]);
    // Beside it a busy machine may say that it waits.
    let stale = stale.code(76);
    assert!(stale.err.contains("is stale"), "{stale:?}");

    place.done(&["acquire", "f", "--ttl", "1m"]).ok();
    let fenced = place.done(&["fence", "f", "--yes", "--json"]).ok().json();
    let cut_off = fenced["cut_off"]["token"].as_u64().unwrap();
    assert!(fenced["high_water"].as_u64().unwrap() > cut_off);
    place.done(&["acquire", "f", "--ttl", "1m", "-n"]).code(75);
    place.done(&["fence", "f", "--yes", "--now"]).ok();
    place.done(&["acquire", "f", "--ttl", "1m", "-n"]).ok();
    let found = place.done(&["doctor", "--json"]).json();
    assert_eq!(found["store"], "postgres");
}

#[test]
fn every_command_works_by_every_way_to_a_server() {
    let server = plain();
    let other = |url: PostgresUrl, schema: &str| url.option("schema", schema).to_string();
    use_every_command(&on(&server));
    let url = other(server.url(), "two").replacen("postgres:", "postgresql:", 1);
    use_every_command(&Place::with_store(url));
    use_every_command(&Place::with_store(other(server.unix_url(), "three")));

    let server = PostgresServer::builder()
        .fsync(false)
        .tls()
        .start()
        .unwrap();
    let url = server.url().to_string();
    assert!(url.contains("sslmode=verify-full"), "{url}");
    use_every_command(&Place::with_store(url));
}

#[test]
fn forty_increments_make_forty() {
    let server = plain();
    let place = on(&server);
    fs::write(place.path("counter"), "0").unwrap();
    let script = "
        n=$(cat counter); sleep 0.01; echo $((n + 1)) > counter
        echo $LEASE_TOKEN >> tokens";
    // At once, on tables that are not there yet.
    let crowd: Vec<_> = (0..40).map(|_| place.run(&[], "k", script)).collect();
    for one in crowd {
        one.end().ok();
    }
    assert_eq!(number(&place.text("counter")), 40);
    let tokens: Vec<_> = place.text("tokens").lines().map(number).collect();
    assert_eq!(tokens.len(), 40);
    assert!(tokens.windows(2).all(|w| w[0] < w[1]), "{tokens:?}");
}

#[test]
fn a_command_goes_on_when_the_server_was_killed_and_comes_back() {
    let server = plain();
    let place = on(&server);
    let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 3";
    let options = ["--ttl", "15s", "--kill-after", "0s"];
    let args = [&["run"][..], &options, &["k", "--", "sh", "-c", script]];
    let log = fs::File::create(place.path("stderr")).unwrap();
    let mut command = place.lease(&args.concat());
    let mut running = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    until("the command", || place.path("ready").exists());
    let token = place.holder("k")["token"].clone();
    server.kill().unwrap();
    place.wait_for_text("stderr", "stays ours for another");
    server.start().unwrap();
    place.wait_for_text("stderr", "the store answers again");
    assert_eq!(place.holder("k")["token"], token);
    fs::write(place.path("go"), "").unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(3));
    assert!(place.holder("k").is_null(), "{}", place.text("stderr"));
}

#[test]
fn a_command_is_stopped_when_the_server_comes_back_empty() {
    let server = plain();
    let place = on(&server);
    let script = "echo $LEASE_TOKEN > token; echo $$ > pid; while :; do sleep 0.02; done";
    let running = place.run(&["--ttl", "20s"], "k", script);
    until("the command", || place.text("pid").ends_with('\n'));
    // As a database that was dropped and made anew.
    server
        .sql("DROP TABLE lease_keys, lease_tombstones, lease_gate, lease_schema")
        .unwrap();
    let ended = running.end().code(76);
    assert!(ended.err.contains("knows no such grant"), "{ended:?}");
    assert!(!lives(number(&place.text("pid")) as i32));
    // Later tokens are higher all the same.
    let next = place.done(&["acquire", "k", "--ttl", "1m", "--json"]);
    let next = next.ok().json()["token"].as_i64().unwrap();
    assert!(next > number(&place.text("token")));
}

#[test]
fn a_command_that_is_killed_outright_frees_its_key_soon_with_crash_detection() {
    let server = plain();
    let url = server.url().option("crash_detection", "true");
    let place = Place::with_store(url.to_string());
    place.done(&["run", "--ttl", "60s", "k", "--", "true"]).ok();
    let script = "echo $$ > pid; while :; do sleep 0.02; done";
    let running = place.run(&["--ttl", "60s"], "k", script);
    until("the command", || place.text("pid").ends_with('\n'));
    running.signal(Signal::SIGKILL);
    running.status();
    let killed = Instant::now();
    place.done(&["run", "-w", "30s", "k", "--", "true"]).ok();
    assert!(
        killed.elapsed() < Duration::from_secs(20),
        "{:?}",
        killed.elapsed()
    );
    // It would be gone before anybody could use it.
    let refused = place.done(&["acquire", "k", "--ttl", "60s"]).code(2);
    refused.error_line("crash_detection");
    // Nor may a grant of another process live by a session that ends here.
    let plain = on(&server);
    let acquire = ["acquire", "k", "--ttl", "60s", "--json"];
    let grant = plain.done(&acquire).ok().json();
    let (owner, token) = (&grant["owner"], grant["token"].to_string());
    let owner = owner.as_str().unwrap();
    let renew = [
        "renew", "k", "--owner", owner, "--token", &token, "--ttl", "60s",
    ];
    place.done(&renew).code(2).error_line("crash_detection");
    plain.done(&renew).ok();
}

#[test]
fn a_server_that_stands_still_stops_the_command_in_time() {
    let server = plain();
    let place = on(&server);
    let script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let running = place.run(&["--ttl", "3s", "--kill-after", "300ms"], "k", script);
    until("the command", || place.text("pid").ends_with('\n'));
    server.pause().unwrap();
    let ended = running.end().code(76);
    assert!(ended.err.contains("stopping the command"), "{ended:?}");
    assert!(!lives(number(&place.text("pid")) as i32));
    server.resume().unwrap();
    place.done(&["run", "-w", "30s", "k", "--", "true"]).ok();
}

#[test]
fn a_zombie_is_stopped_and_its_late_write_is_refused() {
    let server = plain();
    let place = on(&server);
    let script = "
        echo $LEASE_TOKEN > token; while [ ! -e write ]; do sleep 0.02; done
        \"$LEASE\" admit ledger --token $LEASE_TOKEN 2> refused; echo $? > status
        while :; do sleep 0.02; done";
    let first = place.run(&["--ttl", "2s"], "k", script);
    until("the first", || place.text("token").ends_with('\n'));
    first.signal(Signal::SIGSTOP);
    let script = "echo $LEASE_TOKEN > token2; \"$LEASE\" admit ledger --token $LEASE_TOKEN";
    place.run(&[], "k", script).end().ok();
    fs::write(place.path("write"), "").unwrap();
    until("the late write", || place.text("status").ends_with('\n'));
    assert_eq!(place.text("status"), "76\n");
    let (old, new) = (place.text("token"), place.text("token2"));
    assert!(number(&old) < number(&new));
    let refused = place.text("refused");
    assert!(
        refused.contains(old.trim()) && refused.contains(new.trim()),
        "{refused}"
    );
    first.signal(Signal::SIGCONT);
    first.end().code(76);
}

#[test]
fn a_server_that_is_away_is_status_69() {
    let server = plain();
    let place = on(&server);
    server.kill().unwrap();
    let once = place.done(&["run", "-n", "k", "--", "true"]).code(69);
    once.error_line("unavailable");
    place.done(&["doctor"]).code(69);
    // One that comes back meanwhile is found.
    let waiting = place.run(&[], "k", "echo here");
    server.start().unwrap();
    assert_eq!(waiting.end().ok().out, "here\n");
}

#[test]
fn who_is_refused_is_told_why_with_status_78() {
    let server = PostgresServer::builder()
        .fsync(false)
        .role("app", "p:w/", "")
        .start()
        .unwrap();
    let refused = |url: PostgresUrl, part: &str| {
        let refused = Place::with_store(url).done(&["inspect", "k"]).code(78);
        refused.error_line(part);
    };
    refused(server.url().user("app", "hunter2"), "password");
    refused(server.url().user("nobody", "hunter2"), "password");
    refused(server.url().database("nosuch"), "database");
    // Nobody made the tables, and it may not.
    let other = server.url().user("app", "p:w/");
    let closed = Place::with_store(other.option("schema", "closed"));
    let refused = closed.done(&["acquire", "k", "--ttl", "1m", "-n"]).code(78);
    refused.error_line("rights");
    let told = Place::with_store(server.url().option("migrate", "false"));
    let refused = told.done(&["acquire", "k", "--ttl", "1m", "-n"]).code(78);
    refused.error_line("lease schema");
}

#[test]
fn who_only_looks_makes_no_tables_and_is_told_that_there_are_none() {
    let server = plain();
    for (name, value, words) in [
        ("schema", "typo", "no schema \"typo\""),
        ("table_prefix", "typo_", "lacks typo_schema, typo_keys"),
        ("migrate", "true", "?schema="),
    ] {
        let place = Place::with_store(server.url().option(name, value));
        for look in [&["inspect", "k"][..], &["list"], &["list", "--json"]] {
            place.done(look).code(78).error_line(words);
        }
    }
    let made = "SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS s ON s.oid = relnamespace \
                WHERE nspname = 'typo' OR nspname = 'public' AND relkind = 'r'";
    assert_eq!(server.sql(made).unwrap().integer(), Some(0));
    // Nobody but who changes something needs the functions.
    let place = on(&server);
    place.done(&["acquire", "k", "--ttl", "1m"]).ok();
    server.sql("DROP FUNCTION lease_admit").unwrap();
    place.done(&["inspect", "k"]).ok();
    assert_eq!(place.done(&["list", "--json"]).ok().json()[0]["key"], "k");
}

#[test]
fn a_key_that_a_transaction_keeps_after_its_holders_time_is_told_so() {
    let server = plain();
    let place = on(&server);
    let acquire = ["acquire", "k", "--ttl", "100ms", "--label", "dead"];
    place.done(&acquire).ok();
    let open = "BEGIN; SELECT FROM lease_keys FOR UPDATE; SELECT pg_sleep(60)";
    std::thread::scope(|scope| {
        scope.spawn(|| server.sql(open));
        let looks = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        until("the lock", || {
            server.sql(looks).unwrap().integer() == Some(1)
        });
        until("the end of its time", || place.holder("k").is_null());
        for wait in [&["-n"][..], &["-w", "1s"]] {
            let asked = [&["acquire", "k", "--ttl", "1m"][..], wait].concat();
            let told = place.done(&asked).code(75);
            for words in ["dead", "time", "pg_stat_activity"] {
                assert!(told.err.contains(words), "{told:?}");
            }
        }
        server.terminate_backends("wait_event = 'PgSleep'").unwrap();
    });
    place.done(&acquire).ok();
}

#[test]
fn the_sql_of_the_tables_is_printed_without_a_connection() {
    let server = PostgresServer::builder()
        .fsync(false)
        .role("o\"dd", "hunter2", "")
        .start()
        .unwrap();
    let url = server.url().user("o\"dd", "hunter2");
    let url = url.option("schema", "made").option("migrate", "false");
    let place = Place::with_store(&url);
    let refused = place.done(&["acquire", "k", "--ttl", "1m"]).code(78);
    refused.error_line("lease schema");
    let printed = place.done(&["schema", "--role", "o\"dd"]).ok().out;
    assert!(!printed.contains("hunter2"), "{printed}");
    server.sql(&printed).unwrap();
    place.done(&["acquire", "k", "--ttl", "1m"]).ok();
    assert!(!place.done(&["schema"]).ok().out.contains("GRANT"));
    place.done(&["schema", "--role", ""]).code(2);

    let away = Place::with_store("POSTGRES://hunter2@127.0.0.1:1/db?table_prefix=x_");
    let printed = away.done(&["schema"]).ok().out;
    assert!(printed.contains("x_keys"), "{printed}");
    let bad = Place::with_store("postgres://u:hunter2@h:x/db").done(&["schema"]);
    assert!(!format!("{:?}", bad.code(2)).contains("hunter2"));
    let other = Place::with_store("redis://h").done(&["schema"]).code(2);
    other.error_line("needs no schema");
}

#[test]
fn a_standby_is_refused_with_status_78() {
    let server = plain();
    on(&server).done(&["acquire", "k", "--ttl", "1m"]).ok();
    let builder = PostgresServer::builder().fsync(false);
    let standby = builder.standby_of(&server).start().unwrap();
    standby.wait_until_linked().unwrap();
    let place = on(&standby);
    let refused = place.done(&["run", "-n", "k", "--", "true"]).code(78);
    refused.error_line("name the primary");
    place.done(&["doctor"]).code(3);
}

#[test]
fn no_output_shows_a_password() {
    let server = PostgresServer::builder()
        .fsync(false)
        .role("app", "hunter2", "SUPERUSER")
        .start()
        .unwrap();
    let url = server.url().user("app", "hunter2").to_string();
    let silent = |place: &Place, args: &[&str]| {
        let mut command = place.lease(args);
        let ended = support::done(command.env("LEASE_LOG", "trace"));
        assert!(!format!("{ended:?}").contains("hunter2"), "{ended:?}");
    };
    let place = Place::with_store(&url);
    let in_query = url.replace(":hunter2@", "@") + "?password=hunter2";
    for place in [
        &place,
        &Place::with_store(url.replace('@', "x@")),
        &Place::with_store(in_query),
        &Place::with_store(format!("{url}?nosuch=hunter2")),
    ] {
        silent(place, &["acquire", "k", "--ttl", "1m", "-n"]);
        silent(place, &["inspect", "k"]);
        silent(place, &["list", "--json"]);
        silent(place, &["fence", "k", "--yes", "--now"]);
        silent(place, &["admit", "k", "--token", "1"]);
        silent(place, &["doctor"]);
        silent(place, &["--help"]);
        // The command has the URL where it had it before, and nowhere else.
        let show = "env | grep -v '^LEASE_STORE='; cat /proc/$PPID/cmdline /proc/$$/cmdline";
        silent(place, &["run", "-n", "k", "--", "sh", "-c", show]);
    }
    // From the environment, right and wrong.
    let bare = Place::with_store(url.replace(":hunter2@", "@"));
    for password in ["hunter2", "xhunter2"] {
        for args in [&["inspect", "k"][..], &["doctor"]] {
            let mut command = bare.lease(args);
            command
                .env("LEASE_LOG", "trace")
                .env("PGPASSWORD", password);
            let ended = support::done(&mut command);
            assert!(!format!("{ended:?}").contains("hunter2"), "{ended:?}");
        }
    }
    server.kill().unwrap();
    silent(&place, &["run", "-n", "k", "--", "true"]);
}

#[test]
fn options_of_a_url_are_right_or_refused() {
    let server = plain();
    let with = |name: &str, value: &str| Place::with_store(server.url().option(name, value));
    for (name, value, words) in [
        ("nosuch", "1", "known are"),
        ("connections", "0", "1 to 64"),
        ("connections", "x", "whole number"),
        ("schema", "", "1 to 63"),
        ("migrate", "maybe", "true or false"),
        ("response_timeout_ms", "0", "response_timeout"),
        ("tombstone_retention_ms", "10", "shorter than"),
    ] {
        let refused = with(name, value).done(&["inspect", "k"]).code(2);
        refused.error_line(words);
    }
    // Another prefix is another store.
    let acquire = ["acquire", "k", "--ttl", "1m", "-n"];
    with("table_prefix", "one_").done(&acquire).ok();
    with("table_prefix", "one_").done(&acquire).code(75);
    with("table_prefix", "two_").done(&acquire).ok();
}

#[test]
fn doctor_ends_with_how_bad_it_is() {
    let server = PostgresServer::builder().start().unwrap();
    let place = on(&server);
    place.done(&["acquire", "k", "--ttl", "1m"]).ok();
    let found = place.done(&["doctor", "--json"]).ok().json();
    assert_eq!(found["store"], "postgres");
    let hasty = Place::with_store(server.url().option("asynchronous_commit", "true"));
    let found = hasty.done(&["doctor"]).code(1);
    assert!(
        found.out.contains("warning   synchronous_commit"),
        "{found:?}"
    );
    server.sql("ALTER TABLE lease_keys SET UNLOGGED").unwrap();
    let found = place.done(&["doctor"]).code(3);
    assert!(found.out.contains("critical  unlogged: "), "{found:?}");
    // Standbys that are gone: nothing can be changed, and the doctor says why.
    server
        .config_set("synchronous_standby_names", "gone")
        .unwrap();
    let found = place.done(&["doctor"]).code(3);
    assert!(found.out.contains("critical  standbys: "), "{found:?}");
    server.kill().unwrap();
    place.done(&["doctor"]).code(69);
}

#[test]
fn the_environment_counts_as_with_every_client() {
    let server = PostgresServer::builder()
        .fsync(false)
        .role("app", "hunter2", "SUPERUSER")
        .start()
        .unwrap();
    let address = server.address();
    let place = Place::with_store("postgres:///postgres");
    let with = |more: &[(&str, &str)]| {
        let mut command = place.lease(&["acquire", "k", "--ttl", "1m", "--json"]);
        command
            .env("PGHOST", address.ip().to_string())
            .env("PGPORT", address.port().to_string())
            .env("PGUSER", "app")
            .env("PGPASSWORD", "hunter2")
            .envs(more.iter().copied());
        support::done(&mut command)
    };
    with(&[]).ok();
    with(&[("PGPORT", "x")]).code(2).error_line("PGPORT");
    for port in ["x", "", "0", "65536"] {
        let refused = with(&[("PGPORT", port)]).code(2);
        refused.error_line("1 to 65535");
        assert!(!refused.err.contains("verify"), "{refused:?}");
    }
    let mode = with(&[("PGSSLMODE", "verify_full")]).code(2);
    mode.error_line("verify-full");
    assert!(!mode.err.contains("65535"), "{mode:?}");
    let wrong = with(&[("PGPASSWORD", "xhunter2")]).code(78);
    assert!(!format!("{wrong:?}").contains("hunter2"), "{wrong:?}");
    // A password in a file, as for psql.
    let file = place.path("passwords");
    fs::write(&file, format!("*:{}:*:app:hunter2\n", address.port())).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let url = format!("postgres://app@{address}/postgres");
    let place = Place::with_store(url);
    let mut command = place.lease(&["inspect", "k"]);
    command.env_remove("PGPASSWORD").env("PGPASSFILE", &file);
    support::done(&mut command).ok();
    // One that others may read is not read, and that is said.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let ended = support::done(&mut command).code(78);
    ended.error_line("chmod 600");
    assert!(ended.err.contains(file.to_str().unwrap()), "{ended:?}");
    assert!(!format!("{ended:?}").contains("hunter2"), "{ended:?}");
}

#[test]
fn a_key_that_cannot_be_read_is_told_of_and_hides_no_other() {
    let server = plain();
    let place = on(&server);
    for key in ["a", "b", "c"] {
        place.done(&["acquire", key, "--ttl", "1m"]).ok();
    }
    server
        .sql("UPDATE lease_keys SET label = NULL WHERE key = 'b'")
        .unwrap();
    let listed = place.done(&["list", "--json"]).code(78);
    let keys: Vec<_> = listed.json().as_array().unwrap().clone();
    let keys: Vec<_> = keys
        .iter()
        .map(|one| one["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["a", "c"]);
    let lines: Vec<_> = listed.err.lines().collect();
    assert!(
        lines[0].contains("not in the list; key: \"b\""),
        "{listed:?}"
    );
    assert!(
        lines[1].contains("1 record could not be read"),
        "{listed:?}"
    );
    place.done(&["list", "a"]).ok();
}
