//! The rules, over what a run left behind.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use lease_conformance::history::{Holding, Holdings};
use lease_core::{Owner, Token};

use crate::record::{Answered, Of, Work};

/// What holds whatever happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Every item is completed, and by one claim.
    Completed,
    /// The effect of every item is applied exactly once.
    AppliedOnce,
    /// A group's items are claimed, and their effects written, in the order of their puts.
    InOrder,
    /// No write is admitted in a group after one with a higher token, and no claim has a
    /// token that is not above all that came before it.
    TokensRise,
    /// No two owners of a group are live at the same time.
    OneOwner,
}

/// A rule that is broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) Rule, pub(crate) String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0, self.1)
    }
}

/// A claim, from its grant until its holder could not act on it any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) of: Of,
    pub(crate) work: Work,
    /// Before it was asked for, and when it was there: nobody can be sure of it earlier.
    pub(crate) asked: u64,
    pub(crate) from: u64,
    /// The last deadline that the store confirmed, or when its holder sent what ended it.
    pub(crate) until: u64,
    /// Whether its holder sent anything that ends it.
    pub(crate) given_up: bool,
    /// How a completion was answered.
    pub(crate) completed: Option<Answered>,
}

/// A write that the resource admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) work: Work,
    pub(crate) token: u64,
    pub(crate) attempt: i64,
    pub(crate) worker: i64,
}

impl From<(i64, i64, i64, i64, i64)> for Write {
    fn from(row: (i64, i64, i64, i64, i64)) -> Self {
        let (group, number, token, attempt, worker) = row;
        Self {
            work: Work {
                group: usize::try_from(group).unwrap(),
                number: u32::try_from(number).unwrap(),
            },
            token: u64::try_from(token).unwrap(),
            attempt,
            worker,
        }
    }
}

/// What a run left behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) groups: usize,
    /// How many items each group has.
    pub(crate) each: u32,
    pub(crate) claims: Vec<Held>,
    /// In the order in which the resource admitted them.
    pub(crate) journal: Vec<Write>,
    pub(crate) effects: Vec<Work>,
    /// What the store still has, dead or not, in words.
    pub(crate) left: Vec<String>,
}

impl History {
    /// The first break of each rule.
    pub(crate) fn broken(&self) -> Vec<Broken> {
        let rules = [
            (Rule::Completed, self.completed()),
            (Rule::AppliedOnce, self.applied_once()),
            (Rule::InOrder, self.written_in_order()),
            (Rule::InOrder, self.claimed_in_order()),
            (Rule::TokensRise, self.tokens_rise()),
            (Rule::OneOwner, self.one_owner()),
        ];
        let broken = |(rule, how): (Rule, Result<(), String>)| Some(Broken(rule, how.err()?));
        rules.into_iter().filter_map(broken).collect()
    }

    fn completed(&self) -> Result<(), String> {
        if let Some(left) = self.left.first() {
            return Err(format!("{} items are left, as {left}", self.left.len()));
        }
        let mut by: BTreeMap<Work, Held> = BTreeMap::new();
        for claim in &self.claims {
            if !matches!(claim.completed, Some(Answered::Done | Answered::Before)) {
                continue;
            }
            if let Some(other) = by.insert(claim.work, *claim) {
                return Err(format!("by two claims: {other:?} and {claim:?}"));
            }
        }
        Ok(())
    }

    fn applied_once(&self) -> Result<(), String> {
        let mut times: BTreeMap<Work, u32> = BTreeMap::new();
        for group in 0..self.groups {
            times.extend((0..self.each).map(|number| (Work { group, number }, 0)));
        }
        for work in &self.effects {
            match times.get_mut(work) {
                Some(times) => *times += 1,
                None => return Err(format!("{work:?} was never put")),
            }
        }
        match times.into_iter().find(|(_, times)| *times != 1) {
            Some((work, times)) => Err(format!("{work:?} {times} times")),
            None => Ok(()),
        }
    }

    /// Each write is of the last one's item again, or of the next.
    fn written_in_order(&self) -> Result<(), String> {
        let mut last: BTreeMap<usize, Write> = BTreeMap::new();
        for write in &self.journal {
            let before = last.insert(write.work.group, *write);
            let again = before.is_some_and(|before| before.work == write.work);
            let next = before.map_or(0, |before| before.work.number + 1);
            if !again && write.work.number != next {
                return Err(format!("{write:?} was admitted after {before:?}"));
            }
        }
        Ok(())
    }

    /// By their tokens, each claim is of the last one's item again, or of the next.
    fn claimed_in_order(&self) -> Result<(), String> {
        let mut claims = self.claims.clone();
        claims.sort_by_key(|claim| (claim.of.group, claim.of.token));
        let mut last: Option<Held> = None;
        for claim in claims {
            let before = last.filter(|last| last.of.group == claim.of.group);
            let again = before.is_some_and(|before| before.work == claim.work);
            let next = before.map_or(0, |before| before.work.number + 1);
            if !again && claim.work.number != next {
                return Err(format!("{claim:?} came after {before:?}"));
            }
            last = Some(claim);
        }
        Ok(())
    }

    fn tokens_rise(&self) -> Result<(), String> {
        let mut last: BTreeMap<usize, Write> = BTreeMap::new();
        for write in &self.journal {
            let before = last.insert(write.work.group, *write);
            if let Some(before) = before.filter(|before| before.token > write.token) {
                return Err(format!("{write:?} was admitted after {before:?}"));
            }
        }
        self.holdings().tokens_rise()
    }

    fn one_owner(&self) -> Result<(), String> {
        let mut claims = self.claims.clone();
        // Answered after its deadline, a claim was never anybody's.
        claims.retain(|claim| claim.from < claim.until);
        claims.sort_by_key(|claim| (claim.of.group, claim.from));
        let mut longest: Option<Held> = None;
        for claim in claims {
            let before = longest.filter(|before| before.of.group == claim.of.group);
            match before {
                Some(before) if before.until > claim.from => {
                    return Err(format!("two owners at once: {before:?} and {claim:?}"));
                }
                _ => longest = Some(claim),
            }
        }
        Ok(())
    }

    fn holdings(&self) -> Holdings {
        let holdings = Holdings::new();
        for claim in &self.claims {
            holdings.add(Holding {
                key: claim.of.group,
                owner: Owner::from_bytes(claim.of.owner.to_be_bytes()),
                token: Token::new(claim.of.token).unwrap(),
                asked: Duration::from_nanos(claim.asked),
                from: Duration::from_nanos(claim.from),
                until: Duration::from_nanos(claim.until),
            });
        }
        holdings
    }
}

#[cfg(test)]
#[path = "check/tests.rs"]
mod tests;
