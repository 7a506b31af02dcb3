//! One lane's operations: read the record, decide, compare-and-set; again while
//! others change it.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{
    AcquireOutcome, FenceWhen, Key, KeyState, Owner, StoreError, StoreErrorKind, Token, Ttl,
};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::errors;
use super::leaving::Leaving;
use super::link::{Link, Set};
use super::record::{Nonce, Record};
use super::rules::{self, Ask, Kept, Step, Try};
use super::sight::{Sights, View};
use super::turns::Turns;

/// For how long at most somebody lets the holder go first before it looks again.
const HOLDS_BACK: Duration = Duration::from_millis(500);

/// What all operations of one client share.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    pub(super) link: Link,
    pub(super) sights: Arc<Sights>,
    pub(super) turns: Arc<Turns>,
    pub(super) leaving: Arc<Leaving>,
    pub(super) retention: Duration,
}

impl Lanes {
    pub(super) async fn acquire(
        &self,
        subject: &str,
        ask: &Ask<'_>,
    ) -> Result<AcquireOutcome, StoreError> {
        let decide = |view: &View, this| rules::acquire(view, ask, this);
        self.change(subject, From::Server, decide).await
    }

    pub(super) async fn renew(
        &self,
        subject: &str,
        owner: Owner,
        token: Token,
        ttl: Ttl,
    ) -> Result<Kept, StoreError> {
        let decide = |view: &View, this| rules::renew(view, (owner, token), ttl, this);
        self.change(subject, From::Memory, decide).await
    }

    pub(super) async fn release(
        &self,
        subject: &str,
        owner: Owner,
        token: Token,
    ) -> Result<Kept, StoreError> {
        let decide = |view: &View, this| rules::release(view, owner, token, this);
        self.change(subject, From::Memory, decide).await
    }

    pub(super) async fn abandon(&self, subject: &str, owner: Owner) -> Result<(), StoreError> {
        let (leaver, told) = self.leaving.enter(subject, owner);
        let decide = |view: &View, this| rules::abandon(view, leaver.together(), this);
        tokio::select! {
            biased;
            Ok(()) = told => Ok(()),
            gone = self.change(subject, From::Server, decide) => {
                leaver.tell(&gone?);
                Ok(())
            }
        }
    }

    pub(super) async fn fence(
        &self,
        subject: &str,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        let decide = |view: &View, this| rules::fence(view, at_least, when, this);
        self.change(subject, From::Server, decide).await
    }

    pub(super) async fn inspect(&self, subject: &str, key: &Key) -> Result<KeyState, StoreError> {
        let view = self.look(subject, self.link.deadline()).await?;
        Ok(rules::state(&view, key))
    }

    /// Decides on the record and stores what follows, in one step at the store: the
    /// compare-and-set.
    ///
    /// A compare-and-set without an answer is looked after: its nonce in the record tells
    /// whether it took effect; and where the expected revision still stands, it is
    /// sent once more, and one copy at most can have an effect.
    async fn change<T>(
        &self,
        subject: &str,
        from: From,
        decide: impl Fn(&View, Try) -> Step<T>,
    ) -> Result<T, StoreError> {
        let deadline = self.link.deadline();
        let mut this = Try {
            asked: self.sights.now(),
            nonce: Nonce::random()?,
        };
        let mut turn = Some(self.turn(subject, deadline).await?);
        let (mut tries, mut patient) = (0, None);
        let mut sent = Sent::new();
        let mut known = match from {
            From::Memory => self.sights.last(subject),
            From::Server => None,
        };
        loop {
            let remembered = known.is_some();
            let view = match known.take() {
                Some(view) => view,
                None => match self.look(subject, deadline).await {
                    Ok(view) => view,
                    Err(error) => return Err(sent.failed(error)),
                },
            };
            if let Some(answer) = sent.shown_by(&view.record) {
                return Ok(answer);
            }
            this.nonce = this.nonce.next();
            let (mut record, answer, why) = match decide(&view, this) {
                // It may have changed since: only what the server says counts.
                Step::Answer(_) if remembered => continue,
                Step::Answer(answer) => return Ok(answer),
                Step::Write(record, answer) => (record, answer, Why::Decides),
                Step::Join(record, answer) => (record, answer, Why::Joins),
                Step::Stamp(record, answer) => (record, answer, Why::Stamps),
                Step::Leave(record, answer) => (record, answer, Why::Leaves),
            };
            record.sign(this.nonce, view.revision);
            let sent_at = self.sights.now();
            // The holder goes first.
            let holds_back = view.is_crowded() && !matches!(why, Why::Decides);
            let set = async {
                match holds_back {
                    true => Set::Moved,
                    false => self.replace(subject, &view, &record, deadline).await,
                }
            };
            // Whether somebody else got on; and the answer to somebody who is not granted
            // anything, whatever comes of its place.
            let (moved, instead, failed) = match (set.await, why) {
                (Set::Done(revision), _) => {
                    self.sights.wrote(subject, revision, *record, sent_at);
                    match why {
                        Why::Stamps => continue,
                        _ => return Ok(answer),
                    }
                }
                (Set::Unknown(error), Why::Decides | Why::Leaves) => {
                    sent.unknown(error.clone(), this.nonce, answer);
                    (false, None, error)
                }
                (Set::Moved, Why::Decides | Why::Leaves) => (true, None, sent.moved()),
                (Set::Not(error), Why::Decides | Why::Leaves) => {
                    if !error.is_transient() && sent.is_empty() {
                        return Err(error);
                    }
                    (false, None, sent.failed(error))
                }
                (Set::Moved, _) => (true, Some(answer), sent.moved()),
                (Set::Not(error) | Set::Unknown(error), _) => {
                    if !error.is_transient() && sent.is_empty() {
                        return Ok(answer);
                    }
                    (false, Some(answer), sent.failed(error))
                }
            };
            let out_of_time = match moved {
                true => {
                    tries += 1;
                    // Others of this client, who may hold the key, are not to wait for it.
                    turn = None;
                    match holds_back {
                        true => self.let_pass(subject, &mut patient, deadline).await,
                        false => {
                            let longest = longest_step(from, why);
                            self.link.step_aside(tries, longest, deadline).await
                        }
                    }
                }
                false => self.link.pause(deadline).await,
            };
            if out_of_time.is_err() {
                return match instead {
                    Some(answer) if sent.is_empty() => Ok(answer),
                    _ => Err(failed),
                };
            }
            if turn.is_none() {
                turn = match self.turn(subject, deadline).await {
                    Ok(turn) => Some(turn),
                    Err(error) => return Err(sent.failed(error)),
                };
            }
        }
    }

