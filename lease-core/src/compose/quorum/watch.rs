//! The hints of many nodes as one stream.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::time::Instant;

use super::Inner;
use crate::error::StoreError;
use crate::key::Key;

/// How long after the first hint the others are waited for.
const TOGETHER: Duration = Duration::from_millis(20);

type Hints = BoxStream<'static, usize>;

pub(super) async fn watch(
    inner: &Arc<Inner>,
    key: &Key,
) -> Result<BoxStream<'static, ()>, StoreError> {
    let mut answers = inner.ask_all(|node| {
        let key = key.clone();
        async move { node.backend.watch(&key).await }
    });
    let (mut hints, mut failed) = (Vec::<Hints>::new(), Vec::new());
    // A release reaches a majority: one of its nodes is watched then.
    while hints.len() < inner.majority {
        match answers.next().await {
            Some((i, Ok(stream))) => hints.push(stream.map(move |()| i).boxed()),
            Some((i, Err(error))) => failed.push((i, error)),
            None => break,
        }
    }
    if hints.is_empty() {
        let failed: Vec<_> = failed.iter().map(|(i, e)| (*i, e)).collect();
        return Err(inner.no_majority("watch", &failed, false));
    }
    // Nodes that answer later join in.
    let later = answers
        .filter_map(|(i, answer)| {
            let hints: Option<Hints> = answer.ok().map(|hints| hints.map(move |()| i).boxed());
            std::future::ready(hints)
        })
        .flatten_unordered(None);
    let all = stream::select(stream::select_all(hints), later).boxed();
    let gather = Gather {
        hints: all,
        enough: inner.majority,
        last: BTreeSet::new(),
        last_until: Instant::now(),
    };
    Ok(stream::unfold(gather, |mut gather| async move {
        gather.next().await.map(|()| ((), gather))
    })
    .boxed())
}

/// Makes one hint of those that the nodes give for one change.
struct Gather {
    hints: Hints,
    enough: usize,
    /// The nodes whose hints the last one was made of: one of the others that
    /// comes soon belongs to it too.
    last: BTreeSet<usize>,
    last_until: Instant,
}

impl Gather {
    async fn next(&mut self) -> Option<()> {
        let first = loop {
            let i = self.hints.next().await?;
            if Instant::now() >= self.last_until || !self.last.insert(i) {
                break i;
            }
        };
        self.last = BTreeSet::from([first]);
        self.last_until = Instant::now() + TOGETHER;
        // A majority that may be free is worth a look; fewer only when the
        // others stay silent.
        while self.last.len() < self.enough {
            match tokio::time::timeout_at(self.last_until, self.hints.next()).await {
                Ok(Some(i)) => self.last.insert(i),
                Ok(None) | Err(_) => {
                    // The others' hints are still to come: they count.
                    self.last_until = Instant::now();
                    break;
                }
            };
        }
        Some(())
    }
}
