//! What many in one call come to, and what a call looks at.

use std::time::Duration;

use lease_core::{Key, LostCause};
use lease_postgres::sqlx::{AssertSqlSafe, PgConnection, query_scalar};
use lease_queue::postgres::PostgresQueues;
use lease_queue::{Added, NewItem, QueueStore as _, Settle, Settled};

use crate::support::{LONG, claim, connection, item, jobs, open, options, run, settle};

const AGAIN: Settle = Settle::Retry {
    delay: Duration::from_secs(3600),
    counts: true,
    error: None,
};

async fn count(db: &mut PgConnection, sql: String) -> i64 {
    query_scalar(AssertSqlSafe(sql))
        .fetch_one(db)
        .await
        .unwrap()
}

async fn until(db: &mut PgConnection, sql: &str, right: impl Fn(i64) -> bool) {
    let looks = async {
        while !right(count(db, sql.to_owned()).await) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, looks).await.unwrap();
}

#[tokio::test]
async fn each_end_of_many_in_one_call_is_by_itself() {
    let store = open("each_end").await;
    let under = NewItem {
        dedup: Some(Key::new("once").unwrap()),
        ..item(None, "under a key")
    };
    let mut all: Vec<_> = (0..9).map(|n| item(None, &n.to_string())).collect();
    all.extend([
        under.clone(),
        item(Some("g"), "first"),
        item(Some("g"), "second"),
    ]);
    store.put(&jobs(), &all).await.unwrap();
    let claimed = claim(&store, 20).await;
    // Of the group only the first, and all in the order of the puts.
    let bodies: Vec<_> = claimed.iter().map(|one| one.body.clone()).collect();
    let put: Vec<_> = all[..11].iter().map(|one| one.body.clone()).collect();
    assert_eq!(bodies, put);
    let one = |n: usize| claimed[n].claim.clone();
    assert_eq!(settle(&store, &one(0), AGAIN).await, Settled::Done);
    let mut foreign = one(1);
    foreign.owner = one(1).owner;
    foreign.token = one(1).token.next().unwrap();
    let bury = Settle::Bury {
        reason: "no".into(),
    };
    // An end for each: what is done, what was done before, what is another's, what is
    // named twice, and what somebody holds locked.
    let mut db = connection().await;
    run(&mut db, "BEGIN").await;
    let name = all[6].id;
    let lock = format!("SELECT FROM each_end.lease_queue_lanes WHERE name = '{name}' FOR UPDATE");
    run(&mut db, &lock).await;
    let ends = [
        (one(0), Settle::Complete),
        (foreign, Settle::Complete),
        (one(1), Settle::Complete),
        (one(2), AGAIN),
        (one(2), Settle::Complete),
        (one(3), Settle::Complete),
        (one(3), bury.clone()),
        (one(4), bury),
        (one(5), Settle::Complete),
        (one(5), Settle::Complete),
        (one(6), Settle::Complete),
        (one(9), Settle::Complete),
        (one(10), Settle::Complete),
    ];
    let (asked, mine) = (store.clone(), ends.clone());
    let asked = tokio::spawn(async move { asked.settle(&jobs(), &mine).await });
    let mut beside = connection().await;
    let left = format!(
        "SELECT count(*) FROM each_end.lease_queue_items WHERE id = '\\x{}'::bytea",
        all[10].id
    );
    // The others do not wait for it.
    until(&mut beside, &left, |left| left == 0).await;
    run(&mut db, "COMMIT").await;
    let told: Vec<_> = asked
        .await
        .unwrap()
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let lost = Settled::Lost(LostCause::Unknown);
    use Settled::{Before, Done};
    let right = [
        Before, lost, Done, Done, Before, Done, Before, Done, Done, Before, Done, Done, Done,
    ];
    assert_eq!(told, right);
    // What was completed is no more, and has left its record and its key.
    let depth = store.depth(&jobs()).await.unwrap();
    assert_eq!(
        (depth.ready, depth.delayed, depth.in_flight, depth.dead),
        (1, 2, 2, 1)
    );
    let again = NewItem {
        dedup: under.dedup.clone(),
        ..item(None, "another")
    };
    let added = store.put(&jobs(), &[under.clone(), again]).await.unwrap();
    assert_eq!(added[1], Added::Duplicate { of: under.id });
    // And once more all of what ends and nothing else, as a worker's does.
    let rest = [
        (one(7), Settle::Complete),
        (one(7), Settle::Complete),
        (one(0), Settle::Complete),
        (one(8), Settle::Complete),
    ];
    let told = store.settle(&jobs(), &rest).await;
    let told: Vec<_> = told.into_iter().map(Result::unwrap).collect();
    assert_eq!(told, [Done, Before, Before, Done]);
}

#[tokio::test]
async fn no_call_looks_through_more_than_it_names() {
    // Tables of which the server knows nothing yet but that they are empty.
    let options = options("looks").connections(1);
    let store = PostgresQueues::open(options).await.unwrap();
    let mut db = connection().await;
    run(
        &mut db,
        "ANALYZE looks.lease_queue_items, looks.lease_queue_settled",
    )
    .await;
    for _ in 0..10 {
        let all: Vec<_> = (0..50).map(|n| item(None, &n.to_string())).collect();
        store.put(&jobs(), &all).await.unwrap();
        for claimed in claim(&store, 20).await.chunks(4) {
            for one in &claimed[1..] {
                assert_eq!(
                    settle(&store, &one.claim, Settle::Complete).await,
                    Settled::Done
                );
            }
            let both = [(claimed[0].claim.clone(), Settle::Complete)];
            let both = [both.clone(), both].concat();
            store.settle(&jobs(), &both).await;
        }
    }
    drop(store);
    let looked = |of: &str, what: &str| {
        format!(
            "SELECT coalesce(sum({what}), 0)::bigint FROM pg_stat_user_indexes \
             WHERE schemaname = 'looks' AND indexrelname LIKE 'lease_queue_{of}'"
        )
    };
    // As its connection ends it says what it did.
    until(&mut db, &looked("items_pkey", "idx_scan"), |all| all >= 500).await;
    for index in ["items_seq", "settled_t", "tombs_t", "dedup_t"] {
        assert_eq!(
            count(&mut db, looked(index, "idx_tup_read")).await,
            0,
            "{index}"
        );
    }
}
