//! The store under load while its server is killed, stopped and cut off.
//!
//! Runs last `LEASES_POSTGRES_FAULT_SECONDS` each (3 by default) and take what is
//! random from `LEASES_POSTGRES_FAULT_SEED`; a failure prints both.
// What a run saw is shown when it fails.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

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

/// The address that clients know is a proxy's, which is led to the new primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_standby_that_takes_over_has_lost_nothing() {
    let primary = server();
    let standby = PostgresServer::builder()
        .standby_of(&primary)
        .start()
        .unwrap();
    harm(|| primary.set_synchronous(&[&standby]));
    let old = FaultProxy::start(primary.address()).unwrap();
    let store = |address| {
        let url = primary.url().through(address).to_string();
        lease_postgres::PostgresOptions::from_url(&url).unwrap()
    };
    let before = store(old.address()).open().await.unwrap();
    let mut held = Vec::new();
    for number in 0..50 {
        held.push(acquire(&before, number).await.expect("it is free"));
    }
    harm(|| primary.kill());
    harm(|| standby.promote());
    let after = store(standby.address()).open().await.unwrap();
    for (number, token) in held.into_iter().enumerate() {
        assert_eq!(acquire(&after, number).await, None, "{number}");
        let key = lease_core::Key::new(format!("k{number}")).unwrap();
        let state = lease_core::LeaseBackend::inspect(&after, &key)
            .await
            .unwrap();
        assert_eq!(state.high_water, Some(token));
    }
}

/// Shown, and the store's guarantees say so: what had not reached the standby is
/// lost, and only the token protects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asynchronous_standby_that_takes_over_grants_again_with_a_higher_token() {
    use lease_core::Gate as _;
    let primary = server();
    let link = FaultProxy::start(primary.address()).unwrap();
    let standby = PostgresServer::builder()
        .standby_through(&primary, link.address())
        .start()
        .unwrap();
    let store = |server: &PostgresServer| {
        let url = primary.url().through(server.address()).to_string();
        lease_postgres::PostgresOptions::from_url(&url).unwrap()
    };
    let first = store(&primary).open().await.unwrap();
    harm(|| standby.wait_until_linked());
    drop(link);
    let one = acquire(&first, 0).await.expect("it is free");
    harm(|| primary.kill());
    harm(|| standby.promote());
    let second = store(&standby).open().await.unwrap();
    let two = acquire(&second, 0).await.expect("what was lost is free");
    assert!(two > one);
    assert!(
        !lease_core::LeaseBackend::guarantees(&second)
            .exclusion_survives
            .failover
    );
    let resource = lease_core::Key::new("resource").unwrap();
    second.admit(&resource, two).await.unwrap();
    assert!(second.admit(&resource, one).await.is_err());
}

async fn acquire(
    store: &lease_postgres::PostgresStore,
    number: usize,
) -> Option<lease_core::Token> {
    let request = lease_core::AcquireRequest {
        key: lease_core::Key::new(format!("k{number}")).unwrap(),
        owner: lease_core::Owner::random().unwrap(),
        ttl: lease_core::Ttl::new(Duration::from_secs(60)).unwrap(),
        label: lease_core::Label::EMPTY,
        rule: lease_core::TokenRule::NEXT,
    };
    let acquired = lease_core::LeaseBackend::acquire(store, &request).await;
    match acquired.unwrap() {
        lease_core::AcquireOutcome::Granted(granted) => Some(granted.token),
        _ => None,
    }
}
