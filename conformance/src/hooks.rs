//! What a fixture can do to its store, or to the way there: each is a hook that
//! a [`Store`](crate::Store) may offer.

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use lease_core::Key;

use crate::fixture::FixtureError;

/// Crashes a store and starts it again with the data that it kept.
#[async_trait]
pub trait Restart: Send + Sync {
    /// Kills the store, so that it has no time to save anything, and returns
    /// once it answers again. Clients that were opened before it must go on
    /// working; they may reconnect.
    ///
    /// # Errors
    /// What kept it from coming back; the case fails with it.
    async fn restart(&self) -> Result<(), FixtureError>;
}

/// Makes a store forget everything.
#[async_trait]
pub trait LoseData: Send + Sync {
    /// Kills the store, takes its data away, and returns once it answers again,
    /// empty. Clients that were opened before it must go on working; they may
    /// reconnect.
    ///
    /// # Errors
    /// What kept it from coming back; the case fails with it.
    async fn lose_data(&self) -> Result<(), FixtureError>;
}

/// Makes a store stand still: it takes requests, and answers none.
#[async_trait]
pub trait Pause: Send + Sync {
    /// Returns when the store answers nothing any more.
    ///
    /// # Errors
    /// What kept it from standing still; the case fails with it.
    async fn pause(&self) -> Result<(), FixtureError>;

    /// Lets it go on, with the requests that came meanwhile.
    ///
    /// # Errors
    /// What kept it from going on; the case fails with it.
    async fn resume(&self) -> Result<(), FixtureError>;
}

/// The network between a store and its clients.
#[async_trait]
pub trait Network: Send + Sync {
    /// Cuts all connections to the store, now; new ones may be made.
    ///
    /// # Errors
    /// What went wrong; the case fails with it.
    async fn cut(&self) -> Result<(), FixtureError>;

    /// Loses one reply: the store gets the next request that any client sends
    /// and does what it asks, and the client's connection is cut before the
    /// reply is there. (The request of an operation, not one that a client sends
    /// by itself.)
    ///
    /// Returns when it is prepared. What it gives ends when the reply was lost;
    /// it is dropped when a case waits no longer.
    ///
    /// # Errors
    /// What went wrong; the case fails with it.
    async fn lose_reply(&self) -> Result<BoxFuture<'static, ()>, FixtureError>;
}

/// What stands at a key's place and is not what the store would write there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Spoil {
    /// A value of another type than the store keeps: a list for a hash, a
    /// folder for a file.
    ForeignType,
    /// A value of the right type that another program wrote.
    ForeignText,
    /// The store's own, with a part of it missing or turned into nonsense.
    Torn,
}

impl Spoil {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ForeignType, Self::ForeignText, Self::Torn];
}

/// Writes into the store behind its back.
#[async_trait]
pub trait Spoiling: Send + Sync {
    /// Puts a foreign value at the place of this key, over what is there; gives
    /// `false` if this store's places cannot have such a value.
    ///
    /// # Errors
    /// What went wrong; the case fails with it.
    async fn spoil(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError>;

    /// Whether the value is as [`spoil`](Self::spoil) left it, its expiry
    /// included, where values have one.
    ///
    /// # Errors
    /// What went wrong; the case fails with it.
    async fn spoiled_is_intact(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError>;
}
