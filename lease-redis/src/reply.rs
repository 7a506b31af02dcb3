//! What the script answers for one operation.

use std::time::Duration;

use lease_core::{
    AcquireOutcome, Granted, Holder, Key, KeyState, Label, LostCause, RefusedReason,
    ReleaseOutcome, RenewOutcome, StoreError, TakenOver, Token,
};
use redis::Value;

use crate::errors;
use crate::request::{Kind, Request};

/// The answer to one operation, not yet read: a number where that says all, or
/// an array.
#[derive(Debug)]
pub(crate) enum Reply {
    Number(i64),
    Fields(Vec<Value>),
    /// A grant of which an earlier copy of the request may still be under way.
    OfCopies(Box<Self>),
}

impl Reply {
    /// The answers in the script's whole answer, in the order of the requests.
    pub(crate) fn all(answer: Value, requests: usize) -> Result<Vec<Self>, StoreError> {
        match answer {
            Value::Array(answers) if answers.len() == requests => {
                answers.into_iter().map(Self::new).collect()
            }
            _ => Err(odd()),
        }
    }

    fn new(answer: Value) -> Result<Self, StoreError> {
        match answer {
            Value::Int(number) => Ok(Self::Number(number)),
            Value::Array(fields) => Ok(Self::Fields(fields)),
            _ => Err(odd()),
        }
    }

    /// This answer to a request of which an earlier copy may still be under way, as
    /// `unknown` says. The copy could grant the key later to an owner who was told
    /// that somebody else holds it.
    pub(crate) fn of_copies(
        self,
        request: &Request,
        unknown: StoreError,
    ) -> Result<Self, StoreError> {
        match (request.kind(), self.grant()) {
            (Kind::Acquire, Some(_)) => Ok(Self::OfCopies(Box::new(self))),
            (Kind::Acquire, None) => Err(unknown),
            _ => Ok(self),
        }
    }

    pub(crate) fn acquired(&self) -> Result<AcquireOutcome, StoreError> {
        if let Self::OfCopies(reply) = self {
            let mut outcome = reply.acquired()?;
            if let AcquireOutcome::Granted(granted) = &mut outcome {
                granted.repeated = true;
            }
            return Ok(outcome);
        }
        if let Self::Number(number) = self {
            return Ok(AcquireOutcome::Granted(Granted::new(token(*number)?)));
        }
        Ok(match self.head("acquire")? {
            0 => AcquireOutcome::Held(self.holder()?),
            1 => AcquireOutcome::Granted(self.granted()?),
            2 => AcquireOutcome::Refused(RefusedReason::BelowMark {
                high_water: self.token(1)?,
            }),
            3 => AcquireOutcome::Refused(RefusedReason::Abandoned),
            4 => AcquireOutcome::Refused(RefusedReason::Revoked),
            5 => AcquireOutcome::Refused(RefusedReason::Quarantine {
                remaining: self.micros(1)?,
            }),
            6 => AcquireOutcome::Refused(RefusedReason::TokensExhausted),
            _ => return Err(odd()),
        })
    }

    pub(crate) fn renewed(&self) -> Result<RenewOutcome, StoreError> {
        match self.head("renew")? {
            1 => Ok(RenewOutcome::Renewed),
            0 => {
                let cause = match self.text(1)? {
                    "e" => LostCause::Expired,
                    "t" => LostCause::TakenOver,
                    "r" => LostCause::Released,
                    "v" => LostCause::Revoked,
                    _ => LostCause::Unknown,
                };
                Ok(RenewOutcome::Lost(cause))
            }
            _ => Err(odd()),
        }
    }

    pub(crate) fn released(&self) -> Result<ReleaseOutcome, StoreError> {
        match self.head("release")? {
            1 => Ok(ReleaseOutcome::Released),
            0 => Ok(ReleaseOutcome::NotHeld),
            _ => Err(odd()),
        }
    }

    pub(crate) fn abandoned(&self) -> Result<(), StoreError> {
        self.head("abandon").map(drop)
    }

    pub(crate) fn fenced(&self) -> Result<Token, StoreError> {
        token(self.head("fence")?)
    }

