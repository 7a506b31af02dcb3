//! Holders that stop at any moment, in transactions of every isolation level,
//! against a holder that takes over.
//!
//! Who came first is not judged by clocks. A trigger on the store's own table
//! counts, in the statement that ends a grant and while it has the row, what its
//! holder has committed; the next holder counts, once its token is admitted, what
//! was written with lower ones. Whatever is committed later was written too late.
//!
//! `LEASES_STOPPED_SEED` is the seed of a run that failed.
#![allow(clippy::print_stdout)]

mod run;

use std::sync::Arc;

use run::{By, Hands, Tally, connect, one_run, world};

const RUNS: u64 = 1000;
const AT_ONCE: u64 = 12;

const TOO_LATE: &str = "
    SELECT count(*) FROM s.seen AS s WHERE s.at_gate = (SELECT count(*) > 0 FROM s.lease_gate)
        AND s.written <>
        (SELECT count(*) FROM s.written AS w WHERE w.key = s.key AND w.token < s.below)";

/// How many writes were committed too late, in so many runs.
async fn judge(by: By, runs: u64) -> (Tally, i64, u64) {
    let seed = match std::env::var("LEASES_STOPPED_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => rand::random(),
    };
    println!("LEASES_STOPPED_SEED={seed} ({by:?})");
    let world = Arc::new(world().await);
    let workers: Vec<_> = (0..AT_ONCE)
        .map(|worker| {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                let server = &world.server;
                let mut hands = Hands {
                    first: connect(server).await,
                    second: connect(server).await,
                    admin: connect(server).await,
                    world: Arc::clone(&world),
                };
                let mut tally = Tally::default();
                for n in (worker..runs).step_by(usize::try_from(AT_ONCE).unwrap()) {
                    one_run(&mut hands, seed, n, by, &mut tally).await;
                }
                tally
            })
        })
        .collect();
    let mut all = Tally::default();
    for worker in workers {
        let tally = worker.await.unwrap();
        all.committed += tally.committed;
        all.refused += tally.refused;
        all.begun_again += tally.begun_again;
        all.taken_over += tally.taken_over;
    }
    let late = world.server.sql(TOO_LATE).unwrap().integer().unwrap();
    println!("{by:?}: {all:?}, too late: {late}");
    (all, late, seed)
}

async fn is_safe(by: By) {
    let (tally, late, seed) = judge(by, RUNS).await;
    assert_eq!(late, 0, "seed {seed}");
    // It is no test if nothing of it happened.
    let enough = RUNS / 20;
    let happened = [tally.committed, tally.refused, tally.taken_over];
    assert!(
        happened.iter().all(|n| *n >= enough),
        "{tally:?}, seed {seed}"
    );
    assert!(tally.begun_again > 0, "{tally:?}, seed {seed}");
}

async fn is_caught(by: By) {
    let (tally, late, seed) = judge(by, RUNS / 2).await;
    assert!(late > 0, "{tally:?}, seed {seed}");
}

#[tokio::test]
async fn a_holder_stopped_past_its_expiry_commits_nothing_through_hold() {
    is_safe(By::Hold).await;
}

#[tokio::test]
async fn a_holder_stopped_past_its_expiry_commits_nothing_through_admit() {
    is_safe(By::Admit).await;
}

#[tokio::test]
async fn a_look_without_the_lock_is_caught() {
    is_caught(By::Look).await;
}

#[tokio::test]
async fn a_token_admitted_before_the_transaction_is_caught() {
    is_caught(By::AdmitBefore).await;
}
