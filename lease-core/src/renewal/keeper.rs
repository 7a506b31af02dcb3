//! The loop itself: timers, batches, outcomes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::{Instrument, debug_span};

use super::entry::{Entry, Id};
use super::pulse::{Grace, Pulse};
use super::{Command, jobs};
use crate::backend::{RenewOutcome, Session};
use crate::client::Parts;
use crate::clock::Moment;
use crate::error::{Error, StoreError};
use crate::lease::{Held, Released};
use crate::lost::LostReason;
use crate::observe::EventKind;

/// The most renewals in one batch.
const BATCH: usize = 500;
/// Renewals due within this long go out together.
const TOGETHER: Duration = Duration::from_millis(5);
/// The most messages or outcomes handled before the timers are looked at.
const AT_ONCE: usize = 256;

enum Done {
    Renewed {
        batch: Vec<Arc<Held>>,
        sent: Moment,
        outcomes: Vec<Result<RenewOutcome, StoreError>>,
        /// That they carried, or a later one.
        session: Session,
    },
    Pinged {
        sent: Moment,
        outcome: Result<Session, StoreError>,
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
    /// Where grants end with the client's session.
    pulse: Option<Pulse>,
    /// Releases and abandonments under way.
    clean_ups: usize,
    abandons: Arc<Semaphore>,
    settled: Vec<oneshot::Sender<()>>,
}

impl Loop {
    pub(super) fn new(parts: Arc<Parts>, commands: mpsc::UnboundedReceiver<Command>) -> Self {
        let pulse = Grace::of(&parts).map(Pulse::new);
        Self {
            parts,
            pulse,
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
            let wake = wake.min(self.next_ping());
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
            Command::Forget(held) => drop(self.remove(&held)),
            Command::Release(held, reply) => {
                self.remove(&held);
                self.release(held, Some(reply));
            }
            Command::Ended(held) => self.ended(&held),
            Command::Abandon(key, owner) => {
                let (parts, turns) = (Arc::clone(&self.parts), Arc::clone(&self.abandons));
                self.clean_up(jobs::abandon(parts, turns, key, owner));
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
        if self.parts.closing.is_cancelled() && held.given_up().is_none() {
            // Granted while the client was shut down.
            held.lose(LostReason::Shutdown);
        }
        let id = held.id;
        let entry = Entry::new(held, &self.parts);
        self.entries.insert(id, entry);
        self.set_timer(id);
    }

    fn remove(&mut self, held: &Arc<Held>) -> Option<Entry> {
        let entry = self.entries.remove(&held.id)?;
        self.timers.remove(&(entry.timer, held.id));
        Some(entry)
    }

    fn ended(&mut self, held: &Arc<Held>) {
        // Of one that is released with all others its release tells.
        if self.remove(held).is_some() {
            jobs::ended(&self.parts, held);
        }
    }

    fn release(
        &mut self,
        held: Arc<Held>,
        reply: Option<oneshot::Sender<Result<Released, Error>>>,
    ) {
        let (parts, turns) = (Arc::clone(&self.parts), Arc::clone(&self.abandons));
        let under_way = jobs::UnderWay::new(Arc::clone(&held));
        self.clean_up(async move {
            let ended = jobs::release(&parts, &held).await;
            under_way.ended();
            if let Some(reply) = reply {
                // Nobody listens when the handle was dropped.
                let _ = reply.send(ended);
            }
            if held.unanswered {
                // A request of its acquisition may still reach the store, and
                // would be granted then.
                jobs::abandon(parts, turns, held.key.clone(), held.owner).await;
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
        entry.timer = entry.wake();
        if entry.timer != Moment::NEVER {
            self.timers.insert((entry.timer, id));
        }
    }

    /// Handles every timer that has come.
    fn fire(&mut self, now: Moment) {
        self.ping(now);
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
            if let Some(reason) = entry.held.ending(now) {
                entry.held.lose(reason);
            } else if entry.is_due(now, soon) {
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

    /// What a renewal that is sent now carries at least.
    fn session(&self) -> Session {
        self.pulse.as_ref().map_or(Session::NONE, Pulse::session)
    }

    /// When the next ping is due. Without a lease nobody needs one.
    fn next_ping(&self) -> Moment {
        match &self.pulse {
            Some(pulse) if !self.entries.is_empty() => pulse.wake(),
            _ => Moment::NEVER,
        }
    }

    fn ping(&mut self, now: Moment) {
        if now < self.next_ping() {
            return;
        }
        let Some(pulse) = &mut self.pulse else {
            return;
        };
        let until = pulse.sends(now);
        let parts = Arc::clone(&self.parts);
        self.jobs.spawn(async move {
            let ping = || parts.backend.ping();
            let outcome = jobs::attempt(&*parts.clock, until, ping).await;
            Done::Pinged { sent: now, outcome }
        });
    }

    fn pinged(&mut self, sent: Moment, outcome: Result<Session, StoreError>) {
        let now = self.parts.clock.now();
        let rules = self.parts.rules;
        let Some(pulse) = &mut self.pulse else {
            return;
        };
        let session = match outcome {
            Ok(session) => session,
            Err(error) => {
                pulse.failed(&self.parts, now);
                for entry in self.entries.values() {
                    entry.held.set_last_error(Some(error.clone()));
                }
                return;
            }
        };
        let changed = pulse.answered(sent, session, now);
        let from = if rules.count_from_send { sent } else { now };
        let mut lacking = Vec::new();
        for (id, entry) in &mut self.entries {
            entry.signed(from, session, !rules.signs_need_renewal);
            if changed && entry.lacks(session) {
                entry.renew_at_once(now);
                lacking.push(*id);
            }
        }
        // The timers of the others come once too early, and are set then.
        for id in lacking {
            self.set_timer(id);
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
            entry.sends(now);
            until = until.max(entry.held.deadline());
            requests.push(entry.request());
            helds.push(Arc::clone(&entry.held));
            self.set_timer(*id);
        }
        let store: &str = &self.parts.guarantees.store;
        let span = debug_span!(target: "leases", "renew", store, leases = requests.len());
        let job = jobs::renew(Arc::clone(&self.parts), requests, until);
        let session = self.session();
        let job = async move {
            Done::Renewed {
                session,
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
                session,
            }) => {
                let now = self.parts.clock.now();
                for (held, outcome) in batch.iter().zip(outcomes) {
                    self.renewed(held, sent, session, outcome, now);
                }
            }
            Ok(Done::Pinged { sent, outcome }) => self.pinged(sent, outcome),
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
        session: Session,
        outcome: Result<RenewOutcome, StoreError>,
        now: Moment,
    ) {
        let rules = self.parts.rules;
        let drift = self.parts.drift;
        let present = self.session();
        let Some(entry) = self.entries.get_mut(&held.id) else {
            return; // Released meanwhile: nothing is kept any more.
        };
        // Whose handle has given it up is about to be removed, and told of as what ends it
        // says.
        if held.lost().is_some() || held.given_up().is_some() {
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
                held.confirm(from, from.after(valid), !rules.deadline_never_moves_back);
                entry.succeeded(sent, now);
                entry.carried(from, session);
                if entry.lacks(present) {
                    // Another session was made while it was under way.
                    entry.renew_at_once(now);
                }
                held.tell(EventKind::Renewed {
                    took: now.since(sent),
                    valid_for: held.deadline().since(now),
                });
            }
            Ok(RenewOutcome::Lost(cause)) => {
                held.lose(LostReason::Store(cause));
            }
            Err(error) => {
                let pause = entry.backoff.next(&self.parts.chance);
                entry.failed(error, sent, now, pause);
            }
        }
        self.set_timer(held.id);
    }
}

impl Drop for Loop {
    /// The runtime is shutting down with leases still held: their holders must
    /// not go on believing until the deadline that nobody moves any more.
    fn drop(&mut self) {
        self.commands.close();
        let mut releases = Vec::new();
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Keep(held) => self.keep(held),
                Command::Release(held, _) => releases.push(jobs::UnderWay::new(held)),
                // Its handle has ended the hold itself: there is nothing left
                // to lose.
                Command::Forget(held) => drop(self.remove(&held)),
                Command::Ended(held) => self.ended(&held),
                _ => {}
            }
        }
        for entry in self.entries.values() {
            entry.held.lose(LostReason::RuntimeGone);
        }
        // Each tells of its end.
        drop(releases);
    }
}
