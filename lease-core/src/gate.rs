//! Fencing at the resource: the last line, and the only one that holds when a
//! holder acts after its time.
//!
//! The resource remembers the highest token that it admitted and refuses lower
//! ones, **in the same atomic step as the write**. Equal tokens are admitted:
//! one holder writes many times.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use crate::error::StoreError;
use crate::key::Key;
use crate::token::Token;

/// A write that was refused because a higher token has been admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "token {presented} is stale for {resource:?}: {admitted} was admitted already, \
     so another holder has written since; stop writing"
)]
pub struct StaleToken {
    /// The resource.
    pub resource: Key,
    /// The token that was shown.
    pub presented: Token,
    /// The highest token admitted so far.
    pub admitted: Token,
}

/// Why a token was not admitted.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// It is stale.
    #[error(transparent)]
    Stale(#[from] StaleToken),
    /// The gate's store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Admits tokens at a resource.
///
/// A gate of its own, apart from the write, narrows the window for a stale
/// writer but cannot close it: only a check in the same atomic step as the
/// write does. Where the resource allows it, use that form
/// ([`LocalGate::write`], the stores' fenced writes).
#[async_trait]
pub trait Gate: std::fmt::Debug + Send + Sync + 'static {
    /// Admits `token` and remembers it, or refuses it.
    ///
    /// # Errors
    /// [`AdmitError::Stale`] with both tokens when a higher one was admitted.
    ///
    /// # Cancel safety
    /// The token may or may not have been remembered; asking again is safe.
    async fn admit(&self, resource: &Key, token: Token) -> Result<(), AdmitError>;
}

/// A gate for resources inside this process.
///
/// A clone is the same gate.
///
/// ```
/// use lease_core::{Key, LocalGate, Token};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (gate, ledger) = (LocalGate::new(), Key::new("ledger")?);
/// let (old, new) = (Token::new(7)?, Token::new(8)?);
/// assert_eq!(gate.write(&ledger, new, || "written"), Ok("written"));
/// let refused = gate.write(&ledger, old, || unreachable!()).unwrap_err();
/// assert_eq!((refused.presented, refused.admitted), (old, new));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct LocalGate {
    highest: Arc<Mutex<HashMap<Key, Slot>>>,
}

type Slot = Arc<Mutex<Option<Token>>>;

impl LocalGate {
    /// A gate that has admitted nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `write` if `token` is admitted; nobody else's write to this
    /// resource runs meanwhile. The token is remembered even if `write`
    /// panics.
    ///
    /// `write` must not call this gate for the same resource: it would wait
    /// for itself.
    ///
    /// # Errors
    /// [`StaleToken`] when a higher token was admitted; `write` was not run.
    pub fn write<T>(
        &self,
        resource: &Key,
        token: Token,
        write: impl FnOnce() -> T,
    ) -> Result<T, StaleToken> {
        let slot = {
            let mut all = self.highest.lock().unwrap_or_else(|e| e.into_inner());
            Arc::clone(all.entry(resource.clone()).or_default())
        };
        // A panic inside an earlier write has poisoned nothing of ours: the
        // token was kept before it ran.
        let mut highest = slot.lock().unwrap_or_else(|e| e.into_inner());
        match *highest {
            Some(admitted) if admitted > token => Err(StaleToken {
                resource: resource.clone(),
                presented: token,
                admitted,
            }),
            _ => {
                *highest = Some(token);
                Ok(write())
            }
        }
    }
}

#[async_trait]
impl Gate for LocalGate {
    async fn admit(&self, resource: &Key, token: Token) -> Result<(), AdmitError> {
        Ok(self.write(resource, token, || ())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(n: u64) -> Token {
        Token::new(n).unwrap()
    }

    #[test]
    fn lower_tokens_are_refused_and_equal_ones_admitted() {
        let (gate, key) = (LocalGate::new(), Key::new("r").unwrap());
        assert!(gate.write(&key, token(5), || ()).is_ok());
        assert!(gate.write(&key, token(5), || ()).is_ok());
        let stale = gate.write(&key, token(4), || ()).unwrap_err();
        assert_eq!((stale.presented, stale.admitted), (token(4), token(5)));
        let words = stale.to_string();
        assert!(words.contains('4') && words.contains('5'), "{words}");
        let other = Key::new("s").unwrap();
        assert!(gate.write(&other, token(1), || ()).is_ok());
    }

    #[test]
    fn a_panicking_write_keeps_its_token() {
        let (gate, key) = (LocalGate::new(), Key::new("r").unwrap());
        let panicking = {
            let (gate, key) = (gate.clone(), key.clone());
            move || gate.write(&key, token(9), || panic!("in the write"))
        };
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking));
        assert!(unwound.is_err());
        assert!(gate.write(&key, token(8), || ()).is_err());
        assert!(gate.write(&key, token(9), || ()).is_ok());
    }
}
