//! A node that is slower than the others has its part in every lease.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{
    AcquireOutcome, AcquireRequest, Clock, LeaseBackend, Leases, Owner, QuorumRules,
    ReleaseOutcome, RenewOutcome, Token, TokenRule,
};
use tokio::time::{Instant, sleep};

use super::nodes::{AWAY, LATE, Node, SILENT, TrueClock, WELL, World, ask, key, of};

const MS: Duration = Duration::from_millis(1);

/// The second node takes 10 ms, the third one so much longer.
fn third_is_later(by_ms: u64) -> World {
    let world = World::new(&[0, 0, 0], QuorumRules::ALL);
    world.nodes[1].is(LATE);
    world.nodes[2].is(LATE + by_ms);
    world
}

/// All nodes know by now that the third one is slow.
async fn third_is_known_to_be_later(by_ms: u64) -> World {
    let world = third_is_later(by_ms);
    for owner in 0..5 {
        let token = world.token(owner).await;
        sleep(Duration::from_millis(5 * by_ms)).await;
        assert_eq!(world.release(owner, token).await, ReleaseOutcome::Released);
    }
    sleep(Duration::from_secs(20)).await;
    world
}

async fn stands_on_all(world: &World, token: Token) {
    for i in 0..world.nodes.len() {
        assert_eq!(world.holder(i).await, Some(token), "node {i}");
    }
}

async fn mark(node: &Node) -> Option<Token> {
    node.store.inspect(&key()).await.unwrap().high_water
}

