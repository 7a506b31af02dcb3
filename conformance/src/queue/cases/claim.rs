//! Claiming: attempts, batches, one winner of many.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use lease_core::StoreErrorKind;
use lease_queue::{Lane, MAX_BATCH, Settle};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::context::{key, owner};
use crate::failure::{Failure, Outcome, check, check_eq};
use crate::queue::case::group;
use crate::queue::client::{back, next};
use crate::queue::context::{Ctx, grouped, item};

group! { "claim";
    nothing_is_ready_in_an_empty_queue:
        "A queue that was never seen has nothing, and nothing will be ready by itself.";
    attempts_count_from_one:
        "The first claim is attempt 1; each that expired or failed adds one.";
    ages_are_told:
        "A claim tells how long ago its item was put.";
    a_batch_is_of_different_items:
        "A claim of many gets as many different items as are ready, and no more than it asked for, each with a claim of its own.";
    a_batch_takes_one_item_of_a_group [Groups]:
        "A claim of many gets the head of each group, and nothing behind it.";
    batches_are_bounded:
        "A claim of no items, or of too many, is InvalidInput.";
    one_of_many_wins:
        "Of many clients that ask at the same time exactly one gets the item.";
    nothing_tells_when_a_claim_expires:
        "When all is claimed, Nothing tells when the first claim expires.";
    an_expired_claim_is_taken_over:
        "The item of a claim whose time is over goes to whoever asks.";
    an_owner_that_asks_again_is_given_more:
        "The same owner asking again is given other items, never one that it has.";
}

async fn nothing_is_ready_in_an_empty_queue(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    check_eq("what is next", client.nothing(ctx.long()).await?, None)
}

async fn attempts_count_from_one(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("a")]).await?;
    let first = client.one(ctx.short()).await?;
    check_eq("the first attempt", first.attempt, 1)?;
    let second = client.until_one(owner(), ctx.long()).await?;
    check_eq("the attempt after one that expired", second.attempt, 2)?;
    client.done(&second.claim, back(true)).await?;
    let third = client.one(ctx.long()).await?;
    check_eq("the attempt after one that failed", third.attempt, 3)?;
    check_eq(
        "the attempts",
        client.state(third.claim.item).await?.attempts,
        3,
    )
}

async fn ages_are_told(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let before = Instant::now();
    client.add(&[item("a")]).await?;
    let added = Instant::now();
    tokio::time::sleep(Duration::from_millis(120)).await;
    let least = added.elapsed();
    let claimed = client.one(ctx.long()).await?;
    let most = before.elapsed();
    let slack = ctx.can().guarantees.ttl.resolution + Duration::from_millis(50);
    check(
        claimed.age + slack >= least && claimed.age <= most + slack,
        format!("an age of {least:?} to {most:?}"),
        claimed.age,
    )
}

async fn a_batch_is_of_different_items(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let items: Vec<_> = (0..10).map(|n| item(&n.to_string())).collect();
    client.add(&items).await?;
    let many = client.claims(ctx.long(), 7).await?;
    check_eq("of ten for seven", many.len(), 7)?;
    let rest = client.claims(ctx.long(), MAX_BATCH).await?;
    check_eq("of three for many", rest.len(), 3)?;
    let all: HashSet<_> = many.iter().chain(&rest).map(|c| c.claim.item).collect();
    check_eq("different items", all.len(), 10)?;
    for claimed in many.iter().chain(&rest) {
        let lane = Lane::Item(claimed.claim.item);
        check_eq("the lane", claimed.claim.lane.clone(), lane)?;
        client.done(&claimed.claim, Settle::Complete).await?;
    }
    Ok(())
}

async fn a_batch_takes_one_item_of_a_group(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let (a, b) = (key("a")?, key("b")?);
    let items = [
        grouped(&a, "a0"),
        grouped(&a, "a1"),
        grouped(&b, "b0"),
        item("alone"),
        grouped(&b, "b1"),
    ];
    client.add(&items).await?;
    let claimed = client.claims(ctx.long(), 10).await?;
    let bodies: HashSet<Bytes> = claimed.into_iter().map(|c| c.body).collect();
    let due = ["a0", "b0", "alone"].map(Bytes::from);
    check_eq("the heads", bodies, HashSet::from(due))?;
    client.nothing(ctx.long()).await.map(drop)
}

async fn batches_are_bounded(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("a")]).await?;
    for max in [0, MAX_BATCH + 1, usize::MAX] {
        let request = next(owner(), ctx.long(), max);
        match client.store().claim(client.queue(), &request).await {
            Err(e) if e.kind() == StoreErrorKind::InvalidInput => {}
            other => return Err(Failure::new(format!("InvalidInput for {max}"), other)),
        }
    }
    check_eq(
        "all of it",
        client.claims(ctx.long(), MAX_BATCH).await?.len(),
        1,
    )
}

async fn one_of_many_wins(ctx: &Ctx) -> Outcome {
    let putter = ctx.client().await?;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(ctx.client().await?);
    }
    let ttl = ctx.long();
    for round in 0..10 {
        putter.add(&[item("prize")]).await?;
        let mut asking = JoinSet::new();
        for client in &clients {
            let client = client.clone();
            asking.spawn(async move { client.try_one(ttl).await });
        }
        let mut won = Vec::new();
        while let Some(answer) = asking.join_next().await {
            let answer = answer.map_err(|e| Failure::says("no panic", e.to_string()))?;
            won.extend(answer?);
        }
        check_eq(&format!("the winners of round {round}"), won.len(), 1)?;
        for claimed in won {
            putter.done(&claimed.claim, Settle::Complete).await?;
        }
    }
    Ok(())
}

async fn nothing_tells_when_a_claim_expires(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("a"), item("b")]).await?;
    client.one(ctx.long()).await?;
    let ttl = ctx.ttl(Duration::from_secs(20));
    client.one(ttl).await?;
    let next = client.nothing(ctx.long()).await?;
    // A store without a clock of its own may take longer to be sure.
    let most = 2 * ctx.surely_over(ttl);
    check(
        next.is_some_and(|next| next <= most),
        format!("a time of up to {most:?}"),
        next,
    )
}

async fn an_expired_claim_is_taken_over(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    one.add(&[item("a")]).await?;
    let sent = Instant::now();
    let first = one.one(ctx.short()).await?;
    let second = two.until_one(owner(), ctx.long()).await?;
    let waited = sent.elapsed() * 102 / 100 + Duration::from_millis(2);
    check(
        waited >= ctx.short().get(),
        "not before its time is over",
        waited,
    )?;
    check_eq("the item", second.claim.item, first.claim.item)?;
    two.done(&second.claim, Settle::Complete).await
}

async fn an_owner_that_asks_again_is_given_more(ctx: &Ctx) -> Outcome {
    let (client, me) = (ctx.client().await?, owner());
    client.add(&[item("a"), item("b")]).await?;
    let one = client.until_one(me, ctx.long()).await?;
    let two = client.until_one(me, ctx.long()).await?;
    check(one.claim.item != two.claim.item, "another item", &two)?;
    client.nothing(ctx.long()).await?;
    client.done(&one.claim, Settle::Complete).await?;
    client.done(&two.claim, Settle::Complete).await
}
