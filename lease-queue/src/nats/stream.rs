//! Streams: made if there are none, and looked at if there are. Here that of the owner
//! records; those of the items are in `log`.

use std::time::Duration;

use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, Republish, RetentionPolicy, StorageType,
};
use async_nats::jetstream::{Context, ErrorCode};
use lease_core::StoreError;
use tokio::time::{Instant, sleep};

use super::chain::MOST_BEHIND;
use super::errors;
use super::names::Names;
use super::options::NatsOptions;

/// In a cluster, unless configured: the fewest that can lose one.
const REPLICAS: usize = 3;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// On several servers those that came at the same time must stay until it is clear
/// which was the first: see `chain`.
const fn most_per_subject(replicas: usize) -> i64 {
    match replicas {
        0 | 1 => 1,
        _ => MOST_BEHIND as i64,
    }
}

fn wanted(names: &Names, replicas: usize) -> Config {
    Config {
        name: names.stream(),
        description: Some("owner records of leases; do not delete any".into()),
        subjects: vec![names.all()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: replicas,
        // The last record of each lane, for ever: it holds the lane's mark.
        max_messages_per_subject: most_per_subject(replicas),
        max_messages: -1,
        max_bytes: -1,
        max_consumers: -1,
        discard: DiscardPolicy::New,
        // With replicas these may also take other messages along: see `chain`.
        deny_delete: true,
        deny_purge: true,
        // The server tells of each record once it has it: for those who wait.
        republish: Some(Republish {
            source: names.all(),
            destination: names.told(),
            headers_only: false,
        }),
        ..Config::default()
    }
}

/// Sees to it that the stream of the owner records is there and as it must be; on how
/// many servers it is.
pub(super) async fn ready(context: &Context, options: &NatsOptions) -> Result<usize, StoreError> {
    let wanted = |replicas| wanted(&options.names, replicas);
    see_to(context, &wanted, options).await
}

/// Sees to it that a stream is there and as it must be; on how many servers it is.
pub(super) async fn see_to(
    context: &Context,
    wanted: &(dyn Fn(usize) -> Config + Sync),
    options: &NatsOptions,
) -> Result<usize, StoreError> {
    let limit = options.response_timeout;
    let deadline = Instant::now() + limit;
    let mut context = context.clone();
    // While others make it, and it has no leader yet, nobody answers; soon somebody does.
    context.set_timeout(limit / 3);
    loop {
        match try_to_see_to(&context, wanted, options.replicas).await {
            Err(error) if error.is_transient() && Instant::now() + PAUSE < deadline => {
                sleep(PAUSE).await;
            }
            result => return result,
        }
    }
}

async fn try_to_see_to(
    context: &Context,
    wanted: &(dyn Fn(usize) -> Config + Sync),
    replicas: Option<usize>,
) -> Result<usize, StoreError> {
    if let Some(found) = find(context, wanted).await? {
        return Ok(found);
    }
    let made = match replicas {
        Some(replicas) => make(context, wanted(replicas)).await?,
        None => match make(context, wanted(REPLICAS)).await? {
            Made::NoCluster => make(context, wanted(1)).await?,
            made => made,
        },
    };
    match made {
        Made::Yes(replicas) => Ok(replicas),
        Made::NoCluster => Err(StoreError::refusing(
            "the server is in no cluster, and the stream is to have replicas; say replicas=1",
        )),
        // Somebody else was faster, perhaps with other settings.
        Made::Other => find(context, wanted).await?.ok_or_else(|| {
            StoreError::unavailable(format!(
                "the stream {} was there and is not; try again",
                wanted(1).name
            ))
        }),
    }
}

async fn find(
    context: &Context,
    wanted: &(dyn Fn(usize) -> Config + Sync),
) -> Result<Option<usize>, StoreError> {
    let error = match context.get_stream(wanted(1).name).await {
        Ok(stream) => {
            let found = &stream.cached_info().config;
            return fits(found, &wanted(found.num_replicas)).map(Some);
        }
        Err(error) => error,
    };
    match error.kind() {
        GetStreamErrorKind::JetStream(said) if said.error_code() == ErrorCode::STREAM_NOT_FOUND => {
            Ok(None)
        }
        GetStreamErrorKind::JetStream(said) => Err(errors::of_api(&said, error)),
        _ => Err(errors::unavailable(
            "JetStream did not answer; is it enabled on the servers and for this account, and \
             may this user ask for it?",
            error,
        )),
    }
}

/// What came of an attempt to make the stream.
enum Made {
    Yes(usize),
    /// There is another one of its name.
    Other,
    /// There are no servers for replicas.
    NoCluster,
}

async fn make(context: &Context, wanted: Config) -> Result<Made, StoreError> {
    let error = match context.create_stream(wanted).await {
        Ok(stream) => return Ok(Made::Yes(stream.cached_info().config.num_replicas)),
        Err(error) => error,
    };
    match error.kind() {
        CreateStreamErrorKind::JetStream(said) => match said.error_code() {
            ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED => Ok(Made::NoCluster),
            ErrorCode::STREAM_NAME_EXIST => Ok(Made::Other),
            _ => Err(errors::of_api(&said, error)),
        },
        CreateStreamErrorKind::JetStreamUnavailable => Err(errors::refusing(
            "the server has no JetStream; turn it on, or use another server",
            error,
        )),
        _ => Err(errors::unavailable(
            "JetStream did not answer when the stream was to be made; try again",
            error,
        )),
    }
}

/// Whether what is there keeps what it must, for ever.
fn fits(found: &Config, ours: &Config) -> Result<usize, StoreError> {
    let wrong = [
        (found.subjects != ours.subjects, "its subjects"),
        (
            found.max_messages_per_subject != ours.max_messages_per_subject,
            "max_msgs_per_subject",
        ),
        (!found.max_age.is_zero(), "max_age"),
        (found.max_messages > 0, "max_msgs"),
        (found.max_bytes > 0, "max_bytes"),
        (found.retention != ours.retention, "its retention"),
        (found.discard != ours.discard, "its discard policy"),
        (found.storage != ours.storage, "its storage"),
        (found.republish != ours.republish, "republish"),
        (found.no_ack || found.sealed, "no_ack or sealed"),
    ];
    let wrong: Vec<_> = wrong
        .iter()
        .filter(|(is_wrong, _)| *is_wrong)
        .map(|(_, what)| *what)
        .collect();
    match wrong.is_empty() {
        true => Ok(found.num_replicas),
        false => Err(StoreError::refusing(format!(
            "the stream {} is not as leases makes it: {} is different; use another prefix, or \
             remove the stream once no lease is held",
            found.name,
            wrong.join(", ")
        ))),
    }
}
