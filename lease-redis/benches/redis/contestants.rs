//! Who takes part: each acquires a key and releases it.

use std::time::Duration;

use async_trait::async_trait;
use lease_conformance::bench::Contestant;
use lease_core::{
    AcquireOutcome, AcquireRequest, Key, Label, LeaseBackend, Leases, Owner, RenewOutcome,
    RenewRequest, TokenRule, Ttl,
};
use lease_redis::{RedisOptions, RedisStore};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, Script};

pub(crate) const TTL: Duration = Duration::from_secs(30);

const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) async fn connect(url: &str, nodelay: bool) -> MultiplexedConnection {
    let info = url.into_connection_info().unwrap();
    let tcp = info.tcp_settings().clone().set_nodelay(nodelay);
    let client = Client::open(info.set_tcp_settings(tcp)).unwrap();
    // The driver's own limits, of half a second and a second, end the bench where the
    // machine stands still for a moment.
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let connected = client.get_multiplexed_async_connection_with_config(&patient);
    connected.await.unwrap()
}

/// The least that a fenced lease can be: a counter and a grant, owner-checked.
const TAKE: &str = "
    if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
    local token = redis.call('INCR', KEYS[2])
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return token";
const PROLONG: &str = "
    if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
    return 0";
const GIVE: &str = "
    if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
    return 0";

/// The floor: bare EVALSHA of the least script.
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    nodelay: bool,
    take: String,
    prolong: String,
    give: String,
}

impl Bare {
    pub(crate) async fn new(url: &str, nodelay: bool) -> Self {
        let mut connection = connect(url, nodelay).await;
        let [take, prolong, give] = [TAKE, PROLONG, GIVE].map(Script::new);
        take.load_async(&mut connection).await.unwrap();
        prolong.load_async(&mut connection).await.unwrap();
        give.load_async(&mut connection).await.unwrap();
        Self {
            connection,
            nodelay,
            take: take.get_hash().to_owned(),
            prolong: prolong.get_hash().to_owned(),
            give: give.get_hash().to_owned(),
        }
    }
}

#[async_trait]
impl Contestant for Bare {
    fn name(&self) -> String {
        let nodelay = if self.nodelay {
            "on"
        } else {
            "off, the driver's default"
        };
        format!("bare EVALSHA, least script (NODELAY {nodelay})")
    }

    async fn pair(&self, key: &str, renew: bool) {
        let mut connection = self.connection.clone();
        let owner = Owner::random().unwrap().to_string();
        let (grant, mark) = (format!("g:{{{key}}}"), format!("m:{{{key}}}"));
        let mut take = Cmd::new();
        take.arg("EVALSHA")
            .arg(&self.take)
            .arg(2)
            .arg(&grant)
            .arg(&mark);
        take.arg(&owner).arg(TTL.as_millis() as u64);
        let token: u64 = take.query_async(&mut connection).await.unwrap();
        assert!(token > 0);
        if renew {
            let mut prolong = Cmd::new();
            prolong.arg("EVALSHA").arg(&self.prolong).arg(1).arg(&grant);
            prolong.arg(&owner).arg(TTL.as_millis() as u64);
            let prolonged: u64 = prolong.query_async(&mut connection).await.unwrap();
            assert_eq!(prolonged, 1);
        }
        let mut give = Cmd::new();
        give.arg("EVALSHA")
            .arg(&self.give)
            .arg(1)
            .arg(&grant)
            .arg(&owner);
        let freed: u64 = give.query_async(&mut connection).await.unwrap();
        assert_eq!(freed, 1);
    }
}

/// Bare EVALSHA of our own script: equal work at the server.
pub(crate) struct SameScript {
    connection: MultiplexedConnection,
    hash: String,
    notifies: bool,
}

impl SameScript {
    pub(crate) async fn new(url: &str, notifies: bool) -> Self {
        let mut connection = connect(url, true).await;
        let settings = "local retention, tombstones, quarantine = 86400000000, 600000000, 0\nlocal publish = 'PUBLISH'\n";
        let code = format!("{settings}{}", include_str!("../../src/lease.lua"));
        let publish = "call('PUBLISH', name, '')";
        assert!(code.contains(publish));
        let script = match notifies {
            true => Script::new(&code),
            false => Script::new(&code.replace(publish, "")),
        };
        script.load_async(&mut connection).await.unwrap();
        Self {
            connection,
            hash: script.get_hash().to_owned(),
            notifies,
        }
    }

