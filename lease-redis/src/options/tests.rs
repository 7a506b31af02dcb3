use super::*;

fn options() -> RedisOptions {
    RedisOptions::from_url("redis://127.0.0.1").unwrap()
}

fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

#[test]
fn defaults_are_as_documented() {
    let options = options().checked().unwrap();
    assert_eq!(options.names, Names::new("leases").unwrap());
    assert_eq!(options.mark_retention, minutes(24 * 60));
    assert_eq!(options.tombstone_retention, minutes(10));
    assert_eq!(options.quarantine, None);
    assert_eq!(options.wait, None);
    assert!(!options.durable);
    assert_eq!(options.response_timeout, Duration::from_secs(5));
    assert_eq!(options.connect_timeout, Duration::from_secs(5));
}

#[test]
fn guarantees_claim_no_more_than_the_options_allow() {
    let plain = options().guarantees();
    assert_eq!(plain.exclusion, Exclusion::SinglePrimary);
    assert_eq!(plain.exclusion_survives, Survives::NOTHING);
    assert_eq!(
        plain.tokens_survive,
        Survives::NOTHING.restart().data_loss()
    );
    assert_eq!(plain.ttl, TtlRange::default());

    let durable = options().durable(true).guarantees();
    assert_eq!(durable.exclusion_survives, Survives::NOTHING.restart());

    let max_ttl = Ttl::new(minutes(1)).unwrap();
    let quarantine = options().quarantine(max_ttl).guarantees();
    assert_eq!(
        quarantine.exclusion_survives,
        Survives::NOTHING.restart().data_loss()
    );
    assert_eq!(quarantine.ttl.max, minutes(1));

    let waiting = options()
        .wait_for_replicas(2, Duration::from_secs(1))
        .guarantees();
    assert_eq!(waiting, plain);
}

#[test]
fn values_that_cannot_work_are_refused_with_the_option() {
    let ms = Duration::from_millis;
    for (options, word) in [
        (
            options().response_timeout(Duration::ZERO),
            "response_timeout",
        ),
        (options().connect_timeout(ms(1) / 2), "connect_timeout"),
        (
            options().tombstone_retention(Duration::ZERO),
            "tombstone_retention",
        ),
        (options().mark_retention(minutes(9)), "mark_retention"),
        (
            options()
                .mark_retention(minutes(10))
                .tombstone_retention(minutes(11)),
            "mark_retention",
        ),
        (
            options().wait_for_replicas(1, Duration::ZERO),
            "wait_for_replicas",
        ),
        (
            options()
                .response_timeout(ms(100))
                .wait_for_replicas(1, ms(100)),
            "wait_for_replicas",
        ),
        (
            options()
                .tombstone_retention(minutes(1))
                .response_timeout(minutes(2)),
            "tombstone_retention",
        ),
    ] {
        let error = options.checked().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn durations_are_made_fit_for_redis() {
    let retention = Duration::from_nanos(6_000_000_001);
    let rounded = options().tombstone_retention(retention).checked().unwrap();
    assert_eq!(rounded.tombstone_retention, Duration::from_millis(6_001));
    let options = options()
        .tombstone_retention(Duration::MAX)
        .mark_retention(Duration::MAX)
        .response_timeout(Duration::MAX)
        .wait_for_replicas(1, Duration::from_nanos(1))
        .checked()
        .unwrap();
    assert_eq!(options.tombstone_retention, FOR_EVER);
    assert_eq!(options.mark_retention, FOR_EVER);
    assert_eq!(options.response_timeout, FOR_EVER);
    let wait = options.wait.unwrap();
    assert_eq!((wait.replicas, wait.within), (1, Duration::from_millis(1)));
    assert_eq!(options.wait_for_replicas(0, minutes(1)).wait, None);
}

#[test]
fn sockets_are_set_for_short_messages() {
    let settings = |options: RedisOptions| {
        let options = options.checked().unwrap();
        options.servers.client().info().tcp_settings().clone()
    };
    let tcp = settings(options());
    assert!(tcp.nodelay());
    assert!(tcp.keepalive().is_some());
    #[cfg(target_os = "linux")]
    assert_eq!(tcp.user_timeout(), Some(Duration::from_secs(5)));

    // What the caller's own client sets stays.
    let info = redis::IntoConnectionInfo::into_connection_info("redis://h").unwrap();
    let own = info.tcp_settings().clone();
    #[cfg(target_os = "linux")]
    let own = own.set_user_timeout(minutes(1));
    let client = redis::Client::open(info.set_tcp_settings(own)).unwrap();
    let tcp = settings(RedisOptions::from_client(client));
    assert!(tcp.nodelay());
    #[cfg(target_os = "linux")]
    assert_eq!(tcp.user_timeout(), Some(minutes(1)));
}

#[test]
fn debug_shows_where_but_not_who() {
    let shown = format!(
        "{:?}",
        RedisOptions::from_url("redis://us3r:s3cret@db.example:7/3?prefix=app").unwrap()
    );
    for word in ["db.example:7", "database: 3", "app", "mark_retention"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    for secret in ["us3r", "s3cret"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}
