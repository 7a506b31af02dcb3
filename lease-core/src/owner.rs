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
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            for (digit, half) in pair.iter_mut().zip([byte >> 4, byte & 0xf]) {
                *digit = DIGITS[usize::from(half)];
            }
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
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
        let digits = <&[u8; 32]>::try_from(s.as_bytes());
        let digits = digits.map_err(|_| InvalidInput::OwnerMalformed)?;
        let mut owner = [0; 16];
        for (byte, pair) in owner.iter_mut().zip(digits.chunks_exact(2)) {
            for digit in pair {
                let value = char::from(*digit).to_digit(16);
                let value = value.and_then(|value| u8::try_from(value).ok());
                *byte = *byte << 4 | value.ok_or(InvalidInput::OwnerMalformed)?;
            }
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
