//! Rows that the store did not write, roles with few rights, and options.

use std::time::Duration;

use futures_util::StreamExt as _;
use lease_core::{Key, Severity, StoreErrorKind, Ttl};
use lease_queue::postgres::PostgresQueues;
use lease_queue::{QueueStore as _, Settle};

use crate::support::{
    LONG, claim, connection, item, jobs, next, open, options, owner, run, settle,
};

#[tokio::test]
async fn what_the_store_did_not_write_is_refused_and_left_as_it_is() {
    use StoreErrorKind::{Refusing, UnknownOutcome};
    for (n, (harm, kind)) in [
        (
            "UPDATE \"S\".lease_queue_lanes SET mark = -9223372036854775808, token = -5",
            Refusing,
        ),
        (
            "UPDATE \"S\".lease_queue_lanes SET mark = 9223372036854775807",
            Refusing,
        ),
        ("UPDATE \"S\".lease_queue_lanes SET kind = 9", Refusing),
        // Its lane is sound: it is claimed, and read only then. Whoever asked is to
        // abandon.
        (
            "UPDATE \"S\".lease_queue_items SET attempts = -100",
            UnknownOutcome,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let schema = format!("strange{n}");
        let store = open(&schema).await;
        let mut db = connection().await;
        store.put(&jobs(), &[item(None, "1")]).await.unwrap();
        run(&mut db, &harm.replace("\"S\"", &schema)).await;
        let claimed = store.claim(&jobs(), &next(owner(), 1, LONG)).await;
        match claimed {
            Err(error) => assert_eq!(error.kind(), kind, "{harm}: {error}"),
            // The clock makes up for a mark that is too low.
            Ok(_) => assert_eq!(n, 0, "{harm}"),
        }
    }
}

#[tokio::test]
async fn a_strange_row_hides_no_other_in_a_list_and_no_other_in_a_batch() {
    let store = open("strange_list").await;
    let mut db = connection().await;
    store
        .put(&jobs(), &[item(None, "1"), item(None, "2")])
        .await
        .unwrap();
    let both = claim(&store, 2).await;
    assert_eq!(both.len(), 2);
    run(
        &mut db,
        &format!(
            "UPDATE strange_list.lease_queue_lanes SET token = 9223372036854775807, \
             expires_us = 9223372036854775807 WHERE name = '{}'",
            both[0].claim.item
        ),
    )
    .await;
    let listed: Vec<_> = store.items(&jobs(), false).collect().await;
    assert_eq!(
        listed.iter().filter(|one| one.is_ok()).count(),
        listed.len()
    );
    let extend = Settle::Extend(Ttl::new(LONG).unwrap());
    let claims: Vec<_> = both
        .iter()
        .map(|one| (one.claim.clone(), extend.clone()))
        .collect();
    let outcomes = store.settle(&jobs(), &claims).await;
    assert!(outcomes[1].is_ok(), "{outcomes:?}");
}

#[tokio::test]
async fn an_item_of_a_strange_age_is_claimed_and_in_no_others_way() {
    let store = open("strange_age").await;
    let mut db = connection().await;
    for many in [1, 4] {
        let items: Vec<_> = (0..many).map(|n| item(None, &n.to_string())).collect();
        store.put(&jobs(), &items).await.unwrap();
        let harm = "UPDATE strange_age.lease_queue_items SET put_us = -9223372036854775808";
        run(&mut db, harm).await;
        let claimed = claim(&store, 4).await;
        assert_eq!(claimed.len(), many);
        for one in claimed {
            settle(&store, &one.claim, Settle::Complete).await;
        }
    }
}

#[tokio::test]
async fn a_role_with_the_rights_that_are_printed_can_do_everything() {
    let admin = options("roles");
    let mut db = connection().await;
    let script = PostgresQueues::schema_sql(&admin);
    run(&mut db, &script).await;
    run(&mut db, &script).await;
    let role = "CREATE ROLE worker LOGIN PASSWORD 'secret'";
    crate::support::server().sql(role).unwrap();
    let before = options("roles").migrate(false);
    run(&mut db, &PostgresQueues::grants_sql(&before, "worker")).await;
    let url = crate::support::server()
        .url()
        .user("worker", "secret")
        .to_string();
    let theirs = PostgresQueues::options(&url)
        .unwrap()
        .schema("roles")
        .unwrap();
    let store = PostgresQueues::open(theirs.migrate(false)).await.unwrap();
    store
        .put(&jobs(), &[item(Some("g"), "1"), item(None, "2")])
        .await
        .unwrap();
    let both = claim(&store, 2).await;
    let bury = Settle::Bury {
        reason: "no\0 use".to_owned(),
    };
    let ends = [Settle::Complete, bury];
    let claims: Vec<_> = both.iter().map(|one| one.claim.clone()).zip(ends).collect();
    for outcome in store.settle(&jobs(), &claims).await {
        outcome.unwrap();
    }
    assert!(store.requeue(&jobs(), both[1].claim.item).await.unwrap());
    let key = Key::new("k").unwrap();
    store.abandon(&jobs(), Some(&key), owner()).await.unwrap();
    let found = store.diagnose(Ttl::new(LONG).unwrap()).await.unwrap();
    let what: Vec<_> = found
        .findings
        .iter()
        .map(|one| (one.severity, &*one.what))
        .collect();
    let says = |start| {
        what.iter()
            .find(|(_, what)| what.starts_with(start))
            .copied()
    };
    let healthy =
        |found: Option<(Severity, &str)>| found.is_some_and(|(s, _)| s == Severity::Healthy);
    assert!(healthy(says("tables:")), "{what:?}");
    assert!(healthy(says("rights:")), "{what:?}");
}

#[tokio::test]
async fn a_database_without_the_tables_is_refused_where_none_are_to_be_made() {
    let none = options("never_made").migrate(false);
    let error = PostgresQueues::open(none).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing);
    assert!(
        error.to_string().contains("PostgresQueues::schema_sql"),
        "{error}"
    );
    let detecting = options("detecting").crash_detection(Duration::from_secs(1));
    let error = PostgresQueues::open_lazily(detecting).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::InvalidInput);
}

