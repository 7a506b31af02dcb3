//! Odd names.

use lease_conformance::servers::redis::RedisServer;
use lease_core::Key;
use lease_queue::{Lane, QueueStore, Settle, Settled};

use crate::support::{item, name, next, of_key, one, put, queues, retry};

const ODD: [&str; 14] = [
    "a", "{}", "{a}", "}{", "%7B", "%", ":", "a:k:a", "a}:m:", "a b", "*", "😀", "k:a", "[x]?",
];

#[tokio::test]
async fn odd_names_never_share_state() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let mut claims = Vec::new();
    for queue in ODD {
        let queue = name(queue);
        for of in ODD {
            let body = format!("{queue} {of}");
            put(&store, &queue, &[item(&body, Some(of))]).await;
            let held = one(store.claim(&queue, &of_key(of, 600_000)).await.unwrap());
            claims.push((queue.clone(), held.claim, retry()));
        }
        for of in ODD {
            let claimed = one(store.claim(&queue, &next(1, 600_000)).await.unwrap());
            assert_eq!(claimed.claim.lane, Lane::Group(Key::new(of).unwrap()));
            assert_eq!(&claimed.body[..], format!("{queue} {of}").as_bytes());
            claims.push((queue.clone(), claimed.claim, Settle::Complete));
        }
    }
    for (queue, claim, settle) in claims {
        let settled = store.settle(&queue, &[(claim, settle)]).await;
        assert_eq!(settled[0].clone().unwrap(), Settled::Done);
    }
}

#[tokio::test]
async fn the_names_are_as_ever() {
    // Golden: programs of different versions must exclude each other.
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("a{b%");
    let mut new = item("work", Some("g:h"));
    new.dedup = Some(Key::new("u v").unwrap());
    put(&store, &queue, &[new.clone()]).await;
    let request = next(1, 60_000);
    one(store.claim(&queue, &request).await.unwrap());
    let key = of_key("k}", 60_000);
    one(store.claim(&queue, &key).await.unwrap());
    store
        .abandon(&queue, None, lease_core::Owner::from_bytes([0xfe; 16]))
        .await
        .unwrap();
    let all = crate::support::everything(&server, "");
    let names: Vec<_> = all.into_iter().map(|(name, _)| name).collect();
    let base = "leases:queue:{a%7Bb%25}";
    let mut expected = vec![
        base.to_owned(),
        format!("{base}:due"),
        format!("{base}:g:g:h"),
        format!("{base}:k:k}}"),
        format!("{base}:keys"),
        format!("{base}:l:g:h"),
        format!("{base}:living"),
        format!("{base}:m:{}", new.id),
        format!("{base}:n"),
        format!("{base}:o:{}", key.owner),
        format!("{base}:owners"),
        format!("{base}:t:{}", "fe".repeat(16)),
        format!("{base}:u:u v"),
    ];
    expected.sort_unstable();
    assert_eq!(names, expected);
}
