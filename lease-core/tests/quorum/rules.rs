//! Each rule left out, and what happens then; and what a caller sees of nodes
//! that fail. The same script runs with the rule and without it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use lease_core::{
    AcquireOutcome, AcquireRequest, FenceWhen, LeaseBackend, LostCause, MemoryStore, NodeFailures,
    Quorum, QuorumRules, RefusedReason, ReleaseOutcome, RenewOutcome, StoreErrorKind, Token,
    TokenRule,
};
use tokio::time::Instant;

use super::nodes::{AWAY, LATE, Node, QUARANTINE, SILENT, WELL, World, ask, key, of};

fn with_and_without(leave_out: fn(&mut QuorumRules)) -> [QuorumRules; 2] {
    let mut broken = QuorumRules::ALL;
    leave_out(&mut broken);
    assert_ne!(broken, QuorumRules::ALL);
    [QuorumRules::ALL, broken]
}

#[tokio::test(start_paused = true)]
async fn q2a_without_the_second_round_tokens_go_back() {
    for rules in with_and_without(|r| r.second_round = false) {
        // The first node's clock is ahead, and only it knows of that token.
        let world = World::new(&[10, 0, 0], rules);
        world.nodes[2].is(AWAY);
        let first = world.token(1).await;
        for node in &world.nodes {
            node.store.abandon(&key(), of(1)).await.unwrap();
        }
        world.nodes[2].is(WELL);
        world.nodes[0].is(AWAY);
        let second = world.token(2).await;
        assert_eq!(second > first, rules == QuorumRules::ALL);
    }
}

#[tokio::test(start_paused = true)]
async fn q2l_a_heal_with_any_token_undoes_a_fence() {
    for rules in with_and_without(|r| r.exact = false) {
        let world = World::new(&[0, 0, 0], rules);
        world.nodes[2].is(AWAY);
        let token = world.token(1).await;
        // The fence reaches the first and the third node; the first forgets.
        world.nodes[2].is(WELL);
        world.nodes[1].is(AWAY);
        let above = Token::new(token.get() + 1).unwrap();
        world
            .quorum
            .fence(&key(), above, FenceWhen::AtExpiry)
            .await
            .unwrap();
        world.nodes[1].is(WELL);
        let renewed = world.renew(1, token).await.unwrap();
        let all = rules == QuorumRules::ALL;
        let lost = RenewOutcome::Lost(LostCause::Revoked);
        assert_eq!(renewed, if all { lost } else { RenewOutcome::Renewed });
    }
}

