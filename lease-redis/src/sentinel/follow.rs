//! Hearing of a failover from the sentinels themselves: a former primary that
//! they have lost may still answer us.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use lease_core::StoreError;
use redis::{RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::ask::failure;
use super::look::Look;
use super::{Care, Sentinels};
use crate::client::Client;

/// Said by each sentinel when it has learnt of another primary, and by the one
/// that leads a failover when there is one, some time before.
pub(crate) const CHANNELS: [&str; 2] = ["+switch-master", "+promoted-slave"];
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// After a subscription stands, others may follow, and one look does for all.
const GATHER: Duration = Duration::from_secs(1);

/// Between two looks, however much is said.
const GAP: Duration = Duration::from_millis(100);

/// The time limits of what is asked.
#[derive(Clone, Copy, Debug)]
struct Limits {
    connect: Duration,
    response: Duration,
}

/// The tasks that listen, one connection to each sentinel, until dropped.
#[derive(Debug)]
pub(crate) struct Following(Vec<AbortHandle>);

impl Drop for Following {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl Following {
    /// Listens in this runtime.
    pub(crate) fn start(
        sentinels: &Arc<Sentinels>,
        runtime: &Handle,
        connect: Duration,
        response: Duration,
    ) -> Self {
        let limits = Limits { connect, response };
        let heard = Arc::new(Heard::default());
        let mut tasks = Vec::new();
        for sentinel in sentinels.all() {
            let (sentinel, name) = (sentinel.clone(), sentinels.name().to_owned());
            let task = listen(sentinel, name, Arc::clone(&heard), limits);
            tasks.push(runtime.spawn(task).abort_handle());
        }
        let look = look(Arc::clone(sentinels), heard, limits);
        tasks.push(runtime.spawn(look).abort_handle());
        Self(tasks)
    }
}

/// However many have something to say, and however often: one look.
#[derive(Debug, Default)]
struct Heard {
    /// There is another primary.
    said: Notify,
    /// A subscription stands; what was said before was not heard.
    stands: Notify,
}

impl Heard {
    async fn something(&self) {
        tokio::select! {
            () = self.said.notified() => return,
            () = self.stands.notified() => {}
        }
        let gather = GATHER.mul_f64(rand::random_range(0.5..=1.0));
        // Either way it is time to look.
        let _ = timeout(gather, self.said.notified()).await;
    }
}

/// Asks who the primary is, when there is a reason. Those who answer late are heard
/// until there is another one.
async fn look(sentinels: Arc<Sentinels>, heard: Arc<Heard>, limits: Limits) {
    heard.something().await;
    loop {
        let mut look = Look::begin(&sentinels, limits.connect);
        if let Err(error) = look.first(Care::Great).await {
            tracing::debug!(
                target: "leases",
                error = %error,
                "a sentinel spoke of another primary, and none says which"
            );
        }
        sleep(GAP).await;
        // Dropped before its end, it would lose what was said meanwhile.
        let mut something = pin!(heard.something());
        tokio::select! {
            () = &mut something => {}
            () = look.late() => something.await,
        }
    }
}

async fn listen(sentinel: Client, name: String, heard: Arc<Heard>, limits: Limits) {
    let mut pause = FIRST_PAUSE;
    loop {
        let begun = Instant::now();
        // The driver's futures are large.
        let end = Box::pin(listen_once(&sentinel, &name, &heard, limits)).await;
        tracing::debug!(
            target: "leases",
            error = %end,
            "a sentinel cannot be listened to; it is tried again"
        );
        if begun.elapsed() >= LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        sleep(pause.mul_f64(rand::random_range(0.5..=1.0))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns when the connection is gone.
async fn listen_once(sentinel: &Client, name: &str, heard: &Heard, limits: Limits) -> StoreError {
    match subscribed(sentinel, name, heard, limits).await {
        Ok(()) => StoreError::unavailable("the sentinel closed the connection"),
        Err(error) => error,
    }
}

async fn subscribed(
    sentinel: &Client,
    name: &str,
    heard: &Heard,
    limits: Limits,
) -> Result<(), StoreError> {
    let connection = within(limits.connect, sentinel.listen(limits.connect)).await?;
    let (mut sink, mut messages) = connection.split();
    within(limits.response, sink.subscribe(&CHANNELS[..])).await?;
    heard.stands.notify_one();
    loop {
        let message = match timeout(limits.response, messages.next()).await {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(()),
            Err(_) => {
                let _: Value = within(limits.response, sink.ping()).await?;
                continue;
            }
        };
        let text: String = message.get_payload().unwrap_or_default();
        if text.split(' ').any(|word| word == name) {
            heard.said.notify_one();
        }
    }
}

async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = RedisResult<T>>,
) -> Result<T, StoreError> {
    match timeout(limit, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(failure("listening to a sentinel", error)),
        Err(_) => Err(StoreError::unavailable("a sentinel does not answer")),
    }
}
