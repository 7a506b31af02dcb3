//! What a client sees of a key that another owner holds.

use std::time::Duration;

use lease_core::{AcquireRequest, MAX_LABEL_BYTES};
use tokio::time::Instant;

use crate::case::group;
use crate::client::ask;
use crate::context::{Ctx, apart, key, label, owner};
use crate::failure::{Outcome, check_eq};

group! { "contention";
    held_names_the_holder:
        "Held carries the holder's label and token.";
    held_and_inspect_tell_the_remaining_time [StoreClock]:
        "Held and inspect carry the time since the grant and the remaining time by the store's clock.";
    asking_for_a_held_key_changes_nothing:
        "An acquire that is answered with Held has no effect on the holder's grant, mark or label.";
    labels_are_kept_as_they_are:
        "A label is any text of at most 256 bytes without control characters, and is given back unchanged.";
}

async fn held_names_the_holder(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("named")?);
    let request = AcquireRequest {
        label: label("job[7]@host")?,
        ..ask(&key, owner(), ctx.long())
    };
    let token = one.granted(&request).await?.token;
    let seen = two.held(&ask(&key, owner(), ctx.long())).await?;
    check_eq("the holder's label", seen.label, request.label.clone())?;
    check_eq("the holder's token", seen.token, token)?;
    let seen = two.holder(&key).await?;
    check_eq("the label that inspect sees", seen.label, request.label)?;
    check_eq("the token that inspect sees", seen.token, token)
}

async fn held_and_inspect_tell_the_remaining_time(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("left")?);
    let ttl = ctx.long();
    let sent = Instant::now();
    one.grant(&key, owner(), ttl).await?;
    let held = two.held(&ask(&key, owner(), ttl)).await?;
    let inspected = two.holder(&key).await?;
    let passed = sent.elapsed();
    for holder in [held, inspected] {
        ctx.lasts(holder.remaining, ttl, sent, ttl)?;
        ctx.tells("the age", holder.age, Duration::ZERO, apart(passed))?;
    }
    Ok(())
}

async fn asking_for_a_held_key_changes_nothing(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("still")?);
    let request = AcquireRequest {
        label: label("holder")?,
        ..ask(&key, owner(), ctx.ttl(Duration::from_secs(60)))
    };
    let token = one.granted(&request).await?.token;
    let before = one.holder(&key).await?;
    for _ in 0..20 {
        two.held(&AcquireRequest {
            label: label("contender")?,
            ..ask(&key, owner(), ctx.long())
        })
        .await?;
    }
    let after = one.holder(&key).await?;
    check_eq("the holder's token", after.token, token)?;
    check_eq("the mark", one.mark(&key).await?, token)?;
    check_eq("the holder's label", after.label, request.label)?;
    ctx.tells(
        "the remaining time",
        after.remaining,
        Duration::ZERO,
        before.remaining,
    )
}

async fn labels_are_kept_as_they_are(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let longest = "é".repeat(MAX_LABEL_BYTES / 2);
    let labels = [
        "",
        " ",
        "  two spaces  ",
        "o'brien \"quoted\" \\ back`tick",
        "%s {} $1 ? :name",
        "null",
        "0",
        "1e5",
        "🦀 ünïcödé",
        "{\"a\":[1,2]}",
        longest.as_str(),
    ];
    for (i, text) in labels.into_iter().enumerate() {
        let key = key(&format!("label/{i}"))?;
        let request = AcquireRequest {
            label: label(text)?,
            ..ask(&key, owner(), ctx.long())
        };
        client.granted(&request).await?;
        let seen = client.holder(&key).await?.label;
        check_eq("the label that inspect sees", seen, request.label.clone())?;
        let seen = client.held(&ask(&key, owner(), ctx.long())).await?.label;
        check_eq("the label that Held carries", seen, request.label)?;
    }
    Ok(())
}
