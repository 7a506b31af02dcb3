//! From URLs to stores: which are taken, what the others are told, and that no
//! secret of a URL is ever repeated.
#![allow(clippy::unwrap_used)]

use leases::{Availability, Error, InvalidInput, Key, LeaseBackend, Token};

/// What `open` says about a URL that it does not take.
async fn refused(url: &str) -> String {
    let error = leases::open(url).await.unwrap_err();
    assert!(
        matches!(&error, Error::Invalid(InvalidInput::Url(_))),
        "{error:?}"
    );
    let connect = leases::connect(url).await.unwrap_err();
    assert_eq!(connect.to_string(), error.to_string());
    format!("{error}\n{error:?}")
}

#[tokio::test]
async fn memory_is_a_new_store_each_time() {
    for url in ["memory:", "MEMORY:", "memory://"] {
        let leases = leases::connect(url).await.unwrap();
        assert_eq!(leases.inspect("k").await.unwrap().high_water, None);
        leases
            .lease("k")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    assert!(refused("memory:shared").await.contains("nothing after"));
}

#[tokio::test]
async fn a_store_gives_its_leases_and_its_gate_and_no_secrets() {
    let store = leases::open("memory:").await.unwrap();
    let key = Key::new("r").unwrap();
    let token = |n| Token::new(n).unwrap();
    store.gate().admit(&key, token(2)).await.unwrap();
    assert!(store.clone().gate().admit(&key, token(1)).await.is_err());
    let lease = store.leases().build().lease("k").acquire().await.unwrap();
    let seen = store
        .backend()
        .inspect(&Key::new("k").unwrap())
        .await
        .unwrap();
    assert_eq!(seen.high_water, Some(lease.token()));
    assert_eq!(format!("{store:?}"), "Store { store: \"memory\", .. }");
}

#[cfg(not(feature = "queue"))]
#[tokio::test]
async fn without_their_features_stores_of_queues_say_so() {
    for url in ["queue+postgres://h/d", "queue+redis://h/0"] {
        let words = refused(url).await;
        assert!(
            words.contains("turn on the cargo features \"queue\" and"),
            "{words}"
        );
    }
    let words = refused("nats://h").await;
    assert!(
        words.contains("turn on the cargo feature \"nats\""),
        "{words}"
    );
}

#[cfg(feature = "queue")]
#[tokio::test]
async fn a_store_without_queues_says_which_have_some() {
    leases::open_queue("memory:").await.unwrap();
    for (url, advice) in [
        ("sqlite:x.db", "queues are kept by memory, "),
        ("redis://:hunter2@h", "write queue+redis: for queues"),
        ("memory:hunter2", "takes nothing after the colon"),
        ("nosuch:hunter2", "no store is known"),
    ] {
        let words = leases::open_queue(url).await.unwrap_err().to_string();
        assert!(
            words.contains(advice) && !words.contains("hunter2"),
            "{words}"
        );
    }
}

#[tokio::test]
async fn an_unknown_scheme_lists_the_known_ones() {
    let words = refused("zookeeper://h").await;
    for known in [
        "\"zookeeper\"",
        "memory",
        "sqlite",
        "redis",
        "valkey+unix",
        "redlock",
        "postgres",
        "queue+redis",
    ] {
        assert!(words.contains(known), "{words}");
    }
    assert!(refused("/var/lib/leases.db").await.contains("sqlite:///"));
}

#[tokio::test]
async fn no_error_repeats_a_secret() {
    for url in [
        "postgres://user:hunter2@host/db?password=x7@host",
        "POSTGRES://user:hunter2@host/db?password=x7#",
        "postgre://user:hunter2@host/db?password=x7",
        "postgresql://user:hun/ter2@host/hunter2?sslmode=x7",
        "postgres://user:hunter2@host/db?x7=hunter2",
        "user:hunter2@host/db?password=x7",
        "hunter2@host",
        "redis+sentinel://:hunter2@h:1,h:2/m?password=x7",
        "memory:hunter2?password=x7",
        "sqlite://user:hunter2@host/db?password=x7",
        "sqlite:/nowhere/db?password=x7",
        "sqlite:/nowhere/db#hunter2",
        "redis://hunter2@h",
        "REDIS://user:hunter2@h/x7",
        "rediss://user:hunter2@h?x7",
        "redis://user:hunter2@h?password=x7",
        "redis://user:hun/ter2@h?password=x7@h",
        "redis+unix://user:hunter2@h/s?pass=x7",
        "unix:///s?password=hunter2",
        "valkey://user:hunter2@h:x7",
        "redlock://user:hunter2@h,i?password=x7",
        "queue+redis://user:hunter2@h?queue=%x7",
        "queue+redis://user:hunter2@h?password=x7",
        "queue+postgres://user:hunter2@h?x7=hunter2",
        "nats://user:hunter2@h/x7?queue=a",
        "tls://user:hunter2@h?password=x7",
        "redlock://user:hunter2@h,user:hunter2@i/x7",
    ] {
        let words = refused(url).await;
        for secret in ["hunter2", "x7"] {
            assert!(!words.contains(secret), "{url}: {words}");
        }
    }
}

#[test]
fn every_store_is_listed_with_what_it_promises_or_what_it_lacks() {
    let stores = leases::stores();
    let memory = stores.iter().find(|s| s.name == "memory").unwrap();
    let promised = leases::MemoryStore::new().guarantees();
    assert_eq!(memory.features, [""; 0]);
    assert_eq!(
        memory.availability,
        Availability::CompiledIn(Box::new(promised))
    );
    let sqlite = stores.iter().find(|s| s.name == "sqlite").unwrap();
    assert_eq!(sqlite.features, ["sqlite"]);
    if cfg!(feature = "sqlite") {
        assert!(matches!(sqlite.availability, Availability::CompiledIn(_)));
    } else {
        assert_eq!(sqlite.availability, Availability::FeatureOff);
    }
    let redis = stores.iter().find(|s| s.name == "redis").unwrap();
    assert_eq!(redis.features, ["redis"]);
    if cfg!(feature = "redis") {
        assert!(matches!(redis.availability, Availability::CompiledIn(_)));
    } else {
        assert_eq!(redis.availability, Availability::FeatureOff);
    }
    let postgres = stores.iter().find(|s| s.name == "postgres").unwrap();
    assert_eq!(postgres.features, ["postgres"]);
    if cfg!(feature = "postgres") {
        assert!(matches!(postgres.availability, Availability::CompiledIn(_)));
    } else {
        assert_eq!(postgres.availability, Availability::FeatureOff);
    }
    let mut schemes: Vec<_> = stores.iter().flat_map(|s| s.schemes).collect();
    let all = schemes.len();
    schemes.sort_unstable();
    schemes.dedup();
    assert_eq!(schemes.len(), all, "two stores share a scheme");
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;

    #[tokio::test]
    async fn a_path_in_a_url_is_a_file_and_its_leases_last() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a b.db");
        let url = format!("SQLite://{}/a%20b.db", dir.path().display());
        let leases = leases::connect(&url).await.unwrap();
        let token = leases.lease("k").acquire().await.unwrap().token();
        assert!(path.exists());
        let again = leases::connect(&url).await.unwrap();
        assert_eq!(again.inspect("k").await.unwrap().high_water, Some(token));
        let promised = again.guarantees().clone();
        let listed = leases::stores().into_iter().find(|s| s.name == "sqlite");
        assert_eq!(
            listed.unwrap().availability,
            Availability::CompiledIn(Box::new(promised))
        );
    }

    #[tokio::test]
    async fn its_gate_is_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/l.db", dir.path().display());
        let (key, token) = (Key::new("r").unwrap(), |n| Token::new(n).unwrap());
        let first = leases::open(&url).await.unwrap();
        first.gate().admit(&key, token(2)).await.unwrap();
        let second = leases::open(&url).await.unwrap();
        assert!(second.gate().admit(&key, token(1)).await.is_err());
        second.gate().admit(&key, token(2)).await.unwrap();
    }

    #[tokio::test]
    async fn a_folder_that_is_missing_is_refused_for_good() {
        let error = leases::open("sqlite:/nowhere/at/all.db").await.unwrap_err();
        let Error::Store(error) = error else {
            panic!("{error:?}");
        };
        assert_eq!(error.kind(), leases::StoreErrorKind::Refusing);
    }
}

