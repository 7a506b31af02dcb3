//! What several sentinels say, taken together.

use lease_core::{StoreError, StoreErrorKind};

use super::Named;
use super::ask::Answer;

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

    /// Most have named one: no failover can have gone unseen by all of them.
    pub(super) fn are_enough(&self) -> bool {
        self.named.len() * 2 > self.asked
    }

    /// The primary by the newest answer. When few have answered, what is known
    /// already counts as an answer: they may be cut off from the others.
    pub(super) fn choose(&self, known: Option<&Named>) -> Option<Named> {
        let first = self.named.first()?;
        let few = !self.are_enough();
        let all = || self.named.iter().chain(known.filter(|_| few));
        let epoch = all().map(|one| one.epoch).max().unwrap_or(first.epoch);
        let newest = || all().filter(|one| one.epoch == epoch);
        // Some may name the same server by another address: no reason to leave it.
        if let Some(known) = known.filter(|known| newest().any(|one| one == *known)) {
            return Some(known.clone());
        }
        let votes = |one: &Named| newest().filter(|other| *other == one).count();
        newest().max_by_key(|one| votes(one)).cloned()
    }

    /// Why nobody has named one.
    pub(super) fn failure(self, name: &str) -> StoreError {
        let asked = self.asked;
        let heard = self.strangers + self.failures.len();
        let transient = self.failures.iter().any(StoreError::is_transient);
        let worst = self.failures.into_iter().max_by_key(|f| !f.is_transient());
        match worst {
            Some(failure) if self.strangers == 0 => {
                let kind = match transient || heard < asked {
                    true => StoreErrorKind::Unavailable,
                    false => failure.kind(),
                };
                let words = format!(
                    "none of {asked} sentinels names the primary: {}",
                    failure.message()
                );
                StoreError::with_source(kind, words, failure)
            }
            _ if self.strangers > 0 => {
                let kind = match transient || heard < asked {
                    true => StoreErrorKind::Unavailable,
                    false => StoreErrorKind::Refusing,
                };
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

    fn choose(asked: usize, said: &[(u16, u64)], known: Option<(u16, u64)>) -> Option<u16> {
        let mut answers = Answers::of(asked);
        for (port, epoch) in said {
            answers.hear(Ok(Some(named(*port, *epoch))));
        }
        let known = known.map(|(port, epoch)| named(port, epoch));
        Some(answers.choose(known.as_ref())?.address.port)
    }

    #[test]
    fn the_newest_answer_counts() {
        assert_eq!(choose(3, &[], None), None);
        assert_eq!(choose(3, &[(1, 0), (2, 1)], None), Some(2));
        assert_eq!(choose(3, &[(2, 1), (1, 0)], None), Some(2));
        assert_eq!(choose(3, &[(1, 4), (2, 4), (2, 4)], None), Some(2));
    }

    #[test]
    fn one_that_is_cut_off_cannot_lead_back_to_a_former_primary() {
        assert_eq!(choose(3, &[(1, 0)], Some((2, 1))), Some(2));
        assert_eq!(choose(3, &[(1, 2)], Some((2, 1))), Some(1));
        // Most of them can: they were set up anew.
        assert_eq!(choose(3, &[(1, 0), (1, 0)], Some((2, 1))), Some(1));
    }

    #[test]
    fn a_second_name_of_the_same_server_is_no_reason_to_leave_it() {
        assert_eq!(choose(3, &[(1, 4), (2, 4)], Some((2, 4))), Some(2));
        assert_eq!(choose(3, &[(1, 4), (1, 4)], Some((2, 4))), Some(1));
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
