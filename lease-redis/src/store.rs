//! The store.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{
    AcquireOutcome, AcquireRequest, Diagnosis, FenceWhen, Guarantees, InvalidInput, Key, KeyState,
    LeaseBackend, Owner, ReleaseOutcome, RenewOutcome, RenewRequest, StoreError, Token, Ttl,
    check_fence,
};
use redis::aio::ConnectionLike;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use crate::doctor::{self, Facts, Glance};
use crate::lane::{Lane, MOST_IN_BATCH};
use crate::link::{Link, Origin};
use crate::list;
use crate::names::Names;
use crate::options::{RedisOptions, Wait};
use crate::reply::Reply;
use crate::request::Request;
use crate::script::{Script, Sender};
use crate::sentinel::Following;
use crate::servers::Servers;
use crate::wake::WakeUps;

/// Batches under way at once over one connection: a few keep the server busy
/// while answers are on their way; many would only make batches smaller.
const WIDTH: usize = 4;

/// Calls of one batch of renewals that are under way at once. Others' requests
/// come between them.
const CHUNKS_AT_ONCE: usize = 4;

/// A store of leases on one Redis server.
///
/// Cheap to clone; a clone is the same client. It opens its connections when it
/// first needs them and again when they fail, one set for each tokio runtime
/// that it is used from.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    options: RedisOptions,
    origin: Origin,
    script: Arc<Script>,
    wake_ups: Option<WakeUps>,
    lanes: Mutex<Vec<(runtime::Id, Arc<Lanes>)>>,
}

/// The connections of one runtime.
struct Lanes {
    plain: Arc<Lane>,
    /// For what waits for replicas: a WAIT blocks its connection.
    waiting: Option<Arc<Lane>>,
    /// Hears of another primary.
    _following: Option<Following>,
    /// Ends the task that would forget this.
    _alive: oneshot::Sender<()>,
}

impl RedisStore {
    pub(crate) fn new(options: RedisOptions) -> Self {
        let servers = &options.servers;
        let origin = servers.origin(options.connect_timeout, options.response_timeout);
        let wake_ups = WakeUps::new(
            servers.clone(),
            options.connect_timeout,
            options.response_timeout,
        );
        Self::with(options, origin, Some(wake_ups))
    }

