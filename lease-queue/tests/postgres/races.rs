//! Many clients at once, crashes, and calls that are given up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_conformance::servers::postgres::PostgresServer;
use lease_queue::postgres::PostgresQueues;
use lease_queue::{Answer, QueueStore as _, Settle, Settled};

use crate::support::{
    LONG, claim, item, jobs, next, open, options, options_at, owner, server, settle,
};

const CLIENTS: usize = 16;
const GROUPS: usize = 50;
const EACH: usize = 6;

/// Which groups are owned, and what was completed of each.
#[derive(Default)]
struct Seen {
    owned: HashMap<String, ()>,
    done: HashMap<String, Vec<usize>>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_clients_never_own_a_group_together_and_keep_its_order() {
    let store = open("race").await;
    for n in 0..EACH {
        let items: Vec<_> = (0..GROUPS)
            .map(|group| item(Some(&format!("g{group}")), &format!("{group} {n}")))
            .collect();
        store.put(&jobs(), &items).await.unwrap();
    }
    let seen = Arc::new(Mutex::new(Seen::default()));
    let workers = (0..CLIENTS).map(|number| {
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            let mine = PostgresQueues::open(options("race").connections(1))
                .await
                .unwrap();
            while seen
                .lock()
                .unwrap()
                .done
                .values()
                .map(Vec::len)
                .sum::<usize>()
                < GROUPS * EACH
            {
                for claimed in claim(&mine, 1 + number % 4).await {
                    let text = String::from_utf8(claimed.body.to_vec()).unwrap();
                    let (group, n) = text.split_once(' ').unwrap();
                    let before = seen.lock().unwrap().owned.insert(group.to_owned(), ());
                    assert!(before.is_none(), "group {group} has two owners");
                    tokio::task::yield_now().await;
                    {
                        let mut seen = seen.lock().unwrap();
                        seen.owned.remove(group);
                        let done = seen.done.entry(group.to_owned()).or_default();
                        done.push(n.parse().unwrap());
                    }
                    let settled = settle(&mine, &claimed.claim, Settle::Complete).await;
                    assert_eq!(settled, Settled::Done);
                }
                tokio::task::yield_now().await;
            }
        })
    });
    let all = futures_util::future::join_all(workers);
    for worker in tokio::time::timeout(LONG, all).await.unwrap() {
        worker.unwrap();
    }
    let done = std::mem::take(&mut seen.lock().unwrap().done);
    assert_eq!(done.len(), GROUPS);
    for (group, done) in &done {
        assert_eq!(*done, (0..EACH).collect::<Vec<_>>(), "group {group}");
    }
    assert_eq!(store.depth(&jobs()).await.unwrap().in_flight, 0);
}

#[tokio::test]
async fn items_stay_and_tokens_rise_over_a_kill() {
    let server = PostgresServer::builder().start().unwrap();
    let store = PostgresQueues::open(options_at(&server, "killed"))
        .await
        .unwrap();
    let items = [
        item(Some("g"), "one"),
        item(Some("g"), "two"),
        item(None, "three"),
    ];
    store.put(&jobs(), &items).await.unwrap();
    let before = claim(&store, 2).await;
    assert_eq!(before.len(), 2);
    for claimed in &before {
        let back = Settle::Retry {
            delay: Duration::ZERO,
            counts: true,
            error: Some("once more".to_owned()),
        };
        assert_eq!(settle(&store, &claimed.claim, back).await, Settled::Done);
    }
    // That is on the disk before the next answer.
    store.put(&jobs(), &[item(None, "four")]).await.unwrap();
    server.kill().unwrap();
    server.start().unwrap();
    let after = loop {
        let request = next(owner(), 8, LONG);
        match store.claim(&jobs(), &request).await {
            Ok(Answer::Claimed { items, .. }) => break items,
            Ok(other) => panic!("{other:?}"),
            // Its connection was the killed server's.
            Err(_) => store.abandon(&jobs(), None, request.owner).await.unwrap(),
        }
    };
    assert_eq!(after.len(), 3);
    for old in before {
        let new = after
            .iter()
            .find(|new| new.claim.item == old.claim.item)
            .unwrap();
        assert!(new.claim.token > old.claim.token);
        assert_eq!(new.attempt, old.attempt + 1);
    }
}

#[tokio::test]
async fn claims_that_were_given_up_are_free_and_their_connections_used_again() {
    let store = open("dropped").await;
    let items: Vec<_> = (0..20).map(|n| item(None, &n.to_string())).collect();
    store.put(&jobs(), &items).await.unwrap();
    for n in 0..60_u64 {
        let request = next(owner(), 5, LONG);
        let limit = Duration::from_micros(n * 50);
        let queue = jobs();
        let given_up = tokio::time::timeout(limit, store.claim(&queue, &request)).await;
        drop(given_up);
        store.abandon(&jobs(), None, request.owner).await.unwrap();
        assert!(matches!(
            store.claim(&jobs(), &request).await.unwrap(),
            Answer::Refused(_)
        ));
    }
    let depth = store.depth(&jobs()).await.unwrap();
    assert_eq!((depth.ready, depth.in_flight), (20, 0));
    let all = claim(&store, 50).await;
    assert!(all.iter().all(|one| one.attempt == 1), "none was counted");
    let sessions = server().sql(
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%\"dropped\"%' \
         AND pid <> pg_backend_pid()",
    );
    let sessions = sessions.unwrap().integer().unwrap();
    assert!(sessions <= 6, "{sessions} sessions of one client");
}
