//! What a store remembers for a while: tombstones, and what was settled.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A map whose entries end by themselves.
#[derive(Debug)]
pub(crate) struct Fading<K, V> {
    entries: HashMap<K, (V, (u64, u64))>,
    /// In the order in which they end, to forget the old ones cheaply.
    order: BTreeMap<(u64, u64), K>,
    next: u64,
}

impl<K: Clone + Eq + Hash, V> Fading<K, V> {
    pub(crate) fn new() -> Self {
        Self {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
        }
    }

    /// Until `until_us`, or until when it was to last before, if that is later.
    pub(crate) fn put(&mut self, key: K, value: V, now_us: u64, until_us: u64) {
        self.forget(now_us);
        let mut place = (until_us, self.next);
        self.next += 1;
        if let Some((_, known)) = self.entries.remove(&key) {
            self.order.remove(&known);
            place.0 = place.0.max(known.0);
        }
        self.order.insert(place, key.clone());
        self.entries.insert(key, (value, place));
    }

    pub(crate) fn get(&self, key: &K, now_us: u64) -> Option<&V> {
        let (value, (until_us, _)) = self.entries.get(key)?;
        (now_us < *until_us).then_some(value)
    }

    /// All of them, with their ends, in the order in which they end.
    #[cfg(feature = "nats")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V, u64)> {
        self.order.iter().filter_map(|((until_us, _), key)| {
            let (value, _) = self.entries.get(key)?;
            Some((key, value, *until_us))
        })
    }

    fn forget(&mut self, now_us: u64) {
        while let Some(entry) = self.order.first_entry() {
            if entry.key().0 > now_us {
                break;
            }
            self.entries.remove(&entry.remove());
        }
    }
}
