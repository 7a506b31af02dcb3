//! The contract as a plain table: no lock, no clock, no waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::time::Duration;

use crate::backend::{
    AcquireOutcome, AcquireRequest, FenceWhen, Granted, Holder, KeyState, LostCause, RefusedReason,
    ReleaseOutcome, RenewOutcome, RenewRequest, TakenOver,
};
use crate::key::{Key, Label};
use crate::owner::Owner;
use crate::rules::StoreRules;
use crate::token::{Token, TokenRule};

/// The store's clock at one operation, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// For expiry: never steps.
    pub(super) us: u64,
    /// For tokens: since the Unix epoch.
    pub(super) epoch_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Granted,
    Released,
    /// Revoked; in the way until its expiry.
    Revoked,
}

#[derive(Clone, Debug)]
struct Grant {
    owner: Owner,
    token: Token,
    label: Label,
    granted_us: u64,
    expires_us: u64,
    standing: Standing,
}

impl Grant {
    fn is_live(&self, now: Now) -> bool {
        self.standing == Standing::Granted && now.us < self.expires_us
    }

    fn blocks(&self, now: Now) -> bool {
        self.standing != Standing::Released && now.us < self.expires_us
    }

    fn remaining(&self, now: Now) -> Duration {
        Duration::from_micros(self.expires_us.saturating_sub(now.us))
    }

    fn holder(&self, now: Now) -> Holder {
        Holder {
            label: self.label.clone(),
            token: self.token,
            age: Duration::from_micros(now.us.saturating_sub(self.granted_us)),
            remaining: self.remaining(now),
        }
    }
}

#[derive(Debug)]
struct Row {
    mark: Token,
    /// The last grant, live or not.
    grant: Option<Grant>,
}

impl Row {
    fn state(&self, key: &Key, now: Now) -> KeyState {
        let grant = self.grant.as_ref();
        KeyState {
            key: key.clone(),
            high_water: Some(self.mark),
            holder: grant.filter(|g| g.is_live(now)).map(|g| g.holder(now)),
            blocked_for: grant
                .filter(|g| !g.is_live(now) && g.blocks(now))
                .map(|g| g.remaining(now)),
        }
    }
}

#[derive(Debug)]
pub(super) struct Table {
    rows: BTreeMap<Key, Row>,
    tombstones: Tombstones,
    rules: StoreRules,
}

impl Table {
    pub(super) fn new(retention: Duration, rules: StoreRules) -> Self {
        Self {
            rows: BTreeMap::new(),
            tombstones: Tombstones::new(retention),
            rules,
        }
    }

    pub(super) fn acquire(&mut self, request: &AcquireRequest, now: Now) -> AcquireOutcome {
        if let Some(reason) = self.tombstones.get(request.owner, now) {
            return AcquireOutcome::Refused(reason);
        }
        let rules = self.rules;
        let row = self.rows.get_mut(&request.key);
        let mark = row.as_ref().map(|row| row.mark);
        let expires_us = now.us.saturating_add(request.ttl.as_micros());
        let last = row.and_then(|row| {
            let Row { mark, grant } = row;
            grant.as_mut().map(|grant| (mark, grant))
        });
        if let Some((mark, grant)) = last
            && grant.blocks(now)
        {
            let own = rules.same_owner_same_grant && grant.owner == request.owner;
            if own && grant.standing == Standing::Revoked {
                return AcquireOutcome::Refused(RefusedReason::Revoked);
            }
            if own {
                if let TokenRule::Exactly(token) = request.rule {
                    if token < *mark {
                        let high_water = *mark;
                        return AcquireOutcome::Refused(RefusedReason::BelowMark { high_water });
                    }
                    grant.token = token;
                    *mark = token;
                }
                grant.expires_us = lengthened(rules, grant.expires_us, expires_us);
                return AcquireOutcome::Granted(Granted::new(grant.token));
            }
            if rules.exclusive {
                return AcquireOutcome::Held(grant.holder(now));
            }
        }
        let token = match next_token(rules, request.rule, mark, now) {
            Ok(token) => token,
            Err(reason) => return AcquireOutcome::Refused(reason),
        };
        let grant = Grant {
            owner: request.owner,
            token,
            label: request.label.clone(),
            granted_us: now.us,
            expires_us,
            standing: Standing::Granted,
        };
        let row = self.rows.entry(request.key.clone()).or_insert(Row {
            mark: token,
            grant: None,
        });
        row.mark = token;
        let last = row.grant.replace(grant);
        let taken_over = last
            .filter(|last| last.standing != Standing::Released)
            .map(|last| TakenOver {
                label: last.label,
                token: last.token,
            });
        AcquireOutcome::Granted(Granted {
            token,
            taken_over,
            repeated: false,
        })
    }

