//! What an author of a store of queues gives to the suite.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use lease_queue::QueueStore;

use crate::fixture::FixtureError;
use crate::hooks::{Network, Restart};

/// Gives every case a store of its own, as [`Fixture`](crate::Fixture) does.
#[async_trait]
pub trait QueueFixture: Send + Sync + 'static {
    /// Opens an **empty** store that nobody else uses, on the runtime of the case.
    ///
    /// # Errors
    /// What kept the store from opening; the case fails with it.
    async fn open(&self) -> Result<Box<dyn QueueTarget>, FixtureError>;
}

/// One case's store, as [`Store`](crate::Store) for leases, with the same hooks.
#[async_trait]
pub trait QueueTarget: Send + Sync + 'static {
    /// A new client, as independent of the others as two processes would be.
    ///
    /// # Errors
    /// What kept it from connecting; the case fails with it.
    async fn client(&self) -> Result<Arc<dyn QueueStore>, FixtureError>;

    /// Crashes the store and starts it again **with its data**, if the fixture can do
    /// that. Defaults to `None`.
    fn restart(&self) -> Option<&dyn Restart> {
        None
    }

    /// Loses replies, if the fixture can do that. Defaults to `None`.
    fn network(&self) -> Option<&dyn Network> {
        None
    }

    /// Cleans up after the case; not called when the case panicked or hung. Defaults
    /// to nothing.
    async fn close(self: Box<Self>) {}
}

/// A fixture from two closures: `open` makes a store, and what it returns makes clients
/// of that store. What the second closure owns is the guard.
pub fn fixture_fn<O, F, C>(open: O) -> impl QueueFixture
where
    O: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = Result<C, FixtureError>> + Send + 'static,
    C: Fn() -> Arc<dyn QueueStore> + Send + Sync + 'static,
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
impl<O, F, C> QueueFixture for FixtureFn<O>
where
    O: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = Result<C, FixtureError>> + Send + 'static,
    C: Fn() -> Arc<dyn QueueStore> + Send + Sync + 'static,
{
    async fn open(&self) -> Result<Box<dyn QueueTarget>, FixtureError> {
        let clients = (self.0)().await?;
        Ok(Box::new(TargetFn(clients)))
    }
}

struct TargetFn<C>(C);

#[async_trait]
impl<C> QueueTarget for TargetFn<C>
where
    C: Fn() -> Arc<dyn QueueStore> + Send + Sync + 'static,
{
    async fn client(&self) -> Result<Arc<dyn QueueStore>, FixtureError> {
        Ok((self.0)())
    }
}
