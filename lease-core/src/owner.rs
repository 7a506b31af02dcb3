//! The owner: proof of ownership towards the store.

use std::fmt;
use std::str::FromStr;

use crate::error::InvalidInput;

/// 128 random bits, new for each acquisition, never used again once that
/// acquisition ended or was abandoned.
///
/// It proves ownership to the store and is never shown to the resource; that
/// is what the [`Token`](crate::Token) is for. [`Display`](fmt::Display) gives
/// all 32 hexadecimal digits (a script needs them to renew or release);
/// [`Debug`] gives only the first eight, enough to tell two owners apart in a
/// log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner([u8; 16]);

impl Owner {
    /// A new owner from the operating system's randomness.
    ///
    /// # Errors
    /// [`InvalidInput::NoRandomness`] when the operating system has none to
    /// give: two acquisitions must never share an owner, so there is no
    /// fallback.
    pub fn random() -> Result<Self, InvalidInput> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|_| InvalidInput::NoRandomness)?;
        Ok(Self(bytes))
    }

    /// An owner from its bytes, as a store keeps them.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, as a store keeps them.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "Owner({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

impl FromStr for Owner {
    type Err = InvalidInput;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bytes = s.as_bytes();
        if bytes.len() != 32 || !bytes.iter().all(u8::is_ascii_hexdigit) {
            return Err(InvalidInput::OwnerMalformed);
        }
        let mut owner = [0; 16];
        for (byte, pair) in owner.iter_mut().zip(s.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(pair).map_err(|_| InvalidInput::OwnerMalformed)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| InvalidInput::OwnerMalformed)?;
        }
        Ok(Self(owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_debug_hides_most() {
        let owner = Owner::random().unwrap();
        assert_eq!(owner.to_string().parse::<Owner>().unwrap(), owner);
        assert!(!format!("{owner:?}").contains(&owner.to_string()));
        for bad in ["", "00", &"g".repeat(32), &"é".repeat(16), &"0".repeat(33)] {
            assert!(matches!(
                bad.parse::<Owner>(),
                Err(InvalidInput::OwnerMalformed)
            ));
        }
        assert_ne!(Owner::random().unwrap(), Owner::random().unwrap());
    }
}
