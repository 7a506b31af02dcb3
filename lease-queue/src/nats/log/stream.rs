//! The streams of the logs and of the snapshots.

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use lease_core::StoreError;

use super::replica::KEPT;
use super::snapshot::KEPT_SNAPS;
use crate::nats::errors;
use crate::nats::link::Link;
use crate::nats::names::Names;
use crate::nats::options::NatsOptions;
use crate::nats::stream;

/// Nothing is removed but the oldest messages of a subject: see `replica`, and `chain` on
/// why not.
fn kept(replicas: usize, most_per_subject: i64) -> Config {
    Config {
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: replicas,
        max_messages_per_subject: most_per_subject,
        max_messages: -1,
        max_bytes: -1,
        max_consumers: -1,
        discard: DiscardPolicy::Old,
        deny_delete: true,
        deny_purge: true,
        ..Config::default()
    }
}

fn logs(names: &Names, replicas: usize) -> Config {
    Config {
        name: names.logs_stream(),
        description: Some("logs of queues of leases; do not delete any message".into()),
        subjects: vec![names.logs()],
        ..kept(replicas, KEPT as i64)
    }
}

fn snaps(names: &Names, replicas: usize) -> Config {
    Config {
        name: names.snaps_stream(),
        description: Some("snapshots of queues of leases; do not delete any message".into()),
        subjects: vec![names.snaps()],
        ..kept(replicas, KEPT_SNAPS)
    }
}

/// Sees to it that both streams are there; links to that of the logs and to that of the
/// snapshots, over the connection of this one.
pub(in crate::nats) async fn ready(
    link: &Link,
    options: &NatsOptions,
) -> Result<(Link, Link), StoreError> {
    let names = &options.names;
    let context = &link.context;
    let logs_on = stream::see_to(context, &|n| logs(names, n), options).await?;
    let snaps_on = stream::see_to(context, &|n| snaps(names, n), options).await?;
    Ok((
        to(link, context, names.logs_stream(), logs_on).await?,
        to(link, context, names.snaps_stream(), snaps_on).await?,
    ))
}

async fn to(
    link: &Link,
    context: &Context,
    name: String,
    replicas: usize,
) -> Result<Link, StoreError> {
    let stream = context
        .get_stream_no_info(&name)
        .await
        .map_err(|e| errors::refusing("the stream cannot be used", e))?;
    Ok(Link {
        stream,
        name,
        replicated: replicas > 1,
        ..link.clone()
    })
}
