//! Claiming: of whatever is ready, and of a key.

use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;
use lease_core::{Key, RefusedReason, TokenRule};

use crate::item::{ClaimRef, Claimed, ItemId};
use crate::name::Lane;
use crate::store::{Answer, ClaimRequest, What};
use crate::table::Table;
use crate::table::lane::{Asker, Now, Row, Standing, UNTIL_TOLD, taken_over};

impl Table {
    pub(crate) fn claim(&mut self, request: &ClaimRequest, now: Now) -> Answer {
        if let Some(reason) = self.tombstones.get(&request.owner, now.us) {
            return Answer::Refused(reason.clone());
        }
        let asker = Asker {
            owner: request.owner,
            ttl: request.ttl,
            label: &request.label,
        };
        match &request.what {
            What::Next { max } => self.claim_next(*max, asker, now),
            What::Key { key, rule, waits } => self.claim_key(key, *rule, asker, *waits, now),
        }
    }

    fn claim_next(&mut self, max: usize, asker: Asker<'_>, now: Now) -> Answer {
        let mut items = Vec::new();
        let (mut refused, mut after) = (None, None);
        // Past those whose tokens are used up: they are in nobody's way.
        while items.len() < max {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let Some(next) = self.ready.range((from, Bound::Unbounded)).next().cloned() else {
                break;
            };
            if next.0 > now.us {
                break;
            }
            match self.claim_head(&next.2, asker, now) {
                Ok(claimed) => items.extend(claimed),
                Err(reason) => refused = Some(reason),
            }
            after = Some(next);
        }
        if !items.is_empty() {
            return Answer::Claimed {
                items,
                taken_over: None,
                repeated: false,
            };
        }
        if let Some(reason) = refused {
            return Answer::Refused(reason);
        }
        let next = self.ready.first().map(|(at_us, ..)| *at_us);
        let next = next.filter(|at_us| *at_us < UNTIL_TOLD);
        Answer::Nothing {
            next: next.map(|at_us| Duration::from_micros(at_us.saturating_sub(now.us))),
        }
    }

    /// Claims the head of a lane that nobody owns.
    fn claim_head(
        &mut self,
        lane: &Lane,
        asker: Asker<'_>,
        now: Now,
    ) -> Result<Option<Claimed>, RefusedReason> {
        let rules = self.rules;
        let Some(row) = self.lanes.get_mut(lane) else {
            return Ok(None);
        };
        let Some(item) = row.items.front().and_then(|id| self.items.get_mut(id)) else {
            return Ok(None);
        };
        let token = row.token(TokenRule::NEXT, rules, now)?;
        item.attempts = item.attempts.saturating_add(1);
        let claimed = Claimed {
            claim: ClaimRef {
                item: item.new.id,
                lane: lane.clone(),
                owner: asker.owner,
                token,
            },
            body: item.new.body.clone(),
            attempt: item.attempts,
            age: Duration::from_micros(now.us.saturating_sub(item.put_us)),
        };
        let last = row.take(claimed.claim.item, token, asker, now);
        if let Some(last) = last {
            self.disown(last.owner, lane);
        }
        self.own(asker, lane);
        self.reindex(lane);
        Ok(Some(claimed))
    }

    fn own(&mut self, asker: Asker<'_>, lane: &Lane) {
        let lanes = self.owned.entry(asker.owner).or_default();
        lanes.insert(lane.clone());
    }

    /// As the reference store of leases does it.
    fn claim_key(
        &mut self,
        key: &Key,
        rule: TokenRule,
        asker: Asker<'_>,
        waits: Option<Duration>,
        now: Now,
    ) -> Answer {
        let (lane, rules) = (Lane::Key(key.clone()), self.rules);
        let claimed = |token| Claimed {
            claim: ClaimRef {
                item: ItemId::TOKEN,
                lane: lane.clone(),
                owner: asker.owner,
                token,
            },
            body: Bytes::new(),
            attempt: 1,
            age: Duration::ZERO,
        };
        let row = self.keys.get_mut(key);
        if let Some(row) = row
            && let Some(grant) = row.grant.as_mut()
            && grant.blocks(now)
        {
            if grant.owner != asker.owner {
                let holder = grant.holder(now);
                if let Some(waits) = waits {
                    row.line.wait(asker, waits, rules, now);
                }
                return Answer::Held(holder);
            }
            if grant.standing == Standing::Revoked {
                return Answer::Refused(RefusedReason::Revoked);
            }
            if let TokenRule::Exactly(token) = rule {
                let high_water = row.mark.map_or(grant.token, |mark| mark.max(grant.token));
                if token < high_water {
                    return Answer::Refused(RefusedReason::BelowMark { high_water });
                }
                grant.token = token;
                row.mark = Some(token);
            }
            grant.lengthen(asker.ttl, rules, now);
            return Answer::Claimed {
                items: vec![claimed(grant.token)],
                taken_over: None,
                repeated: false,
            };
        }
        let token = match self.keys.get(key) {
            Some(row) => row.token(rule, rules, now),
            None => Row::default().token(rule, rules, now),
        };
        let token = match token {
            Ok(token) => token,
            Err(reason) => return Answer::Refused(reason),
        };
        let row = self.row_or_new(&lane);
        let free = (row.unblocked_us(), row.mark);
        if let Some(answer) = row.line.keeps_out(asker, waits, free, rules, now) {
            return answer;
        }
        row.line.is_served(asker.owner, rules);
        let last = row.take(ItemId::TOKEN, token, asker, now);
        if let Some(last) = &last {
            self.disown(last.owner, &lane);
        }
        self.own(asker, &lane);
        Answer::Claimed {
            items: vec![claimed(token)],
            taken_over: taken_over(last.as_ref()),
            repeated: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use lease_core::{Label, Owner, Token, Ttl};

    use super::*;
    use crate::item::NewItem;
    use crate::rules::QueueRules;

    #[test]
    fn a_lane_whose_tokens_are_used_up_is_in_nobodys_way() {
        let mut table = Table::new(QueueRules::ALL);
        let now = Now {
            us: 1,
            epoch_us: 1_700_000_000_000_000,
        };
        let mut put = |byte| {
            let new = NewItem {
                id: ItemId::from_bytes([byte; 16]),
                body: Bytes::new(),
                group: None,
                dedup: None,
                delay: Duration::ZERO,
            };
            table.put(&new, now);
            new.id
        };
        let (stuck, fine) = (put(1), put(2));
        let row = table.row_or_new(&Lane::Item(stuck));
        row.mark = Some(Token::MAX);
        let request = ClaimRequest {
            owner: Owner::from_bytes([7; 16]),
            ttl: Ttl::new(Duration::from_secs(10)).unwrap(),
            label: Label::EMPTY,
            what: What::Next { max: 1 },
        };
        match table.claim(&request, now) {
            Answer::Claimed { items, .. } => assert_eq!(items[0].claim.item, fine),
            other => panic!("{other:?}"),
        }
        let refused = Answer::Refused(RefusedReason::TokensExhausted);
        assert_eq!(table.claim(&request, now), refused);
    }
}
