//! What a lease on a quorum of three servers costs: the floor is the same driver's
//! bare EVALSHA of our script on all three, side by side, until a majority has
//! answered; twice for an acquire, once for the rest.

use std::process::Command;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lease_conformance::bench::{Laps, Runner, laps, report_laps, run_laps};
use lease_conformance::servers::redis::{NodesWay, RedisNodes, RedisServer};
use lease_core::{
    AcquireOutcome, AcquireRequest, Key, Label, LeaseBackend, Owner, RenewOutcome, RenewRequest,
    TokenRule, Ttl,
};
use lease_redis::{RedlockOptions, RedlockStore};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Script, Value};

use crate::contestants::{TTL, connect};

/// All of it on loopback and at one millisecond.
pub(crate) async fn run(quick: bool) {
    let nodes = RedisNodes::start(3, &RedisServer::builder()).unwrap();
    let init = options(&nodes.hosts()).init().await.unwrap();
    assert!(init.is_done(), "{init:?}");
    let way = nodes.way().unwrap();
    for proxy in way.proxies() {
        proxy.delay(Duration::from_micros(500), Duration::from_micros(500));
    }
    for (name, hosts, urls, far) in [
        ("loopback", nodes.hosts(), near(&nodes), false),
        (
            "a millisecond away",
            way.hosts(),
            through(&nodes, &way),
            true,
        ),
    ] {
        println!("\n# a quorum of three, {name}\n");
        println!(
            "one task, p50 of acquire, renew and release (target: acquire <= 1.2 of two bare round \
             trips, the others of one)"
        );
        let (rounds, lives) = match (quick, far) {
            (true, _) => (1, 2),
            (_, true) => (7, 100),
            (_, false) => (15, 500),
        };
        let bare = Bare::new(&urls).await;
        let ours = Ours(options(&hosts).open().await.unwrap());
        let rslock = Rslock::new(&urls).await;
        let all: [&dyn Runner; 3] = [&bare, &ours, &rslock];
        print!("{}", report_laps(&run_laps(&all, rounds, lives).await));
        node_redlock(&urls, if quick { 2 } else { lives * 3 });
    }
}

fn options(hosts: &str) -> RedlockOptions {
    RedlockOptions::from_url(&format!("redlock://{hosts}")).unwrap()
}

fn near(nodes: &RedisNodes) -> Vec<String> {
    let servers = nodes.servers().iter();
    servers.map(|server| server.url().to_string()).collect()
}

fn through(nodes: &RedisNodes, way: &NodesWay) -> Vec<String> {
    let pairs = nodes.servers().iter().zip(way.proxies());
    pairs
        .map(|(server, proxy)| server.url().through(proxy.address()).to_string())
        .collect()
}

/// Bare calls of the very script that the store uses, quarantine and all.
struct Bare {
    connections: Vec<MultiplexedConnection>,
    hash: String,
}

impl Bare {
    async fn new(urls: &[String]) -> Self {
        let settings = "local retention, tombstones, quarantine = 86400000000, 600000000, 60000000\nlocal publish = 'PUBLISH'\n";
        let code = format!("{settings}{}", include_str!("../../src/lease.lua"));
        let script = Script::new(&code);
        let mut connections = Vec::new();
        for url in urls {
            let mut connection = connect(url, true).await;
            script.load_async(&mut connection).await.unwrap();
            connections.push(connection);
        }
        Self {
            connections,
            hash: script.get_hash().to_owned(),
        }
    }

    fn call(&self, key: &str) -> Cmd {
        let mut call = Cmd::new();
        call.arg("EVALSHA").arg(&self.hash).arg(2);
        // The birth marker of the store, which is open.
        call.arg(format!("same:{{{key}}}")).arg("leases:birth");
        call
    }

    fn acquire(&self, key: &str, owner: &[u8], rule: &str, token: u64) -> Cmd {
        let mut take = self.call(key);
        take.arg("A").arg(owner);
        take.arg(TTL.as_micros() as u64);
        take.arg(TTL.as_millis() as u64 + 86_400_002);
        take.arg(rule).arg(token).arg("");
        take
    }

    /// On all servers, until a majority has done it. One that answered later in the
    /// first round may stand above the token.
    async fn ask(&self, command: &Cmd) -> Vec<u64> {
        let mut answers: FuturesUnordered<_> = self
            .connections
            .iter()
            .map(|connection| {
                let mut connection = connection.clone();
                async move { command.query_async::<Vec<Value>>(&mut connection).await }
            })
            .collect();
        let mut majority = Vec::new();
        while majority.len() <= self.connections.len() / 2 {
            let answer = answers.next().await.expect("a majority that does it");
            if let [Value::Int(done)] = answer.unwrap()[..] {
                majority.push(u64::try_from(done).unwrap());
            }
        }
        majority
    }
}

