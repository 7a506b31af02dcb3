//! The second round: a majority at exactly one token.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::StreamExt;
use tokio::time::sleep;

use super::standing::{Apart, Standing};
use super::{Answer, Round, send, slack};
use crate::backend::{AcquireOutcome, AcquireRequest, Granted};
use crate::compose::quorum::attempts::Turn;
use crate::compose::quorum::background::go_on;
use crate::compose::quorum::fan_out::those_there;
use crate::compose::quorum::{Inner, give_back};
use crate::error::StoreError;
use crate::token::{Token, TokenRule};

/// How long a node has on which somebody else's grant is in the way: the release
/// of that may just be on its way there. Four times as long each time.
const FREED_WITHIN: Duration = Duration::from_millis(20);
const LAST_FREED_WITHIN: Duration = Duration::from_millis(320);

impl Round {
    /// Brings a majority to one token and hands it out. The nodes that are slower
    /// are brought to it in the background.
    pub(super) async fn agree(mut self, turn: &Turn<'_>) -> Result<AcquireOutcome, Apart> {
        let inner = Arc::clone(&self.inner);
        // Granted by nobody at all is possible only with a rule left out; else the
        // token asked for is one that is being released.
        let token = self.token().map_err(|error| Apart {
            error,
            overtaken: false,
        })?;
        let Some(token) = token else {
            return Err(Apart {
                error: StoreError::unknown_outcome(
                    "no token is left for this owner; take a new one",
                ),
                overtaken: false,
            });
        };
        // First: this future may be dropped with the requests under way.
        turn.tries(token);
        let exactly = Arc::new(AcquireRequest {
            rule: TokenRule::Exactly(token),
            ..(*self.request).clone()
        });
        let mut standing = Standing::new(&inner, token);
        for (i, granted) in self.votes.granted() {
            if standing.put(i, granted.token) && inner.rules.second_round {
                self.second.extend(inner.ask([i], send(&exactly)));
            }
        }
        // Those that have named no token cannot have named a higher one.
        let later = std::mem::take(&mut self.later);
        standing.asked += later.len();
        self.second.extend(inner.ask(later, send(&exactly)));
        if !inner.rules.quarantine {
            let quarantined = self.votes.quarantined().map(|(i, _)| i);
            standing.there.extend(quarantined);
        }
        while inner.rules.second_round && standing.there.len() < inner.majority {
            tokio::select! {
                biased;
                Some((i, answer)) = self.second.next() => {
                    standing.answered(i, answer, inner.rules.exact);
                }
                Some((i, answer)) = self.first.next() => {
                    if let Ok(AcquireOutcome::Granted(granted)) = &answer {
                        if standing.put(i, granted.token) {
                            self.second.extend(inner.ask([i], send(&exactly)));
                        }
                        came_late(&inner, i, granted.token, token);
                    }
                    self.votes.put(i, answer);
                }
                else => return standing.none(&inner),
            }
            if standing.is_hopeless(&self.votes) {
                return standing.none(&inner);
            }
        }
        // This sends what was not sent yet, too.
        those_there(&mut self.second, |i, answer| {
            standing.answered(i, answer, inner.rules.exact);
        });
        let taken_over = self.votes.taken_over(&inner);
        let repeated = self.votes.granted().any(|(_, granted)| granted.repeated);
        inner.handed.out(self.request.owner, token);
        self.finish(standing, exactly);
        Ok(AcquireOutcome::Granted(Granted {
            token,
            taken_over,
            repeated,
        }))
    }

    /// The token to agree on: the one that a majority has, or one above all that
    /// were granted; above what a release of this owner may still take away. None
    /// where there can be none.
    ///
    /// # Errors
    /// When it cannot be told which token a lease has that may stand.
    fn token(&self) -> Result<Option<Token>, StoreError> {
        let released = self.inner.unsettled.released(self.request.owner);
        let stays = |token: &Token| released.is_none_or(|released| *token > released);
        if let TokenRule::Exactly(token) = self.request.rule {
            return Ok(Some(token).filter(stays));
        }
        let agreed = self.votes.agreed(self.inner.majority).filter(stays);
        let tokens = || self.votes.granted().map(|(_, granted)| granted.token);
        let (Some(least), Some(largest)) = (tokens().min(), tokens().max()) else {
            return Ok(None);
        };
        if agreed.is_some() || !self.inner.rules.second_round {
            return Ok(Some(agreed.unwrap_or(largest)));
        }
        if let Some(token) = self.agreed_before(largest)?.filter(stays) {
            return Ok(Some(token));
        }
        let granted = slack::Granted {
            least,
            largest,
            clock: self.inner.latest_clock(),
        };
        let above = granted.above(self.asked.elapsed());
        Ok(match released.filter(|released| above <= *released) {
            Some(released) => Token::new(released.get() + 1).ok(),
            None => Some(above),
        })
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
        let (mut above, mut held) = (standing.above, standing.held);
        if first.is_empty() && second.is_empty() && above.is_empty() && held.is_empty() {
            return;
        }
        go_on(async move {
            let mut pause = FREED_WITHIN;
            loop {
                for (i, higher) in above.drain(..) {
                    give_back::release_on(&inner, i, &exactly, higher).await;
                }
                if inner.handed.is_over(exactly.owner) {
                    held.clear();
                }
                if pause <= LAST_FREED_WITHIN && !held.is_empty() {
                    let again = send(&exactly);
                    second.extend(inner.ask(held.drain(..), |node| {
                        let answer = again(node);
                        async move {
                            sleep(pause).await;
                            answer.await
                        }
                    }));
                    pause *= 4;
                }
                tokio::select! {
                    Some((i, answer)) = first.next() => {
                        if undo_if_over(&inner, i, &exactly, &answer) {
                            continue;
                        }
                        let Ok(AcquireOutcome::Granted(granted)) = answer else {
                            continue;
                        };
                        if granted.token < token {
                            second.extend(inner.ask([i], send(&exactly)));
                        } else if granted.token > token {
                            above.push((i, granted.token));
                        }
                        came_late(&inner, i, granted.token, token);
                    }
                    Some((i, answer)) = second.next() => {
                        if undo_if_over(&inner, i, &exactly, &answer) {
                            continue;
                        }
                        if matches!(answer, Ok(AcquireOutcome::Held(_))) {
                            held.push(i);
                        }
                    }
                    else => return,
                }
            }
        });
    }
}

/// Ends on a node what came to stand there after the lease was released; whether
/// it was.
fn undo_if_over(inner: &Arc<Inner>, i: usize, request: &AcquireRequest, answer: &Answer) -> bool {
    if !inner.handed.is_over(request.owner) {
        return false;
    }
    let may_stand = matches!(answer, Ok(AcquireOutcome::Granted(_)) | Err(_));
    if may_stand && let Some(node) = inner.nodes.get(i) {
        inner.abandon_on(node, &request.key, request.owner);
    }
    true
}

/// A node named a token after the others had agreed on one.
fn came_late(inner: &Inner, i: usize, named: Token, agreed: Token) {
    if named > agreed
        && let Some(node) = inner.nodes.get(i)
    {
        node.pace.is_ahead();
    }
}
