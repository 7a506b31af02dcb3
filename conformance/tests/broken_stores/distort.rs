//! What a faulty store makes of keys and TTLs.

use std::time::Duration;

use lease_core::{Key, Ttl};

use crate::fault::Fault;

impl Fault {
    /// The key under which the store keeps what belongs to `key`.
    pub(crate) fn stored_key(self, key: &Key) -> Key {
        let text = key.as_str();
        let changed = match self {
            Fault::FoldsCase => text.to_lowercase(),
            Fault::TrimsKeys => text.trim().to_owned(),
            Fault::CutsKeys => text.chars().take(64).collect(),
            Fault::SplitsKeysAtSlashes => text.replace("//", "/").trim_end_matches('/').to_owned(),
            Fault::HashesBracedPart => match (text.find('{'), text.find('}')) {
                (Some(from), Some(to)) if from + 1 < to => text[from..=to].to_owned(),
                _ => text.to_owned(),
            },
            _ => return key.clone(),
        };
        Key::new(changed).unwrap_or_else(|_| key.clone())
    }

    pub(crate) fn stored_ttl(self, ttl: Ttl) -> Ttl {
        let hour = Duration::from_secs(3600);
        let stored = match self {
            Fault::CutsLongTtls => ttl.get().min(hour),
            Fault::HalvesTtls => ttl.get() / 2,
            Fault::NeverEndsShortTtls if ttl == Ttl::MIN => Ttl::MAX.get(),
            Fault::DoublesTtls => ttl.get() * 2,
            Fault::KeepsWholeSeconds => Duration::from_secs(ttl.get().as_secs().max(1)),
            Fault::WrapsTtls => Duration::from_millis(ttl.as_millis() & 0x7fff_ffff),
            _ => ttl.get(),
        };
        let stored = stored.clamp(Ttl::MIN.get(), Ttl::MAX.get());
        Ttl::new(stored).unwrap_or(ttl)
    }
}
