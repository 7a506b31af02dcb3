//! What a client does when its way to the server fails it in part: no new connection
//! is to be had, or a request that was given up is still under way.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::postgres::PostgresServer;
use lease_core::{LeaseBackend, Leases};
use lease_postgres::PostgresOptions;
use lease_postgres::sqlx::{Connection as _, PgConnection, query_scalar};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{key, server};

/// Passes connections on until it is told to let new ones hang.
async fn passing() -> (std::net::SocketAddr, tokio::sync::watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (hangs, hang) = tokio::sync::watch::channel(false);
    let to = server().address();
    tokio::spawn(async move {
        let mut hanging = Vec::new();
        while let Ok((mut client, _)) = listener.accept().await {
            if *hang.borrow() {
                hanging.push(client);
                continue;
            }
            tokio::spawn(async move {
                let mut server = TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, hangs)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_go_over_what_is_open_where_no_new_connection_answers() {
    let (address, hangs) = passing().await;
    let url = server().url().through(address).to_string();
    let options = PostgresOptions::from_url(&url).unwrap().schema("spare");
    let store = options.unwrap().connections(1).open().await.unwrap();
    let leases = Leases::new(Arc::new(store));
    let ttl = Duration::from_secs(3);
    let lease = leases.lease("k").ttl(ttl).acquire().await.unwrap();
    hangs.send_replace(true);
    let end = tokio::time::Instant::now() + ttl * 2;
    while tokio::time::Instant::now() < end {
        lease.check().unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_copy_of_an_acquire_that_was_asked_again_grants_nothing() {
    let server = PostgresServer::builder().fsync(false).start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let url = server.url().through(proxy.address()).to_string();
    let options = PostgresOptions::from_url(&url).unwrap();
    let store = options.connections(1).open().await.unwrap();
    let leases = Leases::new(Arc::new(store.clone()));
    let warm = leases.lease("warm").acquire().await.unwrap();
    warm.release().await.unwrap();
    let mut db = PgConnection::connect(&server.url().to_string())
        .await
        .unwrap();
    let resting = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
                   AND query LIKE '%unnest%' AND wait_event = 'ClientRead'";
    // It shows a moment after the answer that it waits for the next request.
    let pid: i32 = loop {
        let found = query_scalar(resting).fetch_optional(&mut db).await;
        if let Some(pid) = found.unwrap() {
            break pid;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let signal = |name: &str| {
        let mut kill = Command::new("kill");
        assert!(
            kill.arg(name)
                .arg(pid.to_string())
                .status()
                .unwrap()
                .success()
        );
    };
    signal("-STOP");
    let waiting = tokio::spawn({
        let waiting = leases.lease("k").ttl(Duration::from_secs(3600)).acquire();
        async move { waiting.await.unwrap() }
    });
    // Until it is sent: nothing shows that from outside while the server's process
    // stands still.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished(), "another process answered");
    proxy.cut();
    let lease = waiting.await.unwrap();
    lease.release().await.unwrap();
    leases.shutdown(Duration::from_secs(5)).await;
    signal("-CONT");
    // The old process is gone when it has found its client gone, after the copy.
    let there = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1";
    while query_scalar::<_, i64>(there)
        .bind(pid)
        .fetch_one(&mut db)
        .await
        .unwrap()
        > 0
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(store.inspect(&key("k")).await.unwrap().holder, None);
}
