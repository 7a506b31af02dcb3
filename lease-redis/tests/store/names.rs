//! Keys that look like names, patterns and hash tags.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use lease_core::{AcquireOutcome, LeaseBackend};

use crate::support::*;

const KEYS: &[&str] = &[
    "a", "{a}", "{a", "a}", "}{", "{}", "%7Ba%7D", "%", "%25", "a:b", "a}:b", "birth", "gate:{a}",
    "a*", "a?", "[a]", "\\", "é", "e\u{301}", "😀", " ", "a ", "'", "\"",
];

#[tokio::test]
async fn every_key_has_its_own_record_and_is_listed_by_its_prefixes() {
    let server = plain();
    let store = store(&server).await;
    for name in KEYS {
        granted(store.acquire(&request(name, 60_000)).await.unwrap());
    }
    for name in KEYS {
        let held = store.acquire(&request(name, 60_000)).await.unwrap();
        assert!(matches!(held, AcquireOutcome::Held(_)), "{name}");
    }
    // And the birth marker.
    assert_eq!(keys(&server), KEYS.len() as i64 + 1);
    let prefixes = KEYS.iter().copied().chain(["", "a", "{", "%", "a}:", "A"]);
    for prefix in prefixes {
        let listed: Vec<_> = store.list(prefix).collect().await;
        let listed: Vec<_> = listed.into_iter().map(|one| one.unwrap().key).collect();
        let due = KEYS.iter().filter(|name| name.starts_with(prefix));
        let due: BTreeSet<_> = due.map(|name| key(name)).collect();
        assert_eq!(
            listed.iter().cloned().collect::<BTreeSet<_>>(),
            due,
            "{prefix}"
        );
        assert_eq!(listed.len(), due.len(), "{prefix}");
    }
}

#[tokio::test]
async fn prefixes_and_databases_keep_stores_apart() {
    let server = plain();
    let mut urls = vec![server.url(), server.url().db(3)];
    urls.push(server.url());
    let prefixes = ["leases", "leases", "leases:{a}"];
    for (url, prefix) in urls.iter().zip(prefixes) {
        let Ok(options) = options(url).prefix(prefix) else {
            assert!(prefix.contains('{'));
            continue;
        };
        let store = options.open().await.unwrap();
        granted(store.acquire(&request("a", 60_000)).await.unwrap());
        let listed: Vec<_> = store.list("").collect().await;
        assert_eq!(listed.len(), 1);
    }
    let glob = options(&server.url()).prefix("lea*").unwrap();
    let glob = glob.open().await.unwrap();
    assert_eq!(glob.list("").collect::<Vec<_>>().await.len(), 0);
}
