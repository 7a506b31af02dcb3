//! The same request again: after a lost reply, or as a copy.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::try_join_all;
use lease_core::AcquireOutcome;
use tokio::time::Instant;

use crate::case::group;
use crate::client::ask;
use crate::context::{Ctx, key, owner};
use crate::failure::{Failure, Outcome, check, check_eq};

group! { "retry";
    a_retry_from_another_client_is_the_same_grant:
        "A retry is safe on whichever connection it goes: same owner, same grant, same token.";
    a_retry_makes_the_grant_last_longer:
        "An acquire by the live grant's owner moves the expiry to the TTL from now on, if that is later.";
    copies_at_the_same_time_are_one_grant:
        "Copies of one acquire that arrive at the same time are one grant with one token.";
    copies_of_two_owners_grant_one:
        "Of two owners whose acquires arrive in several copies at the same time, one is granted, with one token.";
    a_retry_after_held_may_be_granted:
        "An owner that was told Held may ask again and is granted once the key is free.";
}

async fn a_retry_from_another_client_is_the_same_grant(ctx: &Ctx) -> Outcome {
    let (one, two, key, me) = (
        ctx.client().await?,
        ctx.client().await?,
        key("other")?,
        owner(),
    );
    let first = one.grant(&key, me, ctx.long()).await?;
    let retry = two.grant(&key, me, ctx.long()).await?;
    check_eq("the token of the same grant", retry.token, first.token)?;
    one.released(&first).await?;
    let state = two.inspect(&key).await?;
    check(
        state.holder.is_none(),
        "the retry is no second grant",
        state,
    )
}

async fn a_retry_makes_the_grant_last_longer(ctx: &Ctx) -> Outcome {
    let (client, key, me) = (ctx.client().await?, key("longer")?, owner());
    let held = client
        .grant(&key, me, ctx.ttl(Duration::from_secs(60)))
        .await?;
    let sent = Instant::now();
    client.grant(&key, me, ctx.long()).await?;
    let remaining = client.is_live(&held).await?.remaining;
    ctx.lasts(remaining, ctx.long(), sent, ctx.long())
}

async fn copies_at_the_same_time_are_one_grant(ctx: &Ctx) -> Outcome {
    let clients = ctx.clients(4).await?;
    for round in 0..5 {
        let (key, me) = (key(&format!("copies/{round}"))?, owner());
        let tasks: Vec<_> = (0..32)
            .map(|i| {
                let (client, request) = (clients[i % 4].clone(), ask(&key, me, ctx.long()));
                tokio::spawn(async move { client.granted(&request).await })
            })
            .collect();
        let mut tokens = BTreeSet::new();
        for task in tasks {
            let granted = task
                .await
                .map_err(|e| Failure::new("nothing panics", e))??;
            tokens.insert(granted.token);
        }
        check(tokens.len() == 1, "one token for all copies", &tokens)?;
        check_eq(
            "the mark",
            Some(clients[0].mark(&key).await?),
            tokens.first().copied(),
        )?;
    }
    Ok(())
}

async fn copies_of_two_owners_grant_one(ctx: &Ctx) -> Outcome {
    let clients = ctx.clients(4).await?;
    for round in 0..5 {
        let key = key(&format!("rivals/{round}"))?;
        let owners = [owner(), owner()];
        let calls = (0..16).map(|i| {
            let (client, me) = (clients[i % 4].clone(), owners[(i / 4) % 2]);
            let request = ask(&key, me, ctx.long());
            async move { client.acquire(&request).await.map(|outcome| (me, outcome)) }
        });
        let mut granted = Vec::new();
        for (me, outcome) in try_join_all(calls).await? {
            if let AcquireOutcome::Granted(grant) = outcome {
                granted.push((me, grant.token));
            }
        }
        check(!granted.is_empty(), "one owner is granted", "none is")?;
        granted.dedup();
        check(
            granted.len() == 1,
            "one owner and one token are granted",
            granted,
        )?;
    }
    Ok(())
}

async fn a_retry_after_held_may_be_granted(ctx: &Ctx) -> Outcome {
    let (one, two, key, me) = (
        ctx.client().await?,
        ctx.client().await?,
        key("later")?,
        owner(),
    );
    let first = one.grant(&key, owner(), ctx.long()).await?;
    two.held(&ask(&key, me, ctx.long())).await?;
    one.released(&first).await?;
    let mine = two.grant(&key, me, ctx.long()).await?;
    two.is_live(&mine).await.map(drop)
}
