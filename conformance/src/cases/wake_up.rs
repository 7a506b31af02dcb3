//! Hints that a key may be free.

use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use lease_core::{AcquireOutcome, FenceWhen, Key, WakeUps};

use super::token::token;
use crate::case::group;
use crate::client::{Client, ask};
use crate::context::{Ctx, key, owner, patience};
use crate::failure::{Failure, Outcome};

group! { "wake_up";
    a_release_is_hinted_at [WakeUps]:
        "Once watch has returned, a release by another client is hinted at soon, long before the TTL.";
    an_abandon_is_hinted_at [WakeUps]:
        "Once watch has returned, an abandon of the holder by another client is hinted at soon.";
    an_immediate_fence_is_hinted_at [WakeUps]:
        "Once watch has returned, a fence by another client that frees the key at once is hinted at soon.";
    a_key_never_seen_may_be_watched [WakeUps]:
        "A key that nobody ever acquired may be watched; a release of it later is hinted at.";
    every_watcher_is_woken [WakeUps]:
        "However many watch one key, through one client or many, each gets its hint.";
    one_watcher_is_woken_again_and_again [WakeUps]:
        "A subscription goes on after its first hint, or its stream ends, so that the watcher knows to subscribe again.";
    a_try_after_watching_misses_no_release:
        "Try, subscribe, try again, then sleep: a release between the first try and the subscription is seen by the second try, one after it is hinted at.";
    watching_changes_nothing:
        "Watching, and dropping the subscription, has no effect that others can see.";
}

/// How soon a hint must come: long before the TTL would free the key.
fn soon(ctx: &Ctx) -> Duration {
    match ctx.guarantees().wake_ups {
        WakeUps::Poll { every } => patience() + every * 2,
        _ => patience(),
    }
}

/// How often a case is tried while streams end before their hint.
const RUNS: usize = 5;

/// One subscription after the other: a stream of hints may end at any time.
struct Watcher {
    client: Client,
    key: Key,
    hints: BoxStream<'static, ()>,
}

/// What came of waiting for a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Hint,
    /// The stream ended first; the next one stands. A waiter tries again now.
    End,
}

impl Watcher {
    async fn new(client: &Client, key: &Key) -> Outcome<Self> {
        Ok(Self {
            client: client.clone(),
            key: key.clone(),
            hints: client.watch(key).await?,
        })
    }

    /// Takes what has come so far, and subscribes again where the stream ended.
    async fn stands(&mut self) -> Outcome {
        // A store may hint without end: those are spurious and harm nobody.
        for _ in 0..1000 {
            match self.hints.next().now_or_never() {
                Some(Some(())) => {}
                Some(None) => self.hints = self.client.watch(&self.key).await?,
                None => break,
            }
        }
        Ok(())
    }

    async fn waits(&mut self, ctx: &Ctx, of: &str) -> Outcome<Heard> {
        let soon = soon(ctx);
        match tokio::time::timeout(soon, self.hints.next()).await {
            Ok(Some(())) => Ok(Heard::Hint),
            Ok(None) => {
                self.hints = self.client.watch(&self.key).await?;
                Ok(Heard::End)
            }
            Err(_) => Err(Failure::says(
                format!("a hint of {of} within {soon:?}"),
                "none came",
            )),
        }
    }
}

/// The failure when no stream lived to give its hint.
fn only_ends(of: &str) -> Outcome {
    Err(Failure::says(
        format!("a hint of {of}"),
        "the stream of hints ended before it, again and again",
    ))
}

async fn a_release_is_hinted_at(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("release")?);
    let mut hinted = 0;
    for _ in 0..3 * RUNS {
        let held = one.grant(&key, owner(), ctx.long()).await?;
        let mut watcher = Watcher::new(&two, &key).await?;
        one.released(&held).await?;
        if watcher.waits(ctx, "the release").await? == Heard::Hint {
            hinted += 1;
        }
        if hinted == 3 {
            return Ok(());
        }
    }
    only_ends("the release")
}

