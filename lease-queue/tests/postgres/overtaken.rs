//! Requests that others overtake, by transactions that are held open at the worst place.

use std::time::Duration;

use lease_conformance::servers::postgres::PostgresServer;
use lease_core::Key;
use lease_postgres::sqlx::{AssertSqlSafe, Connection as _, PgConnection, raw_sql};
use lease_queue::postgres::PostgresQueues;
use lease_queue::{Added, Answer, NewItem, QueueStore as _, Settle, Settled};

use crate::support::{
    LONG, claim, connection, item, jobs, next, open, options_at, owner, run, server, settle,
};

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
    until_some_wait(server(), schema, 1).await;
}

async fn until_some_wait(server: &PostgresServer, schema: &str, some: i64) {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
            AND query LIKE '%\"{schema}\"%' AND pid <> pg_backend_pid()"
    );
    let waits = async {
        while server.sql(&sql).unwrap().integer() < Some(some) {
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

fn under(key: &str) -> NewItem {
    let mut item = item(None, key);
    item.dedup = Some(Key::new(key).unwrap());
    item
}

#[tokio::test]
async fn a_put_under_keys_that_are_in_use_does_not_wait_for_their_completion() {
    let store = open("in_use").await;
    let [a, b] = [under("a"), under("b")];
    store.put(&jobs(), &[a.clone(), b.clone()]).await.unwrap();
    let claimed = claim(&store, 2).await;
    assert_eq!([claimed[0].claim.item, claimed[1].claim.item], [a.id, b.id]);
    let mut db = connection().await;
    let keeps = format!(
        "BEGIN; SELECT FROM in_use.lease_queue_items WHERE id = '\\x{}' FOR UPDATE",
        b.id
    );
    run(&mut db, &keeps).await;
    // One is complete, but for the commit, and the other waits.
    let completes = {
        let store = store.clone();
        let all = claimed.into_iter().map(|one| (one.claim, Settle::Complete));
        let all: Vec<_> = all.collect();
        tokio::spawn(async move { store.settle(&jobs(), &all).await })
    };
    until_somebody_waits("in_use").await;
    let again = [under("b"), under("a")];
    let added = store.put(&jobs(), &again).await.unwrap();
    let [of_a, of_b] = [a.id, b.id].map(|of| Added::Duplicate { of });
    assert_eq!(added, [of_b, of_a]);
    assert!(!completes.is_finished());
    commit(db).await;
    for settled in completes.await.unwrap() {
        assert_eq!(settled.unwrap(), Settled::Done);
    }
    assert!(claim(&store, 5).await.is_empty());
}

#[tokio::test]
async fn puts_under_the_same_keys_in_any_order_do_not_wait_for_each_other() {
    // A deadlock would outlast the requests.
    let server = PostgresServer::builder()
        .fsync(false)
        .config("deadlock_timeout", "10min")
        .start()
        .unwrap();
    let store = PostgresQueues::open(options_at(&server, "same"))
        .await
        .unwrap();
    let mut db = PgConnection::connect(&server.url().to_string())
        .await
        .unwrap();
    run(
        &mut db,
        "BEGIN; INSERT INTO same.lease_queue_dedup (queue, key, item, until_us)
            VALUES ('jobs', 'm', '\\x00', 9223372036854775807)",
    )
    .await;
    let put = |keys: &[&str]| {
        let (store, items) = (store.clone(), keys.iter().map(|key| under(key)));
        let items: Vec<_> = items.collect();
        tokio::spawn(async move { store.put(&jobs(), &items).await })
    };
    let first = put(&["z", "m", "a"]);
    until_some_wait(&server, "same", 1).await;
    let second = put(&["a", "z"]);
    until_some_wait(&server, "same", 2).await;
    run(&mut db, "ROLLBACK").await;
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(first.unwrap(), [Added::Added; 3]);
    let second = second.unwrap();
    let others = |added: &Added| matches!(added, Added::Duplicate { .. });
    assert!(second.iter().all(others), "{second:?}");
    // In the order in which they were put.
    let bodies: Vec<_> = claim(&store, 5).await.into_iter().map(|c| c.body).collect();
    assert_eq!(bodies, ["z", "m", "a"]);
}
