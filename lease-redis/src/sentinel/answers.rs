//! What several sentinels say, taken together.

use std::cmp::Reverse;

use lease_core::{StoreError, StoreErrorKind};

use super::Named;
use super::ask::Answer;

/// As much of a name as an error shows.
const SHOWN: usize = 100;

/// Who may be the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) named: Named,
    /// Most of those who were asked name it.
    pub(super) most: bool,
}

/// Who is the primary, by one look.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) named: Named,
    /// Newer ones that were seen not to be it.
    pub(super) dismissed: Vec<Named>,
}

impl Choice {
    pub(super) fn of(named: Named) -> Self {
        Self {
            named,
            dismissed: Vec::new(),
        }
    }

    /// Makes it the news, and says whether that is a change. What was `known`
    /// when the look began is weighed by it; what another look has found since
    /// stays, unless this one is newer or has seen that it is none.
    pub(super) fn settle(&self, known: Option<&Named>, news: &mut Option<Named>) -> bool {
        if let Some(now) = news {
            let unweighed = known != Some(now) && !self.dismissed.contains(now);
            if *now == self.named || unweighed && now.epoch >= self.named.epoch {
                return false;
            }
        }
        *news = Some(self.named.clone());
        true
    }
}

/// What was heard until now.
pub(super) struct Answers {
    asked: usize,
    named: Vec<Named>,
    strangers: usize,
    failures: Vec<StoreError>,
}

impl Answers {
    /// Of so many sentinels.
    pub(super) fn of(asked: usize) -> Self {
        Self {
            asked,
            named: Vec::new(),
            strangers: 0,
            failures: Vec::new(),
        }
    }

    pub(super) fn hear(&mut self, answer: Answer) {
        match answer {
            Ok(Some(named)) => self.named.push(named),
            Ok(None) => self.strangers += 1,
            Err(failure) => self.failures.push(failure),
        }
    }

    /// Somebody has named a primary.
    pub(super) fn name_one(&self) -> bool {
        !self.named.is_empty()
    }

    /// Most have named one. A failover may still be unseen by all of these: its
    /// leader alone knows of it first.
    pub(super) fn are_most(&self) -> bool {
        self.named.len() * 2 > self.asked
    }

    /// Who may be the primary, the newest first. What is known already counts as
    /// an answer, unless everybody answers and names an older one: then the
    /// sentinels were set up anew.
    pub(super) fn candidates(&self, known: Option<&Named>) -> Vec<Candidate> {
        if self.named.is_empty() {
            return Vec::new();
        }
        let anew = |known: &Named| {
            self.named.len() == self.asked && self.named.iter().all(|one| one.epoch < known.epoch)
        };
        let known = known.filter(|known| !anew(known));
        let votes = |one: &Named| self.named.iter().filter(|other| *other == one).count();
        // Some may name the same server by another address: no reason to leave it,
        // unless most do and nobody names it as we do.
        let keep = |one: &Named| known == Some(one) && (votes(one) > 0 || !self.are_most());
        let mut all: Vec<&Named> = self.named.iter().chain(known).collect();
        all.sort_by_key(|one| Reverse((one.epoch, keep(one), votes(one))));
        let mut candidates: Vec<Candidate> = Vec::new();
        for named in all {
            let address = &named.address;
            if candidates.iter().all(|one| one.named.address != *address) {
                let by = self.named.iter().filter(|one| one.address == *address);
                candidates.push(Candidate {
                    named: named.clone(),
                    most: by.count() * 2 > self.asked,
                });
            }
        }
        candidates
    }

