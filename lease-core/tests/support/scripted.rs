//! A store over the one in memory whose every call follows a script.

mod backend;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use lease_core::{
    AcquireOutcome, Clock, CrashRelease, Guarantees, Key, LeaseBackend, MemoryStore, Moment, Owner,
    ReleaseOutcome, RenewOutcome, Session, StoreError, StoreErrorKind, Token, WaiterOrder,
};
use tokio::sync::oneshot;

use super::TestClock;

/// More calls than this are a loop without a pause.
const SPIN: usize = 100_000;

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Acquire,
    Abandon,
    Renew,
    RenewMany,
    Release,
    Watch,
}

/// One call, as the store's side saw it.
#[derive(Clone, Debug)]
pub struct Call {
    pub op: Op,
    pub key: String,
    pub owner: Option<Owner>,
    pub token: Option<Token>,
    /// Of an acquire: what it says of waiting.
    pub waits: Option<Duration>,
    /// How many grants it was about.
    pub many: usize,
    pub sent: Moment,
    /// When it took effect, if it did.
    pub applied: Option<Moment>,
    /// What the store answered, whether or not that arrived.
    pub answer: String,
}

type Hook = Arc<dyn Fn() + Send + Sync>;
type Tamper = Arc<dyn Fn(&mut Vec<Result<RenewOutcome, StoreError>>) + Send + Sync>;
type Streams = Arc<dyn Fn() -> BoxStream<'static, ()> + Send + Sync>;

/// What becomes of one call.
#[derive(Clone)]
pub enum Step {
    /// Applied and answered at once.
    Pass,
    /// Applied after the first, answered the second later, **whatever the
    /// caller does meanwhile**.
    Slow(Duration, Duration),
    /// Never applied, never answered.
    LoseRequest,
    /// Applied, never answered.
    LoseReply,
    /// Not applied, and the error at once.
    Fail(StoreErrorKind),
    /// Not applied, and the error after a while.
    SlowFail(Duration, StoreErrorKind),
    /// Applied, and an error at once all the same.
    ApplyThenFail(StoreErrorKind),
    /// The error at once, and applied this much later.
    FailThenApply(StoreErrorKind, Duration),
    /// Applied; then something happens; then answered.
    ApplyThen(Hook),
    /// Something happens; then applied and answered.
    After(Hook),
    /// Panics when polled.
    Panic,
    /// Panics before there is a future to poll.
    PanicAtOnce,
    /// This outcome of an acquire, without any effect.
    Acquired(AcquireOutcome),
    /// This outcome of a renewal, without any effect.
    Renewed(RenewOutcome),
    /// This outcome of a release, without any effect.
    Released(ReleaseOutcome),
    /// Applied; the outcomes are changed on their way back.
    Tamper(Tamper),
    /// This stream of hints.
    Hints(Streams),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "Pass",
            Self::Slow(..) => "Slow",
            Self::LoseRequest => "LoseRequest",
            Self::LoseReply => "LoseReply",
            Self::Fail(_) => "Fail",
            Self::SlowFail(..) => "SlowFail",
            Self::ApplyThenFail(_) => "ApplyThenFail",
            Self::FailThenApply(..) => "FailThenApply",
            Self::ApplyThen(_) => "ApplyThen",
            Self::After(_) => "After",
            Self::Panic => "Panic",
            Self::PanicAtOnce => "PanicAtOnce",
            Self::Acquired(_) => "Acquired",
            Self::Renewed(_) => "Renewed",
            Self::Released(_) => "Released",
            Self::Tamper(_) => "Tamper",
            Self::Hints(_) => "Hints",
        })
    }
}

/// What the caller is told of a scripted failure.
pub fn failure(kind: StoreErrorKind) -> StoreError {
    StoreError::new(kind, "scripted; nothing to do")
}

