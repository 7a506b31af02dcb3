//! Workers that crash in a race, and come back as late workers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use lease_core::{Token, Ttl};
use lease_queue::{ClaimRef, Claimed, Lane, Settle, Settled};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::context::{key, owner};
use crate::failure::{Failure, Outcome, check, check_eq};
use crate::queue::case::group;
use crate::queue::client::{Client, back, next};
use crate::queue::context::{Ctx, grouped, item};

group! { "crashes";
    each_item_is_completed_once_and_in_order:
        "While workers crash and settle late, no live claim is lost, exactly one completion of each item takes effect, and within a group they take effect in order, with rising tokens.";
}

const GROUPS: usize = 20;
const ITEMS: usize = 4;
const ALONE: usize = 40;
const WORKERS: u64 = 8;
const LATE_TRIES: usize = 12;

/// Completions that took effect, as they were answered.
type Completions = Arc<Mutex<HashMap<Bytes, Vec<Token>>>>;

async fn each_item_is_completed_once_and_in_order(ctx: &Ctx) -> Outcome {
    let putter = ctx.client().await?;
    let groups = if ctx.can().groups { GROUPS } else { 0 };
    let mut items: Vec<_> = (0..ALONE).map(|n| item(&format!("alone {n}"))).collect();
    for g in 0..groups {
        let group = key(&format!("group {g}"))?;
        items.extend((0..ITEMS).map(|n| grouped(&group, &format!("{g} {n}"))));
    }
    putter.add(&items).await?;
    let completed = Completions::default();
    let give_up = Instant::now() + Duration::from_secs(60);
    let mut working = JoinSet::new();
    for seed in 0..WORKERS {
        let (client, random) = (ctx.client().await?, StdRng::seed_from_u64(seed));
        let worker = Worker {
            client,
            random,
            ttl: ctx.short(),
            completed: Arc::clone(&completed),
            asleep: Vec::new(),
        };
        working.spawn(worker.work(give_up));
    }
    while let Some(ended) = working.join_next().await {
        ended.map_err(|e| Failure::says("no worker panics", e.to_string()))??;
    }
    let completed = completed.lock().unwrap_or_else(|e| e.into_inner()).clone();
    for item in &items {
        let tokens = completed.get(&item.body).map_or(0, Vec::len);
        let what = format!("completions of {:?} that took effect", item.body);
        check_eq(&what, tokens, 1)?;
    }
    for g in 0..groups {
        let of = |n| completed.get(&Bytes::from(format!("{g} {n}")));
        let tokens: Vec<_> = (0..ITEMS).filter_map(of).flatten().collect();
        let rise = tokens.is_sorted_by(|a, b| a < b);
        check(
            rise,
            format!("rising tokens of group {g}, in order"),
            &tokens,
        )?;
    }
    Ok(())
}

struct Worker {
    client: Client,
    random: StdRng,
    ttl: Ttl,
    completed: Completions,
    /// Claims that it believes in though it slept too long, if it did.
    asleep: Vec<(ClaimRef, Bytes)>,
}

impl Worker {
    async fn work(mut self, give_up: Instant) -> Outcome {
        while Instant::now() < give_up {
            self.wake_up().await?;
            let request = next(owner(), self.ttl, 2);
            let sent = Instant::now();
            let claimed = match self.client.ask(&request).await? {
                lease_queue::Answer::Claimed { items, .. } => items,
                lease_queue::Answer::Nothing { .. } => Vec::new(),
                other => return Err(Failure::new("Claimed or Nothing", other)),
            };
            if claimed.is_empty() {
                let depth = self.client.depth().await?;
                if depth.ready + depth.delayed + depth.in_flight == 0 {
                    return self.wake_up().await;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            for Claimed {
                claim,
                body,
                attempt,
                ..
            } in claimed
            {
                check(
                    !matches!(claim.lane, Lane::Key(_)),
                    "an item's or a group's lane",
                    &claim,
                )?;
                match self.random.random_range(0..10) {
                    0 => self.asleep.push((claim, body)),
                    1 => {
                        let settled = self.client.settle(&claim, back(true)).await?;
                        self.was_live(sent, settled)?;
                    }
                    _ => {
                        // What had an owner before has a late worker, too.
                        let most = if attempt > 1 { 80 } else { 20 };
                        let nap = self.random.random_range(0..most);
                        tokio::time::sleep(Duration::from_millis(nap)).await;
                        let settled = self.complete(&claim, body).await?;
                        self.was_live(sent, settled)?;
                    }
                }
            }
        }
        Err(Failure::says(
            "the race ends within a minute",
            "items are left",
        ))
    }

    /// Settles late what it slept over, or what by luck is not late at all.
    async fn wake_up(&mut self) -> Outcome {
        if self.asleep.len() > 1 || self.random.random_bool(0.1) {
            for (claim, body) in std::mem::take(&mut self.asleep) {
                if self.random.random_bool(0.5) {
                    let nap = self.random.random_range(0..300);
                    tokio::time::sleep(Duration::from_millis(nap)).await;
                }
                // Again and again: somebody else has it at one of these times.
                for _ in 0..LATE_TRIES {
                    let extend = Settle::Extend(self.ttl);
                    let _ = self.client.settle(&claim, extend).await?;
                    if self.complete(&claim, body.clone()).await? == Settled::Done {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
        Ok(())
    }

    /// A claim that cannot have expired when it was settled was its owner's.
    fn was_live(&self, sent: Instant, settled: Settled) -> Outcome {
        let early = sent.elapsed() < self.ttl.get() * 9 / 10;
        let done = settled == Settled::Done;
        check(done || !early, "a live claim is settled", settled)
    }

    async fn complete(&self, claim: &ClaimRef, body: Bytes) -> Outcome<Settled> {
        let settled = self.client.settle(claim, Settle::Complete).await?;
        if settled == Settled::Done {
            let mut completed = self.completed.lock().unwrap_or_else(|e| e.into_inner());
            completed.entry(body).or_default().push(claim.token);
        }
        Ok(settled)
    }
}
