//! The store.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::{
    AcquireOutcome, AcquireRequest, AdmitError, Diagnosis, FenceWhen, Gate, Guarantees, Key,
    KeyState, LeaseBackend, Owner, ReleaseOutcome, RenewOutcome, RenewRequest, Session, StoreError,
    Token, Ttl, check_fence,
};
use sqlx::SqlStr;
use tokio::runtime::Handle;

use crate::connection::Origin;
use crate::doctor::{self, Facts};
use crate::exchange::Exchange;
use crate::held::Held;
use crate::in_transaction::InTransaction;
use crate::lane::Lane;
use crate::layout::LEASES;
use crate::list;
use crate::options::PostgresOptions;
use crate::pooler;
use crate::renewals;
use crate::reply::Reply;
use crate::request::Request;
use crate::runtimes::{Ends, Runtimes};
use crate::schema::{Making, Schema};
use crate::sql::Statements;
use crate::wake::WakeUps;
use crate::wire::Wire;
use crate::witness::{Looks, Witness};

/// Connections for renewals alone: they never queue behind anything else.
const RENEWAL_CONNECTIONS: usize = 2;

/// A store of leases in a Postgres database.
///
/// Cheap to clone; a clone is the same client. It opens its connections when it
/// first needs them and again when they fail, one set for each tokio runtime
/// that it is used from.
#[derive(Clone)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

struct Inner {
    options: PostgresOptions,
    origin: Origin,
    schema: Arc<Schema>,
    statements: Arc<Statements>,
    wake_ups: WakeUps,
    looks: Looks,
    lanes: Runtimes<Lanes>,
}

/// The connections of one runtime.
struct Lanes {
    usual: Arc<Lane>,
    renewals: Arc<Lane>,
    /// The client's session, if leases end with it.
    witness: Option<Arc<Witness>>,
}

impl PostgresStore {
    /// The options are checked.
    pub(crate) fn new(options: PostgresOptions) -> Self {
        let origin = options.origin();
        let statements = Arc::new(Statements::new(&options.names));
        Self {
            inner: Arc::new(Inner {
                schema: Arc::new(Schema::new(&LEASES, options.names.clone(), options.making)),
                wake_ups: WakeUps::new(
                    origin.clone(),
                    statements.wait.clone(),
                    options.names.channel(),
                ),
                origin,
                statements,
                looks: Looks::default(),
                lanes: Runtimes::default(),
                options,
            }),
        }
    }

    /// Connects if there is no connection, and sees to the tables.
    pub(crate) async fn connect(&self) -> Result<(), StoreError> {
        let lanes = self.inner.lanes()?;
        // First: where a pooler stands between, it says so.
        lanes.session_stands().await?;
        let taken = lanes.usual.exchange().held().take().await?;
        taken.unasked();
        Ok(())
    }

    /// What uses this store's leases inside transactions of the user's own, over the
    /// user's connections to the same database.
    #[must_use]
    pub fn in_transaction(&self) -> InTransaction {
        self.inner.options.in_transaction()
    }

    fn usual(&self) -> Result<Arc<Lane>, StoreError> {
        Ok(Arc::clone(&self.inner.lanes()?.usual))
    }
}

impl Lanes {
    /// Sees to the session that a grant is to name, if it is to name one.
    async fn session_stands(&self) -> Result<(), StoreError> {
        match &self.witness {
            Some(witness) => witness.stand().await,
            None => Ok(()),
        }
    }
}

impl Ends for Lanes {
    fn end(&self) {
        self.usual.close();
        self.renewals.close();
    }
}

impl Inner {
    /// The connections of the runtime that we are on.
    fn lanes(&self) -> Result<Arc<Lanes>, StoreError> {
        self.lanes.here(|runtime| self.lanes_on(runtime))
    }

