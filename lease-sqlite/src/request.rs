//! Requests to the writer: what each needs loaded, what it decides, and the
//! caller that waits for it.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::time::Instant;

use lease_core::{
    AcquireOutcome, AcquireRequest, FenceWhen, Key, Owner, ReleaseOutcome, RenewOutcome,
    RenewRequest, StaleToken, StoreError, Token,
};
use tokio::sync::oneshot;

use crate::table::Table;

/// The rows that a transaction has to load.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) keys: BTreeSet<Key>,
    pub(crate) owners: HashSet<Owner>,
    pub(crate) resources: BTreeSet<Key>,
}

pub(crate) trait Request: fmt::Debug + Send + 'static {
    type Outcome: Send + 'static;

    fn want(&self, wanted: &mut Wanted);

    fn decide(&self, table: &mut Table) -> Result<Self::Outcome, StoreError>;
}

/// One request with its caller, whatever its kind.
pub(crate) trait Job: fmt::Debug + Send {
    /// Whether nobody waits any more.
    fn is_orphaned(&self) -> bool;

    /// Until when to wait for the database's lock.
    fn give_up_at(&self) -> Instant;

    fn want(&self, wanted: &mut Wanted);

    fn decide(&mut self, table: &mut Table);

    /// Answers with what was decided, or with why that did not come to be.
    fn answer(self: Box<Self>, failure: Option<StoreError>);
}

#[derive(Debug)]
pub(crate) struct Asked<R: Request> {
    request: R,
    give_up_at: Instant,
    decided: Option<Result<R::Outcome, StoreError>>,
    reply: oneshot::Sender<Result<R::Outcome, StoreError>>,
}

impl<R: Request> Asked<R> {
    pub(crate) fn new(
        request: R,
        give_up_at: Instant,
        reply: oneshot::Sender<Result<R::Outcome, StoreError>>,
    ) -> Self {
        Self {
            request,
            give_up_at,
            decided: None,
            reply,
        }
    }
}

impl<R: Request> Job for Asked<R>
where
    R::Outcome: fmt::Debug,
{
    fn is_orphaned(&self) -> bool {
        self.reply.is_closed()
    }

    fn give_up_at(&self) -> Instant {
        self.give_up_at
    }

    fn want(&self, wanted: &mut Wanted) {
        self.request.want(wanted);
    }

    fn decide(&mut self, table: &mut Table) {
        self.decided = Some(self.request.decide(table));
    }

    fn answer(self: Box<Self>, failure: Option<StoreError>) {
        let answer = match (failure, self.decided) {
            // What was decided without touching anything stands.
            (_, Some(Err(own))) => Err(own),
            (Some(failure), _) => Err(failure),
            (None, Some(Ok(outcome))) => Ok(outcome),
            (None, None) => Err(StoreError::unavailable("the request was not run")),
        };
        // The caller may have gone meanwhile.
        let _ = self.reply.send(answer);
    }
}

impl Request for AcquireRequest {
    type Outcome = AcquireOutcome;

    fn want(&self, wanted: &mut Wanted) {
        wanted.keys.insert(self.key.clone());
        wanted.owners.insert(self.owner);
    }

    fn decide(&self, table: &mut Table) -> Result<AcquireOutcome, StoreError> {
        table.acquire(self)
    }
}

impl Request for RenewRequest {
    type Outcome = RenewOutcome;

    fn want(&self, wanted: &mut Wanted) {
        wanted.keys.insert(self.key.clone());
        wanted.owners.insert(self.owner);
    }

    fn decide(&self, table: &mut Table) -> Result<RenewOutcome, StoreError> {
        table.renew(self)
    }
}

#[derive(Debug)]
pub(crate) struct Abandon {
    pub(crate) key: Key,
    pub(crate) owner: Owner,
}

impl Request for Abandon {
    type Outcome = ();

    fn want(&self, wanted: &mut Wanted) {
        wanted.keys.insert(self.key.clone());
        wanted.owners.insert(self.owner);
    }

    fn decide(&self, table: &mut Table) -> Result<(), StoreError> {
        table.abandon(&self.key, self.owner)
    }
}

#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) token: Token,
}

impl Request for Release {
    type Outcome = ReleaseOutcome;

    fn want(&self, wanted: &mut Wanted) {
        wanted.keys.insert(self.key.clone());
    }

    fn decide(&self, table: &mut Table) -> Result<ReleaseOutcome, StoreError> {
        table.release(&self.key, self.owner, self.token)
    }
}

#[derive(Debug)]
pub(crate) struct Fence {
    pub(crate) key: Key,
    pub(crate) at_least: Token,
    pub(crate) when: FenceWhen,
}

impl Request for Fence {
    type Outcome = Token;

    fn want(&self, wanted: &mut Wanted) {
        wanted.keys.insert(self.key.clone());
    }

    fn decide(&self, table: &mut Table) -> Result<Token, StoreError> {
        table.fence(&self.key, self.at_least, self.when)
    }
}

#[derive(Debug)]
pub(crate) struct Admit {
    pub(crate) resource: Key,
    pub(crate) token: Token,
}

impl Request for Admit {
    type Outcome = Result<(), StaleToken>;

    fn want(&self, wanted: &mut Wanted) {
        wanted.resources.insert(self.resource.clone());
    }

    fn decide(&self, table: &mut Table) -> Result<Self::Outcome, StoreError> {
        table.admit(&self.resource, self.token)
    }
}

/// A durable write that changes nothing.
#[derive(Debug)]
pub(crate) struct Probe;

impl Request for Probe {
    type Outcome = ();

    fn want(&self, _wanted: &mut Wanted) {}

    fn decide(&self, table: &mut Table) -> Result<(), StoreError> {
        table.probe = true;
        Ok(())
    }
}
