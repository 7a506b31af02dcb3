//! Waiters in line, where a store claims to serve them in order.

use std::time::Duration;

use lease_core::{
    AcquireOutcome, AcquireRequest, FenceWhen, Key, RefusedReason, WAITER_TURN, place_lasts,
};
use tokio::time::Instant;

use super::token::token;
use crate::case::group;
use crate::client::{Client, Held, ask};
use crate::context::{Ctx, apart, key, label, owner, patience};
use crate::failure::{Failure, Outcome, check, check_eq};

group! { "line";
    order_holds_over_an_expiry [FifoWaiters]:
        "A key whose holder let it expire goes to those who wait in the order in which they asked.";
    order_holds_over_a_fence [FifoWaiters]:
        "A key that a fence frees at once goes to those who wait in the order in which they asked.";
    a_dead_head_costs_one_turn [FifoWaiters]:
        "Where the first in line does not come, the key goes to the second after one turn, and to nobody behind it before; nobody waits for the first again until it asks.";
    who_gives_up_leaves_the_line [FifoWaiters]:
        "An owner that is abandoned leaves the line at once, and is never granted the key.";
    a_try_does_not_pass_the_line [FifoWaiters]:
        "A request that does not wait is not granted a key that is kept for those who do, takes no place, and is told that somebody else is to have it.";
    a_retry_keeps_its_place [FifoWaiters]:
        "A waiter that asks again keeps its place.";
    a_grant_ends_its_place [FifoWaiters]:
        "Whoever was granted the key and released it begins at the end of the line.";
    a_place_fades [FifoWaiters]:
        "A waiter that has not asked for longer than its place lasts is in nobody's way.";
}

/// Far longer than a case takes until a waiter asks again.
const LOOK: Duration = Duration::from_secs(30);
/// How often a case is tried on a machine that stands still for whole turns.
const RUNS: usize = 5;

/// One who waits.
struct Waiter {
    name: String,
    client: Client,
    request: AcquireRequest,
}

/// What came of asking for a free key.
enum Came {
    /// Told to wait for so many.
    Kept(u64),
    Granted(Held),
    /// Granted, at a time when its turn may have come.
    Late,
}

impl Waiter {
    /// The same one.
    fn again(&self) -> Self {
        Self {
            name: self.name.clone(),
            client: self.client.clone(),
            request: self.request.clone(),
        }
    }

    async fn joins(ctx: &Ctx, key: &Key, number: usize) -> Outcome<Self> {
        Self::joins_for(ctx, key, number, LOOK).await
    }

    async fn joins_for(ctx: &Ctx, key: &Key, number: usize, look: Duration) -> Outcome<Self> {
        let name = format!("waiter {number}");
        let waiter = Self {
            client: ctx.client().await?,
            request: AcquireRequest {
                label: label(&name)?,
                waits: Some(look),
                ..ask(key, owner(), ctx.long())
            },
            name,
        };
        waiter.client.held(&waiter.request).await?;
        Ok(waiter)
    }

    /// Asks for a key that became free after `since`, with so many ahead.
    async fn comes(&self, since: Instant, ahead: u64) -> Outcome<Came> {
        let answer = self.client.acquire(&self.request).await?;
        let passed = apart(since.elapsed());
        match answer {
            AcquireOutcome::Granted(granted) => {
                let turns = WAITER_TURN * u32::try_from(ahead).unwrap_or(u32::MAX);
                check(
                    ahead == 0 || passed >= turns,
                    format!(
                        "{} waits for the turns of the {ahead} ahead of it",
                        self.name
                    ),
                    format!("granted after {passed:?} at most"),
                )?;
                let held = Held {
                    key: self.request.key.clone(),
                    owner: self.request.owner,
                    token: granted.token,
                };
                Ok(match ahead {
                    0 => Came::Granted(held),
                    _ => Came::Late,
                })
            }
            AcquireOutcome::Refused(RefusedReason::InLine { ahead, remaining }) => {
                let most = WAITER_TURN * u32::try_from(ahead).unwrap_or(u32::MAX);
                check(
                    ahead > 0 && remaining <= most,
                    format!("{} waits for one turn of each ahead of it", self.name),
                    format!("{ahead} ahead, {remaining:?}"),
                )?;
                Ok(Came::Kept(ahead))
            }
            other => Err(Failure::new(
                format!("acquire of a free key by {}: Granted or in line", self.name),
                other,
            )),
        }
    }

