//! Stores of queues at a server: the store itself, and the leases of one of its queues.

use std::sync::Arc;

use lease_core::{Error, Gate, InvalidInput};
use lease_queue::{KeyedLeases, QueueName, QueueStore};

use crate::connect::{self, Connect};
use crate::known::Kind;
use crate::store::Store;

/// The queue whose keys are leased unless the URL says `?queue=NAME`.
const KEYED: &str = "leases";

/// The store of queues.
pub(crate) async fn queues(
    kind: Kind,
    scheme: &str,
    url: &str,
    connect: Connect,
) -> Result<Arc<dyn QueueStore>, Error> {
    Ok(opened(kind, scheme, url, connect).await?.store)
}

/// A store of queues, as one of the leases of a queue.
pub(crate) async fn keyed(
    kind: Kind,
    scheme: &str,
    url: &str,
    connect: Connect,
) -> Result<Store, Error> {
    let opened = opened(kind, scheme, url, connect).await?;
    let leases = KeyedLeases::new(opened.store, opened.queue);
    Ok(Store::new(Arc::new(leases), opened.gate))
}

struct Opened {
    store: Arc<dyn QueueStore>,
    gate: Arc<dyn Gate>,
    queue: QueueName,
}

async fn opened(kind: Kind, scheme: &str, url: &str, connect: Connect) -> Result<Opened, Error> {
    let (url, queue) = split(&connect::with_scheme(scheme, url))?;
    let (store, gate) = match kind {
        #[cfg(feature = "redis")]
        Kind::QueueRedis => redis(&url, connect).await?,
        #[cfg(feature = "postgres")]
        Kind::QueuePostgres => postgres(&url, connect).await?,
        #[cfg(feature = "nats")]
        Kind::Nats => nats(&url, connect).await?,
        _ => return Err(InvalidInput::Url("this store keeps no queues".to_owned()).into()),
    };
    Ok(Opened { store, gate, queue })
}

type Parts = (Arc<dyn QueueStore>, Arc<dyn Gate>);

#[cfg(feature = "redis")]
async fn redis(url: &str, connect: Connect) -> Result<Parts, Error> {
    let options = lease_queue::redis::RedisQueues::options(url)?;
    let store = match connect {
        Connect::Now | Connect::ToLook => options.open().await?,
        Connect::Later => options.open_lazily()?,
    };
    let queues = lease_queue::redis::RedisQueues::over(store.clone())?;
    Ok((Arc::new(queues), Arc::new(store)))
}

#[cfg(feature = "redis")]
pub(crate) fn redis_guarantees() -> Result<lease_core::Guarantees, Error> {
    let options = lease_queue::redis::RedisQueues::options("queue+redis://localhost")?;
    let store = lease_queue::redis::RedisQueues::open_lazily(options)?;
    Ok(store.capabilities().guarantees)
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str, connect: Connect) -> Result<Parts, Error> {
    use lease_queue::postgres::PostgresQueues;
    let options = PostgresQueues::options(url)?;
    let options = match connect {
        Connect::ToLook => options.only_look(),
        Connect::Now | Connect::Later => options,
    };
    // It connects when somebody asks it.
    let gate = options.clone().open_lazily()?;
    let queues = match connect {
        Connect::Now | Connect::ToLook => PostgresQueues::open(options).await?,
        Connect::Later => PostgresQueues::open_lazily(options)?,
    };
    Ok((Arc::new(queues), Arc::new(gate)))
}

#[cfg(feature = "postgres")]
pub(crate) fn postgres_guarantees() -> Result<lease_core::Guarantees, Error> {
    use lease_queue::postgres::PostgresQueues;
    let options = PostgresQueues::options("queue+postgres://localhost")?;
    Ok(PostgresQueues::open_lazily(options)?
        .capabilities()
        .guarantees)
}

#[cfg(feature = "nats")]
async fn nats(url: &str, connect: Connect) -> Result<Parts, Error> {
    let options = lease_queue::nats::NatsOptions::from_url(url)?;
    let store: Arc<dyn QueueStore> = match connect {
        Connect::Now | Connect::ToLook => Arc::new(options.open().await?),
        Connect::Later => Arc::new(options.open_lazily()?),
    };
    let gate = super::gate::MarkGate::new(Arc::clone(&store))?;
    Ok((store, Arc::new(gate)))
}

/// Takes `queue=NAME` out of a URL's options.
fn split(url: &str) -> Result<(String, QueueName), InvalidInput> {
    let (place, options) = url.split_once('?').unwrap_or((url, ""));
    let mut queue = None;
    let mut others = Vec::new();
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.strip_prefix("queue=") {
            None => others.push(option),
            Some(_) if queue.is_some() => {
                return Err(InvalidInput::Url(
                    "a URL of queues names queue twice; take one of them away".to_owned(),
                ));
            }
            Some(name) => queue = Some(name),
        }
    }
    let name = match queue {
        None => KEYED.to_owned(),
        Some(name) => decoded(name).ok_or_else(not_a_name)?,
    };
    let queue = QueueName::new(name).map_err(|_| not_a_name())?;
    let url = match others.is_empty() {
        true => place.to_owned(),
        false => format!("{place}?{}", others.join("&")),
    };
    Ok((url, queue))
}

/// Its words repeat nothing: what stands there may be a part of a password.
fn not_a_name() -> InvalidInput {
    InvalidInput::Url(format!(
        "queue in a URL must be a queue's name, 1 to {} bytes of printable text, with special \
         characters written as %40 and the like",
        lease_queue::QUEUE_NAME_BYTES
    ))
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_taken_out_of_the_options() {
        let of = |url| {
            let (url, queue) = split(url).unwrap();
            (url, queue.as_str().to_owned())
        };
        assert_eq!(of("q://h/0"), ("q://h/0".into(), "leases".into()));
        assert_eq!(of("q://h?queue=a%2fb"), ("q://h".into(), "a/b".into()));
        let (url, queue) = of("q://h?a=1&queue=x&b=2");
        assert_eq!((&*url, &*queue), ("q://h?a=1&b=2", "x"));
    }

    #[test]
    fn a_name_that_is_none_is_refused_and_not_repeated() {
        for odd in [
            "",
            "hunter2%",
            "hunter2%zz",
            "%00hunter2",
            "a&queue=b",
            "%ff",
        ] {
            let words = split(&format!("q://h?queue={odd}"))
                .unwrap_err()
                .to_string();
            assert!(!words.contains("hunter2"), "{words}");
        }
    }
}
