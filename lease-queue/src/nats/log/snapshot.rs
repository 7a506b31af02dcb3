//! Snapshots: the state as of a message, in chunks of a stream of their own.
//!
//! A snapshot is complete when its *pointer* is stored, which is after all its chunks
//! are. It says where these are, and as of which message it is. The stream keeps the last
//! few messages of each subject, so that a writer that stopped half way spoils nothing,
//! nor does one that is late. Whoever reads one sees to it that the message as of which it
//! is still stands in the log: then all that follow stand there, too, and it is of the
//! same history.

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use lease_core::StoreError;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::message::{self, MARGIN, Mark, Named, Nonce};
use super::replica::Replica;
use super::shared::{Prepared, Shared};
use super::waiting::What;
use super::{Machine, Piece, errors};
use crate::nats::link::{Link, Set, Which};

/// Messages of each subject that the stream of snapshots keeps.
pub(super) const KEPT_SNAPS: i64 = 8;

/// Bytes of a chunk.
const CHUNK: usize = 256 << 10;
/// Chunks that are under way together.
const TOGETHER: usize = 4;

const VERSION: u32 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pointer {
    leases: u32,
    as_of: (u64, Nonce),
    bytes: u64,
    /// The revisions of its chunks.
    chunks: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PieceHead<J> {
    piece: J,
    bodies: Vec<usize>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChunkHead {
    leases: u32,
    as_of: (u64, Nonce),
    chunk: usize,
}

fn pack(pieces: &[Piece]) -> Result<Bytes, StoreError> {
    let mut all = Vec::new();
    for (piece, bodies) in pieces {
        let head = PieceHead {
            piece: &**piece,
            bodies: bodies.iter().map(Bytes::len).collect(),
        };
        all.extend_from_slice(&message::joined(&head, bodies)?);
    }
    Ok(all.into())
}

fn unpack(all: &[u8]) -> Option<Vec<Piece>> {
    let (mut rest, mut pieces) = (all, Vec::new());
    while !rest.is_empty() {
        let (line, behind) = message::line(rest)?;
        let head: PieceHead<Box<RawValue>> = serde_json::from_slice(line).ok()?;
        rest = behind;
        let bodies = message::take(&mut rest, &head.bodies)?;
        pieces.push((head.piece, bodies));
    }
    Some(pieces)
}

/// Stores one message, again until it is acknowledged: a copy does no harm.
async fn store(
    link: &Link,
    subject: &str,
    payload: Bytes,
    deadline: Instant,
) -> Result<u64, StoreError> {
    loop {
        let failed = match link.set(subject, None, payload.clone(), deadline).await {
            Set::Done(revision) => return Ok(revision),
            Set::Not(error) if !error.is_transient() => return Err(error),
            Set::Not(error) | Set::Unknown(error) => error,
            Set::Moved => StoreError::unavailable("the snapshot was not taken"),
        };
        if link.pause(deadline).await.is_err() {
            return Err(failed);
        }
    }
}

/// Writes a snapshot, and has the log name it.
pub(super) async fn write<M: Machine>(shared: &Shared<M>, prepared: Prepared) {
    let as_of = prepared.last.revision;
    match try_to_write(shared, prepared).await {
        Ok(named) => {
            tracing::debug!(subject = %shared.subject, as_of, bytes = named.bytes, "snapshot");
            shared.enqueue(What::Named(named));
        }
        Err(error) => {
            tracing::warn!(subject = %shared.subject, as_of, error = %error,
                "a snapshot of a queue was not written");
            shared.note_trouble(errors::no_snapshot(error));
        }
    }
}

async fn try_to_write<M: Machine>(
    shared: &Shared<M>,
    prepared: Prepared,
) -> Result<Named, StoreError> {
    let link = &shared.snaps;
    let as_of = (prepared.last.revision, prepared.last.nonce);
    let all = pack(&prepared.pieces)?;
    drop(prepared.pieces);
    let size = CHUNK.min(shared.most_bytes()).max(MARGIN);
    let chunks = (0..all.len().div_ceil(size)).map(|chunk| {
        let bytes = all.slice(chunk * size..all.len().min((chunk + 1) * size));
        let subject = format!("{}.{chunk}", shared.snap);
        async move {
            let head = ChunkHead {
                leases: VERSION,
                as_of,
                chunk,
            };
            let payload = message::joined(&head, &[bytes])?;
            // Each in its own time: a large one takes as long as it takes.
            store(link, &subject, payload, link.deadline()).await
        }
    });
    let chunks: Vec<_> = chunks.collect();
    let chunks: Vec<u64> = stream::iter(chunks)
        .buffered(TOGETHER)
        .try_collect()
        .await?;
    let pointer = Pointer {
        leases: VERSION,
        as_of,
        bytes: all.len() as u64,
        chunks,
    };
    let payload = serde_json::to_vec(&pointer).map_err(errors::unwritable)?;
    let subject = format!("{}.p", shared.snap);
    store(link, &subject, payload.into(), link.deadline()).await?;
    Ok(Named {
        covers: prepared.covers,
        bytes: all.len() as u64,
    })
}

/// The latest state of which a complete snapshot is there that fits the log.
pub(super) async fn find<M: Machine>(shared: &Shared<M>) -> Result<Option<Replica<M>>, StoreError> {
    let link = &shared.snaps;
    let deadline = link.deadline();
    let subject = format!("{}.p", shared.snap);
    let (mut pointers, mut from) = (Vec::new(), 1);
    while let Some(stored) = link.read(&subject, Which::From(from), deadline).await? {
        from = stored.revision + 1;
        let pointer: Option<Pointer> = serde_json::from_slice(&stored.payload).ok();
        pointers.extend(pointer.filter(|pointer| pointer.leases == VERSION));
    }
    pointers.sort_by_key(|pointer| std::cmp::Reverse(pointer.as_of.0));
    for pointer in pointers {
        let (revision, nonce) = pointer.as_of;
        let mark = Mark { revision, nonce };
        let Some(stamp) = stands(shared, mark).await? else {
            continue;
        };
        match read(shared, &pointer).await? {
            Some(replica) if (replica.last, replica.stamp) == (mark, stamp) => {
                return Ok(Some(replica));
            }
            _ => tracing::warn!(subject = %shared.subject, as_of = revision,
                "a snapshot of a queue cannot be read; an older one is used"),
        }
    }
    Ok(None)
}

/// When this message was stored, if it is in the log.
pub(super) async fn stands<M: Machine>(
    shared: &Shared<M>,
    mark: Mark,
) -> Result<Option<u64>, StoreError> {
    let link = &shared.link;
    let which = Which::From(mark.revision);
    let found = link.read(&shared.subject, which, link.deadline()).await?;
    let found = found.filter(|stored| stored.revision == mark.revision);
    Ok(found.and_then(|stored| {
        let message = message::decode::<M>(&stored.payload).ok()?;
        (message.nonce == mark.nonce).then(|| stored.us())
    }))
}

async fn read<M: Machine>(
    shared: &Shared<M>,
    pointer: &Pointer,
) -> Result<Option<Replica<M>>, StoreError> {
    let link = &shared.snaps;
    let chunks = pointer.chunks.iter().enumerate().map(|(chunk, revision)| {
        let subject = format!("{}.{chunk}", shared.snap);
        async move {
            let which = Which::From(*revision);
            let stored = link.read(&subject, which, link.deadline()).await?;
            let stored = stored.filter(|stored| stored.revision == *revision);
            Ok::<_, StoreError>(stored.and_then(|stored| {
                let (line, bytes) = message::line(&stored.payload)?;
                let head: ChunkHead = serde_json::from_slice(line).ok()?;
                let fits = head.leases == VERSION && head.chunk == chunk;
                (fits && head.as_of == pointer.as_of).then(|| stored.payload.slice_ref(bytes))
            }))
        }
    });
    let chunks: Vec<_> = chunks.collect();
    let chunks: Vec<Option<Bytes>> = stream::iter(chunks)
        .buffered(TOGETHER)
        .try_collect()
        .await?;
    let Some(chunks) = chunks.into_iter().collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let all = chunks.concat();
    Ok(unpack(&all)
        .filter(|_| all.len() as u64 == pointer.bytes)
        .and_then(Replica::load))
}
