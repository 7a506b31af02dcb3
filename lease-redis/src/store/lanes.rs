//! The connections of a store, a set for each runtime that it is used from.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lease_core::StoreError;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use super::way::Way;
use crate::cluster::Router;
use crate::lane::Lane;
use crate::link::{Link, Origin};
use crate::options::{RedisOptions, Wait};
use crate::script::{Script, Sender};
use crate::sentinel::Following;
use crate::servers::Servers;
use crate::wake::WakeUps;

/// Batches under way at once over one connection: a few keep the server busy
/// while answers are on their way; many would only make batches smaller.
const WIDTH: usize = 4;

/// What the clones of a store share.
pub(super) struct Inner {
    pub(super) options: RedisOptions,
    pub(super) origin: Origin,
    pub(super) script: Arc<Script>,
    pub(super) wake_ups: Option<WakeUps>,
    pub(super) lanes: Mutex<Vec<(runtime::Id, Arc<Lanes>)>>,
}

/// The connections of one runtime.
pub(super) struct Lanes {
    pub(super) way: Way,
    /// Hears of another primary.
    _following: Option<Following>,
    /// Ends the task that would forget this.
    _alive: oneshot::Sender<()>,
}

impl Inner {
    /// The connections of the runtime that we are on.
    pub(super) fn lanes(self: &Arc<Self>) -> Result<Arc<Lanes>, StoreError> {
        let runtime = Handle::try_current().map_err(|error| {
            let words = "lease-redis needs a tokio runtime; call it from within one";
            StoreError::with_source(lease_core::StoreErrorKind::InvalidInput, words, error)
        })?;
        let id = runtime.id();
        let mut all = self.lanes.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, lanes)) = all.iter().find(|(known, _)| *known == id) {
            return Ok(Arc::clone(lanes));
        }
        let lane = |wait: Option<Wait>, width| {
            // A WAIT is answered late, and rightly so.
            let slack = wait.map_or(Duration::ZERO, |wait| wait.within);
            let link = Link::new(self.origin.clone(), slack);
            let sender = Sender::new(link, Arc::clone(&self.script), wait);
            Lane::new(sender, runtime.clone(), width)
        };
        let way = match &self.options.servers {
            Servers::Cluster(seeds) => Way::Cluster(Router::new(
                (**seeds).clone(),
                self.options.connect_timeout,
                self.options.response_timeout,
                Arc::clone(&self.script),
                runtime.clone(),
            )),
            Servers::One(_) | Servers::Sentinels(_) => Way::One {
                plain: lane(None, WIDTH),
                // One at a time: the next batch could not pass the WAIT anyway.
                waiting: self.options.wait.map(|wait| lane(Some(wait), 1)),
            },
        };
        let (alive, gone) = oneshot::channel::<()>();
        let following = self.options.servers.follow(
            &runtime,
            self.options.connect_timeout,
            self.options.response_timeout,
        );
        let lanes = Arc::new(Lanes {
            way,
            _following: following.filter(|_| matches!(self.origin, Origin::Servers { .. })),
            _alive: alive,
        });
        all.push((id, Arc::clone(&lanes)));
        // A runtime that is shutting down drops the task at once, and what it
        // forgets by takes the lock.
        drop(all);
        let forget = Forget {
            inner: Arc::downgrade(self),
            id,
        };
        runtime.spawn(async move {
            let _forget = forget;
            let _ = gone.await;
        });
        Ok(lanes)
    }
}

/// Forgets a runtime's connections when the runtime drops its tasks.
struct Forget {
    inner: Weak<Inner>,
    id: runtime::Id,
}

impl Drop for Forget {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            let mut all = inner.lanes.lock().unwrap_or_else(|e| e.into_inner());
            let gone: Vec<_> = all.extract_if(.., |(id, _)| *id == self.id).collect();
            drop(all);
            for (_, lanes) in gone {
                lanes.way.close();
            }
        }
    }
}
