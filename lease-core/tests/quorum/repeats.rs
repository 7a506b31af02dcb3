//! The same owner asks again: its lease keeps its token, or the outcome is unknown.

use std::time::Duration;

use lease_core::{
    AcquireOutcome, LeaseBackend, QuorumRules, ReleaseOutcome, RenewOutcome, StoreErrorKind, Token,
};
use tokio::time::sleep;

use super::nodes::{AWAY, LATE, QUARANTINE, SILENT, WELL, World, ask, key};

const MS: Duration = Duration::from_millis(1);

/// A lease of the first owner that stands on the first two nodes; the third one's
/// clock is ahead, and a request for a token of its own has come late to it.
async fn third_is_above() -> (World, Token) {
    let world = World::new(&[1, 0, 9], QuorumRules::ALL);
    world.nodes[2].is(SILENT);
    let token = world.token(1).await;
    late_request(&world, token).await;
    (world, token)
}

async fn late_request(world: &World, lease: Token) {
    let late = world.nodes[2].store.acquire(&ask(1)).await.unwrap();
    let AcquireOutcome::Granted(late) = late else {
        panic!("{late:?}");
    };
    assert!(late.token > lease, "{late:?}");
    world.nodes[2].is(WELL);
}

async fn is_kept(world: &World, token: Token) {
    let renewed = world.renew(1, token).await.unwrap();
    assert_eq!(renewed, RenewOutcome::Renewed);
}

/// Who asks again: the client that has the lease, or another one.
fn repeating(world: &World) -> [World; 2] {
    let same = World {
        nodes: world.nodes.clone(),
        quorum: world.quorum.clone(),
    };
    [same, world.newcomer(QuorumRules::ALL)]
}

#[tokio::test(start_paused = true)]
async fn a_lease_keeps_its_token_where_a_node_that_has_it_is_slow() {
    for client in 0..2 {
        let (world, token) = third_is_above().await;
        world.nodes[0].is(LATE + 700);
        assert_eq!(repeating(&world)[client].token(1).await, token);
        world.nodes[0].is(WELL);
        is_kept(&world, token).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_not_disturbed_where_its_token_cannot_be_told() {
    for client in 0..2 {
        let (world, token) = third_is_above().await;
        world.nodes[0].is(SILENT);
        let repeating = &repeating(&world)[client];
        for _ in 0..2 {
            let error = repeating.acquire(1).await.unwrap_err();
            assert!(error.is_unknown_outcome(), "{error}");
        }
        world.nodes[0].is(WELL);
        is_kept(&world, token).await;
        assert_eq!(repeating.token(1).await, token);
    }
}

/// Only who has handed it out knows it for a lease's.
#[tokio::test(start_paused = true)]
async fn a_lease_whose_token_follows_another_keeps_it() {
    let world = World::new(&[1, 0, 9], QuorumRules::ALL);
    world.nodes[2].is(SILENT);
    let before = world.token(2).await;
    assert_eq!(world.release(2, before).await, ReleaseOutcome::Released);
    let token = world.token(1).await;
    assert_eq!(token.get(), before.get() + 1);
    late_request(&world, token).await;
    world.nodes[0].is(LATE + 700);
    assert_eq!(world.token(1).await, token);
    world.nodes[0].is(WELL);
    is_kept(&world, token).await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_lease_gives_nothing_of_it_back() {
    for client in 0..2 {
        let world = World::new(&[1, 0, 0], QuorumRules::ALL);
        world.nodes[2].is(SILENT);
        let token = world.token(1).await;
        // Somebody else has asked in vain, and has not given it back yet.
        world.nodes[2].store.acquire(&ask(2)).await.unwrap();
        world.nodes[2].is(WELL);
        world.nodes[0].is(SILENT);
        let error = repeating(&world)[client].acquire(1).await.unwrap_err();
        assert!(error.is_unknown_outcome(), "{error}");
        sleep(10_000 * MS).await;
        world.nodes[0].is(WELL);
        is_kept(&world, token).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_nodes_say_is_told_where_none_of_them_grants() {
    let world = World::new(&[1, 0, 0], QuorumRules::ALL);
    let token = world.token(1).await;
    for node in &world.nodes {
        node.is(AWAY);
    }
    let error = world.acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    for node in &world.nodes {
        node.is(QUARANTINE);
    }
    let refused = world.acquire(1).await.unwrap();
    assert!(matches!(refused, AcquireOutcome::Refused(_)), "{refused:?}");
    for node in &world.nodes {
        node.is(WELL);
    }
    is_kept(&world, token).await;
}

#[tokio::test(start_paused = true)]
async fn copies_of_one_client_at_the_same_time_come_to_one_token() {
    let world = World::new(&[0, 1, 9], QuorumRules::ALL);
    let [first, second, third] = &world.nodes[..] else {
        panic!();
    };
    // One hears the first two nodes, the other one the last two.
    first.is(LATE);
    second.is(LATE);
    third.is(SILENT);
    let quorum = world.quorum.clone();
    let one = tokio::spawn(async move { quorum.acquire(&ask(1)).await });
    sleep(MS).await;
    first.is(SILENT);
    third.is(LATE);
    let quorum = world.quorum.clone();
    let other = tokio::spawn(async move { quorum.acquire(&ask(1)).await });
    sleep(MS).await;
    first.is(LATE);
    let one = one.await.unwrap().unwrap();
    let other = other.await.unwrap().unwrap();
    let (AcquireOutcome::Granted(one), AcquireOutcome::Granted(other)) = (&one, &other) else {
        panic!("{one:?} {other:?}");
    };
    assert_eq!(one.token, other.token);
    is_kept(&world, one.token).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_expired_is_not_waited_for() {
    let (world, token) = third_is_above().await;
    sleep(21_000 * MS).await;
    world.nodes[0].is(SILENT);
    let next = world.token(1).await;
    assert!(next > token);
    let state = world.nodes[1].store.inspect(&key()).await.unwrap();
    assert_eq!(state.holder.unwrap().token, next);
    assert_eq!(world.release(1, next).await, ReleaseOutcome::Released);
}
