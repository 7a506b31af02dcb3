//! What is read from a URL, and what is refused.

use super::*;
use crate::schema::Making;

#[test]
fn the_server_and_our_options_are_read() {
    let url = "postgresql://me:p%40ss@db.example:6000/app?schema=our%20own&table_prefix=x_&\
               migrate=false&connections=9&response_timeout_ms=70&sslmode=disable&\
               application_name=worker";
    let options = parse(url).unwrap();
    assert_eq!(options.connect.get_host(), "db.example");
    assert_eq!(options.connect.get_port(), 6000);
    assert_eq!(options.connect.get_database(), Some("app"));
    assert_eq!(options.connect.get_application_name(), Some("worker"));
    assert_eq!(options.names.full("keys"), "\"our own\".\"x_keys\"");
    assert_eq!(options.making, Making::Nothing);
    assert_eq!(options.connections, 9);
    assert_eq!(options.response_timeout, Duration::from_millis(70));
    let grace = |value: &str| {
        let url = format!("postgres://h/db?crash_detection={value}");
        parse(&url).unwrap().crash_detection
    };
    assert_eq!(grace("true"), Some(PostgresOptions::GRACE));
    assert_eq!(grace("700ms"), Some(Duration::from_millis(700)));
    assert_eq!(grace("false"), None);
    let socket = parse("postgres:///app?host=/run/postgresql").unwrap();
    assert!(socket.connect.get_socket().is_some());
}

#[test]
fn every_option_is_read_in_its_place() {
    let of = |query: &str| parse(&format!("postgres://h/d?{query}")).unwrap();
    assert_eq!(of("host=other").connect.get_host(), "other");
    assert_eq!(of("port=7").connect.get_port(), 7);
    assert_eq!(of("dbname=x").connect.get_database(), Some("x"));
    assert_eq!(of("user=who").connect.get_username(), "who");
    let worker = of("application_name=worker");
    assert_eq!(worker.connect.get_application_name(), Some("worker"));
    let set = of("options=-c%20geqo=off");
    assert!(set.connect.get_options().unwrap().ends_with("-c geqo=off"));
    for mode in [
        "disable",
        "allow",
        "prefer",
        "require",
        "verify-ca",
        "verify-full",
    ] {
        of(&format!("sslmode={mode}"));
    }
    of("password=p&sslrootcert=/a&sslcert=/b&sslkey=/c");
    assert!(of("asynchronous_commit=true").asynchronous_commit);
    assert_eq!(of("migrate=true").making, Making::Missing);
    let ms = |ms| Duration::from_millis(ms);
    let timed = of("response_timeout_ms=1&connect_timeout_ms=2&tombstone_retention_ms=3");
    assert_eq!(timed.response_timeout, ms(1));
    assert_eq!(timed.connect_timeout, ms(2));
    assert_eq!(timed.tombstone_retention, ms(3));
}

#[test]
fn limits_are_named() {
    let long = "x".repeat(64);
    for (query, limit) in [
        (format!("schema={long}"), "1 to 63"),
        (format!("table_prefix={long}"), "up to 47"),
        ("migrate=1".to_owned(), "true or false"),
        ("asynchronous_commit=on".to_owned(), "true or false"),
        ("connections=many".to_owned(), "whole number"),
        ("connect_timeout_ms=-1".to_owned(), "milliseconds"),
        ("tombstone_retention_ms=1.5".to_owned(), "milliseconds"),
        (
            "sslmode=verify_full".to_owned(),
            "verify-ca and verify-full",
        ),
        ("port=65536".to_owned(), "1 to 65535"),
        ("nosuch=1".to_owned(), "known are host, port"),
    ] {
        let words = parse(&format!("postgres://h/d?{query}"));
        let words = words.unwrap_err().to_string();
        assert!(words.contains(limit), "{words}");
    }
}

#[test]
fn bad_urls_are_refused_and_not_repeated() {
    for bad in [
        "",
        "redis://secret@h",
        "postgres:/h/secret",
        "postgres://u:secret@h:x/db",
        "postgres://u:secret@h1,h2/db",
        "postgres://u:sec/ret@h/db",
        "postgres://u:sec?ret@h/db",
        "postgres://u:secret@h/db#x",
        "postgres://u:secret@h/a/b",
        "postgres://u:secret@h/db?unknown=secret",
        "postgres://u:secret@h/db?",
        "postgres://u:secret@h/db?schema=",
        "postgres://u:secret@h/db?schema=a&schema=b",
        "postgres://u:secret@h/db?migrate=secret",
        "postgres://u:secret@h/db?connections=secret",
        "postgres://u:secret@h/db?response_timeout_ms=secret",
        "postgres://u:secret@h/db?sslmode=secret",
        "postgres://u:secret@h/db?crash_detection=secret",
        "postgres://u:secret@h/db?schema=%zz",
        "postgres://u:se cret@h/db",
    ] {
        let error = parse(bad).unwrap_err();
        assert!(matches!(error, InvalidInput::Url(_)), "{bad}");
        let words = error.to_string();
        assert!(
            !words.contains("secret") && !words.contains("ret@"),
            "{words}"
        );
    }
}

#[test]
fn an_address_of_ipv6_stands_in_brackets() {
    let options = parse("postgres://app@[::1]:6000/db").unwrap();
    assert_eq!(options.connect.get_host(), "::1");
    assert_eq!(options.connect.get_port(), 6000);
    assert_eq!(options.connect.get_database(), Some("db"));
    let options = parse("postgres://[2001:db8::5]/db?connections=2").unwrap();
    assert_eq!(options.connect.get_host(), "2001:db8::5");
    let options = parse("postgres://[::1]/db?host=other").unwrap();
    assert_eq!(options.connect.get_host(), "other");
}

#[test]
fn what_is_wrong_with_an_address_is_named() {
    for (url, words) in [
        ("postgres://u:secret@h:65536/db", "1 to 65535"),
        ("postgres://u:secret@h:0/db", "1 to 65535"),
        ("postgres://u:secret@[::1]:x/db", "1 to 65535"),
        ("postgres://u:secret@::1/db", "brackets"),
        ("postgres://u:secret@[::1]x/db", "cannot be read"),
        (
            "postgres://u:secret@/db?host=/run",
            "postgres:///database?host=",
        ),
        ("postgres://:5432/db", "postgres:///database?host="),
    ] {
        let told = parse(url).unwrap_err().to_string();
        assert!(told.contains(words) && !told.contains("secret"), "{told}");
    }
}
