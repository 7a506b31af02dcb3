//! The way out of the log: every message, in order, into the replica.
//!
//! Messages come by an ordered consumer, which is the fast way: one that is stored is
//! here half a round trip later. It lives on one server (of three, perhaps not the one
//! that leads), and is gone with that. So nothing depends on it: whoever waits for what
//! may be in the log already has it read, by its sequence, from the server that leads
//! the stream, unless the consumer brings others just then. Messages of one log may lie far
//! apart in the stream, so that each takes a round trip to read: where many are to be read,
//! a consumer brings them. While no consumer can be made (on 2.9 that takes seconds after the loss
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

use lease_core::StoreError;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::consumer::{Consumer, Next};
use super::reading::{Read, read_some};
use super::replica::STOP;
use super::send::SOON;
use super::shared::{Phase, Shared, Taken};
use super::{Machine, errors, snapshot};
use crate::nats::errors as words;
use crate::nats::link::{Line, Which, ended};

/// After which a consumer is made that could not be made before.
const AGAIN: Duration = Duration::from_millis(500);
/// After which the log is read if nothing comes by.
const SILENCE: Duration = Duration::from_secs(2);
/// Messages that are read before they are applied.
const RUN: usize = 256;
/// As many are read before a consumer is made for the rest.
const FEW: usize = 8;