    /// Comes as the first in line.
    async fn is_served(&self, since: Instant) -> Outcome<Held> {
        match self.comes(since, 0).await? {
            Came::Granted(held) => Ok(held),
            _ => Err(Failure::says(
                format!("{} is first in line and gets the free key", self.name),
                "it is told to wait",
            )),
        }
    }

    /// Comes with so many ahead; false when the machine stood still for so long that
    /// its turn had come.
    async fn is_kept(&self, since: Instant, ahead: u64) -> Outcome<bool> {
        match self.comes(since, ahead).await? {
            Came::Kept(told) => {
                check_eq("how many are ahead", told, ahead)?;
                Ok(true)
            }
            Came::Granted(_) | Came::Late => Ok(false),
        }
    }
}

/// Tries again, with another key, where the machine was too slow to show anything.
macro_rules! in_time {
    ($of:literal, $key:ident, $run:expr) => {
        for run in 0..RUNS {
            let $key = key(&format!(concat!($of, "/{}"), run))?;
            let shown: Outcome<bool> = $run.await;
            if shown? {
                break;
            }
        }
        return Ok(())
    };
}

/// Serves all of them, each after those behind it have come too early.
async fn in_order(mut line: Vec<Waiter>, freed: Instant) -> Outcome<bool> {
    let mut since = freed;
    while !line.is_empty() {
        for (ahead, waiter) in line.iter().enumerate().skip(1).rev() {
            if !waiter.is_kept(since, ahead as u64).await? {
                return Ok(false);
            }
        }
        let first = line.remove(0);
        let held = first.is_served(since).await?;
        for waiter in &line {
            waiter.client.held(&waiter.request).await?;
        }
        since = Instant::now();
        first.client.released(&held).await?;
    }
    Ok(true)
}

async fn joined(ctx: &Ctx, key: &Key, count: usize) -> Outcome<Vec<Waiter>> {
    let mut line = Vec::new();
    for number in 0..count {
        line.push(Waiter::joins(ctx, key, number).await?);
    }
    Ok(line)
}

pub(super) async fn waiters_are_served_in_order(ctx: &Ctx) -> Outcome {
    in_time!("release", key, async {
        let client = ctx.client().await?;
        let held = client.grant(&key, owner(), ctx.long()).await?;
        let line = joined(ctx, &key, 6).await?;
        let freed = Instant::now();
        client.released(&held).await?;
        in_order(line, freed).await
    });
}

async fn order_holds_over_an_expiry(ctx: &Ctx) -> Outcome {
    in_time!("expiry", key, async {
        let client = ctx.client().await?;
        let ttl = ctx.ttl(Duration::from_secs(1));
        let asked = Instant::now();
        client.grant(&key, owner(), ttl).await?;
        let mut line = Vec::new();
        for number in 0..4 {
            match Waiter::joins(ctx, &key, number).await {
                Ok(waiter) => line.push(waiter),
                // The machine took longer than the TTL.
                Err(_) if asked.elapsed() >= ttl.get() => return Ok(false),
                Err(failure) => return Err(failure),
            }
        }
        // Each for itself, where there is no clock that all go by.
        for waiter in &line {
            ctx.until_free(&waiter.client, &key, ttl).await?;
        }
        in_order(line, asked + ttl.get()).await
    });
}

async fn order_holds_over_a_fence(ctx: &Ctx) -> Outcome {
    in_time!("fence", key, async {
        let client = ctx.client().await?;
        let held = client.grant(&key, owner(), ctx.long()).await?;
        let line = joined(ctx, &key, 3).await?;
        let freed = Instant::now();
        let above = token(held.token.get() + 1)?;
        client.fence(&key, above, FenceWhen::Immediately).await?;
        in_order(line, freed).await
    });
}