#[cfg(not(feature = "sqlite"))]
#[tokio::test]
async fn without_its_feature_sqlite_says_so() {
    let words = refused("sqlite:x.db").await;
    assert!(
        words.contains("turn on the cargo feature \"sqlite\""),
        "{words}"
    );
}

#[cfg(feature = "redis")]
mod redis {
    use lease_conformance::servers::redis::{RedisNodes, RedisServer};
    use leases::StoreErrorKind;

    use super::*;

    #[tokio::test]
    async fn every_scheme_reaches_the_server() {
        let server = RedisServer::builder().start().unwrap();
        let tcp = server.url().to_string();
        let unix = server.unix_url().to_string();
        let (_, at) = tcp.split_once(':').unwrap();
        let (_, path) = unix.split_once(':').unwrap();
        let mut highest = None;
        for url in [
            format!("redis:{at}"),
            format!("Valkey:{at}"),
            format!("redis+unix:{path}"),
            format!("UNIX:{path}"),
            format!("valkey+unix:{path}"),
        ] {
            let leases = leases::connect(&url).await.unwrap();
            assert_eq!(leases.inspect("k").await.unwrap().high_water, highest);
            let lease = leases.lease("k").acquire().await.unwrap();
            highest = Some(lease.token());
            lease.release().await.unwrap();
            let promised = leases.guarantees().clone();
            let listed = leases::stores().into_iter().find(|s| s.name == "redis");
            assert_eq!(
                listed.unwrap().availability,
                Availability::CompiledIn(Box::new(promised))
            );
        }
    }

