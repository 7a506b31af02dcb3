//! The two rounds of an acquire.
//!
//! Checked exhaustively in `tests/quorum/model`, with and without each rule.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::StreamExt;
use tokio::time::Instant;

use super::background::{go_on, runtime};
use super::fan_out::{Answers, those_beside, those_there};
use super::votes::{No, Votes, words};
use super::{Inner, Node, give_back};
use crate::backend::{AcquireOutcome, AcquireRequest, Granted, RefusedReason};
use crate::error::StoreError;
use crate::token::{Token, TokenRule};

/// How often one call asks again after several had asked at once and none got a
/// majority.
const SPLITS: u32 = 5;
/// The longest pause before that, each time.
const APART: Duration = Duration::from_millis(8);

type Answer = Result<AcquireOutcome, StoreError>;

pub(super) async fn acquire(
    inner: &Arc<Inner>,
    request: &AcquireRequest,
) -> Result<AcquireOutcome, StoreError> {
    runtime()?;
    for split in 0.. {
        if !inner.unsettled.may_ask(request.owner).await {
            return Ok(AcquireOutcome::Refused(RefusedReason::Abandoned));
        }
        let mut round = Round::new(inner, request);
        let votes = round.ask().await;
        if votes.yes(inner) >= inner.majority {
            return round.agree(votes).await;
        }
        let no = votes.no(inner);
        let is_split = matches!(no, No::Held(_)) && votes.is_split(inner);
        let outcome = match no {
            No::Held(holder) => AcquireOutcome::Held(holder),
            No::Refused(reason) => AcquireOutcome::Refused(reason),
            // The caller repeats it or abandons the owner.
            No::Failed(error) if error.is_unknown_outcome() => return Err(error),
            No::Failed(error) => {
                give_back::all(inner, request, votes, round.first).await;
                return Err(error);
            }
        };
        let settled = give_back::all(inner, request, votes, round.first).await;
        if !(is_split && settled && split < SPLITS) {
            return Ok(outcome);
        }
        let apart = APART.mul_f64(inner.chance.fraction());
        tokio::time::sleep(apart * (split + 1)).await;
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
}

fn send(
    request: &Arc<AcquireRequest>,
) -> impl Fn(Arc<Node>) -> futures_util::future::BoxFuture<'static, Answer> + use<> {
    let request = Arc::clone(request);
    move |node| {
        let request = Arc::clone(&request);
        Box::pin(async move { node.backend.acquire(&request).await })
    }
}

impl Round {
    fn new(inner: &Arc<Inner>, request: &AcquireRequest) -> Self {
        let request = Arc::new(request.clone());
        Self {
            first: inner.ask_all(send(&request)),
            second: Answers::new(),
            inner: Arc::clone(inner),
            request,
            asked: Instant::now(),
        }
    }

    /// The first round, until a majority is decided either way.
    async fn ask(&mut self) -> Votes {
        let inner = &self.inner;
        let mut votes = Votes::new(inner.nodes.len());
        while let Some((i, answer)) = self.first.next().await {
            votes.put(i, answer);
            if votes.yes(inner) >= inner.majority || votes.is_hopeless(inner) {
                break;
            }
        }
        // A token that comes late may be too high for this lease, and a grant
        // that comes late must be given back: wait a little.
        those_beside(&mut self.first, self.asked, |i, answer| {
            votes.put(i, answer)
        })
        .await;
        votes
    }

    /// The second round: a majority at exactly one token.
    async fn agree(mut self, mut votes: Votes) -> Result<AcquireOutcome, StoreError> {
        let inner = Arc::clone(&self.inner);
        let token = match self.request.rule {
            TokenRule::Exactly(token) => Some(token),
            TokenRule::Next { .. } => votes.token(inner.majority),
        };
        // Granted by nobody at all is possible only with a rule left out.
        let Some(token) = token else {
            return Err(StoreError::unknown_outcome("no node named a token"));
        };
        let exactly = Arc::new(AcquireRequest {
            rule: TokenRule::Exactly(token),
            ..(*self.request).clone()
        });
        let mut standing = Standing::new(&inner, token);
        for (i, granted) in votes.granted() {
            if standing.put(i, granted.token) && inner.rules.second_round {
                self.second.extend(inner.ask([i], send(&exactly)));
            }
        }
        if !inner.rules.quarantine {
            standing.there.extend(votes.quarantined().map(|(i, _)| i));
        }
        while inner.rules.second_round && standing.there.len() < inner.majority {
            tokio::select! {
                biased;
                Some((i, answer)) = self.second.next() => {
                    standing.answered(i, answer, inner.rules.exact);
                }
                Some((i, answer)) = self.first.next() => {
                    if let Ok(AcquireOutcome::Granted(granted)) = &answer
                        && standing.put(i, granted.token)
                    {
                        self.second.extend(inner.ask([i], send(&exactly)));
                    }
                    votes.put(i, answer);
                }
                else => return standing.none(&inner),
            }
            if standing.is_hopeless(&votes) {
                return standing.none(&inner);
            }
        }
        those_there(&mut self.second, |i, answer| {
            standing.answered(i, answer, inner.rules.exact);
        });
        let taken_over = votes.taken_over(&inner);
        self.finish(standing, exactly);
        Ok(AcquireOutcome::Granted(Granted { token, taken_over }))
    }

