//! The store, as the contract has it.

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::{Diagnosis, FenceWhen, Key, KeyState, Owner, StoreError, Token, Ttl, check_fence};
use lease_postgres::parts::{Again, Over, column, odd};
use lease_postgres::sqlx::query;

use super::{PostgresQueues, claim, delay_us, number, row};
use crate::check::{check_claim, check_put};
use crate::item::{ClaimRef, ItemId, ItemState, NewItem};
use crate::name::{Lane, QueueName};
use crate::store::{
    Added, Answer, Capabilities, ClaimRequest, Depth, QueueStore, Settle, Settled, What,
};

pub(super) const PUT: &str = "SELECT * FROM {queue_put}($1, $2, $3, $4, $5, $6)";
pub(super) const ABANDON: &str = "SELECT * FROM {queue_abandon}($1, $2, $3, $4, $5)";
pub(super) const FENCE: &str = "SELECT * FROM {queue_fence}($1, $2, $3, $4, $5, $6)";
pub(super) const REQUEUE: &str = "SELECT * FROM {queue_requeue}($1, $2)";

#[async_trait]
impl QueueStore for PostgresQueues {
    fn capabilities(&self) -> Capabilities {
        self.can()
    }

    async fn put(&self, queue: &QueueName, items: &[NewItem]) -> Result<Vec<Added>, StoreError> {
        check_put(items, &self.can())?;
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let text = |key: &Option<Key>| key.as_ref().map(Key::to_string);
        let sql = &self.statements.put;
        let ask = || {
            let ids: Vec<_> = items.iter().map(|one| one.id.as_bytes().to_vec()).collect();
            let bodies: Vec<_> = items.iter().map(|one| one.body.to_vec()).collect();
            let groups: Vec<_> = items.iter().map(|one| text(&one.group)).collect();
            let dedups: Vec<_> = items.iter().map(|one| text(&one.dedup)).collect();
            let delays: Vec<_> = items.iter().map(|one| delay_us(one.delay)).collect();
            query(sql.clone())
                .bind(queue.as_str().to_owned())
                .bind(ids)
                .bind(bodies)
                .bind(groups)
                .bind(dedups)
                .bind(delays)
        };
        // The caller repeats it, if it likes to.
        let rows = self.client.rows(Over::Usual, false, queue, ask).await?;
        let mut added: Vec<_> = items.iter().map(|_| Added::Added).collect();
        for found in &rows {
            let n: i32 = column(found, "o_n")?;
            let place = usize::try_from(n - 1).map_err(|_| odd())?;
            let of = row::item(column(found, "o_other")?)?;
            *added.get_mut(place).ok_or_else(odd)? = Added::Duplicate { of };
        }
        Ok(added)
    }

    async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
        check_claim(request)?;
        match &request.what {
            What::Next { max } => self.next(queue, request, *max).await,
            What::Key { key, rule, waits } => self.key(queue, request, key, (*rule, *waits)).await,
        }
    }

    async fn settle(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        self.settle_all(queue, claims).await
    }

    async fn abandon(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
        owner: Owner,
    ) -> Result<(), StoreError> {
        let sql = &self.statements.abandon;
        let ask = || {
            query(sql.clone())
                .bind(queue.as_str().to_owned())
                .bind(key.map(Key::to_string))
                .bind(owner.as_bytes().to_vec())
                .bind(claim::lock(owner))
                .bind(self.client.retention_us())
        };
        let mut again = Again::new(self.client.response_timeout());
        loop {
            let rows = self.client.rows(Over::Usual, true, queue, ask).await?;
            if !column::<bool>(rows.first().ok_or_else(odd)?, "o_busy")? {
                self.purge_now_and_then();
                return Ok(());
            }
            again.pause(queue).await?;
        }
    }

    async fn fence(
        &self,
        queue: &QueueName,
        lane: &Lane,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        check_fence(at_least)?;
        let (kind, name) = row::lane(lane);
        let sql = &self.statements.fence;
        let ask = || {
            query(sql.clone())
                .bind(queue.as_str().to_owned())
                .bind(kind)
                .bind(name.clone())
                .bind(number(at_least.get()))
                .bind(when == FenceWhen::Immediately)
                .bind(self.client.retention_us())
        };
        let mut again = Again::new(self.client.response_timeout());
        loop {
            let rows = self.client.rows(Over::Usual, true, queue, ask).await?;
            match column::<Option<i64>>(rows.first().ok_or_else(odd)?, "o_mark")? {
                Some(mark) => return row::token(mark),
                None => again.pause(queue).await?,
            }
        }
    }

    async fn inspect(&self, queue: &QueueName, key: &Key) -> Result<KeyState, StoreError> {
        self.state_of(queue, key).await
    }

    fn keys(
        &self,
        queue: &QueueName,
        prefix: &str,
    ) -> BoxStream<'static, Result<KeyState, StoreError>> {
        self.key_states(queue, prefix)
    }

    fn items(
        &self,
        queue: &QueueName,
        dead: bool,
    ) -> BoxStream<'static, Result<ItemState, StoreError>> {
        self.item_states(queue, dead)
    }

    async fn requeue(&self, queue: &QueueName, item: ItemId) -> Result<bool, StoreError> {
        let sql = &self.statements.requeue;
        let ask = || {
            query(sql.clone())
                .bind(queue.as_str().to_owned())
                .bind(item.as_bytes().to_vec())
        };
        let mut again = Again::new(self.client.response_timeout());
        loop {
            // A copy would find it put back, and say that it was not dead.
            let rows = self.client.rows(Over::Usual, false, &item, ask).await?;
            match column(rows.first().ok_or_else(odd)?, "o_code")? {
                1 => return Ok(true),
                0 => return Ok(false),
                9 => again.pause(&item).await?,
                _ => return Err(odd()),
            }
        }
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth, StoreError> {
        self.depth_of(queue).await
    }

    async fn watch(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        let queue = queue.as_str();
        let topic = match key {
            None => format!("q{queue}"),
            Some(key) => format!("k{}:{queue}{key}", queue.len()),
        };
        self.client.watch(topic).await
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.client.diagnose(ttl).await
    }
}