    #[tokio::test]
    async fn tls_needs_an_authority_that_is_trusted() {
        let server = RedisServer::builder().tls().start().unwrap();
        let authority = server.authority_pem().unwrap().display().to_string();
        for scheme in ["rediss", "valkeys"] {
            let url = format!("{scheme}://{}", server.address());
            let leases = leases::connect(&format!("{url}?ca={authority}")).await;
            leases.unwrap().inspect("k").await.unwrap();
            let error = leases::open(&url).await.unwrap_err();
            assert!(matches!(error, Error::Store(_)), "{error:?}");
        }
    }

    #[tokio::test]
    async fn its_gate_is_in_the_server_under_the_same_prefix() {
        let server = RedisServer::builder().start().unwrap();
        let url = server.url().to_string();
        let (key, token) = (Key::new("r").unwrap(), |n| Token::new(n).unwrap());
        let first = leases::open(&url).await.unwrap();
        first.gate().admit(&key, token(2)).await.unwrap();
        let second = leases::open(&url).await.unwrap();
        assert!(second.gate().admit(&key, token(1)).await.is_err());
        let other = leases::open(&format!("{url}?prefix=other")).await.unwrap();
        other.gate().admit(&key, token(1)).await.unwrap();
        assert_eq!(format!("{other:?}"), "Store { store: \"redis\", .. }");
    }

    #[tokio::test]
    async fn a_quorum_is_opened_by_the_names_of_its_servers() {
        let nodes = RedisNodes::start(3, &RedisServer::builder().password("s3cret")).unwrap();
        let hosts = nodes.hosts();
        let url = format!("RedLock://:s3cret@{hosts}");
        let options = leases::redis::RedlockOptions::from_url(&url).unwrap();
        assert!(options.init().await.unwrap().is_done());
        let store = leases::open(&url).await.unwrap();
        let leases = store.leases().build();
        let lease = leases.lease("k").acquire().await.unwrap();
        lease.release().await.unwrap();
        let (ledger, token) = (Key::new("r").unwrap(), |n| Token::new(n).unwrap());
        store.gate().admit(&ledger, token(2)).await.unwrap();
        assert!(store.gate().admit(&ledger, token(1)).await.is_err());
        let promised = leases.guarantees().clone();
        let listed = leases::stores().into_iter().find(|s| s.name == "redlock");
        assert_eq!(
            listed.unwrap().availability,
            Availability::CompiledIn(Box::new(promised))
        );
        let refused = leases::open(&format!("redlock://:hunter2@{hosts}")).await;
        let error = refused.unwrap_err();
        let Error::Store(store) = &error else {
            panic!("{error:?}");
        };
        assert_eq!(store.kind(), StoreErrorKind::Refusing);
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }

