//! Raising a mark on a majority.

use std::sync::Arc;

use futures_util::stream::StreamExt;

use super::Inner;
use super::background::{go_on, runtime};
use super::fan_out::those_there;
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
    // The slow ones may learn of it too.
    go_on(async move { while answers.next().await.is_some() {} });
    match marks.iter().max() {
        Some(mark) if marks.len() >= inner.majority => Ok(*mark),
        _ => {
            let failed: Vec<_> = failed.iter().map(|(i, e)| (*i, e)).collect();
            Err(inner.no_majority("fence", &failed, effect))
        }
    }
}
