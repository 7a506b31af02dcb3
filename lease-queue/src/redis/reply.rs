//! What the scripts answer.

use std::time::Duration;

use bytes::Bytes;
use lease_core::{
    Holder, Key, KeyState, Label, LostCause, Owner, RefusedReason, StoreError, StoreErrorKind,
    TakenOver, Token,
};
use lease_redis::parts;
use lease_redis::redis::Value;

use crate::item::{ClaimRef, Claimed, ItemId, ItemState, Phase};
use crate::name::Lane;
use crate::store::{Added, Answer, Depth, Settled};

/// One answer of a script, not yet looked at for the script's errors.
#[derive(Debug)]
pub(super) struct Reply(Vec<Value>);

impl Reply {
    /// A script's whole answer.
    pub(super) fn all(answer: Value) -> Result<Vec<Self>, StoreError> {
        let Value::Array(answers) = answer else {
            return Err(odd());
        };
        let one = |answer| match answer {
            Value::Int(_) => Ok(Self(vec![answer])),
            Value::Array(fields) => Ok(Self(fields)),
            _ => Err(odd()),
        };
        answers.into_iter().map(one).collect()
    }

    /// An error that the script caught before it changed anything.
    pub(super) fn caught(&self) -> Option<&str> {
        match &*self.0 {
            [Value::Int(-1), Value::BulkString(text)] => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    /// What it says, or the error that the script caught.
    pub(super) fn read(self, doing: &str) -> Result<Fields, StoreError> {
        match &*self.0 {
            [Value::Int(number @ (-1 | -2)), Value::BulkString(text)] => {
                let error = parts::caught(doing, &String::from_utf8_lossy(text));
                if *number == -1 {
                    return Err(error);
                }
                Err(StoreError::with_source(
                    StoreErrorKind::UnknownOutcome,
                    format!("{doing}: it failed when a part of it was done"),
                    error,
                ))
            }
            _ => Ok(Fields(self.0)),
        }
    }
}

/// An error of a request of which an earlier copy may have taken effect.
pub(super) fn doubtful(error: StoreError, doubt: Option<&StoreError>) -> StoreError {
    match (doubt, error.kind()) {
        (None, _) | (_, StoreErrorKind::UnknownOutcome) => error,
        (Some(doubt), _) => doubt.clone(),
    }
}

/// The script ran, so its effect is there, whatever it was.
pub(super) fn odd() -> StoreError {
    StoreError::unknown_outcome(
        "the server's answer is not one that the script of a queue gives; check that no proxy or \
         look-alike of Redis stands between",
    )
}

/// The parts of one answer.
#[derive(Debug)]
pub(super) struct Fields(Vec<Value>);

impl Fields {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn value(&self, at: usize) -> Result<&Value, StoreError> {
        self.0.get(at).ok_or_else(odd)
    }

    pub(super) fn number(&self, at: usize) -> Result<i64, StoreError> {
        match self.value(at)? {
            Value::Int(number) => Ok(*number),
            _ => Err(odd()),
        }
    }

    fn count(&self, at: usize) -> Result<u64, StoreError> {
        u64::try_from(self.number(at)?).map_err(|_| odd())
    }

    pub(super) fn token(&self, at: usize) -> Result<Token, StoreError> {
        Token::new(self.count(at)?).map_err(|_| odd())
    }

    fn micros(&self, at: usize) -> Result<Duration, StoreError> {
        Ok(Duration::from_micros(self.count(at)?))
    }

    fn bytes(&self, at: usize) -> Result<&[u8], StoreError> {
        match self.value(at)? {
            Value::BulkString(bytes) => Ok(bytes),
            _ => Err(odd()),
        }
    }

    pub(super) fn text(&self, at: usize) -> Result<&str, StoreError> {
        std::str::from_utf8(self.bytes(at)?).map_err(|_| odd())
    }

    /// What some program wrote for people.
    fn words(&self, at: usize) -> Result<String, StoreError> {
        Ok(String::from_utf8_lossy(self.bytes(at)?).into_owned())
    }

    fn label(&self, at: usize) -> Result<Label, StoreError> {
        Ok(Label::lossy(&self.words(at)?))
    }

    fn item(&self, at: usize) -> Result<ItemId, StoreError> {
        self.text(at)?.parse().map_err(|_| odd())
    }

    /// `None` where nothing stands.
    fn key(&self, at: usize) -> Result<Option<Key>, StoreError> {
        match self.text(at)? {
            "" => Ok(None),
            key => Key::new(key).map(Some).map_err(|_| odd()),
        }
    }

    pub(super) fn inner(&self, at: usize) -> Result<Self, StoreError> {
        match self.value(at)? {
            Value::Array(fields) => Ok(Self(fields.clone())),
            Value::Int(number) => Ok(Self(vec![Value::Int(*number)])),
            _ => Err(odd()),
        }
    }

    /// An answer within this one, which may be an error.
    pub(super) fn within(&self, at: usize, doing: &str) -> Result<Self, StoreError> {
        Reply(self.inner(at)?.0).read(doing)
    }

    fn holder(&self, from: usize) -> Result<Holder, StoreError> {
        Ok(Holder {
            token: self.token(from)?,
            age: self.micros(from + 1)?,
            remaining: self.micros(from + 2)?,
            label: self.label(from + 3)?,
        })
    }

    pub(super) fn added(&self, items: usize) -> Result<Vec<Added>, StoreError> {
        if self.0.len() != items + 1 {
            return Err(odd());
        }
        let one = |at| match self.value(at)? {
            Value::Int(1) => Ok(Added::Added),
            _ => Ok(Added::Duplicate { of: self.item(at)? }),
        };
        (1..=items).map(one).collect()
    }

    fn refused(&self) -> Result<Answer, StoreError> {
        Ok(Answer::Refused(match self.number(0)? {
            2 => RefusedReason::BelowMark {
                high_water: self.token(1)?,
            },
            3 => RefusedReason::Abandoned,
            4 => RefusedReason::Revoked,
            6 => RefusedReason::TokensExhausted,
            7 => RefusedReason::InLine {
                ahead: self.count(1)?,
                remaining: self.micros(2)?,
            },
            _ => return Err(odd()),
        }))
    }

    pub(super) fn claimed_next(mut self, owner: Owner) -> Result<Answer, StoreError> {
        match self.number(0)? {
            0 => {
                let next = match self.number(1)? {
                    -1 => None,
                    _ => Some(self.micros(1)?),
                };
                Ok(Answer::Nothing { next })
            }
            1 => {
                let claims = self.0.split_off(1).into_iter();
                let items = claims.map(|claim| claimed(claim, owner));
                let items: Vec<_> = items.collect::<Result<_, _>>()?;
                if items.is_empty() {
                    return Err(odd());
                }
                Ok(Answer::Claimed {
                    items,
                    taken_over: None,
                    repeated: false,
                })
            }
            _ => self.refused(),
        }
    }

    /// `doubt` is why an earlier copy may take effect yet: it could grant the key to an
    /// owner who was told that somebody else has it.
    pub(super) fn claimed_key(
        &self,
        key: &Key,
        owner: Owner,
        doubt: Option<StoreError>,
    ) -> Result<Answer, StoreError> {
        match (self.number(0)?, doubt) {
            (1, doubt) => self.granted(key, owner, doubt.is_some()),
            (_, Some(doubt)) => Err(doubt),
            (0, None) => Ok(Answer::Held(self.holder(1)?)),
            (_, None) => self.refused(),
        }
    }

    fn granted(&self, key: &Key, owner: Owner, repeated: bool) -> Result<Answer, StoreError> {
        let taken_over = match self.0.len() {
            2 => None,
            _ => Some(TakenOver {
                token: self.token(2)?,
                label: self.label(3)?,
            }),
        };
        let claim = ClaimRef {
            item: ItemId::TOKEN,
            lane: Lane::Key(key.clone()),
            owner,
            token: self.token(1)?,
        };
        Ok(Answer::Claimed {
            items: vec![Claimed {
                claim,
                body: Bytes::new(),
                attempt: 1,
                age: Duration::ZERO,
            }],
            taken_over,
            repeated,
        })
    }

    pub(super) fn settled(&self) -> Result<Settled, StoreError> {
        Ok(match self.number(0)? {
            1 => Settled::Done,
            2 => Settled::Before,
            0 => Settled::Lost(match self.text(1)? {
                "e" => LostCause::Expired,
                "t" => LostCause::TakenOver,
                "r" => LostCause::Released,
                "v" => LostCause::Revoked,
                _ => LostCause::Unknown,
            }),
            _ => return Err(odd()),
        })
    }

    pub(super) fn key_state(&self, key: &Key) -> Result<KeyState, StoreError> {
        let mut state = KeyState {
            key: key.clone(),
            high_water: None,
            holder: None,
            blocked_for: None,
        };
        if self.0.len() == 1 {
            if self.number(0)? != 0 {
                state.high_water = Some(self.token(0)?);
            }
            return Ok(state);
        }
        state.high_water = Some(self.token(1)?);
        match self.number(0)? {
            2 => state.blocked_for = Some(self.micros(2)?),
            3 => state.holder = Some(self.holder(2)?),
            _ => return Err(odd()),
        }
        Ok(state)
    }

    pub(super) fn item_state(&self) -> Result<ItemState, StoreError> {
        let phase = self.inner(7)?;
        let phase = match phase.number(0)? {
            0 => Phase::Ready,
            1 => Phase::Delayed(phase.micros(1)?),
            2 => Phase::Claimed(phase.holder(1)?),
            3 => Phase::Dead(phase.words(1)?),
            _ => return Err(odd()),
        };
        let error = self.inner(8)?;
        Ok(ItemState {
            id: self.item(1)?,
            group: self.key(2)?,
            dedup: self.key(3)?,
            attempts: u32::try_from(self.count(4)?).map_err(|_| odd())?,
            age: self.micros(5)?,
            bytes: usize::try_from(self.count(6)?).map_err(|_| odd())?,
            phase,
            last_error: match error.0.is_empty() {
                true => None,
                false => Some(error.words(0)?),
            },
        })
    }

    pub(super) fn depth(&self) -> Result<Depth, StoreError> {
        Ok(Depth {
            ready: self.count(1)?,
            delayed: self.count(2)?,
            in_flight: self.count(3)?,
            dead: self.count(4)?,
            oldest: match self.number(5)? {
                -1 => None,
                _ => Some(self.micros(5)?),
            },
        })
    }
}

fn claimed(value: Value, owner: Owner) -> Result<Claimed, StoreError> {
    let Value::Array(mut fields) = value else {
        return Err(odd());
    };
    let body = match fields.pop() {
        Some(Value::BulkString(body)) => Bytes::from(body),
        _ => return Err(odd()),
    };
    let fields = Fields(fields);
    let item = fields.item(0)?;
    let claim = ClaimRef {
        item,
        lane: fields.key(1)?.map_or(Lane::Item(item), Lane::Group),
        owner,
        token: fields.token(2)?,
    };
    Ok(Claimed {
        claim,
        body,
        attempt: u32::try_from(fields.count(3)?).map_err(|_| odd())?,
        age: fields.micros(4)?,
    })
}