    fn with(options: RedisOptions, origin: Origin, wake_ups: Option<WakeUps>) -> Self {
        let script = Arc::new(Script::new(
            options.mark_retention,
            options.tombstone_retention,
            options.quarantine.map(Ttl::get),
            options.names.birth(),
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
        let lanes = self.inner.lanes()?;
        lanes.plain.sender().link().connection().await.map(drop)
    }

    /// The connection of the runtime that we are on, for the store's gate.
    pub(crate) fn plain_lane(&self) -> Result<Arc<Lane>, StoreError> {
        Ok(Arc::clone(&self.inner.lanes()?.plain))
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

    async fn ask(&self, request: Request) -> Result<Reply, StoreError> {
        let lanes = self.inner.lanes()?;
        let lane = match &lanes.waiting {
            Some(waiting) if request.must_last() => waiting,
            _ => &lanes.plain,
        };
        lane.ask(request).await
    }

    /// Renews as many as go into one call.
    async fn renew_chunk(
        &self,
        lane: &Lane,
        chunk: &[RenewRequest],
    ) -> Vec<Result<RenewOutcome, StoreError>> {
        let sound: Vec<_> = chunk.iter().map(|one| self.check_ttl(one.ttl)).collect();
        let batch: Vec<_> = chunk
            .iter()
            .zip(&sound)
            .filter(|(_, sound)| sound.is_ok())
            .map(|(one, _)| Request::renew(&self.inner.options.names, one))
            .collect();
        let mut answers = match lane.sender().send(&batch).await {
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

impl Inner {
    /// The connections of the runtime that we are on.
    fn lanes(self: &Arc<Self>) -> Result<Arc<Lanes>, StoreError> {
        let runtime = Handle::try_current().map_err(|error| {
            let words = "lease-redis needs a tokio runtime; call it from within one";
            StoreError::with_source(lease_core::StoreErrorKind::InvalidInput, words, error)
        })?;
        let id = runtime.id();
        let mut all = self.lanes.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, lanes)) = all.iter().find(|(known, _)| *known == id) {
            return Ok(Arc::clone(lanes));
        }
        let lane = |wait: Option<Wait>, width| {
            // A WAIT is answered late, and rightly so.
            let slack = wait.map_or(Duration::ZERO, |wait| wait.within);
            let link = Link::new(self.origin.clone(), slack);
            let sender = Sender::new(link, Arc::clone(&self.script), wait);
            Lane::new(sender, runtime.clone(), width)
        };
        let (alive, gone) = oneshot::channel::<()>();
        let following = self.options.servers.follow(
            &runtime,
            self.options.connect_timeout,
            self.options.response_timeout,
        );
        let lanes = Arc::new(Lanes {
            _following: following.filter(|_| matches!(self.origin, Origin::Servers { .. })),
            plain: lane(None, WIDTH),
            // One at a time: the next batch could not pass the WAIT anyway.
            waiting: self.options.wait.map(|wait| lane(Some(wait), 1)),
            _alive: alive,
        });
        all.push((id, Arc::clone(&lanes)));
        // A runtime that is shutting down drops the task at once, and what it
        // forgets by takes the lock.
        drop(all);
        let forget = Forget {
            inner: Arc::downgrade(self),
            id,
        };
        runtime.spawn(async move {
            let _forget = forget;
            let _ = gone.await;
        });
        Ok(lanes)
    }
}

/// Forgets a runtime's connections when the runtime drops its tasks.
struct Forget {
    inner: Weak<Inner>,
    id: runtime::Id,
}

impl Drop for Forget {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            let mut all = inner.lanes.lock().unwrap_or_else(|e| e.into_inner());
            let gone: Vec<_> = all.extract_if(.., |(id, _)| *id == self.id).collect();
            drop(all);
            for (_, lanes) in gone {
                lanes.plain.close();
                if let Some(waiting) = &lanes.waiting {
                    waiting.close();
                }
            }
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
        let lane = lanes.waiting.as_ref().unwrap_or(&lanes.plain);
        // Their requests are pipelined, unless each must wait for replicas: then
        // the server answers one after the other, and each has its own time.
        let at_once = match lanes.waiting {
            Some(_) => 1,
            None => CHUNKS_AT_ONCE,
        };
        let chunks = requests.chunks(MOST_IN_BATCH);
        let chunks: Vec<_> = chunks.map(|chunk| self.renew_chunk(lane, chunk)).collect();
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
        let store = self.clone();
        let lanes = move || {
            let lanes = store.inner.lanes()?;
            Ok(Arc::clone(&lanes.plain))
        };
        list::stream(lanes, self.inner.options.names.clone(), prefix)
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        match &self.inner.wake_ups {
            Some(wake_ups) => wake_ups.watch(self.inner.options.names.record(key)).await,
            None => Ok(Box::pin(futures_util::stream::pending())),
        }
    }

    fn guarantees(&self) -> Guarantees {
        let guarantees = self.inner.options.guarantees();
        match self.inner.wake_ups {
            Some(_) => guarantees,
            None => guarantees.wake_ups(lease_core::WakeUps::None),
        }
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        let options = &self.inner.options;
        let facts = Facts {
            ttl,
            names: options.names.clone(),
            quarantine: options.quarantine,
            wait: options.wait.map(|wait| (wait.replicas, wait.within)),
            durable: options.durable,
            mark_retention: options.mark_retention,
        };
        let lanes = self.inner.lanes()?;
        let look = async {
            let mut up = lanes.plain.sender().link().connection().await?;
            doctor::diagnose(&mut up.wire, &facts).await
        };
        match &options.servers {
            Servers::Sentinels(sentinels) => {
                let primary = look.await;
                doctor::sentinel::diagnose(sentinels, primary, &facts, options.connect_timeout)
                    .await
            }
            _ => look.await,
        }
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
