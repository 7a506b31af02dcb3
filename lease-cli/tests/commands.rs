//! Every command but `run`: statuses, JSON, errors, where the store is.
#![allow(clippy::unwrap_used)]

mod support;

use std::os::unix::fs::PermissionsExt;

use support::{Place, done, keys, program};

#[test]
fn acquire_renew_and_release_work_together() {
    let place = Place::new();
    let grant = place
        .done(&["acquire", "k", "--ttl", "60s", "--json"])
        .ok()
        .json();
    assert_eq!(
        keys(&grant),
        ["key", "owner", "remaining_ms", "token", "ttl_ms"]
    );
    assert_eq!(grant["key"], "k");
    assert_eq!(grant["ttl_ms"], 60_000);
    let remaining = grant["remaining_ms"].as_u64().unwrap();
    assert!((30_000..60_000).contains(&remaining), "{remaining}");
    let owner = grant["owner"].as_str().unwrap().to_owned();
    let token = grant["token"].as_u64().unwrap().to_string();

    place.done(&["acquire", "k", "--ttl", "60s", "-n"]).code(75);
    let held = [
        "renew", "k", "--owner", &owner, "--token", &token, "--ttl", "2m", "--json",
    ];
    let renewed = place.done(&held).ok().json();
    assert_eq!(keys(&renewed), keys(&grant));
    assert_eq!(renewed["token"], grant["token"]);
    assert_eq!(renewed["ttl_ms"], 120_000);
    assert!(place.holder("k")["remaining_ms"].as_u64().unwrap() > 60_000);

    // Another's token or owner frees nothing.
    let other = "0".repeat(32);
    let wrong = place.done(&["release", "k", "--owner", &other, "--token", &token]);
    wrong.code(76).error_line("nothing was changed");
    place
        .done(&["release", "k", "--owner", &owner, "--token", "1"])
        .code(76);
    let release = ["release", "k", "--owner", &owner, "--token", &token];
    place.done(&release).ok();
    place.done(&release).code(76);
    place.done(&held).code(76).error_line("is lost");
}

#[test]
fn acquire_for_people_prints_owner_token_and_remaining_time() {
    let place = Place::new();
    let printed = place.done(&["acquire", "k", "--ttl", "30s"]).ok().out;
    let rows: Vec<(&str, &str)> = printed
        .lines()
        .map(|l| l.split_once(char::is_whitespace).unwrap())
        .map(|(name, value)| (name, value.trim()))
        .collect();
    let names: Vec<_> = rows.iter().map(|r| r.0).collect();
    assert_eq!(names, ["owner", "token", "remaining"]);
    place
        .done(&["release", "k", "--owner", rows[0].1, "--token", rows[1].1])
        .ok();
}

#[test]
fn a_grant_that_nobody_could_read_is_released() {
    let place = Place::new();
    // Every write to it fails.
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = place.lease(&["acquire", "k", "--ttl", "1m"]);
    command.stdout(full).stderr(std::process::Stdio::null());
    assert_eq!(command.status().unwrap().code(), Some(70));
    place.done(&["acquire", "k", "--ttl", "1m", "-n"]).ok();
}

