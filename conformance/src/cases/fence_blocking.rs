//! How long the key of a revoked grant stays blocked.

use std::time::Duration;

use lease_core::{AcquireOutcome, FenceWhen};
use tokio::time::Instant;

use super::token::token;
use crate::case::group;
use crate::client::ask;
use crate::context::{Ctx, key, owner, patience};
use crate::failure::{Failure, Outcome, check, check_eq};

group! { "fence_blocking";
    a_revoked_grant_blocks_until_its_expiry:
        "By default the key of a revoked grant stays blocked until the grant's old expiry, so that its holder has learnt of it.";
    a_blocked_key_is_told_apart:
        "While a revoked grant blocks its key, inspect shows no holder and for how long it is blocked, and acquire answers Held.";
    an_immediate_fence_frees_at_once:
        "A fence with Immediately frees the key of the grant that it revokes at once.";
    an_immediate_fence_frees_what_an_earlier_one_blocked:
        "A later fence with Immediately also frees a key that an earlier one left blocked.";
    a_refused_holder_does_not_prolong_the_block:
        "Renewals and acquires of a revoked owner do not move the end of the block.";
}

async fn a_revoked_grant_blocks_until_its_expiry(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("until")?);
    let ttl = ctx.ttl(Duration::from_millis(400));
    let sent = Instant::now();
    let held = one.grant(&key, owner(), ttl).await?;
    let mark = token(held.token.get() + 1)?;
    one.fence(&key, mark, FenceWhen::AtExpiry).await?;
    let slack = ttl.get() / 100 + Duration::from_millis(2);
    let give_up = sent + ttl.get() + ctx.slack(ttl) + patience();
    loop {
        let outcome = two.acquire(&ask(&key, owner(), ctx.long())).await?;
        let passed = sent.elapsed();
        match outcome {
            AcquireOutcome::Granted(granted) => {
                check(
                    passed + slack >= ttl.get(),
                    format!("the key is blocked until the revoked grant's TTL of {ttl} is over"),
                    format!("another grant {passed:?} after the revoked one was asked for"),
                )?;
                return check(
                    granted.token > mark,
                    format!("a token above the fence at {mark}"),
                    granted.token,
                );
            }
            AcquireOutcome::Held(_) if Instant::now() < give_up => {
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            other => return Err(Failure::new("a grant after the block", other)),
        }
    }
}

async fn a_blocked_key_is_told_apart(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("blocked")?);
    let sent = Instant::now();
    let held = one.grant(&key, owner(), ctx.long()).await?;
    one.fence(&key, token(held.token.get() + 1)?, FenceWhen::AtExpiry)
        .await?;
    let state = two.inspect(&key).await?;
    let (None, Some(blocked)) = (&state.holder, state.blocked_for) else {
        return Err(Failure::new("no holder, and a block", state));
    };
    ctx.lasts(blocked, ctx.long(), sent, ctx.long())?;
    two.held(&ask(&key, owner(), ctx.long())).await.map(drop)
}

async fn an_immediate_fence_frees_at_once(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("at-once")?);
    let held = one.grant(&key, owner(), ctx.long()).await?;
    let mark = token(held.token.get() + 1)?;
    one.fence(&key, mark, FenceWhen::Immediately).await?;
    let state = two.inspect(&key).await?;
    check(
        state.holder.is_none() && state.blocked_for.is_none(),
        "the key is free",
        state,
    )?;
    let next = two.grant(&key, owner(), ctx.long()).await?;
    check(
        next.token > mark,
        format!("a token above {mark}"),
        next.token,
    )
}

async fn an_immediate_fence_frees_what_an_earlier_one_blocked(ctx: &Ctx) -> Outcome {
    let (client, same, lower) = (ctx.client().await?, key("same")?, key("lower")?);
    for (key, again) in [(same, 1), (lower, 0)] {
        let held = client.grant(&key, owner(), ctx.long()).await?;
        let mark = token(held.token.get() + 1)?;
        client.fence(&key, mark, FenceWhen::AtExpiry).await?;
        client.held(&ask(&key, owner(), ctx.long())).await?;
        let again = token(held.token.get() + again)?;
        let after = client.fence(&key, again, FenceWhen::Immediately).await?;
        check_eq("the mark", after, mark)?;
        let next = client.grant(&key, owner(), ctx.long()).await?;
        check(
            next.token > mark,
            format!("a token above {mark}"),
            next.token,
        )?;
    }
    Ok(())
}

async fn a_refused_holder_does_not_prolong_the_block(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("prolong")?);
    let minute = ctx.ttl(Duration::from_secs(60));
    let held = client.grant(&key, owner(), minute).await?;
    client
        .fence(&key, token(held.token.get() + 1)?, FenceWhen::AtExpiry)
        .await?;
    let before = client.inspect(&key).await?.blocked_for;
    client.renew(&held, ctx.long()).await?;
    client.acquire(&ask(&key, held.owner, ctx.long())).await?;
    client.acquire(&ask(&key, owner(), ctx.long())).await?;
    let after = client.inspect(&key).await?.blocked_for;
    let (Some(before), Some(after)) = (before, after) else {
        return Err(Failure::new("a block, before and after", (before, after)));
    };
    ctx.tells("the block", after, Duration::ZERO, before)
}
