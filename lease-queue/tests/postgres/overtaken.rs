//! Requests that others overtake, by transactions that are held open at the worst place.

use std::time::Duration;

use lease_postgres::sqlx::{AssertSqlSafe, Connection as _, PgConnection, raw_sql};
use lease_queue::{Added, Answer, NewItem, QueueStore as _, Settle, Settled};

use crate::support::{LONG, claim, connection, item, jobs, next, open, owner, run, server, settle};

/// Somebody's transaction that has put the item, claimed and completed it, and is not
/// over.
async fn completes(schema: &str, item: &NewItem, put: &str) -> PgConnection {
    let mut db = connection().await;
    let (id, hex) = (format!("'\\x{}'::bytea", item.id), item.id.to_string());
    let names = ["put", "claim", "settle", "requeue"];
    let [put_fn, claim_fn, settle_fn, requeue_fn] =
        names.map(|name| format!("\"{schema}\".lease_queue_{name}"));
    let begins = match put {
        "put" => format!(
            "SELECT {put_fn}('jobs', ARRAY[{id}], ARRAY[''::bytea], ARRAY[NULL::text],
                ARRAY[NULL::text], ARRAY[0::bigint])"
        ),
        _ => format!("SELECT {requeue_fn}('jobs', {id})"),
    };
    let sql = format!(
        "BEGIN; {begins};
         DO $$ DECLARE c record; s record; BEGIN
            SELECT * INTO c FROM {claim_fn}('jobs', ARRAY['\\x0101'::bytea], ARRAY[1::bigint],
                ARRAY[60000000::bigint], ARRAY[''], ARRAY[1]);
            IF c.o_item IS DISTINCT FROM {id} THEN RAISE EXCEPTION 'claimed %', c; END IF;
            SELECT * INTO s FROM {settle_fn}('jobs', ARRAY[1::smallint], ARRAY['{hex}'],
                ARRAY[{id}], ARRAY['\\x0101'::bytea], ARRAY[c.o_token], ARRAY[1::smallint],
                ARRAY[0::bigint], ARRAY[true], ARRAY[NULL::text], 600000000);
            IF s.o_code <> 1 THEN RAISE EXCEPTION 'settled %', s; END IF;
         END $$;"
    );
    run(&mut db, &sql).await;
    db
}

/// Until somebody in this schema waits for a transaction of somebody else's.
async fn until_somebody_waits(schema: &str) {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
            AND query LIKE '%\"{schema}\"%' AND pid <> pg_backend_pid()"
    );
    let waits = async {
        while server().sql(&sql).unwrap().integer() == Some(0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, waits).await.unwrap();
}

async fn commit(mut db: PgConnection) {
    raw_sql(AssertSqlSafe("COMMIT"))
        .execute(&mut db)
        .await
        .unwrap();
    db.close().await.unwrap();
}

#[tokio::test]
async fn a_put_that_the_completion_of_its_copy_overtakes_adds_nothing() {
    let store = open("overtaken").await;
    let work = item(None, "work");
    let copy = completes("overtaken", &work, "put").await;
    let slow = {
        let (store, work) = (store.clone(), work.clone());
        tokio::spawn(async move { store.put(&jobs(), &[work]).await })
    };
    until_somebody_waits("overtaken").await;
    commit(copy).await;
    assert_eq!(slow.await.unwrap().unwrap(), [Added::Added]);
    assert!(claim(&store, 5).await.is_empty(), "it was done once");
    assert_eq!(store.depth(&jobs()).await.unwrap().ready, 0);
}

#[tokio::test]
async fn a_requeue_that_a_completion_overtakes_leaves_nothing_behind() {
    let store = open("requeued").await;
    let work = item(None, "work");
    store
        .put(&jobs(), std::slice::from_ref(&work))
        .await
        .unwrap();
    let first = claim(&store, 1).await.remove(0);
    let bury = Settle::Bury {
        reason: "no".to_owned(),
    };
    assert_eq!(settle(&store, &first.claim, bury).await, Settled::Done);
    let other = completes("requeued", &work, "requeue").await;
    let slow = {
        let (store, id) = (store.clone(), work.id);
        tokio::spawn(async move { store.requeue(&jobs(), id).await })
    };
    until_somebody_waits("requeued").await;
    commit(other).await;
    assert!(!slow.await.unwrap().unwrap(), "it is not dead any more");
    let lanes = server()
        .sql("SELECT count(*) FROM \"requeued\".lease_queue_lanes")
        .unwrap();
    assert_eq!(lanes.integer(), Some(0), "a lane without its item");
}

#[tokio::test]
async fn a_lane_whose_tokens_are_used_up_is_in_nobodys_way() {
    let store = open("used_up").await;
    let all: Vec<_> = (0..3).map(|n| item(None, &n.to_string())).collect();
    store.put(&jobs(), &all).await.unwrap();
    let mut db = connection().await;
    let stuck = format!(
        "UPDATE used_up.lease_queue_lanes SET mark = 9007199254740991 WHERE name = '{}'",
        all[0].id
    );
    run(&mut db, &stuck).await;
    for expected in &all[1..] {
        let claimed = claim(&store, 1).await;
        assert_eq!(claimed[0].claim.item, expected.id);
    }
    // It is not asked about in a hurry, and told of when it is.
    let request = next(owner(), 1, LONG);
    let answer = store.claim(&jobs(), &request).await.unwrap();
    assert!(
        matches!(answer, Answer::Nothing { next: Some(_) }),
        "{answer:?}"
    );
    run(&mut db, "UPDATE used_up.lease_queue_lanes SET next_us = 1").await;
    let answer = store.claim(&jobs(), &request).await.unwrap();
    assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
}
