//! The store.

mod lanes;
mod way;

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{
    AcquireOutcome, AcquireRequest, Diagnosis, FenceWhen, Guarantees, InvalidInput, Key, KeyState,
    LeaseBackend, Owner, ReleaseOutcome, RenewOutcome, RenewRequest, Session, StoreError, Token,
    Ttl, check_fence,
};
use redis::aio::ConnectionLike;

use crate::cluster;
use crate::doctor::{self, Facts, Glance};
use crate::lane::{Lane, MOST_IN_BATCH};
use crate::link::Origin;
use crate::list;
use crate::names::Names;
use crate::options::RedisOptions;
use crate::reply::Reply;
use crate::request::Request;
use crate::script::Script;
use crate::servers::Servers;
use crate::wake::WakeUps;
use lanes::Inner;
pub(crate) use way::Line;
use way::{Over, Way};

/// Calls of one batch of renewals that are under way at once. Others' requests
/// come between them.
const CHUNKS_AT_ONCE: usize = 4;

/// A node of a cluster that is slower than the others by more than this part of
/// the TTL does not keep their outcomes waiting. Nor could it keep a lease of
/// such a TTL.
const PARTS_OF_TTL: u32 = 6;

/// A store of leases on Redis: one server, the primary that sentinels name, or a
/// cluster.
///
/// Cheap to clone; a clone is the same client. It opens its connections when it
/// first needs them and again when they fail, one set for each tokio runtime
/// that it is used from.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

impl RedisStore {
    pub(crate) fn new(options: RedisOptions) -> Self {
        let servers = &options.servers;
        let origin = servers.origin(options.connect_timeout, options.response_timeout);
        let wake_ups = match servers {
            // Each node has its own.
            Servers::Cluster(_) => None,
            Servers::One(_) | Servers::Sentinels(_) => Some(WakeUps::new(
                servers.clone(),
                options.connect_timeout,
                options.response_timeout,
            )),
        };
        Self::with(options, origin, wake_ups)
    }

    fn with(options: RedisOptions, origin: Origin, wake_ups: Option<WakeUps>) -> Self {
        let script = Arc::new(Script::new(
            options.mark_retention,
            options.tombstone_retention,
            options.quarantine.map(Ttl::get),
            options.names.birth(),
            match options.servers {
                Servers::Cluster(_) => "SPUBLISH",
                Servers::One(_) | Servers::Sentinels(_) => "PUBLISH",
            },
        ));
        Self {
            inner: Arc::new(Inner {
                options,
                origin,
                script,
                wake_ups,
                lanes: Mutex::new(Vec::new()),
            }),
        }
    }

    /// Connects if there is no connection.
    pub(crate) async fn connect(&self) -> Result<(), StoreError> {
        match &self.inner.lanes()?.way {
            Way::One { plain, .. } => plain.sender().link().connection().await.map(drop),
            Way::Cluster(router) => router.look().await,
        }
    }

    /// The connections of the runtime that we are on, for the store's gate.
    pub(crate) fn line(&self) -> Result<Line, StoreError> {
        Ok(self.inner.lanes()?.way.line())
    }

    /// The connection to the one server.
    pub(crate) fn plain_lane(&self) -> Result<Arc<Lane>, StoreError> {
        self.line()?.one()
    }

    /// A short look at the server.
    pub(crate) async fn glance(&self) -> Result<Glance, StoreError> {
        let lane = self.plain_lane()?;
        let mut up = lane.sender().link().connection().await?;
        Glance::take(&mut up.wire, self.names()).await
    }

    /// Whether there is the record of any key, spoiled ones included.
    pub(crate) async fn has_records(&self) -> Result<bool, StoreError> {
        list::any(&*self.plain_lane()?, self.names()).await
    }

    pub(crate) fn names(&self) -> &Names {
        &self.inner.options.names
    }

    pub(crate) fn options(&self) -> &RedisOptions {
        &self.inner.options
    }

    pub(crate) fn wake_ups(&self) -> Option<&WakeUps> {
        self.inner.wake_ups.as_ref()
    }

    async fn ask(&self, request: Request) -> Result<Reply, StoreError> {
        match &self.inner.lanes()?.way {
            Way::One {
                waiting: Some(waiting),
                ..
            } if request.must_last() => waiting.ask(request).await,
            Way::One { plain, .. } => plain.ask(request).await,
            Way::Cluster(router) => router.ask(&request).await,
        }
    }

    /// Renews as many as go into one call, or all of them in a cluster.
    async fn renew_over(
        &self,
        over: &Over<'_>,
        requests: &[RenewRequest],
    ) -> Vec<Result<RenewOutcome, StoreError>> {
        let sound: Vec<_> = requests.iter().map(|one| self.check_ttl(one.ttl)).collect();
        let batch: Vec<_> = requests
            .iter()
            .zip(&sound)
            .filter(|(_, sound)| sound.is_ok())
            .map(|(one, _)| Request::renew(&self.inner.options.names, one))
            .collect();
        let answers = match over {
            Over::One(lane) => lane.sender().send(&batch).await,
            Over::Cluster(router) => {
                let shortest = requests.iter().map(|one| one.ttl.get()).min();
                let grace = shortest.unwrap_or_default() / PARTS_OF_TTL;
                Ok(router.ask_all(&batch, grace).await)
            }
        };
        let mut answers = match answers {
            Ok(answers) => answers,
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
        }
        .into_iter();
        let outcomes = sound.into_iter().map(|sound| {
            sound?;
            let answer = answers.next();
            answer
                .unwrap_or_else(|| Err(crate::reply::odd()))?
                .renewed()
        });
        outcomes.collect()
    }

