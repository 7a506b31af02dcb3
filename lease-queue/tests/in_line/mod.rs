//! Clients that wait in line for one key, as programs do: `Leases` of their own, over
//! connections of their own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lease_core::{
    Attempt, Event, EventKind, Key, LeaseBackend, Leases, RefusedReason, WAITER_TURN, place_lasts,
};
use lease_queue::{KeyedLeases, QueueName, QueueStore};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const WAITERS: usize = 8;

/// What a client has heard from its store.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    attempts: usize,
    /// Its place is taken.
    waits: bool,
}

/// One client.
pub(crate) struct Client {
    leases: Leases,
    heard: watch::Receiver<Heard>,
}

impl Client {
    pub(crate) fn new(store: Arc<dyn QueueStore>) -> Self {
        let backend = KeyedLeases::new(store, QueueName::new("locks").unwrap());
        let backend: Arc<dyn LeaseBackend> = Arc::new(backend);
        let (told, heard) = watch::channel(Heard::default());
        let observer = move |event: &Event| {
            told.send_modify(|heard| match &event.kind {
                EventKind::Attempt { .. } => heard.attempts += 1,
                EventKind::Contended { .. }
                | EventKind::Refused {
                    reason: RefusedReason::InLine { .. },
                    ..
                } => heard.waits = true,
                _ => {}
            });
        };
        let leases = Leases::builder(backend).observer(observer).build();
        Self { leases, heard }
    }

    /// Waits for the key until it is told that it has to; tells by its number when it is
    /// granted, holds the key until it hears of it, and releases.
    async fn joins(&self, number: usize, line: &Line) -> JoinHandle<()> {
        let acquire = self.leases.lease(&line.key).acquire();
        let (served, go) = (line.served.clone(), Arc::clone(&line.go));
        let waits = tokio::spawn(async move {
            let lease = acquire.await.unwrap();
            served.send((number, Instant::now())).unwrap();
            go.acquire().await.unwrap().forget();
            lease.release().await.unwrap();
        });
        let mut heard = self.heard.clone();
        let told = heard.wait_for(|heard| heard.waits);
        tokio::time::timeout(PATIENCE, told).await.unwrap().unwrap();
        waits
    }

    fn attempts(&self) -> usize {
        self.heard.borrow().attempts
    }
}

struct Line {
    key: Key,
    served: mpsc::UnboundedSender<(usize, Instant)>,
    go: Arc<tokio::sync::Semaphore>,
}

fn line() -> (Line, mpsc::UnboundedReceiver<(usize, Instant)>) {
    let (served, who) = mpsc::unbounded_channel();
    let line = Line {
        key: Key::new("k").unwrap(),
        served,
        go: Arc::new(tokio::sync::Semaphore::new(0)),
    };
    (line, who)
}

async fn next(who: &mut mpsc::UnboundedReceiver<(usize, Instant)>) -> (usize, Instant) {
    let next = tokio::time::timeout(PATIENCE, who.recv()).await;
    next.unwrap().unwrap()
}

/// All are served in the order in which they joined. A machine that stands still for a
/// whole turn breaks it, as promised: then once more.
pub(crate) async fn eight_clients_are_served_in_order(clients: &[Client], holder: &Client) {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (line, mut who) = line();
        let lease = holder.leases.lease(&line.key).acquire().await.unwrap();
        // Not in the order in which they were opened.
        let order: Vec<_> = (0..clients.len())
            .map(|n| (n * 5 + 3) % clients.len())
            .collect();
        let mut tasks = Vec::new();
        for number in &order {
            tasks.push(clients[*number].joins(*number, &line).await);
        }
        let before: usize = clients.iter().map(Client::attempts).sum();
        let tried = holder.leases.lease(&line.key).try_acquire().await.unwrap();
        assert!(matches!(tried, Attempt::Held(_)));
        lease.release().await.unwrap();
        let (mut served, mut slowest) = (Vec::new(), Duration::ZERO);
        let mut last = Instant::now();
        for _ in &order {
            let (number, when) = next(&mut who).await;
            served.push(number);
            slowest = slowest.max(when.saturating_duration_since(last));
            // Nobody who only tries gets in between.
            let tried = holder.leases.lease(&line.key).try_acquire().await.unwrap();
            assert!(matches!(tried, Attempt::Held(_)));
            last = Instant::now();
            line.go.add_permits(1);
        }
        for task in tasks {
            task.await.unwrap();
        }
        let looks = clients.iter().map(Client::attempts).sum::<usize>() - before;
        if served == order {
            // Each looks once for each hint, twice where it is called after that, and
            // now and then by itself.
            let hand_overs = clients.len() * (clients.len() + 1) / 2;
            assert!(looks <= hand_overs * 4, "{looks}");
            return;
        }
        seen.push((served, slowest));
    }
    // Slower than a turn each time?
    assert!(
        seen.iter().all(|(_, slowest)| *slowest >= WAITER_TURN),
        "{seen:?}"
    );
}

/// One in the middle and the first are cut off for good when they have joined, as
/// machines are that crash: the others are served in their order, and each of the two
/// costs a turn.
pub(crate) async fn the_dead_cost_a_turn_each(
    clients: &[Client],
    dead: [usize; 2],
    holder: &Client,
    kill: impl FnOnce(),
) {
    let (line, mut who) = line();
    let lease = holder.leases.lease(&line.key).acquire().await.unwrap();
    let mut tasks = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        tasks.push(client.joins(number, &line).await);
    }
    kill();
    let freed = Instant::now();
    lease.release().await.unwrap();
    let living: Vec<_> = (0..clients.len()).filter(|n| !dead.contains(n)).collect();
    let mut served = Vec::new();
    for _ in &living {
        let (number, when) = next(&mut who).await;
        served.push((number, when - freed));
        line.go.add_permits(1);
    }
    let took = freed.elapsed();
    // Unless the machine stood still for turns on end.
    let order: Vec<_> = served.iter().map(|(number, _)| *number).collect();
    assert!(order == living || took > WAITER_TURN * 4, "{served:?}");
    assert!(took >= WAITER_TURN * 2, "{took:?}");
    // Not their places' time.
    assert!(took < place_lasts(Duration::from_secs(5)), "{took:?}");
    for (number, task) in tasks.into_iter().enumerate() {
        match dead.contains(&number) {
            true => task.abort(),
            false => task.await.unwrap(),
        }
    }
}

/// A client that holds the key and is cut off: the first in line has it soon after
/// the TTL.
pub(crate) async fn a_lapsed_holder_is_followed_by_the_first(
    clients: &[Client],
    holder: &Client,
    kill: impl FnOnce(),
) {
    let (line, mut who) = line();
    let ttl = Duration::from_secs(2);
    let lease = holder
        .leases
        .lease(&line.key)
        .ttl(ttl)
        .acquire()
        .await
        .unwrap();
    let mut tasks = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        tasks.push(client.joins(number, &line).await);
    }
    kill();
    let killed = Instant::now();
    let (first, when) = next(&mut who).await;
    // Its last renewal came before it was cut off; and a look for each of those ahead.
    let took = when.saturating_duration_since(killed);
    assert!(
        first == 0 || took > ttl / 2 + WAITER_TURN,
        "{first} after {took:?}"
    );
    assert!(took < ttl + Duration::from_secs(8), "{took:?}");
    line.go.add_permits(clients.len());
    for task in tasks {
        task.await.unwrap();
    }
    assert!(lease.check().is_err());
}
