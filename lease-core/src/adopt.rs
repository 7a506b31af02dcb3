//! Leases made from grants that came by other means than this client's own acquire.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Leases;
use crate::clock::Moment;
use crate::error::{Error, InvalidInput};
use crate::key::{Key, Label};
use crate::lease::{Held, Lease, Terms};
use crate::observe::EventKind;
use crate::owner::Owner;
use crate::token::Token;
use crate::ttl::Ttl;

/// A grant that was made by other means than [`Leases::lease`]: by a queue that was
/// asked for its next item, say. For [`Leases::adopt`].
#[derive(Clone)]
#[must_use = "nothing keeps the grant before it is adopted"]
pub struct Adoption {
    key: Key,
    owner: Owner,
    token: Token,
    ttl: Ttl,
    sent: Moment,
    label: Label,
    max_hold: Option<Duration>,
    progress_within: Option<Duration>,
}

impl Adoption {
    /// A grant of `key`.
    ///
    /// `sent` is a moment of the client's own [`clock`](Leases::clock), read **before**
    /// the request was sent that the store answered with this grant. One that was read
    /// later makes its holder believe in the lease for too long.
    pub fn new(key: Key, owner: Owner, token: Token, ttl: Ttl, sent: Moment) -> Self {
        Self {
            key,
            owner,
            token,
            ttl,
            sent,
            label: Label::EMPTY,
            max_hold: None,
            progress_within: None,
        }
    }

    /// The label that the grant has at the store. Defaults to none.
    pub fn label(mut self, label: Label) -> Self {
        self.label = label;
        self
    }

    /// As [`Acquire::max_hold`](crate::Acquire::max_hold), counted from `sent`.
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// As [`Acquire::progress_within`](crate::Acquire::progress_within).
    pub fn progress_within(mut self, limit: Duration) -> Self {
        self.progress_within = Some(limit);
        self
    }
}

impl fmt::Debug for Adoption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adoption")
            .field("key", &self.key)
            .field("owner", &self.owner)
            .field("token", &self.token)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

impl Leases {
    /// Makes a lease of a grant that was made by other means, and keeps it as any
    /// other: it is renewed and released through this client's backend, which must
    /// know the grant by its key, owner and token.
    ///
    /// Sends nothing. A grant whose deadline has passed by now, or whose client was shut
    /// down, becomes a lease that is lost already: [`Lease::check`] says so, and
    /// dropping it releases what the store may still hold.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a TTL of which the drift allowance leaves nothing and for
    /// limits of zero, [`Error::NoRuntime`] outside of a tokio runtime. Nothing keeps
    /// the grant then: [`abandon`](Self::abandon) its owner.
    pub fn adopt(&self, grant: Adoption) -> Result<Lease, Error> {
        let inner = self.inner();
        if inner.validity(grant.ttl).is_zero() {
            return Err(InvalidInput::NothingLeft {
                ttl: grant.ttl.get(),
                allowance: inner.drift.of(grant.ttl),
            }
            .into());
        }
        let limits = [
            ("max_hold", grant.max_hold),
            ("progress_within", grant.progress_within),
        ];
        if let Some((option, _)) = limits.into_iter().find(|l| l.1 == Some(Duration::ZERO)) {
            return Err(InvalidInput::ZeroDuration { option }.into());
        }
        inner.keeper.ensure()?;
        let sent = grant.sent;
        let good_by_sign = inner.sign_validity().map(|valid| sent.after(valid));
        let held = Arc::new(Held::new(
            Terms {
                key: grant.key,
                owner: grant.owner,
                token: grant.token,
                ttl: grant.ttl,
                label: grant.label,
                sent,
                deadline: sent.after(inner.drift.validity(grant.ttl)),
                good_by_sign: good_by_sign.unwrap_or(Moment::NEVER),
                unanswered: false,
                max_hold: grant.max_hold,
                progress_within: grant.progress_within,
            },
            inner,
        ));
        inner.lines.hold(&held);
        let now = inner.clock.now();
        held.tell(EventKind::Granted {
            waited: now.since(sent),
            attempts: 1,
            took: now.since(sent),
            valid_for: held.deadline().since(now),
            taken_over: None,
        });
        let home = inner.keeper.keep(&held);
        Ok(Lease::new(held, home, Arc::clone(inner)))
    }

    /// Abandons an owner in the background, as an acquisition of this client's own does
    /// that gave up: again and again until the store has answered, or for as long as a
    /// request can be under way. For requests that were made by other means and whose
    /// outcome is not known.
    ///
    /// [`shutdown`](Self::shutdown) waits for it. Outside of a tokio runtime, and with
    /// none left that this client was used on, nothing is sent.
    pub fn abandon(&self, key: Key, owner: Owner) {
        self.inner().keeper.abandon(key, owner);
    }
}
