//! What a lease on Redis costs: the floor is the same driver's bare EVALSHA.
//! All in one run, on one server, in interleaved rounds; the ratios are what
//! counts. Run with `cargo bench -p lease-redis`; `-- quorum` is about a quorum of
//! three servers alone.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod contest;
mod contestants;
mod quorum;

use std::time::Duration;

use contest::Place;
use contestants::{Bare, Handle, Ours, Rslock, SameScript};
use lease_conformance::bench::{Contestant, crowd, lone, report_crowd, report_lone};
use lease_conformance::servers::redis::RedisServer;

fn main() {
    // `cargo test --benches` only checks that it starts.
    let quick = !std::env::args().any(|arg| arg == "--bench");
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let filtered = std::env::args().skip(1).any(|arg| !arg.starts_with('-'));
    let quorum = std::env::args().any(|arg| arg == "quorum");
    if quorum || !filtered {
        runtime().block_on(quorum::run(quick));
    }
    if quorum {
        return;
    }
    let server = RedisServer::builder().start().unwrap();
    for place in Place::all(&server) {
        println!("\n# {}\n", place.name());
        runtime().block_on(run(&place, quick));
    }
}

async fn run(place: &Place, quick: bool) {
    let url = place.url();
    let nagle = Bare::new(url, false).await;
    let bare = Bare::new(url, true).await;
    let same = SameScript::new(url, true).await;
    let silent = SameScript::new(url, false).await;
    let ours = Ours::new(url).await;
    let handle = Handle::new(url).await;
    let rslock = Rslock::new(url).await;
    let mut all: Vec<&dyn Contestant> =
        vec![&nagle, &bare, &same, &silent, &ours, &handle, &rslock];
    // The floors always, of the others those that a filter names.
    let filters: Vec<_> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let mut at = 0;
    all.retain(|one| {
        at += 1;
        at <= 4 || filters.is_empty() || filters.iter().any(|f| one.name().contains(f))
    });

    let (rounds, pairs) = match (quick, place.is_far()) {
        (true, _) => (1, 2),
        (_, true) => (7, 150),
        (_, false) => (15, 2_000),
    };
    println!(
        "one task, p50 of acquire + release (target 1: ours <= 1.10 of our script, <= rslock; \
         target 5: without PUBLISH >= 0.95)"
    );
    print!(
        "{}",
        report_lone(&lone(&all, false, rounds, pairs).await, 2)
    );
    println!("\none task, p50 of acquire + renew + release");
    let renewing: Vec<_> = all
        .iter()
        .copied()
        .filter(|one| !one.name().contains("Leases"))
        .collect();
    print!(
        "{}",
        report_lone(&lone(&renewing, true, rounds, pairs).await, 2)
    );

    let (rounds, time) = match quick {
        true => (1, Duration::from_millis(10)),
        false => (7, Duration::from_millis(700)),
    };
    println!(
        "\n64 tasks on distinct keys, one connection (target 2: ours >= 1.0 of the floor here, 1.7 at 1 ms; >= 1.5 rslock; CPU <= 0.6)"
    );
    print!("{}", report_crowd(&crowd(&all, 64, rounds, time).await, 0));

    println!("\nhand-over to a waiter of another client (target 5: <= 1.3 of raw wake-and-retry)");
    contest::hand_over(place, if quick { 2 } else { 200 }).await;
}