#[tokio::test(start_paused = true)]
async fn a_node_that_answers_late_is_brought_to_the_token() {
    let world = third_is_later(100);
    let start = Instant::now();
    let token = world.token(1).await;
    assert!(start.elapsed() < 50 * MS, "{:?}", start.elapsed());
    sleep(Duration::from_secs(1)).await;
    stands_on_all(&world, token).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_known_to_be_slow_is_brought_to_the_token_however_slow_it_is() {
    let world = third_is_known_to_be_later(900).await;
    let start = Instant::now();
    let token = world.token(11).await;
    assert!(start.elapsed() < 50 * MS, "{:?}", start.elapsed());
    sleep(Duration::from_secs(3)).await;
    stands_on_all(&world, token).await;
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_any_one_node_loses_no_lease() {
    for lost in 0..3 {
        let world = third_is_known_to_be_later(900).await;
        let token = world.token(11).await;
        sleep(Duration::from_secs(3)).await;
        world.nodes[lost].is(AWAY);
        let renewed = world.renew(11, token).await.unwrap();
        assert_eq!(renewed, RenewOutcome::Renewed, "without node {lost}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_a_held_key_leaves_no_mark_on_a_slow_node() {
    let world = third_is_known_to_be_later(900).await;
    let token = world.token(11).await;
    let held = world.acquire(12).await.unwrap();
    assert!(matches!(held, AcquireOutcome::Held(_)), "{held:?}");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(mark(&world.nodes[2]).await, Some(token));
    stands_on_all(&world, token).await;
}

#[tokio::test(start_paused = true)]
async fn a_release_before_a_slow_node_has_the_grant_leaves_nothing_there() {
    let world = third_is_known_to_be_later(900).await;
    let token = world.token(11).await;
    assert_eq!(world.release(11, token).await, ReleaseOutcome::Released);
    // The request for the token arrives after the release.
    world.nodes[2].is(WELL);
    sleep(Duration::from_secs(15)).await;
    assert_eq!(world.holder(2).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_slow_node_helps_out_where_another_fails() {
    let world = third_is_known_to_be_later(90).await;
    world.nodes[0].is(AWAY);
    let start = Instant::now();
    world.token(11).await;
    let both_rounds = 2 * (100 + 10) * MS;
    assert!(start.elapsed() <= both_rounds, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_hangs_costs_a_hedge_and_only_for_a_while() {
    let world = third_is_known_to_be_later(90).await;
    world.nodes[0].is(SILENT);
    let mut took = Vec::new();
    for owner in 11..20 {
        let start = Instant::now();
        let token = world.token(owner).await;
        took.push(start.elapsed());
        world.release(owner, token).await;
    }
    // Two rounds of the slow node, a quarter of one that the rest gets, and what a
    // majority took so far, four times, on its way up.
    let (rounds, hedge) = (230 * MS, 100 * MS);
    assert!(took.iter().all(|took| *took <= rounds + hedge), "{took:?}");
    assert!(took[5..].iter().all(|took| *took <= rounds), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_fast_again_is_asked_first_again() {
    let world = third_is_known_to_be_later(90).await;
    world.nodes[2].is(WELL);
    for owner in 11..50 {
        let token = world.token(owner).await;
        sleep(100 * MS).await;
        world.release(owner, token).await;
    }
    world.nodes[1].is(SILENT);
    let start = Instant::now();
    world.token(51).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn tokens_do_not_run_away_from_the_clocks() {
    let world = World::new(&[0, 0, 0], QuorumRules::ALL);
    let clock = Instant::now();
    let mut last = Token::MIN;
    for i in 0..6_000_usize {
        // Each node in turn misses a token, and no time passes.
        for (n, node) in world.nodes.iter().enumerate() {
            node.is(if i % 3 == n { AWAY } else { WELL });
        }
        let owner = Owner::from_bytes((i as u128).to_be_bytes());
        let request = AcquireRequest { owner, ..ask(0) };
        let outcome = world.quorum.acquire(&request).await.unwrap();
        let AcquireOutcome::Granted(granted) = outcome else {
            panic!("{outcome:?}");
        };
        let token = granted.token;
        assert!(token > last, "{token} after {last}");
        let released = world.quorum.release(&key(), owner, token).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
        last = token;
    }
    let now = Duration::from_secs(1_800_000_000) + clock.elapsed();
    let ahead = Duration::from_micros(last.get()).saturating_sub(now);
    assert!(ahead < Duration::from_secs(2), "{ahead:?}");
}

#[tokio::test(start_paused = true)]
async fn every_holder_is_told_before_its_deadline_when_a_majority_is_lost() {
    for mood in [AWAY, SILENT] {
        let world = World::new(&[0, 0, 0, 0, 0], QuorumRules::ALL);
        let clock = Arc::new(TrueClock(Instant::now()));
        let leases = Leases::builder(Arc::new(world.quorum.clone()))
            .clock(Arc::clone(&clock) as _)
            .build();
        let mut held = Vec::new();
        for i in 0..20_u32 {
            let ttl = (i + 1) * 300 * MS;
            held.push(
                leases
                    .lease(format!("k{i}"))
                    .ttl(ttl)
                    .acquire()
                    .await
                    .unwrap(),
            );
        }
        sleep(Duration::from_secs(3)).await;
        for node in &world.nodes[..3] {
            node.is(mood);
        }
        let (clock, nodes) = (&clock, &world.nodes);
        let told = held.iter().map(|lease| async move {
            lease.lost().await;
            assert!(lease.check().is_err());
            assert!(clock.now() <= lease.deadline().after(MS), "{lease:?}");
            // No store could have granted it to anybody else so far.
            for node in nodes {
                let state = node.store.inspect(lease.key()).await.unwrap();
                assert!(state.holder.is_some(), "{lease:?}: {state:?}");
            }
        });
        futures_util::future::join_all(told).await;
    }
}

/// Each may have got a node, and none a majority of those that answer.
#[tokio::test(start_paused = true)]
async fn many_who_ask_at_once_all_get_their_turn_while_a_node_is_lost() {
    for mood in [AWAY, SILENT] {
        let world = World::new(&[0, 0, 0], QuorumRules::ALL);
        world.nodes[0].is(LATE);
        world.nodes[1].is(LATE);
        world.nodes[2].is(mood);
        let clock = Arc::new(TrueClock(Instant::now()));
        let clients = (0..4).map(|_| {
            let quorum = world.newcomer(QuorumRules::ALL).quorum;
            Leases::builder(Arc::new(quorum))
                .clock(Arc::clone(&clock) as _)
                .build()
        });
        let start = Instant::now();
        let lives = clients.map(|leases| async move {
            for _ in 0..5 {
                let lease = leases.lease("k").ttl(3_000 * MS).wait(60_000 * MS);
                lease.acquire().await.unwrap().release().await.unwrap();
            }
        });
        futures_util::future::join_all(lives).await;
        let took = start.elapsed();
        assert!(took < Duration::from_secs(20), "{mood}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_stood_when_a_fence_came_between_the_rounds_is_abandoned() {
    // They name different tokens.
    let world = World::new(&[0, 1, 2], QuorumRules::ALL);
    for node in &world.nodes {
        node.is(LATE);
    }
    let theirs = world.newcomer(QuorumRules::ALL);
    let acquire = tokio::spawn(async move { theirs.acquire(1).await });
    // The first round is over, and the second under way.
    sleep(15 * MS).await;
    for node in &world.nodes[..2] {
        let mark = Token::new(1_900_000_000_000_000).unwrap();
        let when = lease_core::FenceWhen::Immediately;
        node.store.fence(&key(), mark, when).await.unwrap();
    }
    let outcome = acquire.await.unwrap().unwrap();
    assert!(matches!(outcome, AcquireOutcome::Refused(_)), "{outcome:?}");
    sleep(Duration::from_secs(2)).await;
    for i in 0..3 {
        assert_eq!(world.holder(i).await, None, "node {i}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_away_learns_of_a_fence_later() {
    let world = World::new(&[0, 0, 0], QuorumRules::ALL);
    world.nodes[2].is(AWAY);
    let floor = Token::new(1_900_000_000_000_000).unwrap();
    let when = lease_core::FenceWhen::Immediately;
    let fenced = world.quorum.fence(&key(), floor, when).await.unwrap();
    assert_eq!(fenced, floor);
    assert_eq!(mark(&world.nodes[2]).await, None);
    world.nodes[2].is(WELL);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(mark(&world.nodes[2]).await, Some(floor));
}

#[tokio::test(start_paused = true)]
async fn two_that_have_a_node_each_do_not_wait_for_the_lost_one_for_ever() {
    for mood in [AWAY, SILENT] {
        let world = World::new(&[0, 0, 0], QuorumRules::ALL);
        world.nodes[2].is(mood);
        for owner in [1, 2] {
            let node = &world.nodes[usize::from(owner) - 1];
            node.store.acquire(&ask(owner)).await.unwrap();
        }
        let [one, other] = [1, 2].map(|_| world.newcomer(QuorumRules::ALL));
        let mut owners = [1, 2];
        let granted = async {
            loop {
                let [a, b] = owners;
                let outcomes = tokio::join!(one.acquire(a), other.acquire(b));
                for (i, outcome) in [outcomes.0, outcomes.1].into_iter().enumerate() {
                    match outcome {
                        Ok(AcquireOutcome::Granted(_)) => return,
                        Ok(AcquireOutcome::Refused(_)) => owners[i] += 2,
                        _ => {}
                    }
                }
            }
        };
        // Their grants would last for twenty.
        tokio::time::timeout(5_000 * MS, granted).await.unwrap();
    }
}

/// It takes no node away from the lease that the next try was granted.
#[tokio::test(start_paused = true)]
async fn a_release_that_comes_late_names_another_token_than_the_next_try() {
    let world = World::new(&[1, 0, 0], QuorumRules::ALL);
    world.nodes[1].store.acquire(&ask(2)).await.unwrap();
    world.nodes[2].is(SILENT);
    let first = world.acquire(1);
    let meanwhile = async {
        // The first node has granted, and is slow from now on.
        sleep(100 * MS).await;
        world.nodes[0].is(LATE + 15_000);
    };
    let (first, ()) = tokio::join!(first, meanwhile);
    assert!(first.unwrap_err().is_unknown_outcome());
    let given_back = world.holder(0).await.unwrap();
    for node in &world.nodes {
        node.is(WELL);
    }
    // An earlier try had brought the others to the same token: all are at one.
    let exactly = AcquireRequest {
        rule: TokenRule::Exactly(given_back),
        ..ask(1)
    };
    for node in &world.nodes[1..] {
        node.store.abandon(&key(), of(2)).await.unwrap();
        node.store.acquire(&exactly).await.unwrap();
    }
    let token = world.token(1).await;
    assert!(token > given_back);
    for node in &world.nodes {
        node.store.release(&key(), of(1), given_back).await.unwrap();
    }
    stands_on_all(&world, token).await;
}
