//! Every key, page by page in the order of their bytes, each page from where the
//! last one ended.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{Key, KeyState, StoreError};
use sqlx::{Row as _, query};

use crate::errors::odd;
use crate::lane::Lane;
use crate::reply;

const PAGE: i64 = 500;

type Item = Result<KeyState, StoreError>;

struct Pages<F> {
    lane: F,
    prefix: String,
    /// From here on; after it, once a page was read.
    from: String,
    begun: bool,
    ended: bool,
    ready: VecDeque<Item>,
}

/// The states of the keys that start with `prefix`.
pub(crate) fn stream<F>(lane: F, prefix: &str) -> BoxStream<'static, Item>
where
    F: Fn() -> Result<Arc<Lane>, StoreError> + Send + 'static,
{
    let pages = Pages {
        lane,
        prefix: prefix.to_owned(),
        from: prefix.to_owned(),
        begun: false,
        // No key has one, and Postgres takes no NUL at all.
        ended: prefix.contains('\0'),
        ready: VecDeque::new(),
    };
    stream::unfold(pages, |mut pages| async move {
        let item = pages.next().await?;
        Some((item, pages))
    })
    .boxed()
}

impl<F: Fn() -> Result<Arc<Lane>, StoreError>> Pages<F> {
    async fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if self.ended {
                return None;
            }
            if let Err(error) = self.page().await {
                // Behind what was read before it: it is the last.
                self.ended = true;
                self.ready.push_back(Err(error));
            }
        }
    }

    async fn page(&mut self) -> Result<(), StoreError> {
        let lane = (self.lane)()?;
        let exchange = lane.exchange();
        let page = || {
            query(exchange.statements().page.clone())
                .bind(self.from.clone())
                .bind(!self.begun)
                .bind(PAGE)
        };
        let rows = exchange.look(page).await?;
        self.begun = true;
        self.ended = i64::try_from(rows.len()).unwrap_or(PAGE) < PAGE;
        for row in &rows {
            let key: &str = row.try_get("key").map_err(|_| odd())?;
            if !key.starts_with(&self.prefix) {
                self.ended = true;
                break;
            }
            self.from = key.to_owned();
            let state = Key::new(key).map_err(StoreError::from);
            match state.and_then(|key| reply::state(key, row)) {
                Ok(state) => self.ready.push_back(Ok(state)),
                // Something foreign in one row hides no other key.
                Err(error) => {
                    tracing::warn!(target: lease_core::UNREADABLE, key, %error, "skipped in a list");
                }
            }
        }
        Ok(())
    }
}
