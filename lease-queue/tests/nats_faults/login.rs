//! Who is known by a key, and a store that connects at its first use.

use std::path::Path;

use lease_conformance::servers::nats::NatsServer;
use lease_core::{LeaseBackend, StoreError, StoreErrorKind};
use lease_queue::nats::NatsOptions;
use lease_queue::{KeyedLeases, QueueName, QueueStore};

use crate::{ask, granted};

// The pair of the documentation of NATS: nobody's.
const USER: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

fn server() -> NatsServer {
    let users = format!("authorization {{ users = [ {{ nkey: {USER} }} ] }}");
    NatsServer::builder().config(&users).start().unwrap()
}

async fn opened(server: &NatsServer, option: &str, file: &Path) -> Result<(), StoreError> {
    let url = format!("{}?{option}={}", server.url(), file.display());
    let options = NatsOptions::from_url(&url).unwrap();
    assert!(!format!("{options:?}").contains("key.file"), "{options:?}");
    options.open().await.map(drop)
}

#[tokio::test]
async fn a_user_comes_by_the_seed_of_a_key() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.file");
    std::fs::write(&file, format!("{SEED}\n")).unwrap();
    opened(&server, "nkey", &file).await.unwrap();
}

#[tokio::test]
async fn a_file_that_proves_nothing_is_told_of_without_its_secrets() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.file");
    // Not there, and a folder.
    for (option, path) in [
        ("nkey", &*file),
        ("creds", &*file),
        ("creds", folder.path()),
    ] {
        let error = opened(&server, option, path).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
        assert!(error.to_string().contains("cannot be read"), "{error}");
    }
    // The last one is well formed, and its checksum is not right.
    let wrong = SEED.replace("HUDX", "HUDY");
    let credentials = format!("-----BEGIN USER NKEY SEED-----\n{SEED}\n------END-----\n");
    let files = [
        ("nkey", String::new()),
        ("nkey", format!("{SEED}{SEED}")),
        ("nkey", credentials.clone()),
        ("creds", SEED.to_owned()),
        ("creds", credentials),
        ("creds", "\0".repeat(100)),
        ("nkey", wrong),
    ];
    for (option, text) in files {
        std::fs::write(&file, &text).unwrap();
        let error = opened(&server, option, &file).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
        let words = format!("{error} {error:?}");
        assert!(!words.contains("SUACSSL3UAH"), "{words}");
        assert!(!words.contains(folder.path().to_str().unwrap()), "{words}");
    }
}

#[tokio::test]
async fn a_store_that_is_opened_lazily_connects_at_its_first_use() {
    let server = NatsServer::builder().start().unwrap();
    server.kill().unwrap();
    let url = format!("{}?response_timeout_ms=600", server.url());
    let store = NatsOptions::from_url(&url).unwrap().open_lazily().unwrap();
    let leases = KeyedLeases::new(
        std::sync::Arc::new(store.clone()),
        QueueName::new("locks").unwrap(),
    );
    let request = ask("lazy", 10_000);
    let error = leases.acquire(&request).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    server.start().unwrap();
    assert!(granted(&leases, &request).await.is_some());
    let claims = store.capabilities().guarantees;
    assert_eq!(claims, leases.guarantees());
    let bad = format!("{}?replicas=2", server.url());
    let error = NatsOptions::from_url(&bad).unwrap().open_lazily();
    assert_eq!(error.unwrap_err().kind(), StoreErrorKind::InvalidInput);
}
