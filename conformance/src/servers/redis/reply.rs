//! What a server answered, whatever the driver's version.

use redis::Value;

/// The answer to a raw command.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// No value.
    Nil,
    /// A number.
    Integer(i64),
    /// Bytes, or a status such as `OK`.
    Bytes(Vec<u8>),
    /// A list.
    List(Vec<Reply>),
}

impl Reply {
    /// The text, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The number, also where it was sent as text.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            other => other.text()?.parse().ok(),
        }
    }

    /// The elements of a list.
    #[must_use]
    pub fn list(&self) -> Option<&[Reply]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        match value {
            Value::Nil => Self::Nil,
            Value::Int(number) => Self::Integer(number),
            Value::BulkString(bytes) => Self::Bytes(bytes),
            Value::SimpleString(text) => Self::Bytes(text.into_bytes()),
            Value::Okay => Self::Bytes(b"OK".to_vec()),
            Value::Array(items) | Value::Set(items) => {
                Self::List(items.into_iter().map(Self::from).collect())
            }
            // The kit speaks the older protocol, which has nothing else.
            other => Self::Bytes(format!("{other:?}").into_bytes()),
        }
    }
}