    /// Lets the slow ones end: each is brought to the token, or freed when it
    /// stands above it and can have no part in this lease.
    fn finish(self, standing: Standing, exactly: Arc<AcquireRequest>) {
        let Self {
            inner,
            mut first,
            mut second,
            ..
        } = self;
        let token = standing.token;
        let mut above = standing.above;
        if first.is_empty() && second.is_empty() && above.is_empty() {
            return;
        }
        go_on(async move {
            loop {
                for (i, higher) in above.drain(..) {
                    give_back::release_on(&inner, i, &exactly, higher).await;
                }
                tokio::select! {
                    Some((i, answer)) = first.next() => match answer {
                        Ok(AcquireOutcome::Granted(granted)) if granted.token < token => {
                            second.extend(inner.ask([i], send(&exactly)));
                        }
                        Ok(AcquireOutcome::Granted(granted)) if granted.token > token => {
                            above.push((i, granted.token));
                        }
                        _ => {}
                    },
                    Some(_) = second.next() => {}
                    else => return,
                }
            }
        });
    }
}

/// Which nodes stand at the token.
struct Standing {
    token: Token,
    majority: usize,
    there: std::collections::BTreeSet<usize>,
    /// Asked for exactly the token.
    asked: usize,
    above: Vec<(usize, Token)>,
    failed: Vec<(usize, StoreError)>,
    refused: Option<RefusedReason>,
}

impl Standing {
    fn new(inner: &Inner, token: Token) -> Self {
        Self {
            token,
            majority: inner.majority,
            there: Default::default(),
            asked: 0,
            above: Vec::new(),
            failed: Vec::new(),
            refused: None,
        }
    }

    /// A node granted `token`; whether it must be asked again.
    fn put(&mut self, i: usize, token: Token) -> bool {
        if token == self.token {
            self.there.insert(i);
        } else if token > self.token {
            self.above.push((i, token));
        }
        let again = token < self.token;
        self.asked += usize::from(again);
        again
    }

    /// The answer of a node that was asked for exactly the token.
    fn answered(&mut self, i: usize, answer: Answer, exact: bool) {
        self.asked -= 1;
        match answer {
            Ok(AcquireOutcome::Granted(granted)) if granted.token == self.token || !exact => {
                self.there.insert(i);
            }
            Ok(outcome) => {
                let said = words(&outcome).unwrap_or_else(|| "granted another token".into());
                self.failed.push((i, StoreError::unavailable(said)));
                if let AcquireOutcome::Refused(
                    reason @ (RefusedReason::Abandoned | RefusedReason::Revoked),
                ) = outcome
                {
                    self.refused = Some(reason);
                }
            }
            Err(error) => self.failed.push((i, error)),
        }
    }

    fn is_hopeless(&self, votes: &Votes) -> bool {
        self.there.len() + self.asked + votes.awaited() < self.majority
    }

    /// The key slipped away between the rounds.
    fn none(self, inner: &Inner) -> Result<AcquireOutcome, StoreError> {
        let failed: Vec<_> = self.failed.iter().map(|(i, e)| (*i, e)).collect();
        match self.refused {
            // A fence, or an abandonment: this owner can have nothing any more.
            Some(reason) => Ok(AcquireOutcome::Refused(reason)),
            // Its grants stand on some nodes; the caller repeats or abandons.
            None => Err(inner.no_majority("to agree on a token", &failed, true)),
        }
    }
}
