//! The fencing token: what the resource sees.

use std::fmt;
use std::str::FromStr;

use crate::error::InvalidInput;

/// A fencing token: 1 to 2^53 − 1, strictly increasing over all grants of a
/// key, for ever.
///
/// Shown to the resource, which refuses lower ones; never proves ownership to
/// the store. The bound keeps a token exact wherever numbers are IEEE doubles
/// (Lua, JSON, JavaScript).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The lowest token.
    pub const MIN: Self = Self(1);
    /// The highest token, 2^53 − 1.
    pub const MAX: Self = Self((1 << 53) - 1);
    /// The highest mark that a [`fence`](crate::LeaseBackend::fence) may set,
    /// 2^52: above it the tokens left for a key could run out.
    pub const MAX_FENCE: Self = Self(1 << 52);

    /// Checks `token` and keeps it.
    ///
    /// # Errors
    /// [`InvalidInput::TokenOutOfRange`] outside 1 to 2^53 − 1.
    pub const fn new(token: u64) -> Result<Self, InvalidInput> {
        if token >= Self::MIN.0 && token <= Self::MAX.0 {
            Ok(Self(token))
        } else {
            Err(InvalidInput::TokenOutOfRange { token })
        }
    }

    /// The token as a number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next higher token, if there is one.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        if self.0 < Self::MAX.0 {
            Some(Self(self.0 + 1))
        } else {
            None
        }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

impl TryFrom<u64> for Token {
    type Error = InvalidInput;

    fn try_from(token: u64) -> Result<Self, Self::Error> {
        Self::new(token)
    }
}

impl FromStr for Token {
    type Err = InvalidInput;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        s.parse::<u64>()
            .map_err(|_| InvalidInput::TokenMalformed)
            .and_then(Self::new)
    }
}

/// Which token an acquire asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRule {
    /// The usual rule: above the high-water mark, above `after`, and at least
    /// the store's clock in microseconds since the Unix epoch where the store
    /// has a clock (a hybrid logical clock, Kulkarni et al. 2014).
    Next {
        /// The token must be above this one, if given.
        after: Option<Token>,
    },
    /// Exactly this token or none: how combinators (quorum, migration) agree
    /// on one token across stores.
    Exactly(Token),
}

impl TokenRule {
    /// The usual rule with no floor of the caller's.
    pub const NEXT: Self = Self::Next { after: None };
}

impl Default for TokenRule {
    fn default() -> Self {
        Self::NEXT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_bounded() {
        assert!(Token::new(0).is_err());
        assert_eq!(Token::new(1).unwrap(), Token::MIN);
        assert_eq!(Token::new((1 << 53) - 1).unwrap(), Token::MAX);
        assert!(Token::new(1 << 53).is_err());
        assert!(Token::new(u64::MAX).is_err());
        assert_eq!(Token::MAX.next(), None);
        assert_eq!(Token::MIN.next(), Some(Token::new(2).unwrap()));
        assert!("12x".parse::<Token>().is_err());
        assert!("-1".parse::<Token>().is_err());
        assert_eq!("12".parse::<Token>().unwrap().get(), 12);
    }
}
