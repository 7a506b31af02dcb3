//! Keys and labels: the names of things and the words for people.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::InvalidInput;

/// The longest key, in bytes of UTF-8.
pub const MAX_KEY_BYTES: usize = 512;
/// The longest label, in bytes of UTF-8.
pub const MAX_LABEL_BYTES: usize = 256;

/// Names the thing that at most one owner may work on.
///
/// 1 to [`MAX_KEY_BYTES`] bytes of UTF-8 without control characters, compared
/// byte for byte: `é` as one code point and `é` as two are different keys.
/// Cheap to clone.
///
/// ```
/// use lease_core::Key;
/// assert!(Key::new("orders/eu-west/{1}").is_ok());
/// assert!(Key::new("").is_err());
/// assert!(Key::new("a\0b").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// Checks `key` and keeps it.
    ///
    /// # Errors
    /// [`InvalidInput`] that names the limit: empty, too long, or a control
    /// character.
    pub fn new(key: impl AsRef<str>) -> Result<Self, InvalidInput> {
        let key = key.as_ref();
        if key.is_empty() {
            return Err(InvalidInput::KeyEmpty);
        }
        if key.len() > MAX_KEY_BYTES {
            return Err(InvalidInput::KeyTooLong { bytes: key.len() });
        }
        if let Some(at) = key.find(char::is_control) {
            return Err(InvalidInput::KeyControlCharacter { at });
        }
        Ok(Self(key.into()))
    }

    /// The key as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// Equality, order and hash are those of the text.
impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for Key {
    type Err = InvalidInput;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::new(s)
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Self {
        key.clone()
    }
}

impl TryFrom<&str> for Key {
    type Error = InvalidInput;

    fn try_from(s: &str) -> Result<Self, Self::Error> {
        Self::new(s)
    }
}

impl TryFrom<String> for Key {
    type Error = InvalidInput;

    fn try_from(s: String) -> Result<Self, Self::Error> {
        Self::new(s)
    }
}

impl TryFrom<&String> for Key {
    type Error = InvalidInput;

    fn try_from(s: &String) -> Result<Self, Self::Error> {
        Self::new(s)
    }
}

/// Free text for people: host, process id, program. Never used for decisions.
///
/// At most [`MAX_LABEL_BYTES`] bytes of UTF-8 without control characters (a
/// label ends up on operators' terminals, and not every store can keep a NUL).
/// May be empty.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Label(Option<Arc<str>>);

impl Label {
    /// The empty label.
    pub const EMPTY: Self = Self(None);

    /// Checks `label` and keeps it.
    ///
    /// # Errors
    /// [`InvalidInput`] when it is too long or holds a control character.
    pub fn new(label: impl AsRef<str>) -> Result<Self, InvalidInput> {
        let label = label.as_ref();
        if label.len() > MAX_LABEL_BYTES {
            return Err(InvalidInput::LabelTooLong { bytes: label.len() });
        }
        if let Some(at) = label.find(char::is_control) {
            return Err(InvalidInput::LabelControlCharacter { at });
        }
        Ok(Self((!label.is_empty()).then(|| label.into())))
    }

    /// A label that fits, made from any text: control characters become `?`,
    /// and what is too long is cut at a character's border.
    #[must_use]
    pub fn lossy(label: &str) -> Self {
        let mut clean = String::with_capacity(label.len().min(MAX_LABEL_BYTES));
        for c in label.chars() {
            let c = if c.is_control() { '?' } else { c };
            if clean.len() + c.len_utf8() > MAX_LABEL_BYTES {
                break;
            }
            clean.push(c);
        }
        Self((!clean.is_empty()).then(|| clean.into()))
    }

    /// `program[pid]@host` of this process, as far as they can be found out.
    #[must_use]
    pub fn of_this_process() -> Self {
        let program = std::env::args_os()
            .next()
            .map(std::path::PathBuf::from)
            .and_then(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()))
            .unwrap_or_else(|| "unknown".to_owned());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
            .ok()
            .or_else(|| std::env::var("HOSTNAME").ok())
            .unwrap_or_default();
        let (pid, host) = (std::process::id(), host.trim());
        if host.is_empty() {
            Self::lossy(&format!("{program}[{pid}]"))
        } else {
            Self::lossy(&format!("{program}[{pid}]@{host}"))
        }
    }

    /// The label as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl FromStr for Label {
    type Err = InvalidInput;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::new(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_bounded_in_bytes_and_compared_byte_for_byte() {
        assert!(Key::new("k".repeat(512)).is_ok());
        assert!(matches!(
            Key::new("k".repeat(513)),
            Err(InvalidInput::KeyTooLong { bytes: 513 })
        ));
        assert!(matches!(Key::new(""), Err(InvalidInput::KeyEmpty)));
        for control in ["\0", "a\nb", "\u{85}", "\u{7f}"] {
            assert!(matches!(
                Key::new(control),
                Err(InvalidInput::KeyControlCharacter { .. })
            ));
        }
        assert_ne!(Key::new("\u{e9}").unwrap(), Key::new("e\u{301}").unwrap());
        for odd in ["a/b", "{x}", "*", "%", "a b", "🦀", "x.", ":", "{", "}"] {
            assert_eq!(Key::new(odd).unwrap().as_str(), odd);
        }
    }

    #[test]
    fn labels_are_bounded_and_lossy_ones_always_fit() {
        assert_eq!(Label::new("").unwrap().as_str(), "");
        assert!(Label::new("l".repeat(256)).is_ok());
        assert!(matches!(
            Label::new("l".repeat(257)),
            Err(InvalidInput::LabelTooLong { bytes: 257 })
        ));
        let long = Label::lossy(&"é".repeat(200));
        assert_eq!(long.as_str().len(), 256);
        assert_eq!(Label::lossy("a\nb").as_str(), "a?b");
        assert!(!Label::of_this_process().as_str().is_empty());
    }
}
