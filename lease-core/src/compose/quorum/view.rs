//! What a majority shows of a key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::StreamExt;
use tokio::time::Instant;

use super::Inner;
use super::fan_out::those_beside;
use crate::backend::{Holder, KeyState};
use crate::error::StoreError;
use crate::key::{Key, Label};
use crate::token::Token;

/// How long one more answer is waited for that would show who holds a key.
const TO_BE_SURE: Duration = Duration::from_secs(1);

pub(super) async fn inspect(inner: &Arc<Inner>, key: &Key) -> Result<KeyState, StoreError> {
    let asked = Instant::now();
    let mut answers = inner.ask_all(|node| {
        let key = key.clone();
        async move { node.backend.inspect(&key).await }
    });
    let (mut states, mut failed) = (Vec::new(), Vec::new());
    let mut take = |states: &mut Vec<KeyState>, i, answer| match answer {
        Ok(state) => states.push(state),
        Err(error) => failed.push((i, error)),
    };
    while states.len() < inner.majority {
        let Some((i, answer)) = answers.next().await else {
            break;
        };
        take(&mut states, i, answer);
    }
    if states.len() >= inner.majority {
        those_beside(&mut answers, asked, |i, answer| {
            take(&mut states, i, answer)
        })
        .await;
        // A grant that not all of these show may still be a majority's.
        let until = Instant::now() + TO_BE_SURE;
        while is_open(inner, &states, answers.len())
            && let Ok(Some((i, answer))) = tokio::time::timeout_at(until, answers.next()).await
        {
            take(&mut states, i, answer);
        }
        return Ok(merge(inner.majority, key.clone(), &states));
    }
    let failed: Vec<_> = failed.iter().map(|(i, e)| (*i, e)).collect();
    Err(inner.no_majority("inspect", &failed, false))
}

/// Whether the answers still to come could show a holder.
fn is_open(inner: &Inner, states: &[KeyState], awaited: usize) -> bool {
    let most = by_token(states).values().map(Vec::len).max().unwrap_or(0);
    most > 0 && most < inner.majority && most + awaited >= inner.majority
}

fn by_token(states: &[KeyState]) -> BTreeMap<Token, Vec<&Holder>> {
    let mut holders = BTreeMap::<Token, Vec<&Holder>>::new();
    for holder in states.iter().filter_map(|state| state.holder.as_ref()) {
        holders.entry(holder.token).or_default().push(holder);
    }
    holders
}

/// One state out of those of at least a majority of nodes.
pub(super) fn merge(majority: usize, key: Key, states: &[KeyState]) -> KeyState {
    // Owners are not shown: a token that a majority has is one owner's.
    let holders = by_token(states);
    let agreed = holders.values().find(|same| same.len() >= majority);
    let holder = agreed.map(|same| Holder {
        label: label(same),
        token: same.first().map_or(Token::MIN, |holder| holder.token),
        // A majority had it since then, and has it for so long.
        age: nth_greatest(same.iter().map(|h| h.age), majority),
        remaining: nth_greatest(same.iter().map(|h| h.remaining), majority),
    });
    // While a majority is blocked by anything, nobody can be granted it.
    let blocks = states.iter().map(|state| {
        let held = state.holder.as_ref().map(|h| h.remaining);
        state.blocked_for.or(held).unwrap_or_default()
    });
    // Unless so many are free that the rest is no obstacle.
    let in_the_way = (states.len() + 1).saturating_sub(majority);
    let blocked = nth_greatest(blocks, in_the_way);
    KeyState {
        key,
        high_water: states.iter().filter_map(|state| state.high_water).max(),
        blocked_for: (holder.is_none() && !blocked.is_zero()).then_some(blocked),
        holder,
    }
}

fn label(same: &[&Holder]) -> Label {
    // A node that was healed may not have it.
    let named = same.iter().find(|holder| !holder.label.as_str().is_empty());
    named.map(|holder| holder.label.clone()).unwrap_or_default()
}

/// The `n`th greatest, from 1; zero when there are fewer.
fn nth_greatest(all: impl Iterator<Item = Duration>, n: usize) -> Duration {
    let mut all: Vec<Duration> = all.collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    let nth = n.checked_sub(1).and_then(|n| all.get(n));
    nth.copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(mark: u64, holder: Option<(u64, u64)>, blocked: Option<u64>) -> KeyState {
        KeyState {
            key: Key::new("k").unwrap(),
            high_water: Token::new(mark).ok(),
            holder: holder.map(|(token, seconds)| Holder {
                label: Label::new("w").unwrap(),
                token: Token::new(token).unwrap(),
                age: Duration::ZERO,
                remaining: Duration::from_secs(seconds),
            }),
            blocked_for: blocked.map(Duration::from_secs),
        }
    }

    fn merged(states: &[KeyState]) -> (u64, Option<(u64, u64)>, Option<u64>) {
        let merged = merge(2, Key::new("k").unwrap(), states);
        (
            merged.high_water.map_or(0, Token::get),
            merged
                .holder
                .map(|h| (h.token.get(), h.remaining.as_secs())),
            merged.blocked_for.map(|blocked| blocked.as_secs()),
        )
    }

    #[test]
    fn a_majority_shows_the_holder_and_the_highest_mark() {
        let held = |s| state(5, Some((5, s)), None);
        assert_eq!(
            merged(&[held(9), held(7), state(6, None, None)]),
            (6, Some((5, 7)), None)
        );
        assert_eq!(merged(&[held(9), state(6, None, None)]), (6, None, Some(9)));
        let free = state(6, None, None);
        assert_eq!(merged(&[held(9), free.clone(), free]), (6, None, None));
        let other = state(6, Some((6, 4)), None);
        assert_eq!(
            merged(&[held(9), other, state(1, None, None)]),
            (6, None, Some(4))
        );
        let blocked = state(8, None, Some(3));
        assert_eq!(
            merged(&[blocked.clone(), blocked.clone(), blocked]),
            (8, None, Some(3))
        );
    }
}