    /// Whether the key became free.
    pub(super) fn abandon(&mut self, key: &Key, owner: Owner, now: Now) -> bool {
        let rules = self.rules;
        if rules.tombstones {
            if !rules.tombstone_per_owner {
                self.tombstones.clear();
            }
            self.tombstones
                .put(owner, RefusedReason::Abandoned, now, now.us);
        }
        let Some(grant) = self.rows.get_mut(key).and_then(|row| row.grant.as_mut()) else {
            return false;
        };
        if grant.owner != owner || !grant.blocks(now) || !rules.abandon_any_token {
            return false;
        }
        grant.standing = Standing::Released;
        true
    }

    pub(super) fn renew(&mut self, request: &RenewRequest, now: Now) -> RenewOutcome {
        let rules = self.rules;
        let Some(grant) = self
            .rows
            .get_mut(&request.key)
            .and_then(|row| row.grant.as_mut())
        else {
            return RenewOutcome::Lost(LostCause::Unknown);
        };
        let exact =
            !rules.check_owner || (grant.owner == request.owner && grant.token == request.token);
        let alive =
            grant.is_live(now) || (!rules.dead_stays_dead && grant.standing == Standing::Granted);
        if exact && alive {
            let expires_us = now.us.saturating_add(request.ttl.as_micros());
            grant.expires_us = lengthened(rules, grant.expires_us, expires_us);
            return RenewOutcome::Renewed;
        }
        RenewOutcome::Lost(if exact {
            match grant.standing {
                Standing::Granted => LostCause::Expired,
                Standing::Released => LostCause::Released,
                Standing::Revoked => LostCause::Revoked,
            }
        } else {
            let tombstone = self.tombstones.get(request.owner, now);
            match tombstone {
                Some(RefusedReason::Revoked) => LostCause::Revoked,
                Some(_) => LostCause::Released,
                None if grant.token > request.token => LostCause::TakenOver,
                None => LostCause::Unknown,
            }
        })
    }

    pub(super) fn release(
        &mut self,
        key: &Key,
        owner: Owner,
        token: Token,
        now: Now,
    ) -> ReleaseOutcome {
        let rules = self.rules;
        let Some(row) = self.rows.get_mut(key) else {
            return ReleaseOutcome::NotHeld;
        };
        let Some(grant) = row.grant.as_mut() else {
            return ReleaseOutcome::NotHeld;
        };
        let exact = !rules.check_owner || (grant.owner == owner && grant.token == token);
        if !exact || !grant.is_live(now) {
            return ReleaseOutcome::NotHeld;
        }
        grant.standing = Standing::Released;
        if !rules.mark_stays {
            self.rows.remove(key);
        }
        ReleaseOutcome::Released
    }

    /// The mark, and whether the key became free.
    pub(super) fn fence(
        &mut self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
        now: Now,
    ) -> (Token, bool) {
        let rules = self.rules;
        let row = self.rows.entry(key.clone()).or_insert(Row {
            mark: at_least,
            grant: None,
        });
        if rules.fence_raises {
            row.mark = row.mark.max(at_least);
        }
        let mark = row.mark;
        let Some(grant) = row.grant.as_mut() else {
            return (mark, false);
        };
        if !grant.blocks(now) || grant.token >= at_least.max(mark) {
            return (mark, false);
        }
        grant.standing = Standing::Revoked;
        let (owner, until_us) = (grant.owner, grant.expires_us);
        let freed = when == FenceWhen::Immediately || !rules.revoked_blocks;
        if freed {
            grant.expires_us = now.us;
        }
        self.tombstones
            .put(owner, RefusedReason::Revoked, now, until_us);
        (mark, freed)
    }

    pub(super) fn inspect(&self, key: &Key, now: Now) -> KeyState {
        self.rows.get(key).map_or_else(
            || KeyState {
                key: key.clone(),
                high_water: None,
                holder: None,
                blocked_for: None,
            },
            |row| row.state(key, now),
        )
    }

