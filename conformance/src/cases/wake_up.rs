//! Hints that a key may be free.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use lease_core::{AcquireOutcome, FenceWhen, WakeUps};

use super::token::token;
use crate::case::group;
use crate::client::ask;
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
        "A subscription goes on after its first hint.";
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

async fn hinted(ctx: &Ctx, hints: &mut BoxStream<'static, ()>, of: &str) -> Outcome {
    let soon = soon(ctx);
    match tokio::time::timeout(soon, hints.next()).await {
        Ok(Some(())) => Ok(()),
        Ok(None) => Err(Failure::says(
            format!("a hint of {of}"),
            "the stream of hints ended",
        )),
        Err(_) => Err(Failure::says(
            format!("a hint of {of} within {soon:?}"),
            "none came",
        )),
    }
}

async fn a_release_is_hinted_at(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("release")?);
    for _ in 0..3 {
        let held = one.grant(&key, owner(), ctx.long()).await?;
        let mut hints = two.watch(&key).await?;
        one.released(&held).await?;
        hinted(ctx, &mut hints, "the release").await?;
    }
    Ok(())
}

async fn an_abandon_is_hinted_at(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("abandon")?);
    let held = one.grant(&key, owner(), ctx.long()).await?;
    let mut hints = two.watch(&key).await?;
    one.abandon(&key, held.owner).await?;
    hinted(ctx, &mut hints, "the abandon").await
}

async fn an_immediate_fence_is_hinted_at(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("fence")?);
    let held = one.grant(&key, owner(), ctx.long()).await?;
    let mut hints = two.watch(&key).await?;
    let mark = token(held.token.get() + 1)?;
    one.fence(&key, mark, FenceWhen::Immediately).await?;
    hinted(ctx, &mut hints, "the fence").await
}

async fn a_key_never_seen_may_be_watched(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("unseen")?);
    let mut hints = two.watch(&key).await?;
    let held = one.grant(&key, owner(), ctx.long()).await?;
    one.released(&held).await?;
    hinted(ctx, &mut hints, "the release").await
}

async fn every_watcher_is_woken(ctx: &Ctx) -> Outcome {
    let clients = ctx.clients(3).await?;
    let key = key("many")?;
    let held = clients[0].grant(&key, owner(), ctx.long()).await?;
    let mut all = Vec::new();
    for i in 0..30 {
        all.push(clients[i % 3].watch(&key).await?);
    }
    // Those who have gone take no hint with them.
    all.drain(..5);
    clients[0].released(&held).await?;
    for hints in &mut all {
        hinted(ctx, hints, "the release, for every watcher").await?;
    }
    Ok(())
}

async fn one_watcher_is_woken_again_and_again(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("again")?);
    let mut hints = two.watch(&key).await?;
    for round in 0..5 {
        let held = one.grant(&key, owner(), ctx.long()).await?;
        one.released(&held).await?;
        // Earlier hints may come late: each is good for one try.
        hinted(ctx, &mut hints, &format!("release {round}")).await?;
    }
    Ok(())
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
        let mut hints = two.watch(&key).await?;
        loop {
            if matches!(two.acquire(&request).await?, AcquireOutcome::Granted(_)) {
                break;
            }
            if ctx.guarantees().wake_ups == WakeUps::None {
                tokio::time::sleep(Duration::from_millis(5)).await;
            } else {
                hinted(
                    ctx,
                    &mut hints,
                    "the release after a try that was too early",
                )
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
