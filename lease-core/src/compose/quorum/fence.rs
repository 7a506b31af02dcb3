//! Raising a mark on a majority.

use std::sync::Arc;

use futures_util::stream::StreamExt;
use tokio::time::{Instant, timeout_at};

use super::background::{go_on, runtime};
use super::fan_out::those_there;
use super::{Inner, view};
use crate::backend::{FenceWhen, check_fence};
use crate::error::StoreError;
use crate::key::Key;
use crate::token::Token;

pub(super) async fn fence(
    inner: &Arc<Inner>,
    key: &Key,
    at_least: Token,
    when: FenceWhen,
) -> Result<Token, StoreError> {
    check_fence(at_least)?;
    runtime()?;
    let mut answers = inner.ask_all(|node| {
        let key = key.clone();
        async move { node.backend.fence(&key, at_least, when).await }
    });
    let (mut marks, mut failed) = (Vec::new(), Vec::new());
    let mut raised = vec![false; inner.nodes.len()];
    while let Some((i, answer)) = answers.next().await {
        match answer {
            Ok(mark) => {
                raised[i] = true;
                marks.push(mark);
            }
            Err(error) => failed.push((i, error)),
        }
        if marks.len() >= inner.majority || failed.len() > inner.spare() {
            break;
        }
    }
    let effect = !marks.is_empty() || !answers.is_empty();
    those_there(&mut answers, |i, answer| {
        raised[i] = answer.is_ok();
        marks.extend(answer);
    });
    // The highest may be one node's alone.
    let until = Instant::now() + view::TO_BE_SURE;
    while marks.len() >= inner.majority
        && view::is_mark_open(inner, marks.iter())
        && let Ok(Some((i, answer))) = timeout_at(until, answers.next()).await
    {
        raised[i] = answer.is_ok();
        marks.extend(answer);
    }
    let enough = marks.len() >= inner.majority;
    // The others shall know it too: those that do now may be lost later.
    let (behind, key) = (Arc::clone(inner), key.clone());
    go_on(async move {
        while let Some((i, answer)) = answers.next().await {
            raised[i] = answer.is_ok();
        }
        let nodes = behind.nodes.iter().zip(raised);
        for (node, _) in nodes.filter(|(_, raised)| enough && !raised) {
            behind.fence_on(node, &key, at_least, when);
        }
    });
    match view::mark(marks.into_iter(), inner.spare()) {
        Some(mark) if enough => Ok(mark),
        _ => {
            let failed: Vec<_> = failed.iter().map(|(i, e)| (*i, e)).collect();
            Err(inner.no_majority("fence", &failed, effect))
        }
    }
}
