//! One part of a store's keys, as if it were the whole store.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};

use crate::backend::{
    AcquireOutcome, AcquireRequest, FenceWhen, KeyState, LeaseBackend, ReleaseOutcome,
    RenewOutcome, RenewRequest, Session,
};
use crate::diagnosis::Diagnosis;
use crate::error::{InvalidInput, StoreError};
use crate::guarantees::Guarantees;
use crate::key::{Key, MAX_KEY_BYTES};
use crate::owner::Owner;
use crate::token::Token;
use crate::ttl::Ttl;

/// The keys of a store that start with `namespace:`, without that prefix.
///
/// The key `k` in the namespace `a` is the key `a:k` of the store, as anybody
/// who looks at the whole store sees it. A namespace's name holds no `:`, so
/// two namespaces never share a key.
#[derive(Debug)]
pub struct Namespace {
    backend: Arc<dyn LeaseBackend>,
    prefix: String,
}

impl Namespace {
    /// The part of `backend` below `namespace`.
    ///
    /// # Errors
    /// [`InvalidInput`] when `namespace` is empty, holds a `:` or a control
    /// character, or leaves no room for a key.
    pub fn new(backend: Arc<dyn LeaseBackend>, namespace: &str) -> Result<Self, InvalidInput> {
        Key::new(namespace)?;
        if namespace.contains(':') {
            return Err(InvalidInput::NamespaceHoldsColon);
        }
        let prefix = format!("{namespace}:");
        let max = backend.guarantees().max_key_bytes;
        if prefix.len() >= max {
            return Err(InvalidInput::NamespaceTooLong { max });
        }
        Ok(Self { backend, prefix })
    }

    fn inside(&self, key: &Key) -> Result<Key, InvalidInput> {
        let whole = format!("{}{key}", self.prefix);
        Key::new(&whole).map_err(|_| InvalidInput::KeyTooLongForStore {
            bytes: key.as_str().len(),
            max: MAX_KEY_BYTES - self.prefix.len(),
        })
    }

    fn renewal(&self, request: &RenewRequest) -> Result<RenewRequest, InvalidInput> {
        Ok(RenewRequest {
            key: self.inside(&request.key)?,
            ..request.clone()
        })
    }
}

#[async_trait]
impl LeaseBackend for Namespace {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        let request = AcquireRequest {
            key: self.inside(&request.key)?,
            ..request.clone()
        };
        self.backend.acquire(&request).await
    }

    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        self.backend.abandon(&self.inside(key)?, owner).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        self.backend.renew(&self.renewal(request)?).await
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        // A key too long to be inside was never granted; it fails on its own.
        let inside: Vec<_> = requests.iter().map(|r| self.renewal(r)).collect();
        let valid: Vec<_> = inside.iter().filter_map(|r| r.clone().ok()).collect();
        let mut outcomes = self.backend.renew_many(&valid).await.into_iter();
        let missing = || Err(StoreError::unknown_outcome("no outcome for this renewal"));
        inside
            .into_iter()
            .map(|request| match request {
                Ok(_) => outcomes.next().unwrap_or_else(missing),
                Err(invalid) => Err(invalid.into()),
            })
            .collect()
    }

    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        self.backend.release(&self.inside(key)?, owner, token).await
    }

    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        self.backend.fence(&self.inside(key)?, at_least, when).await
    }

    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        let state = self.backend.inspect(&self.inside(key)?).await?;
        Ok(KeyState {
            key: key.clone(),
            ..state
        })
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        let own = self.prefix.clone();
        self.backend
            .list(&format!("{}{prefix}", self.prefix))
            .flat_map(move |state| {
                stream::iter(match state {
                    // `ns:` alone is a key of the whole store, not of ours.
                    Ok(state) => state
                        .key
                        .as_str()
                        .strip_prefix(&own)
                        .and_then(|key| Key::new(key).ok())
                        .map(|key| Ok(KeyState { key, ..state })),
                    Err(error) => Some(Err(error)),
                })
            })
            .boxed()
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        self.backend.watch(&self.inside(key)?).await
    }

    async fn ping(&self) -> Result<Session, StoreError> {
        self.backend.ping().await
    }

    fn guarantees(&self) -> Guarantees {
        let whole = self.backend.guarantees();
        let bytes = whole.max_key_bytes.saturating_sub(self.prefix.len());
        whole.max_key_bytes(bytes)
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.backend.diagnose(ttl).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;

    #[tokio::test]
    async fn names_are_checked_and_errors_speak_of_the_callers_key() {
        let store: Arc<dyn LeaseBackend> = Arc::new(MemoryStore::new());
        let of = |name: &str| Namespace::new(Arc::clone(&store), name);
        assert!(matches!(of(""), Err(InvalidInput::KeyEmpty)));
        assert!(matches!(of("a:b"), Err(InvalidInput::NamespaceHoldsColon)));
        let long = "n".repeat(511);
        assert!(matches!(
            of(&long),
            Err(InvalidInput::NamespaceTooLong { max: 512 })
        ));
        let narrow = of(&"n".repeat(510)).unwrap();
        assert_eq!(narrow.guarantees().max_key_bytes, 1);
        let within: Arc<dyn LeaseBackend> = Arc::new(narrow);
        assert!(Namespace::new(within, "x").is_err());
        let ns = of("ns").unwrap();
        let key = Key::new("k".repeat(510)).unwrap();
        let error = ns.inspect(&key).await.unwrap_err().to_string();
        assert!(error.contains("510") && error.contains("509"), "{error}");
    }
}
