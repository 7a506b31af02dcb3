//! Completing an item inside a transaction of the user's own.

use std::time::Duration;

use lease_core::{LostCause, StoreErrorKind};
use lease_postgres::must_begin_again;
use lease_postgres::sqlx::{Connection as _, PgConnection, query, query_scalar};
use lease_queue::{Answer, QueueStore as _, Settle, Settled};

use crate::support::{claim, connection, item, jobs, next, open, owner, run, settle};

async fn ledger(db: &mut PgConnection, name: &str) {
    run(db, &format!("CREATE TABLE public.{name} (n integer)")).await;
}

#[tokio::test]
async fn an_item_and_its_effect_commit_together_or_not_at_all() {
    let store = open("together").await;
    let mut db = connection().await;
    ledger(&mut db, "together").await;
    store
        .put(&jobs(), &[item(Some("g"), "1"), item(Some("g"), "2")])
        .await
        .unwrap();
    let first = claim(&store, 1).await.remove(0);

    let mut tx = db.begin().await.unwrap();
    let done = store
        .complete_in(&mut tx, &jobs(), &first.claim)
        .await
        .unwrap();
    assert_eq!(done, Settled::Done);
    query("INSERT INTO public.together VALUES (1)")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.rollback().await.unwrap();
    let more = settle(&store, &first.claim, Settle::Extend(lease_core::Ttl::MIN)).await;
    assert_eq!(more, Settled::Done, "it is still claimed");
    assert!(claim(&store, 1).await.is_empty());

    let mut tx = db.begin().await.unwrap();
    store
        .complete_in(&mut tx, &jobs(), &first.claim)
        .await
        .unwrap();
    query("INSERT INTO public.together VALUES (1)")
        .execute(&mut *tx)
        .await
        .unwrap();
    assert!(
        claim(&store, 1).await.is_empty(),
        "it is not done before the commit"
    );
    tx.commit().await.unwrap();
    let second = claim(&store, 1).await.remove(0);
    assert_eq!(&*second.body, b"2");
    assert_eq!(
        settle(&store, &first.claim, Settle::Complete).await,
        Settled::Before
    );
    let rows: i64 = query_scalar("SELECT count(*) FROM public.together")
        .fetch_one(&mut db)
        .await
        .unwrap();
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn a_late_worker_cannot_commit() {
    let store = open("late").await;
    let mut db = connection().await;
    store.put(&jobs(), &[item(None, "1")]).await.unwrap();
    let short = Duration::from_millis(60);
    let Answer::Claimed { items, .. } = store
        .claim(&jobs(), &next(owner(), 1, short))
        .await
        .unwrap()
    else {
        panic!("it is ready")
    };
    let late = &items[0].claim;
    let other = loop {
        if let Some(other) = claim(&store, 1).await.pop() {
            break other;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let mut tx = db.begin().await.unwrap();
    let lost = store.complete_in(&mut tx, &jobs(), late).await.unwrap();
    assert_eq!(lost, Settled::Lost(LostCause::TakenOver));
    assert!(
        query("SELECT 1").execute(&mut *tx).await.is_err(),
        "nothing more can be done in it"
    );
    tx.rollback().await.unwrap();
    assert_eq!(
        settle(&store, &other.claim, Settle::Complete).await,
        Settled::Done
    );
}

#[tokio::test]
async fn nobody_takes_over_while_the_transaction_is_open_even_after_the_ttl() {
    let store = open("kept").await;
    let mut db = connection().await;
    store.put(&jobs(), &[item(None, "1")]).await.unwrap();
    let ttl = Duration::from_millis(500);
    let request = next(owner(), 1, ttl);
    let Answer::Claimed { items, .. } = store.claim(&jobs(), &request).await.unwrap() else {
        panic!("it is ready")
    };
    let mut tx = db.begin().await.unwrap();
    store
        .complete_in(&mut tx, &jobs(), &items[0].claim)
        .await
        .unwrap();
    let over = tokio::time::Instant::now() + ttl + Duration::from_millis(50);
    while tokio::time::Instant::now() < over {
        assert!(claim(&store, 1).await.is_empty());
    }
    tx.commit().await.unwrap();
    assert!(claim(&store, 1).await.is_empty());
    assert_eq!(
        store.depth(&jobs()).await.unwrap(),
        lease_queue::Depth::default()
    );
}

#[tokio::test]
async fn outside_of_a_transaction_it_is_refused_and_nothing_is_done() {
    let store = open("outside").await;
    let mut db = connection().await;
    store.put(&jobs(), &[item(None, "1")]).await.unwrap();
    let mine = claim(&store, 1).await.remove(0);
    let error = store
        .complete_in(&mut db, &jobs(), &mine.claim)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::InvalidInput);
    assert_eq!(
        settle(&store, &mine.claim, Settle::Complete).await,
        Settled::Done
    );
}

/// A snapshot of a whole transaction's may not show what was put since.
#[tokio::test]
async fn an_item_that_was_put_behind_a_serializable_completion_is_not_lost() {
    let store = open("serial").await;
    let mut db = connection().await;
    store.put(&jobs(), &[item(Some("g"), "1")]).await.unwrap();
    let first = claim(&store, 1).await.remove(0);
    let mut tx = db.begin().await.unwrap();
    run(&mut tx, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").await;
    query("SELECT count(*) FROM pg_class")
        .execute(&mut *tx)
        .await
        .unwrap();
    store.put(&jobs(), &[item(Some("g"), "2")]).await.unwrap();
    let done = match store.complete_in(&mut tx, &jobs(), &first.claim).await {
        Ok(settled) => {
            assert_eq!(settled, Settled::Done);
            tx.commit().await
        }
        Err(error) => {
            assert!(must_begin_again(&error), "{error}");
            tx.rollback().await
        }
    };
    done.unwrap();
    settle(&store, &first.claim, Settle::Complete).await;
    let second = claim(&store, 1).await.remove(0);
    assert_eq!(&*second.body, b"2");
}

#[tokio::test]
async fn a_claim_that_a_snapshot_does_not_show_is_not_called_lost() {
    let store = open("older").await;
    let mut db = connection().await;
    let mut tx = db.begin().await.unwrap();
    run(&mut tx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await;
    run(&mut tx, "SELECT count(*) FROM pg_class").await;
    store.put(&jobs(), &[item(None, "1")]).await.unwrap();
    let mine = claim(&store, 1).await.remove(0);
    let error = store.complete_in(&mut tx, &jobs(), &mine.claim).await;
    let error = error.unwrap_err();
    assert!(must_begin_again(&error), "{error}");
    tx.rollback().await.unwrap();
    assert_eq!(
        settle(&store, &mine.claim, Settle::Complete).await,
        Settled::Done
    );
}

/// A put into several groups holds none of them while it waits for another.
#[tokio::test]
async fn a_put_that_waits_for_one_group_keeps_no_other_from_its_owner() {
    let store = open("waits").await;
    let mut db = connection().await;
    store
        .put(&jobs(), &[item(Some("a"), "1"), item(Some("b"), "1")])
        .await
        .unwrap();
    let claims = claim(&store, 2).await;
    let of = |group| {
        let group = lease_core::Key::new(group).unwrap();
        let lane = lease_queue::Lane::Group(group);
        &claims.iter().find(|c| c.claim.lane == lane).unwrap().claim
    };
    let mut tx = db.begin().await.unwrap();
    store.complete_in(&mut tx, &jobs(), of("b")).await.unwrap();
    let both = [item(Some("a"), "2"), item(Some("b"), "2")];
    let putting = {
        let store = store.clone();
        tokio::spawn(async move { store.put(&jobs(), &both).await })
    };
    // Most of these come while the put waits.
    for _ in 0..40 {
        let more = Settle::Extend(lease_core::Ttl::MIN);
        assert_eq!(settle(&store, of("a"), more).await, Settled::Done);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!putting.is_finished());
    tx.commit().await.unwrap();
    putting.await.unwrap().unwrap();
    assert_eq!(
        settle(&store, of("a"), Settle::Complete).await,
        Settled::Done
    );
    assert_eq!(claim(&store, 4).await.len(), 2);
}
