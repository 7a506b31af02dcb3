//! The contract, decided on the rows that one write transaction has loaded.
//!
//! No clock, no waiting and no SQL here: the transaction holds the write lock,
//! so what is decided on is what is changed.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use lease_core::{
    AcquireOutcome, AcquireRequest, FenceWhen, Granted, Key, LostCause, Owner, RefusedReason,
    ReleaseOutcome, RenewOutcome, RenewRequest, StaleToken, StoreError, TakenOver, Token,
    TokenRule,
};

use crate::row::{Grant, KeyRow, Standing};

/// Why an owner must never be granted anything again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buried {
    Abandoned,
    Revoked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub(crate) buried: Buried,
    pub(crate) until_us: i64,
}

/// A row as it was loaded and as it shall be.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    loaded: Option<T>,
    now: Option<T>,
    /// What stands there instead of a row of ours; nothing is written over it.
    garbage: Option<StoreError>,
}

impl<T: Clone + PartialEq> Slot<T> {
    pub(crate) fn loaded(row: Result<T, StoreError>) -> Self {
        match row {
            Ok(row) => Self {
                loaded: Some(row.clone()),
                now: Some(row),
                garbage: None,
            },
            Err(garbage) => Self {
                garbage: Some(garbage),
                ..Self::default()
            },
        }
    }

    fn undo(&mut self) {
        if self.changed().is_some() {
            self.now.clone_from(&self.loaded);
        }
    }

    fn get(&mut self) -> Result<&mut Option<T>, StoreError> {
        match &self.garbage {
            Some(garbage) => Err(garbage.clone()),
            None => Ok(&mut self.now),
        }
    }

    /// The new row, if there is anything to write.
    fn changed(&self) -> Option<&T> {
        self.now
            .as_ref()
            .filter(|now| self.loaded.as_ref() != Some(*now))
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self {
            loaded: None,
            now: None,
            garbage: None,
        }
    }
}

/// The rows of one transaction. In order of their keys, so that two programs
/// write them in the same order.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) now_us: i64,
    pub(crate) retention_us: i64,
    pub(crate) keys: BTreeMap<Key, Slot<KeyRow>>,
    pub(crate) tombstones: HashMap<Owner, Slot<Tombstone>>,
    pub(crate) gate: BTreeMap<Key, Slot<Token>>,
    /// Keys that became free.
    pub(crate) freed: Vec<Key>,
    /// Keys that were found held.
    pub(crate) held: Vec<Key>,
    /// Whether to make a write without a change.
    pub(crate) probe: bool,
}