    /// Lets the holder go first. Of those of one client who do, one at a time looks
    /// whether it did.
    async fn let_pass(
        &self,
        subject: &str,
        patient: &mut Option<OwnedMutexGuard<()>>,
        deadline: Instant,
    ) -> Result<(), ()> {
        if patient.is_none() {
            // No subject has a space in it.
            let turn = self.turn(&format!("{subject} "), deadline).await;
            *patient = Some(turn.map_err(drop)?);
        }
        let tries = u32::MAX;
        self.link.step_aside(tries, HOLDS_BACK, deadline).await
    }

    async fn turn(
        &self,
        subject: &str,
        deadline: Instant,
    ) -> Result<OwnedMutexGuard<()>, StoreError> {
        let turn = tokio::time::timeout_at(deadline, self.turns.take(subject)).await;
        turn.map_err(|_| errors::contended())
    }
}

/// What a record is written for.
#[derive(Clone, Copy)]
enum Why {
    /// The answer hangs on it.
    Decides,
    /// A place in line.
    Joins,
    /// The server's stamp.
    Stamps,
    /// The answer, of somebody who holds nothing.
    Leaves,
}

/// How long one steps aside for others who were faster, at most. The holder of a grant
/// for the shortest time, and those who only wait for the longest: however many they are,
/// they do not keep it from renewing.
fn longest_step(from: From, why: Why) -> Duration {
    Duration::from_millis(match (from, why) {
        (From::Memory, _) => 4,
        (From::Server, Why::Decides) => 64,
        (From::Server, _) => 256,
    })
}

/// What was sent and had no answer.
struct Sent<T> {
    /// Each try, and what it would come to.
    tries: Vec<(Nonce, T)>,
    /// Of the last.
    error: Option<StoreError>,
}

impl<T> Sent<T> {
    fn new() -> Self {
        Self {
            tries: Vec::new(),
            error: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.tries.is_empty()
    }

    fn unknown(&mut self, error: StoreError, nonce: Nonce, answer: T) {
        self.tries.push((nonce, answer));
        self.error = Some(error);
    }

    /// What came of the one that took effect, if this record shows one.
    fn shown_by(&mut self, record: &Record) -> Option<T> {
        let shown = |(nonce, _): &(Nonce, T)| record.shows(*nonce);
        let at = self.tries.iter().position(shown)?;
        Some(self.tries.swap_remove(at).1)
    }

    /// The outcome where this failed then.
    fn failed(&self, error: StoreError) -> StoreError {
        match &self.error {
            None => error,
            Some(unknown) => neither(unknown, error),
        }
    }

    /// The outcome where others were faster then.
    fn moved(&self) -> StoreError {
        self.error.clone().unwrap_or_else(errors::contended)
    }
}

/// Where the first look goes.
#[derive(Clone, Copy)]
enum From {
    /// To what this client saw last: right for a grant that it holds itself.
    Memory,
    Server,
}

/// An outcome that is unknown, and stayed so for this reason.
fn neither(unknown: &StoreError, error: StoreError) -> StoreError {
    StoreError::with_source(
        StoreErrorKind::UnknownOutcome,
        format!("{}, and then: {}", unknown.message(), error.message()),
        error,
    )
}
