//! The rules of the contract that a test can take out of the product's code.
//!
//! Each was found by a counterexample. Outside of tests all of them always
//! hold: only the feature `broken-rules` lets anybody switch one off.

/// Rules of the reference store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreRules {
    /// No acquire or renew ever shortens a live grant.
    pub never_shorten: bool,
    /// Abandoning leaves a tombstone, even for an owner never seen.
    pub tombstones: bool,
    /// There is a tombstone for every abandoned owner, not for the last one of
    /// a key only.
    pub tombstone_per_owner: bool,
    /// Abandoning frees a grant whatever its token.
    pub abandon_any_token: bool,
    /// The same owner asking again gets its own grant.
    pub same_owner_same_grant: bool,
    /// A renewal or release is checked against owner and token.
    pub check_owner: bool,
    /// An expired grant stays dead.
    pub dead_stays_dead: bool,
    /// A revoked grant blocks its key until its old expiry.
    pub revoked_blocks: bool,
    /// The high-water mark outlives the lease.
    pub mark_stays: bool,
    /// A fence holds for later grants.
    pub fence_raises: bool,
    /// `Exactly(T)` is refused below the mark.
    pub exactly_above_mark: bool,
    /// A live grant of another owner is in the way.
    pub exclusive: bool,
}

impl StoreRules {
    /// All of them.
    pub const ALL: Self = Self {
        never_shorten: true,
        tombstones: true,
        tombstone_per_owner: true,
        abandon_any_token: true,
        same_owner_same_grant: true,
        check_owner: true,
        dead_stays_dead: true,
        revoked_blocks: true,
        mark_stays: true,
        fence_raises: true,
        exactly_above_mark: true,
        exclusive: true,
    };
}

/// Rules of the holder's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderRules {
    /// A reply counts from the send of its own attempt, not of the latest.
    pub own_send: bool,
    /// The deadline is the greatest over all confirmed attempts.
    pub deadline_never_moves_back: bool,
    /// A grant that arrives after its own deadline is not handed out.
    pub late_grant_dropped: bool,
    /// The drift allowance is taken off.
    pub drift_allowance: bool,
    /// An acquisition that gave up is abandoned, not just forgotten.
    pub abandon_on_give_up: bool,
    /// The deadline ends a lease without any word from the store.
    pub lost_at_deadline: bool,
    /// The instant is taken before the request is sent, not after its reply.
    pub count_from_send: bool,
    /// Where grants end with a session, the deadline is never later than the last
    /// sign of life and the grace.
    pub signs_bound: bool,
    /// A ping counts only for leases whose confirmed renewal carried its session.
    pub signs_need_renewal: bool,
}

impl HolderRules {
    /// All of them.
    pub const ALL: Self = Self {
        own_send: true,
        deadline_never_moves_back: true,
        late_grant_dropped: true,
        drift_allowance: true,
        abandon_on_give_up: true,
        lost_at_deadline: true,
        count_from_send: true,
        signs_bound: true,
        signs_need_renewal: true,
    };
}

/// Rules of a quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuorumRules {
    /// A majority agrees on one token before it is handed out.
    pub second_round: bool,
    /// Only a node at exactly that token counts, in the second round and in a
    /// heal; a heal asks for exactly it.
    pub exact: bool,
    /// A node in quarantine has not granted.
    pub quarantine: bool,
    /// More than half of the nodes, not just half.
    pub majority: bool,
    /// What less than a majority granted is given back.
    pub give_back: bool,
}

impl QuorumRules {
    /// All of them.
    pub const ALL: Self = Self {
        second_round: true,
        exact: true,
        quarantine: true,
        majority: true,
        give_back: true,
    };
}

impl Default for QuorumRules {
    fn default() -> Self {
        Self::ALL
    }
}

impl Default for StoreRules {
    fn default() -> Self {
        Self::ALL
    }
}

impl Default for HolderRules {
    fn default() -> Self {
        Self::ALL
    }
}
