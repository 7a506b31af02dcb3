use std::path::Path;
use std::time::Duration;

use lease_core::Ttl;
use redis::{ConnectionAddr, ProtocolVersion};

use super::*;
use crate::names::Names;

fn info(url: &str) -> redis::ConnectionInfo {
    let options = parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    options.servers.client().info().clone()
}

fn error(url: &str) -> String {
    match parse(url) {
        Err(InvalidInput::Url(words)) => words,
        other => panic!("{url}: {other:?}"),
    }
}

#[test]
fn servers_are_found() {
    let tcp = |host: &str, port| ConnectionAddr::Tcp(host.to_owned(), port);
    for (url, addr, db) in [
        ("redis://h", tcp("h", 6379), 0),
        ("redis://h/", tcp("h", 6379), 0),
        ("redis://h:7/3", tcp("h", 7), 3),
        ("valkey://127.0.0.1/12", tcp("127.0.0.1", 6379), 12),
        ("redis://[::1]:7", tcp("::1", 7), 0),
        ("redis://[2001:db8::2]/1", tcp("2001:db8::2", 6379), 1),
    ] {
        let info = info(url);
        assert_eq!(info.addr(), &addr, "{url}");
        assert_eq!(info.redis_settings().db(), db, "{url}");
        assert_eq!(info.redis_settings().lib_name(), Some("leases"));
    }
}

#[test]
fn logins_are_decoded() {
    let login = |url| {
        let info = info(url);
        let login = info.redis_settings();
        (
            login.username().map(str::to_owned),
            login.password().map(str::to_owned),
        )
    };
    let both = |user: &str, password: &str| (Some(user.to_owned()), Some(password.to_owned()));
    assert_eq!(login("redis://h"), (None, None));
    assert_eq!(login("redis://:p@h"), (None, Some("p".to_owned())));
    assert_eq!(login("redis://u:p@h"), both("u", "p"));
    assert_eq!(
        login("redis://u%40x:%2Fp%3A%23%3f%25+%C3%A9@h"),
        both("u@x", "/p:#?%+é")
    );
    assert_eq!(login("unix:///s?user=u&pass=a%2Bb"), both("u", "a+b"));
}

#[test]
fn unix_sockets_are_found() {
    for scheme in ["unix", "redis+unix", "valkey+unix"] {
        let info = info(&format!("{scheme}:///run/a%20b.sock?db=2&protocol=resp3"));
        let path = Path::new("/run/a b.sock").to_owned();
        assert_eq!(info.addr(), &ConnectionAddr::Unix(path));
        assert_eq!(info.redis_settings().db(), 2);
        assert_eq!(info.redis_settings().protocol(), ProtocolVersion::RESP3);
    }
}

#[test]
fn options_are_read() {
    let options = parse(
        "redis://h/1?prefix=my%20app&mark_retention_ms=700000&tombstone_retention_ms=3\
         &quarantine_ms=60000&wait_replicas=2&wait_timeout_ms=4&durable=true\
         &response_timeout_ms=5&connect_timeout_ms=6&protocol=resp3",
    )
    .unwrap();
    let ms = Duration::from_millis;
    assert_eq!(options.names, Names::new("my app").unwrap());
    assert_eq!(options.mark_retention, ms(700_000));
    assert_eq!(options.tombstone_retention, ms(3));
    assert_eq!(options.quarantine.map(Ttl::get), Some(ms(60_000)));
    let wait = options.wait.unwrap();
    assert_eq!((wait.replicas, wait.within), (2, ms(4)));
    assert!(options.durable);
    assert_eq!(options.response_timeout, ms(5));
    assert_eq!(options.connect_timeout, ms(6));
    let info = options.servers.client().info();
    assert_eq!(info.redis_settings().db(), 1);
    assert_eq!(info.redis_settings().protocol(), ProtocolVersion::RESP3);
    assert!(!parse("redis://h?durable=false").unwrap().durable);
}

