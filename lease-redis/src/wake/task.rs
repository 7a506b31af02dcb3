//! The task that owns a connection for wake-ups: opens it while somebody
//! watches, tells the server of changes, passes messages on, and opens it
//! again when it is lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future;
use lease_core::StoreError;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use redis::{RedisResult, Value};
use tokio::task::coop;
use tokio::time::{Instant, sleep_until, timeout};

use super::channels::{Change, Channels};
use super::hub::Hub;
use super::{Limits, Lost, Place, shards};
use crate::errors::{Phase, classify};
use crate::sentinel::Stay;
use crate::servers::Servers;

/// Before the first attempt after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Before later ones; and a connection that lasted this long was a good one.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Channels in one command: names have up to some hundred bytes, so that a
/// command stays far below a megabyte.
const CHANNELS_AT_ONCE: usize = 512;
const MESSAGES_AT_ONCE: usize = 1024;
/// Until a channel that the server refused is asked for again.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// Channels that the server refused, and why, while it serves others.
pub(super) type Refused = Vec<(Arc<str>, StoreError)>;

pub(super) async fn run(place: Place, servers: Servers, limits: Limits, lost: Option<Lost>) {
    let hub = &place.hub;
    let mut pause = Pause::new();
    loop {
        if let Some(idle_until) = hub.idle_until() {
            if Instant::now() >= idle_until {
                if place.retire() {
                    return;
                }
            } else {
                // A watcher, or the end.
                tokio::select! {
                    () = hub.changed() => {}
                    () = sleep_until(idle_until) => {}
                }
            }
            continue;
        }
        sleep_until(pause.until).await;
        if !hub.is_watched() {
            continue;
        }
        let begun = Instant::now();
        // The driver's futures are large, and this one is rarely made.
        let end = match &lost {
            None => Box::pin(connect_and_serve(hub, &servers, limits)).await,
            Some(lost) => {
                let client = servers.client();
                Box::pin(shards::connect_and_serve(hub, client, limits, lost)).await
            }
        };
        hub.with(|channels| channels.disconnected(end.as_ref().err()));
        if let Err(error) = end {
            tracing::debug!(
                target: "leases",
                error = %error,
                "wake-ups have no connection; it is tried again while somebody watches"
            );
            if let Some(lost) = &lost {
                lost();
            }
            if begun.elapsed() >= LONGEST_PAUSE {
                pause = Pause::new();
            }
            pause.begin();
        }
    }
}

/// Returns without an error when nobody watches any more.
async fn connect_and_serve(hub: &Hub, servers: &Servers, limits: Limits) -> Result<(), StoreError> {
    let (client, stay) = servers.now(limits.connect).await?;
    let connection: PubSub =
        within(limits.connect, "connect", client.listen(limits.connect)).await?;
    hub.with(Channels::connected);
    let (sink, messages) = connection.split();
    // Whoever is polled first may use up the task's turn; not always the same.
    tokio::select! {
        () = listen(hub, messages) => Err(StoreError::unavailable(
            "the server closed the connection for wake-ups; check that it runs, and that its \
             output buffers for pub/sub clients are large enough",
        )),
        end = tend(hub, sink, limits) => end,
        () = moved(stay) => Err(StoreError::unavailable(
            "the sentinels name another primary by now; wake-ups go there",
        )),
    }
}

/// Returns when hints come from another server; of a server for ever, never.
async fn moved(stay: Option<Stay>) {
    match stay {
        Some(stay) => stay.over().await,
        None => future::pending().await,
    }
}

/// Tells a server what to send, and asks whether it is there.
pub(super) trait Voice: Sync {
    fn add(&self, names: &[Arc<str>]) -> impl Future<Output = RedisResult<Refused>> + Send;
    fn remove(&self, names: &[Arc<str>]) -> impl Future<Output = RedisResult<()>> + Send;
    fn is_there(&self) -> impl Future<Output = RedisResult<()>> + Send;
}

impl Voice for PubSubSink {
    async fn add(&self, names: &[Arc<str>]) -> RedisResult<Refused> {
        self.clone().subscribe(texts(names)).await?;
        Ok(Refused::new())
    }

    async fn remove(&self, names: &[Arc<str>]) -> RedisResult<()> {
        self.clone().unsubscribe(texts(names)).await
    }

