//! What a key is called inside Redis.

use lease_core::{InvalidInput, Key};

use crate::cluster::slot;

/// The longest prefix; it is repeated in every name.
const MAX_PREFIX_BYTES: usize = 128;

/// Names of one store: everything of ours starts with `prefix:`.
///
/// * `prefix:{key}`: the record of a key (its mark and its last grant); its
///   wake-up channel has the same name;
/// * `prefix:{key}:owner`: the tombstone of an owner of that key, 32 hexadecimal
///   digits (only the script spells it);
/// * `prefix:gate:{resource}`: the highest token that a resource admitted;
/// * `prefix:queue:{name}`: begins the names of one queue of `lease-queue`;
/// * `prefix:birth`: the birth marker of the quarantine; in a cluster each slot
///   has one, `prefix:birth:{number}` with the smallest number of that slot.
///
/// In the key, `%`, `{` and `}` are written as `%25`, `%7B` and `%7D`: names
/// stay injective, prefixes stay prefixes, and the braces of ours are the only
/// ones, so that all names of one key share one hash slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    prefix: String,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            prefix: Self::DEFAULT_PREFIX.to_owned(),
        }
    }
}

impl Names {
    pub(crate) const DEFAULT_PREFIX: &'static str = "leases";

    pub(crate) fn new(prefix: &str) -> Result<Self, InvalidInput> {
        let sound = !prefix.is_empty()
            && prefix.len() <= MAX_PREFIX_BYTES
            && !prefix.contains(['{', '}'])
            && !prefix.chars().any(char::is_control);
        if !sound {
            return Err(InvalidInput::Url(format!(
                "the prefix of Redis names must have 1 to {MAX_PREFIX_BYTES} bytes, no braces and \
                 no control characters"
            )));
        }
        Ok(Self {
            prefix: prefix.to_owned(),
        })
    }

    /// The record of `key`, and its channel.
    pub(crate) fn record(&self, key: &Key) -> String {
        self.tagged("", key)
    }

    /// The highest token admitted at `resource`.
    pub(crate) fn gate(&self, resource: &Key) -> String {
        self.tagged("gate:", resource)
    }

    /// What the names of everything in the queue of this name begin with.
    pub(crate) fn queue(&self, name: &Key) -> String {
        self.tagged("queue:", name)
    }

    /// The birth marker.
    pub(crate) fn birth(&self) -> String {
        format!("{}:birth", self.prefix)
    }

    /// A name among ours that stands for no key: `%` is never alone in one.
    pub(crate) fn nobody(&self) -> String {
        format!("{}:{{%}}", self.prefix)
    }

    /// Such a name and the birth marker of one slot of a cluster.
    pub(crate) fn in_slot(&self, slot: u16) -> (String, String) {
        (
            in_slot(&format!("{}:nobody", self.prefix), slot),
            in_slot(&self.birth(), slot),
        )
    }

    /// A pattern for all of our names and channels, as rights are given.
    pub(crate) fn everything(&self) -> String {
        let mut pattern = String::new();
        push_glob_escaped(&mut pattern, &self.prefix);
        pattern.push_str(":*");
        pattern
    }

    /// A SCAN pattern for the records of the keys that start with `prefix`.
    /// Tombstones do not match: they do not end with a brace.
    pub(crate) fn pattern(&self, prefix: &str) -> String {
        let mut pattern = String::new();
        push_glob_escaped(&mut pattern, &self.prefix);
        pattern.push_str(":{");
        let mut encoded = String::new();
        push_encoded(&mut encoded, prefix);
        push_glob_escaped(&mut pattern, &encoded);
        pattern.push_str("*}");
        pattern
    }

    /// The key of a record's name; `None` if that is nothing of ours.
    pub(crate) fn key_of(&self, record: &str) -> Option<Key> {
        let encoded = record
            .strip_prefix(&self.prefix)?
            .strip_prefix(":{")?
            .strip_suffix('}')?;
        Key::new(decoded(encoded)?).ok()
    }

    fn tagged(&self, kind: &str, key: &Key) -> String {
        let mut name =
            String::with_capacity(self.prefix.len() + kind.len() + key.as_str().len() + 3);
        name.push_str(&self.prefix);
        name.push(':');
        name.push_str(kind);
        name.push('{');
        push_encoded(&mut name, key.as_str());
        name.push('}');
        name
    }
}

