//! The owner record: all that is known of one lane, in one message.

use std::time::Duration;

use lease_core::{InvalidInput, Label, Owner, Token};
use serde::{Deserialize, Serialize};

use super::place::{Place, WirePlace};

/// Owners that one record remembers as gone. A request of theirs that is still
/// under way is stopped by the record's revision already, see the module's page;
/// these are for those that ask anew.
const MOST_GONE: usize = 128;

/// One lane's owner, as a message's payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// The highest token ever granted or honoured.
    pub(super) mark: Option<Token>,
    /// The last grant, live or not.
    pub(super) grant: Option<Grant>,
    /// Owners that must not be granted anything again, the latest last.
    pub(super) gone: Vec<Gone>,
    /// Those who wait, in the order in which they took their places.
    pub(super) line: Vec<Place>,
    /// How often those who hold nothing have written since the grant was stamped.
    pub(super) crowd: u32,
    /// Of the request that wrote this: how it knows its own work again.
    pub(super) nonce: Nonce,
    /// The revision that this one replaces; 0 for none.
    pub(super) prev: u64,
}

/// One grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) owner: Owner,
    pub(super) token: Token,
    pub(super) label: Label,
    /// The request that granted it, made it last longer, or freed it: what others write,
    /// those who wait above all, is no sign that its holder lives. A revocation that lets
    /// its time go on leaves this as it is.
    pub(super) stamp: Nonce,
    /// In milliseconds from that request on.
    pub(super) lasts_ms: u64,
    pub(super) standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Standing {
    Granted,
    Released,
    /// Revoked; in the way until its end.
    Revoked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Why {
    Abandoned,
    Revoked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    pub(super) owner: Owner,
    pub(super) why: Why,
    /// By the clock of the server that stored the record with it, in milliseconds
    /// since the Unix epoch; `None` until a record with it was read.
    pub(super) at_ms: Option<i64>,
}

/// Random, new for each request and each try of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Nonce(u64);

impl Nonce {
    pub(super) fn random() -> Result<Self, InvalidInput> {
        getrandom::u64()
            .map(Self)
            .map_err(|_| InvalidInput::NoRandomness)
    }

    /// Of the same request's next try.
    pub(super) fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    #[cfg(test)]
    pub(super) const MAX: Self = Self(u64::MAX);
}

impl Record {
    /// Remembers an owner as gone; one that is known stays as it is.
    pub(super) fn forbid(&mut self, owner: Owner, why: Why) {
        if self.is_gone(owner).is_none() {
            let spare = (self.gone.len() + 1).saturating_sub(MOST_GONE);
            self.gone.drain(..spare);
            self.gone.push(Gone {
                owner,
                why,
                at_ms: None,
            });
        }
    }

    pub(super) fn is_gone(&self, owner: Owner) -> Option<Why> {
        let gone = self.gone.iter().find(|gone| gone.owner == owner)?;
        Some(gone.why)
    }

    /// Whether this is the work of a request, or was before others wrote on top of it.
    pub(super) fn shows(&self, nonce: Nonce) -> bool {
        let of = |grant: &Grant| grant.stamp == nonce && grant.standing != Standing::Revoked;
        self.nonce == nonce || self.grant.as_ref().is_some_and(of)
    }

    /// Makes it the work of this try, to replace that revision.
    pub(super) fn sign(&mut self, nonce: Nonce, prev: u64) {
        (self.nonce, self.prev) = (nonce, prev);
        self.crowd = match self.is_of_the_grant() {
            true => 0,
            false => self.crowd.saturating_add(1),
        };
    }

    /// Whether this was written to grant, renew or free something.
    pub(super) fn is_of_the_grant(&self) -> bool {
        self.grant.as_ref().is_some_and(|g| g.stamp == self.nonce)
    }

    /// Whether this was written for somebody's place in line and nothing else.
    pub(super) fn is_a_place(&self) -> bool {
        self.line.iter().any(|place| place.asked == self.nonce)
    }

    /// Whether all in it that ages has its time.
    pub(super) fn is_stamped(&self) -> bool {
        self.gone.iter().all(|gone| gone.at_ms.is_some())
            && self.line.iter().all(|place| place.at_ms.is_some())
    }

    /// Stamps those that have no time yet with the time of their message, and
    /// forgets those that are older than the retention by the same server's clock, and
    /// places that are over by it. That clock serves for nothing else.
    pub(super) fn aged(mut self, stored_ms: i64, retention: Duration) -> Self {
        let retention = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        for gone in &mut self.gone {
            gone.at_ms.get_or_insert(stored_ms);
        }
        self.gone
            .retain(|gone| stored_ms.saturating_sub(gone.at_ms.unwrap_or(stored_ms)) <= retention);
        self.line.retain_mut(|place| place.ages(stored_ms));
        self
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&Wire::of(self))
    }

    /// `None` for a payload that this store has not written.
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let wire: Wire = serde_json::from_slice(payload).ok()?;
        wire.read()
    }
}

/// The version of this form.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    leases: u32,
    mark: Option<u64>,
    grant: Option<WireGrant>,
    gone: Vec<(String, Why, Option<i64>)>,
    line: Vec<WirePlace>,
    crowd: u32,
    nonce: Nonce,
    prev: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireGrant {
    owner: String,
    token: u64,
    label: String,
    stamp: Nonce,
    lasts_ms: u64,
    standing: Standing,
}

impl Wire {
    fn of(record: &Record) -> Self {
        Self {
            leases: VERSION,
            mark: record.mark.map(Token::get),
            grant: record.grant.as_ref().map(|grant| WireGrant {
                owner: grant.owner.to_string(),
                token: grant.token.get(),
                label: grant.label.as_str().to_owned(),
                stamp: grant.stamp,
                lasts_ms: grant.lasts_ms,
                standing: grant.standing,
            }),
            gone: record
                .gone
                .iter()
                .map(|gone| (gone.owner.to_string(), gone.why, gone.at_ms))
                .collect(),
            line: record.line.iter().map(WirePlace::of).collect(),
            crowd: record.crowd,
            nonce: record.nonce,
            prev: record.prev,
        }
    }

    fn read(self) -> Option<Record> {
        if self.leases != VERSION {
            return None;
        }
        let mark = self.mark.map(Token::new).transpose().ok()?;
        let grant = match self.grant {
            None => None,
            Some(grant) => Some(Grant {
                owner: grant.owner.parse().ok()?,
                token: Token::new(grant.token).ok()?,
                label: Label::new(&grant.label).ok()?,
                stamp: grant.stamp,
                lasts_ms: grant.lasts_ms,
                standing: grant.standing,
            }),
        };
        // A grant without its mark was never written.
        if grant.as_ref().is_some_and(|grant| mark < Some(grant.token)) {
            return None;
        }
        let gone = |(owner, why, at_ms): (String, Why, Option<i64>)| {
            let owner = owner.parse().ok()?;
            Some(Gone { owner, why, at_ms })
        };
        Some(Record {
            mark,
            grant,
            gone: self.gone.into_iter().map(gone).collect::<Option<_>>()?,
            line: self
                .line
                .into_iter()
                .map(WirePlace::read)
                .collect::<Option<_>>()?,
            crowd: self.crowd,
            nonce: self.nonce,
            prev: self.prev,
        })
    }
}

#[cfg(test)]
mod tests;
