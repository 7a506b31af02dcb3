//! Many leases of one client, renewed.

use std::time::Instant;

use futures_util::future::join_all;
use lease_conformance::bench::{cpu_us, median};
use lease_conformance::servers::postgres::PostgresServer;
use lease_core::{
    AcquireOutcome, AcquireRequest, Key, Label, LeaseBackend, Owner, RenewOutcome, RenewRequest,
    TokenRule, Ttl,
};

use crate::contestants::{TTL, store};

pub(crate) async fn run(server: &PostgresServer, quick: bool) {
    let (leases, rounds) = if quick { (100, 1) } else { (10_000, 11) };
    let store = store(&server.url().to_string(), false).await;
    let requests: Vec<_> = (0..leases)
        .map(|number| AcquireRequest {
            key: Key::new(format!("many/{number}")).unwrap(),
            owner: Owner::random().unwrap(),
            ttl: Ttl::new(TTL * 20).unwrap(),
            label: Label::EMPTY,
            rule: TokenRule::NEXT,
            waits: None,
        })
        .collect();
    let granted = join_all(requests.iter().map(|one| store.acquire(one))).await;
    let renewals: Vec<_> = requests
        .iter()
        .zip(granted)
        .map(|(request, granted)| match granted.unwrap() {
            AcquireOutcome::Granted(granted) => RenewRequest {
                key: request.key.clone(),
                owner: request.owner,
                token: granted.token,
                ttl: request.ttl,
            },
            other => panic!("{other:?}"),
        })
        .collect();
    server
        .sql("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        .unwrap();
    let (mut times, mut served, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        server.sql("SELECT pg_stat_statements_reset()").unwrap();
        let (before, start) = (cpu_us(), Instant::now());
        let outcomes = store.renew_many(&renewals).await;
        let (took, used) = (start.elapsed(), cpu_us() - before);
        let good = |one: &Result<RenewOutcome, _>| matches!(one, Ok(RenewOutcome::Renewed));
        assert!(outcomes.iter().all(good));
        if round > 0 || rounds == 1 {
            times.push(took.as_secs_f64() * 1e3);
            served.push(served_ms(server));
            cpu.push(used / f64::from(leases));
        }
    }
    println!(
        "{leases} leases renewed: {:.1} ms, of which the server computed {:.1} ms (target: <= 50 for \
         10,000); {:.2} µs of client CPU each (target 6: <= 1)",
        median(&times),
        median(&served),
        median(&cpu),
    );
}

/// What the server spent on statements that change leases, flushes aside.
fn served_ms(server: &PostgresServer) -> f64 {
    let asked = server
        .sql("SELECT sum(total_exec_time) FROM pg_stat_statements WHERE query LIKE '%expires_us%'");
    let rows = asked.unwrap();
    rows.value().unwrap().parse().unwrap()
}
