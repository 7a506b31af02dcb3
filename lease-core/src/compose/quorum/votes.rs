//! What the nodes answered to an acquire, and what that comes to.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Inner;
use crate::backend::{AcquireOutcome, Granted, Holder, RefusedReason, TakenOver};
use crate::error::StoreError;
use crate::token::Token;

type Answer = Result<AcquireOutcome, StoreError>;

/// What is known of each node.
#[derive(Debug)]
pub(super) struct Votes(Vec<Vote>);

#[derive(Clone, Debug)]
enum Vote {
    Unasked,
    Awaited,
    Said(Answer),
}

impl Vote {
    const fn said(&self) -> Option<&Answer> {
        match self {
            Self::Said(answer) => Some(answer),
            _ => None,
        }
    }
}

/// What stands in the way of a majority.
#[derive(Debug)]
pub(super) enum No {
    Held(Holder),
    Refused(RefusedReason),
    Failed(StoreError),
}

impl Votes {
    pub(super) fn new(nodes: usize) -> Self {
        Self(vec![Vote::Unasked; nodes])
    }

    /// These nodes' answers are awaited from now on.
    pub(super) fn ask(&mut self, nodes: &[usize]) {
        for i in nodes {
            if let Some(vote) = self.0.get_mut(*i) {
                *vote = Vote::Awaited;
            }
        }
    }

    pub(super) fn put(&mut self, i: usize, answer: Answer) {
        if let Some(vote) = self.0.get_mut(i) {
            *vote = Vote::Said(answer);
        }
    }

    /// The nodes that granted, with what.
    pub(super) fn granted(&self) -> impl Iterator<Item = (usize, &Granted)> {
        self.outcomes().filter_map(|(i, outcome)| match outcome {
            AcquireOutcome::Granted(granted) => Some((i, granted)),
            _ => None,
        })
    }

    /// The nodes whose answers are awaited.
    pub(super) fn silent(&self) -> impl Iterator<Item = usize> {
        let all = self.0.iter().enumerate();
        all.filter(|(_, vote)| matches!(vote, Vote::Awaited))
            .map(|(i, _)| i)
    }

    pub(super) fn awaited(&self) -> usize {
        self.silent().count()
    }

    /// The nodes where a request may have had an effect that no answer tells of.
    pub(super) fn unknown(&self) -> impl Iterator<Item = usize> {
        self.failed()
            .filter(|(_, error)| error.is_unknown_outcome())
            .map(|(i, _)| i)
    }

    /// How many nodes count as having granted.
    pub(super) fn yes(&self, inner: &Inner) -> usize {
        let granted = self.granted().count();
        if inner.rules.quarantine {
            granted
        } else {
            granted + self.quarantined().count()
        }
    }

    /// Whether the nodes asked so far cannot make a majority any more.
    ///
    /// Where somebody holds the key already on one of them, the others will most
    /// likely say the same: then nobody else need be asked.
    pub(super) fn needs_more(&self, inner: &Inner) -> bool {
        let awaited = self.awaited();
        let is_held = self.held().next().is_some();
        self.yes(inner) + awaited < inner.majority && (awaited == 0 || !is_held)
    }

    /// Whether a majority cannot be had any more, whoever is asked.
    pub(super) fn is_hopeless(&self, inner: &Inner) -> bool {
        let unasked = self.0.iter().filter(|v| matches!(v, Vote::Unasked)).count();
        self.yes(inner) + self.awaited() + unasked < inner.majority
    }

    /// The token that a majority has already. It may be of an earlier attempt of
    /// this owner: what was agreed once stays.
    pub(super) fn agreed(&self, majority: usize) -> Option<Token> {
        let mut counts = BTreeMap::<Token, usize>::new();
        for (_, granted) in self.granted() {
            *counts.entry(granted.token).or_default() += 1;
        }
        let agreed = counts.iter().find(|(_, count)| **count >= majority);
        agreed.map(|(token, _)| *token)
    }

    /// Whether a majority may stand at this token, with the nodes that have not
    /// answered. One in quarantine has forgotten it.
    pub(super) fn may_stand(&self, inner: &Inner, token: Token) -> bool {
        let there = self.granted().filter(|(_, granted)| granted.token == token);
        there.count() + (self.0.len() - self.outcomes().count()) >= inner.majority
    }

    /// Whose grant ended before this one. What less than a majority had never
    /// was a lease.
    pub(super) fn taken_over(&self, inner: &Inner) -> Option<TakenOver> {
        let mut named: Vec<&TakenOver> = self
            .granted()
            .filter_map(|(_, granted)| granted.taken_over.as_ref())
            .collect();
        named.sort_by_key(|taken| taken.token);
        let last = named.last()?;
        let agree = named.iter().filter(|t| t.token == last.token).count();
        (agree > inner.spare()).then(|| (*last).clone())
    }

    /// Why there is no majority, when there is none.
    pub(super) fn no(&self, inner: &Inner) -> No {
        let held = self.held().count();
        let refused = |wanted: fn(&RefusedReason) -> bool| {
            self.refused().filter(move |(_, reason)| wanted(reason))
        };
        let burnt = refused(|r| matches!(r, RefusedReason::Abandoned | RefusedReason::Revoked));
        if held <= inner.spare() {
            if let Some((_, reason)) = burnt.last() {
                return No::Refused(reason.clone());
            }
            let marks = self.refused().filter_map(|(_, reason)| match reason {
                RefusedReason::BelowMark { high_water } => Some(*high_water),
                _ => None,
            });
            if let Some(high_water) = marks.max() {
                return No::Refused(RefusedReason::BelowMark { high_water });
            }
        }
        let exhausted = refused(|r| matches!(r, RefusedReason::TokensExhausted)).count();
        if exhausted > inner.spare() {
            return No::Refused(RefusedReason::TokensExhausted);
        }
        let (granted, quarantined) = (self.granted().count(), self.quarantined().count());
        // So few holders are no lease. With the nodes whose answers were lost or are
        // awaited there may be one, or a majority for this owner: asking again tells.
        let unheard = self.unknown().count() + self.awaited();
        let is_open = held <= inner.spare() && granted + unheard >= inner.majority;
        if held > 0 && granted + held >= inner.majority && !is_open {
            return self
                .held_by(inner)
                .map_or_else(|| self.fails(inner), No::Held);
        }
        if quarantined > 0 && granted + held + quarantined >= inner.majority {
            let remaining = self.free_in(inner).unwrap_or_default();
            return No::Refused(RefusedReason::Quarantine { remaining });
        }
        self.fails(inner)
    }

