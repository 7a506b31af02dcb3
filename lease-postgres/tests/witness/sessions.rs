//! A client that lives, and whose connections do not.

use std::time::{Duration, Instant};

use lease_conformance::proxy::FaultProxy;
use lease_core::Attempt;
use lease_postgres::sqlx::{Connection as _, PgConnection, query_scalar};

use crate::support::{
    GRACE, LONG, WITNESSES, hold, leases, options, server, session, start, until, witnessed,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_session_is_ended_keeps_its_leases_under_a_new_one() {
    let server = start().unwrap();
    let url = server.url().to_string();
    let holder = witnessed(&url, "ended").await;
    let other = witnessed(&url, "ended").await;
    let lease = hold(&holder, "k").await;
    let mut before = session(&url, "ended", "k").await;
    for _ in 0..4 {
        tokio::task::block_in_place(|| server.terminate_backends(WITNESSES)).unwrap();
        let known = before;
        until("another session", || async {
            // It looks at the session in between, and shortens the grant.
            let attempt = other.lease("k").ttl(LONG).try_acquire().await.unwrap();
            assert!(matches!(attempt, Attempt::Held(_)), "{attempt:?}");
            session(&url, "ended", "k").await != known
        })
        .await;
        before = session(&url, "ended", "k").await;
    }
    let begun = Instant::now();
    while begun.elapsed() < GRACE * 2 {
        lease.check().unwrap();
        let attempt = other.lease("k").ttl(LONG).try_acquire().await.unwrap();
        assert!(matches!(attempt, Attempt::Held(_)), "{attempt:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The renewal has given back what the look took.
    let state = other.inspect("k").await.unwrap();
    assert!(state.holder.unwrap().remaining > GRACE * 4);
    lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_cut_off_for_less_than_the_grace_keeps_its_leases() {
    let proxy = FaultProxy::start(server().address()).unwrap();
    let url = server().url();
    let holder = witnessed(&url.clone().through(proxy.address()).to_string(), "cut").await;
    let other = witnessed(&url.to_string(), "cut").await;
    let lease = hold(&holder, "k").await;
    for _ in 0..3 {
        tokio::time::sleep(GRACE).await;
        proxy.cut();
        let begun = Instant::now();
        while begun.elapsed() < GRACE {
            let attempt = other.lease("k").ttl(LONG).try_acquire().await.unwrap();
            assert!(matches!(attempt, Attempt::Held(_)), "{attempt:?}");
            lease.check().unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_has_one_lock_and_one_without_the_option_has_none() {
    let server = start().unwrap();
    let url = server.url().to_string();
    let mut db = PgConnection::connect(&url).await.unwrap();
    let mut locks = async || -> i64 {
        let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
        query_scalar(sql).fetch_one(&mut db).await.unwrap()
    };
    let plain = leases(options(&url, "locks")).await;
    let _held = hold(&plain, "p").await;
    assert_eq!(locks().await, 0);
    assert_eq!(session(&url, "locks", "p").await, None);
    let witnessed = witnessed(&url, "locks").await;
    let mut held = Vec::new();
    for number in 0..50 {
        held.push(hold(&witnessed, &format!("k{number}")).await);
    }
    assert_eq!(locks().await, 1);
    assert!(session(&url, "locks", "k7").await.is_some());
    drop((held, witnessed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_at_a_holder_that_lives_writes_nothing() {
    let url = server().url().to_string();
    let holder = witnessed(&url, "quiet").await;
    let lease = hold(&holder, "k").await;
    let mut db = PgConnection::connect(&url).await.unwrap();
    let mut version = async || -> String {
        // Where the row's present version stands: it moves with every write.
        let sql =
            "SELECT ctid::text || xmin::text || xmax::text FROM quiet.lease_keys WHERE key = 'k'";
        query_scalar(sql).fetch_one(&mut db).await.unwrap()
    };
    tokio::time::sleep(GRACE).await;
    let before = version().await;
    let other = leases(options(&url, "quiet")).await;
    for _ in 0..20 {
        let attempt = other.lease("k").ttl(LONG).try_acquire().await.unwrap();
        assert!(matches!(attempt, Attempt::Held(_)), "{attempt:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(version().await, before);
    lease.check().unwrap();
}
