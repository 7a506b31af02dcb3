//! The way out of the log: every message, in order, into the replica.
//!
//! Messages come by an ordered consumer, which is the fast way: one that is stored is
//! here half a round trip later. It lives on one server (of three, perhaps not the one
//! that leads), and is gone with that. So nothing depends on it: whoever waits for what
//! may be in the log already has it read, by its sequence, from the server that leads
//! the stream. While no consumer can be made (on 2.9 that takes seconds after the loss
//! of the server that led JetStream) everything goes on that way, with a round trip
//! more.
//!
//! # What is missed is noticed
//! * A consumer starts at the message that was applied last, and it must be that one.
//!   It says with each message how many more there are: as long as they are fewer than
//!   the server keeps, none between two was dropped.
//! * After a read, the message that was applied before it is looked at: as long as it
//!   stands, none behind it was dropped.
//! * After each connection that ended, where a message names one that was not seen, and
//!   where one is acknowledged and does not come by, this is looked at, too. If what was
//!   applied last does not stand there any more, the end of the log was lost: the
//!   replica is made anew, from a snapshot or from the beginning.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::push::{Ordered, OrderedConfig};
use async_nats::jetstream::message::Message;
use futures_util::StreamExt;
use futures_util::future::join_all;
use lease_core::StoreError;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::message::Mark;
use super::replica::{KEPT, STOP};
use super::shared::{Phase, Shared, Taken};
use super::{Machine, errors, snapshot};
use crate::nats::errors as words;
use crate::nats::link::{Line, Stored, Which};

/// After which a consumer is made that could not be made before.
const AGAIN: Duration = Duration::from_millis(500);
/// After which the log is read if nothing comes by.
const SILENCE: Duration = Duration::from_secs(2);
/// Reads that are under way together, where messages stand close to each other.
const TOGETHER: u64 = 32;
/// Messages that are read before they are applied.
const RUN: usize = 256;

/// Why the log is not followed as before.
enum End {
    /// What was applied is to be compared with the log.
    Doubt,
    /// For good: the phase says why.
    Broken,
}

/// What is left where the log was read to its end.
#[derive(PartialEq, Eq)]
enum Read {
    ToTheEnd,
    /// Its end is not the one that was applied.
    Lost,
    Broken,
}

/// What the state began with.
#[derive(PartialEq, Eq)]
enum Begun {
    /// There is none yet.
    Not,
    /// The first message that was there, which need not be the first that ever was.
    Blank,
    /// A snapshot, or the whole log.
    Whole,
}

pub(super) async fn follow<M: Machine>(shared: Arc<Shared<M>>) {
    let mut begun = Begun::Not;
    loop {
        let ends = shared.link.line.borrow().ends;
        let end = match reach_the_end(&shared, &mut begun).await {
            Ok(true) => {
                shared.phase.send_replace(Phase::Follows);
                shared.work.notify_one();
                follow_live(&shared, ends).await
            }
            Ok(false) => End::Broken,
            Err(error) => {
                if is_final(&error) {
                    shared.break_for(error);
                    return;
                }
                shared.note_trouble(error);
                sleep(AGAIN / 4).await;
                End::Doubt
            }
        };
        if let End::Broken = end {
            return;
        }
    }
}

/// A refusal may pass; that the stream is gone may not.
fn is_final(error: &StoreError) -> bool {
    words::is_gone(error)
}

/// Reads the log to its end, from a snapshot on if there is no state yet. False if it
/// cannot be followed.
async fn reach_the_end<M: Machine>(
    shared: &Shared<M>,
    begun: &mut Begun,
) -> Result<bool, StoreError> {
    loop {
        if *begun == Begun::Not {
            let found = snapshot::find(shared).await?;
            *begun = match found {
                Some(_) => Begun::Whole,
                None => Begun::Blank,
            };
            shared.begin_anew(found.unwrap_or_default());
        }
        match read_on(shared).await? {
            // As many messages without a snapshot never were.
            Read::ToTheEnd if *begun == Begun::Blank && shared.state().replica.count >= STOP => {
                shared.break_for(errors::no_beginning(&shared.subject));
                return Ok(false);
            }
            Read::ToTheEnd => {
                *begun = Begun::Whole;
                return Ok(true);
            }
            Read::Broken => return Ok(false),
            Read::Lost => {
                tracing::warn!(subject = %shared.subject,
                    "the end of a queue's log was lost: its state is read anew");
                shared.phase.send_replace(Phase::Reading);
                *begun = Begun::Not;
            }
        }
    }
}