#[test]
fn anything_else_is_refused() {
    for bad in [
        "",
        "h:6379",
        "http://h",
        "sqlite:a",
        "redis:",
        "redis:h",
        "redis://",
        "redis:///0",
        "redis://:6379",
        "redis://:p@",
        "redis://u:p@/0",
        "redis://h:port",
        "redis://h:65536",
        "redis://[::1",
        "redis://::1",
        "redis://0.0.0.0",
        "redis://[::]",
        "redis://h/x",
        "redis://h/-1",
        "redis://h/1/2",
        "redis://h/99999999999999999999",
        "redis://h#insecure",
        "redis://h#",
        "redis://h ",
        "redis://h\n",
        "redis://u:%@h",
        "redis://u:%zz@h",
        "redis://u:%ff@h",
        "redis://u@h",
        "redis://u:@h",
        "redis://h?",
        "redis://h?prefix",
        "redis://h?prefix=",
        "redis://h?prefix=a{b",
        "redis://h?prefix=a+b",
        "redis://h?prefix=a&prefix=b",
        "redis://h?Prefix=a",
        "redis://h?db=1",
        "redis://h?user=u&pass=p",
        "redis://h?ca=/ca.pem",
        "redis://h?response_timeout_ms=",
        "redis://h?response_timeout_ms=1s",
        "redis://h?response_timeout_ms=-1",
        "redis://h?response_timeout_ms=%31",
        "redis://h?response_timeout_ms=99999999999999999999",
        "redis://h?quarantine_ms=49",
        "redis://h?wait_replicas=1",
        "redis://h?wait_timeout_ms=1",
        "redis://h?wait_replicas=4294967296&wait_timeout_ms=1",
        "redis://h?durable=yes",
        "redis://h?protocol=resp4",
        "redis://h?prefix=a&",
        "unix://relative/socket",
        "unix:socket",
        "unix:///",
        "unix://u:p@localhost/s",
        "unix:///s?db=-1",
        "unix:///s?db=x",
        "unix:///s?user=u",
        "unix:///s#a",
    ] {
        error(bad);
    }
}

#[test]
fn no_error_repeats_a_secret() {
    for url in [
        "redis://us3r@h",
        "redis://us3r:s3cret@",
        "redis://us3r:s3cret@h:port",
        "redis://us3r:s3cret@h/db",
        "redis://us3r:s3cret@h?nonsense=s3cret",
        "redis://us3r:s3cret@h?s3cret",
        "redis://us3r:s3cret@h?protocol=s3cret",
        "redis://us3r:s3cret@h?response_timeout_ms=s3cret",
        "redis://us3r:s3cret@h?prefix=s3cret%7B",
        "redis://us3r:s3cret@h?key=s3cret",
        "redis://us3r:s3cret@h#s3cret",
        "redis://us3r:s3cret%zz@h",
        "redis://us3r:s3cret@0.0.0.0",
        // An unencoded special character in the password.
        "redis://us3r:1/s3cret@h",
        "redis://us3r:1?s3cret=1@h",
        "redis://us3r:1#s3cret@h",
        "redis://us3r:s3 cret@h",
        "redis://us3r:s3cret/@h",
        "unix:///s?user=us3r&pass=s3cret&db=s3cret",
        "unix:///s?user=us3r&pass=s3+cret",
        "unix:///s?user=us3r&pass=s3cret#s3cret",
        "unix://us3r:s3cret@localhost/s",
        "rediss://us3r:s3cret@h#insecure",
        "rediss://us3r:s3cret@h?cert=/s3cret",
        "rediss://us3r:s3cret@h?cert=/s3cret&key=/s3cret",
        "rediss://us3r:s3cret@h?ca=/s3cret",
    ] {
        let words = error(url);
        for secret in ["us3r", "s3cret", "cret"] {
            assert!(!words.contains(secret), "{url}: {words}");
        }
    }
}

#[cfg(not(feature = "tls"))]
#[test]
fn tls_names_the_feature_that_it_needs() {
    assert!(error("rediss://h").contains("feature `tls`"));
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;

    #[test]
    fn servers_are_found() {
        for url in ["rediss://h:7", "valkeys://h:7"] {
            match info(url).addr() {
                ConnectionAddr::TcpTls {
                    host,
                    port,
                    insecure,
                    ..
                } => assert_eq!((host.as_str(), *port, *insecure), ("h", 7, false)),
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn files_are_read_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let empty = file("empty", "");
        let damaged = file("damaged", "-----BEGIN CERTIFICATE-----\ns3cret\n");
        let key = file("key", "-----BEGIN PRIVATE KEY-----\ns3cret\n");
        for (query, word) in [
            (format!("ca={empty}"), "ca "),
            (format!("ca={empty}-not"), "cannot be read"),
            (format!("ca={damaged}"), "damaged"),
            (format!("cert={damaged}"), "belong together"),
            (format!("cert={damaged}&key={damaged}"), "key "),
            (format!("cert={damaged}&key={key}"), "damaged"),
        ] {
            let words = error(&format!("rediss://h?{query}"));
            assert!(words.contains(word), "{words}");
            assert!(!words.contains("s3cret"), "{words}");
        }
    }
}