#[test]
fn inspect_and_list_end_well_whether_or_not_a_key_is_held() {
    let place = Place::new();
    let empty = place.inspect("k");
    assert_eq!(keys(&empty), ["high_water", "holder", "key"]);
    assert!(empty["high_water"].is_null() && empty["holder"].is_null());
    assert_eq!(place.done(&["list", "--json"]).ok().out, "[]\n");
    assert_eq!(place.done(&["list"]).ok().out, "");
    let words = place.done(&["inspect", "k"]).ok().out;
    assert!(words.contains("nobody") && words.contains("never granted"));

    let acquire = ["acquire", "a/b", "--ttl", "1m", "--label", "me", "--json"];
    let grant = place.done(&acquire).ok().json();
    place.done(&["acquire", "a/é", "--ttl", "50ms"]).ok();
    place.done(&["acquire", "other", "--ttl", "1m"]).ok();
    let held = place.inspect("a/b");
    assert_eq!(keys(&held), ["high_water", "holder", "key"]);
    assert_eq!(held["high_water"], grant["token"]);
    assert_eq!(
        keys(&held["holder"]),
        ["age_ms", "label", "remaining_ms", "token"]
    );
    assert_eq!(held["holder"]["label"], "me");
    assert_eq!(held["holder"]["token"], grant["token"]);
    assert!(held["holder"]["age_ms"].as_u64().unwrap() < 60_000);
    assert!(held["holder"]["remaining_ms"].as_u64().unwrap() <= 60_000);

    let list = place.done(&["list", "a/", "--json"]).ok().json();
    let mut listed: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|k| k["key"].as_str().unwrap())
        .collect();
    listed.sort_unstable();
    assert_eq!(listed, ["a/b", "a/é"]);
    assert!(
        list.as_array()
            .unwrap()
            .iter()
            .all(|k| k["high_water"].is_u64())
    );
    let words = place.done(&["list"]).ok().out;
    assert_eq!(words.lines().count(), 4, "{words}");
}

#[test]
fn a_long_list_comes_whole() {
    let place = Place::new();
    // By the store's own file: thousands of processes would take their time.
    place.done(&["acquire", "seed", "--ttl", "50ms"]).ok();
    let script = (0..40)
        .map(|n| format!("\"$LEASE\" fence key-{n:03} --yes >/dev/null || exit 1"))
        .collect::<Vec<_>>()
        .join("\n");
    place.run(&[], "runner", &script).end().ok();
    let list = place.done(&["list", "key-", "--json"]).ok().json();
    assert_eq!(list.as_array().unwrap().len(), 40);
    assert!(
        list.as_array()
            .unwrap()
            .iter()
            .all(|k| k["high_water"] == 1)
    );
}

#[test]
fn fence_cuts_the_holder_off_and_raises_a_free_keys_mark_by_one() {
    let place = Place::new();
    let first = place.done(&["fence", "k", "--json"]).ok().json();
    assert_eq!(keys(&first), ["blocked_ms", "cut_off", "high_water", "key"]);
    assert!(first["blocked_ms"].is_null());
    assert_eq!(first["high_water"], 1);
    assert!(first["cut_off"].is_null());
    assert_eq!(
        place.done(&["fence", "k", "--json"]).ok().json()["high_water"],
        2
    );

    let grant = place.done(&["acquire", "k", "--ttl", "1m", "--json"]).ok();
    let token = grant.json()["token"].as_u64().unwrap();
    // A mark that does not reach the holder cuts nobody off.
    let below = place.done(&["fence", "k", "--at-least", "3", "--json"]);
    assert!(below.ok().json()["cut_off"].is_null());
    let fenced = place.done(&["fence", "k", "--json"]).ok().json();
    assert_eq!(fenced["high_water"].as_u64().unwrap(), token + 1);
    assert_eq!(fenced["cut_off"]["token"].as_u64().unwrap(), token);
    let left = fenced["blocked_ms"].as_u64().unwrap();
    assert!(left > 0 && left <= 60_000, "{left}");

    let blocked = place.inspect("k");
    assert_eq!(
        keys(&blocked),
        ["blocked_ms", "high_water", "holder", "key"]
    );
    assert!(blocked["holder"].is_null());
    assert!(blocked["blocked_ms"].as_u64().unwrap() > 0);
    place.done(&["acquire", "k", "--ttl", "1m", "-n"]).code(75);
    let words = place.done(&["fence", "k", "--now"]).ok().out;
    assert!(words.contains("fenced at"), "{words}");
    let next = place
        .done(&["acquire", "k", "--ttl", "1m", "-n", "--json"])
        .ok();
    assert!(next.json()["token"].as_u64().unwrap() > token + 1);

    let high = (1u64 << 52) + 1;
    place
        .done(&["fence", "k", "--at-least", &high.to_string()])
        .code(2);
}

