//! The store under load while its server is killed, stopped, cut off and replaced.
//!
//! Runs last `LEASES_POSTGRES_FAULT_SECONDS` each (3 by default) and take what is
//! random from `LEASES_POSTGRES_FAULT_SEED`; a failure prints both.
// What a run saw is shown when it fails.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod failover;
mod load;
mod worker;

use std::time::Duration;

use lease_conformance::proxy::{FaultProxy, On, Then};
use lease_conformance::servers::ServerError;
use lease_conformance::servers::postgres::{PgBouncer, PostgresServer};
use rand::RngExt;

use load::Load;

/// The store's own sessions.
const OURS: &str = "application_name = 'leases'";
/// Of clients that have no proxy before them.
const DIRECT: usize = 2;

/// As durable as in production: kills must lose nothing.
fn server() -> PostgresServer {
    PostgresServer::builder().start().unwrap()
}

/// Runs what blocks.
fn harm<T>(act: impl FnOnce() -> Result<T, ServerError>) -> T {
    tokio::task::block_in_place(act).unwrap()
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_are_ended_at_random_make_no_two_holders() {
    let server = server();
    let load = Load::start(300..=1500, (0..4).map(|_| server.url())).await;
    let mut random = load.random();
    while load.goes_on() {
        harm(|| server.terminate_backends(&format!("{OURS} AND random() < 0.5")));
        pause(random.random_range(5..150)).await;
    }
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_again_and_again_makes_no_two_holders() {
    let server = server();
    let load = Load::start(300..=1500, (0..4).map(|_| server.url())).await;
    let mut random = load.random();
    while load.goes_on() {
        pause(random.random_range(200..900)).await;
        match random.random_bool(0.5) {
            true => harm(|| server.kill()),
            false => harm(|| server.stop_immediately()),
        }
        pause(random.random_range(0..300)).await;
        harm(|| server.start());
    }
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_makes_no_two_holders() {
    let server = server();
    let load = Load::start(300..=1500, (0..4).map(|_| server.url())).await;
    let mut random = load.random();
    while load.goes_on() {
        pause(random.random_range(100..600)).await;
        harm(|| server.pause());
        pause(random.random_range(50..1000)).await;
        harm(|| server.resume());
    }
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_again_and_again_make_no_two_holders() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let urls = (0..6).map(|number| match number < DIRECT {
        true => server.url(),
        false => server.url().through(proxy.address()),
    });
    let load = Load::start(300..=1500, urls).await;
    let mut random = load.random();
    while load.goes_on() {
        match random.random_range(0..6) {
            0 => proxy.cut(),
            // After the server has done what it was asked.
            1 => drop(proxy.lose_reply(Then::Cut, On::Any)),
            2 => drop(proxy.lose_request(Then::Cut, On::Any)),
            3 => drop(proxy.lose_reply(Then::Hang, On::Any)),
            4 => drop(proxy.cut_reply_after(random.random_range(1..200), On::Any)),
            _ => drop(proxy.cut_request_after(random.random_range(1..200), On::Any)),
        }
        pause(random.random_range(5..80)).await;
    }
    proxy.heal().unwrap();
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_is_killed_stopped_and_cut_off_makes_no_two_holders() {
    let server = server();
    let bouncer = PgBouncer::before(&server).pool_size(5).start().unwrap();
    let proxy = FaultProxy::start(bouncer.address()).unwrap();
    let urls = (0..4).map(|number| match number < DIRECT {
        true => bouncer.url(),
        false => bouncer.url().through(proxy.address()),
    });
    let load = Load::start(500..=2000, urls).await;
    let mut random = load.random();
    while load.goes_on() {
        match random.random_range(0..4) {
            0 => harm(|| bouncer.restart()),
            1 => {
                harm(|| bouncer.pause());
                pause(random.random_range(50..500)).await;
                harm(|| bouncer.resume());
            }
            2 => drop(proxy.lose_reply(Then::Cut, On::Any)),
            _ => {
                harm(|| server.terminate_backends("random() < 0.5"));
            }
        }
        pause(random.random_range(20..300)).await;
    }
    proxy.heal().unwrap();
    load.end().await;
}
