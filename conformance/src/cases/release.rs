//! Releasing.

use lease_core::Token;

use crate::case::group;
use crate::client::{Held, ask};
use crate::context::{Ctx, key, owner};
use crate::failure::{Outcome, check, check_eq};

group! { "release";
    a_release_frees_at_once:
        "A release of the live grant answers Released, and the key is free at once, for every client.";
    a_release_is_idempotent:
        "A repeated release answers NotHeld and changes nothing.";
    a_wrong_owner_frees_nothing:
        "A release with another owner is NotHeld and changes nothing, even with the live grant's token.";
    a_wrong_token_frees_nothing:
        "A release with another token is NotHeld and changes nothing, even by the live grant's owner.";
    a_late_release_leaves_the_next_holder_alone:
        "A late copy of a release has no effect on whoever holds the key by then.";
    the_mark_stays:
        "The high-water mark outlives the release of its grant.";
    an_unknown_key_is_not_held:
        "A release of a key that was never granted is NotHeld and leaves no trace.";
}

async fn a_release_frees_at_once(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("frees")?);
    let held = one.grant(&key, owner(), ctx.long()).await?;
    one.released(&held).await?;
    let state = two.inspect(&key).await?;
    check(
        state.holder.is_none() && state.blocked_for.is_none(),
        "another client sees the key free",
        state,
    )?;
    two.grant(&key, owner(), ctx.long()).await.map(drop)
}

async fn a_release_is_idempotent(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("twice")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    client.released(&held).await?;
    client.not_held(&held).await?;
    client.not_held(&held).await?;
    check_eq("the mark", client.mark(&key).await?, held.token)
}

async fn a_wrong_owner_frees_nothing(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("owner")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    let foreign = Held {
        owner: owner(),
        ..held.clone()
    };
    client.not_held(&foreign).await?;
    client.is_live(&held).await?;
    client.held(&ask(&key, owner(), ctx.long())).await.map(drop)
}

async fn a_wrong_token_frees_nothing(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("token")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    for number in [
        held.token.get() - 1,
        held.token.get() + 1,
        1,
        Token::MAX.get(),
    ] {
        // One below the lowest token is none.
        let Ok(token) = Token::new(number) else {
            continue;
        };
        if token != held.token {
            let other = Held {
                token,
                ..held.clone()
            };
            client.not_held(&other).await?;
            client.is_live(&held).await?;
        }
    }
    client.released(&held).await
}

async fn a_late_release_leaves_the_next_holder_alone(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("late")?);
    let first = one.grant(&key, owner(), ctx.long()).await?;
    one.released(&first).await?;
    let second = two.grant(&key, owner(), ctx.long()).await?;
    one.not_held(&first).await?;
    let mixed = Held {
        owner: first.owner,
        ..second.clone()
    };
    one.not_held(&mixed).await?;
    two.is_live(&second).await.map(drop)
}

async fn the_mark_stays(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("mark")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    client.released(&held).await?;
    check_eq(
        "the mark after the release",
        client.mark(&key).await?,
        held.token,
    )
}

async fn an_unknown_key_is_not_held(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let never = Held {
        key: key("never")?,
        owner: owner(),
        token: Token::MIN,
    };
    client.not_held(&never).await?;
    let state = client.inspect(&never.key).await?;
    check(
        state.holder.is_none() && state.high_water.is_none(),
        "a release leaves no trace of a key that was never granted",
        state,
    )
}
