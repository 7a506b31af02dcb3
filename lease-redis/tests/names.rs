//! The names inside the server are as ever: programs of different versions must
//! exclude each other.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use lease_conformance::servers::redis::{RedisServer, Reply};
use lease_core::{AcquireRequest, Gate, Key, Label, LeaseBackend, Owner, Token, TokenRule, Ttl};
use lease_redis::RedisOptions;

#[tokio::test]
async fn what_a_store_leaves_behind_has_these_names() {
    let server = RedisServer::builder().start().unwrap();
    let options = RedisOptions::from_url(&server.url().to_string()).unwrap();
    let store = options.prefix("p").unwrap().open().await.unwrap();
    let key = Key::new("a{b%").unwrap();
    let request = AcquireRequest {
        key: key.clone(),
        owner: Owner::from_bytes([0x0a; 16]),
        ttl: Ttl::new(Duration::from_secs(60)).unwrap(),
        label: Label::new("me").unwrap(),
        rule: TokenRule::NEXT,
        waits: None,
    };
    store.acquire(&request).await.unwrap();
    let other = Owner::from_bytes([0xfe; 16]);
    store.abandon(&key, other).await.unwrap();
    store.admit(&key, Token::MIN).await.unwrap();

    let Reply::List(names) = server.command(&["KEYS", "*"]).unwrap() else {
        panic!("no list of names");
    };
    let mut names: Vec<_> = names.iter().map(|name| name.text().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "p:birth",
            "p:gate:{a%7Bb%25}",
            "p:{a%7Bb%25}",
            "p:{a%7Bb%25}:fefefefefefefefefefefefefefefefe",
        ]
    );
    // Only the record and the tombstone end by themselves.
    let lasts = |name: &str| server.command(&["TTL", name]).unwrap() == Reply::Integer(-1);
    let for_ever: Vec<_> = names.into_iter().filter(|name| lasts(name)).collect();
    assert_eq!(for_ever, ["p:birth", "p:gate:{a%7Bb%25}"]);
}
