//! What the nodes said to one renewal, and what that comes to.

use super::heal::Healed;
use crate::backend::{LostCause, RenewOutcome};
use crate::compose::quorum::Inner;
use crate::error::StoreError;

#[derive(Debug)]
enum Word {
    Awaited,
    Has,
    /// It knows no such grant, and may be able to have it again.
    Forgot,
    Healing,
    /// It does not have the grant and cannot have it.
    Gone(LostCause),
    Failed(StoreError),
}

/// One renewal.
#[derive(Debug)]
pub(super) struct Tally(Vec<Word>);

impl Tally {
    pub(super) fn new(nodes: usize) -> Self {
        Self((0..nodes).map(|_| Word::Awaited).collect())
    }

    fn put(&mut self, i: usize, word: Word) {
        if let Some(place) = self.0.get_mut(i) {
            *place = word;
        }
    }

    pub(super) fn answered(&mut self, i: usize, answer: Result<RenewOutcome, StoreError>) {
        self.put(
            i,
            match answer {
                Ok(RenewOutcome::Renewed) => Word::Has,
                // Where a grant expired, was taken over or revoked, a mark stands
                // that refuses it; where it was released it must not come back.
                Ok(RenewOutcome::Lost(LostCause::Unknown)) => Word::Forgot,
                Ok(RenewOutcome::Lost(cause)) => Word::Gone(cause),
                Err(error) => Word::Failed(error),
            },
        );
    }

    pub(super) fn healed(&mut self, i: usize, healed: Healed) {
        self.put(
            i,
            match healed {
                Healed::Exactly => Word::Has,
                Healed::Not(cause) => Word::Gone(cause),
                Healed::Unanswered(error) => Word::Failed(error),
            },
        );
    }

    /// The nodes to heal now, each with one that has the grant. Only while
    /// somebody has it: an expired grant is dead.
    pub(super) fn take_heals(&mut self, inner: &Inner) -> Vec<(usize, usize)> {
        let Some(witness) = self.0.iter().position(|word| matches!(word, Word::Has)) else {
            return Vec::new();
        };
        if self.gone() > inner.spare() {
            return Vec::new();
        }
        let mut heals = Vec::new();
        for (i, word) in self.0.iter_mut().enumerate() {
            if matches!(word, Word::Forgot) {
                *word = Word::Healing;
                heals.push((i, witness));
            }
        }
        heals
    }

    fn count(&self, wanted: fn(&Word) -> bool) -> usize {
        self.0.iter().filter(|word| wanted(word)).count()
    }

    fn has(&self) -> usize {
        self.count(|word| matches!(word, Word::Has))
    }

    /// How many can have it no more, whatever comes.
    fn gone(&self) -> usize {
        let gone = self.count(|word| matches!(word, Word::Gone(_)));
        let open = self.count(|word| matches!(word, Word::Awaited | Word::Has | Word::Healing));
        // Without anybody who has it, nobody is healed.
        gone + if open == 0 {
            self.count(|word| matches!(word, Word::Forgot))
        } else {
            0
        }
    }

    pub(super) fn is_decided(&self, inner: &Inner) -> bool {
        self.has() >= inner.majority || self.gone() > inner.spare()
    }

    pub(super) fn outcome(&self, inner: &Inner) -> Result<RenewOutcome, StoreError> {
        if self.has() >= inner.majority {
            return Ok(RenewOutcome::Renewed);
        }
        if self.gone() > inner.spare() {
            return Ok(RenewOutcome::Lost(self.cause()));
        }
        let lost: Vec<_> = self
            .0
            .iter()
            .enumerate()
            .filter_map(|(i, word)| match word {
                Word::Gone(cause) => Some((i, StoreError::unavailable(cause.to_string()))),
                Word::Forgot => {
                    let words = LostCause::Unknown.to_string();
                    Some((i, StoreError::unavailable(words)))
                }
                _ => None,
            })
            .collect();
        let mut failed: Vec<_> = lost.iter().map(|(i, error)| (*i, error)).collect();
        failed.extend(
            self.0
                .iter()
                .enumerate()
                .filter_map(|(i, word)| match word {
                    Word::Failed(error) => Some((i, error)),
                    _ => None,
                }),
        );
        failed.sort_by_key(|(i, _)| *i);
        Err(inner.no_majority("renew", &failed, self.has() > 0))
    }

    /// The cause that most nodes name; of several the one that says most. That somebody
    /// else has the key is not said on a tie: a node that was late at the acquire may
    /// have named a higher token of the same owner's, and says so as well.
    fn cause(&self) -> LostCause {
        let rank = |cause: LostCause| match cause {
            LostCause::Revoked => 4,
            LostCause::TakenOver => 3,
            LostCause::Released => 2,
            LostCause::Expired => 1,
            LostCause::Unknown => 0,
        };
        let causes = || {
            self.0.iter().filter_map(|word| match word {
                Word::Gone(cause) => Some(*cause),
                _ => None,
            })
        };
        let named = |cause| causes().filter(|other| *other == cause).count();
        let most = causes().max_by_key(|cause| (named(*cause), rank(*cause)));
        match most {
            Some(LostCause::TakenOver)
                if causes().any(|cause| {
                    cause != LostCause::TakenOver && named(cause) == named(LostCause::TakenOver)
                }) =>
            {
                LostCause::Unknown
            }
            most => most.unwrap_or(LostCause::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(causes: &[LostCause]) -> LostCause {
        let mut tally = Tally::new(causes.len());
        for (i, cause) in causes.iter().enumerate() {
            tally.answered(i, Ok(RenewOutcome::Lost(*cause)));
        }
        tally.cause()
    }

    #[test]
    fn that_somebody_else_has_the_key_is_not_said_by_half_of_those_who_answered() {
        use LostCause::{Expired, Revoked, TakenOver, Unknown};
        assert_eq!(cause(&[TakenOver, TakenOver, Expired]), TakenOver);
        assert_eq!(cause(&[TakenOver, Expired, Expired]), Expired);
        assert_eq!(cause(&[TakenOver, Expired]), Unknown);
        assert_eq!(cause(&[Revoked, TakenOver]), Revoked);
    }
}
