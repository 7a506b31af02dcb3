//! Workers as the one who harms them sees them.

use std::sync::Arc;

use async_trait::async_trait;
use lease_queue::QueueStore;

use crate::worker::Order;

/// Where workers come from.
#[async_trait]
pub(crate) trait Crew: Sync {
    /// The store's URL, where it has one.
    fn url(&self) -> String;

    /// A client of the store that all workers use, for the one who watches.
    async fn store(&self) -> Arc<dyn QueueStore>;

    fn hire(&self, order: Order) -> Box<dyn Worker>;
}

/// One worker.
pub(crate) trait Worker {
    /// Ends it where it is: nothing of it runs on, and nothing is told to anybody.
    fn kill(&mut self);

    /// Makes it stand still where it is.
    fn stop(&mut self);

    /// Lets it go on, as if nothing had been.
    fn go_on(&mut self);

    /// Fails when it has ended by itself.
    fn is_at_work(&mut self);

    /// Lets it end its present items; fails when it does not end well.
    fn dismiss(&mut self);
}
