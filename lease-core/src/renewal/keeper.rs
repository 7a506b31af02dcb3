//! The loop itself: timers, batches, outcomes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::{Instrument, debug_span};

use super::{Command, jobs};
use crate::backend::{RenewOutcome, RenewRequest};
use crate::client::Parts;
use crate::clock::Moment;
use crate::error::{Error, StoreError};
use crate::lease::{Held, Released};
use crate::lost::LostReason;
use crate::observe::EventKind;
use crate::retry::{Backoff, Pace};

/// The most renewals in one batch.
const BATCH: usize = 500;
/// Renewals due within this long go out together.
const TOGETHER: Duration = Duration::from_millis(5);
/// The most messages or outcomes handled before the timers are looked at.
const AT_ONCE: usize = 256;

/// A lease's number. Everything here goes in its order, so that one seed gives
/// one run.
type Id = u64;

struct Entry {
    held: Arc<Held>,
    pace: Pace,
    backoff: Backoff,
    /// When the next renewal is due; never, once the lease is lost.
    next: Moment,
    /// The send of the latest attempt, and whether it is still unanswered.
    sent: Moment,
    unanswered: bool,
    /// The latest send that was confirmed.
    confirmed: Moment,
    failures: u32,
    last_error: Option<StoreError>,
    /// Where the entry stands among the timers.
    timer: Moment,
}

enum Done {
    Renewed {
        batch: Vec<Arc<Held>>,
        sent: Moment,
        outcomes: Vec<Result<RenewOutcome, StoreError>>,
    },
    CleanedUp,
}

pub(super) struct Loop {
    parts: Arc<Parts>,
    commands: mpsc::UnboundedReceiver<Command>,
    open: bool,
    entries: BTreeMap<Id, Entry>,
    timers: BTreeSet<(Moment, Id)>,
    jobs: JoinSet<Done>,
    /// Releases and abandonments under way.
    clean_ups: usize,
    abandons: Arc<Semaphore>,
    settled: Vec<oneshot::Sender<()>>,
}

