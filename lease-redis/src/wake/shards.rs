//! Wake-ups of one node of a cluster: sharded channels, which only the node of
//! their slot knows.
//!
//! # Why another way than a server's
//! The driver's connection for messages cannot subscribe to sharded channels;
//! its usual connection can, by the newer protocol, which every server that has
//! such channels speaks. When a slot moves away, the server takes the
//! subscription back without being asked, and the driver takes that for an
//! answer. So the connection is given up then: its watchers get their hint, and
//! find the new node of their slot.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use futures_util::future::{join_all, try_join_all};
use lease_core::StoreError;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisResult,
    ServerErrorKind, Value,
};
use tokio::sync::Notify;

use super::channels::Channels;
use super::hub::Hub;
use super::task::{Refused, SUBSCRIBE, Voice, refusal, tend, within};
use super::{Limits, Lost};
use crate::client::{Client, Connection};

/// Returns without an error when nobody watches any more.
pub(super) async fn connect_and_serve(
    hub: &Arc<Hub>,
    client: &Client,
    limits: Limits,
    lost: &Lost,
) -> Result<(), StoreError> {
    let ended = Arc::new(Notify::new());
    let leaving = Arc::<Mutex<HashSet<String>>>::default();
    let ear = Ear {
        hub: Arc::clone(hub),
        ended: Arc::clone(&ended),
        leaving: Arc::clone(&leaving),
    };
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(Some(limits.response))
        .set_push_sender(move |push| {
            ear.hear(&push);
            Ok::<_, ()>(())
        });
    let connecting = async {
        let info = client.info().clone();
        let login = info.redis_settings().clone();
        let login = login.set_protocol(ProtocolVersion::RESP3);
        let client = client.with(info.set_redis_settings(login))?;
        client.connect(limits.connect, config).await
    };
    let connection = within(limits.connect, "connect", connecting).await?;
    hub.with(Channels::connected);
    let mouth = Mouth {
        connection,
        leaving,
        lost: Arc::clone(lost),
    };
    tokio::select! {
        () = ended.notified() => Err(StoreError::unavailable(
            "the connection for wake-ups of a node of the Redis Cluster ended, or a slot moved \
             away from it; it is opened again while somebody watches",
        )),
        end = tend(hub, mouth, limits) => end,
    }
}

/// Hears what the server says by itself, in the driver's own task.
struct Ear {
    hub: Arc<Hub>,
    ended: Arc<Notify>,
    leaving: Arc<Mutex<HashSet<String>>>,
}

impl Ear {
    fn hear(&self, push: &PushInfo) {
        let channel = || match push.data.first() {
            Some(Value::BulkString(name)) => std::str::from_utf8(name).ok(),
            Some(Value::SimpleString(name)) => Some(name.as_str()),
            _ => None,
        };
        match push.kind {
            PushKind::SMessage => {
                if let Some(channel) = channel() {
                    self.hub.with(|channels| channels.hint(channel));
                }
            }
            PushKind::SUnsubscribe => {
                let mut leaving = self.leaving.lock().unwrap_or_else(|e| e.into_inner());
                let asked = channel().is_some_and(|channel| leaving.remove(channel));
                drop(leaving);
                if !asked {
                    self.ended.notify_one();
                }
            }
            PushKind::Disconnection => self.ended.notify_one(),
            _ => {}
        }
    }
}

/// Tells the server what to send.
struct Mouth {
    connection: Connection,
    leaving: Arc<Mutex<HashSet<String>>>,
    lost: Lost,
}

impl Voice for Mouth {
    /// Each channel by itself: they must share a slot otherwise. One whose slot is
    /// elsewhere, or nowhere, says nothing of the others.
    async fn add(&self, names: &[Arc<str>]) -> RedisResult<Refused> {
        let all = names.iter().map(|name| self.say("SSUBSCRIBE", name));
        let answers = join_all(all).await;
        let mut refused = Refused::new();
        for (name, answer) in names.iter().zip(answers) {
            match answer {
                Ok(()) => {}
                Err(error) if is_of_the_slot(error.kind()) => {
                    refused.push((Arc::clone(name), refusal(SUBSCRIBE, error)));
                }
                Err(error) => return Err(error),
            }
        }
        if !refused.is_empty() {
            (self.lost)();
        }
        Ok(refused)
    }

    async fn remove(&self, names: &[Arc<str>]) -> RedisResult<()> {
        {
            let mut leaving = self.leaving.lock().unwrap_or_else(|e| e.into_inner());
            leaving.extend(names.iter().map(|name| (**name).to_owned()));
        }
        let all = names.iter().map(|name| self.say("SUNSUBSCRIBE", name));
        try_join_all(all).await.map(drop)
    }

    async fn is_there(&self) -> RedisResult<()> {
        self.send(&redis::cmd("PING")).await
    }
}

impl Mouth {
    async fn say(&self, command: &str, name: &str) -> RedisResult<()> {
        let mut command = redis::cmd(command);
        command.arg(name);
        self.send(&command).await
    }

    async fn send(&self, command: &Cmd) -> RedisResult<()> {
        let mut connection = self.connection.clone();
        let answer = connection.send(command).await;
        answer.and_then(Value::extract_error).map(drop)
    }
}

/// Whether the node does not serve this slot, now or any more.
fn is_of_the_slot(kind: ErrorKind) -> bool {
    use ServerErrorKind::{Ask, ClusterDown, Moved, TryAgain};
    matches!(
        kind,
        ErrorKind::Server(Ask | ClusterDown | Moved | TryAgain)
    )
}
