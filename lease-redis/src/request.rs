//! What one operation asks the script for.

use lease_core::{AcquireRequest, FenceWhen, Key, Owner, RenewRequest, Token, TokenRule, Ttl};

use crate::names::Names;

/// One operation, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    record: String,
    what: What,
}

/// How an answer is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Acquire,
    Renew,
    Other,
}

#[derive(Clone, Debug)]
enum What {
    Acquire(AcquireRequest),
    Renew(RenewRequest),
    Release(Owner, Token),
    Abandon(Owner),
    Fence(Token, FenceWhen),
    Inspect,
}

impl Request {
    pub(crate) fn acquire(names: &Names, request: &AcquireRequest) -> Self {
        Self::new(names, &request.key, What::Acquire(request.clone()))
    }

    pub(crate) fn renew(names: &Names, request: &RenewRequest) -> Self {
        Self::new(names, &request.key, What::Renew(request.clone()))
    }

    pub(crate) fn release(names: &Names, key: &Key, owner: Owner, token: Token) -> Self {
        Self::new(names, key, What::Release(owner, token))
    }

    pub(crate) fn abandon(names: &Names, key: &Key, owner: Owner) -> Self {
        Self::new(names, key, What::Abandon(owner))
    }

    pub(crate) fn fence(names: &Names, key: &Key, at_least: Token, when: FenceWhen) -> Self {
        Self::new(names, key, What::Fence(at_least, when))
    }

    pub(crate) fn inspect(names: &Names, key: &Key) -> Self {
        Self::new(names, key, What::Inspect)
    }

    fn new(names: &Names, key: &Key, what: What) -> Self {
        Self {
            record: names.record(key),
            what,
        }
    }

    /// The name of the key's record.
    pub(crate) fn record(&self) -> &str {
        &self.record
    }

    /// Gives back what this acquired with `token`, if it acquires. Its owner may
    /// ask again: the answer is here, so no copy of the request is under way.
    pub(crate) fn to_give_back(&self, token: Token) -> Option<Self> {
        match &self.what {
            What::Acquire(request) => Some(Self {
                record: self.record.clone(),
                what: What::Release(request.owner, token),
            }),
            _ => None,
        }
    }

    /// Whether it does no harm if it takes effect twice, and the second answer
    /// is as good as the first.
    pub(crate) fn may_repeat(&self) -> bool {
        !matches!(self.what, What::Release(..))
    }

    /// Whether losing this to a failover could harm: it grants, prolongs, or
    /// raises a mark. A release that is lost waits out its TTL.
    pub(crate) fn must_last(&self) -> bool {
        matches!(
            self.what,
            What::Acquire(_) | What::Renew(_) | What::Fence(..)
        )
    }

    /// Whether it may look at the birth marker, or write it.
    pub(crate) fn may_need_birth(&self) -> bool {
        matches!(self.what, What::Acquire(_) | What::Fence(..))
    }

    pub(crate) fn acquires(&self) -> bool {
        self.kind() == Kind::Acquire
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.what {
            What::Acquire(_) => Kind::Acquire,
            What::Renew(_) => Kind::Renew,
            _ => Kind::Other,
        }
    }

    /// Appends the operation's arguments; the script reads the same ones.
    pub(crate) fn write_args(&self, command: &mut redis::Cmd, mark_retention_us: u64) {
        match &self.what {
            What::Acquire(request) => {
                let (rule, number) = match request.rule {
                    TokenRule::Next { after } => ("n", after.map_or(0, Token::get)),
                    TokenRule::Exactly(token) => ("e", token.get()),
                };
                command.arg("A");
                command.arg(&request.owner.as_bytes()[..]);
                command.arg(request.ttl.as_micros());
                command.arg(kept_ms(request.ttl, mark_retention_us));
                command.arg(rule);
                command.arg(number);
                command.arg(request.label.as_str());
            }
            What::Renew(request) => {
                command.arg("R");
                command.arg(&request.owner.as_bytes()[..]);
                command.arg(request.token.get());
                command.arg(request.ttl.as_micros());
                command.arg(kept_ms(request.ttl, mark_retention_us));
            }
            What::Release(owner, token) => {
                command.arg("L");
                command.arg(&owner.as_bytes()[..]);
                command.arg(token.get());
            }
            What::Abandon(owner) => {
                command.arg("B").arg(&owner.as_bytes()[..]);
            }
            What::Fence(at_least, when) => {
                command.arg("F").arg(at_least.get());
                command.arg(u8::from(*when == FenceWhen::Immediately));
            }
            What::Inspect => {
                command.arg("I");
            }
        }
    }
}

/// How long a record is kept that is granted or prolonged for `ttl`: until that
/// is over, and then for its mark's sake. At least that, in whole milliseconds.
fn kept_ms(ttl: Ttl, mark_retention_us: u64) -> u64 {
    ttl.as_micros().saturating_add(mark_retention_us) / 1000 + 2
}