    /// Why nobody has named one.
    pub(super) fn failure(&self, name: &str) -> StoreError {
        let asked = self.asked;
        let heard = self.strangers + self.failures.len();
        let transient = self.failures.iter().any(StoreError::is_transient);
        let worst = self.failures.iter().max_by_key(|f| !f.is_transient());
        match worst {
            Some(failure) if self.strangers == 0 => {
                let kind = match transient || heard < asked {
                    true => StoreErrorKind::Unavailable,
                    false => failure.kind(),
                };
                // It is quoted, so it is no source besides.
                let why = failure.message();
                let words = format!("none of {asked} sentinels names the primary: {why}");
                StoreError::new(kind, words)
            }
            _ if self.strangers > 0 => {
                let kind = match transient || heard < asked {
                    true => StoreErrorKind::Unavailable,
                    false => StoreErrorKind::Refusing,
                };
                let name: String = name.chars().take(SHOWN).collect();
                let (knows, of) = (self.strangers, "the sentinels that answer");
                StoreError::new(
                    kind,
                    format!(
                        "{of} ({knows} of {asked}) watch no primary of the name {name:?}; name it in \
                         the URL as `SENTINEL MASTERS` does"
                    ),
                )
            }
            _ => StoreError::unavailable(format!(
                "none of {asked} sentinels answered in time; check that they run and can be reached \
                 from here"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;

    fn named(port: u16, epoch: u64) -> Named {
        let host = "10.0.0.1".into();
        Named {
            address: Address { host, port },
            epoch,
        }
    }

    fn candidates(
        asked: usize,
        said: &[(u16, u64)],
        known: Option<(u16, u64)>,
    ) -> Vec<(u16, bool)> {
        let mut answers = Answers::of(asked);
        for (port, epoch) in said {
            answers.hear(Ok(Some(named(*port, *epoch))));
        }
        let known = known.map(|(port, epoch)| named(port, epoch));
        let candidates = answers.candidates(known.as_ref()).into_iter();
        candidates
            .map(|one| (one.named.address.port, one.most))
            .collect()
    }

    fn first(asked: usize, said: &[(u16, u64)], known: Option<(u16, u64)>) -> Option<u16> {
        Some(candidates(asked, said, known).first()?.0)
    }

    #[test]
    fn the_newest_answer_counts() {
        assert_eq!(first(3, &[], None), None);
        assert_eq!(first(3, &[], Some((1, 1))), None);
        assert_eq!(first(3, &[(1, 0), (2, 1)], None), Some(2));
        assert_eq!(first(3, &[(2, 1), (1, 0)], None), Some(2));
        assert_eq!(first(3, &[(1, 0), (1, 0), (2, 1)], None), Some(2));
        assert_eq!(first(3, &[(1, 4), (2, 4), (2, 4)], None), Some(2));
    }

    #[test]
    fn the_others_follow_once_each_from_the_newest_to_the_oldest() {
        let said = [(1, 1), (2, 2), (1, 1)];
        assert_eq!(candidates(3, &said, None), [(2, false), (1, true)]);
        let all = [(3, false), (2, false), (1, true)];
        assert_eq!(candidates(3, &said[..], Some((1, 1))), all[1..]);
        assert_eq!(
            candidates(4, &said, Some((3, 3))),
            [all[0], all[1], (1, false)]
        );
    }

    #[test]
    fn those_who_know_less_cannot_lead_back_to_a_former_primary() {
        assert_eq!(first(3, &[(1, 0)], Some((2, 1))), Some(2));
        assert_eq!(first(3, &[(1, 2)], Some((2, 1))), Some(1));
        // Not even most of them: the failover's leader may be the silent one.
        assert_eq!(first(3, &[(1, 0), (1, 0)], Some((2, 1))), Some(2));
        // All of them can: they were set up anew.
        assert_eq!(first(3, &[(1, 0), (1, 0), (1, 0)], Some((2, 1))), Some(1));
    }

    #[test]
    fn a_second_name_of_the_same_server_is_no_reason_to_leave_it() {
        assert_eq!(first(3, &[(1, 4), (2, 4)], Some((2, 4))), Some(2));
        assert_eq!(first(3, &[(1, 4), (1, 4), (2, 4)], Some((2, 4))), Some(2));
        assert_eq!(first(3, &[(1, 4)], Some((2, 4))), Some(2));
        assert_eq!(first(3, &[(1, 4), (1, 4)], Some((2, 4))), Some(1));
    }

    #[test]
    fn a_slow_look_does_not_undo_what_another_has_found_since() {
        let settled = |known: Option<Named>, now: Named, choice: Choice| {
            let mut news = Some(now);
            choice.settle(known.as_ref(), &mut news);
            news.map(|one| one.address.port)
        };
        let old = || Some(named(1, 1));
        let stale = || Choice::of(named(1, 1));
        assert_eq!(settled(old(), named(2, 2), stale()), Some(2));
        assert_eq!(settled(None, named(2, 2), stale()), Some(2));
        assert_eq!(settled(None, named(2, 1), stale()), Some(2));
        // What it knew it has weighed, and what it has seen to be none, too.
        assert_eq!(settled(Some(named(2, 2)), named(2, 2), stale()), Some(1));
        let seen = Choice {
            named: named(1, 1),
            dismissed: vec![named(2, 2)],
        };
        assert_eq!(settled(old(), named(2, 2), seen), Some(1));
        assert_eq!(
            settled(old(), named(2, 2), Choice::of(named(3, 3))),
            Some(3)
        );
        let mut none = None;
        assert!(stale().settle(None, &mut none) && none == old());
        assert!(!stale().settle(None, &mut none));
    }

    #[test]
    fn why_nobody_names_one_is_told_by_what_can_be_done() {
        let away = || Err(StoreError::unavailable("away"));
        let refused = || Err(StoreError::new(StoreErrorKind::Refusing, "NOAUTH"));
        let failure = |said: Vec<Answer>| {
            let mut answers = Answers::of(2);
            said.into_iter().for_each(|one| answers.hear(one));
            let failure = answers.failure("leases");
            (failure.kind(), failure.to_string())
        };
        use StoreErrorKind::{Refusing, Unavailable};
        assert_eq!(failure(vec![]).0, Unavailable);
        assert_eq!(failure(vec![away(), away()]).0, Unavailable);
        let (kind, words) = failure(vec![away(), refused()]);
        assert_eq!(kind, Unavailable);
        assert!(words.contains("NOAUTH"), "{words}");
        assert_eq!(failure(vec![refused(), refused()]).0, Refusing);
        let (kind, words) = failure(vec![Ok(None), Ok(None)]);
        assert_eq!(kind, Refusing);
        assert!(
            words.contains("no primary of the name \"leases\""),
            "{words}"
        );
        assert_eq!(failure(vec![Ok(None), away()]).0, Unavailable);
    }
}