/// Asks until the key is granted, as it is told to; when that was.
async fn insists(waiter: Waiter, give_up: Instant) -> Outcome<Option<(String, Instant, Held)>> {
    loop {
        let pause = match waiter.client.acquire(&waiter.request).await? {
            AcquireOutcome::Granted(granted) => {
                let held = Held {
                    key: waiter.request.key.clone(),
                    owner: waiter.request.owner,
                    token: granted.token,
                };
                return Ok(Some((waiter.name, Instant::now(), held)));
            }
            AcquireOutcome::Refused(RefusedReason::InLine { remaining, .. }) => remaining,
            AcquireOutcome::Held(_) => return Ok(None),
            other => {
                return Err(Failure::new(
                    format!("acquire by {}: Granted, Held or in line", waiter.name),
                    other,
                ));
            }
        };
        check(
            Instant::now() < give_up,
            format!(
                "{} is granted the key once the turns ahead of it have passed",
                waiter.name
            ),
            "it still waits",
        )?;
        // Now and then early: that changes nothing.
        tokio::time::sleep(pause.min(WAITER_TURN / 5).max(Duration::from_millis(1))).await;
    }
}

async fn a_dead_head_costs_one_turn(ctx: &Ctx) -> Outcome {
    in_time!("dead", key, async {
        let client = ctx.client().await?;
        let held = client.grant(&key, owner(), ctx.long()).await?;
        // The first of them never asks again.
        let mut line = joined(ctx, &key, 4).await?.into_iter().skip(1);
        let freed = Instant::now();
        client.released(&held).await?;
        let give_up = freed + WAITER_TURN * 4 + patience();
        let (Some(one), Some(two), Some(three)) = (line.next(), line.next(), line.next()) else {
            return Ok(false);
        };
        let next = one.name.clone();
        let (one_again, two_again) = (one.again(), two.again());
        // The first to be granted it keeps it, and the others see that.
        let all = tokio::join!(
            insists(one, give_up),
            insists(two, give_up),
            insists(three, give_up),
        );
        let granted = [all.0?, all.1?, all.2?].into_iter().flatten();
        let granted: Vec<_> = granted.collect();
        let [(who, when, held)] = granted.as_slice() else {
            return Err(Failure::new("one of those who wait has the key", granted));
        };
        let passed = apart(*when - freed);
        check(
            passed >= WAITER_TURN,
            "the key is kept for the first in line for a turn",
            format!("{who} has it after {passed:?} at most"),
        )?;
        check(
            *who == next || passed >= WAITER_TURN * 2,
            format!("{next} is next"),
            format!("{who} has the key after {passed:?} at most"),
        )?;
        if *who != next {
            return Ok(false);
        }
        let since = Instant::now();
        one_again.client.released(held).await?;
        two_again.is_served(since).await?;
        Ok(true)
    });
}

async fn who_gives_up_leaves_the_line(ctx: &Ctx) -> Outcome {
    in_time!("given-up", key, async {
        let client = ctx.client().await?;
        let held = client.grant(&key, owner(), ctx.long()).await?;
        let line = joined(ctx, &key, 3).await?;
        let gone = &line[0];
        client.abandon(&key, gone.request.owner).await?;
        let freed = Instant::now();
        client.released(&held).await?;
        if !line[2].is_kept(freed, 1).await? {
            return Ok(false);
        }
        // A copy of its request that comes late.
        let reason = gone.client.refused(&gone.request).await?;
        check_eq("the reason", reason, RefusedReason::Abandoned)?;
        let held = line[1].is_served(freed).await?;
        // While somebody has it and when it is free.
        let reason = gone.client.refused(&gone.request).await?;
        check_eq("the reason", reason, RefusedReason::Abandoned)?;
        let freed = Instant::now();
        line[1].client.released(&held).await?;
        client.abandon(&key, line[2].request.owner).await?;
        let reason = line[2].client.refused(&line[2].request).await?;
        check_eq("the reason", reason, RefusedReason::Abandoned)?;
        // Nobody is left.
        let last = client.grant(&key, owner(), ctx.long()).await?;
        client.released(&last).await?;
        Ok(freed.elapsed() < WAITER_TURN)
    });
}