impl Loop {
    pub(super) fn new(parts: Arc<Parts>, commands: mpsc::UnboundedReceiver<Command>) -> Self {
        Self {
            parts,
            commands,
            open: true,
            entries: BTreeMap::new(),
            timers: BTreeSet::new(),
            jobs: JoinSet::new(),
            clean_ups: 0,
            abandons: Arc::new(Semaphore::new(jobs::ABANDONS_AT_ONCE)),
            settled: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let clock = Arc::clone(&self.parts.clock);
        while self.open || !self.jobs.is_empty() {
            self.fire(clock.now());
            self.tell_if_settled();
            let wake = self.timers.first().map_or(Moment::NEVER, |t| t.0);
            tokio::select! {
                biased;
                command = self.commands.recv(), if self.open => match command {
                    Some(command) => self.command(command),
                    None => self.open = false,
                },
                Some(done) = self.jobs.join_next(), if !self.jobs.is_empty() => self.done(done),
                () = clock.sleep_until(wake), if wake != Moment::NEVER => {}
            }
            for _ in 0..AT_ONCE {
                match self.commands.try_recv() {
                    Ok(command) => self.command(command),
                    Err(_) => break,
                }
            }
            for _ in 0..AT_ONCE {
                match self.jobs.try_join_next() {
                    Some(done) => self.done(done),
                    None => break,
                }
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Keep(held) => self.keep(held),
            Command::Forget(held) => self.remove(&held),
            Command::Release(held, reply) => {
                self.remove(&held);
                self.release(held, Some(reply));
            }
            Command::Abandon(key, owner) => {
                let (parts, turns) = (Arc::clone(&self.parts), Arc::clone(&self.abandons));
                self.clean_up(jobs::abandon_in_turn(parts, turns, key, owner));
            }
            Command::LoseAll => {
                for entry in self.entries.values() {
                    entry.held.lose(LostReason::Shutdown);
                }
            }
            Command::ReleaseAll => {
                let all: Vec<_> = self.entries.values().map(|e| Arc::clone(&e.held)).collect();
                for held in all {
                    self.remove(&held);
                    self.release(held, None);
                }
            }
            Command::WhenSettled(reply) => self.settled.push(reply),
        }
    }

    fn keep(&mut self, held: Arc<Held>) {
        let pace = Pace::of(held.ttl, &self.parts.chance);
        if self.parts.closing.is_cancelled() && !held.is_given_up() {
            // Granted while the client was shut down.
            held.lose(LostReason::Shutdown);
        }
        let (id, sent) = (held.id, held.granted);
        let entry = Entry {
            backoff: Backoff::renewal(held.ttl),
            next: sent.after(pace.renew_after),
            held,
            pace,
            sent,
            unanswered: false,
            confirmed: sent,
            failures: 0,
            last_error: None,
            timer: Moment::NEVER,
        };
        self.entries.insert(id, entry);
        self.set_timer(id);
    }

    fn remove(&mut self, held: &Arc<Held>) {
        if let Some(entry) = self.entries.remove(&held.id) {
            self.timers.remove(&(entry.timer, held.id));
        }
    }

    fn release(
        &mut self,
        held: Arc<Held>,
        reply: Option<oneshot::Sender<Result<Released, Error>>>,
    ) {
        let parts = Arc::clone(&self.parts);
        self.clean_up(async move {
            let ended = jobs::release(&parts, &held).await;
            if let Some(reply) = reply {
                // Nobody listens when the handle was dropped.
                let _ = reply.send(ended);
            }
            if held.unanswered {
                // A request of its acquisition may still reach the store, and
                // would be granted then.
                jobs::abandon(parts, held.key.clone(), held.owner).await;
            }
        });
    }

    fn clean_up(&mut self, job: impl Future<Output = ()> + Send + 'static) {
        self.clean_ups += 1;
        self.jobs.spawn(async move {
            job.await;
            Done::CleanedUp
        });
    }

    fn tell_if_settled(&mut self) {
        if self.entries.is_empty() && self.clean_ups == 0 {
            for reply in self.settled.drain(..) {
                let _ = reply.send(());
            }
        }
    }

    /// Puts the entry's timer at the next thing that can happen to it.
    fn set_timer(&mut self, id: Id) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        self.timers.remove(&(entry.timer, id));
        entry.timer = entry.wake(self.parts.rules.lost_at_deadline);
        if entry.timer != Moment::NEVER {
            self.timers.insert((entry.timer, id));
        }
    }

    /// Handles every timer that has come.
    fn fire(&mut self, now: Moment) {
        let soon = now.after(TOGETHER);
        let ready: Vec<Id> = self
            .timers
            .range(..=(soon, Id::MAX))
            .map(|(_, id)| *id)
            .collect();
        let mut due: BTreeMap<u32, Vec<Id>> = BTreeMap::new();
        for id in ready {
            let Some(entry) = self.entries.get_mut(&id) else {
                continue;
            };
            if let Some(reason) = entry.ending(now, self.parts.rules.lost_at_deadline) {
                entry.held.lose(reason);
            } else if entry.held.lost().is_none() && entry.next <= soon {
                // Leases of like TTLs share a batch: a short one's patience
                // must not cut a long one's attempt.
                let class = entry.held.ttl.as_millis().ilog2();
                due.entry(class).or_default().push(id);
            }
            self.set_timer(id);
        }
        for class in due.values() {
            for batch in class.chunks(BATCH) {
                self.renew(batch, now);
            }
        }
    }

    fn renew(&mut self, batch: &[Id], now: Moment) {
        let mut requests = Vec::with_capacity(batch.len());
        let mut helds = Vec::with_capacity(batch.len());
        let mut until = now;
        for id in batch {
            let Some(entry) = self.entries.get_mut(id) else {
                continue;
            };
            if entry.unanswered {
                let silence = StoreError::unknown_outcome(
                    "a renewal is still unanswered; check the store's latency against the TTL",
                );
                entry.tell_failed(silence, now);
            }
            entry.sent = now;
            entry.unanswered = true;
            entry.next = now.after(entry.pace.patience);
            until = until.max(entry.held.deadline());
            requests.push(RenewRequest {
                key: entry.held.key.clone(),
                owner: entry.held.owner,
                token: entry.held.token,
                ttl: entry.held.ttl,
            });
            helds.push(Arc::clone(&entry.held));
            self.set_timer(*id);
        }
        let store: &str = &self.parts.guarantees.store;
        let span = debug_span!(target: "leases", "renew", store, leases = requests.len());
        let job = jobs::renew(Arc::clone(&self.parts), requests, until);
        let job = async move {
            Done::Renewed {
                batch: helds,
                sent: now,
                outcomes: job.await,
            }
        };
        self.jobs.spawn(job.instrument(span));
    }

    fn done(&mut self, done: Result<Done, tokio::task::JoinError>) {
        match done {
            Ok(Done::Renewed {
                batch,
                sent,
                outcomes,
            }) => {
                let now = self.parts.clock.now();
                for (held, outcome) in batch.iter().zip(outcomes) {
                    self.renewed(held, sent, outcome, now);
                }
            }
            Ok(Done::CleanedUp) => self.clean_ups -= 1,
            // A task of ours panicked outside of the backend, which only an
            // observer's or clock's code could do; count it as ended.
            Err(_) => self.clean_ups = self.clean_ups.saturating_sub(1),
        }
    }

    fn renewed(
        &mut self,
        held: &Arc<Held>,
        sent: Moment,
        outcome: Result<RenewOutcome, StoreError>,
        now: Moment,
    ) {
        let rules = self.parts.rules;
        let drift = self.parts.drift;
        let Some(entry) = self.entries.get_mut(&held.id) else {
            return; // Released meanwhile: nothing is kept any more.
        };
        if held.lost().is_some() {
            return;
        }
        match outcome {
            Ok(RenewOutcome::Renewed) => {
                let from = if !rules.count_from_send {
                    now
                } else if rules.own_send {
                    sent
                } else {
                    entry.sent
                };
                let valid = if rules.drift_allowance {
                    drift.validity(held.ttl)
                } else {
                    held.ttl.get()
                };
                held.confirm(from.after(valid), !rules.deadline_never_moves_back);
                entry.succeeded(sent, now);
                held.tell(EventKind::Renewed {
                    took: now.since(sent),
                    valid_for: held.deadline().since(now),
                });
            }
            Ok(RenewOutcome::Lost(cause)) => {
                held.lose(LostReason::Store(cause));
                entry.next = Moment::NEVER;
            }
            Err(error) => {
                let pause = entry.backoff.next(&self.parts.chance);
                entry.failed(error, sent, now, pause);
            }
        }
        self.set_timer(held.id);
    }
}

impl Entry {
    fn wake(&self, ends_at_deadline: bool) -> Moment {
        if self.held.lost().is_some() {
            return Moment::NEVER;
        }
        let deadline = if ends_at_deadline {
            self.held.deadline()
        } else {
            Moment::NEVER
        };
        let held = &self.held;
        let max_hold = held.max_hold.map(|limit| held.granted.after(limit));
        let progress = held
            .progress_within
            .map(|limit| held.last_progress().after(limit));
        self.next
            .min(deadline)
            .min(max_hold.unwrap_or(Moment::NEVER))
            .min(progress.unwrap_or(Moment::NEVER))
    }

