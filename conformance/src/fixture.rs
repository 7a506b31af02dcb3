//! What an author of a backend gives to the suite: a fresh store for each
//! case, and clients of it.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::LeaseBackend;

use crate::hooks::{LoseData, Network, Pause, Restart, Spoiling};

/// Whatever kept a fixture from doing its part.
pub type FixtureError = Box<dyn StdError + Send + Sync>;

/// Gives every case a store of its own.
///
/// The cases run at the same time, each on its own tokio runtime, so nothing
/// that lives in one runtime (a pool, a connection) may be shared by two
/// stores.
#[async_trait]
pub trait Fixture: Send + Sync + 'static {
    /// Opens an **empty** store that nobody else uses: a new database, schema,
    /// bucket or key prefix.
    ///
    /// It is called on the runtime of the case that will use the store.
    ///
    /// # Errors
    /// What kept the store from opening; the case fails with it.
    async fn open(&self) -> Result<Box<dyn Store>, FixtureError>;
}

/// One case's store. Dropping it cleans up what can be cleaned up without
/// waiting; [`close`](Self::close) does the rest.
///
/// The hooks declare what can be done to this store beyond the contract's own
/// operations. A case that needs a hook which is not there is shown as ignored
/// with that reason.
///
/// What a hook does must reach this store alone. Where all stores of a fixture
/// live on one server, only the network and foreign values can be this store's
/// own; the others need a fixture that opens a server for each case.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// A new client, as independent of the others as two processes would be: its
    /// own connections, caches and background tasks.
    ///
    /// # Errors
    /// What kept it from connecting; the case fails with it.
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError>;

    /// How long this store remembers an abandoned owner, if it was opened with
    /// a retention short enough to wait for. Defaults to `None`.
    ///
    /// Ten seconds, say: other cases must not see the end of it, however slow
    /// the machine.
    fn tombstone_retention(&self) -> Option<Duration> {
        None
    }

    /// Crashes the store and starts it again **with its data**, if the fixture
    /// can do that. Defaults to `None`.
    fn restart(&self) -> Option<&dyn Restart> {
        None
    }

    /// Takes the store's data away, if the fixture can do that. Defaults to
    /// `None`.
    fn lose_data(&self) -> Option<&dyn LoseData> {
        None
    }

    /// Makes the store stand still for a while, if the fixture can do that.
    /// Defaults to `None`.
    fn pause(&self) -> Option<&dyn Pause> {
        None
    }

    /// Cuts clients off, if the fixture can do that. Defaults to `None`.
    fn network(&self) -> Option<&dyn Network> {
        None
    }

    /// Puts foreign values where the store keeps its keys, if the fixture can
    /// do that. Defaults to `None`.
    fn spoiling(&self) -> Option<&dyn Spoiling> {
        None
    }

    /// Cleans up after the case; not called when the case panicked or hung.
    /// Defaults to nothing.
    async fn close(self: Box<Self>) {}
}

/// A fixture from two closures: `open` makes a store, and what it returns makes
/// clients of that store. What the second closure owns is the guard.
///
/// ```
/// use std::sync::Arc;
/// use lease_conformance::fixture_fn;
/// use lease_core::{LeaseBackend, MemoryStore};
///
/// let fixture = fixture_fn(|| async {
///     let store = MemoryStore::new();
///     Ok(move || Arc::new(store.clone()) as Arc<dyn LeaseBackend>)
/// });
/// # let _ = fixture;
/// ```
pub fn fixture_fn<O, F, C>(open: O) -> impl Fixture
where
    O: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = Result<C, FixtureError>> + Send + 'static,
    C: Fn() -> Arc<dyn LeaseBackend> + Send + Sync + 'static,
{
    FixtureFn(open)
}

struct FixtureFn<O>(O);

impl<O> fmt::Debug for FixtureFn<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FixtureFn")
    }
}

#[async_trait]
impl<O, F, C> Fixture for FixtureFn<O>
where
    O: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = Result<C, FixtureError>> + Send + 'static,
    C: Fn() -> Arc<dyn LeaseBackend> + Send + Sync + 'static,
{
    async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
        let clients = (self.0)().await?;
        Ok(Box::new(StoreFn(clients)))
    }
}

struct StoreFn<C>(C);

#[async_trait]
impl<C> Store for StoreFn<C>
where
    C: Fn() -> Arc<dyn LeaseBackend> + Send + Sync + 'static,
{
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        Ok((self.0)())
    }
}