#[derive(Default)]
struct Script {
    once: HashMap<Op, VecDeque<Step>>,
    always: HashMap<Op, Step>,
    /// A key that makes each renewal panic that it takes part in.
    poison: Option<String>,
    /// Keys that start so are on a part of the store that is gone: abandoning
    /// them fails for ever.
    gone: Option<String>,
    /// What guarantees say of sessions, and what pings answer.
    grace: Option<Duration>,
    /// Guarantees say that waiters are served in order.
    in_order: bool,
    ping: Option<Result<Session, StoreErrorKind>>,
    pings: Vec<Moment>,
}

struct Shared {
    memory: MemoryStore,
    clock: Arc<TestClock>,
    script: Mutex<Script>,
    calls: Mutex<Vec<Call>>,
}

/// A client of the scripted store; a clone is the same one.
#[derive(Clone)]
pub struct Scripted(Arc<Shared>);

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

impl Scripted {
    pub fn new(memory: MemoryStore, clock: Arc<TestClock>) -> Self {
        Self(Arc::new(Shared {
            memory,
            clock,
            script: Mutex::default(),
            calls: Mutex::default(),
        }))
    }

    /// The store itself, past the script.
    pub fn memory(&self) -> MemoryStore {
        self.0.memory.clone()
    }

    /// The next calls of `op` go like this, one step each.
    pub fn next(&self, op: Op, steps: impl IntoIterator<Item = Step>) {
        let mut script = self.0.script.lock().unwrap();
        script.once.entry(op).or_default().extend(steps);
    }

    /// All further calls of `op` go like this, after those of
    /// [`next`](Self::next).
    pub fn always(&self, op: Op, step: Step) {
        self.0.script.lock().unwrap().always.insert(op, step);
    }

    /// Abandoning a key that starts with `prefix` fails from now on.
    pub fn gone(&self, prefix: &str) {
        self.0.script.lock().unwrap().gone = Some(prefix.to_owned());
    }

    /// Grants end this long after their client's session.
    pub fn grace(&self, grace: Duration) {
        self.0.script.lock().unwrap().grace = Some(grace);
    }

    /// From now on clients that are built take it for a store that serves waiters in
    /// order.
    pub fn in_order(&self) {
        self.0.script.lock().unwrap().in_order = true;
    }

    /// What pings answer from now on: the number of a session.
    pub fn session(&self, ping: Result<u64, StoreErrorKind>) {
        self.0.script.lock().unwrap().ping = Some(ping.map(Session::new));
    }

    /// When it was pinged.
    pub fn pings(&self) -> Vec<Moment> {
        self.0.script.lock().unwrap().pings.clone()
    }

    fn pinged(&self) -> Result<Session, StoreError> {
        let mut script = self.0.script.lock().unwrap();
        script.pings.push(self.0.clock.now());
        script.ping.unwrap_or(Ok(Session::NONE)).map_err(failure)
    }

    fn claims(&self) -> Guarantees {
        let claims = self.0.memory.guarantees();
        let script = self.0.script.lock().unwrap();
        let claims = match script.in_order {
            true => claims.waiter_order(WaiterOrder::Fifo),
            false => claims,
        };
        match script.grace {
            Some(grace) => claims.crash_release(CrashRelease::SessionLost { grace }),
            None => claims,
        }
    }

    fn is_gone(&self, key: &Key) -> bool {
        let script = self.0.script.lock().unwrap();
        let gone = script.gone.as_deref();
        gone.is_some_and(|prefix| key.as_str().starts_with(prefix))
    }

    /// Every renewal, of one or many, that `key` takes part in panics.
    pub fn poison(&self, key: &str) {
        self.0.script.lock().unwrap().poison = Some(key.to_owned());
    }

