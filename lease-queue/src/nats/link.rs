//! The way to the server: reads, and compare-and-sets, each within a time limit.
//!
//! The driver connects again by itself, and keeps what was not sent yet. What was
//! sent over a connection that ended may have arrived and has no answer: it is told
//! apart here, so that the caller looks what became of it.

use std::time::Duration;

use async_nats::Event;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use bytes::Bytes;
use lease_core::StoreError;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::errors;

/// Between two tries of what the server could not take just now.
const PAUSE: Duration = Duration::from_millis(50);

/// Between two tries of what others were faster with.
const SHORTEST_STEP: Duration = Duration::from_micros(500);

/// Whether the connection stands, and how often it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) stands: bool,
    pub(super) ends: u64,
}

impl Line {
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Connected => self.stands = true,
            Event::Disconnected | Event::Closed => {
                self.stands = false;
                self.ends += 1;
            }
            _ => {}
        }
    }
}

/// A message as it is in the stream.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) revision: u64,
    pub(super) payload: Bytes,
    /// By the clock of the server that stored it, since the Unix epoch.
    pub(super) stored_ms: i64,
    /// The same in microseconds.
    pub(super) stored_us: i64,
}

impl Stored {
    /// When it was stored, as the log reckons with it.
    pub(super) fn us(&self) -> u64 {
        u64::try_from(self.stored_us).unwrap_or(0)
    }
}

/// Which message of a subject.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which {
    Last,
    /// The first one of this revision or a later one.
    From(u64),
}

/// What came of a compare-and-set.
#[derive(Debug)]
pub(super) enum Set {
    /// It is stored, as this revision.
    Done(u64),
    /// Another revision than the expected one stands there. Nothing was changed, by
    /// this copy of the request.
    Moved,
    /// It was certainly not stored, and may be later.
    Not(StoreError),
    /// It may have been stored, or may yet be.
    Unknown(StoreError),
}

/// Why there was no answer.
enum NoAnswer {
    Silent,
    Cut,
}

/// A client's connection and the stream that it uses.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) context: Context,
    pub(super) stream: Stream<()>,
    /// The stream's name.
    pub(super) name: String,
    /// Whether the stream is on several servers.
    pub(super) replicated: bool,
    /// For one whole operation.
    pub(super) limit: Duration,
    pub(super) line: watch::Receiver<Line>,
}

impl Link {
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.limit
    }

    /// The largest message that the server takes, in bytes.
    pub(super) fn max_payload(&self) -> usize {
        self.context.client().max_payload()
    }

    /// A message of a subject. Asks again until the deadline, which cannot do any
    /// harm.
    pub(super) async fn read(
        &self,
        subject: &str,
        which: Which,
        deadline: Instant,
    ) -> Result<Option<Stored>, StoreError> {
        loop {
            self.until_connected(deadline).await?;
            let asked = async {
                let get = self.stream.raw_message_builder();
                match which {
                    Which::Last => get.last_by_subject(subject).send().await,
                    Which::From(revision) => {
                        get.sequence(revision).next_by_subject(subject).send().await
                    }
                }
            };
            let failed = match self.once(asked).await {
                Ok(Ok(message)) => {
                    return Ok(Some(Stored {
                        revision: message.sequence,
                        payload: message.payload,
                        stored_ms: errors::unix_ms(message.time),
                        stored_us: errors::unix_us(message.time),
                    }));
                }
                Ok(Err(error)) => match error.kind() {
                    RawMessageErrorKind::NoMessageFound => return Ok(None),
                    RawMessageErrorKind::JetStream(said) => {
                        errors::of_read(&said, &self.name, self.replicated)?
                    }
                    _ => errors::unreadable(error),
                },
                Err(NoAnswer::Silent) => errors::silent(self.attempt()),
                Err(NoAnswer::Cut) => errors::cut(),
            };
            if self.pause(deadline).await.is_err() {
                return Err(failed);
            }
        }
    }

    /// Stores this if the subject's last message is the expected one; if none is
    /// expected, in any case. One try.
    pub(super) async fn set(
        &self,
        subject: &str,
        expected: Option<u64>,
        payload: impl Into<Bytes>,
        deadline: Instant,
    ) -> Set {
        if let Err(error) = self.until_connected(deadline).await {
            return Set::Not(error);
        }
        let mut message = PublishMessage::build()
            .expected_stream(&self.name)
            .payload(payload.into());
        if let Some(expected) = expected {
            message = message.expected_last_subject_sequence(expected);
        }
        let asked = async {
            let sent = self.context.send_publish(subject.to_owned(), message);
            sent.await?.await
        };
        match self.once(asked).await {
            Ok(Ok(ack)) => Set::Done(ack.sequence),
            Ok(Err(error)) => match error.kind() {
                PublishErrorKind::WrongLastSequence => Set::Moved,
                // Nobody took it: the stream has no leader, or is no more.
                PublishErrorKind::StreamNotFound => Set::Not(errors::nobody(&self.name)),
                PublishErrorKind::MaxAckPending | PublishErrorKind::MaxPayloadExceeded => {
                    Set::Not(errors::not_sent(error))
                }
                _ => errors::of_write(error),
            },
            Err(NoAnswer::Silent) => Set::Unknown(errors::no_ack(self.attempt())),
            Err(NoAnswer::Cut) => Set::Unknown(errors::cut_before_ack()),
        }
    }

    /// Lets others get on who were faster, longer after each try, and each for another
    /// time; an error if there is no time for one more.
    pub(super) async fn step_aside(
        &self,
        tries: u32,
        longest: Duration,
        deadline: Instant,
    ) -> Result<(), ()> {
        let most = longest.min(SHORTEST_STEP * (1 << tries.min(16)));
        let random = getrandom::u32().unwrap_or(u32::MAX);
        let step = most.mul_f64(f64::from(random) / f64::from(u32::MAX));
        let slept = timeout_at(deadline, tokio::time::sleep(step)).await;
        slept.map_err(drop)
    }

    /// Waits before the next try; an error if there is no time for one.
    pub(super) async fn pause(&self, deadline: Instant) -> Result<(), ()> {
        let slept = timeout_at(deadline, tokio::time::sleep(PAUSE)).await;
        slept.map_err(drop)
    }

    /// How long one answer may take. A stream's leader that is gone has a successor
    /// in some seconds: the answer to another try comes from that one.
    fn attempt(&self) -> Duration {
        self.limit / 3
    }

    /// The answer, unless the connection ends first or there is none in time.
    async fn once<T>(&self, asked: impl IntoFuture<Output = T>) -> Result<T, NoAnswer> {
        let mut line = self.line.clone();
        let ends = line.borrow().ends;
        tokio::select! {
            biased;
            answer = timeout(self.attempt(), asked.into_future()) => {
                answer.map_err(|_| NoAnswer::Silent)
            }
            _ = ended(&mut line, ends) => Err(NoAnswer::Cut),
        }
    }

    async fn until_connected(&self, deadline: Instant) -> Result<(), StoreError> {
        let mut line = self.line.clone();
        let stands = timeout_at(deadline, line.wait_for(|line| line.stands)).await;
        match stands {
            Ok(_) => Ok(()),
            Err(_) => Err(errors::not_connected(self.limit)),
        }
    }
}

/// Returns when the connection that stood ends.
pub(super) async fn ended(line: &mut watch::Receiver<Line>, ends: u64) {
    if line.wait_for(|line| line.ends != ends).await.is_err() {
        // Nobody tells: a client of the caller's own.
        std::future::pending().await
    }
}
