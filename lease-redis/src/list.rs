//! Every key, page by page, without blocking the server.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{Key, KeyState, StoreError};
use redis::Value;

use crate::errors::{self, Phase};
use crate::lane::{Lane, MOST_IN_BATCH};
use crate::link::Link;
use crate::names::Names;
use crate::request::Request;

type Item = Result<KeyState, StoreError>;

struct Scan<F> {
    lane: F,
    names: Names,
    pattern: String,
    cursor: u64,
    begun: bool,
    ended: bool,
    /// SCAN may give a name more than once.
    seen: HashSet<Key>,
    ready: VecDeque<Item>,
}

/// The states of the keys that start with `prefix`.
pub(crate) fn stream<F>(lane: F, names: Names, prefix: &str) -> BoxStream<'static, Item>
where
    F: Fn() -> Result<Arc<Lane>, StoreError> + Send + 'static,
{
    let scan = Scan {
        lane,
        pattern: names.pattern(prefix),
        names,
        cursor: 0,
        begun: false,
        ended: false,
        seen: HashSet::new(),
        ready: VecDeque::new(),
    };
    stream::unfold(scan, |mut scan| async move {
        let item = scan.next().await?;
        Some((item, scan))
    })
    .boxed()
}

impl<F: Fn() -> Result<Arc<Lane>, StoreError>> Scan<F> {
    async fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if self.ended || (self.begun && self.cursor == 0) {
                return None;
            }
            self.begun = true;
            if let Err(error) = self.page().await {
                // Behind what was read before it: it is the last.
                self.ended = true;
                self.ready.push_back(Err(error));
            }
        }
    }

    async fn page(&mut self) -> Result<(), StoreError> {
        let lane = (self.lane)()?;
        let keys = self.scan(&lane).await?;
        for keys in keys.chunks(MOST_IN_BATCH) {
            let requests: Vec<_> = keys
                .iter()
                .map(|key| Request::inspect(&self.names, key))
                .collect();
            let replies = lane.sender().send(&requests).await?;
            for (key, reply) in keys.iter().zip(replies) {
                match reply.and_then(|reply| reply.state(key)) {
                    // It ended between the scan and the look.
                    Ok(state) if state.high_water.is_none() => {}
                    Ok(state) => self.ready.push_back(Ok(state)),
                    // Something foreign at one name hides no other key.
                    Err(error) => {
                        tracing::warn!(target: lease_core::UNREADABLE, %key, %error, "skipped in a list")
                    }
                }
            }
        }
        Ok(())
    }

    async fn scan(&mut self, lane: &Lane) -> Result<Vec<Key>, StoreError> {
        let (cursor, names) = scan(lane.sender().link(), self.cursor, &self.pattern).await?;
        self.cursor = cursor;
        Ok(names
            .into_iter()
            .filter_map(|name| self.names.key_of(std::str::from_utf8(&name).ok()?))
            .filter(|key| self.seen.insert(key.clone()))
            .collect())
    }
}

/// Whether there is any record, or something else at the name of one.
pub(crate) async fn any(lane: &Lane, names: &Names) -> Result<bool, StoreError> {
    let (pattern, mut cursor) = (names.pattern(""), 0);
    loop {
        let (next, found) = scan(lane.sender().link(), cursor, &pattern).await?;
        if !found.is_empty() {
            return Ok(true);
        }
        if next == 0 {
            return Ok(false);
        }
        cursor = next;
    }
}

/// One page of names, and the next page's cursor.
pub(crate) async fn scan(
    link: &Link,
    cursor: u64,
    pattern: &str,
) -> Result<(u64, Vec<Vec<u8>>), StoreError> {
    let mut command = redis::cmd("SCAN");
    command.arg(cursor).arg("MATCH").arg(pattern);
    command.arg("COUNT").arg(500);
    let up = link.connection().await?;
    let asking = link.ask(&up);
    let answer = match up.while_here(up.wire.send(&command)).await {
        Ok(answer) => {
            asking.answered();
            answer
        }
        Err(error) => {
            if crate::script::spoils(&error) {
                asking.failed();
            } else {
                asking.answered();
            }
            return Err(errors::classify(Phase::Unsent, "cannot list", error));
        }
    };
    // Nothing was changed, so no outcome is unknown.
    let odd = || {
        StoreError::unavailable(
            "cannot list: the server answers SCAN with something that cannot be read; check that \
             no proxy or look-alike of Redis stands between",
        )
    };
    let (cursor, names) = match answer {
        Value::Array(mut parts) if parts.len() == 2 => (parts.swap_remove(0), parts.pop()),
        _ => return Err(odd()),
    };
    let cursor = redis::from_redis_value(cursor).map_err(|_| odd())?;
    let names = names
        .and_then(|names| redis::from_redis_value(names).ok())
        .ok_or_else(odd)?;
    Ok((cursor, names))
}