    fn panic_if_poisoned<'a>(&self, mut keys: impl Iterator<Item = &'a Key>) {
        let poison = self.0.script.lock().unwrap().poison.clone();
        if let Some(poison) = poison
            && keys.any(|key| key.as_str() == poison)
        {
            panic!("scripted: {poison}");
        }
    }

    pub fn calls(&self) -> Vec<Call> {
        self.0.calls.lock().unwrap().clone()
    }

    pub fn calls_of(&self, op: Op) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| call.op == op);
        calls
    }

    pub fn count(&self, op: Op) -> usize {
        self.calls_of(op).len()
    }

    fn step(&self, op: Op) -> Step {
        let mut script = self.0.script.lock().unwrap();
        let once = script.once.get_mut(&op).and_then(VecDeque::pop_front);
        once.or_else(|| script.always.get(&op).cloned())
            .unwrap_or(Step::Pass)
    }

    /// How the next batch of outcomes is changed, if it is.
    fn tamper(&self) -> Option<Tamper> {
        let script = self.0.script.lock().unwrap();
        let once = script.once.get(&Op::RenewMany).and_then(VecDeque::front);
        match once.or_else(|| script.always.get(&Op::RenewMany)) {
            Some(Step::Tamper(tamper)) => Some(Arc::clone(tamper)),
            _ => None,
        }
    }

    fn note(&self, call: Call) -> usize {
        let mut calls = self.0.calls.lock().unwrap();
        calls.push(call);
        if calls.len() > SPIN {
            // Somebody asks without ever sleeping: paused time would stand
            // still and the test would never end.
            self.0.clock.jump(Duration::from_secs(1));
        }
        calls.len() - 1
    }

    /// Follows the script for one call: `apply` is the real operation.
    fn play<T, A, F>(
        &self,
        call: Call,
        apply: A,
        forged: impl Fn(&Step) -> Option<T> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, StoreError>>
    where
        T: fmt::Debug + Send + 'static,
        A: FnOnce(MemoryStore) -> F + Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let step = self.step(call.op);
        let number = self.note(call);
        let this = self.clone();
        let real = {
            let this = self.clone();
            async move {
                let answer = apply(this.0.memory.clone()).await;
                let mut calls = this.0.calls.lock().unwrap();
                calls[number].applied = Some(this.0.clock.now());
                calls[number].answer = format!("{answer:?}");
                answer
            }
        };
        if matches!(step, Step::PanicAtOnce) {
            panic!("scripted: at once");
        }
        async move {
            if let Some(forged) = forged(&step) {
                this.0.calls.lock().unwrap()[number].answer = format!("{forged:?}");
                return Ok(forged);
            }
            match step {
                Step::Slow(there, back) => {
                    let (reply, answer) = oneshot::channel();
                    // The network goes on whatever the caller does.
                    tokio::spawn(async move {
                        tokio::time::sleep(there).await;
                        let real = real.await;
                        tokio::time::sleep(back).await;
                        let _ = reply.send(real);
                    });
                    answer.await.unwrap()
                }
                Step::LoseRequest => std::future::pending().await,
                Step::LoseReply => {
                    let _ = real.await;
                    std::future::pending().await
                }
                Step::Fail(kind) => {
                    this.0.calls.lock().unwrap()[number].answer = format!("failed: {kind}");
                    Err(failure(kind))
                }
                Step::SlowFail(after, kind) => {
                    tokio::time::sleep(after).await;
                    Err(failure(kind))
                }
                Step::ApplyThenFail(kind) => {
                    let _ = real.await;
                    Err(failure(kind))
                }
                Step::FailThenApply(kind, later) => {
                    tokio::spawn(async move {
                        tokio::time::sleep(later).await;
                        let _ = real.await;
                    });
                    Err(failure(kind))
                }
                Step::ApplyThen(hook) => {
                    let answer = real.await;
                    hook();
                    answer
                }
                Step::After(hook) => {
                    hook();
                    real.await
                }
                Step::Panic => panic!("scripted: when polled"),
                _ => real.await,
            }
        }
        .boxed()
    }

    fn call(&self, op: Op, key: &Key, owner: Option<Owner>, token: Option<Token>) -> Call {
        Call {
            op,
            key: key.as_str().to_owned(),
            owner,
            token,
            waits: None,
            many: 1,
            sent: self.0.clock.now(),
            applied: None,
            answer: String::new(),
        }
    }
}
