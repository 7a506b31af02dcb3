//! What sentinels and servers are asked.

use std::collections::HashMap;
use std::time::Duration;

use redis::AsyncConnectionConfig;

use crate::address::Address;
use crate::client::{Client, Connection};
use crate::doctor::ask::{Answer, Questions, Refusal};
use crate::doctor::time::wall_us;
use crate::sentinel::CHANNELS;

type Fields = HashMap<String, String>;

/// What one sentinel says.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) place: String,
    pub(super) primary: Answer<Option<(String, u16)>>,
    pub(super) master: Answer<Fields>,
    pub(super) replicas: Answer<Vec<Fields>>,
    pub(super) quorum: Answer<()>,
    /// The user may not listen there.
    pub(super) deaf: bool,
}

impl Said {
    /// A number of what it says of the primary.
    pub(super) fn number(&self, field: &str) -> Option<u64> {
        self.master.as_ref().ok()?.get(field)?.parse().ok()
    }

    pub(super) fn replica_addresses(&self) -> Vec<Address> {
        let replicas = self.replicas.as_deref().unwrap_or_default();
        let address = |fields: &Fields| {
            Some(Address {
                host: fields.get("ip")?.as_str().into(),
                port: fields.get("port")?.parse().ok()?,
            })
        };
        replicas.iter().filter_map(address).collect()
    }
}

/// Asks one sentinel everything, or says why that cannot be.
pub(super) async fn look_at_sentinel(
    sentinel: &Client,
    name: &str,
    within: Duration,
) -> Result<Said, String> {
    let late = |_| format!("no answer within {within:?}");
    let look = async {
        let mut connection = connect(sentinel, within).await?;
        let mut questions = Questions::default();
        let mut ask = |what: &str| {
            let mut command = redis::cmd("SENTINEL");
            command.arg(what).arg(name);
            questions.put(command)
        };
        let primary = ask("GET-MASTER-ADDR-BY-NAME");
        let master = ask("MASTER");
        let replicas = ask("REPLICAS");
        let quorum = ask("CKQUORUM");
        let answers = questions.ask(&mut connection).await;
        let answers = answers.map_err(|error| error.message().to_owned())?;
        let primary = answers.hear(primary);
        if matches!(&primary, Err(Refusal::Error(code)) if code == "NOAUTH") {
            return Err("it wants a login: ?sentinel_user=…&sentinel_password=…".to_owned());
        }
        Ok(Said {
            place: String::new(),
            primary,
            master: answers.hear(master),
            replicas: answers.hear(replicas),
            quorum: answers.hear::<redis::Value>(quorum).map(drop),
            deaf: false,
        })
    };
    let listen = tokio::time::timeout(within, Box::pin(may_not_listen(sentinel, within)));
    let (said, deaf) = tokio::join!(tokio::time::timeout(within, look), listen);
    let mut said = said.map_err(late)??;
    // What else keeps it from answering is told by the other questions.
    said.deaf = deaf.unwrap_or(false);
    Ok(said)
}

/// Listens as a store does, and says whether the user has no right to.
async fn may_not_listen(sentinel: &Client, within: Duration) -> bool {
    let listen = async {
        let (mut sink, _messages) = sentinel.listen(within).await?.split();
        sink.subscribe(&CHANNELS[..]).await?;
        sink.ping::<redis::Value>().await
    };
    matches!(listen.await, Err(error) if error.code() == Some("NOPERM"))
}

/// A server with data, as it is reached from here.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) place: Address,
    pub(super) seen: Result<NodeSeen, String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NodeSeen {
    /// How far its clock is ahead of ours, in microseconds: at least, at most.
    pub(super) ahead_us: Option<(i64, i64)>,
    /// It keeps nothing on its disk; `None` if it does not say.
    pub(super) keeps_nothing: Option<bool>,
}

impl Node {
    pub(super) fn out_of_reach(place: Address, why: String) -> Self {
        Self {
            place,
            seen: Err(why),
        }
    }
}

pub(super) async fn look_at_node(place: Address, client: &Client, within: Duration) -> Node {
    let look = async {
        let mut connection = connect(client, within).await?;
        // The first answer may wait for a connection, the next is quick.
        let mut seen = None;
        for _ in 0..2 {
            let mut questions = Questions::default();
            let time = questions.put(redis::cmd("TIME"));
            let mut setting = |name: &str| {
                let mut command = redis::cmd("CONFIG");
                command.arg("GET").arg(name);
                questions.put(command)
            };
            let (save, log) = (setting("save"), setting("appendonly"));
            let before = wall_us();
            let answers = questions.ask(&mut connection).await;
            let after = wall_us();
            let answers = answers.map_err(|error| error.message().to_owned())?;
            let setting = |place, name: &str| {
                let found = answers.hear::<Fields>(place).ok()?;
                found.get(name).cloned()
            };
            let (save, log) = (setting(save, "save"), setting(log, "appendonly"));
            let time = answers.hear::<(i64, i64)>(time).ok();
            let ahead = time.map(|(seconds, micros)| {
                let at = seconds.saturating_mul(1_000_000).saturating_add(micros);
                (at.saturating_sub(after), at.saturating_sub(before))
            });
            seen = Some(NodeSeen {
                ahead_us: ahead,
                keeps_nothing: save
                    .zip(log)
                    .map(|(save, log)| save.is_empty() && log == "no"),
            });
        }
        seen.ok_or_else(|| "it was not asked".to_owned())
    };
    let seen = match tokio::time::timeout(within, look).await {
        Ok(seen) => seen,
        Err(_) => Err(format!("no answer within {within:?}")),
    };
    Node { place, seen }
}

async fn connect(client: &Client, within: Duration) -> Result<Connection, String> {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(within));
    let connection = client.connect(within, config).await;
    connection.map_err(|error| error.to_string())
}
