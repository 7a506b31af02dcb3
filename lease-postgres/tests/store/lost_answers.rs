//! Answers of a pooler that get lost on their way, and clients that are gone
//! without a word.

use std::time::Duration;

use lease_conformance::proxy::{FaultProxy, On, Then};
use lease_conformance::servers::postgres::PgBouncer;
use lease_core::{LeaseBackend, ReleaseOutcome, StoreErrorKind};
use lease_postgres::PostgresOptions;

use crate::support::{LONG, ask, grant, key, owner, server};

/// One session, and two ways to it.
fn pooler() -> (PgBouncer, FaultProxy) {
    let pooler = PgBouncer::before(server()).pool_size(1).start().unwrap();
    let proxy = FaultProxy::start(pooler.address()).unwrap();
    (pooler, proxy)
}

fn by(pooler: &PgBouncer, proxy: &FaultProxy, schema: &str) -> PostgresOptions {
    let url = pooler.url().through(proxy.address()).to_string();
    let options = PostgresOptions::from_url(&url).unwrap();
    options.schema(schema).unwrap()
}

#[tokio::test]
async fn a_lost_commit_is_unknown_and_what_comes_before_it_is_asked_again() {
    let (pooler, proxy) = pooler();
    let store = by(&pooler, &proxy, "lost").open().await.unwrap();
    // A release is not repeated where it may have taken effect, so that each part of
    // the answers shows. The last one, to the commit, has 18 bytes.
    let (mut repeated, mut unknown) = (0, 0);
    for bytes in (0..).step_by(11) {
        let name = format!("cut after {bytes}");
        let (me, token) = grant(&store, &name, LONG).await.unwrap();
        let cut = proxy.cut_reply_after(bytes, On::Any);
        let released = store.release(&key(&name), me, token).await;
        if !cut.has_happened() {
            assert_eq!(released.unwrap(), ReleaseOutcome::Released);
            break;
        }
        match released {
            // All of it came before the cut.
            Ok(_) if unknown > 0 => break,
            Ok(outcome) => {
                assert_eq!(outcome, ReleaseOutcome::Released, "{bytes}");
                repeated += 1;
                // Once, and for good.
                grant(&store, &name, LONG).await.unwrap();
            }
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::UnknownOutcome, "{error}");
                unknown += 1;
            }
        }
    }
    assert!(
        repeated > 10 && (1..=3).contains(&unknown),
        "{repeated} {unknown}"
    );
}

#[tokio::test]
async fn a_client_that_is_gone_in_a_transaction_keeps_no_session_for_long() {
    let (pooler, proxy) = pooler();
    let gone = by(&pooler, &proxy, "gone").response_timeout(Duration::from_millis(500));
    let gone = gone.open().await.unwrap();
    let url = pooler.url().to_string();
    let other = PostgresOptions::from_url(&url).unwrap();
    let other = other.schema("gone").unwrap().open().await.unwrap();
    // The pooler hears nothing of the client any more, nor of its end.
    let silence = proxy.lose_reply(Then::Hang, On::Any);
    let asked = gone.acquire(&ask("a", owner(), LONG)).await;
    assert!(asked.is_err() && silence.has_happened(), "{asked:?}");
    grant(&other, "b", LONG).await.unwrap();
}