/// Follows the log as messages come, until something is in doubt.
async fn follow_live<M: Machine>(shared: &Arc<Shared<M>>, ends: u64) -> End {
    let mut line = shared.link.line.clone();
    let mut consumer: Option<Consumer> = None;
    let mut make = Box::pin(Consumer::make(shared, Duration::ZERO));
    let mut silent = Instant::now() + SILENCE;
    loop {
        shared.streams.store(consumer.is_some(), Ordering::Relaxed);
        start_writer(shared);
        let is_live = consumer.is_some();
        tokio::select! {
            biased;
            () = is_connected_anew(&mut line, ends) => return End::Doubt,
            next = Consumer::next(&mut consumer), if is_live => match next {
                Some(Next::Fits(stored)) => match shared.take(&stored, false) {
                    Taken::Applied => silent = Instant::now() + SILENCE,
                    Taken::Doubtful => return End::Doubt,
                    Taken::Broken => return End::Broken,
                },
                Some(Next::Old) => {}
                Some(Next::Doubtful) => return End::Doubt,
                None => {
                    consumer = None;
                    make = Box::pin(Consumer::make(shared, AGAIN));
                }
            },
            made = &mut make, if !is_live => match made {
                Ok(made) => consumer = Some(made),
                Err(error) => {
                    tracing::debug!(subject = %shared.subject, error = %error,
                        "no consumer of a queue's log; it is read");
                    make = Box::pin(Consumer::make(shared, AGAIN));
                }
            },
            () = shared.nudge.notified() => match read_on(shared).await {
                Ok(Read::ToTheEnd) => {}
                Ok(Read::Lost) => return End::Doubt,
                Ok(Read::Broken) => return End::Broken,
                Err(error) if is_final(&error) => {
                    shared.break_for(error);
                    return End::Broken;
                }
                Err(error) => shared.note_trouble(error),
            },
            () = sleep_until(silent) => {
                silent = Instant::now() + SILENCE;
                shared.nudge.notify_one();
            }
        }
    }
}

async fn is_connected_anew(line: &mut watch::Receiver<Line>, ends: u64) {
    let anew = line.wait_for(|line| line.stands && line.ends != ends);
    if anew.await.is_err() {
        // Nobody tells: a client of the caller's own.
        std::future::pending().await
    }
}

/// Has a snapshot written, if the log told this client to.
fn start_writer<M: Machine>(shared: &Arc<Shared<M>>) {
    let mut state = shared.state();
    let Some(prepared) = state.prepared.take() else {
        return;
    };
    if state.writer.as_ref().is_some_and(|w| !w.is_finished()) {
        return;
    }
    let task = Arc::clone(shared);
    let writer = tokio::spawn(async move { snapshot::write(&task, prepared).await });
    state.writer = Some(writer.abort_handle());
}

/// Reads and applies what follows in the log, and looks whether it does follow.
async fn read_on<M: Machine>(shared: &Shared<M>) -> Result<Read, StoreError> {
    loop {
        let (last, stamp) = shared.last();
        let (run, is_end) = read_run(shared, last.revision).await?;
        if !stands(shared, last, stamp).await? {
            return Ok(Read::Lost);
        }
        for stored in &run {
            match shared.take(stored, true) {
                Taken::Applied => {}
                Taken::Doubtful => return Ok(Read::Lost),
                Taken::Broken => return Ok(Read::Broken),
            }
        }
        // As it was then: others go on.
        if is_end {
            return Ok(Read::ToTheEnd);
        }
    }
}