async fn a_try_does_not_pass_the_line(ctx: &Ctx) -> Outcome {
    in_time!("try", key, async {
        let client = ctx.client().await?;
        let held = client.grant(&key, owner(), ctx.long()).await?;
        let line = joined(ctx, &key, 2).await?;
        let freed = Instant::now();
        client.released(&held).await?;
        let mark = client.mark(&key).await?;
        for _ in 0..10 {
            let answer = client.acquire(&ask(&key, owner(), ctx.long())).await?;
            let passed = apart(freed.elapsed());
            match answer {
                AcquireOutcome::Held(holder) => {
                    check_eq("who is named", holder.label, line[0].request.label.clone())?;
                    check(
                        holder.token <= mark && holder.remaining <= WAITER_TURN * 2,
                        format!("a token up to the mark {mark}, and at most two turns"),
                        (holder.token, holder.remaining),
                    )?;
                }
                AcquireOutcome::Granted(_) if passed >= WAITER_TURN * 2 => return Ok(false),
                other => {
                    return Err(Failure::new(
                        "acquire, without waiting, of a key that is kept for two who wait: Held",
                        other,
                    ));
                }
            }
        }
        let held = line[0].is_served(freed).await?;
        let freed = Instant::now();
        line[0].client.released(&held).await?;
        let held = line[1].is_served(freed).await?;
        line[1].client.released(&held).await?;
        // None of those tries is in a line.
        let last = client.grant(&key, owner(), ctx.long()).await?;
        client.released(&last).await?;
        Ok(true)
    });
}

async fn a_retry_keeps_its_place(ctx: &Ctx) -> Outcome {
    in_time!("retry", key, async {
        let client = ctx.client().await?;
        let held = client.grant(&key, owner(), ctx.long()).await?;
        let line = joined(ctx, &key, 3).await?;
        for waiter in [&line[2], &line[0], &line[1], &line[0]] {
            waiter.client.held(&waiter.request).await?;
        }
        let freed = Instant::now();
        client.released(&held).await?;
        in_order(line, freed).await
    });
}

async fn a_grant_ends_its_place(ctx: &Ctx) -> Outcome {
    in_time!("again", key, async {
        let client = ctx.client().await?;
        let held = client.grant(&key, owner(), ctx.long()).await?;
        let line = joined(ctx, &key, 2).await?;
        let freed = Instant::now();
        client.released(&held).await?;
        let held = line[0].is_served(freed).await?;
        let freed = Instant::now();
        line[0].client.released(&held).await?;
        // As a store may remember who has released, another acquisition of the same.
        let again = Waiter {
            name: "the former holder".to_owned(),
            client: line[0].client.clone(),
            request: AcquireRequest {
                owner: owner(),
                ..line[0].request.clone()
            },
        };
        if !again.is_kept(freed, 1).await? {
            return Ok(false);
        }
        line[1].is_served(freed).await?;
        Ok(true)
    });
}

async fn a_place_fades(ctx: &Ctx) -> Outcome {
    in_time!("fades", key, async {
        let client = ctx.client().await?;
        let held = client.grant(&key, owner(), ctx.long()).await?;
        let soon = Waiter::joins_for(ctx, &key, 0, Duration::ZERO).await?;
        let faded = Instant::now() + apart(place_lasts(Duration::ZERO));
        let line = joined(ctx, &key, 2).await?;
        tokio::time::sleep_until(faded).await;
        let freed = Instant::now();
        client.released(&held).await?;
        if !line[1].is_kept(freed, 1).await? {
            return Ok(false);
        }
        // It comes back, to the end.
        if !soon.is_kept(freed, 2).await? {
            return Ok(false);
        }
        line[0].is_served(freed).await?;
        Ok(true)
    });
}