    /// Whether several asked at once and none of them got a majority, as far as
    /// the nodes tell that can be heard.
    ///
    /// Nodes whose marks are equal name the same next token, whoever asks: where
    /// one of them granted that to this owner, it tells of no majority elsewhere.
    pub(super) fn is_split(&self, inner: &Inner) -> bool {
        let holders = self.holders();
        let most = holders.iter().max_by_key(|(_, same)| same.len());
        most.is_some_and(|(token, same)| {
            let granted_too = || self.granted().any(|(_, granted)| granted.token == *token);
            same.len() < inner.majority || granted_too()
        })
    }

    /// Whether this owner has got some nodes and others have some.
    pub(super) fn is_contended(&self) -> bool {
        self.granted().next().is_some() && self.held().next().is_some()
    }

    fn outcomes(&self) -> impl Iterator<Item = (usize, &AcquireOutcome)> {
        let all = self.0.iter().enumerate();
        all.filter_map(|(i, vote)| Some((i, vote.said()?.as_ref().ok()?)))
    }

    fn failed(&self) -> impl Iterator<Item = (usize, &StoreError)> {
        let all = self.0.iter().enumerate();
        all.filter_map(|(i, vote)| Some((i, vote.said()?.as_ref().err()?)))
    }

    fn held(&self) -> impl Iterator<Item = &Holder> {
        self.outcomes().filter_map(|(_, outcome)| match outcome {
            AcquireOutcome::Held(holder) => Some(holder),
            _ => None,
        })
    }

    fn refused(&self) -> impl Iterator<Item = (usize, &RefusedReason)> {
        self.outcomes().filter_map(|(i, outcome)| match outcome {
            AcquireOutcome::Refused(reason) => Some((i, reason)),
            _ => None,
        })
    }

    /// The nodes in quarantine and for how long.
    pub(super) fn quarantined(&self) -> impl Iterator<Item = (usize, Duration)> {
        self.refused().filter_map(|(i, reason)| match reason {
            RefusedReason::Quarantine { remaining } => Some((i, *remaining)),
            _ => None,
        })
    }

    fn holders(&self) -> BTreeMap<Token, Vec<&Holder>> {
        let mut holders = BTreeMap::<Token, Vec<&Holder>>::new();
        for holder in self.held() {
            holders.entry(holder.token).or_default().push(holder);
        }
        holders
    }

    /// When a majority of nodes can be free, as far as they say.
    fn free_in(&self, inner: &Inner) -> Option<Duration> {
        let mut times: Vec<Duration> = self
            .outcomes()
            .filter_map(|(_, outcome)| match outcome {
                AcquireOutcome::Granted(_) => Some(Duration::ZERO),
                AcquireOutcome::Held(holder) => Some(holder.remaining),
                AcquireOutcome::Refused(RefusedReason::Quarantine { remaining }) => {
                    Some(*remaining)
                }
                AcquireOutcome::Refused(_) => None,
            })
            .collect();
        times.sort_unstable();
        times.get(inner.majority - 1).copied()
    }

    /// The holder that most nodes name; of several the latest.
    fn held_by(&self, inner: &Inner) -> Option<Holder> {
        let holders = self.holders();
        let (_, same) = holders
            .iter()
            .max_by_key(|(token, same)| (same.len(), **token))?;
        let first = same.iter().max_by_key(|holder| holder.age)?;
        let longest = same.iter().map(|holder| holder.remaining).max()?;
        Some(Holder {
            label: self.label(same),
            token: first.token,
            age: first.age,
            remaining: self.free_in(inner).unwrap_or(longest),
        })
    }

    fn label(&self, same: &[&Holder]) -> crate::key::Label {
        // A node that was healed may not have it.
        let named = same.iter().find(|holder| !holder.label.as_str().is_empty());
        named
            .or(same.first())
            .map(|h| h.label.clone())
            .unwrap_or_default()
    }

    fn fails(&self, inner: &Inner) -> No {
        let effect = self.granted().count() + self.awaited() > 0;
        let mut others = Vec::new();
        for (i, outcome) in self.outcomes() {
            if let Some(words) = words(outcome) {
                others.push((i, StoreError::unavailable(words)));
            }
        }
        let mut failed: Vec<_> = self.failed().collect();
        failed.extend(others.iter().map(|(i, error)| (*i, error)));
        failed.sort_by_key(|(i, _)| *i);
        No::Failed(inner.no_majority("acquire", &failed, effect))
    }
}

/// An answer that is no failure, where it keeps a majority from coming about.
pub(super) fn words(outcome: &AcquireOutcome) -> Option<String> {
    match outcome {
        AcquireOutcome::Granted(_) => None,
        AcquireOutcome::Held(holder) if holder.label.as_str().is_empty() => {
            Some(format!("held by token {}", holder.token))
        }
        AcquireOutcome::Held(holder) => Some(format!("held by {}", holder.label)),
        AcquireOutcome::Refused(reason) => Some(reason.to_string()),
    }
}