    /// The doctor, for leases or for queues.
    pub(crate) async fn look(&self, ttl: Ttl, queues: bool) -> Result<Diagnosis, StoreError> {
        let options = &self.inner.options;
        let facts = Facts {
            ttl,
            names: options.names.clone(),
            quarantine: options.quarantine,
            wait: options.wait.map(|wait| (wait.replicas, wait.within)),
            durable: options.durable,
            mark_retention: options.mark_retention,
            sentinels: matches!(options.servers, Servers::Sentinels(_)),
            slot: None,
            queues,
        };
        let lanes = self.inner.lanes()?;
        let look = async |lane: &Lane| {
            let mut up = lane.sender().link().connection().await?;
            doctor::diagnose(&mut up.wire, &facts).await
        };
        match (&lanes.way, &options.servers) {
            (Way::Cluster(router), _) => doctor::cluster::diagnose(router, &facts).await,
            (Way::One { plain, .. }, Servers::Sentinels(sentinels)) => {
                let primary = look(plain).await;
                doctor::sentinel::diagnose(sentinels, primary, &facts, options.connect_timeout)
                    .await
            }
            (Way::One { plain, .. }, _) => look(plain).await,
        }
    }

    fn check_ttl(&self, ttl: Ttl) -> Result<(), StoreError> {
        match self.inner.options.quarantine {
            Some(most) if ttl > most => Err(InvalidInput::TtlOutOfRange {
                ttl: ttl.get(),
                min: Ttl::MIN.get(),
                max: most.get(),
            }
            .into()),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl LeaseBackend for RedisStore {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        self.check_ttl(request.ttl)?;
        let request = Request::acquire(&self.inner.options.names, request);
        self.ask(request).await?.acquired()
    }

    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        let request = Request::abandon(&self.inner.options.names, key, owner);
        self.ask(request).await?.abandoned()
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        self.check_ttl(request.ttl)?;
        let request = Request::renew(&self.inner.options.names, request);
        self.ask(request).await?.renewed()
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let lanes = match self.inner.lanes() {
            Ok(lanes) => lanes,
            Err(error) => return requests.iter().map(|_| Err(error.clone())).collect(),
        };
        // Their requests are pipelined, unless each must wait for replicas: then
        // the server answers one after the other, and each has its own time.
        let (lane, at_once) = match &lanes.way {
            Way::One {
                waiting: Some(waiting),
                ..
            } => (waiting, 1),
            Way::One { plain, .. } => (plain, CHUNKS_AT_ONCE),
            Way::Cluster(router) => {
                return self.renew_over(&Over::Cluster(router), requests).await;
            }
        };
        let over = Over::One(lane);
        let chunks = requests.chunks(MOST_IN_BATCH);
        let chunks: Vec<_> = chunks.map(|chunk| self.renew_over(&over, chunk)).collect();
        let outcomes: Vec<_> = stream::iter(chunks).buffered(at_once).collect().await;
        outcomes.into_iter().flatten().collect()
    }

    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        let request = Request::release(&self.inner.options.names, key, owner, token);
        self.ask(request).await?.released()
    }

    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        check_fence(at_least)?;
        let request = Request::fence(&self.inner.options.names, key, at_least, when);
        self.ask(request).await?.fenced()
    }

    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        let request = Request::inspect(&self.inner.options.names, key);
        self.ask(request).await?.state(key)
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        let (store, names) = (self.clone(), self.inner.options.names.clone());
        if let Servers::Cluster(_) = self.inner.options.servers {
            return cluster::list(move || store.line()?.cluster(), names, prefix);
        }
        list::stream(move || store.line()?.one(), names, prefix)
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        let channel = self.inner.options.names.record(key);
        match (&self.inner.wake_ups, &self.inner.lanes()?.way) {
            (_, Way::Cluster(router)) => router.watch(channel).await,
            (Some(wake_ups), _) => wake_ups.watch(channel).await,
            (None, _) => Ok(Box::pin(stream::pending())),
        }
    }

    async fn ping(&self) -> Result<Session, StoreError> {
        Ok(Session::NONE)
    }

    fn guarantees(&self) -> Guarantees {
        let guarantees = self.inner.options.guarantees();
        match self.inner.origin {
            Origin::Servers { .. } => guarantees,
            Origin::Foreign(_) => guarantees.wake_ups(lease_core::WakeUps::None),
        }
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.look(ttl, false).await
    }
}

/// Nothing of the URL, which may hold secrets.
impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}

impl RedisStore {
    /// A store over a connection of the caller's own: see
    /// [`RedisOptions::open_over`].
    pub(crate) fn over<C>(options: RedisOptions, connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::with(options, Origin::Foreign(Arc::new(connection)), None)
    }
}

#[cfg(test)]
mod tests;