async fn an_abandon_is_hinted_at(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("abandon")?);
    for _ in 0..RUNS {
        let held = one.grant(&key, owner(), ctx.long()).await?;
        let mut watcher = Watcher::new(&two, &key).await?;
        one.abandon(&key, held.owner).await?;
        if watcher.waits(ctx, "the abandon").await? == Heard::Hint {
            return Ok(());
        }
    }
    only_ends("the abandon")
}

async fn an_immediate_fence_is_hinted_at(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("fence")?);
    for _ in 0..RUNS {
        let held = one.grant(&key, owner(), ctx.long()).await?;
        let mut watcher = Watcher::new(&two, &key).await?;
        let mark = token(held.token.get() + 1)?;
        one.fence(&key, mark, FenceWhen::Immediately).await?;
        if watcher.waits(ctx, "the fence").await? == Heard::Hint {
            return Ok(());
        }
    }
    only_ends("the fence")
}

async fn a_key_never_seen_may_be_watched(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    for run in 0..RUNS {
        let key = key(&format!("unseen/{run}"))?;
        let mut watcher = Watcher::new(&two, &key).await?;
        let held = one.grant(&key, owner(), ctx.long()).await?;
        one.released(&held).await?;
        if watcher.waits(ctx, "the release").await? == Heard::Hint {
            return Ok(());
        }
    }
    only_ends("the release")
}

async fn every_watcher_is_woken(ctx: &Ctx) -> Outcome {
    let (clients, key) = (ctx.clients(3).await?, key("many")?);
    let mut all = Vec::new();
    for i in 0..30 {
        all.push(Watcher::new(&clients[i % 3], &key).await?);
    }
    // Those who have gone take no hint with them.
    all.drain(..5);
    for _ in 0..RUNS {
        let held = clients[0].grant(&key, owner(), ctx.long()).await?;
        for watcher in &mut all {
            watcher.stands().await?;
        }
        clients[0].released(&held).await?;
        let mut still = Vec::new();
        for mut watcher in all {
            let heard = watcher.waits(ctx, "the release, for every watcher").await?;
            if heard == Heard::End {
                still.push(watcher);
            }
        }
        if still.is_empty() {
            return Ok(());
        }
        all = still;
    }
    only_ends("the release, for every watcher")
}

async fn one_watcher_is_woken_again_and_again(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("again")?);
    let mut watcher = Watcher::new(&two, &key).await?;
    let mut hinted = 0;
    for round in 0..5 * RUNS {
        watcher.stands().await?;
        let held = one.grant(&key, owner(), ctx.long()).await?;
        one.released(&held).await?;
        // Earlier hints may come late: each is good for one try.
        let heard = watcher.waits(ctx, &format!("release {round}")).await?;
        if heard == Heard::Hint {
            hinted += 1;
        }
        if hinted == 5 {
            return Ok(());
        }
    }
    only_ends("each of five releases")
}

async fn a_try_after_watching_misses_no_release(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    for round in 0..20 {
        let key = key(&format!("gap/{round}"))?;
        let held = one.grant(&key, owner(), ctx.long()).await?;
        let request = ask(&key, owner(), ctx.long());
        two.held(&request).await?;
        let release = tokio::spawn({
            let (one, held) = (one.clone(), held.clone());
            // At a different moment each round.
            async move {
                tokio::time::sleep(Duration::from_micros(round * 100)).await;
                one.released(&held).await
            }
        });
        let mut watcher = Watcher::new(&two, &key).await?;
        loop {
            if matches!(two.acquire(&request).await?, AcquireOutcome::Granted(_)) {
                break;
            }
            if ctx.guarantees().wake_ups == WakeUps::None {
                tokio::time::sleep(Duration::from_millis(5)).await;
            } else {
                // Whatever it heard, it tries again.
                watcher
                    .waits(ctx, "the release after a try that was too early")
                    .await?;
            }
        }
        release
            .await
            .map_err(|e| Failure::new("nothing panics", e))??;
    }
    Ok(())
}

async fn watching_changes_nothing(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("quiet")?);
    let held = one.grant(&key, owner(), ctx.long()).await?;
    for _ in 0..50 {
        drop(two.watch(&key).await?);
    }
    one.is_live(&held).await?;
    one.renewed(&held, ctx.long()).await?;
    one.released(&held).await
}