    fn call(&self, key: &str) -> Cmd {
        let mut call = Cmd::new();
        call.arg("EVALSHA").arg(&self.hash).arg(2);
        call.arg(format!("same:{{{key}}}")).arg("same:birth");
        call
    }
}

#[async_trait]
impl Contestant for SameScript {
    fn name(&self) -> String {
        let without = if self.notifies {
            ""
        } else {
            " without PUBLISH"
        };
        format!("bare EVALSHA, our script{without} (NODELAY on)")
    }

    async fn pair(&self, key: &str, renew: bool) {
        let mut connection = self.connection.clone();
        let owner = *Owner::random().unwrap().as_bytes();
        let mut take = self.call(key);
        take.arg("A")
            .arg(&owner[..])
            .arg(TTL.as_micros() as u64)
            .arg(TTL.as_millis() as u64 + 86_400_002)
            .arg("n")
            .arg(0)
            .arg("");
        let granted: Vec<u64> = take.query_async(&mut connection).await.unwrap();
        if renew {
            let mut prolong = self.call(key);
            prolong.arg("R").arg(&owner[..]).arg(granted[0]);
            prolong.arg(TTL.as_micros() as u64);
            prolong.arg(TTL.as_millis() as u64 + 86_400_002);
            let prolonged: Vec<u64> = prolong.query_async(&mut connection).await.unwrap();
            assert_eq!(prolonged, [1]);
        }
        let mut give = self.call(key);
        give.arg("L").arg(&owner[..]).arg(granted[0]);
        let freed: Vec<u64> = give.query_async(&mut connection).await.unwrap();
        assert_eq!(freed, [1]);
    }
}

/// The backend.
pub(crate) struct Ours(pub(crate) RedisStore);

impl Ours {
    pub(crate) async fn new(url: &str) -> Self {
        let options = RedisOptions::from_url(url).unwrap();
        Self(options.open().await.unwrap())
    }
}

#[async_trait]
impl Contestant for Ours {
    fn name(&self) -> String {
        "lease-redis, the backend".to_owned()
    }

    async fn pair(&self, key: &str, renew: bool) {
        let request = AcquireRequest {
            key: Key::new(key).unwrap(),
            owner: Owner::random().unwrap(),
            ttl: Ttl::new(TTL).unwrap(),
            label: Label::EMPTY,
            rule: TokenRule::NEXT,
            waits: None,
        };
        let AcquireOutcome::Granted(granted) = self.0.acquire(&request).await.unwrap() else {
            panic!("held");
        };
        if renew {
            let renewal = RenewRequest {
                key: request.key.clone(),
                owner: request.owner,
                token: granted.token,
                ttl: request.ttl,
            };
            let renewed = self.0.renew(&renewal).await.unwrap();
            assert_eq!(renewed, RenewOutcome::Renewed);
        }
        let released = self.0.release(&request.key, request.owner, granted.token);
        released.await.unwrap();
    }
}

/// The whole handle, as an application uses it.
pub(crate) struct Handle(Leases);

impl Handle {
    pub(crate) async fn new(url: &str) -> Self {
        let store = RedisOptions::from_url(url).unwrap().open().await.unwrap();
        Self(Leases::new(std::sync::Arc::new(store)))
    }
}

#[async_trait]
impl Contestant for Handle {
    fn name(&self) -> String {
        "lease-redis, through Leases".to_owned()
    }

    async fn pair(&self, key: &str, renew: bool) {
        assert!(!renew, "it renews when it is due");
        let lease = self.0.lease(Key::new(key).unwrap()).ttl(TTL);
        lease.acquire().await.unwrap().release().await.unwrap();
    }
}

/// The most used peer in Rust (no fence).
pub(crate) struct Rslock(rslock::LockManager);

impl Rslock {
    pub(crate) async fn new(url: &str) -> Self {
        let manager = rslock::LockManager::new(vec![url.to_owned()]);
        let lock = manager.lock("warm", TTL).await.unwrap();
        manager.unlock(&lock).await;
        Self(manager)
    }
}

#[async_trait]
impl Contestant for Rslock {
    fn name(&self) -> String {
        "rslock (no fence)".to_owned()
    }

    async fn pair(&self, key: &str, renew: bool) {
        let mut lock = self.0.lock(key, TTL).await.unwrap();
        if renew {
            lock = self.0.extend(&lock, TTL).await.unwrap();
        }
        self.0.unlock(&lock).await;
    }
}
