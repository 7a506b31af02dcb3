//! Many renewals at once, to many nodes.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, select_all};
use lease_core::StoreError;
use tokio::time::Instant;

use super::route::Router;
use super::slot;
use crate::address::Address;
use crate::reply::Reply;
use crate::request::Request;

/// Requests that are under way at once at one node, each a call of its own.
const AT_ONCE: usize = 512;

impl Router {
    /// Does these operations side by side; one outcome for each.
    ///
    /// A node that answers nobody keeps nobody else's outcome waiting: once all
    /// is done at one node, the others have this grace.
    pub(crate) async fn ask_all(
        &self,
        requests: &[Request],
        grace: Duration,
    ) -> Vec<Result<Reply, StoreError>> {
        let map = self.map();
        let mut groups: HashMap<Option<&Address>, Vec<usize>> = HashMap::new();
        for (place, request) in requests.iter().enumerate() {
            let owner = map.owner(slot::of(request.record()));
            groups.entry(owner).or_default().push(place);
        }
        let mut left: Vec<_> = groups.values().map(Vec::len).collect();
        let streams = groups.into_values().enumerate().map(|(group, places)| {
            let asks = places.into_iter().map(move |place| async move {
                let answer = match requests.get(place) {
                    Some(request) => self.ask(request).await,
                    None => Err(crate::reply::odd()),
                };
                (group, place, answer)
            });
            stream::iter(asks.collect::<Vec<_>>()).buffer_unordered(AT_ONCE)
        });
        let mut all = select_all(streams.map(Box::pin));
        let mut answers: Vec<_> = requests.iter().map(|_| None).collect();
        let mut end: Option<Instant> = None;
        loop {
            let patience = async {
                match end {
                    Some(end) => tokio::time::sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                answer = all.next() => {
                    let Some((group, place, answer)) = answer else {
                        break;
                    };
                    if let Some(slot) = answers.get_mut(place) {
                        *slot = Some(answer);
                    }
                    if let Some(left) = left.get_mut(group) {
                        *left -= 1;
                        if *left == 0 {
                            end.get_or_insert_with(|| Instant::now() + grace);
                        }
                    }
                }
                () = patience => break,
            }
        }
        let answers = answers.into_iter();
        answers
            .map(|answer| answer.unwrap_or_else(|| Err(StoreError::unknown_outcome(SILENT))))
            .collect()
    }
}

const SILENT: &str = "the node of the Redis Cluster that has this key did not answer while others \
                      did; check that it runs and can be reached from here";