    async fn is_there(&self) -> RedisResult<()> {
        self.clone().ping::<Value>().await.map(drop)
    }
}

/// Passes hints on until the connection ends.
///
/// The driver reads thousands of messages in one turn and keeps them for us in
/// a queue without a limit, so take as many in ours: tokio's budget would allow
/// 128.
async fn listen(hub: &Hub, messages: PubSubStream) {
    let mut batches = messages.ready_chunks(MESSAGES_AT_ONCE);
    while let Some(batch) = coop::unconstrained(batches.next()).await {
        hub.with(|channels| {
            for message in &batch {
                channels.hint(message.get_channel_name());
            }
        });
        coop::consume_budget().await;
    }
}

/// Tells the server of changes, one after the other, and asks whether it is
/// there when there are none.
pub(super) async fn tend(hub: &Hub, voice: impl Voice, limits: Limits) -> Result<(), StoreError> {
    let mut heard = Instant::now();
    let mut ask_again: Option<Instant> = None;
    loop {
        if ask_again.is_some_and(|at| Instant::now() >= at) {
            ask_again = None;
            hub.with(Channels::ask_again);
        }
        if let Some(change) = hub.with(|channels| channels.next_change(CHANNELS_AT_ONCE)) {
            let all = tell(hub, &voice, limits, &change).await?;
            heard = Instant::now();
            if !all {
                ask_again.get_or_insert(heard + REFUSED_PAUSE);
            }
            continue;
        }
        let now = Instant::now();
        let ask_at = heard + limits.response;
        let idle_until = hub.idle_until();
        if idle_until.is_some_and(|until| now >= until) {
            return Ok(());
        }
        if now >= ask_at {
            within(limits.response, "ask the server", voice.is_there()).await?;
            heard = Instant::now();
            continue;
        }
        let wake = [idle_until, ask_again].into_iter().flatten();
        let wake = wake.fold(ask_at, Instant::min);
        tokio::select! {
            () = hub.changed() => {}
            () = sleep_until(wake) => {}
        }
    }
}

/// Whether the server took all of it.
async fn tell(
    hub: &Hub,
    voice: &impl Voice,
    limits: Limits,
    change: &Change,
) -> Result<bool, StoreError> {
    let subscribe = async {
        match change.subscribe.is_empty() {
            true => Ok(Refused::new()),
            false => voice.add(&change.subscribe).await,
        }
    };
    let unsubscribe = async {
        match change.unsubscribe.is_empty() {
            true => Ok(()),
            false => voice.remove(&change.unsubscribe).await,
        }
    };
    let both = future::try_join(subscribe, unsubscribe);
    let (refused, ()) = within(limits.response, SUBSCRIBE, both).await?;
    hub.with(|channels| {
        channels.refused(&refused);
        channels.subscribed(&change.subscribe);
        channels.unsubscribed(&change.unsubscribe);
    });
    Ok(refused.is_empty())
}

fn texts(names: &[Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}

pub(super) const SUBSCRIBE: &str = "subscribe";

/// Why the server did not do it.
pub(super) fn refusal(doing: &str, error: redis::RedisError) -> StoreError {
    classify(Phase::Unsent, &format!("{doing} for wake-ups"), error)
}

/// None of what is asked for here changes anything that others can see, so no
/// failure leaves an outcome unknown.
pub(super) async fn within<T>(
    limit: Duration,
    doing: &str,
    answer: impl Future<Output = RedisResult<T>>,
) -> Result<T, StoreError> {
    match timeout(limit, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(refusal(doing, error)),
        Err(_) => Err(StoreError::unavailable(format!(
            "{doing} for wake-ups: no answer within {limit:?}; check that the server runs and can \
             be reached from here"
        ))),
    }
}

/// Until the next attempt: longer from failure to failure, and jittered, so
/// that the clients of a server that restarts do not come all at once.
struct Pause {
    until: Instant,
    next: Duration,
}

impl Pause {
    fn new() -> Self {
        Self {
            until: Instant::now(),
            next: FIRST_PAUSE,
        }
    }

    fn begin(&mut self) {
        let pause = self.next.mul_f64(rand::random_range(0.5..=1.0));
        self.until = Instant::now() + pause;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
    }
}
