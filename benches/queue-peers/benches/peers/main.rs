//! The bench of lease-queue, and in the same run pgmq and apalis. Arguments are as there:
//! `cargo bench --manifest-path benches/queue-peers/Cargo.toml -- postgres`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod apalis;
#[path = "../../../../lease-queue/benches/queue/contest.rs"]
mod contest;
#[path = "../../../../lease-queue/benches/queue/nats.rs"]
mod nats;
#[path = "../../../../lease-queue/benches/queue/ours.rs"]
mod ours;
mod pgmq;
#[path = "../../../../lease-queue/benches/queue/postgres.rs"]
mod postgres;
#[path = "../../../../lease-queue/benches/queue/redis.rs"]
mod redis;
#[path = "../../../../lease-queue/benches/queue/waiting.rs"]
mod waiting;

use lease_conformance::bench::Drained;

fn main() {
    contest::main(contest::Peers {
        redis: |url| {
            Box::pin(async move {
                let apalis = apalis::OnRedis::new(&url).await;
                vec![Box::new(apalis) as Box<dyn Drained>]
            })
        },
        postgres: |url| {
            Box::pin(async move {
                let pgmq = pgmq::Pgmq::new(&url).await;
                let apalis = apalis::OnPostgres::new(&url).await;
                vec![Box::new(pgmq) as Box<dyn Drained>, Box::new(apalis)]
            })
        },
    });
}
