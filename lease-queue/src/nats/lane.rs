//! One lane's operations: read the record, decide, compare-and-set; again while
//! others change it.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{
    AcquireOutcome, FenceWhen, Key, KeyState, Moment, Owner, StoreError, StoreErrorKind, Token, Ttl,
};

use super::errors;
use super::link::{Link, Set};
use super::record::Nonce;
use super::rules::{self, Ask, Kept, Step};
use super::sight::{Sights, View};
use super::turns::Turns;

/// What all operations of one client share.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    pub(super) link: Link,
    pub(super) sights: Arc<Sights>,
    pub(super) turns: Arc<Turns>,
    pub(super) retention: Duration,
}

impl Lanes {
    pub(super) async fn acquire(
        &self,
        subject: &str,
        ask: &Ask<'_>,
    ) -> Result<AcquireOutcome, StoreError> {
        self.change(subject, From::Server, |view, asked| {
            rules::acquire(view, ask, asked)
        })
        .await
    }

    pub(super) async fn renew(
        &self,
        subject: &str,
        owner: Owner,
        token: Token,
        ttl: Ttl,
    ) -> Result<Kept, StoreError> {
        let decide = |view: &View, asked| rules::renew(view, (owner, token), ttl, asked);
        self.change(subject, From::Memory, decide).await
    }

    pub(super) async fn release(
        &self,
        subject: &str,
        owner: Owner,
        token: Token,
    ) -> Result<Kept, StoreError> {
        let decide = |view: &View, _| rules::release(view, owner, token);
        self.change(subject, From::Memory, decide).await
    }

    pub(super) async fn abandon(&self, subject: &str, owner: Owner) -> Result<(), StoreError> {
        self.change(subject, From::Server, |view, _| rules::abandon(view, owner))
            .await
    }

    pub(super) async fn fence(
        &self,
        subject: &str,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        let decide = |view: &View, _| rules::fence(view, at_least, when);
        self.change(subject, From::Server, decide).await
    }

    pub(super) async fn inspect(&self, subject: &str, key: &Key) -> Result<KeyState, StoreError> {
        let view = self.look(subject, self.link.deadline()).await?;
        Ok(rules::state(&view, key))
    }

    /// Decides on the record and stores what follows, in one step at the store: the
    /// compare-and-set.
    ///
    /// A compare-and-set without an answer is looked after: the record's nonce tells
    /// whether it took effect; and where the expected revision still stands, it is
    /// sent once more, and one copy at most can have an effect.
    async fn change<T>(
        &self,
        subject: &str,
        from: From,
        decide: impl Fn(&View, Moment) -> Step<T>,
    ) -> Result<T, StoreError> {
        let deadline = self.link.deadline();
        let nonce = Nonce::random()?;
        let asked = self.sights.now();
        let turn = tokio::time::timeout_at(deadline, self.turns.take(subject)).await;
        let _turn = turn.map_err(|_| errors::contended())?;
        let mut tries = 0;
        // What was sent and had no answer, and what it would come to.
        let mut sent: Option<(StoreError, T)> = None;
        let mut known = match from {
            From::Memory => self.sights.last(subject),
            From::Server => None,
        };
        loop {
            let remembered = known.is_some();
            let view = match known.take() {
                Some(view) => view,
                None => match (self.look(subject, deadline).await, &sent) {
                    (Ok(view), _) => view,
                    (Err(error), None) => return Err(error),
                    (Err(error), Some((unknown, _))) => return Err(neither(unknown, error)),
                },
            };
            if view.record.nonce == nonce
                && let Some((_, answer)) = sent
            {
                return Ok(answer);
            }
            let (mut record, answer) = match decide(&view, asked) {
                // It may have changed since: only what the server says counts.
                Step::Answer(_) if remembered => continue,
                Step::Answer(answer) => return Ok(answer),
                Step::Write(record, answer) => (record, answer),
            };
            record.nonce = nonce;
            record.prev = view.revision;
            let sent_at = self.sights.now();
            let set = self.replace(subject, &view, &record, deadline);
            // Whether somebody else got on.
            let moved;
            let failed = match set.await {
                Set::Done(revision) => {
                    self.sights.wrote(subject, revision, *record, sent_at);
                    return Ok(answer);
                }
                Set::Moved => {
                    moved = true;
                    match &sent {
                        None => errors::contended(),
                        Some((unknown, _)) => unknown.clone(),
                    }
                }
                Set::Not(error) => {
                    moved = false;
                    match &sent {
                        None if error.is_transient() => error,
                        None => return Err(error),
                        Some((unknown, _)) => neither(unknown, error),
                    }
                }
                Set::Unknown(error) => {
                    moved = false;
                    sent = Some((error.clone(), answer));
                    error
                }
            };
            let out_of_time = match moved {
                true => {
                    tries += 1;
                    self.link.step_aside(tries, deadline).await.is_err()
                }
                false => self.link.pause(deadline).await.is_err(),
            };
            if out_of_time {
                return Err(failed);
            }
        }
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
