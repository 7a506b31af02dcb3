//! A store that was opened: its leases and its gate.

use std::fmt;
use std::sync::Arc;

use lease_core::{Gate, LeaseBackend, Leases, LeasesBuilder};

/// A store and the gate that it keeps for fencing.
///
/// Cheap to clone; a clone is the same client.
#[derive(Clone)]
pub struct Store {
    backend: Arc<dyn LeaseBackend>,
    gate: Arc<dyn Gate>,
}

impl Store {
    /// A store made of parts of the caller's own: one that was opened with
    /// settings that no URL can say, say, or one of another crate.
    #[must_use]
    pub fn new(backend: Arc<dyn LeaseBackend>, gate: Arc<dyn Gate>) -> Self {
        Self { backend, gate }
    }

    /// The leases.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn LeaseBackend> {
        &self.backend
    }

    /// The gate: admits fencing tokens at a resource, and remembers the
    /// highest.
    #[must_use]
    pub fn gate(&self) -> &Arc<dyn Gate> {
        &self.gate
    }

    /// A client with settings of your own.
    pub fn leases(&self) -> LeasesBuilder {
        Leases::builder(Arc::clone(&self.backend))
    }
}

#[cfg(feature = "sqlite")]
impl From<lease_sqlite::SqliteStore> for Store {
    fn from(store: lease_sqlite::SqliteStore) -> Self {
        Self::new(Arc::new(store.clone()), Arc::new(store))
    }
}

#[cfg(feature = "postgres")]
impl From<lease_postgres::PostgresStore> for Store {
    fn from(store: lease_postgres::PostgresStore) -> Self {
        Self::new(Arc::new(store.clone()), Arc::new(store))
    }
}

#[cfg(feature = "redis")]
impl From<lease_redis::RedisStore> for Store {
    fn from(store: lease_redis::RedisStore) -> Self {
        Self::new(Arc::new(store.clone()), Arc::new(store))
    }
}

#[cfg(feature = "redis")]
impl From<lease_redis::RedlockStore> for Store {
    fn from(store: lease_redis::RedlockStore) -> Self {
        Self::new(Arc::new(store.clone()), Arc::new(store))
    }
}

/// The store's name and nothing of its URL, which may hold secrets.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("store", &self.backend.guarantees().store)
            .finish_non_exhaustive()
    }
}
