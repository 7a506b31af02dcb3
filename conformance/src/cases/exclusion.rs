//! At most one owner, under concurrency.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{AcquireOutcome, DriftAllowance, RenewOutcome, StoreError, Ttl};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::case::group;
use crate::client::{Client, Held, ask, renewal};
use crate::context::{Ctx, key, owner};
use crate::dropping::dropped_after;
use crate::failure::{Failure, Outcome, check};
use crate::history::{Done, Recorder, violation};

group! { "exclusion";
    one_of_many_is_granted:
        "Of many owners that ask for a free key at the same time exactly one is granted it.";
    histories_are_exclusive:
        "Under concurrent acquires, renewals, releases, abandons and expiries no two owners ever hold one key, and tokens rise in real time.";
    histories_with_dropped_calls_are_exclusive:
        "The same holds when callers drop their acquires half-way and abandon them.";
}

const RACERS: usize = 200;
const ROUNDS: usize = 10;
const KEYS: usize = 3;
const LEAST_ROUNDS: usize = 5;

/// A busy store may say so; that is no effect and no outcome.
async fn patiently<T, F>(mut call: impl FnMut() -> F) -> Outcome<T>
where
    F: Future<Output = Result<T, StoreError>>,
{
    for tried in 0..200 {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(e) if e.is_transient() => {
                tokio::time::sleep(Duration::from_millis(1 + tried)).await;
            }
            Err(e) => return Err(Failure::new("a healthy store answers", e)),
        }
    }
    Err(Failure::says(
        "a busy store answers at last",
        "200 transient errors",
    ))
}

async fn one_of_many_is_granted(ctx: &Ctx) -> Outcome {
    let (clients, key) = (ctx.clients(8).await?, key("race")?);
    let mut last = None;
    for round in 0..ROUNDS {
        let start = Arc::new(tokio::sync::Barrier::new(RACERS));
        let racers: Vec<_> = (0..RACERS)
            .map(|i| {
                let client = clients[i % clients.len()].clone();
                let request = ask(&key, owner(), ctx.long());
                let start = Arc::clone(&start);
                tokio::spawn(async move {
                    start.wait().await;
                    let outcome = patiently(|| client.backend().acquire(&request)).await?;
                    Outcome::Ok((request.owner, outcome))
                })
            })
            .collect();
        let mut granted = Vec::new();
        for racer in racers {
            let (owner, outcome) = racer
                .await
                .map_err(|e| Failure::new("nothing panics", e))??;
            if let AcquireOutcome::Granted(grant) = outcome {
                granted.push((owner, grant.token));
            }
        }
        let [(owner, token)] = granted[..] else {
            let all = format!("{} grants: {granted:?}", granted.len());
            return Err(Failure::says(format!("one grant in round {round}"), all));
        };
        check(Some(token) > last, format!("a token above {last:?}"), token)?;
        last = Some(token);
        let key = key.clone();
        clients[0].released(&Held { key, owner, token }).await?;
    }
    Ok(())
}

async fn histories_are_exclusive(ctx: &Ctx) -> Outcome {
    history(ctx, 0).await
}

async fn histories_with_dropped_calls_are_exclusive(ctx: &Ctx) -> Outcome {
    history(ctx, 30).await
}

/// Runs workers on a few keys and judges what they saw.
async fn history(ctx: &Ctx, dropped_percent: u32) -> Outcome {
    let seed: u64 = owner()
        .as_bytes()
        .iter()
        .fold(0, |s, b| s << 4 ^ u64::from(*b));
    let recorder = Arc::new(Recorder::new());
    let ttl = ctx.ttl(Duration::from_millis(80));
    let until = (ttl.get() * 12).max(Duration::from_millis(1200));
    let mut workers = Vec::new();
    for (number, client) in ctx.clients(4).await?.into_iter().enumerate() {
        for task in 0..4 {
            let mut worker = Worker {
                client: client.clone(),
                recorder: Arc::clone(&recorder),
                random: StdRng::seed_from_u64(seed ^ (number * 4 + task) as u64),
                ttl,
                dropped_percent,
            };
            workers.push(tokio::spawn(async move {
                // A few rounds even on a machine that stood still meanwhile.
                for done in 0.. {
                    if done >= LEAST_ROUNDS && worker.recorder.now() >= until {
                        break;
                    }
                    worker.round().await?;
                }
                Outcome::Ok(())
            }));
        }
    }
    for worker in workers {
        worker
            .await
            .map_err(|e| Failure::new("nothing panics", e))??;
    }
    let records = recorder.records();
    let grants = records
        .iter()
        .filter(|r| matches!(r.done, Done::Granted { .. }))
        .count();
    check(
        grants > KEYS,
        "the workers were granted keys again and again",
        grants,
    )?;
    match violation(&records, DriftAllowance::default()) {
        None => Ok(()),
        Some(found) => Err(Failure::says(
            format!(
                "a history that a store with this rule can have (seed {seed}, {grants} grants)"
            ),
            found,
        )),
    }
}

