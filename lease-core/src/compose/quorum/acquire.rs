//! The two rounds of an acquire.
//!
//! Checked exhaustively in `tests/quorum/model`, with and without each rule.

mod agree;
mod slack;
mod standing;
mod stays;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::StreamExt;
use tokio::time::{Instant, timeout_at};

use super::attempts::Turn;
use super::background::runtime;
use super::fan_out::{Answers, those_beside};
use super::pace::Timed;
use super::votes::{No, Votes};
use super::{Inner, Node, give_back};
use crate::backend::{AcquireOutcome, AcquireRequest, RefusedReason};
use crate::error::StoreError;
use crate::token::TokenRule;

use stays::Earlier;

/// How often one call asks again: after several had asked at once and none got a
/// majority, or a copy of it was ahead.
const AGAIN: u32 = 5;
/// The longest pause before the first time, twice as long each time; or what the
/// round took, where that is longer: nobody gets a majority while the others are
/// still asking.
const APART: Duration = Duration::from_millis(8);
const MOST_APART: Duration = Duration::from_secs(1);

/// How long one that has got a node, and somebody else another, waits for a node
/// that does not answer: far longer than a node that is well needs.
const SILENCE: Duration = Duration::from_millis(500);

type Answer = Result<AcquireOutcome, StoreError>;

pub(super) async fn acquire(
    inner: &Arc<Inner>,
    request: &AcquireRequest,
) -> Result<AcquireOutcome, StoreError> {
    runtime()?;
    let turn = inner.attempts.turn(request.owner).await;
    let outcome = ask(inner, request, &turn).await;
    if outcome.is_ok() {
        turn.answered();
    }
    outcome
}

/// One attempt, however many rounds it takes.
async fn ask(
    inner: &Arc<Inner>,
    request: &AcquireRequest,
    turn: &Turn<'_>,
) -> Result<AcquireOutcome, StoreError> {
    let mut takes_part = false;
    for again in 0.. {
        if !inner.unsettled.may_ask(request.owner).await {
            return Ok(AcquireOutcome::Refused(RefusedReason::Abandoned));
        }
        let asked = Instant::now();
        let mut round = Round::new(inner, request, turn);
        round.ask().await;
        if round.votes.yes(inner) >= inner.majority {
            match round.agree(turn).await {
                Ok(outcome) => {
                    if matches!(outcome, AcquireOutcome::Refused(_)) {
                        give_back::everything(inner, request);
                    }
                    return Ok(outcome);
                }
                Err(apart) if apart.overtaken && again < AGAIN => {}
                Err(apart) => return Err(apart.error),
            }
        } else {
            // Whoever got nothing at all leaves the key to the others. One that
            // got some must not, or all of them might.
            takes_part |= round.votes.granted().next().is_some();
            let is_split = takes_part && round.votes.is_split(inner);
            let (outcome, settled) = round.give_back().await?;
            if !(is_split && settled && again < AGAIN) {
                return Ok(outcome);
            }
        }
        let apart = APART.max(asked.elapsed()).mul_f64(inner.chance.fraction());
        let apart = apart.saturating_mul(1 << again.min(AGAIN));
        tokio::time::sleep(apart.min(MOST_APART)).await;
    }
    Err(StoreError::unavailable("several ask for the key at once"))
}

/// One attempt of one owner.
struct Round {
    inner: Arc<Inner>,
    request: Arc<AcquireRequest>,
    first: Answers<Answer>,
    /// The answers of nodes that were asked for exactly the token.
    second: Answers<Answer>,
    asked: Instant,
    /// Nodes that are asked in the first round only when it needs them.
    later: Vec<usize>,
    /// When it needs them, if nothing else says so.
    hedge: Instant,
    votes: Votes,
    /// What this client knows of earlier attempts of this owner.
    earlier: Earlier,
}

fn send(request: &Arc<AcquireRequest>) -> impl Fn(Arc<Node>) -> BoxFuture<'static, Answer> + use<> {
    let request = Arc::clone(request);
    move |node| {
        let request = Arc::clone(&request);
        Box::pin(async move {
            let timed = Timed::start(&node);
            let answer = node.backend.acquire(&request).await;
            timed.answered(&answer);
            answer
        })
    }
}

