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
    /// At one go: several are written for each request of a queue.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [0; 32];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            let [high, low] = [byte >> 4, byte & 15].map(digit);
            pair.copy_from_slice(&[high, low]);
        }
        f.write_str(std::str::from_utf8(&digits).map_err(|_| fmt::Error)?)
    }
}

const fn digit(value: u8) -> u8 {
    match value {
        0..=9 => b'0' + value,
        _ => b'a' + (value - 10),
    }
}

const fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
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
        let (pairs, rest) = s.as_bytes().as_chunks::<2>();
        if pairs.len() != 16 || !rest.is_empty() {
            return Err(InvalidInput::OwnerMalformed);
        }
        let mut owner = [0; 16];
        for (byte, pair) in owner.iter_mut().zip(pairs) {
            let [Some(high), Some(low)] = pair.map(value) else {
                return Err(InvalidInput::OwnerMalformed);
            };
            *byte = high << 4 | low;
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
        let all: [u8; 16] = std::array::from_fn(|n| (n * 17) as u8);
        let text = "00112233445566778899aabbccddeeff";
        assert_eq!(Owner::from_bytes(all).to_string(), text);
        for text in [text, &text.to_uppercase()] {
            assert_eq!(text.parse::<Owner>().unwrap().as_bytes(), &all);
        }
        for bad in ["", "00", &"g".repeat(32), &"é".repeat(16), &"0".repeat(33)] {
            assert!(matches!(
                bad.parse::<Owner>(),
                Err(InvalidInput::OwnerMalformed)
            ));
        }
        assert_ne!(Owner::random().unwrap(), Owner::random().unwrap());
    }
}
