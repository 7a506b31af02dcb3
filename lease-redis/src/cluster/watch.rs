//! Wake-ups of a key, from whichever node has its slot.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::StoreError;
use tokio::sync::watch;

use super::look::Known;
use super::route::Router;
use super::slot;
use crate::address::Address;
use crate::servers::Servers;
use crate::wake::WakeUps;

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// One watcher of one channel.
struct Watching {
    router: Arc<Router>,
    channel: String,
    slot: u16,
    known: watch::Receiver<Known>,
    /// The node, and its hints.
    at: Address,
    hints: BoxStream<'static, ()>,
}

impl Router {
    /// Hints for each message on the channel, as [`WakeUps::watch`] gives them;
    /// and one when the slot has moved and the new node was subscribed to.
    pub(crate) async fn watch(
        self: &Arc<Self>,
        channel: String,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        let slot = slot::of(&channel);
        let known = self.known.subscribe();
        let (at, hints) = match self.hints(slot, &channel).await {
            Ok(found) => found,
            // Somebody else may have the slot.
            Err(_) => {
                self.look().await?;
                self.hints(slot, &channel).await?
            }
        };
        let watching = Watching {
            router: Arc::clone(self),
            channel,
            slot,
            known,
            at,
            hints,
        };
        Ok(stream::unfold(watching, |mut watching| async move {
            watching.next().await.map(|()| ((), watching))
        })
        .boxed())
    }

    async fn hints(
        &self,
        slot: u16,
        channel: &str,
    ) -> Result<(Address, BoxStream<'static, ()>), StoreError> {
        let node = self.owner(slot).await?;
        let wake_ups = match node.wake_ups.get() {
            Some(wake_ups) => wake_ups,
            None => {
                let new = self.wake_ups(&node.address)?;
                node.wake_ups.get_or_init(|| new)
            }
        };
        let hints = wake_ups.watch(channel.to_owned()).await?;
        Ok((node.address.clone(), hints))
    }

    fn wake_ups(&self, address: &Address) -> Result<WakeUps, StoreError> {
        let us = Weak::clone(&self.us);
        let lost = move || {
            if let Some(router) = us.upgrade() {
                router.refresh();
            }
        };
        let server = Servers::one(self.client(address)?);
        let new = WakeUps::new(server, self.connect_timeout, self.response_timeout);
        Ok(new.sharded(Arc::new(lost)))
    }
}

impl Watching {
    /// `None` when the runtime has ended.
    async fn next(&mut self) -> Option<()> {
        loop {
            if self.known.borrow().closed {
                return None;
            }
            if self.has_moved() {
                self.follow().await;
                return Some(());
            }
            tokio::select! {
                hint = self.hints.next() => return hint,
                news = self.known.changed() => news.ok()?,
            }
        }
    }

    fn has_moved(&mut self) -> bool {
        let known = self.known.borrow_and_update();
        let owner = known.map.owner(self.slot);
        owner.is_some_and(|owner| *owner != self.at)
    }

    /// Until it hears the node that has the slot now; whatever was published
    /// meanwhile was missed.
    async fn follow(&mut self) {
        let mut pause = FIRST_PAUSE;
        while !self.known.borrow().closed {
            match self.router.hints(self.slot, &self.channel).await {
                Ok((at, hints)) => {
                    (self.at, self.hints) = (at, hints);
                    return;
                }
                Err(error) => tracing::debug!(
                    target: "leases",
                    %error,
                    "wake-ups do not follow their slot yet; it is tried again"
                ),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            self.router.refresh();
        }
    }
}