#[tokio::test(start_paused = true)]
async fn q2g_a_quarantine_that_counts_as_a_grant_makes_two_holders() {
    for rules in with_and_without(|r| r.quarantine = false) {
        let world = World::new(&[0, 0, 0], rules);
        world.nodes[2].is(AWAY);
        world.token(1).await;
        // The first node comes back empty.
        world.nodes[2].is(WELL);
        world.nodes[0].is(QUARANTINE);
        let second = world.acquire(2).await.unwrap();
        let two = matches!(second, AcquireOutcome::Granted(_));
        assert_eq!(two, rules != QuorumRules::ALL, "{second:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn half_of_the_nodes_are_no_majority() {
    for rules in with_and_without(|r| r.majority = false) {
        let world = World::new(&[0, 0, 0, 0], rules);
        let cut = |away: [usize; 2]| {
            for (i, node) in world.nodes.iter().enumerate() {
                node.is(if away.contains(&i) { AWAY } else { WELL });
            }
        };
        cut([2, 3]);
        let first = matches!(world.acquire(1).await, Ok(AcquireOutcome::Granted(_)));
        cut([0, 1]);
        let second = matches!(world.acquire(2).await, Ok(AcquireOutcome::Granted(_)));
        assert_eq!(first && second, rules != QuorumRules::ALL);
    }
}

#[tokio::test(start_paused = true)]
async fn what_less_than_a_majority_granted_is_given_back() {
    for rules in with_and_without(|r| r.give_back = false) {
        let world = World::new(&[0, 0, 0], rules);
        world.nodes[2].is(AWAY);
        world.token(1).await;
        world.nodes[2].is(WELL);
        // One who knows that the node failed would not ask it.
        let world = world.newcomer(rules);
        let held = world.acquire(2).await.unwrap();
        assert!(matches!(held, AcquireOutcome::Held(_)), "{held:?}");
        assert_eq!(world.holder(2).await.is_none(), rules == QuorumRules::ALL);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_minority_costs_no_time_and_keeps_nothing() {
    let world = World::new(&[0, 0, 0], QuorumRules::ALL);
    for mood in [SILENT, LATE + 2_000] {
        world.nodes[2].is(mood);
        let start = Instant::now();
        let token = world.token(mood as u8).await;
        assert_eq!(
            world.renew(mood as u8, token).await.unwrap(),
            RenewOutcome::Renewed
        );
        assert_eq!(
            world.release(mood as u8, token).await,
            ReleaseOutcome::Released
        );
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
    // The late request arrives, and what it got is taken away.
    world.nodes[2].is(WELL);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(world.holder(2).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_beside_held_is_released_and_the_owner_asks_no_more_till_then() {
    let world = World::new(&[0, 0, 0], QuorumRules::ALL);
    world.nodes[2].is(AWAY);
    let token = world.token(1).await;
    world.nodes[2].is(LATE + 1_000);
    // One who knows that the node failed would not ask it.
    let world = world.newcomer(QuorumRules::ALL);
    let held = world.acquire(2).await.unwrap();
    assert!(matches!(held, AcquireOutcome::Held(_)), "{held:?}");
    world.release(1, token).await;
    let burnt = AcquireOutcome::Refused(RefusedReason::Abandoned);
    assert_eq!(world.acquire(2).await.unwrap(), burnt);
    world.nodes[2].is(WELL);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.holder(2).await, None);
    world.token(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_forgot_a_grant_gets_it_back_with_its_token_and_label() {
    let world = World::new(&[0, 0, 0], QuorumRules::ALL);
    world.nodes[2].is(AWAY);
    let token = world.token(1).await;
    world.nodes[2].is(WELL);
    assert_eq!(world.renew(1, token).await.unwrap(), RenewOutcome::Renewed);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let state = world.nodes[2].store.inspect(&key()).await.unwrap();
    let holder = state.holder.unwrap();
    assert_eq!((holder.token, holder.label.as_str()), (token, "worker"));
    // Now any one of them may go.
    world.nodes[0].is(AWAY);
    assert_eq!(world.renew(1, token).await.unwrap(), RenewOutcome::Renewed);
}

#[tokio::test(start_paused = true)]
async fn the_mark_of_a_lease_stands_when_a_node_comes_back_empty() {
    let mut world = World::new(&[1, 0, 0], QuorumRules::ALL);
    world.nodes[2].is(SILENT);
    let token = world.token(1).await;
    // The third node named a lower token, and is released before it is brought to it.
    world.nodes[2].store.acquire(&ask(1)).await.unwrap();
    world.nodes[2].is(WELL);
    assert_eq!(world.release(1, token).await, ReleaseOutcome::Released);
    let late = world.nodes[2].store.inspect(&key()).await.unwrap();
    assert!(late.high_water < Some(token));
    world.nodes[0] = Node::new(1);
    let world = world.newcomer(QuorumRules::ALL);
    let state = world.quorum.inspect(&key()).await.unwrap();
    assert_eq!(state.high_water, Some(token));
}

#[tokio::test(start_paused = true)]
async fn errors_name_each_node() {
    let world = World::new(&[0, 0, 0], QuorumRules::ALL);
    let token = world.token(1).await;
    world.nodes[0].is(AWAY);
    world.nodes[1].is(AWAY);
    let error = world.renew(1, token).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(
        error.to_string().contains("n1: ") && error.to_string().contains("n2: "),
        "{error}"
    );
    let source = error
        .source()
        .and_then(|s| s.downcast_ref::<NodeFailures>())
        .unwrap();
    let names: Vec<_> = source.nodes().map(|(name, _)| name).collect();
    assert_eq!(names, ["n1", "n2"]);
    // Something stands on the third node: the caller must clean up.
    let error = world.acquire(2).await;
    println!("{error:?}");
    world.nodes[2].is(AWAY);
    let error = world.acquire(3).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_quarantine_that_is_in_the_way_says_how_long() {
    let world = World::new(&[0, 0, 0], QuorumRules::ALL);
    world.nodes[0].is(QUARANTINE);
    world.nodes[1].is(QUARANTINE);
    let remaining = Duration::from_secs(30);
    let refused = AcquireOutcome::Refused(RefusedReason::Quarantine { remaining });
    assert_eq!(world.acquire(1).await.unwrap(), refused);
    assert_eq!(world.holder(2).await, None);
}

#[tokio::test(start_paused = true)]
async fn exactly_one_token_for_whoever_names_it() {
    let world = World::new(&[0, 5, 9], QuorumRules::ALL);
    let exactly = |owner, token| AcquireRequest {
        rule: TokenRule::Exactly(Token::new(token).unwrap()),
        ..ask(owner)
    };
    let outcome = world.quorum.acquire(&exactly(1, 7)).await.unwrap();
    let AcquireOutcome::Granted(granted) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(granted.token.get(), 7);
    world.release(1, granted.token).await;
    let outcome = world.quorum.acquire(&exactly(2, 7)).await.unwrap();
    let high_water = granted.token;
    assert_eq!(
        outcome,
        AcquireOutcome::Refused(RefusedReason::BelowMark { high_water })
    );
}

#[test]
fn without_a_runtime_there_is_an_error_and_no_panic() {
    let store: Arc<dyn LeaseBackend> = Arc::new(MemoryStore::new());
    let quorum = Quorum::new([("only", store)]).unwrap();
    let request = ask(1);
    let answer = futures_util::FutureExt::now_or_never(quorum.acquire(&request)).unwrap();
    assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Refusing);
}

#[test]
fn nodes_are_checked() {
    let node = || Arc::new(MemoryStore::new()) as Arc<dyn LeaseBackend>;
    assert!(Quorum::new(Vec::<(String, Arc<dyn LeaseBackend>)>::new()).is_err());
    assert!(Quorum::new([("", node())]).is_err());
    assert!(Quorum::new([("a", node()), ("a", node())]).is_err());
    let quorum = Quorum::new([("a", node()), ("b", node()), ("c", node()), ("d", node())]).unwrap();
    assert_eq!(quorum.majority(), 3);
    assert_eq!(
        format!("{quorum:?}"),
        r#"Quorum { nodes: ["a", "b", "c", "d"], majority: 3, .. }"#
    );
}