    pub(crate) fn state(&self, key: &Key) -> Result<KeyState, StoreError> {
        let mut state = KeyState {
            key: key.clone(),
            high_water: None,
            holder: None,
            blocked_for: None,
        };
        match self {
            Self::Number(0) => return Ok(state),
            Self::Number(mark) => {
                state.high_water = Some(token(*mark)?);
                return Ok(state);
            }
            Self::Fields(_) | Self::OfCopies(_) => {}
        }
        let form = self.head("inspect")?;
        state.high_water = Some(self.token(1)?);
        match form {
            2 => state.blocked_for = Some(self.micros(2)?),
            3 => {
                state.holder = Some(Holder {
                    token: self.token(2)?,
                    age: self.micros(3)?,
                    remaining: self.micros(4)?,
                    label: self.label(5)?,
                });
            }
            _ => return Err(odd()),
        }
        Ok(state)
    }

    /// The token, if this answers an acquire with a grant.
    pub(crate) fn grant(&self) -> Option<Token> {
        match self.acquired() {
            Ok(AcquireOutcome::Granted(granted)) => Some(granted.token),
            _ => None,
        }
    }

    /// Whether `request` took effect.
    pub(crate) fn changed(&self, request: &Request) -> bool {
        match request.kind() {
            Kind::Acquire => self.grant().is_some(),
            Kind::Renew => matches!(self, Self::Number(1)),
            Kind::Other => matches!(self, Self::Number(_)),
        }
    }

    fn holder(&self) -> Result<Holder, StoreError> {
        Ok(Holder {
            token: self.token(1)?,
            age: self.micros(2)?,
            remaining: self.micros(3)?,
            label: self.label(4)?,
        })
    }

    fn granted(&self) -> Result<Granted, StoreError> {
        let mut granted = Granted::new(self.token(1)?);
        granted.taken_over = Some(TakenOver {
            token: self.token(2)?,
            label: self.label(3)?,
        });
        Ok(granted)
    }

    /// The first number, or the error that the script caught.
    fn head(&self, doing: &str) -> Result<i64, StoreError> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Fields(_) | Self::OfCopies(_) => match self.number(0)? {
                -1 => Err(errors::caught(doing, self.text(1)?)),
                number => Ok(number),
            },
        }
    }

    fn field(&self, at: usize) -> Option<&Value> {
        match self {
            Self::Number(_) => None,
            Self::OfCopies(reply) => reply.field(at),
            Self::Fields(fields) => fields.get(at),
        }
    }

    fn number(&self, at: usize) -> Result<i64, StoreError> {
        match self.field(at) {
            Some(Value::Int(n)) => Ok(*n),
            _ => Err(odd()),
        }
    }

    fn token(&self, at: usize) -> Result<Token, StoreError> {
        token(self.number(at)?)
    }

    fn micros(&self, at: usize) -> Result<Duration, StoreError> {
        let n = u64::try_from(self.number(at)?).map_err(|_| odd())?;
        Ok(Duration::from_micros(n))
    }

    fn text(&self, at: usize) -> Result<&str, StoreError> {
        match self.field(at) {
            Some(Value::BulkString(bytes)) => std::str::from_utf8(bytes).map_err(|_| odd()),
            Some(Value::SimpleString(text)) => Ok(text),
            _ => Err(odd()),
        }
    }

    fn label(&self, at: usize) -> Result<Label, StoreError> {
        match self.field(at) {
            // What some other program wrote is made what a label may be.
            Some(Value::BulkString(bytes)) => Ok(Label::lossy(&String::from_utf8_lossy(bytes))),
            _ => Ok(Label::lossy(self.text(at)?)),
        }
    }

    /// The error that the script caught.
    pub(crate) fn error(&self) -> Option<&str> {
        match self.number(0) {
            Ok(-1) => self.text(1).ok(),
            _ => None,
        }
    }
}

/// Whether the script caught an error of some operation.
pub(crate) fn has_failed(answer: &Value) -> bool {
    let caught = |one: &Value| matches!(one, Value::Array(fields) if fields.first() == Some(&Value::Int(-1)));
    matches!(answer, Value::Array(all) if all.iter().any(caught))
}

fn token(number: i64) -> Result<Token, StoreError> {
    let number = u64::try_from(number).map_err(|_| odd())?;
    Token::new(number).map_err(|_| odd())
}

/// The script ran, so its effect is there, whatever it was.
pub(crate) fn odd() -> StoreError {
    StoreError::unknown_outcome(
        "the server's answer is not one that the lease script gives; check that no proxy or \
         look-alike of Redis stands between",
    )
}