/// The name's namesake in this slot of a cluster.
pub(crate) fn in_slot(name: &str, slot: u16) -> String {
    format!("{name}:{{{}}}", slot::tag(slot))
}

fn push_encoded(name: &mut String, key: &str) {
    for part in key.split_inclusive(['%', '{', '}']) {
        let Some(plain) = part.strip_suffix(['%', '{', '}']) else {
            name.push_str(part);
            continue;
        };
        name.push_str(plain);
        name.push_str(match part.as_bytes().last() {
            Some(b'%') => "%25",
            Some(b'{') => "%7B",
            _ => "%7D",
        });
    }
}

/// Only what [`push_encoded`] writes, so that no two names mean one key.
fn decoded(name: &str) -> Option<String> {
    let mut parts = name.split('%');
    let mut key = parts.next()?.to_owned();
    if key.contains(['{', '}']) {
        return None;
    }
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        key.push(match code {
            "25" => '%',
            "7B" => '{',
            "7D" => '}',
            _ => return None,
        });
        if rest.contains(['{', '}']) {
            return None;
        }
        key.push_str(rest);
    }
    Some(key)
}

/// What means something outside of brackets; `]`, `^` and `-` do inside alone.
fn push_glob_escaped(pattern: &mut String, text: &str) {
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new("p").unwrap()
    }

    #[test]
    fn names_are_as_ever() {
        // Golden: programs of different versions must exclude each other.
        let record = |key: &str| names().record(&Key::new(key).unwrap());
        assert_eq!(record("a/b"), "p:{a/b}");
        assert_eq!(record("{x}"), "p:{%7Bx%7D}");
        assert_eq!(record("}%7B"), "p:{%7D%257B}");
        assert_eq!(record("é *"), "p:{é *}");
        let key = Key::new("k").unwrap();
        assert_eq!(names().gate(&key), "p:gate:{k}");
        assert_eq!(
            names().queue(&Key::new("{q}:").unwrap()),
            "p:queue:{%7Bq%7D:}"
        );
        assert_eq!(names().birth(), "p:birth");
        assert_eq!(names().key_of(&names().nobody()), None);
        assert_eq!(Names::new("a*b").unwrap().everything(), "a\\*b:*");
        assert_eq!(Names::new("my-app]^").unwrap().everything(), "my-app]^:*");
    }

    #[test]
    fn every_slot_of_a_cluster_has_a_marker_of_its_own() {
        // Golden, as all names are.
        let (nobody, birth) = names().in_slot(0);
        assert_eq!(birth, "p:birth:{3560}");
        assert_eq!(names().key_of(&nobody), None);
        assert_eq!(names().key_of(&birth), None);
        for key in ["a", "{a}", "{}", "a}b{c", "é *"] {
            let record = names().record(&Key::new(key).unwrap());
            let (_, birth) = names().in_slot(slot::of(&record));
            assert_eq!(slot::of(&birth), slot::of(&record), "{key}");
        }
        let record = names().record(&Key::new("a").unwrap());
        assert_eq!(names().in_slot(slot::of(&record)).1, "p:birth:{20200}");
    }

    #[test]
    fn a_name_leads_back_to_its_key_and_no_other_does() {
        for key in [
            "a",
            "{",
            "}",
            "%",
            "%7B",
            "{a}b{",
            "%25%7d",
            "a}:b",
            "é😀*?[x]\\",
        ] {
            let key = Key::new(key).unwrap();
            assert_eq!(names().key_of(&names().record(&key)), Some(key));
        }
        for odd in [
            "p:{}",
            "p:{a",
            "q:{a}",
            "p:{a}:00",
            "p:{%7b}",
            "p:{%}",
            "p:{a{b}",
            "p:gate:{a}",
        ] {
            assert_eq!(names().key_of(odd), None, "{odd}");
        }
    }

    #[test]
    fn patterns_match_no_more_than_the_prefix() {
        let names = Names::new("my*app").unwrap();
        assert_eq!(names.pattern(""), "my\\*app:{*}");
        assert_eq!(names.pattern("a*{[b"), "my\\*app:{a\\*%7B\\[b*}");
    }

    #[test]
    fn prefixes_have_limits() {
        let long = "p".repeat(129);
        for bad in ["", "a{b", "a}b", "a\nb", &long] {
            assert!(Names::new(bad).is_err(), "{bad}");
        }
        assert!(Names::new(&long[1..]).is_ok());
    }
}