#[test]
fn a_grant_that_was_handed_out_is_not_logged_as_lost() {
    let place = Place::new();
    let mut command = place.lease(&["acquire", "k", "--ttl", "1m"]);
    let ended = done(command.env("LEASE_LOG", "leases=debug")).ok();
    assert!(ended.err.contains("detached"), "{ended:?}");
    assert!(!ended.err.contains("WARN"), "{ended:?}");
    assert!(!place.holder("k").is_null());
}

#[test]
fn above_the_highest_fence_nobody_can_be_cut_off() {
    let place = Place::new();
    let highest = (1u64 << 52).to_string();
    place.done(&["fence", "k", "--at-least", &highest]).ok();
    place.done(&["acquire", "k", "--ttl", "1m"]).ok();
    let refused = place.done(&["fence", "k", "--yes"]).code(78);
    refused.error_line("nobody can be cut off");
    assert!(!place.holder("k").is_null());
}

#[test]
fn a_fence_that_reaches_nobody_says_who_holds_the_key() {
    let place = Place::new();
    let acquire = ["acquire", "k", "--ttl", "1m", "--label", "the holder"];
    place.done(&acquire).ok();
    let words = place.done(&["fence", "k", "--at-least", "3"]).ok().out;
    assert!(
        words.contains("nobody was cut off; held now by the holder"),
        "{words}"
    );
}

#[test]
fn admit_remembers_the_highest_token_and_names_both() {
    let place = Place::new();
    place.done(&["admit", "r", "--token", "5"]).ok();
    place.done(&["admit", "r", "--token", "5"]).ok();
    let stale = place.done(&["admit", "r", "--token", "4"]).code(76);
    stale.error_line("token 4 is stale");
    stale.error_line("5 was admitted");
    place.done(&["admit", "other", "--token", "1"]).ok();
    place.done(&["admit", "r", "--token", "0"]).code(2);
    place.done(&["admit", "r", "--token", "x"]).code(2);
    let help = done(program().args(["admit", "--help"])).ok().out;
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Only a check in the same step as the write is airtight"));
}

#[test]
fn stores_lists_what_is_compiled_in_and_what_is_not() {
    let stores = done(program().args(["stores", "--json"])).ok().json();
    let find = |name: &str| {
        let all = stores.as_array().unwrap();
        all.iter().find(|s| s["store"] == name).unwrap().clone()
    };
    assert_eq!(find("sqlite")["compiled_in"], true);
    assert_eq!(find("sqlite")["guarantees"]["exclusion"], "one host");
    assert_eq!(find("redis")["compiled_in"], true);
    assert_eq!(find("redis")["guarantees"]["wake_ups"], "push");
    assert_eq!(find("redis-sentinel")["compiled_in"], true);
    assert_eq!(find("postgres")["compiled_in"], true);
    assert_eq!(
        find("postgres")["guarantees"]["exclusion"],
        "single primary"
    );
    assert_eq!(find("nats")["guarantees"]["after_a_crash"], "the TTL");
    assert_eq!(find("queue-redis")["features"][0], "queue");
    let words = done(program().args(["stores"])).ok().out;
    for part in ["sqlite", "one host", "queue+redis:", "nats:"] {
        assert!(words.contains(part), "{words}");
    }
    assert!(!words.contains("cargo feature"), "{words}");
}

#[test]
fn doctor_looks_at_the_store() {
    let place = Place::new();
    let found = place.done(&["doctor", "--json"]).json();
    assert_eq!(keys(&found), ["findings", "store", "worst"]);
    assert_eq!(found["store"], "sqlite");
    let url = format!("sqlite://{}", place.path("other.db").display());
    assert!(done(program().args(["doctor", &url])).code < 4);
    done(program().args(["doctor", "nosuch://h"])).code(2);
}

