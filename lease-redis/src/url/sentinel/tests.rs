use crate::RedisOptions;

fn read(url: &str) -> String {
    format!("{:?}", RedisOptions::from_url(url).unwrap())
}

fn error(url: &str) -> String {
    RedisOptions::from_url(url).unwrap_err().to_string()
}

#[test]
fn sentinels_a_name_and_a_database_are_read() {
    let shown = read(
        "redis+sentinel://u:secret@a,b:7,[::1]/my.primary-1/3?sentinel_user=w&sentinel_password=s%40cret\
         &prefix=p&protocol=resp3&quarantine_ms=5000",
    );
    for part in [
        r#"sentinels: ["a:26379", "b:7", "::1:26379"]"#,
        r#"primary: "my.primary-1""#,
        "database: 3",
        "tls: false",
        "RESP3",
        "5s",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(!shown.contains("cret"), "{shown}");
    for url in [
        "valkey+sentinel://a/m",
        "REDIS+SENTINEL://a/m/",
        "redis+sentinel://:secret@a/m?sentinel_password=secret",
        "redis+sentinel://a/m/0",
    ] {
        let shown = read(url);
        assert!(shown.contains("database: 0"), "{shown}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn sentinels_may_speak_tls() {
    for url in ["rediss+sentinel://a/m", "valkeys+sentinel://a/m"] {
        assert!(read(url).contains("tls: true"));
    }
    let said = error("rediss+sentinel://a/m?ca=/no/such/file");
    assert!(said.contains("cannot be read"), "{said}");
}

#[test]
fn a_mistake_is_named_and_no_secret_is() {
    for (url, words) in [
        ("redis+sentinel://", "an empty host"),
        ("redis+sentinel://a", "what they call the primary"),
        ("redis+sentinel://a/", "what they call the primary"),
        ("redis+sentinel://a//0", "what they call the primary"),
        ("redis+sentinel://a,a:26379/m", "twice"),
        ("redis+sentinel://a/m/x", "the number of the database"),
        ("redis+sentinel://a/m/0/1", "the number of the database"),
        ("redis+sentinel://a/m%20n", "letters, digits"),
        ("redis+sentinel://a/m%2F", "letters, digits"),
        ("redis+sentinel://u:se/cret@a/m", "%2F"),
        ("redis+sentinel://u@a/m", "no password"),
        (
            "redis+sentinel://a/m?sentinel_user=u",
            "no sentinel_password",
        ),
        ("redis+sentinel://a/m?sentinel_password=", "not empty"),
        ("redis+sentinel://a/m?sentinel_password=se+cret", "%2B"),
        (
            "redis+sentinel://a/m?sentinel_password=x&sentinel_password=secret",
            "twice",
        ),
        (
            "redis+sentinel://a/m?sentinel_pasword=secret",
            "not an option",
        ),
        ("redis+sentinel://a/m?db=1", "not an option"),
        ("redis+sentinel://a/m?ca=/x", "not an option"),
        ("redis+sentinel://a/m#secret", "%23"),
        ("redis://a?sentinel_password=secret", "not an option"),
        ("redis+sentinels://a/m", "not a Redis URL"),
    ] {
        let said = error(url);
        assert!(said.contains(words), "{url}: {said}");
        assert!(!said.contains("cret"), "{url}: {said}");
    }
    let long = format!("redis+sentinel://a/{}", "m".repeat(129));
    assert!(error(&long).contains("1 to 128"));
}

#[test]
fn a_program_may_bring_its_own_clients() {
    let client = |url: &str| redis::Client::open(url).unwrap();
    let of = |sentinels: Vec<redis::Client>, name: &str| {
        RedisOptions::from_sentinels(sentinels, name, client("redis://:secret@any/2"))
    };
    let shown = format!("{:?}", of(vec![client("redis://a:7")], "m").unwrap());
    for part in [r#"sentinels: ["a:7"]"#, r#"primary: "m""#, "database: 2"] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(!shown.contains("secret"), "{shown}");
    assert!(of(Vec::new(), "m").is_err());
    assert!(of(vec![client("redis://a")], "").is_err());
}

#[test]
fn a_restart_may_be_a_failover_and_so_it_is_not_claimed() {
    use lease_core::{Exclusion, Survives};
    let options = |more: &str| {
        let url = format!("redis+sentinel://a/m?{more}prefix=p");
        RedisOptions::from_url(&url).unwrap().guarantees()
    };
    let plain = options("");
    assert_eq!(plain.store, "redis-sentinel");
    assert_eq!(plain.exclusion, Exclusion::SinglePrimary);
    assert_eq!(plain.exclusion_survives, Survives::NOTHING);
    assert_eq!(options("durable=true&"), plain);
    let quarantine = options("quarantine_ms=5000&").exclusion_survives;
    assert_eq!(quarantine, Survives::NOTHING.restart().data_loss());
}
