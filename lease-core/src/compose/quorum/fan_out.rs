//! The same question to many nodes at once.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use super::{Inner, Node};

/// Answers under way. Each owns what it needs, so that those that nobody waits
/// for any more can go on in the background.
pub(super) type Answers<T> = FuturesUnordered<BoxFuture<'static, (usize, T)>>;

/// The share of the time that a majority took, which the rest gets on top.
const GRACE: u32 = 4;
/// The least that a timer is good for.
const TICK: Duration = Duration::from_millis(1);
/// How often the runtime is let look at its sockets where a timer is too coarse.
const LOOKS: u32 = 16;

impl Inner {
    /// Asks these nodes. Nothing is sent before the answers are polled.
    pub(super) fn ask<T, F>(
        &self,
        nodes: impl IntoIterator<Item = usize>,
        call: impl Fn(Arc<Node>) -> F,
    ) -> Answers<T>
    where
        F: Future<Output = T> + Send + 'static,
        T: 'static,
    {
        let answers = FuturesUnordered::new();
        for i in nodes {
            if let Some(node) = self.nodes.get(i) {
                let answer = call(Arc::clone(node));
                answers.push(answer.map(move |answer| (i, answer)).boxed());
            }
        }
        answers
    }

    /// Asks all nodes.
    pub(super) fn ask_all<T, F>(&self, call: impl Fn(Arc<Node>) -> F) -> Answers<T>
    where
        F: Future<Output = T> + Send + 'static,
        T: 'static,
    {
        self.ask(0..self.nodes.len(), call)
    }
}

/// Takes the answers that are there already.
pub(super) fn those_there<T>(answers: &mut Answers<T>, mut take: impl FnMut(usize, T)) {
    while let Some(Some((i, answer))) = answers.next().now_or_never() {
        take(i, answer);
    }
}

/// Takes the answers that are there, and those that come within a fraction of
/// the time that has passed since `asked`: nodes as fast as the others are not
/// left out for arriving microseconds later.
pub(super) async fn those_beside<T>(
    answers: &mut Answers<T>,
    asked: Instant,
    mut take: impl FnMut(usize, T),
) {
    let until = Instant::now() + asked.elapsed() / GRACE;
    let mut looks = 0;
    loop {
        those_there(answers, &mut take);
        let left = until.saturating_duration_since(Instant::now());
        if answers.is_empty() || left.is_zero() {
            return;
        }
        if left < TICK {
            looks += 1;
            if looks > LOOKS {
                return;
            }
            tokio::task::yield_now().await;
        } else if let Ok(Some((i, answer))) = tokio::time::timeout(left, answers.next()).await {
            take(i, answer);
        }
    }
}
