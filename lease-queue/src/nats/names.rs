//! Names of streams and subjects.
//!
//! Names of queues and keys are written in hexadecimal digits: injective, whatever
//! they hold, and one token of a subject each. The longest subject has 1,400 bytes;
//! a server takes 4,096 unless configured.

use std::fmt::Write as _;

use lease_core::{InvalidInput, Key};

use crate::name::QueueName;

/// The longest prefix, in bytes.
const PREFIX_BYTES: usize = 64;

/// What the names of the store's streams and subjects start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names(String);

impl Default for Names {
    fn default() -> Self {
        Self("leases".to_owned())
    }
}

impl Names {
    pub(super) fn new(prefix: &str) -> Result<Self, InvalidInput> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES || !prefix.bytes().all(plain) {
            return Err(InvalidInput::Url(format!(
                "the prefix of a store on NATS has 1 to {PREFIX_BYTES} letters, digits, - and _"
            )));
        }
        Ok(Self(prefix.to_owned()))
    }

    /// The stream of the owner records.
    pub(super) fn stream(&self) -> String {
        format!("{}-owners", self.0)
    }

    /// The subjects of that stream.
    pub(super) fn all(&self) -> String {
        format!("{}.own.>", self.0)
    }

    /// Where the server tells of each record once it has it.
    pub(super) fn told(&self) -> String {
        format!("{}.told.>", self.0)
    }

    /// The record of a key.
    pub(super) fn key(&self, queue: &QueueName, key: &Key) -> String {
        format!(
            "{}.own.{}.k.{}",
            self.0,
            hex(queue.as_str()),
            hex(key.as_str())
        )
    }

    /// Where that is told of.
    pub(super) fn key_told(&self, queue: &QueueName, key: &Key) -> String {
        format!(
            "{}.told.{}.k.{}",
            self.0,
            hex(queue.as_str()),
            hex(key.as_str())
        )
    }

    /// Every key of the queue.
    pub(super) fn keys(&self, queue: &QueueName) -> String {
        format!("{}.own.{}.k.*", self.0, hex(queue.as_str()))
    }

    /// What the subjects of the queue's keys start with.
    pub(super) fn keys_before(&self, queue: &QueueName) -> String {
        format!("{}.own.{}.k.", self.0, hex(queue.as_str()))
    }
}

/// Of the logs of queues with items, and of their snapshots.
impl Names {
    pub(super) fn logs_stream(&self) -> String {
        format!("{}-queues", self.0)
    }

    pub(super) fn logs(&self) -> String {
        format!("{}.log.>", self.0)
    }

    pub(super) fn log(&self, queue: &QueueName) -> String {
        format!("{}.log.{}", self.0, hex(queue.as_str()))
    }

    pub(super) fn snaps_stream(&self) -> String {
        format!("{}-snaps", self.0)
    }

    pub(super) fn snaps(&self) -> String {
        format!("{}.snap.>", self.0)
    }

    /// What the subjects of a queue's snapshots start with.
    pub(super) fn snap(&self, queue: &QueueName) -> String {
        format!("{}.snap.{}", self.0, hex(queue.as_str()))
    }
}

/// The key of a record's subject; `None` for one that is not ours.
pub(super) fn key_of(subject: &str) -> Option<Key> {
    let (_, digits) = subject.rsplit_once('.')?;
    if digits.len() % 2 != 0
        || !digits
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    {
        return None;
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks_exact(2).map(byte).collect();
    Key::new(String::from_utf8(bytes?).ok()?).ok()
}

fn hex(text: &str) -> String {
    let mut digits = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        // A string takes whatever is written to it.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_hold_any_key_as_one_token_and_give_it_back() {
        let (names, queue) = (Names::default(), QueueName::new("a.b *>").unwrap());
        let longest = "é".repeat(256);
        for text in ["a", "a.b", "*", ">", " ", "a:{b}%2e.", "🦀", &longest] {
            let key = Key::new(text).unwrap();
            let subject = names.key(&queue, &key);
            assert_eq!(subject.split('.').count(), 5, "{subject}");
            assert!(subject.len() < 2048 && subject.is_ascii());
            assert_eq!(key_of(&subject), Some(key));
        }
        for foreign in [
            "leases.own.61.k.6",
            "leases.own.61.k.6G",
            "leases.own.61.k.",
            "x",
        ] {
            assert_eq!(key_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn prefixes_are_plain_words() {
        for bad in ["", "a.b", "a b", "ä", &"a".repeat(65)] {
            assert!(Names::new(bad).is_err(), "{bad}");
        }
        assert_eq!(Names::new("my-App_1").unwrap().stream(), "my-App_1-owners");
    }
}