struct Worker {
    client: Client,
    recorder: Arc<Recorder>,
    random: StdRng,
    ttl: Ttl,
    dropped_percent: u32,
}

impl Worker {
    async fn round(&mut self) -> Outcome {
        let number = self.random.random_range(0..KEYS);
        let request = ask(&key(&format!("history/{number}"))?, owner(), self.ttl);
        let me = request.owner;
        let sent = self.recorder.now();
        let call = self.client.backend().acquire(&request);
        let outcome = if self.random.random_range(0..100) < self.dropped_percent {
            match dropped_after(self.random.random_range(0..6), call).await {
                Some(outcome) => outcome,
                None => return self.abandon(number, &request.key, me).await,
            }
        } else {
            call.await
        };
        match outcome {
            Ok(AcquireOutcome::Granted(granted)) => {
                let (replied, ttl) = (self.recorder.now(), self.ttl);
                let done = Done::Granted {
                    token: granted.token,
                    ttl,
                };
                self.recorder.note(number, me, sent, replied, done);
                let held = Held {
                    key: request.key,
                    owner: me,
                    token: granted.token,
                };
                self.hold(number, &held).await
            }
            Ok(AcquireOutcome::Held(holder)) => {
                let most = u64::try_from(holder.remaining.as_micros()).unwrap_or(u64::MAX);
                let micros = self.random.random_range(0..=most.min(10_000));
                tokio::time::sleep(Duration::from_micros(micros)).await;
                Ok(())
            }
            Ok(other) => Err(Failure::new("Granted or Held for a new owner", other)),
            Err(e) if e.is_transient() => self.abandon(number, &request.key, me).await,
            Err(e) => Err(Failure::new("a healthy store answers", e)),
        }
    }

    /// Works, renews, and ends the grant in one way or another.
    async fn hold(&mut self, number: usize, held: &Held) -> Outcome {
        for _ in 0..self.random.random_range(0..4) {
            let part = self.ttl.get() / self.random.random_range(3..20);
            tokio::time::sleep(part).await;
            if self.random.random_bool(0.3) {
                self.client.inspect(&held.key).await?;
            }
            let sent = self.recorder.now();
            let renewed = self.client.backend().renew(&renewal(held, self.ttl)).await;
            let (replied, token, ttl) = (self.recorder.now(), held.token, self.ttl);
            match renewed {
                Ok(RenewOutcome::Renewed) => {
                    let done = Done::Renewed { token, ttl };
                    self.recorder.note(number, held.owner, sent, replied, done);
                }
                Ok(RenewOutcome::Lost(_)) => return Ok(()),
                Err(e) if e.is_transient() => {}
                Err(e) => return Err(Failure::new("a healthy store answers", e)),
            }
        }
        match self.random.random_range(0..4) {
            0 => self.abandon(number, &held.key, held.owner).await,
            // Left to expire.
            1 => Ok(()),
            _ => self.release(number, held).await,
        }
    }

    async fn release(&self, number: usize, held: &Held) -> Outcome {
        let sent = self.recorder.now();
        patiently(|| {
            self.client
                .backend()
                .release(&held.key, held.owner, held.token)
        })
        .await?;
        let replied = self.recorder.now();
        self.recorder
            .note(number, held.owner, sent, replied, Done::Released);
        Ok(())
    }

    async fn abandon(
        &self,
        number: usize,
        key: &lease_core::Key,
        me: lease_core::Owner,
    ) -> Outcome {
        let sent = self.recorder.now();
        patiently(|| self.client.backend().abandon(key, me)).await?;
        let replied = self.recorder.now();
        self.recorder
            .note(number, me, sent, replied, Done::Abandoned);
        Ok(())
    }
}
