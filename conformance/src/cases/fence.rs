//! Raising a key's mark.

use lease_core::{FenceWhen, LostCause, RefusedReason, StoreErrorKind, Token};

use super::token::token;
use crate::case::group;
use crate::client::{Held, ask};
use crate::context::{Ctx, key, owner};
use crate::failure::{Failure, Outcome, check, check_eq};

group! { "fence";
    a_fence_raises_the_mark:
        "A fence raises the mark to at least the token given, answers with the mark, and every later grant is above it.";
    a_fence_never_lowers:
        "A fence below the mark changes nothing and answers with the mark.";
    a_key_never_used_may_be_fenced:
        "A fence of a key that was never granted holds for its first grant.";
    a_fence_is_bounded:
        "A fence above 2^52 is InvalidInput and changes nothing; 2^52 itself is taken.";
    a_revoked_grant_is_lost:
        "A live grant below the fence is revoked: its renewals are Lost, its release is NotHeld, nobody holds the key.";
    a_revoked_owner_is_refused:
        "The owner of a revoked grant is refused from then on, also once the key is free again or taken.";
    a_fence_at_the_holders_token_leaves_it_alone:
        "A fence at or below the holder's token does not touch the holder's grant.";
    a_repeated_fence_changes_nothing:
        "Repeating a fence answers with the same mark; a higher one raises it further.";
}

async fn a_fence_raises_the_mark(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("raises")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    client.released(&held).await?;
    let at_least = token(held.token.get() + 1_000_000_000)?;
    let mark = client.fence(&key, at_least, FenceWhen::AtExpiry).await?;
    check_eq("the mark that the fence answers", mark, at_least)?;
    check_eq(
        "the mark that inspect sees",
        client.mark(&key).await?,
        at_least,
    )?;
    let next = client.grant(&key, owner(), ctx.long()).await?;
    check(
        next.token > at_least,
        format!("a grant above the fence at {at_least}"),
        next.token,
    )
}

async fn a_fence_never_lowers(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("lowers")?);
    client
        .fence(&key, token(1000)?, FenceWhen::AtExpiry)
        .await?;
    for when in [FenceWhen::AtExpiry, FenceWhen::Immediately] {
        let mark = client.fence(&key, token(10)?, when).await?;
        check_eq("the mark that the fence answers", mark, token(1000)?)?;
        check_eq("the mark", client.mark(&key).await?, token(1000)?)?;
    }
    Ok(())
}

async fn a_key_never_used_may_be_fenced(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("unused")?);
    // Above every clock of today, so that only the mark can lift the token.
    let at_least = token(Token::MAX_FENCE.get() - 5)?;
    let mark = client.fence(&key, at_least, FenceWhen::AtExpiry).await?;
    check_eq("the mark", mark, at_least)?;
    let state = client.inspect(&key).await?;
    check(
        state.holder.is_none() && state.blocked_for.is_none() && state.high_water == Some(mark),
        "a fenced key that nobody ever held is free and has the mark",
        state,
    )?;
    let held = client.grant(&key, owner(), ctx.long()).await?;
    check(
        held.token > mark,
        format!("a grant above {mark}"),
        held.token,
    )
}

async fn a_fence_is_bounded(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("bound")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    for number in [Token::MAX_FENCE.get() + 1, Token::MAX.get()] {
        let answer = client
            .backend()
            .fence(&key, token(number)?, FenceWhen::Immediately)
            .await;
        match answer {
            Err(e) if e.kind() == StoreErrorKind::InvalidInput => {}
            other => {
                return Err(Failure::new(
                    format!("a fence at {number} is InvalidInput"),
                    other,
                ));
            }
        }
        check_eq("the mark", client.mark(&key).await?, held.token)?;
        client.is_live(&held).await?;
    }
    let mark = client.fence(&key, Token::MAX_FENCE, FenceWhen::Immediately);
    check_eq("the mark", mark.await?, Token::MAX_FENCE)?;
    let next = client.grant(&key, owner(), ctx.long()).await?;
    check(
        next.token > Token::MAX_FENCE,
        "a grant above 2^52",
        next.token,
    )
}

async fn a_revoked_grant_is_lost(ctx: &Ctx) -> Outcome {
    for when in [FenceWhen::AtExpiry, FenceWhen::Immediately] {
        let (client, key) = (ctx.client().await?, key(&format!("revoked/{when:?}"))?);
        let held = client.grant(&key, owner(), ctx.long()).await?;
        let mark = token(held.token.get() + 1)?;
        client.fence(&key, mark, when).await?;
        let honest = [LostCause::Revoked, LostCause::Unknown];
        client.lost(&held, ctx.long(), &honest).await?;
        client.not_held(&held).await?;
        let state = client.inspect(&key).await?;
        check(
            state.holder.is_none() && state.high_water == Some(mark),
            format!("nobody holds the key, whose mark is {mark}"),
            state,
        )?;
    }
    Ok(())
}

async fn a_revoked_owner_is_refused(ctx: &Ctx) -> Outcome {
    for when in [FenceWhen::AtExpiry, FenceWhen::Immediately] {
        let (client, key) = (ctx.client().await?, key(&format!("refused/{when:?}"))?);
        let held = client.grant(&key, owner(), ctx.long()).await?;
        client
            .fence(&key, token(held.token.get() + 1)?, when)
            .await?;
        revoked(ctx, &client, &held).await?;
        client
            .fence(&key, token(held.token.get() + 1)?, FenceWhen::Immediately)
            .await?;
        revoked(ctx, &client, &held).await?;
        client.grant(&key, owner(), ctx.long()).await?;
        revoked(ctx, &client, &held).await?;
    }
    Ok(())
}

async fn revoked(ctx: &Ctx, client: &crate::client::Client, held: &Held) -> Outcome {
    let reason = client
        .refused(&ask(&held.key, held.owner, ctx.long()))
        .await?;
    check_eq("the reason", reason, RefusedReason::Revoked)
}

async fn a_fence_at_the_holders_token_leaves_it_alone(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("alone")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    for when in [FenceWhen::AtExpiry, FenceWhen::Immediately] {
        for number in [held.token.get(), 1] {
            let mark = client.fence(&key, token(number)?, when).await?;
            check_eq("the mark", mark, held.token)?;
            client.is_live(&held).await?;
            client.renewed(&held, ctx.long()).await?;
        }
    }
    client.released(&held).await
}

async fn a_repeated_fence_changes_nothing(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("repeat")?);
    for (at_least, due) in [(10, 10), (10, 10), (11, 11), (10, 11), (40, 40)] {
        let mark = one
            .fence(&key, token(at_least)?, FenceWhen::AtExpiry)
            .await?;
        check_eq("the mark", mark, token(due)?)?;
        check_eq(
            "the mark that another client sees",
            two.mark(&key).await?,
            mark,
        )?;
    }
    Ok(())
}