#[async_trait]
impl Runner for Bare {
    fn name(&self) -> String {
        "bare EVALSHA on three, our script".to_owned()
    }

    async fn life(&self, key: &str) -> Laps {
        let owner = *Owner::random().unwrap().as_bytes();
        let start = Instant::now();
        let first = self.ask(&self.acquire(key, &owner, "n", 0)).await;
        let token = *first.iter().max().unwrap();
        self.ask(&self.acquire(key, &owner, "e", token)).await;
        let acquired = Instant::now();
        let mut prolong = self.call(key);
        prolong.arg("R").arg(&owner[..]).arg(token);
        prolong.arg(TTL.as_micros() as u64);
        prolong.arg(TTL.as_millis() as u64 + 86_400_002);
        self.ask(&prolong).await;
        let renewed = Instant::now();
        let mut give = self.call(key);
        give.arg("L").arg(&owner[..]).arg(token);
        self.ask(&give).await;
        let released = Instant::now();
        self.clear(key).await;
        laps([start, acquired, renewed, released])
    }
}

impl Bare {
    /// Nothing of it is in the next one's way: a node whose answer was not waited
    /// for may stand above the token.
    async fn clear(&self, key: &str) {
        let mut delete = Cmd::new();
        delete.arg("DEL").arg(format!("same:{{{key}}}"));
        for connection in &self.connections {
            let mut connection = connection.clone();
            let _: u64 = delete.query_async(&mut connection).await.unwrap();
        }
    }
}

struct Ours(RedlockStore);

#[async_trait]
impl Runner for Ours {
    fn name(&self) -> String {
        "lease-redis, a quorum".to_owned()
    }

    async fn life(&self, key: &str) -> Laps {
        let request = AcquireRequest {
            key: Key::new(key).unwrap(),
            owner: Owner::random().unwrap(),
            ttl: Ttl::new(TTL).unwrap(),
            label: Label::EMPTY,
            rule: TokenRule::NEXT,
            waits: None,
        };
        let start = Instant::now();
        let AcquireOutcome::Granted(granted) = self.0.acquire(&request).await.unwrap() else {
            panic!("held");
        };
        let acquired = Instant::now();
        let renewal = RenewRequest {
            key: request.key.clone(),
            owner: request.owner,
            token: granted.token,
            ttl: request.ttl,
        };
        let outcome = self.0.renew(&renewal).await.unwrap();
        assert_eq!(outcome, RenewOutcome::Renewed);
        let renewed = Instant::now();
        let release = self.0.release(&request.key, request.owner, granted.token);
        release.await.unwrap();
        laps([start, acquired, renewed, Instant::now()])
    }
}

/// No fence.
struct Rslock(rslock::LockManager);

impl Rslock {
    async fn new(urls: &[String]) -> Self {
        let manager = rslock::LockManager::new(urls.to_vec());
        let lock = manager.lock("warm", TTL).await.unwrap();
        manager.unlock(&lock).await;
        Self(manager)
    }
}

#[async_trait]
impl Runner for Rslock {
    fn name(&self) -> String {
        "rslock on three (no fence)".to_owned()
    }

    async fn life(&self, key: &str) -> Laps {
        let start = Instant::now();
        let lock = self.0.lock(key, TTL).await.unwrap();
        let acquired = Instant::now();
        let lock = self.0.extend(&lock, TTL).await.unwrap();
        let renewed = Instant::now();
        self.0.unlock(&lock).await;
        laps([start, acquired, renewed, Instant::now()])
    }
}

/// Where it is found by node, as after `npm install redlock@5.0.0-beta.2 ioredis` in
/// a folder whose `node_modules` is `NODE_PATH`.
fn node_redlock(urls: &[String], count: usize) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/redlock.js");
    let ran = Command::new("node")
        .arg(script)
        .arg(count.to_string())
        .args(urls)
        .output();
    let said = match &ran {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout),
        Ok(output) => {
            let words = String::from_utf8_lossy(&output.stderr);
            let error = words.lines().find(|line| line.contains("Error"));
            return missing(error.unwrap_or("it failed"));
        }
        Err(error) => return missing(&error.to_string()),
    };
    let times: Vec<f64> = said
        .trim_matches(|c: char| !c.is_ascii_digit())
        .split(',')
        .filter_map(|time| time.parse().ok())
        .collect();
    let times: Vec<_> = times
        .iter()
        .map(|us| format!("{us:7.0} µs       "))
        .collect();
    println!(
        "{:44} {}",
        "node-redlock on three (no fence)",
        times.join("  ")
    );
}

fn missing(why: &str) {
    println!(
        "\n!!! NODE-REDLOCK DID NOT TAKE PART ({why}).\n!!! Install node, then: mkdir -p /tmp/peers && \
         cd /tmp/peers && npm install redlock@5.0.0-beta.2 ioredis@5\n!!! and run again with \
         NODE_PATH=/tmp/peers/node_modules\n"
    );
}
