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

/// How long one more answer is waited for that would show who holds a key, or
/// which mark it has.
pub(super) const TO_BE_SURE: Duration = Duration::from_secs(1);
/// What grants of one lease differ by where all nodes have heard the same.
const TOLERANCE: Duration = Duration::from_millis(10);

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
        // A grant that not all of these show may still be a majority's, one of
        // these may not have heard of its renewal, and a mark may be one node's.
        let until = Instant::now() + TO_BE_SURE;
        while is_open(inner, &states, answers.len())
            && let Ok(Some((i, answer))) = tokio::time::timeout_at(until, answers.next()).await
        {
            take(&mut states, i, answer);
        }
        return Ok(merge(inner, key.clone(), &states));
    }
    let failed: Vec<_> = failed.iter().map(|(i, e)| (*i, e)).collect();
    Err(inner.no_majority("inspect", &failed, false))
}

/// Whether the answers still to come could show a lower mark, a holder, or that it
/// has the key for longer.
pub(super) fn is_open(inner: &Inner, states: &[KeyState], awaited: usize) -> bool {
    let marks = states.iter().filter_map(|state| state.high_water);
    if awaited > 0 && is_mark_open(inner, marks) {
        return true;
    }
    let holders = by_token(states);
    let Some(most) = holders.values().max_by_key(|same| same.len()) else {
        return false;
    };
    if most.len() >= inner.majority {
        let remaining = || most.iter().map(|holder| holder.remaining);
        let longest = remaining().max().unwrap_or_default();
        return longest - nth_greatest(remaining(), inner.majority) > TOLERANCE;
    }
    most.len() + awaited >= inner.majority
}

fn by_token(states: &[KeyState]) -> BTreeMap<Token, Vec<&Holder>> {
    let mut holders = BTreeMap::<Token, Vec<&Holder>>::new();
    for holder in states.iter().filter_map(|state| state.holder.as_ref()) {
        holders.entry(holder.token).or_default().push(holder);
    }
    holders
}

/// One state out of those of at least a majority of nodes.
pub(super) fn merge(inner: &Inner, key: Key, states: &[KeyState]) -> KeyState {
    merge_of(inner.majority, inner.spare(), key, states)
}

/// Where `spare` nodes may fail.
fn merge_of(majority: usize, spare: usize, key: Key, states: &[KeyState]) -> KeyState {
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
        high_water: mark(states.iter().filter_map(|state| state.high_water), spare),
        blocked_for: (holder.is_none() && !blocked.is_zero()).then_some(blocked),
        holder,
    }
}

/// The mark of a key of which these nodes have these marks, where `spare` nodes
/// may fail: no lower than any token handed out.
///
/// A majority has a mark at or above each such token; of the nodes that
/// answered, all but `spare` belong to it at least. A higher mark is one of a
/// request that less than a majority granted: once all have answered it does
/// not show. A node without a mark may be one that came back empty: it counts as
/// one that did not answer.
pub(super) fn mark<T: Ord>(marks: impl Iterator<Item = T>, spare: usize) -> Option<T> {
    let marks: Vec<T> = marks.collect();
    let all_but_spare = marks.len().saturating_sub(spare).max(1);
    nth(marks.into_iter(), all_but_spare)
}

fn label(same: &[&Holder]) -> Label {
    // A node that was healed may not have it.
    let named = same.iter().find(|holder| !holder.label.as_str().is_empty());
    named.map(|holder| holder.label.clone()).unwrap_or_default()
}

/// Whether the answers still to come could show a lower mark.
pub(super) fn is_mark_open<T: Ord>(inner: &Inner, marks: impl Iterator<Item = T> + Clone) -> bool {
    mark(marks.clone(), inner.spare()) != nth(marks, inner.majority)
}

/// The `n`th greatest, from 1; zero when there are fewer.
fn nth_greatest(all: impl Iterator<Item = Duration>, n: usize) -> Duration {
    nth(all, n).unwrap_or_default()
}

/// The `n`th greatest, from 1.
fn nth<T: Ord>(all: impl Iterator<Item = T>, n: usize) -> Option<T> {
    let mut all: Vec<T> = all.collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.into_iter().nth(n.checked_sub(1)?)
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
        let merged = merge_of(2, 1, Key::new("k").unwrap(), states);
        (
            merged.high_water.map_or(0, Token::get),
            merged
                .holder
                .map(|h| (h.token.get(), h.remaining.as_secs())),
            merged.blocked_for.map(|blocked| blocked.as_secs()),
        )
    }

    #[test]
    fn a_majority_shows_the_holder_and_the_mark() {
        let held = |s| state(5, Some((5, s)), None);
        assert_eq!(
            merged(&[held(9), held(7), state(6, None, None)]),
            (5, Some((5, 7)), None)
        );
        assert_eq!(merged(&[held(9), state(6, None, None)]), (6, None, Some(9)));
        let free = state(6, None, None);
        assert_eq!(merged(&[held(9), free.clone(), free]), (6, None, None));
        let other = state(6, Some((6, 4)), None);
        assert_eq!(
            merged(&[held(9), other, state(1, None, None)]),
            (5, None, Some(4))
        );
        let blocked = state(8, None, Some(3));
        assert_eq!(
            merged(&[blocked.clone(), blocked.clone(), blocked]),
            (8, None, Some(3))
        );
    }

    #[test]
    fn the_mark_of_a_token_stands_when_a_node_with_it_comes_back_empty() {
        // A majority had 5; the third node still has what it named at first.
        let free = |mark| state(mark, None, None);
        assert_eq!(merged(&[free(0), free(5), free(3)]), (5, None, None));
        assert_eq!(merged(&[free(5), free(5), free(0)]), (5, None, None));
        assert_eq!(merged(&[free(0), free(0), free(0)]), (0, None, None));
    }

    #[test]
    fn the_mark_is_no_lower_than_what_a_majority_may_have_granted() {
        let of = |marks: &[u64], spare| mark(marks.iter().copied(), spare);
        assert_eq!(of(&[], 1), None);
        // One may have missed the token, and the third is not heard.
        assert_eq!(of(&[5, 9], 1), Some(9));
        assert_eq!(of(&[9, 5, 7], 1), Some(7));
        assert_eq!(of(&[4, 3, 2, 1], 2), Some(3));
        assert_eq!(of(&[5, 4, 3, 2, 1], 2), Some(3));
        assert_eq!(of(&[7], 0), Some(7));
    }
}
