//! Hints to those who wait.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use lease_core::FenceWhen;
use lease_queue::Settle;

use crate::context::{key, owner, patience};
use crate::failure::{Failure, Outcome};
use crate::queue::case::group;
use crate::queue::client::back;
use crate::queue::context::{Ctx, grouped, item, later};

group! { "waiting";
    a_put_is_hinted_at [WakeUps]:
        "Whoever waits is hinted at a put, wherever it came from.";
    a_delayed_put_is_hinted_at [WakeUps]:
        "A put with a delay is hinted at too: it may be ready before what a waiter sleeps for.";
    a_retry_is_hinted_at [WakeUps]:
        "An item that is given back is hinted at.";
    an_abandon_is_hinted_at [WakeUps]:
        "Items that an abandon frees are hinted at.";
    a_groups_next_item_is_hinted_at [WakeUps]:
        "When the head of a group is completed, the next item is hinted at.";
    a_dead_item_put_back_is_hinted_at [WakeUps]:
        "A dead item that is put back is hinted at.";
    an_immediate_fence_is_hinted_at [WakeUps]:
        "An item that a fence frees at once is hinted at.";
    a_released_key_is_hinted_at [WakeUps]:
        "Whoever waits for a key is hinted at its release.";
}

/// Waits for a hint; earlier ones may be about anything.
async fn hinted(hints: &mut BoxStream<'static, ()>, at: &str) -> Outcome {
    match tokio::time::timeout(patience(), hints.next()).await {
        Ok(Some(())) => Ok(()),
        Ok(None) => Err(Failure::says(format!("a hint at {at}"), "the stream ended")),
        Err(_) => Err(Failure::says(
            format!("a hint at {at}, within {:?}", patience()),
            "none",
        )),
    }
}

/// Takes the hints that are under way, so that the next is about what comes next.
async fn quiet(hints: &mut BoxStream<'static, ()>) {
    while let Ok(Some(())) = tokio::time::timeout(Duration::from_millis(100), hints.next()).await {}
}

async fn a_put_is_hinted_at(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    let mut hints = one.watch(None).await?;
    for _ in 0..2 {
        two.add(&[item("a")]).await?;
        hinted(&mut hints, "a put").await?;
        quiet(&mut hints).await;
    }
    Ok(())
}

async fn a_delayed_put_is_hinted_at(ctx: &Ctx) -> Outcome {
    if !ctx.can().delay {
        return Ok(());
    }
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    let mut hints = one.watch(None).await?;
    two.add(&[later(Duration::from_secs(100), "a")]).await?;
    hinted(&mut hints, "a delayed put").await
}

async fn a_retry_is_hinted_at(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    two.add(&[item("a")]).await?;
    let claimed = two.one(ctx.long()).await?;
    let mut hints = one.watch(None).await?;
    quiet(&mut hints).await;
    two.done(&claimed.claim, back(true)).await?;
    hinted(&mut hints, "a retry").await
}

async fn an_abandon_is_hinted_at(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    two.add(&[item("a")]).await?;
    let claimed = two.one(ctx.long()).await?;
    let mut hints = one.watch(None).await?;
    quiet(&mut hints).await;
    two.abandon(claimed.claim.owner).await?;
    hinted(&mut hints, "an abandon").await
}

async fn a_groups_next_item_is_hinted_at(ctx: &Ctx) -> Outcome {
    if !ctx.can().groups {
        return Ok(());
    }
    let (one, two, group) = (ctx.client().await?, ctx.client().await?, key("g")?);
    two.add(&[grouped(&group, "0"), grouped(&group, "1")])
        .await?;
    let claimed = two.one(ctx.long()).await?;
    let mut hints = one.watch(None).await?;
    quiet(&mut hints).await;
    two.done(&claimed.claim, Settle::Complete).await?;
    hinted(&mut hints, "the next item of a group").await
}

async fn a_dead_item_put_back_is_hinted_at(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    two.add(&[item("a")]).await?;
    let claimed = two.one(ctx.long()).await?;
    let bury = crate::queue::client::bury("dead");
    two.done(&claimed.claim, bury).await?;
    let mut hints = one.watch(None).await?;
    quiet(&mut hints).await;
    two.requeue(claimed.claim.item).await?;
    hinted(&mut hints, "an item put back").await
}

async fn an_immediate_fence_is_hinted_at(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    two.add(&[item("a")]).await?;
    let claim = two.one(ctx.long()).await?.claim;
    let mut hints = one.watch(None).await?;
    quiet(&mut hints).await;
    let mark = claim.token.next().unwrap_or(claim.token);
    two.fence(&claim.lane, mark, FenceWhen::Immediately).await?;
    hinted(&mut hints, "a fence that frees at once").await
}

async fn a_released_key_is_hinted_at(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("k")?);
    let claimed = two.key(&key, owner(), ctx.long()).await?;
    let mut hints = one.watch(Some(&key)).await?;
    quiet(&mut hints).await;
    two.done(&claimed.claim, back(false)).await?;
    hinted(&mut hints, "a release").await
}