#[test]
fn keys_are_right_or_refused() {
    let place = Place::new();
    let longest = "k".repeat(512);
    for key in [
        "a/b", "a", "{x}", "\u{e9}", "e\u{301}", "*", "%", " ", &longest,
    ] {
        place.done(&["acquire", key, "--ttl", "1m", "-n"]).ok();
    }
    let listed = place.done(&["list", "--json"]).ok().json();
    assert_eq!(listed.as_array().unwrap().len(), 9);
    let too_long = place.done(&["acquire", &"k".repeat(513), "--ttl", "1m"]);
    too_long.code(2).error_line("512");
    place
        .done(&["acquire", "", "--ttl", "1m"])
        .code(2)
        .error_line("1 to 512 bytes");
    place.done(&["acquire", "a\nb", "--ttl", "1m"]).code(2);
    place.done(&["run", "", "--", "true"]).code(2);
    let label = "l".repeat(257);
    place
        .done(&["acquire", "k", "--ttl", "1m", "--label", &label])
        .code(2)
        .error_line("256");
}

#[test]
fn ttls_are_right_or_refused_with_their_limits() {
    let place = Place::new();
    for ttl in ["0s", "1ns", "1ms", "49ms", "367d", "400d"] {
        for args in [
            &["acquire", "k", "--ttl", ttl][..],
            &["run", "--ttl", ttl, "k", "--", "true"],
        ] {
            place.done(args).code(2).error_line("50ms to 366d");
        }
    }
    for bare in ["0", "30", "1.5"] {
        place
            .done(&["acquire", "k", "--ttl", bare])
            .code(2)
            .error_line("needs its unit");
    }
    place.done(&["acquire", "k", "--ttl", "31d"]).ok();
    assert!(
        !place
            .done(&["acquire", "j", "--ttl", "x"])
            .code(2)
            .err
            .is_empty()
    );
}

#[test]
fn wrong_arguments_are_one_line_and_status_2() {
    let place = Place::new();
    for args in [
        &["run", "k"][..],
        &["run", "k", "--"],
        &["run", "-n", "-w", "1s", "k", "--", "true"],
        &["acquire", "k"],
        &["renew", "k"],
        &["inspect"],
        &["nosuch"],
        &["release", "k", "--owner", "x", "--token", "1"],
    ] {
        place.done(args).code(2).error_line("see lease --help");
    }
    done(&mut program()).code(2);
    let help = done(program().arg("--help")).ok().out;
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, statuses) = words.split_once("Exit statuses: ").unwrap();
    for status in [0, 1, 2, 3, 69, 70, 75, 76, 78] {
        assert!(
            statuses
                .split("; ")
                .any(|s| s.starts_with(&format!("{status} "))),
            "{status}: {statuses}"
        );
    }
    done(program().arg("--version")).ok();
}

#[test]
fn the_default_store_is_created_under_xdg_state_home() {
    let place = Place::new();
    let home = place.path("home");
    std::fs::create_dir(&home).unwrap();
    let lease = |state: Option<&std::path::Path>, store: Option<&str>| {
        let mut command = program();
        command.env("HOME", &home).env_remove("XDG_STATE_HOME");
        command.current_dir(&home);
        if let Some(state) = state {
            command.env("XDG_STATE_HOME", state);
        }
        if let Some(store) = store {
            command.env("LEASE_STORE", store);
        }
        command.args(["acquire", "k", "--ttl", "1m", "-n"]);
        command
    };
    done(&mut lease(None, None)).ok();
    let folder = home.join(".local/state/lease");
    assert!(folder.join("leases.db").exists());
    let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // An empty LEASE_STORE is none.
    done(&mut lease(None, Some(""))).code(75);
    // Another state folder, another store.
    let state = place.path("state");
    done(&mut lease(Some(&state), None)).ok();
    assert!(state.join("lease/leases.db").exists());
    // LEASE_STORE comes first, and --store before it.
    done(&mut lease(Some(&state), Some("sqlite:env.db"))).ok();
    assert!(home.join("env.db").exists());
    let mut both = lease(Some(&state), Some("sqlite:env.db"));
    done(both.args(["--store", "sqlite:option.db"])).ok();
    assert!(home.join("option.db").exists());
    // A folder that cannot be made.
    let file = place.path("file");
    std::fs::write(&file, "").unwrap();
    let failed = done(&mut lease(Some(&file), None)).code(78);
    failed.error_line("--store");
    let mut homeless = program();
    homeless.env_remove("HOME").env_remove("XDG_STATE_HOME");
    done(homeless.args(["inspect", "k"]))
        .code(2)
        .error_line("--store");
}

