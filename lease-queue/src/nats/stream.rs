//! The stream of the owner records: made if there is none, and looked at if there is.

use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, Republish, RetentionPolicy, StorageType,
};
use async_nats::jetstream::{Context, ErrorCode};
use lease_core::StoreError;

use super::chain::MOST_BEHIND;
use super::errors;
use super::names::Names;
use super::options::NatsOptions;

/// In a cluster, unless configured: the fewest that can lose one.
const REPLICAS: usize = 3;

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

/// Sees to it that the stream is there and as it must be; on how many servers it is.
pub(super) async fn ready(context: &Context, options: &NatsOptions) -> Result<usize, StoreError> {
    if let Some(found) = find(context, &options.names).await? {
        return Ok(found);
    }
    let made = match options.replicas {
        Some(replicas) => make(context, &options.names, replicas).await?,
        None => match make(context, &options.names, REPLICAS).await? {
            Made::NoCluster => make(context, &options.names, 1).await?,
            made => made,
        },
    };
    match made {
        Made::Yes(replicas) => Ok(replicas),
        Made::NoCluster => Err(StoreError::refusing(
            "the server is in no cluster, and the stream is to have replicas; say replicas=1",
        )),
        // Somebody else was faster, perhaps with other settings.
        Made::Other => find(context, &options.names).await?.ok_or_else(|| {
            StoreError::unavailable(format!(
                "the stream {} was there and is not; try again",
                options.names.stream()
            ))
        }),
    }
}

async fn find(context: &Context, names: &Names) -> Result<Option<usize>, StoreError> {
    let name = names.stream();
    let error = match context.get_stream(&name).await {
        Ok(stream) => return fits(&stream.cached_info().config, names).map(Some),
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

async fn make(context: &Context, names: &Names, replicas: usize) -> Result<Made, StoreError> {
    let error = match context.create_stream(wanted(names, replicas)).await {
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

/// Whether what is there keeps each lane's last record, for ever.
fn fits(found: &Config, names: &Names) -> Result<usize, StoreError> {
    let ours = wanted(names, found.num_replicas);
    let wrong = [
        (found.subjects != ours.subjects, "its subjects"),
        (
            found.max_messages_per_subject != ours.max_messages_per_subject,
            "max_msgs_per_subject",
        ),
        (!found.max_age.is_zero(), "max_age"),
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
