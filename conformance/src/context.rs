//! What a case works with: its store, its limits, and words for failures.

use std::time::Duration;

use lease_core::{Guarantees, Key, Label, Owner, StoreError, StoreErrorKind, Token, Ttl};
use tokio::time::Instant;

use crate::client::{Client, Held, renewal};
use crate::failure::{Failure, Outcome, check};
use crate::fixture::{Fixture, FixtureError, Store};

/// Far longer than any case takes: what must not expire meanwhile.
const LONG: Duration = Duration::from_secs(300);
/// What a case waits out, several times over.
const SHORT: Duration = Duration::from_millis(150);
/// How long a case waits for what must come; far above what it takes even on a
/// busy machine, so that only a store that never does it fails.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(4);

/// One case's store.
pub(crate) struct Ctx {
    store: Box<dyn Store>,
    guarantees: Guarantees,
}

impl Ctx {
    pub(crate) async fn open(fixture: &dyn Fixture) -> Outcome<Self> {
        let store = fixture
            .open()
            .await
            .map_err(|e| Failure::says("the fixture opens a store", e.to_string()))?;
        let guarantees = connect(store.as_ref()).await?.backend().guarantees();
        Ok(Self { store, guarantees })
    }

    pub(crate) async fn close(self) {
        self.store.close().await;
    }

    pub(crate) fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    pub(crate) fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    /// An independent client.
    pub(crate) async fn client(&self) -> Outcome<Client> {
        connect(self.store.as_ref()).await
    }

    pub(crate) async fn clients(&self, count: usize) -> Outcome<Vec<Client>> {
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            clients.push(self.client().await?);
        }
        Ok(clients)
    }

    /// A TTL that does not end during the case.
    pub(crate) fn long(&self) -> Ttl {
        self.ttl(LONG)
    }

    /// A TTL that a case waits out.
    pub(crate) fn short(&self) -> Ttl {
        self.ttl(SHORT)
    }

    /// The TTL that the store takes and that is nearest to `wanted`.
    pub(crate) fn ttl(&self, wanted: Duration) -> Ttl {
        let range = self.guarantees.ttl;
        let ttl = wanted.min(range.max).max(range.min);
        Ttl::new(ttl).unwrap_or(Ttl::MIN)
    }

    /// How much longer than its TTL a grant may last as a client sees it: the
    /// store's resolution, and clocks that run at slightly different speeds.
    pub(crate) fn slack(&self, ttl: Ttl) -> Duration {
        self.guarantees.ttl.resolution + ttl.get() / 100 + Duration::from_millis(50)
    }

    /// Checks a time that the store tells: `least` to `most`, as coarsely as it
    /// claims to keep time.
    ///
    /// A grant may last the resolution longer than its TTL, and what is told
    /// of it may be rounded either way.
    pub(crate) fn tells(
        &self,
        what: &str,
        told: Duration,
        least: Duration,
        most: Duration,
    ) -> Outcome {
        let resolution = self.guarantees.ttl.resolution;
        check(
            told + resolution >= least && told <= most + resolution * 2,
            format!("{what}: {least:?} to {most:?}, at a resolution of {resolution:?}"),
            told,
        )
    }

    /// Checks that `told` are left of a TTL that was asked for at `sent`, and
    /// no more than that or than `earlier`, which the grant already had.
    pub(crate) fn lasts(&self, told: Duration, ttl: Ttl, sent: Instant, earlier: Ttl) -> Outcome {
        let least = ttl.get().saturating_sub(apart(sent.elapsed()));
        self.tells("the remaining time", told, least, ttl.max(earlier).get())
    }

    /// Waits until nothing blocks the key any more.
    pub(crate) async fn until_free(&self, client: &Client, key: &Key, ttl: Ttl) -> Outcome {
        let deadline = Instant::now() + ttl.get() + self.slack(ttl) + PATIENCE;
        loop {
            let state = client.inspect(key).await?;
            if state.holder.is_none() && state.blocked_for.is_none() {
                return Ok(());
            }
            check(
                Instant::now() < deadline,
                format!("{key:?} is free once the TTL of {ttl} is over"),
                state,
            )?;
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Asks again until there is an answer, as callers do after a failure that may
/// be over: a client may need more than one try to connect again.
pub(crate) async fn persist<T, F>(what: &str, mut call: impl FnMut() -> F) -> Outcome<T>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let give_up = Instant::now() + PATIENCE;
    loop {
        match tokio::time::timeout_at(give_up, call()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(e)) => check(
                e.is_transient() && Instant::now() < give_up,
                format!("{what}: after transient errors, an answer within {PATIENCE:?}"),
                e,
            )?,
            Err(_) => {
                return Err(Failure::says(
                    format!("{what}: an answer within {PATIENCE:?}"),
                    "none: the client hangs",
                ));
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until the client is connected, again or for the first time, in each
/// way that it has: one for reads and one for writes, say. Changes nothing.
pub(crate) async fn is_connected(client: &Client, key: &Key) -> Outcome {
    let backend = client.backend();
    persist("inspect", || backend.inspect(key)).await?;
    let nothing = Held {
        key: key.clone(),
        owner: owner(),
        token: Token::MIN,
    };
    let request = renewal(&nothing, Ttl::MIN);
    // Whether the store takes so short a TTL is nothing to us.
    let renewed = || async {
        match backend.renew(&request).await {
            Err(e) if e.kind() == StoreErrorKind::InvalidInput => Ok(()),
            other => other.map(drop),
        }
    };
    persist("renew of no grant", renewed).await
}

/// What a hook of the fixture did.
pub(crate) fn hooked<T>(what: &str, done: Result<T, FixtureError>) -> Outcome<T> {
    done.map_err(|e| Failure::says(format!("the fixture {what}"), e.to_string()))
}

/// How long to wait for what must come.
pub(crate) const fn patience() -> Duration {
    PATIENCE
}

/// What another clock may show after `passed` on this one, at most.
pub(crate) fn apart(passed: Duration) -> Duration {
    passed + passed / 50 + Duration::from_millis(50)
}

/// A new acquisition's owner.
pub(crate) fn owner() -> Owner {
    // Without random bytes nothing on this machine can be tested.
    Owner::random().unwrap_or_else(|e| panic!("{e}"))
}

pub(crate) fn key(text: &str) -> Outcome<Key> {
    Key::new(text).map_err(|e| Failure::says("the suite's own key is valid", e.to_string()))
}

pub(crate) fn label(text: &str) -> Outcome<Label> {
    Label::new(text).map_err(|e| Failure::says("the suite's own label is valid", e.to_string()))
}

async fn connect(store: &dyn Store) -> Outcome<Client> {
    let backend = store
        .client()
        .await
        .map_err(|e| Failure::says("the fixture opens a client", e.to_string()))?;
    Ok(Client::new(backend))
}
