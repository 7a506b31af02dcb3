//! The floor on Redis: bare EVALSHA of the least scripts of the same work.

use async_trait::async_trait;
use lease_conformance::bench::{Drained, by_tasks};
use lease_core::Owner;
use lease_queue::ItemId;
use lease_redis::redis::aio::MultiplexedConnection;
use lease_redis::redis::{AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, Script, pipe};

use crate::ours::{BODY, TTL};

/// The first that is due, until it expires; a token; who has it.
const CLAIM: &str = "
    local t = redis.call('TIME')
    local now = t[1] * 1000000 + t[2]
    local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 1)
    if not found[1] then return false end
    local item = KEYS[1] .. ':' .. found[1]
    local token = redis.call('INCR', KEYS[1] .. ':tokens')
    local expires = string.format('%.0f', now + ARGV[2])
    redis.call('HSET', item, 'o', ARGV[1], 't', token, 'e', expires)
    redis.call('ZADD', KEYS[1], expires, found[1])
    return { found[1], token, redis.call('HGET', item, 'b') }";
const COMPLETE: &str = "
    local item = KEYS[1] .. ':' .. ARGV[1]
    local is = redis.call('HMGET', item, 'o', 't', 'e')
    local t = redis.call('TIME')
    if is[1] ~= ARGV[2] or is[2] ~= ARGV[3]
        or tonumber(is[3]) <= t[1] * 1000000 + t[2] then return 0 end
    redis.call('DEL', item)
    redis.call('ZREM', KEYS[1], ARGV[1])
    return 1";

pub(crate) struct Bare {
    connection: MultiplexedConnection,
    nodelay: bool,
    key: String,
    claim: String,
    complete: String,
}

impl Bare {
    pub(crate) async fn new(url: &str, nodelay: bool) -> Self {
        let info = url.into_connection_info().unwrap();
        let tcp = info.tcp_settings().clone().set_nodelay(nodelay);
        let client = Client::open(info.set_tcp_settings(tcp)).unwrap();
        // On a busy machine the driver's half second is soon over.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await.unwrap();
        let [claim, complete] = [CLAIM, COMPLETE].map(Script::new);
        claim.load_async(&mut connection).await.unwrap();
        complete.load_async(&mut connection).await.unwrap();
        Self {
            connection,
            nodelay,
            key: format!("bare:{nodelay}"),
            claim: claim.get_hash().to_owned(),
            complete: complete.get_hash().to_owned(),
        }
    }

    async fn pair(&self) {
        let mut connection = self.connection.clone();
        let owner = Owner::random().unwrap().to_string();
        let mut claim = Cmd::new();
        claim.arg("EVALSHA").arg(&self.claim).arg(1).arg(&self.key);
        claim.arg(&owner).arg(TTL.as_micros() as u64);
        let (item, token, body): (String, u64, Vec<u8>) =
            claim.query_async(&mut connection).await.unwrap();
        assert_eq!(body, BODY);
        let mut complete = Cmd::new();
        complete
            .arg("EVALSHA")
            .arg(&self.complete)
            .arg(1)
            .arg(&self.key);
        complete.arg(&item).arg(&owner).arg(token);
        let done: u64 = complete.query_async(&mut connection).await.unwrap();
        assert_eq!(done, 1);
    }
}

#[async_trait]
impl Drained for Bare {
    fn name(&self) -> String {
        let nodelay = if self.nodelay { "on" } else { "off" };
        format!("bare EVALSHA, least scripts (NODELAY {nodelay})")
    }

    async fn fill(&self, items: usize) {
        let mut connection = self.connection.clone();
        let ids: Vec<_> = (0..items).map(|_| ItemId::random().unwrap()).collect();
        for batch in ids.chunks(256) {
            let mut all = pipe();
            for id in batch {
                let item = format!("{}:{id}", self.key);
                all.cmd("HSET").arg(item).arg("b").arg(BODY).ignore();
                all.cmd("ZADD")
                    .arg(&self.key)
                    .arg(1)
                    .arg(id.to_string())
                    .ignore();
            }
            all.query_async::<()>(&mut connection).await.unwrap();
        }
    }

    async fn drain(&self, tasks: usize, items: usize) -> Vec<f64> {
        by_tasks(tasks, items, || self.pair()).await
    }
}
