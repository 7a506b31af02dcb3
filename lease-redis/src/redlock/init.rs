//! Opening a new quorum.
//!
//! Why it is safe: a node is opened only if nothing was granted on it since it
//! last lost its data, or nobody who was granted anything counts on it. It is
//! empty when it is looked at, and no node can make a grant of a *majority* before
//! a quarantine has passed since then, as all nodes were empty. All looks are
//! over a quarter of the quarantine after the first has begun, and a node is
//! opened at most another quarter after the look at it. So it is opened before
//! there can be any lease. Both are checked, the first by a clock that goes on while
//! this machine sleeps, the second by the node itself.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use futures_util::future::join_all;
use lease_core::{Clock, StoreError, SystemClock, Ttl};
use redis::Value;

use super::RedlockStore;
use crate::RedisStore;
use crate::errors::{Phase, classify};

const CODE: &str = include_str!("init.lua");

/// No quarantine is so long that a look may take longer.
const MOST: Duration = Duration::from_secs(30);

/// What [`RedlockOptions::init`](crate::RedlockOptions::init) found and did, node
/// by node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InitReport {
    /// In the order in which they were named.
    pub nodes: Vec<NodeInit>,
}

impl InitReport {
    /// Whether every node was opened.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.opened() == self.nodes.len()
    }

    /// How many nodes were opened.
    #[must_use]
    pub fn opened(&self) -> usize {
        let opened = |node: &&NodeInit| matches!(node.state, InitState::Opened);
        self.nodes.iter().filter(opened).count()
    }
}

/// One node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeInit {
    /// Its name.
    pub name: String,
    /// What was found there, and done.
    pub state: InitState,
}

/// What was found at a node, and done.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum InitState {
    /// It was empty, and is open now.
    Opened,
    /// It is empty. Nothing was done, since another node is not.
    Empty,
    /// It was in use before.
    InUse(InUse),
    /// It is the same server as another node.
    Same {
        /// The other node's name.
        node: String,
    },
    /// It was empty and is in use, or has started anew, since it was looked at.
    Changed,
    /// It cannot be looked at, or not be opened. With an unknown outcome it may be
    /// open.
    Failed(StoreError),
}

/// By what a node was seen to be in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InUse {
    /// It has a birth marker: clients have asked it for keys, or it was opened
    /// before.
    Marker,
    /// It has the record of some key.
    Record,
}

impl fmt::Display for InitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened => f.write_str("was empty, and is open now"),
            Self::Empty => f.write_str("is empty, and was left as it is"),
            Self::InUse(InUse::Marker) => f.write_str(
                "is in use: it has a birth marker, so that it was opened or asked for a key before",
            ),
            Self::InUse(InUse::Record) => f.write_str("is in use: it has the record of a key"),
            Self::Same { node } => write!(f, "is the same server as {node}"),
            Self::Changed => f.write_str(
                "was empty, and was asked for a key, was started anew or took too long since",
            ),
            Self::Failed(error) => write!(f, "{error}"),
        }
    }
}

/// What is needed to open a node that was found empty.
struct Found {
    run: String,
    life: String,
    at_us: i64,
}

pub(super) async fn init(store: &RedlockStore, quarantine: Ttl) -> InitReport {
    let limit = (quarantine.get() / 4).min(MOST);
    let clock = SystemClock::new();
    let begin = clock.now();
    let looks = store.nodes().iter().map(|(_, node)| look(node, limit));
    let mut found = join_all(looks).await;
    if clock.now().since(begin) > limit {
        for one in &mut found {
            if one.is_ok() {
                *one = Err(InitState::Failed(too_long(limit)));
            }
        }
    }
    same_servers(store, &mut found);
    let all_empty = found.iter().all(Result::is_ok);
    let nodes = store.nodes().iter().zip(found);
    let states = nodes.map(|((name, node), found)| async move {
        let state = match found {
            Ok(found) if all_empty => open(node, &found, limit, quarantine).await,
            Ok(_) => InitState::Empty,
            Err(state) => state,
        };
        NodeInit {
            name: name.clone(),
            state,
        }
    });
    InitReport {
        nodes: join_all(states).await,
    }
}

fn too_long(limit: Duration) -> StoreError {
    StoreError::unavailable(format!(
        "the nodes did not all answer within {limit:?}; try again"
    ))
}

fn same_servers(store: &RedlockStore, found: &mut [Result<Found, InitState>]) {
    let mut first = HashMap::new();
    for ((name, _), found) in store.nodes().iter().zip(found) {
        if let Ok(one) = found
            && let Some(node) = first.insert(one.run.clone(), name.clone())
        {
            first.insert(one.run.clone(), node.clone());
            *found = Err(InitState::Same { node });
        }
    }
}

async fn look(node: &RedisStore, limit: Duration) -> Result<Found, InitState> {
    let looked = tokio::time::timeout(limit, look_for_long(node)).await;
    looked.unwrap_or_else(|_| Err(InitState::Failed(too_long(limit))))
}

async fn look_for_long(node: &RedisStore) -> Result<Found, InitState> {
    let glance = node.glance().await.map_err(InitState::Failed)?;
    if glance.is_replica() {
        return Err(InitState::Failed(StoreError::refusing(
            "this server is a replica; name the primary in the URL",
        )));
    }
    let (Some(run), Some(life), Some(at_us), Some(marked)) = (
        glance.run(),
        glance.life(),
        glance.now_us(),
        glance.has_marker(),
    ) else {
        return Err(InitState::Failed(StoreError::refusing(
            "the server does not tell its run, its clock or its birth marker; give the user the \
             rights that the page of lease-redis lists, +info among them",
        )));
    };
    if marked {
        return Err(InitState::InUse(InUse::Marker));
    }
    if node.has_records().await.map_err(InitState::Failed)? {
        return Err(InitState::InUse(InUse::Record));
    }
    Ok(Found {
        run: run.to_owned(),
        life,
        at_us,
    })
}

async fn open(node: &RedisStore, found: &Found, limit: Duration, quarantine: Ttl) -> InitState {
    let mut script = redis::cmd("EVAL");
    script.arg(CODE).arg(1).arg(node.names().birth());
    script.arg(&found.life).arg(found.at_us);
    script.arg(micros(limit)).arg(micros(quarantine.get()));
    let answer = async {
        let lane = node.plain_lane()?;
        let up = lane.sender().link().connection().await?;
        let answer = lane.sender().ask(&up, &script).await;
        answer.map_err(|error| classify(Phase::Sent, "Redis did not open the node", error))
    };
    match answer.await {
        Ok(Value::Int(1)) => InitState::Opened,
        Ok(Value::Int(0)) => InitState::InUse(InUse::Marker),
        Ok(Value::Int(_)) => InitState::Changed,
        Ok(_) => InitState::Failed(crate::reply::odd()),
        Err(error) => InitState::Failed(error),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
