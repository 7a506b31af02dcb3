//! What the tasks of one log and its users share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use lease_core::StoreError;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::message::{self, MARGIN, Mark};
use super::replica::Replica;
use super::waiting::{Flight, Waiting, What};
use super::{Machine, Piece, errors};
use crate::nats::link::{Link, Stored};

/// The state as it is to be kept in a snapshot.
pub(super) struct Prepared {
    pub(super) pieces: Vec<Piece>,
    pub(super) last: Mark,
    pub(super) covers: u64,
}

/// How far a client is.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    Reading,
    /// It has read the log to its end, and follows it.
    Follows,
    /// For good.
    Broken(StoreError),
}

/// What came of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Applied,
    /// It does not fit what was applied before: nothing was done.
    Doubtful,
    Broken,
}

pub(super) struct State<M: Machine> {
    pub(super) replica: Replica<M>,
    pub(super) history: u64,
    pub(super) waiting: VecDeque<Waiting<M::Answer>>,
    pub(super) flights: Vec<Flight<M::Answer>>,
    pub(super) next: u64,
    pub(super) prepared: Option<Prepared>,
    /// What was in the way last, since the last message came by.
    pub(super) trouble: Option<StoreError>,
    pub(super) used: Instant,
    /// Of the task that writes a snapshot.
    pub(super) writer: Option<AbortHandle>,
}

pub(super) struct Shared<M: Machine> {
    /// To the stream of the logs, and to that of the snapshots.
    pub(super) link: Link,
    pub(super) snaps: Link,
    pub(super) subject: String,
    /// The subjects of its snapshots start with this.
    pub(super) snap: String,
    state: Mutex<State<M>>,
    /// The revision that was applied last.
    pub(super) changed: watch::Sender<u64>,
    pub(super) phase: watch::Sender<Phase>,
    /// There may be something to send.
    pub(super) work: Notify,
    /// Somebody waits for what may be in the log already.
    nudge: Notify,
    /// Whether that is to be read even if messages come by.
    doubted: AtomicBool,
    /// Whether what is stored comes by of itself.
    pub(super) streams: AtomicBool,
}

impl<M: Machine> Shared<M> {
    pub(super) fn new(link: Link, snaps: Link, subject: String, snap: String) -> Self {
        Self {
            link,
            snaps,
            subject,
            snap,
            state: Mutex::new(State {
                replica: Replica::default(),
                history: 0,
                waiting: VecDeque::new(),
                flights: Vec::new(),
                next: 0,
                prepared: None,
                trouble: None,
                used: Instant::now(),
                writer: None,
            }),
            changed: watch::Sender::new(0),
            phase: watch::Sender::new(Phase::Reading),
            work: Notify::new(),
            nudge: Notify::new(),
            doubted: AtomicBool::new(false),
            streams: AtomicBool::new(false),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(super) fn most_bytes(&self) -> usize {
        most_bytes(&self.link)
    }

    /// What was applied last, and when that was stored.
    pub(super) fn last(&self) -> (Mark, u64) {
        let state = self.state();
        (state.replica.last, state.replica.stamp)
    }

    /// Lets somebody wait; by which number it is known.
    pub(super) fn enqueue(&self, what: What<M::Answer>) -> u64 {
        let number = self.state().enqueue(what);
        self.work.notify_one();
        number
    }

    /// Has the log read, unless messages come by: what is waited for will be among them.
    pub(super) fn hurry(&self) {
        self.nudge.notify_one();
    }

    /// Has the log read in any case: what is waited for may not come by.
    pub(super) fn doubt(&self) {
        self.doubted.store(true, Ordering::Relaxed);
        self.nudge.notify_one();
    }

    /// Returns when the log is to be read; whether in any case.
    pub(super) async fn nudged(&self) -> bool {
        self.nudge.notified().await;
        self.doubted.swap(false, Ordering::Relaxed)
    }

    /// Takes the next message of the log. It follows the last one for sure if it is
    /// `certain`.
    pub(super) fn take(&self, stored: &Stored, certain: bool) -> Taken {
        let mut state = self.state();
        let (revision, us) = (stored.revision, stored.us());
        let message = match message::decode::<M>(&stored.payload) {
            Ok(message) => message,
            Err(why) if revision > state.replica.last.revision => {
                drop(state);
                self.break_for(errors::unreadable(&self.subject, revision, why));
                return Taken::Broken;
            }
            Err(_) => return Taken::Doubtful,
        };
        if revision <= state.replica.last.revision {
            let is_last = revision == state.replica.last.revision;
            return match state.replica.at(revision) {
                Some(nonce) if nonce != message.nonce => Taken::Doubtful,
                _ if is_last && us != state.replica.stamp => Taken::Doubtful,
                _ => Taken::Applied,
            };
        }
        // Its sender had seen one that did not come by here.
        let unseen = state.replica.last.revision + 1..revision;
        if !certain && unseen.contains(&message.after.revision) {
            return Taken::Doubtful;
        }
        let nonce = message.nonce;
        let bytes = stored.payload.len();
        let outcome = state.replica.apply(revision, us, bytes, message);
        if let Some(flight) = state.take_flight(nonce) {
            state.trouble = None;
            state.land(flight, outcome.verdict);
            if outcome.appointed {
                state.prepare();
            }
        }
        drop(state);
        self.changed.send_replace(revision);
        self.work.notify_one();
        Taken::Applied
    }

    /// Begins anew with this state, because the log is not any more what was applied.
    pub(super) fn begin_anew(&self, replica: Replica<M>) {
        let mut state = self.state();
        for flight in std::mem::take(&mut state.flights) {
            let error = errors::started_anew();
            flight.parts.into_iter().for_each(|p| p.what.fail(&error));
        }
        if state.replica.count > 0 {
            state.history += 1;
            state.fail_waiting(&errors::not_sent_anew());
        }
        state.prepared = None;
        state.replica = replica;
        let revision = state.replica.last.revision;
        drop(state);
        self.changed.send_replace(revision);
    }

    /// Ends for good.
    pub(super) fn break_for(&self, error: StoreError) {
        tracing::error!(subject = %self.subject, error = %error, "a queue's log cannot be followed");
        let mut state = self.state();
        for flight in std::mem::take(&mut state.flights) {
            let unknown = errors::not_seen(Some(error.clone()));
            flight.parts.into_iter().for_each(|p| p.what.fail(&unknown));
        }
        state.fail_waiting(&error);
        drop(state);
        self.phase.send_replace(Phase::Broken(error));
        self.changed.send_modify(|_| {});
    }

    pub(super) fn note_trouble(&self, error: StoreError) {
        self.state().trouble = Some(error);
    }
}

/// What the operations of a message may have, by the word of the server.
pub(in crate::nats) fn most_bytes(link: &Link) -> usize {
    let told = link.context.client().max_payload();
    // Its headers count, too.
    told.saturating_sub(2 * MARGIN)
}

impl<M: Machine> State<M> {
    /// Keeps the state as it is now for a snapshot.
    pub(super) fn prepare(&mut self) {
        match self.replica.save() {
            Ok(pieces) => {
                self.prepared = Some(Prepared {
                    pieces,
                    last: self.replica.last,
                    covers: self.replica.count,
                });
            }
            Err(error) => tracing::error!(error = %error, "a queue's state cannot be saved"),
        }
    }
}