impl Round {
    fn new(inner: &Arc<Inner>, request: &AcquireRequest, turn: &Turn<'_>) -> Self {
        let turns = match request.rule {
            TokenRule::Next { .. } if inner.rules.second_round => inner.turns(),
            // Without a second round nobody could be asked for the token only.
            _ => inner.everybody(),
        };
        let asked = Instant::now();
        let mut round = Self {
            first: Answers::new(),
            second: Answers::new(),
            inner: Arc::clone(inner),
            // A place in the line of each node would be another place in each.
            request: Arc::new(AcquireRequest {
                waits: None,
                ..request.clone()
            }),
            asked,
            later: turns.later,
            hedge: asked + turns.hedge,
            votes: Votes::new(inner.nodes.len()),
            earlier: Earlier::of(inner, request.owner, turn),
        };
        round.ask_for_next(turns.first);
        round
    }

    fn ask_for_next(&mut self, nodes: Vec<usize>) {
        self.votes.ask(&nodes);
        let answers = self.inner.ask(nodes, send(&self.request));
        self.first.extend(answers);
    }

    /// The first round, until a majority is decided either way.
    async fn ask(&mut self) {
        let inner = Arc::clone(&self.inner);
        while self.votes.yes(&inner) < inner.majority && !self.votes.is_hopeless(&inner) {
            if self.votes.needs_more(&inner) {
                let later = std::mem::take(&mut self.later);
                self.ask_for_next(later);
            }
            match self.next_or_leave().await {
                Some((i, answer)) => self.votes.put(i, answer),
                None => break,
            }
        }
        self.wait_for_what_stays().await;
        // A token that comes late may be too high for this lease, and a grant
        // that comes late must be given back: wait a little.
        let votes = &mut self.votes;
        those_beside(&mut self.first, self.asked, |i, answer| {
            votes.put(i, answer);
        })
        .await;
    }

    /// The next answer, or none when somebody else has asked at the same time: who
    /// waits then for a node that is silent keeps the others from what it has.
    async fn next_or_leave(&mut self) -> Option<(usize, Answer)> {
        if !self.votes.is_contended() || !self.later.is_empty() {
            return self.next().await;
        }
        let until = self.hedge.max(self.asked + SILENCE);
        timeout_at(until, self.first.next()).await.ok().flatten()
    }

    /// The next answer of the first round. When none comes for long, all nodes
    /// are asked.
    async fn next(&mut self) -> Option<(usize, Answer)> {
        if !self.later.is_empty() {
            if let Ok(answer) = timeout_at(self.hedge, self.first.next()).await {
                return answer;
            }
            for node in self.votes.silent().filter_map(|i| self.inner.nodes.get(i)) {
                node.pace.silent_for(self.asked.elapsed());
            }
            let later = std::mem::take(&mut self.later);
            self.ask_for_next(later);
        }
        self.first.next().await
    }

    /// What there is instead of a majority, with everything given back, and
    /// whether nothing is left of it already.
    async fn give_back(self) -> Result<(AcquireOutcome, bool), StoreError> {
        let (inner, request) = (&self.inner, &self.request);
        let no = match self.votes.no(inner) {
            No::Held(holder) => Ok(AcquireOutcome::Held(holder)),
            No::Refused(reason) => Ok(AcquireOutcome::Refused(reason)),
            No::Failed(error) => Err(error),
        };
        // A lease that was handed out is not given back by a copy of its acquire.
        if self.may_hide_a_lease() {
            return Err(no.err().unwrap_or_else(stays::unknown));
        }
        // The caller repeats it or abandons the owner; others get their turn before.
        if matches!(&no, Err(error) if error.is_unknown_outcome()) {
            if self.votes.is_contended() {
                give_back::granted(inner, request, &self.votes).await;
            }
            return no.map(|outcome| (outcome, false));
        }
        let settled = give_back::all(inner, request, self.votes, self.first).await;
        no.map(|outcome| (outcome, settled))
    }
}