    /// Why the lease ends now, if it does.
    fn ending(&self, now: Moment, ends_at_deadline: bool) -> Option<LostReason> {
        let held = &self.held;
        if ends_at_deadline && now >= held.deadline() {
            return Some(LostReason::Unconfirmed {
                last_error: self.last_error.clone(),
            });
        }
        if let Some(limit) = held.max_hold
            && now >= held.granted.after(limit)
        {
            return Some(LostReason::MaxHold { limit });
        }
        if let Some(limit) = held.progress_within
            && now >= held.last_progress().after(limit)
        {
            return Some(LostReason::NoProgress { limit });
        }
        None
    }

    fn succeeded(&mut self, sent: Moment, now: Moment) {
        self.confirmed = self.confirmed.max(sent);
        self.unanswered &= sent != self.sent;
        self.failures = 0;
        self.last_error = None;
        self.backoff.reset();
        self.next = self.confirmed.after(self.pace.renew_after).max(now);
    }

    fn failed(&mut self, error: StoreError, sent: Moment, now: Moment, pause: Duration) {
        // An older attempt was told of when the next one went out beside it,
        // and changes nothing for that.
        if sent == self.sent {
            self.tell_failed(error, now);
            self.unanswered = false;
            self.next = now.after(pause);
        }
    }

    fn tell_failed(&mut self, error: StoreError, now: Moment) {
        self.failures = self.failures.saturating_add(1);
        self.last_error = Some(error.clone());
        self.held.tell(EventKind::RenewalFailed {
            error,
            failures: self.failures,
            valid_for: self.held.deadline().since(now),
        });
    }
}

impl Drop for Loop {
    /// The runtime is shutting down with leases still held: their holders must
    /// not go on believing until the deadline that nobody moves any more.
    fn drop(&mut self) {
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Keep(held) = command {
                held.lose(LostReason::RuntimeGone);
            }
        }
        for entry in self.entries.values() {
            entry.held.lose(LostReason::RuntimeGone);
        }
    }
}
