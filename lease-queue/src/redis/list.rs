//! Lists, page by page, without blocking the server.

use std::collections::VecDeque;

use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{Key, KeyState, StoreError};

use super::RedisQueues;
use super::args::Args;
use super::reply::{Fields, Reply, odd};
use super::scripts::Op;
use crate::item::ItemState;
use crate::name::QueueName;

const PAGE: usize = 256;

/// What comes after a page.
enum Next<P> {
    Page(P),
    Nothing,
}

/// Pages until there is nothing after one, or an error, which is the last.
fn pages<T, P, F>(
    begin: P,
    page: impl Fn(P) -> F + Send + 'static,
) -> BoxStream<'static, Result<T, StoreError>>
where
    T: Send + 'static,
    P: Send + 'static,
    F: Future<Output = Result<(Vec<T>, Next<P>), StoreError>> + Send,
{
    let state = (Next::Page(begin), VecDeque::new(), page);
    stream::unfold(state, |(mut next, mut found, page)| async move {
        loop {
            if let Some(one) = found.pop_front() {
                return Some((Ok(one), (next, found, page)));
            }
            let Next::Page(at) = next else {
                return None;
            };
            match page(at).await {
                Ok((some, after)) => {
                    found.extend(some);
                    next = after;
                }
                Err(error) => return Some((Err(error), (Next::Nothing, found, page))),
            }
        }
    })
    .boxed()
}

async fn look(
    store: &RedisQueues,
    queue: &QueueName,
    args: Args,
) -> Result<Vec<Fields>, StoreError> {
    let (replies, _) = store.ask(Op::Look, queue, args, true).await?;
    let read = |reply: Reply| reply.read(Op::Look.doing());
    replies.into_iter().map(read).collect()
}

pub(super) fn keys(
    store: RedisQueues,
    queue: QueueName,
    prefix: String,
) -> BoxStream<'static, Result<KeyState, StoreError>> {
    pages(String::new(), move |after| {
        let (store, queue, prefix) = (store.clone(), queue.clone(), prefix.clone());
        async move {
            let args = Args::look("L").with(prefix).with(after);
            let found = look(&store, &queue, args).await?;
            let next = match found.last() {
                Some(last) if found.len() == PAGE => Next::Page(last.text(1)?.to_owned()),
                _ => Next::Nothing,
            };
            let mut states = Vec::with_capacity(found.len());
            for one in &found {
                let key = Key::new(one.text(1)?).map_err(|_| odd())?;
                let state = one.within(2, Op::Look.doing());
                match state.and_then(|state| state.key_state(&key)) {
                    // Its record was dropped.
                    Ok(state) if state.high_water.is_none() => {}
                    Ok(state) => states.push(state),
                    // Something foreign at one name hides no other key.
                    Err(error) => {
                        tracing::warn!(target: lease_core::UNREADABLE, %key, %error, "skipped in a list")
                    }
                }
            }
            Ok((states, next))
        }
    })
}

/// The last item of a page.
#[derive(Clone, Debug)]
struct Place {
    score: String,
    member: String,
    /// How many before it in a row have its score.
    alike: usize,
}

pub(super) fn items(
    store: RedisQueues,
    queue: QueueName,
    dead: bool,
) -> BoxStream<'static, Result<ItemState, StoreError>> {
    let begin = Place {
        score: "-1".to_owned(),
        member: String::new(),
        alike: 0,
    };
    pages(begin, move |after: Place| {
        let (store, queue) = (store.clone(), queue.clone());
        async move {
            let mut args = Args::look(if dead { "D" } else { "I" }).with(&after.score);
            let mut most = PAGE;
            if !dead {
                // Those of this score that were given come once more.
                args = args.with(&after.member);
                most += after.alike;
            }
            let found = look(&store, &queue, args.with(most.to_string())).await?;
            let mut place = after;
            let mut states = Vec::with_capacity(found.len());
            for one in &found {
                let score = one.text(1)?;
                if score != place.score {
                    place.alike = 0;
                    score.clone_into(&mut place.score);
                }
                place.alike += 1;
                one.text(2)?.clone_into(&mut place.member);
                let state = one.within(3, Op::Look.doing());
                match state.and_then(|state| state.item_state()) {
                    Ok(state) => states.push(state),
                    Err(error) => {
                        tracing::warn!(target: lease_core::UNREADABLE, item = place.member, %error, "skipped in a list");
                    }
                }
            }
            // What is put meanwhile comes at the end; following it could last for ever.
            let next = match found.len() < PAGE {
                true => Next::Nothing,
                false => Next::Page(place),
            };
            Ok((states, next))
        }
    })
}
