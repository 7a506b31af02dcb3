//! Fencing tokens under `Exactly(T)`.

use lease_core::{FenceWhen, Key, LostCause, Owner, RefusedReason, Token};

use super::token::token;
use crate::case::group;
use crate::client::{Client, Held, ask_exactly};
use crate::context::{Ctx, key, owner};
use crate::failure::{Outcome, check, check_eq};

group! { "token_exactly";
    a_free_key_is_granted_above_the_mark:
        "With nobody's grant live, T is granted if it is above the mark.";
    a_free_key_is_refused_at_or_below_the_mark:
        "With nobody's grant live, T at or below the mark is refused with BelowMark and the mark.";
    a_fence_is_a_mark_too:
        "A mark that a fence set is one that Exactly must be above.";
    anothers_grant_is_in_the_way:
        "While another owner's grant is live the answer is Held, whatever T.";
    the_owner_may_raise_its_token:
        "With the same owner's live grant, its token becomes a higher T; from then on only T is the grant's token.";
    the_owner_may_ask_for_its_token_again:
        "With the same owner's live grant, its own token is granted again.";
    the_owner_is_refused_below_its_token:
        "With the same owner's live grant, T below its token is refused, and the grant stays as it is.";
}

async fn refused(
    ctx: &Ctx,
    client: &Client,
    key: &Key,
    me: Owner,
    at: Token,
    mark: Token,
) -> Outcome {
    let reason = client
        .refused(&ask_exactly(key, me, ctx.long(), at))
        .await?;
    let due = RefusedReason::BelowMark { high_water: mark };
    check_eq(&format!("the reason for {at}"), reason, due)?;
    check_eq("the mark", client.mark(key).await?, mark)
}

async fn a_free_key_is_granted_above_the_mark(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("above")?);
    for number in [7, 8, 100] {
        let (me, token) = (owner(), token(number)?);
        let granted = client
            .granted(&ask_exactly(&key, me, ctx.long(), token))
            .await?;
        check_eq("the token", granted.token, token)?;
        check_eq("the mark", client.mark(&key).await?, token)?;
        let held = Held {
            key: key.clone(),
            owner: me,
            token,
        };
        client.released(&held).await?;
    }
    Ok(())
}

async fn a_free_key_is_refused_at_or_below_the_mark(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("below")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    client.released(&held).await?;
    for number in [held.token.get(), held.token.get() - 1, 1] {
        // One below the lowest token is none.
        let Ok(at) = Token::new(number) else { continue };
        refused(ctx, &client, &key, owner(), at, held.token).await?;
    }
    let state = client.inspect(&key).await?;
    check(state.holder.is_none(), "nobody holds the key", state)
}

async fn a_fence_is_a_mark_too(ctx: &Ctx) -> Outcome {
    let (client, key, mark) = (ctx.client().await?, key("fenced")?, token(50)?);
    client.fence(&key, mark, FenceWhen::AtExpiry).await?;
    refused(ctx, &client, &key, owner(), token(50)?, mark).await?;
    refused(ctx, &client, &key, owner(), token(49)?, mark).await?;
    let above = ask_exactly(&key, owner(), ctx.long(), token(51)?);
    check_eq("the token", client.granted(&above).await?.token, token(51)?)
}

async fn anothers_grant_is_in_the_way(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("held")?);
    let held = one.grant(&key, owner(), ctx.long()).await?;
    for number in [held.token.get() + 1, Token::MAX.get()] {
        let request = ask_exactly(&key, owner(), ctx.long(), token(number)?);
        two.held(&request).await?;
    }
    one.is_live(&held).await?;
    check_eq("the mark", one.mark(&key).await?, held.token)
}

async fn the_owner_may_raise_its_token(ctx: &Ctx) -> Outcome {
    let (client, key, me) = (ctx.client().await?, key("raise")?, owner());
    let old = client.grant(&key, me, ctx.long()).await?;
    let raised = token(old.token.get() + 10)?;
    let granted = client
        .granted(&ask_exactly(&key, me, ctx.long(), raised))
        .await?;
    check_eq("the token", granted.token, raised)?;
    check_eq("the mark", client.mark(&key).await?, raised)?;
    let honest = [LostCause::TakenOver, LostCause::Unknown];
    client.lost(&old, ctx.long(), &honest).await?;
    client.not_held(&old).await?;
    let new = Held {
        token: raised,
        ..old
    };
    client.renewed(&new, ctx.long()).await?;
    let again = client.grant(&key, me, ctx.long()).await?;
    check_eq("the token of the same grant", again.token, raised)?;
    client.released(&new).await
}

async fn the_owner_may_ask_for_its_token_again(ctx: &Ctx) -> Outcome {
    let (client, key, me) = (ctx.client().await?, key("equal")?, owner());
    let held = client.grant(&key, me, ctx.long()).await?;
    let request = ask_exactly(&key, me, ctx.long(), held.token);
    for _ in 0..2 {
        check_eq(
            "the token",
            client.granted(&request).await?.token,
            held.token,
        )?;
    }
    client.released(&held).await
}

async fn the_owner_is_refused_below_its_token(ctx: &Ctx) -> Outcome {
    let (client, key, me) = (ctx.client().await?, key("lower")?, owner());
    let start = ask_exactly(&key, me, ctx.long(), token(20)?);
    client.granted(&start).await?;
    let held = Held {
        key,
        owner: me,
        token: token(20)?,
    };
    for number in [19, 1] {
        refused(ctx, &client, &held.key, me, token(number)?, held.token).await?;
        client.is_live(&held).await?;
    }
    client.released(&held).await
}
