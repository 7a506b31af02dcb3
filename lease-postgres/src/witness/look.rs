//! Looks at the sessions of holders that are in the way, once in a second at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lease_core::{Holder, Key};
use tokio::time::Instant;

use crate::lane::Lane;
use crate::reply::Reply;
use crate::request::Request;

/// A hair less than a second, after which waiters ask again.
const APART: Duration = Duration::from_millis(900);
/// Remembered at most, apart from those of the last second.
const REMEMBERED: usize = 1024;

/// When each grant's session was last looked at.
#[derive(Debug, Default)]
pub(crate) struct Looks(Mutex<HashMap<(Key, i64), Instant>>);

impl Looks {
    /// What is known of the holder after a look at its session, if it is time for
    /// one. A look that fails tells nothing, and changes nothing.
    ///
    /// # Cancel safety
    /// Safe: a grant whose session is gone may be shortened.
    pub(crate) async fn look(
        &self,
        lane: &Arc<Lane>,
        key: &Key,
        session: i64,
        mut holder: Holder,
    ) -> Holder {
        if !self.is_time(key, session) {
            return holder;
        }
        match lane.ask(Request::suspect(key, session)).await {
            Ok(Reply::Suspected { gone, remaining }) => {
                if gone {
                    // What could not be changed now can be soon.
                    self.known().remove(&(key.clone(), session));
                }
                holder.remaining = remaining.map_or(holder.remaining, |r| r.min(holder.remaining));
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(
                target: "leases",
                key = key.as_str(),
                error = %error,
                "the holder's session was not looked at"
            ),
        }
        holder
    }

    fn is_time(&self, key: &Key, session: i64) -> bool {
        let mut known = self.known();
        let now = Instant::now();
        if known.len() >= REMEMBERED {
            known.retain(|_, last| now.duration_since(*last) < APART);
        }
        let place = (key.clone(), session);
        match known.get(&place) {
            Some(last) if now.duration_since(*last) < APART => false,
            _ => {
                known.insert(place, now);
                true
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(Key, i64), Instant>> {
        // Nothing panics while it is being changed.
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}
