//! Many renewals in few statements.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use lease_core::{Key, RenewOutcome, RenewRequest, StoreError};

use crate::lane::Lane;
use crate::reply::Reply;
use crate::request::Request;
use crate::wire::Failure;

/// Requests for one statement, each with its place among all.
type Chunk<'a> = Vec<(usize, &'a RenewRequest)>;

/// The most in one statement: each costs the server some microseconds, and the
/// others of the chunk wait for them.
const MOST_AT_ONCE: usize = 1_000;

/// One outcome for each request, in their order.
///
/// # Cancel safety
/// Any of them may have taken effect; repeating is safe.
pub(crate) async fn renew_many(
    lane: &Arc<Lane>,
    requests: &[RenewRequest],
    at_once: usize,
) -> Vec<Result<RenewOutcome, StoreError>> {
    let chunks = chunks(requests).into_iter();
    let chunks: Vec<_> = chunks.map(|chunk| renew_chunk(lane, chunk)).collect();
    let mut outcomes: Vec<_> = stream::iter(chunks)
        .buffer_unordered(at_once)
        .flat_map(stream::iter)
        .collect()
        .await;
    outcomes.sort_unstable_by_key(|(place, _)| *place);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

async fn renew_chunk(
    lane: &Arc<Lane>,
    mut chunk: Chunk<'_>,
) -> Vec<(usize, Result<RenewOutcome, StoreError>)> {
    // In the order in which everybody locks rows.
    chunk.sort_unstable_by(|(_, one), (_, other)| one.key.cmp(&other.key));
    let (places, renewals): (Vec<_>, Vec<_>) = chunk.into_iter().unzip();
    let requests: Vec<_> = renewals.iter().map(|one| Request::prolong(one)).collect();
    let answers = match lane.exchange().send(&requests).await {
        Ok(replies) => replies.answers,
        // It had no effect: each by itself.
        Err(Failure::Said(_) | Failure::Raced(_)) => places.iter().map(|_| None).collect(),
        Err(Failure::Gone(error) | Failure::Unsent(error) | Failure::NoTables(error)) => {
            places.iter().map(|_| Some(Err(error.clone()))).collect()
        }
    };
    let each = renewals.into_iter().zip(answers).zip(places);
    let each = each.map(|((renewal, answer), place)| async move {
        let reply = match answer {
            Some(reply) => reply,
            // It is not live, or its row was locked.
            None => lane.ask(Request::renew(renewal)).await,
        };
        (place, reply.and_then(Reply::renewed))
    });
    join_all(each).await
}

/// Chunks of a size, no key twice in one.
fn chunks(requests: &[RenewRequest]) -> Vec<Chunk<'_>> {
    let mut chunks: Vec<Chunk<'_>> = Vec::new();
    let mut left: Vec<_> = requests.iter().enumerate().collect();
    // One pass, unless a key is asked for more than once.
    while !left.is_empty() {
        let mut keys: HashSet<&Key> = HashSet::with_capacity(left.len());
        let (now, later): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|(_, request)| keys.insert(&request.key));
        chunks.extend(now.chunks(MOST_AT_ONCE).map(<[_]>::to_vec));
        left = later;
    }
    chunks
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lease_core::{Owner, Token, Ttl};

    use super::*;

    #[test]
    fn no_key_is_twice_in_a_chunk_and_none_is_lost() {
        let request = |n: usize| RenewRequest {
            key: Key::new(format!("k{}", n % 1_500)).unwrap(),
            owner: Owner::random().unwrap(),
            token: Token::MIN,
            ttl: Ttl::new(Duration::from_secs(1)).unwrap(),
        };
        let requests: Vec<_> = (0..4_000).map(request).collect();
        let chunks = chunks(&requests);
        let mut places: Vec<_> = chunks.iter().flatten().map(|(place, _)| *place).collect();
        places.sort_unstable();
        assert_eq!(places, (0..4_000).collect::<Vec<_>>());
        for chunk in &chunks {
            let keys: HashSet<_> = chunk.iter().map(|(_, one)| &one.key).collect();
            assert_eq!(keys.len(), chunk.len());
            assert!(chunk.len() <= MOST_AT_ONCE);
        }
    }
}
