//! What was told to whom, and whether all of it can be true.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use lease_core::Owner;
use lease_queue::{ClaimRef, ItemId, Lane, Settled};

/// When it was asked for, and when it was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    pub(super) asked: Instant,
    pub(super) told: Instant,
}

#[derive(Clone, Debug)]
pub(super) struct Claimed {
    pub(super) claim: ClaimRef,
    pub(super) when: When,
    pub(super) ttl: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Extend,
    Complete,
    Retry,
    Bury,
}

#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) claim: ClaimRef,
    pub(super) end: End,
    pub(super) told: Settled,
    pub(super) when: When,
}

/// All that was told to anybody.
#[derive(Default)]
pub(super) struct Story {
    pub(super) claims: Vec<Claimed>,
    pub(super) ends: Vec<Ended>,
    /// Owners that were abandoned and lanes that were fenced: from the request on.
    pub(super) abandoned: HashMap<Owner, Instant>,
    pub(super) fenced: HashMap<Lane, Instant>,
    /// Of a group's items the places in the order of the puts; no more of what was put back.
    pub(super) places: HashMap<ItemId, (String, usize)>,
    pub(super) put_back: HashSet<ItemId>,
    pub(super) keys: HashMap<String, HashSet<ItemId>>,
    pub(super) put: HashSet<ItemId>,
}

impl Story {
    pub(super) fn judge(&self) {
        self.tokens_rise_and_no_late_end_is_accepted();
        self.no_live_claim_is_refused();
        self.each_is_completed_once_and_never_claimed_again();
        self.groups_keep_their_order();
        for (key, items) in &self.keys {
            assert_eq!(
                items.len(),
                1,
                "{key} is the key of more than one: {items:?}"
            );
        }
    }

    fn tokens_rise_and_no_late_end_is_accepted(&self) {
        let mut lanes: HashMap<&Lane, Vec<&Claimed>> = HashMap::new();
        for one in &self.claims {
            lanes.entry(&one.claim.lane).or_default().push(one);
        }
        for claims in lanes.values_mut() {
            claims.sort_by_key(|one| one.claim.token);
            for two in claims.windows(2) {
                assert!(two[0].claim.token < two[1].claim.token, "twice: {two:?}");
                assert!(
                    two[0].when.asked <= two[1].when.told,
                    "a token fell: {two:?}"
                );
            }
        }
        for end in self.ends.iter().filter(|end| end.told == Settled::Done) {
            for later in &lanes[&end.claim.lane] {
                assert!(
                    later.claim.token <= end.claim.token || end.when.asked <= later.when.told,
                    "{end:?} was accepted after {later:?}"
                );
            }
        }
    }

    fn no_live_claim_is_refused(&self) {
        let of = |claim: &ClaimRef| (claim.item, claim.owner, claim.token);
        let claims: HashMap<_, _> = self
            .claims
            .iter()
            .map(|one| (of(&one.claim), one))
            .collect();
        let mut ended: HashMap<_, Instant> = HashMap::new();
        for end in self.ends.iter().filter(|end| end.end != End::Extend) {
            let first = ended.entry(of(&end.claim)).or_insert(end.when.asked);
            *first = (*first).min(end.when.asked);
        }
        for end in &self.ends {
            let claimed = claims[&of(&end.claim)];
            let before = |when: Option<&Instant>| when.is_some_and(|when| *when <= end.when.told);
            let may = end.when.told >= claimed.when.asked + claimed.ttl
                || before(self.abandoned.get(&end.claim.owner))
                || before(self.fenced.get(&end.claim.lane));
            let extends = |one: &&Ended| one.end == End::Extend && one.claim == end.claim;
            if end.told == Settled::Done && end.when.asked > claimed.when.told + claimed.ttl {
                let extended = self.ends.iter().any(|one| extends(&one));
                assert!(extended, "its time was over: {end:?} of {claimed:?}");
            }
            match end.told {
                Settled::Lost(_) if may => {}
                // It ended otherwise before, or beside.
                Settled::Lost(_) | Settled::Before
                    if ended[&of(&end.claim)] < end.when.asked || end.told == Settled::Before => {}
                Settled::Lost(_) => {
                    let others = self
                        .ends
                        .iter()
                        .filter(|one| of(&one.claim) == of(&end.claim));
                    assert!(
                        others.count() > 1,
                        "live, and refused: {end:?} of {claimed:?}"
                    );
                }
                Settled::Done | Settled::Before => {}
            }
        }
        // Each claim ends once.
        let mut done = HashSet::new();
        for end in &self.ends {
            if end.told == Settled::Done && end.end != End::Extend {
                assert!(done.insert(of(&end.claim)), "ended twice: {end:?}");
            }
        }
    }

    fn each_is_completed_once_and_never_claimed_again(&self) {
        let mut completed: HashMap<ItemId, &Ended> = HashMap::new();
        for end in &self.ends {
            if end.end == End::Complete && end.told == Settled::Done {
                let other = completed.insert(end.claim.item, end);
                assert!(other.is_none(), "completed twice: {end:?} and {other:?}");
            }
        }
        for one in &self.claims {
            if let Some(end) = completed.get(&one.claim.item) {
                assert!(one.when.asked <= end.when.told, "{one:?} after {end:?}");
            }
        }
        for item in &self.put {
            assert!(completed.contains_key(item), "{item} was lost");
        }
        assert_eq!(completed.len(), self.put.len());
    }

    fn groups_keep_their_order(&self) {
        let mut over: HashMap<ItemId, Instant> = HashMap::new();
        for end in &self.ends {
            if matches!(end.end, End::Complete | End::Bury) && end.told == Settled::Done {
                let first = over.entry(end.claim.item).or_insert(end.when.asked);
                *first = (*first).min(end.when.asked);
            }
        }
        // Of each group's items in their order: when all of those before were over.
        let mut groups: HashMap<&str, BTreeMap<usize, ItemId>> = HashMap::new();
        for (item, (group, place)) in &self.places {
            if self.put.contains(item) {
                groups.entry(group).or_default().insert(*place, *item);
            }
        }
        let mut turns: HashMap<ItemId, Instant> = HashMap::new();
        for items in groups.values() {
            let mut all = None;
            for item in items.values() {
                turns.extend(all.map(|all| (*item, all)));
                all = all.max(Some(over[item]));
            }
        }
        for one in &self.claims {
            let item = &one.claim.item;
            if let (false, Some(turn)) = (self.put_back.contains(item), turns.get(item)) {
                assert!(*turn <= one.when.told, "{one:?} before its turn");
            }
        }
    }
}
