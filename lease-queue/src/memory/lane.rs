//! A lane: its mark, its last grant, and its items in order.

use std::collections::VecDeque;
use std::time::Duration;

use lease_core::{
    Holder, Key, KeyState, Label, Owner, RefusedReason, TakenOver, Token, TokenRule, Ttl,
};

use crate::item::{ClaimRef, ItemId};
use crate::memory::line::Line;
use crate::rules::QueueRules;

/// The store's clock at one operation, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// For expiry: never steps.
    pub(super) us: u64,
    /// For tokens: since the Unix epoch.
    pub(super) epoch_us: u64,
}

impl Now {
    pub(super) fn after(self, by: Duration) -> u64 {
        let by = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.us.saturating_add(by)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Granted,
    Released,
    /// Revoked; in the way until its expiry.
    Revoked,
}

#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) item: ItemId,
    pub(super) owner: Owner,
    pub(super) token: Token,
    pub(super) label: Label,
    granted_us: u64,
    pub(super) expires_us: u64,
    pub(super) standing: Standing,
}

impl Grant {
    pub(super) fn is_live(&self, now: Now) -> bool {
        self.standing == Standing::Granted && now.us < self.expires_us
    }

    pub(super) fn blocks(&self, now: Now) -> bool {
        self.standing != Standing::Released && now.us < self.expires_us
    }

    /// Whether this is the very grant that the claim is about, live or not.
    pub(super) fn is_of(&self, claim: &ClaimRef, rules: QueueRules) -> bool {
        self.item == claim.item
            && (!rules.check_owner || self.owner == claim.owner)
            && (!rules.check_token || self.token == claim.token)
    }

    pub(super) fn lengthen(&mut self, ttl: Ttl, rules: QueueRules, now: Now) {
        let until_us = now.us.saturating_add(ttl.as_micros());
        self.expires_us = if rules.never_shorten {
            self.expires_us.max(until_us)
        } else {
            until_us
        };
    }

    pub(super) fn remaining(&self, now: Now) -> Duration {
        Duration::from_micros(self.expires_us.saturating_sub(now.us))
    }

    pub(super) fn holder(&self, now: Now) -> Holder {
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
pub(super) struct Asker<'a> {
    pub(super) owner: Owner,
    pub(super) ttl: Ttl,
    pub(super) label: &'a Label,
}

#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) mark: Option<Token>,
    /// The last grant, live or not.
    pub(super) grant: Option<Grant>,
    /// Those that are not dead. The first is the only one that may be claimed.
    pub(super) items: VecDeque<ItemId>,
    /// When the last grant ended before its time.
    pub(super) free_us: u64,
    /// Of a key: who waits for it.
    pub(super) line: Line,
    /// Its place among the lanes that have something to claim.
    pub(super) place: Option<(u64, u64)>,
}

impl Row {
    /// From when on nobody is in the way.
    pub(super) fn unblocked_us(&self) -> u64 {
        match &self.grant {
            Some(grant) if grant.standing != Standing::Released => grant.expires_us,
            _ => self.free_us,
        }
    }

    /// The token that the rule asks for.
    pub(super) fn token(
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
    pub(super) fn take(
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
        })
    }

    pub(super) fn state(&self, key: &Key, now: Now) -> KeyState {
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
pub(super) fn taken_over(last: Option<&Grant>) -> Option<TakenOver> {
    last.filter(|last| last.standing != Standing::Released)
        .map(|last| TakenOver {
            label: last.label.clone(),
            token: last.token,
        })
}
