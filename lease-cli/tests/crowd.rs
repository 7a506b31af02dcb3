//! Forty processes, one key, one file that nothing else protects.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use support::{Place, Running, number};

/// Reads, adds one, writes: two at a time would lose an update. Each says which
/// token it wrote with, in the order of the writes.
const INCREMENT: &str = "
    n=$(cat counter); sleep 0.01; echo $((n + 1)) > counter
    echo $LEASE_TOKEN >> tokens";

fn tokens(place: &Place) -> Vec<i64> {
    place.text("tokens").lines().map(number).collect()
}

fn assert_rising(tokens: &[i64]) {
    assert!(tokens.windows(2).all(|w| w[0] < w[1]), "{tokens:?}");
}

#[test]
fn forty_increments_make_forty() {
    let place = Place::new();
    fs::write(place.path("counter"), "0").unwrap();
    let crowd: Vec<_> = (0..40).map(|_| place.run(&[], "k", INCREMENT)).collect();
    for one in crowd {
        one.end().ok();
    }
    assert_eq!(number(&place.text("counter")), 40);
    assert_eq!(tokens(&place).len(), 40);
    assert_rising(&tokens(&place));
}

#[test]
fn no_update_of_the_living_is_lost_when_others_are_killed() {
    // Everything that is random here comes from this.
    let seed = std::env::var("LEASE_TEST_SEED").map_or_else(
        |_| u64::from(std::process::id()) * 7919 + 1,
        |seed| seed.parse().unwrap(),
    );
    println!("LEASE_TEST_SEED={seed}");
    let mut random = seed;
    let mut next = move |below: u64| {
        // Knuth's MMIX generator: chance, not cryptography.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let place = Place::new();
    fs::write(place.path("counter"), "0").unwrap();
    // A write by rename, so that a kill leaves the old or the new number; and
    // the line that says so is written by the same process right before it.
    let script = "
        n=$(cat counter); sleep 0.01; echo $((n + 1)) > counter.$$
        echo \"$LEASE_TOKEN $((n + 1))\" >> tokens; mv counter.$$ counter; touch done.$ID";
    let mut crowd: Vec<Option<Running>> = (0..40)
        .map(|id| {
            let script = format!("ID={id}; {script}");
            Some(place.run(&["--ttl", "5s"], "k", &script))
        })
        .collect();
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(next(40)));
        let victim = loop {
            let n = next(40) as usize;
            if let Some(running) = crowd[n].take() {
                break running;
            }
        };
        victim.signal(Signal::SIGKILL);
        victim.status();
    }
    let living = crowd.iter().flatten().count();
    assert_eq!(living, 30);
    for one in crowd.into_iter().flatten() {
        one.end().ok();
    }
    // Each living one's update is in the number, and each number was written
    // on top of the one before.
    let lines = place.text("tokens");
    let writes: Vec<(i64, i64)> = lines
        .lines()
        .map(|l| l.split_once(' ').unwrap())
        .map(|(token, n)| (number(token), number(n)))
        .collect();
    assert_rising(&writes.iter().map(|w| w.0).collect::<Vec<_>>());
    let counter = number(&place.text("counter"));
    let done = (0..40)
        .filter(|id| place.path(&format!("done.{id}")).exists())
        .count() as i64;
    assert!(done >= 30, "{done} done");
    // One that was killed between its two writes counts on neither side.
    assert!(
        counter >= done && counter <= writes.len() as i64,
        "counter {counter}, done {done}, {lines}"
    );
    let mut height = 0;
    for (_, n) in writes {
        // The same number twice: the first of them was killed before its `mv`.
        assert!(n == height + 1 || n == height, "{lines}");
        height = n;
    }
    // Whoever held the key when it was killed blocks it for its TTL at most.
    place.done(&["run", "-w", "15s", "k", "--", "true"]).ok();
}