    fn lanes_on(&self, runtime: &Handle) -> Lanes {
        let statements = &self.statements;
        let grace = self.options.crash_detection;
        let witness = grace.map(|grace| Witness::new(self.origin.clone(), grace, runtime.clone()));
        let wire = |most, prepared: &[&SqlStr]| {
            let held = Held::new(
                self.origin.clone(),
                Arc::clone(&self.schema),
                runtime.clone(),
                most,
                prepared.iter().copied().cloned().collect(),
            );
            Wire::new(held, self.options.response_timeout)
        };
        let most = self.options.connections;
        let usual = [
            &statements.acquire,
            &statements.release,
            &statements.abandon,
        ];
        let usual = wire(most, &usual);
        let renewals = [&statements.prolong, &statements.renew];
        let renewals = wire(RENEWAL_CONNECTIONS, &renewals).or_else(usual.held());
        let exchange = |wire| {
            Exchange::new(
                wire,
                Arc::clone(statements),
                self.options.retention_us(),
                witness.clone(),
            )
        };
        Lanes {
            usual: Lane::new(exchange(usual), runtime.clone(), most),
            renewals: Lane::new(exchange(renewals), runtime.clone(), RENEWAL_CONNECTIONS),
            witness,
        }
    }
}

#[async_trait]
impl LeaseBackend for PostgresStore {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        let lanes = self.inner.lanes()?;
        lanes.session_stands().await?;
        match lanes.usual.ask(Request::acquire(request)).await? {
            Reply::Held(holder, session) => {
                let looks = &self.inner.looks;
                let looked = looks.look(&lanes.usual, &request.key, session, holder);
                Ok(AcquireOutcome::Held(looked.await))
            }
            reply => reply.acquired(),
        }
    }

    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        self.usual()?
            .ask(Request::abandon(key, owner))
            .await?
            .abandoned()
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        let lanes = self.inner.lanes()?;
        lanes.renewals.ask(Request::renew(request)).await?.renewed()
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let lanes = match self.inner.lanes() {
            Ok(lanes) => lanes,
            Err(error) => return requests.iter().map(|_| Err(error.clone())).collect(),
        };
        renewals::renew_many(&lanes.renewals, requests, RENEWAL_CONNECTIONS).await
    }

    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        self.usual()?
            .ask(Request::release(key, owner, token))
            .await?
            .released()
    }

    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        check_fence(at_least)?;
        self.usual()?
            .ask(Request::fence(key, at_least, when))
            .await?
            .fenced()
    }

    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        self.usual()?.ask(Request::inspect(key)).await?.state()
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        let store = self.clone();
        list::stream(move || store.usual(), prefix)
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        let way = &self.inner.origin.way;
        if way.shares().is_none() {
            self.connect().await?;
        }
        match way.shares() {
            Some(true) => Ok(pooler::polls()),
            _ => self.inner.wake_ups.watch(key.to_string()).await,
        }
    }

    async fn ping(&self) -> Result<Session, StoreError> {
        match &self.inner.lanes()?.witness {
            Some(witness) => witness.ping().await,
            None => Ok(Session::NONE),
        }
    }

    fn guarantees(&self) -> Guarantees {
        let guarantees = self.inner.options.guarantees();
        match self.inner.origin.way.shares() {
            Some(true) => guarantees.wake_ups(lease_core::WakeUps::Poll {
                every: pooler::POLL,
            }),
            _ => guarantees,
        }
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        let options = &self.inner.options;
        let facts = Facts {
            ttl,
            layout: &LEASES,
            names: options.names.clone(),
            migrate: options.making == Making::Missing,
            connections: options.connections,
            asynchronous: options.asynchronous_commit,
        };
        doctor::diagnose(&self.inner.origin, &facts).await
    }
}

/// A gate in the store's database, beside its leases. Prefer
/// [`InTransaction::admit`], in the same transaction as the write, where the write
/// goes to this database too.
#[async_trait]
impl Gate for PostgresStore {
    async fn admit(&self, resource: &Key, token: Token) -> Result<(), AdmitError> {
        let lane = self.usual()?;
        let outcome = lane.ask(Request::admit(resource, token)).await?;
        Ok(outcome.admitted()??)
    }
}

/// Nothing of the URL, which may hold secrets.
impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}
