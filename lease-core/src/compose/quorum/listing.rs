//! The keys of a majority's lists.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use tokio::time::{Instant, timeout_at};

use super::fan_out::those_beside;
use super::{Inner, view};
use crate::backend::KeyState;
use crate::error::StoreError;
use crate::key::Key;

type Keys = BTreeMap<Key, Vec<KeyState>>;

pub(super) fn list(
    inner: &Arc<Inner>,
    prefix: &str,
) -> BoxStream<'static, Result<KeyState, StoreError>> {
    if !inner.guarantees.listing {
        let error = StoreError::refusing("too few nodes of this quorum can list their keys");
        return stream::once(async { Err(error) }).boxed();
    }
    let (inner, prefix) = (Arc::clone(inner), prefix.to_owned());
    stream::once(async move {
        match collect(&inner, &prefix).await {
            Ok(keys) => stream::iter(keys)
                .map(move |(key, states)| Ok(view::merge(&inner, key, &states)))
                .left_stream(),
            Err(error) => stream::once(async { Err(error) }).right_stream(),
        }
    })
    .flatten()
    .boxed()
}

async fn collect(inner: &Inner, prefix: &str) -> Result<Keys, StoreError> {
    let asked = Instant::now();
    let mut answers = inner.ask_all(|node| {
        let states = node.backend.list(prefix);
        async move { states.try_collect::<Vec<KeyState>>().await }
    });
    let (mut lists, mut failed) = (Vec::new(), Vec::new());
    let mut take = |lists: &mut Vec<_>, i, answer| match answer {
        Ok(list) => lists.push(list),
        Err(error) => failed.push((i, error)),
    };
    while lists.len() < inner.majority {
        let Some((i, answer)) = answers.next().await else {
            break;
        };
        take(&mut lists, i, answer);
    }
    if lists.len() < inner.majority {
        let failed: Vec<_> = failed.iter().map(|(i, e)| (*i, e)).collect();
        return Err(inner.no_majority("list", &failed, false));
    }
    those_beside(&mut answers, asked, |i, answer| take(&mut lists, i, answer)).await;
    let until = Instant::now() + view::TO_BE_SURE;
    while is_open(inner, &lists, answers.len())
        && let Ok(Some((i, answer))) = timeout_at(until, answers.next()).await
    {
        take(&mut lists, i, answer);
    }
    Ok(by_key(lists))
}

/// Whether the lists still to come could show more of some key.
fn is_open(inner: &Inner, lists: &[Vec<KeyState>], awaited: usize) -> bool {
    let open = |states: &Vec<KeyState>| view::is_open(inner, states, awaited);
    awaited > 0 && by_key(lists.to_vec()).values().any(open)
}

fn by_key(lists: Vec<Vec<KeyState>>) -> Keys {
    let nodes = lists.len();
    let mut keys = Keys::new();
    for state in lists.into_iter().flatten() {
        keys.entry(state.key.clone()).or_default().push(state);
    }
    for (key, states) in &mut keys {
        // A node that listed and does not have the key says that it is free.
        let free = || KeyState {
            key: key.clone(),
            high_water: None,
            holder: None,
            blocked_for: None,
        };
        states.resize_with(states.len().max(nodes), free);
    }
    keys
}
