//! Giving an item back.

use std::time::Duration;

use bytes::Bytes;
use lease_queue::{Phase, Settle};
use tokio::time::Instant;

use crate::context::{key, owner};
use crate::failure::{Outcome, check, check_eq};
use crate::queue::case::group;
use crate::queue::client::back;
use crate::queue::context::{Ctx, grouped, item};

group! { "retry";
    an_item_that_is_given_back_is_ready_at_once:
        "Without a delay an item that was given back can be claimed at once, with a higher token.";
    a_retry_counts_or_not_as_asked:
        "An attempt counts when its retry says so, and not otherwise.";
    a_retrys_delay_is_waited_for [Delay]:
        "An item that was given back with a delay cannot be claimed before it has passed.";
    the_last_error_is_kept:
        "What went wrong is told of the item.";
    an_item_keeps_its_place_in_its_group [Groups]:
        "An item that is given back is the head of its group again.";
    a_group_waits_for_its_head [Delay]:
        "While the head of a group is delayed, nothing of the group can be claimed.";
}

async fn an_item_that_is_given_back_is_ready_at_once(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    one.add(&[item("a")]).await?;
    let first = one.one(ctx.long()).await?;
    two.nothing(ctx.long()).await?;
    one.done(&first.claim, back(true)).await?;
    let second = two.one(ctx.long()).await?;
    check(
        second.claim.token > first.claim.token,
        format!("a token above {}", first.claim.token),
        second.claim.token,
    )
}

async fn a_retry_counts_or_not_as_asked(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("a")]).await?;
    for (due, counts) in [
        (1, false),
        (1, false),
        (1, true),
        (2, true),
        (3, false),
        (3, true),
    ] {
        let claimed = client.one(ctx.long()).await?;
        check_eq("the attempt", claimed.attempt, due)?;
        client.done(&claimed.claim, back(counts)).await?;
    }
    Ok(())
}

fn after(delay: Duration, error: &str) -> Settle {
    Settle::Retry {
        delay,
        counts: true,
        error: Some(error.to_owned()),
    }
}

async fn a_retrys_delay_is_waited_for(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let delay = Duration::from_millis(400);
    client.add(&[item("a")]).await?;
    let first = client.one(ctx.long()).await?;
    let sent = Instant::now();
    client.done(&first.claim, after(delay, "busy")).await?;
    let state = client.state(first.claim.item).await?;
    let delayed = matches!(state.phase, Phase::Delayed(left) if left <= delay);
    check(delayed || sent.elapsed() > delay, "Delayed", &state)?;
    let second = client.until_one(owner(), ctx.long()).await?;
    let waited = sent.elapsed() * 102 / 100 + Duration::from_millis(2);
    check(waited >= delay, format!("not before {delay:?}"), waited)?;
    check_eq("the attempt", second.attempt, 2)
}

async fn the_last_error_is_kept(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("a")]).await?;
    let first = client.one(ctx.long()).await?;
    let error = "the café's printer\nis \"out of paper\" \u{1f980}";
    client
        .done(&first.claim, after(Duration::ZERO, error))
        .await?;
    let state = client.state(first.claim.item).await?;
    check_eq("what went wrong", state.last_error, Some(error.to_owned()))
}

async fn an_item_keeps_its_place_in_its_group(ctx: &Ctx) -> Outcome {
    let (client, group) = (ctx.client().await?, key("g")?);
    client
        .add(&[grouped(&group, "0"), grouped(&group, "1")])
        .await?;
    for _ in 0..3 {
        let claimed = client.one(ctx.long()).await?;
        check_eq("the head", claimed.body, Bytes::from("0"))?;
        client.nothing(ctx.long()).await?;
        client.done(&claimed.claim, back(true)).await?;
    }
    let head = client.one(ctx.long()).await?;
    client.done(&head.claim, Settle::Complete).await?;
    check_eq(
        "the next",
        client.one(ctx.long()).await?.body,
        Bytes::from("1"),
    )
}

async fn a_group_waits_for_its_head(ctx: &Ctx) -> Outcome {
    let (client, group) = (ctx.client().await?, key("g")?);
    client
        .add(&[grouped(&group, "0"), grouped(&group, "1")])
        .await?;
    let head = client.one(ctx.long()).await?;
    let delay = Duration::from_millis(300);
    client.done(&head.claim, after(delay, "later")).await?;
    let next = client.until_one(owner(), ctx.long()).await?;
    check_eq("the head", next.body, Bytes::from("0"))
}
