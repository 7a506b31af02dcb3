//! The ends of a grant: released, or given up.

use std::sync::Arc;

use futures_util::stream::StreamExt;
use tokio::time::timeout;

use super::Inner;
use super::background::{go_on, runtime};
use super::fan_out::{Answers, those_there};
use crate::backend::ReleaseOutcome;
use crate::error::StoreError;
use crate::key::Key;
use crate::owner::Owner;
use crate::retry::RELEASE_PATIENCE;
use crate::token::Token;

pub(super) async fn release(
    inner: &Arc<Inner>,
    key: &Key,
    owner: Owner,
    token: Token,
) -> Result<ReleaseOutcome, StoreError> {
    runtime()?;
    let is_over = inner.handed.ends(owner, token);
    let answers = inner.ask_all(|node| {
        let key = key.clone();
        async move { node.backend.release(&key, owner, token).await }
    });
    let mut ended = Ended::new(inner, key, owner, answers);
    let (mut not_held, mut failed) = (0, Vec::new());
    while let Some((i, answer)) = ended.answers.next().await {
        match answer {
            Ok(ReleaseOutcome::Released) => ended.done[i] = true,
            Ok(ReleaseOutcome::NotHeld) => not_held += 1,
            Err(error) => failed.push((i, error)),
        }
        if ended.count() >= inner.majority {
            // This was a lease and is over, and so is its owner: a node where
            // it has another grant, or may yet get one, must be told.
            ended.finish(|answer| matches!(answer, Ok(ReleaseOutcome::Released)));
            return Ok(ReleaseOutcome::Released);
        }
        if not_held > inner.spare() {
            let mut rest = ended.answers;
            go_on(async move { while rest.next().await.is_some() {} });
            if is_over {
                // An earlier try released it, or its time was up. A node that says
                // so, too, may have another token of this owner, and one may have
                // missed every try: they are not free yet.
                abandon(inner, key, owner).await?;
            }
            // Else the owner may live on with another token: nothing more is done.
            return Ok(ReleaseOutcome::NotHeld);
        }
    }
    let failed: Vec<_> = failed.iter().map(|(i, e)| (*i, e)).collect();
    Err(inner.no_majority("release", &failed, ended.count() > 0))
}

pub(super) async fn abandon(inner: &Arc<Inner>, key: &Key, owner: Owner) -> Result<(), StoreError> {
    runtime()?;
    inner.handed.forget(owner);
    inner.attempts.forget(owner);
    let answers = inner.ask_all(|node| {
        let key = key.clone();
        async move { node.backend.abandon(&key, owner).await }
    });
    let mut ended = Ended::new(inner, key, owner, answers);
    let mut failed = Vec::new();
    while let Some((i, answer)) = ended.answers.next().await {
        match answer {
            Ok(()) => ended.done[i] = true,
            Err(error) => failed.push((i, error)),
        }
        if ended.count() >= inner.majority {
            ended.finish(Result::is_ok);
            return Ok(());
        }
        if failed.len() > inner.spare() {
            break;
        }
    }
    let effect = ended.count() > 0 || !ended.answers.is_empty();
    let failed: Vec<_> = failed.iter().map(|(i, e)| (*i, e)).collect();
    Err(inner.no_majority("abandon", &failed, effect))
}

/// An owner that ends, and the nodes that have said so.
struct Ended<T> {
    inner: Arc<Inner>,
    key: Key,
    owner: Owner,
    done: Vec<bool>,
    answers: Answers<T>,
}

impl<T: Send + 'static> Ended<T> {
    fn new(inner: &Arc<Inner>, key: &Key, owner: Owner, answers: Answers<T>) -> Self {
        Self {
            inner: Arc::clone(inner),
            key: key.clone(),
            owner,
            done: vec![false; inner.nodes.len()],
            answers,
        }
    }

    fn count(&self) -> usize {
        self.done.iter().filter(|done| **done).count()
    }

    /// Abandons the owner wherever it has not ended, in the background.
    fn finish(mut self, ends: fn(&T) -> bool) {
        those_there(&mut self.answers, |i, answer| self.done[i] = ends(&answer));
        if !self.done.contains(&false) {
            return;
        }
        go_on(async move {
            let rest = async {
                while let Some((i, answer)) = self.answers.next().await {
                    self.done[i] = ends(&answer);
                }
            };
            let _ = timeout(RELEASE_PATIENCE, rest).await;
            for (node, done) in self.inner.nodes.iter().zip(&self.done) {
                if !done {
                    self.inner.abandon_on(node, &self.key, self.owner);
                }
            }
        });
    }
}
