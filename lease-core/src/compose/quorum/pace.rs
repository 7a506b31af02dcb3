//! How nodes have answered of late, and which of them an acquire asks first.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::clock::NodeClock;
use super::{Inner, Node};
use crate::backend::{AcquireOutcome, RefusedReason};
use crate::error::StoreError;

/// The smoothed time is the mean of the first so many answers; from then on so
/// much of each new one goes into it.
const SMOOTH: u32 = 8;
/// A node that takes so many times as long as the slowest of a majority is slow:
/// what it names in the same round may be above the token agreed on.
const SLOW: u32 = 2;
/// No node is slow for less than this.
const JITTER: Duration = Duration::from_micros(100);
/// How long a node is taken to be ahead that was so once. Its clock may have been
/// set since.
const AHEAD: Duration = Duration::from_secs(60);
/// The hedge: so many times what a majority takes, within these bounds.
const HEDGE: u32 = 4;
const LEAST_HEDGE: Duration = Duration::from_millis(5);
const MOST_HEDGE: Duration = Duration::from_secs(1);

/// What one node's answers to acquisitions were like.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Smoothed; `None` until its first answer.
    latency: Option<Duration>,
    /// How many answers it is of, up to that many. None when it is only what was
    /// waited for in vain.
    answers: u32,
    /// Its last answer was an error, or that it is in quarantine.
    fails: bool,
    ahead_until: Option<Instant>,
    clock: NodeClock,
}

/// Nodes by how soon they help: the least is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    fails: bool,
    ahead: bool,
    latency: Duration,
}

impl Pace {
    fn state(&self) -> MutexGuard<'_, State> {
        // Plain values, whole after each statement.
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn answered(&self, took: Duration, well: bool) {
        let mut state = self.state();
        state.fails = !well;
        state.answers = SMOOTH.min(state.answers + 1);
        let (old, n) = (state.latency.unwrap_or_default(), state.answers);
        state.latency = Some((old - old / n).saturating_add(took / n));
    }

    /// It has not answered for so long.
    pub(super) fn silent_for(&self, time: Duration) {
        let mut state = self.state();
        if state.latency.is_none_or(|latency| latency < time) {
            (state.latency, state.answers) = (Some(time), 0);
        }
    }

    /// It came late and named a higher token than the others: it is slower than
    /// it was, or its clock is ahead of theirs.
    pub(super) fn is_ahead(&self) {
        self.state().ahead_until = Some(Instant::now() + AHEAD);
    }

    fn rank(&self, now: Instant) -> Rank {
        let state = self.state();
        Rank {
            fails: state.fails,
            ahead: state.ahead_until.is_some_and(|until| now < until),
            // A node never asked counts as fast.
            latency: state.latency.unwrap_or_default(),
        }
    }
}

/// One request under way, timed until its answer or until nobody waits for it.
pub(super) struct Timed {
    node: Arc<Node>,
    sent: Instant,
    answered: bool,
}

impl Timed {
    pub(super) fn start(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
            sent: Instant::now(),
            answered: false,
        }
    }

    pub(super) fn answered(mut self, answer: &Result<AcquireOutcome, StoreError>) {
        self.answered = true;
        let quarantine =
            |reason: &RefusedReason| matches!(reason, RefusedReason::Quarantine { .. });
        let well = match answer {
            Ok(AcquireOutcome::Refused(reason)) => !quarantine(reason),
            Ok(_) => true,
            Err(_) => false,
        };
        self.node.pace.answered(self.sent.elapsed(), well);
        if let Ok(AcquireOutcome::Granted(granted)) = answer {
            let mut state = self.node.pace.state();
            state.clock.named(granted.token, Instant::now());
        }
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        if !self.answered {
            self.node.pace.silent_for(self.sent.elapsed());
        }
    }
}

/// Whom a round asks.
#[derive(Debug)]
pub(super) struct Turns {
    /// At once.
    pub(super) first: Vec<usize>,
    /// When the first cannot make a majority, or have not within `hedge`; else
    /// only for the token that those have agreed on.
    pub(super) later: Vec<usize>,
    pub(super) hedge: Duration,
}

impl Inner {
    /// The latest of the nodes' clocks, in microseconds since their epoch: no later
    /// than this; or 2^64 - 1 while nothing is known.
    pub(super) fn latest_clock(&self) -> u64 {
        let now = Instant::now();
        let clocks = self.nodes.iter();
        let clocks = clocks.filter_map(|node| node.pace.state().clock.at(now));
        clocks.max().unwrap_or(u64::MAX)
    }

    /// All nodes at once.
    pub(super) fn everybody(&self) -> Turns {
        Turns {
            first: (0..self.nodes.len()).collect(),
            later: Vec::new(),
            hedge: MOST_HEDGE,
        }
    }

    /// Those first that answer about as soon as a majority does; always a
    /// majority at least.
    pub(super) fn turns(&self) -> Turns {
        let now = Instant::now();
        let nodes = self.nodes.iter().enumerate();
        let mut ranks: Vec<_> = nodes.map(|(i, node)| (node.pace.rank(now), i)).collect();
        ranks.sort_unstable();
        let first = ranks.iter().take(self.majority);
        let majority = first
            .map(|(rank, _)| rank.latency)
            .max()
            .unwrap_or_default();
        let limit = majority
            .saturating_mul(SLOW)
            .max(majority.saturating_add(JITTER));
        let mut turns = Turns {
            first: Vec::with_capacity(ranks.len()),
            later: Vec::new(),
            hedge: majority
                .saturating_mul(HEDGE)
                .clamp(LEAST_HEDGE, MOST_HEDGE),
        };
        for (rank, i) in ranks {
            let soon = !rank.fails && !rank.ahead && rank.latency <= limit;
            if soon || turns.first.len() < self.majority {
                turns.first.push(i);
            } else {
                turns.later.push(i);
            }
        }
        turns
    }
}