    #[tokio::test]
    async fn who_is_refused_or_hears_nothing_is_told_so_and_no_secret() {
        let server = RedisServer::builder().password("s3cret").start().unwrap();
        let kind = |url: String| async move {
            match leases::open(&url).await.unwrap_err() {
                Error::Store(error) => {
                    let words = format!("{error} {error:?}");
                    assert!(!words.contains("hunter2"), "{words}");
                    error.kind()
                }
                other => panic!("{other:?}"),
            }
        };
        let address = server.address();
        let wrong = kind(format!("redis://:hunter2@{address}")).await;
        assert_eq!(wrong, StoreErrorKind::Refusing);
        server.kill().unwrap();
        let gone = kind(format!("redis://:hunter2@{address}")).await;
        assert_eq!(gone, StoreErrorKind::Unavailable);
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use lease_conformance::servers::postgres::PostgresServer;
    use leases::StoreErrorKind;

    use super::*;

    #[tokio::test]
    async fn every_scheme_reaches_the_database() {
        let server = PostgresServer::builder().fsync(false).start().unwrap();
        let (tcp, unix) = (server.url().to_string(), server.unix_url().to_string());
        let mut highest = None;
        for url in [
            tcp.clone(),
            tcp.replacen("postgres:", "PostgreSQL:", 1),
            unix,
        ] {
            let leases = leases::connect(&url).await.unwrap();
            assert_eq!(leases.inspect("k").await.unwrap().high_water, highest);
            let lease = leases.lease("k").acquire().await.unwrap();
            highest = Some(lease.token());
            lease.release().await.unwrap();
            let promised = leases.guarantees().clone();
            let listed = leases::stores().into_iter().find(|s| s.name == "postgres");
            assert_eq!(
                listed.unwrap().availability,
                Availability::CompiledIn(Box::new(promised))
            );
        }
    }

    #[tokio::test]
    async fn its_gate_is_in_the_database_under_the_same_schema() {
        let server = PostgresServer::builder().fsync(false).start().unwrap();
        let url = server.url().to_string();
        let (key, token) = (Key::new("r").unwrap(), |n| Token::new(n).unwrap());
        let first = leases::open(&url).await.unwrap();
        first.gate().admit(&key, token(2)).await.unwrap();
        let second = leases::open(&url).await.unwrap();
        assert!(second.gate().admit(&key, token(1)).await.is_err());
        let with = if url.contains('?') { '&' } else { '?' };
        let other = leases::open(&format!("{url}{with}schema=other"))
            .await
            .unwrap();
        other.gate().admit(&key, token(1)).await.unwrap();
        assert_eq!(format!("{other:?}"), "Store { store: \"postgres\", .. }");
    }

    #[tokio::test]
    async fn who_is_refused_or_hears_nothing_is_told_so_and_no_secret() {
        let server = PostgresServer::builder().fsync(false).start().unwrap();
        let url = format!("postgres://app:hunter2@{}/app", server.address());
        let kind = |url: String| async move {
            match leases::open(&url).await.unwrap_err() {
                Error::Store(error) => {
                    let words = format!("{error} {error:?}");
                    assert!(!words.contains("hunter2"), "{words}");
                    error.kind()
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(kind(url.clone()).await, StoreErrorKind::Refusing);
        server.kill().unwrap();
        assert_eq!(kind(url.clone()).await, StoreErrorKind::Unavailable);
        // To be looked at later, it opens all the same.
        let store = leases::open_lazily(&url).await.unwrap();
        assert!(!format!("{store:?}").contains("hunter2"));
    }
}

#[cfg(feature = "nats")]
#[tokio::test]
async fn a_store_on_nats_opens_lazily_without_a_server() {
    let url = "nats://app:hunter2@127.0.0.1:1?response_timeout_ms=300";
    let store = leases::open_lazily(url).await.unwrap();
    assert!(!format!("{store:?}").contains("hunter2"));
    let queues = leases::open_queue_lazily(url).await.unwrap();
    let name = leases::queue::QueueName::new("jobs").unwrap();
    let error = queues.depth(&name).await.unwrap_err();
    assert_eq!(error.kind(), leases::StoreErrorKind::Unavailable);
    assert!(leases::open(url).await.is_err());
}

#[cfg(not(feature = "postgres"))]
#[tokio::test]
async fn without_its_feature_postgres_says_so() {
    for url in ["postgres://h/d", "postgresql://h/d"] {
        let words = refused(url).await;
        assert!(
            words.contains("turn on the cargo feature \"postgres\""),
            "{words}"
        );
    }
}

#[cfg(not(feature = "redis"))]
#[tokio::test]
async fn without_its_feature_redis_says_so() {
    for url in [
        "redis://h",
        "rediss://h",
        "unix:///s",
        "valkey+unix:///s",
        "redlock://h",
    ] {
        let words = refused(url).await;
        assert!(
            words.contains("turn on the cargo feature \"redis\""),
            "{words}"
        );
    }
}
