//! What the files and the store tell of a run, put together.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::check::{Held, History};
use crate::record::{Answered, Of, Seen, Work, read};

/// How often what happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) workers_killed: usize,
    pub(crate) workers_stopped: usize,
    pub(crate) servers_killed: usize,
    pub(crate) claims: usize,
    pub(crate) extensions: usize,
    /// Items that a later owner got although the earlier one had not let them go.
    pub(crate) taken_over: usize,
    /// Writes of owners that were over, refused by the resource.
    pub(crate) writes_refused: usize,
    /// Settles of owners that were over, refused by the store.
    pub(crate) settles_refused: usize,
    /// Writes of items whose effect was there already.
    pub(crate) written_again: usize,
}

/// Everything that all workers saw: the claims, and counts of the rest.
pub(crate) fn told(folder: &Path) -> (Vec<Held>, Tally) {
    let mut tally = Tally::default();
    let mut claims = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "seen")
        {
            claims.extend(of_one(&read(&path), &mut tally));
        }
    }
    tally.claims = claims.len();
    tally.taken_over = taken_over(&claims);
    (claims, tally)
}

fn of_one(seen: &[Seen], tally: &mut Tally) -> Vec<Held> {
    let mut claims: Vec<Held> = Vec::new();
    let mut places: HashMap<Of, usize> = HashMap::new();
    for seen in seen {
        match *seen {
            Seen::Claimed {
                of,
                work,
                attempt: _,
                asked,
                from,
                until,
            } => {
                places.insert(of, claims.len());
                claims.push(Held {
                    of,
                    work,
                    asked,
                    from,
                    until,
                    given_up: false,
                    completed: None,
                });
            }
            Seen::Extended { of, until } => {
                tally.extensions += 1;
                let claim = &mut claims[places[&of]];
                if !claim.given_up {
                    claim.until = claim.until.max(until);
                }
            }
            Seen::Ending { of, at } => claims[places[&of]].gives_up(at),
            Seen::Ended {
                of,
                completes,
                answered,
            } => {
                if completes {
                    claims[places[&of]].completed = Some(answered);
                }
                tally.settles_refused += usize::from(answered == Answered::Lost);
            }
            Seen::Abandoning { owner, at } => {
                let own = claims.iter_mut().filter(|claim| claim.of.owner == owner);
                own.for_each(|claim| claim.gives_up(at));
            }
            Seen::Begun { .. } => {}
            Seen::Over { refused, .. } => tally.writes_refused += usize::from(refused),
        }
    }
    claims
}

impl Held {
    fn gives_up(&mut self, at: u64) {
        self.given_up = true;
        self.until = self.until.min(at);
    }
}

fn taken_over(claims: &[Held]) -> usize {
    let mut by_item: BTreeMap<Work, Vec<&Held>> = BTreeMap::new();
    for claim in claims {
        by_item.entry(claim.work).or_default().push(claim);
    }
    let taken = |claims: &Vec<&Held>| {
        let last = claims.iter().map(|claim| claim.of.token).max();
        let let_go = |claim: &&&Held| claim.given_up && claim.completed != Some(Answered::Lost);
        let kept = claims.iter().filter(|claim| !let_go(claim));
        kept.filter(|claim| Some(claim.of.token) < last).count()
    };
    by_item.values().map(taken).sum()
}

impl Tally {
    /// What it still has to show: a run that shows nothing is no run.
    pub(crate) fn lacks(&self, with_a_server: bool) -> Option<&'static str> {
        let all = [
            (self.workers_killed, "no worker was killed"),
            (self.workers_stopped, "no worker was stopped"),
            (self.taken_over, "no item was taken over"),
            (self.writes_refused, "no late write was refused"),
            (
                self.servers_killed + usize::from(!with_a_server),
                "no server was killed",
            ),
        ];
        let lacks = all.into_iter().find(|(times, _)| *times == 0);
        lacks.map(|(_, what)| what)
    }

    /// With what a further round showed.
    pub(crate) fn and(self, more: Self) -> Self {
        Self {
            workers_killed: self.workers_killed + more.workers_killed,
            workers_stopped: self.workers_stopped + more.workers_stopped,
            servers_killed: self.servers_killed + more.servers_killed,
            claims: self.claims + more.claims,
            extensions: self.extensions + more.extensions,
            taken_over: self.taken_over + more.taken_over,
            writes_refused: self.writes_refused + more.writes_refused,
            settles_refused: self.settles_refused + more.settles_refused,
            written_again: self.written_again + more.written_again,
        }
    }

    /// How many writes the journal holds beyond one of each item.
    pub(crate) fn with_journal(mut self, history: &History) -> Self {
        self.written_again = history.journal.len().saturating_sub(history.effects.len());
        self
    }
}
