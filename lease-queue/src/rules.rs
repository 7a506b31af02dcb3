//! The rules of a queue that a test can take out of the reference store, to show
//! that the rule is needed. Outside of tests all of them always hold: only the feature
//! `broken-rules` lets anybody switch one off.

/// Rules of the reference store of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueRules {
    /// A settle is checked against the claim's owner.
    pub check_owner: bool,
    /// A settle is checked against the claim's token.
    pub check_token: bool,
    /// An expired claim stays dead.
    pub check_expiry: bool,
    /// No claim or extension ever shortens a live claim.
    pub never_shorten: bool,
    /// Abandoning leaves a tombstone, even for an owner never seen.
    pub tombstones: bool,
    /// An abandoned attempt does not count.
    pub abandon_uncounted: bool,
    /// A claim that was settled is known for a while.
    pub settled_known: bool,
    /// An item that was completed is known for a while.
    pub completed_known: bool,
    /// A group's item keeps its place when it is given back.
    pub keeps_its_place: bool,
    /// A lane's mark outlives its claims.
    pub mark_stays: bool,
    /// A fence revokes a live claim below it.
    pub fence_revokes: bool,
    /// A delay is waited for.
    pub delays: bool,
    /// A free key is kept for those who wait in line.
    pub line_counts: bool,
    /// Whoever does not come when it is called loses its turn.
    pub turns_pass: bool,
    /// Whoever has lost its turn is not waited for until it asks again.
    pub missed_not_awaited: bool,
    /// A place ends with its time.
    pub places_fade: bool,
    /// A place is found again by its owner's next request.
    pub place_kept: bool,
    /// An owner that is abandoned leaves the line.
    pub abandon_leaves_line: bool,
    /// Who does not wait comes after the line.
    pub tries_come_last: bool,
}

impl QueueRules {
    /// All of them.
    pub const ALL: Self = Self {
        check_owner: true,
        check_token: true,
        check_expiry: true,
        never_shorten: true,
        tombstones: true,
        abandon_uncounted: true,
        settled_known: true,
        completed_known: true,
        keeps_its_place: true,
        mark_stays: true,
        fence_revokes: true,
        delays: true,
        line_counts: true,
        turns_pass: true,
        missed_not_awaited: true,
        places_fade: true,
        place_kept: true,
        abandon_leaves_line: true,
        tries_come_last: true,
    };
}
