//! A lane: its mark, its last grant, and its items in order.

use std::collections::VecDeque;
use std::time::Duration;

use lease_core::{
    Holder, Key, KeyState, Label, Owner, RefusedReason, TakenOver, Token, TokenRule, Ttl,
};

use crate::item::{ClaimRef, ItemId};
use crate::rules::QueueRules;
use crate::table::line::Line;

/// The store's clock at one operation, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// For expiry: never steps.
    pub(crate) us: u64,
    /// For tokens: since the Unix epoch.
    pub(crate) epoch_us: u64,
}

impl Now {
    pub(crate) fn after(self, by: Duration) -> u64 {
        let by = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.us.saturating_add(by)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Granted,
    Released,
    /// Revoked; in the way until its expiry.
    Revoked,
}

/// Later than every time: of what ends only when the table is told.
pub(crate) const UNTIL_TOLD: u64 = u64::MAX;

/// How long a grant lasts that no clock of the store ends: those who have seen it
/// unchanged for so long tell that it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// The step that granted or extended it last.
    pub(crate) revision: u64,
    pub(crate) lasts_us: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) item: ItemId,
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    pub(crate) label: Label,
    pub(crate) granted_us: u64,
    /// When it ends by the store's clock; with a term it only tells the order.
    pub(crate) expires_us: u64,
    pub(crate) standing: Standing,
    pub(crate) term: Option<Term>,
}

impl Grant {
    pub(crate) fn is_live(&self, now: Now) -> bool {
        self.standing == Standing::Granted && self.lasts(now)
    }

    pub(crate) fn blocks(&self, now: Now) -> bool {
        self.standing != Standing::Released && self.lasts(now)
    }

    fn lasts(&self, now: Now) -> bool {
        self.term.is_some() || now.us < self.expires_us
    }

    /// Its time is over from now on, if it was not before.
    pub(crate) fn end(&mut self, now: Now) {
        self.expires_us = self.expires_us.min(now.us);
        self.term = None;
    }

    /// Whether this is the very grant that the claim is about, live or not.
    pub(crate) fn is_of(&self, claim: &ClaimRef, rules: QueueRules) -> bool {
        self.item == claim.item
            && (!rules.check_owner || self.owner == claim.owner)
            && (!rules.check_token || self.token == claim.token)
    }

    pub(crate) fn lengthen(&mut self, ttl: Ttl, rules: QueueRules, now: Now) {
        let until_us = now.us.saturating_add(ttl.as_micros());
        self.expires_us = if rules.never_shorten {
            self.expires_us.max(until_us)
        } else {
            until_us
        };
    }

    pub(crate) fn remaining(&self, now: Now) -> Duration {
        Duration::from_micros(self.expires_us.saturating_sub(now.us))
    }

    pub(crate) fn holder(&self, now: Now) -> Holder {
        Holder {
            label: self.label.clone(),
            token: self.token,
            age: Duration::from_micros(now.us.saturating_sub(self.granted_us)),
            remaining: self.remaining(now),
        }
    }
}

/// Who asks for a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) owner: Owner,
    pub(crate) ttl: Ttl,
    pub(crate) label: &'a Label,
}

#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) mark: Option<Token>,
    /// The last grant, live or not.
    pub(crate) grant: Option<Grant>,
    /// Those that are not dead. The first is the only one that may be claimed.
    pub(crate) items: VecDeque<ItemId>,
    /// When the last grant ended before its time.
    pub(crate) free_us: u64,
    /// Of a key: who waits for it.
    pub(crate) line: Line,
    /// Its place among the lanes that have something to claim.
    pub(crate) place: Option<(u64, u64)>,
}

impl Row {
    /// From when on nobody is in the way.
    pub(crate) fn unblocked_us(&self) -> u64 {
        match &self.grant {
            Some(grant) if grant.standing != Standing::Released => match grant.term {
                Some(_) => UNTIL_TOLD,
                None => grant.expires_us,
            },
            _ => self.free_us,
        }
    }

    /// The token that the rule asks for.
    pub(crate) fn token(
        &self,
        rule: TokenRule,
        rules: QueueRules,
        now: Now,
    ) -> Result<Token, RefusedReason> {
        let mark = self.mark;
        match rule {
            TokenRule::Exactly(token) => match mark {
                Some(high_water) if token <= high_water => {
                    Err(RefusedReason::BelowMark { high_water })
                }
                _ => Ok(token),
            },
            TokenRule::Next { after } => {
                let above = |t: Option<Token>| t.map_or(1, |t| t.get() + 1);
                // A store that forgets its marks has no clock to save it either.
                let clock = if rules.mark_stays { now.epoch_us } else { 1 };
                // A clock gone wild must not use the lane's tokens up.
                let clock = clock.min(Token::MAX_FENCE.get());
                let token = above(mark).max(above(after)).max(clock);
                Token::new(token).map_err(|_| RefusedReason::TokensExhausted)
            }
        }
    }

    /// Gives the lane to the asker; gives back the grant before it.
    pub(crate) fn take(
        &mut self,
        item: ItemId,
        token: Token,
        asker: Asker<'_>,
        now: Now,
    ) -> Option<Grant> {
        self.mark = Some(token);
        self.grant.replace(Grant {
            item,
            owner: asker.owner,
            token,
            label: asker.label.clone(),
            granted_us: now.us,
            expires_us: now.us.saturating_add(asker.ttl.as_micros()),
            standing: Standing::Granted,
            term: None,
        })
    }

    pub(crate) fn state(&self, key: &Key, now: Now) -> KeyState {
        let grant = self.grant.as_ref();
        KeyState {
            key: key.clone(),
            high_water: self.mark,
            holder: grant.filter(|g| g.is_live(now)).map(|g| g.holder(now)),
            blocked_for: grant
                .filter(|g| !g.is_live(now) && g.blocks(now))
                .map(|g| g.remaining(now)),
        }
    }
}

/// Whose grant ended without a release.
pub(crate) fn taken_over(last: Option<&Grant>) -> Option<TakenOver> {
    last.filter(|last| last.standing != Standing::Released)
        .map(|last| TakenOver {
            label: last.label.clone(),
            token: last.token,
        })
}