/// Why the log is not followed as before.
enum End {
    /// What was applied is to be compared with the log.
    Doubt,
    /// For good: the phase says why.
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
        let end = match reach_the_end(&shared, ends, &mut begun).await {
            Ok(Reached::TheEnd(consumer)) => {
                shared.phase.send_replace(Phase::Follows);
                shared.work.notify_one();
                follow_live(&shared, ends, consumer.map(|one| *one)).await
            }
            Ok(Reached::Broken) => End::Broken,
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

/// What came of going to the end.
enum Reached {
    /// With the consumer that brought the most of it, if one was needed.
    TheEnd(Option<Box<Consumer>>),
    /// It cannot be followed.
    Broken,
}

/// Applies the log to its end as it is now, from a snapshot on if there is no state yet.
/// Others write on meanwhile: that is not waited for.
async fn reach_the_end<M: Machine>(
    shared: &Shared<M>,
    ends: u64,
    begun: &mut Begun,
) -> Result<Reached, StoreError> {
    loop {
        if *begun == Begun::Not {
            let found = snapshot::find(shared).await?;
            *begun = match found {
                Some(_) => Begun::Whole,
                None => Begun::Blank,
            };
            shared.begin_anew(found.unwrap_or_default());
        }
        let mut read = read_some(shared, FEW).await?;
        let mut consumer = None;
        if read == Read::On {
            (read, consumer) = reach_from_afar(shared, ends).await?;
        }
        match read {
            // As many messages without a snapshot never were.
            Read::ToTheEnd if *begun == Begun::Blank && shared.state().replica.count >= STOP => {
                shared.break_for(errors::no_beginning(&shared.subject));
                return Ok(Reached::Broken);
            }
            Read::ToTheEnd | Read::On => {
                *begun = Begun::Whole;
                return Ok(Reached::TheEnd(consumer.map(Box::new)));
            }
            Read::Broken => return Ok(Reached::Broken),
            Read::Lost => {
                tracing::warn!(subject = %shared.subject,
                    "the end of a queue's log was lost: its state is read anew");
                shared.phase.send_replace(Phase::Reading);
                *begun = Begun::Not;
            }
        }
    }
}

/// The same where there is much to apply: with the consumer that brought it, if one could.
async fn reach_from_afar<M: Machine>(
    shared: &Shared<M>,
    ends: u64,
) -> Result<(Read, Option<Consumer>), StoreError> {
    let link = &shared.link;
    let end = link.read(&shared.subject, Which::Last, link.deadline());
    let end = end.await?.map_or(0, |stored| stored.revision);
    // Where it takes seconds until there is one, the log is read meanwhile.
    let making = timeout(SILENCE, Consumer::make(shared, Duration::ZERO));
    let mut making = std::pin::pin!(making);
    let mut made = None;
    while shared.last().0.revision < end {
        tokio::select! {
            biased;
            consumer = &mut making => {
                made = consumer.ok().and_then(Result::ok);
                break;
            }
            read = read_some(shared, RUN) => match read? {
                Read::On => {}
                read => return Ok((read, None)),
            },
        }
    }
    let consumer = bring_on(shared, made, ends, end).await;
    while shared.last().0.revision < end {
        match read_some(shared, RUN).await? {
            Read::On => {}
            read => return Ok((read, consumer)),
        }
    }
    Ok((Read::ToTheEnd, consumer))
}

/// Applies what a consumer brings, up to this revision. `None` if it does not, or if the
/// connection ended, behind which it may bring another history: the rest is to be read.
async fn bring_on<M: Machine>(
    shared: &Shared<M>,
    mut consumer: Option<Consumer>,
    ends: u64,
    end: u64,
) -> Option<Consumer> {
    let mut line = shared.link.line.clone();
    while shared.last().0.revision < end {
        let next = tokio::select! {
            biased;
            () = ended(&mut line, ends) => return None,
            next = timeout(SILENCE, Consumer::next(&mut consumer)) => next,
        };
        match next.ok()?? {
            Next::Fits(stored) => match shared.take(&stored, false) {
                Taken::Applied => {}
                // It is read again, and judged then.
                Taken::Doubtful | Taken::Broken => return None,
            },
            Next::Old => {}
            Next::Doubtful => return None,
        }
    }
    consumer
}

/// Follows the log as messages come, until something is in doubt.
async fn follow_live<M: Machine>(
    shared: &Arc<Shared<M>>,
    ends: u64,
    mut consumer: Option<Consumer>,
) -> End {
    let mut line = shared.link.line.clone();
    let mut make = Box::pin(Consumer::make(shared, Duration::ZERO));
    let mut reading: Option<Reading<'_>> = None;
    let mut heard = Instant::now();
    loop {
        shared.streams.store(consumer.is_some(), Ordering::Relaxed);
        start_writer(shared);
        let is_live = consumer.is_some();
        tokio::select! {
            biased;
            () = is_connected_anew(&mut line, ends) => return End::Doubt,
            next = Consumer::next(&mut consumer), if is_live => match next {
                Some(Next::Fits(stored)) => match shared.take(&stored, false) {
                    Taken::Applied => heard = Instant::now(),
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
            // Beside the consumer, whose messages do not wait for it.
            read = async { reading.as_mut()?.await.into() }, if reading.is_some() => {
                reading = None;
                match read {
                    None | Some(Ok(Read::ToTheEnd)) => {}
                    // Unless the consumer brings it meanwhile.
                    Some(Ok(Read::On)) => shared.hurry(),
                    Some(Ok(Read::Lost)) => return End::Doubt,
                    Some(Ok(Read::Broken)) => return End::Broken,
                    Some(Err(error)) if is_final(&error) => {
                        shared.break_for(error);
                        return End::Broken;
                    }
                    Some(Err(error)) => shared.note_trouble(error),
                }
            }
            in_any_case = shared.nudged(), if reading.is_none() => {
                // Whoever waits asks again.
                if !is_live || in_any_case || heard.elapsed() >= SOON {
                    // What is far away comes by the consumer, as soon as there is one.
                    let most = if is_live { FEW } else { RUN };
                    reading = Some(Box::pin(read_some(shared, most)));
                }
            }
            () = sleep_until(heard + SILENCE) => {
                heard = Instant::now();
                shared.doubt();
            }
        }
    }
}

type Reading<'a> = Pin<Box<dyn Future<Output = Result<Read, StoreError>> + Send + 'a>>;

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