impl Table {
    pub(crate) fn acquire(
        &mut self,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, StoreError> {
        if let Some(buried) = self.buried(request.owner)? {
            return Ok(AcquireOutcome::Refused(match buried {
                Buried::Abandoned => RefusedReason::Abandoned,
                Buried::Revoked => RefusedReason::Revoked,
            }));
        }
        let now_us = self.now_us;
        let expires_us = after(now_us, request.ttl.get());
        let slot = self.keys.entry(request.key.clone()).or_default().get()?;
        if let Some(KeyRow {
            mark,
            grant: Some(grant),
        }) = slot
            && grant.blocks(now_us)
        {
            if grant.owner != request.owner {
                self.held.push(request.key.clone());
                return Ok(AcquireOutcome::Held(grant.holder(now_us)));
            }
            if grant.standing == Standing::Revoked {
                return Ok(AcquireOutcome::Refused(RefusedReason::Revoked));
            }
            if let TokenRule::Exactly(token) = request.rule {
                if token < *mark {
                    let high_water = *mark;
                    return Ok(AcquireOutcome::Refused(RefusedReason::BelowMark {
                        high_water,
                    }));
                }
                grant.token = token;
                *mark = token;
            }
            grant.expires_us = grant.expires_us.max(expires_us);
            return Ok(AcquireOutcome::Granted(Granted::new(grant.token)));
        }
        let mark = slot.as_ref().map(|row| row.mark);
        let token = match next_token(request.rule, mark, now_us) {
            Ok(token) => token,
            Err(reason) => return Ok(AcquireOutcome::Refused(reason)),
        };
        let grant = Grant {
            owner: request.owner,
            token,
            label: request.label.clone(),
            granted_us: now_us,
            expires_us,
            standing: Standing::Granted,
        };
        let last = slot.replace(KeyRow {
            mark: token,
            grant: Some(grant),
        });
        let taken_over = last
            .and_then(|row| row.grant)
            .filter(|last| last.standing != Standing::Released)
            .map(|last| TakenOver {
                label: last.label,
                token: last.token,
            });
        Ok(AcquireOutcome::Granted(Granted {
            token,
            taken_over,
            repeated: false,
        }))
    }

    pub(crate) fn abandon(&mut self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        let now_us = self.now_us;
        // First what may fail.
        self.grant(key)?;
        self.bury(owner, Buried::Abandoned, now_us)?;
        if let Some(grant) = self.grant(key)?
            && grant.owner == owner
            && grant.blocks(now_us)
        {
            grant.standing = Standing::Released;
            self.freed.push(key.clone());
        }
        Ok(())
    }

    pub(crate) fn renew(&mut self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        let now_us = self.now_us;
        let buried = self.buried(request.owner)?;
        let Some(grant) = self.grant(&request.key)? else {
            return Ok(RenewOutcome::Lost(LostCause::Unknown));
        };
        let exact = grant.owner == request.owner && grant.token == request.token;
        if exact && grant.is_live(now_us) {
            let expires_us = after(now_us, request.ttl.get());
            grant.expires_us = grant.expires_us.max(expires_us);
            return Ok(RenewOutcome::Renewed);
        }
        Ok(RenewOutcome::Lost(if exact {
            match grant.standing {
                Standing::Granted => LostCause::Expired,
                Standing::Released => LostCause::Released,
                Standing::Revoked => LostCause::Revoked,
            }
        } else {
            match buried {
                Some(Buried::Revoked) => LostCause::Revoked,
                Some(Buried::Abandoned) => LostCause::Released,
                None if grant.token > request.token => LostCause::TakenOver,
                None => LostCause::Unknown,
            }
        }))
    }

    pub(crate) fn release(
        &mut self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        let now_us = self.now_us;
        match self.grant(key)? {
            Some(grant)
                if grant.owner == owner && grant.token == token && grant.is_live(now_us) =>
            {
                grant.standing = Standing::Released;
                self.freed.push(key.clone());
                Ok(ReleaseOutcome::Released)
            }
            _ => Ok(ReleaseOutcome::NotHeld),
        }
    }

    pub(crate) fn fence(
        &mut self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        let now_us = self.now_us;
        let row = self.keys.entry(key.clone()).or_default().get()?;
        let mark = row.as_ref().map_or(at_least, |row| row.mark.max(at_least));
        let revoked = row
            .as_ref()
            .and_then(|row| row.grant.as_ref())
            .filter(|grant| grant.blocks(now_us) && grant.token < mark)
            .map(|grant| (grant.owner, grant.expires_us));
        if let Some((owner, until_us)) = revoked {
            self.bury(owner, Buried::Revoked, until_us)?;
        }
        let row = self.keys.entry(key.clone()).or_default().get()?;
        let row = row.get_or_insert(KeyRow { mark, grant: None });
        row.mark = mark;
        if let (Some(_), Some(grant)) = (revoked, row.grant.as_mut()) {
            grant.standing = Standing::Revoked;
            if when == FenceWhen::Immediately {
                grant.end_time(now_us);
                self.freed.push(key.clone());
            }
        }
        Ok(mark)
    }

    pub(crate) fn admit(
        &mut self,
        resource: &Key,
        token: Token,
    ) -> Result<Result<(), StaleToken>, StoreError> {
        let highest = self.gate.entry(resource.clone()).or_default().get()?;
        match *highest {
            Some(admitted) if admitted > token => Ok(Err(StaleToken {
                resource: resource.clone(),
                presented: token,
                admitted,
            })),
            _ => {
                *highest = Some(token);
                Ok(Ok(()))
            }
        }
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_unchanged(&self) -> bool {
        !self.probe
            && self.changed_keys().next().is_none()
            && self.changed_tombstones().next().is_none()
            && self.changed_gate().next().is_none()
    }

    /// Makes it again what was loaded.
    pub(crate) fn undo(&mut self) {
        self.keys.values_mut().for_each(Slot::undo);
        self.tombstones.values_mut().for_each(Slot::undo);
        self.gate.values_mut().for_each(Slot::undo);
        self.freed.clear();
        self.probe = false;
    }

    pub(crate) fn changed_keys(&self) -> impl Iterator<Item = (&Key, &KeyRow)> {
        changes(self.keys.iter())
    }

    pub(crate) fn changed_tombstones(&self) -> impl Iterator<Item = (&Owner, &Tombstone)> {
        changes(self.tombstones.iter())
    }

    pub(crate) fn changed_gate(&self) -> impl Iterator<Item = (&Key, &Token)> {
        changes(self.gate.iter())
    }

    fn grant(&mut self, key: &Key) -> Result<Option<&mut Grant>, StoreError> {
        Ok(match self.keys.get_mut(key) {
            Some(slot) => slot.get()?.as_mut().and_then(|row| row.grant.as_mut()),
            None => None,
        })
    }

    fn buried(&mut self, owner: Owner) -> Result<Option<Buried>, StoreError> {
        let now_us = self.now_us;
        Ok(match self.tombstones.get_mut(&owner) {
            Some(slot) => slot
                .get()?
                .filter(|tombstone| now_us < tombstone.until_us)
                .map(|tombstone| tombstone.buried),
            None => None,
        })
    }

    fn bury(&mut self, owner: Owner, buried: Buried, at_least_us: i64) -> Result<(), StoreError> {
        let from_us = self.now_us.max(at_least_us);
        let mut until_us = from_us.saturating_add(self.retention_us);
        let tombstone = self.tombstones.entry(owner).or_default().get()?;
        if let Some(known) = tombstone {
            // Of a revoked owner that is abandoned too: never earlier.
            until_us = until_us.max(known.until_us);
        }
        *tombstone = Some(Tombstone { buried, until_us });
        Ok(())
    }
}

fn changes<'a, K: 'a, T: Clone + PartialEq + 'a>(
    slots: impl Iterator<Item = (&'a K, &'a Slot<T>)>,
) -> impl Iterator<Item = (&'a K, &'a T)> {
    slots.filter_map(|(key, slot)| Some((key, slot.changed()?)))
}

fn after(now_us: i64, time: Duration) -> i64 {
    now_us.saturating_add(i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
}

fn next_token(rule: TokenRule, mark: Option<Token>, now_us: i64) -> Result<Token, RefusedReason> {
    match rule {
        TokenRule::Exactly(token) => match mark {
            Some(high_water) if token <= high_water => Err(RefusedReason::BelowMark { high_water }),
            _ => Ok(token),
        },
        TokenRule::Next { after } => {
            let above = |t: Option<Token>| t.map_or(1, |t| t.get() + 1);
            // A clock gone wild must not use the key's tokens up.
            let clock = u64::try_from(now_us).unwrap_or(0);
            let clock = clock.min(Token::MAX_FENCE.get());
            let token = above(mark).max(above(after)).max(clock);
            Token::new(token).map_err(|_| RefusedReason::TokensExhausted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_gone_wild_does_not_use_the_tokens_up() {
        let wild = next_token(TokenRule::NEXT, None, i64::MAX).unwrap();
        let next = next_token(TokenRule::NEXT, Some(wild), 1_800_000_000_000_000).unwrap();
        assert!(next > wild && next < Token::MAX);
        // Nor does one before 1970 go below the first.
        assert_eq!(next_token(TokenRule::NEXT, None, -1).unwrap(), Token::MIN);
    }
}
