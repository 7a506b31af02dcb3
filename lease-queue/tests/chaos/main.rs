//! Workers and servers that are killed and stopped at random, over and over, while
//! thousands of items in groups are worked on.
//!
//! However it goes: every item is completed, its effect is applied once, by a write that
//! shows the claim's token; each group keeps its order, and never has two owners that
//! are live. A worker is a process (on the store in memory a thread) that is killed with
//! SIGKILL, or stands still for longer than its TTL and then goes on as if nothing had
//! been. Servers are killed and come back with their data. A run without any of that, or
//! without a late write that was refused, is repeated, and fails when that does not help.
//!
//! One round by default; rounds for as long as `LEASES_QUEUE_CHAOS_SECONDS` says. What is
//! random comes from `LEASES_QUEUE_CHAOS_SEED`, and each round prints its own.
// A process tells its story on a terminal.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod broken;
mod check;
mod conduct;
mod crew;
mod ledger;
mod process;
mod record;
mod story;
mod thread;
mod witness;
mod worker;

use std::sync::Arc;

use lease_conformance::servers::ServerError;
use lease_conformance::servers::nats::NatsServer;
use lease_conformance::servers::nats::cluster::{NODES, NatsCluster};
use lease_conformance::servers::postgres::PostgresServer;
use lease_conformance::servers::redis::{Persistence, RedisServer};
use lease_queue::MemoryQueues;
use rand::RngExt;
use rand::rngs::StdRng;

use conduct::{Plan, rounds};
use process::Processes;
use thread::Threads;
use worker::Effect;

/// Each run loads the machine with processes of its own.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Not a test in itself: what a worker's process runs.
#[test]
fn worker_process() {
    process::be_told();
}

#[tokio::test]
async fn in_memory_nothing_is_lost_done_twice_or_out_of_order() {
    let _turn = TURN.lock().await;
    let store = Arc::new(MemoryQueues::new());
    let crew = Threads::new(store);
    rounds(&Plan::new(Effect::Ledger), &crew, None).await;
}

#[tokio::test]
async fn on_redis_nothing_is_lost_done_twice_or_out_of_order() {
    let _turn = TURN.lock().await;
    let server = RedisServer::builder().persistence(Persistence::AofAlways);
    let server = server.start().unwrap();
    let crew = Processes::new(format!("queue+{}", server.url()));
    let harm = |random: &mut StdRng| killed(random, || server.kill(), || server.start());
    rounds(&Plan::new(Effect::Ledger), &crew, Some(&harm)).await;
}

#[tokio::test]
async fn in_postgres_nothing_is_lost_done_twice_or_out_of_order() {
    let _turn = TURN.lock().await;
    let server = postgres();
    let crew = Processes::new(format!("queue+{}", server.url()));
    let harm = |random: &mut StdRng| killed(random, || server.kill(), || server.start());
    rounds(&Plan::new(Effect::Ledger), &crew, Some(&harm)).await;
}

/// The items' effects are in the same database, and commit with their completions.
#[tokio::test]
async fn with_effects_in_postgres_itself_nothing_is_lost_done_twice_or_out_of_order() {
    let _turn = TURN.lock().await;
    let server = postgres();
    let crew = Processes::new(format!("queue+{}", server.url()));
    let harm = |random: &mut StdRng| killed(random, || server.kill(), || server.start());
    let plan = Plan {
        // One that stands still within its transaction keeps its group, and who puts into
        // it, for all that time.
        stops: 5,
        ..Plan::new(Effect::InTransaction)
    };
    rounds(&plan, &crew, Some(&harm)).await;
}

#[tokio::test]
async fn on_nats_nothing_is_lost_done_twice_or_out_of_order() {
    let _turn = TURN.lock().await;
    let server = NatsServer::builder().start().unwrap();
    let crew = Processes::new(server.url().to_string());
    let harm = |random: &mut StdRng| killed(random, || server.kill(), || server.start());
    rounds(&Plan::new(Effect::Ledger), &crew, Some(&harm)).await;
}

#[tokio::test]
async fn on_three_nats_servers_nothing_is_lost_done_twice_or_out_of_order() {
    let _turn = TURN.lock().await;
    let cluster = NatsCluster::start_new().unwrap();
    let crew = Processes::new(cluster.url().to_string());
    let harm = |random: &mut StdRng| {
        let node = random.random_range(0..NODES);
        killed(random, || cluster.node(node).kill(), || cluster.start())
    };
    // Each loss of a leader takes some seconds.
    let plan = Plan {
        each: 60,
        server_kills: 2,
        ..Plan::new(Effect::Ledger)
    };
    rounds(&plan, &crew, Some(&harm)).await;
}

fn postgres() -> PostgresServer {
    // What a killed server has told the system is there when it comes back.
    let builder = PostgresServer::builder()
        .fsync(false)
        .config("max_connections", "200");
    builder.start().unwrap()
}

/// Away for a moment, often for none that anybody chose.
fn killed(
    random: &mut StdRng,
    kill: impl FnOnce() -> Result<(), ServerError>,
    start: impl FnOnce() -> Result<(), ServerError>,
) -> Result<(), ServerError> {
    kill()?;
    if random.random_bool(0.5) {
        let away = std::time::Duration::from_millis(random.random_range(0..400));
        std::thread::sleep(away);
    }
    start()
}
