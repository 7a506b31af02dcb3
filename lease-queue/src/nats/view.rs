//! What a record says to a client that has seen it for so long.

use std::time::Duration;

use lease_core::{Holder, LostCause, Moment, Owner, Token, Ttl};

use super::place::Place;
use super::record::{Grant, Record, Standing, Why};
use super::sight::View;

/// Of those who hold nothing, for each write of which a grant lasts so long on average.
const MS_FOR_EACH: u64 = 64;
/// And so many however short it lasts.
const FEW: u64 = 8;

impl View {
    pub(super) fn grant(&self) -> Option<&Grant> {
        self.record.grant.as_ref()
    }

    /// How long the last grant still stands in the way; zero when it does not.
    pub(super) fn remaining(&self) -> Duration {
        match self.grant() {
            Some(grant) if grant.standing != Standing::Released => {
                Duration::from_millis(grant.lasts_ms).saturating_sub(self.unchanged)
            }
            _ => Duration::ZERO,
        }
    }

    pub(super) fn blocks(&self) -> bool {
        !self.remaining().is_zero()
    }

    pub(super) fn is_live(&self) -> bool {
        self.blocks()
            && self
                .grant()
                .is_some_and(|g| g.standing == Standing::Granted)
    }

    /// Whether the grant lasts for as long from that moment on already, by another
    /// request of this client's own that was sent after it: copies of one request
    /// need not outdo each other.
    pub(super) fn lasts_from(&self, asked: Moment, ttl: Ttl) -> bool {
        let long = self.grant().is_some_and(|g| g.lasts_ms >= ttl.as_millis());
        long && self.written.is_some_and(|sent| sent >= asked)
    }

    pub(super) fn holder(&self, grant: &Grant) -> Holder {
        Holder {
            label: grant.label.clone(),
            token: grant.token,
            age: self.age,
            remaining: self.remaining(),
        }
    }

    /// The record to change, without the places that are over.
    pub(super) fn draft(&self) -> Box<Record> {
        Box::new(self.with(self.line().places))
    }

    pub(super) fn with(&self, line: Vec<Place>) -> Record {
        Record {
            line,
            ..self.record.clone()
        }
    }

    /// Whether those who hold nothing have written so often since the holder last did that
    /// they let it go first: it must renew in time whatever they do.
    pub(super) fn is_crowded(&self) -> bool {
        let lasts_ms = self.grant().map_or(0, |grant| grant.lasts_ms);
        self.is_live() && u64::from(self.record.crowd) >= (lasts_ms / MS_FOR_EACH).max(FEW)
    }

    /// How long the key is known to be free.
    pub(super) fn free_for(&self) -> Duration {
        let lasts = self.grant().filter(|g| g.standing != Standing::Released);
        let lasts = lasts.map_or(0, |grant| grant.lasts_ms);
        self.unchanged.saturating_sub(Duration::from_millis(lasts))
    }

    /// Whether this is the grant, live; if it is not, why.
    pub(super) fn exact(&self, owner: Owner, token: Token) -> Result<(), LostCause> {
        let Some(grant) = self.grant() else {
            return Err(self.gone(owner).unwrap_or(LostCause::Unknown));
        };
        if grant.owner == owner && grant.token == token {
            return match grant.standing {
                Standing::Granted if self.blocks() => Ok(()),
                Standing::Granted => Err(LostCause::Expired),
                Standing::Released => Err(LostCause::Released),
                Standing::Revoked => Err(LostCause::Revoked),
            };
        }
        Err(self.gone(owner).unwrap_or(match grant.token > token {
            true => LostCause::TakenOver,
            false => LostCause::Unknown,
        }))
    }

    pub(super) fn gone(&self, owner: Owner) -> Option<LostCause> {
        Some(match self.record.is_gone(owner)? {
            Why::Abandoned => LostCause::Released,
            Why::Revoked => LostCause::Revoked,
        })
    }
}
