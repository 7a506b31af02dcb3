//! The way into the log: what waits goes out as one message, and while as many are under
//! way as may be, what else comes waits for the next. No order is kept between those that
//! are under way at the same time: none of their operations was answered when the other
//! was asked for.
//!
//! A message is sent again until it comes by or nobody waits for it any more; copies
//! have no effect. An acknowledgement says that it will come by soon, and nothing else.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, sleep, timeout};

use super::Machine;
use super::message::Nonce;
use super::replica::LOG_MAX;
use super::shared::Shared;
use super::waiting::Parcel;
use super::{errors, snapshot};
use crate::nats::link::Set;

/// How long what is acknowledged may take to come by of itself.
pub(super) const SOON: Duration = Duration::from_millis(100);

/// Between two tries to write a snapshot of a log that is full, at most.
const AGAIN: Duration = Duration::from_millis(300);

pub(super) async fn send<M: Machine>(shared: Arc<Shared<M>>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        while let Some(parcel) = shared.parcel() {
            under_way.push(deliver(&shared, parcel));
        }
        if under_way.is_empty() {
            write_if_full(&shared);
        }
        tokio::select! {
            Some(()) = under_way.next() => {}
            () = shared.work.notified() => {}
        }
    }
}

/// Operations wait for a snapshot, which anybody may write: after a while, if there is
/// none by then.
fn write_if_full<M: Machine>(shared: &Arc<Shared<M>>) {
    let mut state = shared.state();
    let is_written = state.writer.as_ref().is_some_and(|w| !w.is_finished());
    if state.replica.behind() <= LOG_MAX {
        return;
    }
    // Whoever gives up is told what it waited for.
    state.trouble.get_or_insert_with(errors::full);
    if is_written {
        return;
    }
    let task = Arc::clone(shared);
    let writer = tokio::spawn(async move {
        let random = getrandom::u32().unwrap_or(u32::MAX);
        sleep(AGAIN.mul_f64(f64::from(random) / f64::from(u32::MAX))).await;
        let prepared = {
            let mut state = task.state();
            if state.replica.behind() <= LOG_MAX {
                return;
            }
            state.trouble.get_or_insert_with(errors::full);
            state.prepare();
            state.prepared.take()
        };
        if let Some(prepared) = prepared {
            snapshot::write(&task, prepared).await;
        }
        // Should it have failed, there is somebody who looks whether to try again.
        sleep(AGAIN).await;
        task.work.notify_one();
    });
    state.writer = Some(writer.abort_handle());
}

async fn deliver<M: Machine>(shared: &Shared<M>, parcel: Parcel) {
    let mut changed = shared.changed.subscribe();
    let nonce = parcel.nonce;
    let landed = async {
        // The sender outlives this.
        let _ = changed.wait_for(|_| !shared.is_under_way(nonce)).await;
    };
    tokio::select! {
        biased;
        () = landed => {}
        () = press(shared, &parcel) => {}
    }
}

/// Sends the message again and again, until nobody waits for it.
async fn press<M: Machine>(shared: &Shared<M>, parcel: &Parcel) {
    let link = &shared.link;
    let nonce = parcel.nonce;
    // Whether a copy may have been stored, or may yet be.
    let mut is_out = false;
    while shared.is_awaited(nonce) {
        let (subject, payload) = (&shared.subject, parcel.payload.clone());
        let deadline = link.deadline();
        match link.set(subject, None, payload, deadline).await {
            Set::Done(revision) => {
                is_out = true;
                if !shared.streams.load(Ordering::Relaxed) {
                    shared.hurry();
                }
                until_it_is_by(shared, nonce, revision).await;
            }
            Set::Not(error) if error.is_transient() => shared.note_trouble(error),
            Set::Not(error) => {
                let error = match is_out {
                    false => error,
                    true => errors::not_seen(Some(error)),
                };
                shared.give_up(nonce, &error);
                return;
            }
            Set::Unknown(error) => {
                is_out = true;
                shared.note_trouble(error);
                shared.doubt();
            }
            Set::Moved => {}
        }
        let _ = link.pause(link.deadline()).await;
    }
    shared.give_up(nonce, &errors::not_seen(None));
}

/// Waits until what is acknowledged as of this revision came by, which should be soon.
async fn until_it_is_by<M: Machine>(shared: &Shared<M>, nonce: Nonce, revision: u64) {
    let mut changed = shared.changed.subscribe();
    let end = Instant::now() + shared.link.limit;
    while shared.is_awaited(nonce) && Instant::now() < end {
        let by = changed.wait_for(|last| *last >= revision);
        let is_by = timeout(SOON, by).await.is_ok();
        if !is_by {
            shared.hurry();
            continue;
        }
        if !shared.is_under_way(nonce) {
            return;
        }
        // It has passed, and nobody saw it: the log is not what was applied.
        sleep(SOON).await;
        shared.doubt();
    }
}
