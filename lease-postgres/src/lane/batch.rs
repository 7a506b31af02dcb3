//! One batch: taken from those who wait, sent, and told.

use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use lease_core::{Key, StoreError};
use tokio::sync::oneshot;

use super::{Answer, Lane, MOST_IN_BATCH, State, Turn, Waiting};
use crate::reply::Replies;
use crate::request::Request;
use crate::wire::Failure;

pub(super) async fn take(lane: Arc<Lane>) {
    // Whoever is ready to run may have a request too.
    tokio::task::yield_now().await;
    let (turn, batch) = {
        let mut state = lane.state();
        state.taker = false;
        // Nobody waits for these any more: they need not be sent.
        state.waiting.retain(|one| !one.tell.is_closed());
        let batch = next(&mut state);
        if batch.is_empty() {
            return;
        }
        state.crowd = batch.len() > lane.width;
        state.under_way += 1;
        let turn = Turn(Arc::clone(&lane));
        lane.call_taker(&mut state);
        (turn, batch)
    };
    let (requests, mut callers): (Vec<Request>, Vec<_>) = batch
        .into_iter()
        .map(|one| (one.request, Some(one.tell)))
        .unzip();
    let outcome = {
        let mut sending = pin!(lane.exchange.send(&requests));
        loop {
            tokio::select! {
                outcome = &mut sending => break outcome,
                left = somebody_leaves(&mut callers) => if left == 0 {
                    return;
                },
            }
        }
    };
    // First, so that whoever is woken finds the way free.
    drop(turn);
    match outcome {
        Ok(replies) => answer(&lane, &requests, callers, replies),
        Err(Failure::Raced(_) | Failure::Said(_)) if requests.len() > 1 => {
            one_by_one(&lane, requests, callers);
        }
        Err(Failure::Raced(_)) => {
            callers
                .into_iter()
                .for_each(|caller| tell(caller, Ok(None)));
        }
        Err(failure) => {
            let error = StoreError::from(failure);
            for caller in callers {
                tell(caller, Err(error.clone()));
            }
        }
    }
}

/// All of the first one's kind, and no key twice.
fn next(state: &mut State) -> Vec<Waiting> {
    let Some(first) = state.waiting.pop_front() else {
        return Vec::new();
    };
    let (kind, alone) = (first.request.kind(), first.alone);
    let mut keys = HashSet::from([first.request.key.clone()]);
    let mut batch = vec![first];
    if alone {
        return batch;
    }
    let fits = |one: &Waiting, room: bool, keys: &mut HashSet<Key>| {
        room && !one.alone && one.request.kind() == kind && keys.insert(one.request.key.clone())
    };
    let mut left = std::collections::VecDeque::new();
    for one in state.waiting.drain(..) {
        match fits(&one, batch.len() < MOST_IN_BATCH, &mut keys) {
            true => batch.push(one),
            false => left.push_back(one),
        }
    }
    state.waiting = left;
    batch
}

fn answer(
    lane: &Arc<Lane>,
    requests: &[Request],
    callers: Vec<Option<oneshot::Sender<Answer>>>,
    replies: Replies,
) {
    if let Some(first) = requests.first() {
        lane.follow_up(first.kind(), &replies);
    }
    for (caller, answer) in callers.into_iter().zip(replies.answers) {
        tell(caller, answer.transpose());
    }
}

/// One of them made the statement fail, and it had no effect. The others are not
/// to suffer.
fn one_by_one(
    lane: &Arc<Lane>,
    requests: Vec<Request>,
    callers: Vec<Option<oneshot::Sender<Answer>>>,
) {
    let both = requests.into_iter().zip(callers);
    let again = both.filter_map(|(request, caller)| {
        let tell = caller?;
        let alone = true;
        Some(Waiting {
            request,
            alone,
            tell,
        })
    });
    let mut state = lane.state();
    // Of a runtime that has ended, the callers are told by that.
    if !state.closed {
        state.waiting.extend(again);
        lane.call_taker(&mut state);
    }
}

fn tell(caller: Option<oneshot::Sender<Answer>>, answer: Answer) {
    if let Some(caller) = caller {
        let _ = caller.send(answer);
    }
}

/// Waits until callers have left, and says how many have not.
async fn somebody_leaves(callers: &mut [Option<oneshot::Sender<Answer>>]) -> usize {
    poll_fn(|context| {
        let mut left = false;
        for caller in &mut *callers {
            if caller
                .as_mut()
                .is_some_and(|one| one.poll_closed(context).is_ready())
            {
                *caller = None;
                left = true;
            }
        }
        match left {
            true => Poll::Ready(callers.iter().flatten().count()),
            false => Poll::Pending,
        }
    })
    .await
}