/// Messages behind this one, and whether there were no more.
async fn read_run<M: Machine>(
    shared: &Shared<M>,
    last: u64,
) -> Result<(Vec<Stored>, bool), StoreError> {
    let link = &shared.link;
    let (mut run, mut from, mut together) = (Vec::new(), last + 1, 1);
    while run.len() < RUN {
        let reads = (from..from + together)
            .map(|from| link.read(&shared.subject, Which::From(from), link.deadline()));
        let reads: Vec<_> = reads.collect();
        let before = run.len();
        for stored in join_all(reads).await {
            let Some(stored) = stored? else {
                return Ok((run, true));
            };
            // Several may have met the same one.
            if stored.revision >= from {
                from = stored.revision + 1;
                run.push(stored);
            }
        }
        let found = (run.len() - before) as u64;
        together = match found * 4 >= together {
            true => (together * 4).min(TOGETHER),
            false => 1,
        };
    }
    Ok((run, false))
}

/// Whether what was applied last is in the log, as it was stored then. Servers of a
/// cluster may not have heard of it yet.
async fn stands<M: Machine>(
    shared: &Shared<M>,
    last: Mark,
    stamp: u64,
) -> Result<bool, StoreError> {
    if last.revision == 0 {
        return Ok(true);
    }
    let deadline = shared.link.deadline();
    loop {
        if snapshot::stands(shared, last).await? == Some(stamp) {
            return Ok(true);
        }
        if !shared.link.replicated || shared.link.pause(deadline).await.is_err() {
            return Ok(false);
        }
    }
}

/// What a consumer brings.
enum Next {
    Fits(Stored),
    /// It was applied before.
    Old,
    Doubtful,
}

struct Consumer {
    messages: Ordered,
    /// What was applied last when it was made: the first that it brings.
    anchor: Option<Mark>,
}

type Making<'a> = Pin<Box<dyn Future<Output = Result<Consumer, StoreError>> + Send + 'a>>;

impl Consumer {
    fn make<M: Machine>(shared: &Shared<M>, after: Duration) -> Making<'_> {
        Box::pin(async move {
            sleep(after).await;
            let link = &shared.link;
            let anchor = shared.state().replica.last;
            let config = OrderedConfig {
                deliver_subject: link.context.client().new_inbox(),
                filter_subject: shared.subject.clone(),
                deliver_policy: DeliverPolicy::ByStartSequence {
                    start_sequence: anchor.revision.max(1),
                },
                ..OrderedConfig::default()
            };
            let made = link.stream.create_consumer(config).await;
            let made = made.map_err(|e| words::unavailable("no consumer was made", e))?;
            let messages = made.messages().await;
            Ok(Self {
                messages: messages.map_err(|e| words::unavailable("no consumer was made", e))?,
                anchor: (anchor.revision > 0).then_some(anchor),
            })
        })
    }

    /// `None` at its end.
    async fn next(consumer: &mut Option<Self>) -> Option<Next> {
        let this = consumer.as_mut()?;
        let message = this.messages.next().await?.ok()?;
        let (stored, pending) = stored(&message)?;
        if pending >= KEPT / 2 {
            return Some(Next::Doubtful);
        }
        match this.anchor {
            // A server that was behind begins at its end.
            Some(anchor) if stored.revision < anchor.revision => Some(Next::Old),
            Some(anchor) if stored.revision > anchor.revision => Some(Next::Doubtful),
            _ => {
                this.anchor = None;
                Some(Next::Fits(stored))
            }
        }
    }
}

/// The message, and how many are behind it.
fn stored(message: &Message) -> Option<(Stored, u64)> {
    let info = message.info().ok()?;
    let stored = Stored {
        revision: info.stream_sequence,
        stored_ms: words::unix_ms(info.published),
        stored_us: words::unix_us(info.published),
        payload: message.payload.clone(),
    };
    Some((stored, info.pending))
}
