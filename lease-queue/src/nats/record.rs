//! The owner record: all that is known of one lane, in one message.

use std::time::Duration;

use lease_core::{InvalidInput, Label, Owner, Token};
use serde::{Deserialize, Serialize};

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
    /// In milliseconds from this revision on.
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

/// Random, new for each request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Nonce(u64);

impl Nonce {
    pub(super) fn random() -> Result<Self, InvalidInput> {
        getrandom::u64()
            .map(Self)
            .map_err(|_| InvalidInput::NoRandomness)
    }
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

    /// Stamps those that have no time yet with the time of their message, and
    /// forgets those that are older than the retention by the same server's clock.
    /// That clock serves for nothing else.
    pub(super) fn aged(mut self, stored_ms: i64, retention: Duration) -> Self {
        let retention = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        for gone in &mut self.gone {
            gone.at_ms.get_or_insert(stored_ms);
        }
        self.gone
            .retain(|gone| stored_ms.saturating_sub(gone.at_ms.unwrap_or(stored_ms)) <= retention);
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
    nonce: u64,
    prev: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireGrant {
    owner: String,
    token: u64,
    label: String,
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
                lasts_ms: grant.lasts_ms,
                standing: grant.standing,
            }),
            gone: record
                .gone
                .iter()
                .map(|gone| (gone.owner.to_string(), gone.why, gone.at_ms))
                .collect(),
            nonce: record.nonce.0,
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
            nonce: Nonce(self.nonce),
            prev: self.prev,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(n: u8) -> Owner {
        Owner::from_bytes([n; 16])
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let mut record = Record {
            mark: Some(Token::MAX),
            grant: Some(Grant {
                owner: owner(7),
                token: Token::MIN,
                label: Label::new("me \"\\ 🦀").unwrap(),
                lasts_ms: u64::MAX,
                standing: Standing::Revoked,
            }),
            gone: Vec::new(),
            nonce: Nonce(u64::MAX),
            prev: 9,
        };
        record.forbid(owner(1), Why::Abandoned);
        record.forbid(owner(2), Why::Revoked);
        let bytes = record.encode().unwrap();
        assert_eq!(Record::decode(&bytes), Some(record));
    }

    #[test]
    fn what_is_not_ours_is_no_record() {
        let good = Record::default().encode().unwrap();
        assert!(Record::decode(&good).is_some());
        for cut in 0..good.len() {
            assert_eq!(Record::decode(&good[..cut]), None);
        }
        let text = String::from_utf8(good).unwrap();
        for (from, to) in [
            ("\"leases\":1", "\"leases\":2"),
            ("\"mark\":null", "\"mark\":0"),
            ("\"gone\":[]", "\"gone\":[[\"x\",\"abandoned\",null]]"),
            ("\"nonce\":0", "\"nonce\":0,\"more\":1"),
        ] {
            let bad = text.replace(from, to);
            assert_ne!(bad, text);
            assert_eq!(Record::decode(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn gone_owners_are_bounded_and_age_by_the_servers_clock() {
        let mut record = Record::default();
        for n in 0..=u8::MAX {
            record.forbid(owner(n), Why::Abandoned);
        }
        assert_eq!(record.gone.len(), MOST_GONE);
        assert_eq!(record.is_gone(owner(0)), None);
        assert_eq!(record.is_gone(owner(255)), Some(Why::Abandoned));
        let retention = Duration::from_millis(10);
        let mut record = record.aged(1_000, retention);
        record.forbid(owner(0), Why::Revoked);
        let record = record.aged(1_010, retention);
        assert_eq!(record.gone.len(), MOST_GONE);
        let record = record.aged(1_011, retention);
        assert_eq!(record.gone.len(), 1);
        assert_eq!(record.is_gone(owner(0)), Some(Why::Revoked));
    }
}
