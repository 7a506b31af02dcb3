//! Something for each tokio runtime that a store is used from, since connections
//! live and die with the runtime that opened them.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use lease_core::{StoreError, StoreErrorKind};
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

/// What ends with its runtime.
pub(crate) trait Ends: Send + Sync + 'static {
    /// The runtime has ended: nobody who waits will get an answer.
    fn end(&self);
}

/// One for each runtime.
pub(crate) struct Runtimes<T: Ends>(Arc<Mutex<Vec<Place<T>>>>);

struct Place<T> {
    id: runtime::Id,
    is: Arc<T>,
    /// Ends the task that would forget this.
    _alive: oneshot::Sender<()>,
}

impl<T: Ends> Default for Runtimes<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

fn lock<T>(all: &Mutex<Vec<Place<T>>>) -> MutexGuard<'_, Vec<Place<T>>> {
    // Nothing panics while it is being changed.
    all.lock().unwrap_or_else(|e| e.into_inner())
}

impl<T: Ends> Runtimes<T> {
    /// That of the runtime that we are on; made if there is none.
    ///
    /// # Errors
    /// `InvalidInput` outside of a runtime.
    pub(crate) fn here(&self, make: impl FnOnce(&Handle) -> T) -> Result<Arc<T>, StoreError> {
        let runtime = Handle::try_current().map_err(|error| {
            let words = "lease-postgres needs a tokio runtime; call it from within one";
            StoreError::with_source(StoreErrorKind::InvalidInput, words, error)
        })?;
        let id = runtime.id();
        let mut all = lock(&self.0);
        if let Some(place) = all.iter().find(|place| place.id == id) {
            return Ok(Arc::clone(&place.is));
        }
        let is = Arc::new(make(&runtime));
        let (alive, gone) = oneshot::channel::<()>();
        all.push(Place {
            id,
            is: Arc::clone(&is),
            _alive: alive,
        });
        // A runtime that is shutting down drops the task at once, and what it
        // forgets by takes the lock.
        drop(all);
        let forget = Forget {
            all: Arc::downgrade(&self.0),
            id,
        };
        runtime.spawn(async move {
            let _forget = forget;
            let _ = gone.await;
        });
        Ok(is)
    }
}

/// Forgets a runtime's when the runtime drops its tasks.
struct Forget<T: Ends> {
    all: Weak<Mutex<Vec<Place<T>>>>,
    id: runtime::Id,
}

impl<T: Ends> Drop for Forget<T> {
    fn drop(&mut self) {
        if let Some(all) = self.all.upgrade() {
            let gone: Vec<_> = lock(&all).extract_if(.., |p| p.id == self.id).collect();
            gone.iter().for_each(|place| place.is.end());
        }
    }
}
