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
    while let Some((i, answer)) = answers.next().await {
        match answer {
            Ok(mark) => marks.push(mark),
            Err(error) => failed.push((i, error)),
        }
        if marks.len() >= inner.majority || failed.len() > inner.spare() {
            break;
        }
    }
    let effect = !marks.is_empty() || !answers.is_empty();
    those_there(&mut answers, |_, answer| marks.extend(answer));
    // The highest may be one node's alone.
    let until = Instant::now() + view::TO_BE_SURE;
    while marks.len() >= inner.majority
        && view::is_mark_open(inner, marks.iter())
        && let Ok(Some((_, answer))) = timeout_at(until, answers.next()).await
    {
        marks.extend(answer);
    }
    // The slow ones may learn of it too.
    go_on(async move { while answers.next().await.is_some() {} });
    let enough = marks.len() >= inner.majority;
    match view::mark(marks.into_iter(), inner.spare()) {
        Some(mark) if enough => Ok(mark),
        _ => {
            let failed: Vec<_> = failed.iter().map(|(i, e)| (*i, e)).collect();
            Err(inner.no_majority("fence", &failed, effect))
        }
    }
}
