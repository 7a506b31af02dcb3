//! Each rule left out, and what happens then; and what a caller sees of nodes
//! that fail. The same script runs with the rule and without it.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::{
    AcquireOutcome, AcquireRequest, Clock, Diagnosis, FenceWhen, Guarantees, Key, KeyState, Label,
    LeaseBackend, LostCause, MemoryStore, Moment, NodeFailures, Owner, Quorum, QuorumRules,
    RefusedReason, ReleaseOutcome, RenewOutcome, RenewRequest, StoreError, StoreErrorKind, Token,
    TokenRule, Ttl,
};
use tokio::time::Instant;

/// What a node does with a request.
const WELL: u64 = 0;
const AWAY: u64 = 1;
const SILENT: u64 = 2;
const QUARANTINE: u64 = 3;
/// From here on: answers so many milliseconds late.
const LATE: u64 = 10;

#[derive(Debug)]
struct TrueClock(Instant);

#[async_trait]
impl Clock for TrueClock {
    fn now(&self) -> Moment {
        Moment::START.after(self.0.elapsed())
    }

    async fn sleep_until(&self, until: Moment) {
        tokio::time::sleep(until.since(self.now())).await;
    }
}

#[derive(Clone, Debug)]
struct Node {
    store: MemoryStore,
    mood: Arc<AtomicU64>,
}

impl Node {
    fn new(clock_ahead: u64) -> Self {
        let clock = Arc::new(TrueClock(Instant::now()));
        let epoch = Duration::from_secs(1_800_000_000 + clock_ahead);
        Self {
            store: MemoryStore::with_clock(clock, epoch),
            mood: Arc::default(),
        }
    }

    fn is(&self, mood: u64) {
        self.mood.store(mood, Ordering::Relaxed);
    }

    async fn waits(&self) -> Result<(), StoreError> {
        match self.mood.load(Ordering::Relaxed) {
            AWAY => Err(StoreError::unavailable("away")),
            SILENT => std::future::pending().await,
            late if late >= LATE => {
                tokio::time::sleep(Duration::from_millis(late)).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl LeaseBackend for Node {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        self.waits().await?;
        if self.mood.load(Ordering::Relaxed) == QUARANTINE {
            let remaining = Duration::from_secs(30);
            return Ok(AcquireOutcome::Refused(RefusedReason::Quarantine {
                remaining,
            }));
        }
        self.store.acquire(request).await
    }

    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        self.waits().await?;
        self.store.abandon(key, owner).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        self.waits().await?;
        self.store.renew(request).await
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        match self.waits().await {
            Ok(()) => self.store.renew_many(requests).await,
            Err(error) => requests.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        self.waits().await?;
        self.store.release(key, owner, token).await
    }

    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        self.waits().await?;
        self.store.fence(key, at_least, when).await
    }

    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        self.waits().await?;
        self.store.inspect(key).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        self.store.list(prefix)
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        self.waits().await?;
        self.store.watch(key).await
    }

    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.waits().await?;
        self.store.diagnose(ttl).await
    }
}

struct World {
    nodes: Vec<Node>,
    quorum: Quorum,
}

impl World {
    /// Nodes whose clocks are ahead by so many seconds.
    fn new(ahead: &[u64], rules: QuorumRules) -> Self {
        let nodes: Vec<_> = ahead.iter().map(|ahead| Node::new(*ahead)).collect();
        let named = nodes.iter().enumerate().map(|(i, node)| {
            let node: Arc<dyn LeaseBackend> = Arc::new(node.clone());
            (format!("n{}", i + 1), node)
        });
        let quorum = Quorum::broken(named, rules, 7).unwrap();
        Self { nodes, quorum }
    }

    async fn acquire(&self, owner: u8) -> Result<AcquireOutcome, StoreError> {
        self.quorum.acquire(&ask(owner)).await
    }

    async fn token(&self, owner: u8) -> Token {
        match self.acquire(owner).await {
            Ok(AcquireOutcome::Granted(granted)) => granted.token,
            other => panic!("{other:?}"),
        }
    }

    async fn renew(&self, owner: u8, token: Token) -> Result<RenewOutcome, StoreError> {
        self.quorum.renew(&renewal(owner, token)).await
    }

    async fn release(&self, owner: u8, token: Token) -> ReleaseOutcome {
        self.quorum.release(&key(), of(owner), token).await.unwrap()
    }

    async fn holder(&self, node: usize) -> Option<Token> {
        let state = self.nodes[node].store.inspect(&key()).await.unwrap();
        state.holder.map(|holder| holder.token)
    }
}

fn key() -> Key {
    Key::new("k").unwrap()
}

fn of(owner: u8) -> Owner {
    Owner::from_bytes([owner; 16])
}

fn ask(owner: u8) -> AcquireRequest {
    AcquireRequest {
        key: key(),
        owner: of(owner),
        ttl: Ttl::new(Duration::from_secs(20)).unwrap(),
        label: Label::new("worker").unwrap(),
        rule: TokenRule::NEXT,
    }
}

fn renewal(owner: u8, token: Token) -> RenewRequest {
    RenewRequest {
        key: key(),
        owner: of(owner),
        token,
        ttl: ask(owner).ttl,
    }
}

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