    pub(super) fn page(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
        now: Now,
    ) -> Vec<KeyState> {
        let from: Bound<&str> = match after {
            Some(after) => Bound::Excluded(after.as_str()),
            None => Bound::Included(prefix),
        };
        self.rows
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(|(key, _)| key.as_str().starts_with(prefix))
            .take(limit)
            .map(|(key, row)| row.state(key, now))
            .collect()
    }
}

fn lengthened(rules: StoreRules, old_us: u64, new_us: u64) -> u64 {
    if rules.never_shorten {
        old_us.max(new_us)
    } else {
        new_us
    }
}

fn next_token(
    rules: StoreRules,
    rule: TokenRule,
    mark: Option<Token>,
    now: Now,
) -> Result<Token, RefusedReason> {
    match rule {
        TokenRule::Exactly(token) => match mark {
            Some(high_water) if rules.exactly_above_mark && token <= high_water => {
                Err(RefusedReason::BelowMark { high_water })
            }
            _ => Ok(token),
        },
        TokenRule::Next { after } => {
            let above = |t: Option<Token>| t.map_or(1, |t| t.get() + 1);
            // A store that forgets its marks has no clock to save it either.
            let clock = if rules.mark_stays { now.epoch_us } else { 1 };
            // A clock gone wild must not use the key's tokens up.
            let clock = clock.min(Token::MAX_FENCE.get());
            let token = above(mark).max(above(after)).max(clock);
            Token::new(token).map_err(|_| RefusedReason::TokensExhausted)
        }
    }
}

/// Owners that must never be granted anything again, each for as long as a
/// request of theirs can still be under way.
#[derive(Debug)]
struct Tombstones {
    retention_us: u64,
    by_owner: HashMap<Owner, (RefusedReason, u64)>,
    /// In the order in which they end, to forget the old ones cheaply.
    order: BTreeSet<(u64, Owner)>,
}

impl Tombstones {
    fn new(retention: Duration) -> Self {
        Self {
            retention_us: u64::try_from(retention.as_micros()).unwrap_or(u64::MAX),
            by_owner: HashMap::new(),
            order: BTreeSet::new(),
        }
    }

    fn put(&mut self, owner: Owner, reason: RefusedReason, now: Now, at_least_us: u64) {
        self.forget(now);
        let from_us = now.us.max(at_least_us);
        let mut until_us = from_us.saturating_add(self.retention_us);
        if let Some((_, known_us)) = self.by_owner.remove(&owner) {
            self.order.remove(&(known_us, owner));
            // Of a revoked owner that is abandoned too: never earlier.
            until_us = until_us.max(known_us);
        }
        self.by_owner.insert(owner, (reason, until_us));
        self.order.insert((until_us, owner));
    }

    fn get(&self, owner: Owner, now: Now) -> Option<RefusedReason> {
        self.by_owner
            .get(&owner)
            .filter(|(_, until_us)| now.us < *until_us)
            .map(|(reason, _)| reason.clone())
    }

    fn forget(&mut self, now: Now) {
        while let Some(&(until_us, owner)) = self.order.first() {
            if until_us > now.us {
                break;
            }
            self.order.pop_first();
            self.by_owner.remove(&owner);
        }
    }

    fn clear(&mut self) {
        self.by_owner.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ttl::Ttl;

    #[test]
    fn a_clock_gone_wild_does_not_use_the_tokens_up() {
        let mut table = Table::new(Duration::from_secs(600), StoreRules::ALL);
        let mut grant = |n: u8, us: u64, epoch_us: u64| {
            let request = AcquireRequest {
                key: Key::new("k").unwrap(),
                owner: Owner::from_bytes([n; 16]),
                ttl: Ttl::MIN,
                label: Label::EMPTY,
                rule: TokenRule::NEXT,
                waits: None,
            };
            table.acquire(&request, Now { us, epoch_us })
        };
        let AcquireOutcome::Granted(wild) = grant(1, 0, u64::MAX) else {
            panic!("granted to nobody else");
        };
        let AcquireOutcome::Granted(next) = grant(2, 1_000_000, 1_800_000_000_000_000) else {
            panic!("the key is bricked");
        };
        assert!(next.token > wild.token && next.token < Token::MAX);
    }
}
