//! A server that is killed while it works.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use lease_core::Token;
use lease_queue::{Answer, ItemId, QueueStore, Settle, Settled};

use crate::support::{PATIENCE, durable, item, name, next, of_key, persist, put, queues};

/// Puts, claims and completes while the server dies again and again: what was answered
/// holds, and tokens rise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_outlives_kills() {
    let server = std::sync::Arc::new(durable());
    let store = queues(&server).await;
    let queue = name("jobs");
    let killer = {
        let server = std::sync::Arc::clone(&server);
        tokio::task::spawn_blocking(move || {
            for _ in 0..4 {
                std::thread::sleep(Duration::from_millis(150));
                server.kill().unwrap();
                server.start().unwrap();
            }
        })
    };
    let (mut put_ids, mut completed) = (HashSet::new(), HashSet::new());
    let mut tokens: HashMap<ItemId, Token> = HashMap::new();
    let mut key_token = None;
    while !killer.is_finished() || put_ids.len() < 50 {
        let new = item("work", Some(&format!("g{}", put_ids.len() % 7)));
        persist(|| store.put(&queue, std::slice::from_ref(&new))).await;
        put_ids.insert(new.id);

        let request = of_key("key", 60_000);
        let answer = persist(|| store.claim(&queue, &request)).await;
        let Answer::Claimed { items, .. } = answer else {
            panic!("{answer:?}");
        };
        let token = items[0].claim.token;
        assert!(key_token.is_none_or(|before| token > before));
        key_token = Some(token);
        persist(|| store.abandon(&queue, None, request.owner)).await;

        // An answer that is lost takes its items with it: they are given up.
        let request = next(2, 60_000);
        let answer = match store.claim(&queue, &request).await {
            Ok(answer) => answer,
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                persist(|| store.abandon(&queue, None, request.owner)).await;
                continue;
            }
        };
        let Answer::Claimed { items, .. } = answer else {
            continue;
        };
        for claimed in items {
            let claim = claimed.claim;
            assert!(!completed.contains(&claim.item), "completed twice");
            let before = tokens.insert(claim.item, claim.token);
            assert!(before.is_none_or(|before| claim.token > before));
            let settle = [(claim.clone(), Settle::Complete)];
            let settled = persist(async || store.settle(&queue, &settle).await.remove(0)).await;
            assert!(
                matches!(settled, Settled::Done | Settled::Before),
                "{settled:?}"
            );
            completed.insert(claim.item);
        }
    }
    killer.await.unwrap();
    let left: Vec<_> = persist(|| store.items(&queue, false).try_collect::<Vec<_>>()).await;
    let left: HashSet<_> = left.into_iter().map(|state| state.id).collect();
    assert_eq!(&put_ids - &completed, left);
}

#[tokio::test]
async fn a_killed_clients_items_come_back_at_their_expiry() {
    let server = durable();
    let queue = name("jobs");
    let store = queues(&server).await;
    put(&store, &queue, &[item("work", None)]).await;
    let crashed = queues(&server).await;
    crashed.claim(&queue, &next(1, 300)).await.unwrap();
    drop(crashed);
    server.kill().unwrap();
    server.start().unwrap();
    let started = Instant::now();
    let claimed = loop {
        let request = next(1, 60_000);
        match persist(|| store.claim(&queue, &request)).await {
            Answer::Claimed { mut items, .. } => break items.remove(0),
            Answer::Nothing { next } => {
                assert!(next.is_some() && started.elapsed() < PATIENCE);
                tokio::time::sleep(next.unwrap()).await;
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(claimed.attempt, 2);
}
