//! What is told of a queue.

use std::time::Duration;

use lease_queue::{Depth, Phase, Settle};
use tokio::time::Instant;

use crate::context::{key, owner};
use crate::failure::{Outcome, check, check_eq};
use crate::queue::case::group;
use crate::queue::client::bury;
use crate::queue::context::{Ctx, grouped, item, later};

group! { "depth";
    an_unknown_queue_is_empty:
        "A queue that was never seen has no items and no depth.";
    each_item_counts_where_it_stands [Delay]:
        "Items count as ready, delayed, in flight or dead; those behind the head of a claimed group are ready.";
    a_claim_that_expired_is_not_in_flight:
        "The item of a claim whose time is over is ready.";
    keys_are_no_items:
        "Token items are neither listed nor counted nor claimed with the others.";
    the_oldest_is_told:
        "The age of the oldest item is that of its put, whatever became of others; dead items do not count.";
    items_are_listed_as_they_stand:
        "The list tells each item's group, size, phase and attempts.";
}

async fn an_unknown_queue_is_empty(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    check_eq("the depth", client.depth().await?, Depth::default())?;
    let listed = client.items(false).await?;
    check(listed.is_empty(), "no items", listed)
}

async fn each_item_counts_where_it_stands(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("dead"), item("claimed")]).await?;
    let dead = client.one(ctx.long()).await?;
    client.done(&dead.claim, bury("dead")).await?;
    client.one(ctx.long()).await?;
    client
        .add(&[later(Duration::from_secs(100), "l"), item("r"), item("r")])
        .await?;
    let mut ready = 2;
    if ctx.can().groups {
        let group = key("g")?;
        client
            .add(&[grouped(&group, "0"), grouped(&group, "1")])
            .await?;
        ready += 2;
    }
    let mut depth = client.depth().await?;
    check(depth.oldest.is_some(), "an age of the oldest", depth.oldest)?;
    depth.oldest = None;
    let due = Depth {
        ready,
        delayed: 1,
        in_flight: 1,
        dead: 1,
        oldest: None,
    };
    check_eq("the depth", depth, due)
}

async fn a_claim_that_expired_is_not_in_flight(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("a")]).await?;
    client.one(ctx.short()).await?;
    // Until somebody has it again, whoever judges expiry has seen it.
    tokio::time::sleep(ctx.surely_over(ctx.short())).await;
    if ctx.exactness().is_some() {
        let depth = client.depth().await?;
        check_eq("in flight", depth.in_flight, 0)?;
        check_eq("ready", depth.ready, 1)?;
    }
    client.until_one(owner(), ctx.long()).await?;
    check_eq("in flight", client.depth().await?.in_flight, 1)
}

async fn keys_are_no_items(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("k")?);
    let claimed = client.key(&key, owner(), ctx.long()).await?;
    check_eq("the depth", client.depth().await?, Depth::default())?;
    client.abandon(claimed.claim.owner).await?;
    check_eq("the depth", client.depth().await?, Depth::default())?;
    client.nothing(ctx.long()).await?;
    for dead in [false, true] {
        let listed = client.items(dead).await?;
        check(listed.is_empty(), "no items", listed)?;
    }
    Ok(())
}

async fn the_oldest_is_told(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("dead")]).await?;
    let dead = client.one(ctx.long()).await?;
    client.done(&dead.claim, bury("dead")).await?;
    check_eq("the oldest", client.depth().await?.oldest, None)?;
    let before = Instant::now();
    client.add(&[item("old")]).await?;
    let added = Instant::now();
    let old = client.one(ctx.long()).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.add(&[item("new")]).await?;
    let least = added.elapsed();
    let oldest = client.depth().await?.oldest.unwrap_or_default();
    let (most, slack) = (before.elapsed(), Duration::from_millis(50));
    let slack = slack + ctx.can().guarantees.ttl.resolution;
    check(
        oldest + slack >= least && oldest <= most + slack,
        format!("an age of {least:?} to {most:?}"),
        oldest,
    )?;
    client.done(&old.claim, Settle::Complete).await?;
    let newer = client.depth().await?.oldest.unwrap_or_default();
    let most = before.elapsed() - Duration::from_millis(100) + slack;
    check(newer <= most, format!("at most {most:?}"), newer)
}

async fn items_are_listed_as_they_stand(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let (first, second) = (item("claimed"), item("ready!"));
    let (one, two) = (first.id, second.id);
    client.add(&[first, second]).await?;
    let claimed = client.one(ctx.long()).await?;
    let listed = client.items(false).await?;
    check_eq("how many", listed.len(), 2)?;
    let state = client.state(one).await?;
    let token = claimed.claim.token;
    let held = matches!(&state.phase, Phase::Claimed(holder) if holder.token == token);
    check(held && state.attempts == 1, "claimed, once", &state)?;
    check_eq("its size", state.bytes, 7)?;
    let state = client.state(two).await?;
    check_eq("the phase", state.phase, Phase::Ready)?;
    check_eq("the attempts", state.attempts, 0)?;
    check_eq("its group", state.group, None)
}
