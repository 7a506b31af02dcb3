//! What a lease on Postgres costs: the floor is the same driver's bare upsert on held
//! connections. All in one run, on one server, in interleaved rounds; the ratios
//! are what counts. Run with `cargo bench -p lease-postgres`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod contestants;
mod floor;
mod hand_over;
mod renewals;

use std::time::Duration;

use contestants::{Handle, Ours};
use floor::{Advisory, Bare, Pool};
use lease_conformance::bench::{
    Contestant, Runner, crowd, lone, report_crowd, report_laps, report_lone, run_laps,
};
use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::postgres::PostgresServer;

fn main() {
    // `cargo test --benches` only checks that it starts.
    let quick = !std::env::args().any(|arg| arg == "--bench");
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    // As it comes, fsync and all.
    let server = PostgresServer::builder()
        .config("max_connections", "300")
        .config("shared_preload_libraries", "pg_stat_statements")
        .start()
        .unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    proxy.delay(Duration::from_micros(500), Duration::from_micros(500));
    let near = server.url().to_string();
    let far = server.url().through(proxy.address()).to_string();
    for (name, url, is_far) in [("loopback", near, false), ("a millisecond away", far, true)] {
        println!("\n# {name}\n");
        runtime().block_on(run(&url, quick, is_far));
    }
    println!("\n# renewals\n");
    runtime().block_on(renewals::run(&server, quick));
}

async fn run(url: &str, quick: bool, is_far: bool) {
    let one = Bare::new(url, 1).await;
    let ten = Bare::new(url, 10).await;
    let ours = Ours::new(url, false).await;
    let asynchronous = Ours::new(url, true).await;
    let handle = Handle::new(url).await;
    let pool = Pool::new(url).await;
    let advisory = Advisory::new(url).await;

    let rounds = if quick { 1 } else { 7 };
    let lives = match (quick, is_far) {
        (true, _) => 2,
        (_, true) => 100,
        (_, false) => 200,
    };
    println!("one task, p50 of acquire + release (target 3: <= 1.10)");
    let all: [&dyn Contestant; 3] = [&one, &ours, &handle];
    print!(
        "{}",
        report_lone(&lone(&all, false, rounds, lives).await, 0)
    );
    // Our release is not flushed, and an acquire that comes right behind one waits
    // for the flush that the server makes by itself then.
    println!("\none task, p50 of acquire, renew and release");
    let all: [&dyn Runner; 2] = [&one, &ours];
    print!("{}", report_laps(&run_laps(&all, rounds, lives).await));

    let time = match quick {
        true => Duration::from_millis(10),
        false => Duration::from_millis(700),
    };
    let all: [&dyn Contestant; 6] = [&ten, &ours, &asynchronous, &handle, &pool, &advisory];
    for tasks in [8, 64] {
        println!(
            "\n{tasks} tasks on distinct keys (target 4: of 64, >= 3.5 here, 4 at 1 ms, \
             asynchronous 6; of 8 at 1 ms, >= 1.0)"
        );
        print!(
            "{}",
            report_crowd(&crowd(&all, tasks, rounds, time).await, 0)
        );
    }

    println!("\nhand-over to a waiter of another client (target 5: <= 1.2 of raw LISTEN/NOTIFY)");
    hand_over::run(url, if quick { 2 } else { 200 }).await;
}