#[test]
fn a_misconfigured_store_is_status_78() {
    let place = Place::new();
    let file = place.path("text.db");
    std::fs::write(
        &file,
        "this is no database, and must stay as it is\n".repeat(200),
    )
    .unwrap();
    let url = format!("sqlite://{}", file.display());
    for args in [
        &["inspect", "k"][..],
        &["run", "k", "--", "true"],
        &["run", "-n", "k", "--", "true"],
        &["acquire", "k", "--ttl", "1m"],
        &["admit", "r", "--token", "1"],
    ] {
        let refused = done(program().args(["--store", &url]).args(args)).code(78);
        assert_eq!(refused.err.lines().count(), 1, "{refused:?}");
    }
    let missing = format!("sqlite://{}", place.path("no/such.db").display());
    done(program().args(["--store", &missing, "inspect", "k"])).code(78);
}

#[test]
fn no_output_shows_a_secret_of_a_url() {
    // One that is not in this program, and one that is in none.
    let secret = "nats://user:hunter2@host/db?password=x7x7";
    for url in [secret, "nosuch://user:hunter2@host/db?password=x7x7"] {
        for args in [
            &["inspect", "k"][..],
            &["run", "k", "--", "true"],
            &["list"],
            &["doctor"],
        ] {
            let mut command = program();
            command.args(args).env("LEASE_STORE", url);
            let refused = done(command.env("LEASE_LOG", "trace")).code(2);
            for secret in ["hunter2", "x7x7"] {
                let all = format!("{refused:?}");
                assert!(!all.contains(secret), "{all}");
            }
        }
    }
    for args in [
        &["inspect", "k", secret][..],
        &["doctor", secret],
        &["--stor", secret, "list"],
    ] {
        let refused = done(program().args(args)).code(2);
        assert!(!format!("{refused:?}").contains("hunter2"), "{refused:?}");
    }
    // Whatever stands around the secret, and wherever.
    for url in [
        "postgres://u:pa'hunter2@h/db",
        "postgres://u:pa\"hunter2@h/db",
        "postgres://u:pa hunter2\n@h/db",
        "redis:hunter2@h",
    ] {
        let (option, short) = (format!("--ttl={url}"), format!("-w{url}"));
        for args in [
            &["run", "k", url][..],
            &["run", "--ttl", url, "k", "--", "true"],
            &["run", &option, "k", "--", "true"],
            &["run", "-w", url, "k", "--", "true"],
            &["run", &short, "k", "--", "true"],
            &["release", "k", "--owner", url, "--token", url],
            &[url],
        ] {
            let refused = done(program().args(args)).code(2);
            assert!(!refused.err.contains("hunter2"), "{refused:?}");
            refused.error_line("see lease --help");
        }
    }
    let help = done(program().arg("--help").env("LEASE_STORE", secret));
    assert!(!help.ok().out.contains("hunter2"));
}

#[test]
fn advice_on_urls_comes_whole() {
    for url in ["leases.db", "sqlite://host/leases.db"] {
        let refused = done(program().args(["--store", url, "list"])).code(2);
        refused.error_line("sqlite:///absolute/path");
    }
}
