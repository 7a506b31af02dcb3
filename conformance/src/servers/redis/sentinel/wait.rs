//! Who is what, and waiting until all agree on it.

use std::net::SocketAddr;
use std::time::Instant;

use super::super::{LIMIT, LOOK, RedisServer, ServerError};
use super::{DataNode, NAME, SENTINELS, SentinelTrio};

impl SentinelTrio {
    /// The primary, by all sentinels that run; waits until they agree.
    ///
    /// # Errors
    /// If they do not within half a minute.
    pub fn primary(&self) -> Result<&DataNode, ServerError> {
        self.primary_by(|_| true)
    }

    /// As [`primary`](Self::primary), when it is another one than this: after
    /// that one was killed, say.
    ///
    /// # Errors
    /// If there is none within half a minute.
    pub fn primary_other_than(&self, former: SocketAddr) -> Result<&DataNode, ServerError> {
        self.primary_by(|address| address != former)
    }

    /// All servers with data but the primary.
    ///
    /// # Errors
    /// As of [`primary`](Self::primary).
    pub fn replicas(&self) -> Result<Vec<&DataNode>, ServerError> {
        let primary = self.primary()?.address();
        let others = self.nodes.iter().filter(|one| one.address() != primary);
        Ok(others.collect())
    }

    /// Waits until all that run are of one mind: the sentinels name one primary,
    /// know one another and the replicas, and every other server follows it.
    ///
    /// # Errors
    /// If that takes longer than half a minute.
    pub fn settle(&self) -> Result<(), ServerError> {
        self.until("follow one primary", || {
            // Which one may change meanwhile.
            let primary = self.primary()?;
            let (primary, direct) = (primary.address(), primary.server.address());
            for node in self.nodes.iter().filter(|one| runs(&one.server)) {
                let well = match node.address() == primary {
                    true => is(&node.server, "role", "master")?,
                    false => {
                        let ports = [primary.port(), direct.port()].map(|port| port.to_string());
                        let follows = node.server.info("master_port")?.unwrap_or_default();
                        is(&node.server, "master_link_status", "up")? && ports.contains(&follows)
                    }
                };
                if !well {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        let (others, replicas) = (SENTINELS - 1, self.settings.replica_count());
        let running = self.nodes.iter().filter(|one| runs(&one.server)).count();
        for sentinel in self.running() {
            self.until("know of one another", || {
                let seen = |what| number(sentinel, what);
                Ok(seen("num-other-sentinels")? >= others
                    && seen("num-slaves")? >= replicas
                    && linked(sentinel)? + 1 >= running)
            })?;
        }
        Ok(())
    }

    /// Waits until every replica that runs has what the primary had when this was
    /// called: else a failover may lose it.
    ///
    /// # Errors
    /// If that takes longer than half a minute.
    pub fn wait_until_replicated(&self) -> Result<(), ServerError> {
        let offset = |node: &DataNode, field: &str| {
            let text = node.server.info(field)?.unwrap_or_default();
            Ok::<u64, ServerError>(text.parse().unwrap_or_default())
        };
        let primary = self.primary()?;
        let written = offset(primary, "master_repl_offset")?;
        let others = self.nodes.iter().filter(|one| runs(&one.server));
        for replica in others.filter(|one| one.address() != primary.address()) {
            self.until("get what was written", || {
                Ok(offset(replica, "slave_repl_offset")? >= written)
            })?;
        }
        Ok(())
    }

    /// Starts a sentinel again that was killed.
    ///
    /// # Errors
    /// As of [`RedisServer::start`].
    pub fn start_sentinel(&self, sentinel: &RedisServer) -> Result<(), ServerError> {
        sentinel.start()?;
        super::builder::hurry(sentinel)
    }

    pub(super) fn someone_names_another_than(
        &self,
        former: SocketAddr,
    ) -> Result<bool, ServerError> {
        for sentinel in self.running() {
            if primary_of(sentinel)?.is_some_and(|now| now != former) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn primary_by(&self, wanted: impl Fn(SocketAddr) -> bool) -> Result<&DataNode, ServerError> {
        let mut found = None;
        self.until("agree on a primary", || {
            let mut named = Vec::new();
            for sentinel in self.running() {
                named.push(primary_of(sentinel)?);
            }
            named.dedup();
            let one = match named[..] {
                [Some(one)] if wanted(one) => one,
                _ => return Ok(false),
            };
            found = self.nodes.iter().find(|node| node.address() == one);
            // It is told before it is named.
            Ok(match found {
                Some(node) if runs(&node.server) => is(&node.server, "role", "master")?,
                Some(_) => true,
                None => false,
            })
        })?;
        found.ok_or(ServerError::NotRunning)
    }

    /// The sentinels that can answer.
    pub(super) fn running(&self) -> impl Iterator<Item = &RedisServer> {
        self.sentinels.iter().filter(|one| runs(one))
    }

    pub(super) fn until(
        &self,
        what: &str,
        mut done: impl FnMut() -> Result<bool, ServerError>,
    ) -> Result<(), ServerError> {
        let deadline = Instant::now() + LIMIT;
        loop {
            match done() {
                Ok(true) => return Ok(()),
                // A server that changes its place drops its clients, us too.
                Ok(false) | Err(ServerError::Command { .. }) => {}
                Err(other) => return Err(other),
            }
            if Instant::now() > deadline {
                return Err(ServerError::TimedOut {
                    what: format!("{what}; the log of a sentinel:\n{}", self.sentinel_log()),
                    limit: LIMIT,
                });
            }
            std::thread::sleep(LOOK * 5);
        }
    }

    fn sentinel_log(&self) -> String {
        self.sentinels
            .first()
            .map(RedisServer::log)
            .unwrap_or_default()
    }
}

fn runs(server: &RedisServer) -> bool {
    server.can_answer()
}

fn is(server: &RedisServer, field: &str, wanted: &str) -> Result<bool, ServerError> {
    Ok(server.info(field)?.as_deref() == Some(wanted))
}

fn primary_of(sentinel: &RedisServer) -> Result<Option<SocketAddr>, ServerError> {
    let asked = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
    let reply = sentinel.command(&asked)?;
    let words = reply.list().unwrap_or_default();
    let text = |at: usize| words.get(at)?.text();
    let address = text(0).zip(text(1));
    Ok(address.and_then(|(ip, port)| format!("{ip}:{port}").parse().ok()))
}

/// How many replicas the sentinel has seen in touch with the primary.
fn linked(sentinel: &RedisServer) -> Result<usize, ServerError> {
    let reply = sentinel.command(&["SENTINEL", "REPLICAS", NAME])?;
    let replicas = reply.list().unwrap_or_default().iter();
    let linked = replicas.filter(|one| {
        let words = one.list().unwrap_or_default();
        let pair = ["master-link-status", "ok"].map(Some);
        words
            .chunks_exact(2)
            .any(|found| [found[0].text(), found[1].text()] == pair)
    });
    Ok(linked.count())
}

/// What the sentinel says of the primary.
fn number(sentinel: &RedisServer, field: &str) -> Result<usize, ServerError> {
    let reply = sentinel.command(&["SENTINEL", "MASTER", NAME])?;
    let words = reply.list().unwrap_or_default();
    let value = words
        .chunks(2)
        .find(|pair| pair[0].text() == Some(field))
        .and_then(|pair| pair.get(1)?.integer());
    Ok(value
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or_default())
}
