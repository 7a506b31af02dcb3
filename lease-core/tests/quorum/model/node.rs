//! One node, as the contract says: what of it matters to a quorum.

/// How long a grant lasts, in ticks.
pub(crate) const TTL: u8 = 2;

/// Nobody.
pub(crate) const NONE: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Rule {
    Next,
    Exactly(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Answer {
    Granted(u8),
    No,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    pub(crate) mark: u8,
    owner: u8,
    token: u8,
    expires: u8,
    revoked: bool,
    /// The owners whose grants a fence revoked or that were abandoned, one bit
    /// each.
    refused: u8,
    quarantine_until: u8,
}

impl Node {
    pub(crate) fn empty(quarantine_until: u8) -> Self {
        Self {
            mark: 0,
            owner: NONE,
            token: 0,
            expires: 0,
            revoked: false,
            refused: 0,
            quarantine_until,
        }
    }

    /// What has no effect any more is forgotten, so that equal states are equal.
    pub(crate) fn tick(&mut self, now: u8) {
        if now >= self.expires {
            self.free();
        }
        if now >= self.quarantine_until {
            self.quarantine_until = 0;
        }
    }

    fn free(&mut self) {
        (self.owner, self.token, self.expires, self.revoked) = (NONE, 0, 0, false);
    }

    pub(crate) fn acquire(&mut self, owner: u8, rule: Rule, now: u8, clock: bool) -> Answer {
        if now < self.quarantine_until || self.refused & (1 << owner) != 0 {
            return Answer::No;
        }
        if self.owner != NONE {
            if self.owner != owner || self.revoked {
                return Answer::No;
            }
            if let Rule::Exactly(token) = rule {
                if token < self.mark {
                    return Answer::No;
                }
                (self.token, self.mark) = (token, token);
            }
        } else {
            let token = match rule {
                // The clock's own token is one above the tick.
                Rule::Next if clock => (self.mark + 1).max(now + 1),
                Rule::Next => self.mark + 1,
                Rule::Exactly(token) if token > self.mark => token,
                Rule::Exactly(_) => return Answer::No,
            };
            (self.owner, self.token, self.mark) = (owner, token, token);
        }
        self.expires = self.expires.max(now + TTL);
        Answer::Granted(self.token)
    }

    fn has(&self, owner: u8, token: u8) -> bool {
        self.owner == owner && self.token == token && !self.revoked
    }

    pub(crate) fn renew(&mut self, owner: u8, token: u8, now: u8) -> bool {
        let has = self.has(owner, token);
        if has {
            self.expires = self.expires.max(now + TTL);
        }
        has
    }

    pub(crate) fn release(&mut self, owner: u8, token: u8) {
        if self.has(owner, token) {
            self.free();
        }
    }

    /// Frees whatever the owner has, and refuses it from then on.
    pub(crate) fn abandon(&mut self, owner: u8) {
        if self.owner == owner {
            self.free();
        }
        self.refused |= 1 << owner;
    }

    pub(crate) fn fence(&mut self, at_least: u8) {
        self.mark = self.mark.max(at_least);
        if self.owner != NONE && self.token < self.mark {
            self.revoked = true;
            self.refused |= 1 << self.owner;
        }
    }
}