#[tokio::test]
async fn functions_of_an_earlier_program_are_called_those_of_queues() {
    open("earlier").await;
    let mut db = connection().await;
    let earlier = "DO $do$ BEGIN EXECUTE pg_catalog.replace(pg_catalog.pg_get_functiondef( \
                   'earlier.lease_queue_free'::regproc), 'leases: body 1', 'leases: body 0'); \
                   END $do$";
    run(&mut db, earlier).await;
    let looks = options("earlier").migrate(false);
    let error = PostgresQueues::open(looks).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing);
    let words = "the functions of queues in the schema \"earlier\"";
    assert!(error.to_string().contains(words), "{error}");
    assert!(error.to_string().contains("`lease schema`"), "{error}");
}

#[tokio::test]
async fn who_only_looks_makes_nothing_and_needs_no_functions() {
    let looking = || options("looked_at").only_look();
    let error = PostgresQueues::open(looking()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing);
    assert!(error.to_string().contains("there is no schema"), "{error}");
    let store = open("looked_at").await;
    store.put(&jobs(), &[item(None, "1")]).await.unwrap();
    let mut db = connection().await;
    let dropped = "DROP FUNCTION looked_at.lease_queue_claim(text, bytea[], bigint[], bigint[], \
                   text[], integer[])";
    run(&mut db, dropped).await;
    let looker = PostgresQueues::open(looking()).await.unwrap();
    assert_eq!(looker.depth(&jobs()).await.unwrap().ready, 1);
    let refused = looker.claim(&jobs(), &next(owner(), 1, LONG)).await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Refusing);
    // Whoever may make it does so when it is missed.
    assert_eq!(claim(&store, 1).await.len(), 1);
}

#[tokio::test]
async fn looks_go_on_where_somebody_altered_a_table_under_a_prepared_statement() {
    let store = open("altered").await;
    let key = Key::new("k").unwrap();
    store.put(&jobs(), &[item(None, "1")]).await.unwrap();
    let mut db = connection().await;
    for to in ["varchar", "text"] {
        let state = store.inspect(&jobs(), &key).await.unwrap();
        assert_eq!(state.high_water, None);
        let alter = format!("ALTER TABLE altered.lease_queue_lanes ALTER COLUMN label TYPE {to}");
        run(&mut db, &alter).await;
    }
    store.inspect(&jobs(), &key).await.unwrap();
}
