//! Fencing tokens under the usual rule.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lease_core::{AcquireRequest, FenceWhen, Key, RefusedReason, Token, TokenRule};

use crate::case::group;
use crate::client::{Client, ask, ask_exactly};
use crate::context::{Ctx, key, owner};
use crate::failure::{Failure, Outcome, check, check_eq};

group! { "token";
    tokens_rise_over_releases:
        "Tokens of a key strictly rise from grant to grant, over every release.";
    tokens_rise_over_every_end:
        "Tokens of a key strictly rise however the grants ended: by release, expiry, abandon or revocation.";
    the_mark_is_the_highest_token:
        "The high-water mark is the highest token granted, whether the key is held or free.";
    a_token_is_above_the_callers_floor:
        "Under Next, the token is above `after`, and above the mark when that is higher.";
    tokens_are_exact_up_to_the_highest:
        "Tokens near 2^53 and of today's clock are kept, compared and given back exactly.";
    used_up_tokens_are_refused:
        "A key whose mark is 2^53 - 1 is refused with TokensExhausted, never granted a token that is not above the mark.";
    a_floor_at_the_highest_is_refused:
        "Under Next with the highest token as floor there is no token left: TokensExhausted.";
    tokens_are_not_below_the_stores_clock [TokensSurviveDataLoss]:
        "Where tokens survive the loss of data, they are at least the store's clock in microseconds since the Unix epoch.";
}

pub(super) fn token(number: u64) -> Outcome<Token> {
    Token::new(number).map_err(|e| Failure::new("a token of the suite's own", e))
}

fn above(ctx: &Ctx, key: &Key, after: Token) -> AcquireRequest {
    AcquireRequest {
        rule: TokenRule::Next { after: Some(after) },
        ..ask(key, owner(), ctx.long())
    }
}

async fn tokens_rise_over_releases(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("rise")?);
    let mut last = None;
    for round in 0..100 {
        let client = if round % 2 == 0 { &one } else { &two };
        let held = client.grant(&key, owner(), ctx.long()).await?;
        check(
            Some(held.token) > last,
            format!("a token above {last:?}"),
            held.token,
        )?;
        last = Some(held.token);
        client.released(&held).await?;
    }
    Ok(())
}

async fn tokens_rise_over_every_end(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("ends")?);
    let mut last = None;
    for round in 0..12 {
        let expires = round % 4 == 1;
        let ttl = if expires { ctx.short() } else { ctx.long() };
        let held = client.grant(&key, owner(), ttl).await?;
        check(
            Some(held.token) > last,
            format!("a token above {last:?}, in round {round}"),
            held.token,
        )?;
        last = Some(held.token);
        match round % 4 {
            0 => client.released(&held).await?,
            1 => ctx.until_free(&client, &key, ttl).await?,
            2 => client.abandon(&key, held.owner).await?,
            _ => {
                let at_least = token(held.token.get() + 5)?;
                let mark = client.fence(&key, at_least, FenceWhen::Immediately).await?;
                check(mark >= at_least, format!("a mark of {at_least}"), mark)?;
                last = Some(mark);
            }
        }
    }
    Ok(())
}

async fn the_mark_is_the_highest_token(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("mark")?);
    for _ in 0..3 {
        let held = client.grant(&key, owner(), ctx.long()).await?;
        check_eq("the mark while held", client.mark(&key).await?, held.token)?;
        client.released(&held).await?;
        check_eq("the mark when free", client.mark(&key).await?, held.token)?;
    }
    Ok(())
}

async fn a_token_is_above_the_callers_floor(ctx: &Ctx) -> Outcome {
    let (client, fresh, used) = (ctx.client().await?, key("fresh")?, key("used")?);
    // Above every clock of today.
    let floor = Token::MAX_FENCE;
    let granted = client.granted(&above(ctx, &fresh, floor)).await?;
    check(
        granted.token > floor,
        format!("a token above {floor}"),
        granted.token,
    )?;
    let held = client.grant(&used, owner(), ctx.long()).await?;
    client.released(&held).await?;
    let granted = client.granted(&above(ctx, &used, Token::MIN)).await?;
    check(
        granted.token > held.token,
        format!("a token above the mark {}", held.token),
        granted.token,
    )
}

async fn tokens_are_exact_up_to_the_highest(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let numbers = [
        1,
        1_762_000_000_000_001,
        (1 << 52) + 1,
        Token::MAX.get() - 2,
        Token::MAX.get() - 1,
    ];
    for number in numbers {
        exact(ctx, &client, token(number)?).await?;
    }
    Ok(())
}

async fn exact(ctx: &Ctx, client: &Client, token: Token) -> Outcome {
    let (key, me) = (key(&format!("exact/{token}"))?, owner());
    let granted = client
        .granted(&ask_exactly(&key, me, ctx.long(), token))
        .await?;
    check_eq("the token granted", granted.token, token)?;
    let holder = client.held(&ask(&key, owner(), ctx.long())).await?;
    check_eq("the token that Held carries", holder.token, token)?;
    check_eq("the mark", client.mark(&key).await?, token)?;
    let held = crate::client::Held {
        key,
        owner: me,
        token,
    };
    let next = crate::client::Held {
        token: self::token(token.get() + 1)?,
        ..held.clone()
    };
    client.not_held(&next).await?;
    client.renewed(&held, ctx.long()).await?;
    client.released(&held).await
}

async fn used_up_tokens_are_refused(ctx: &Ctx) -> Outcome {
    let (client, key, me) = (ctx.client().await?, key("used-up")?, owner());
    let highest = ask_exactly(&key, me, ctx.long(), Token::MAX);
    check_eq(
        "the token",
        client.granted(&highest).await?.token,
        Token::MAX,
    )?;
    // Its owner keeps it: that needs no new token.
    let again = client.grant(&key, me, ctx.long()).await?;
    check_eq("the token of the same grant", again.token, Token::MAX)?;
    client.released(&again).await?;
    for _ in 0..2 {
        let reason = client.refused(&ask(&key, owner(), ctx.long())).await?;
        check_eq("the reason", reason, RefusedReason::TokensExhausted)?;
    }
    check_eq("the mark", client.mark(&key).await?, Token::MAX)
}

async fn a_floor_at_the_highest_is_refused(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("floor")?);
    let reason = client.refused(&above(ctx, &key, Token::MAX)).await?;
    check_eq("the reason", reason, RefusedReason::TokensExhausted)?;
    client.grant(&key, owner(), ctx.long()).await.map(drop)
}

async fn tokens_are_not_below_the_stores_clock(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("clock")?);
    // The store's clock is not this machine's: five minutes for that.
    let apart = Duration::from_secs(300);
    let here = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let least = u64::try_from(here.saturating_sub(apart).as_micros()).unwrap_or(u64::MAX);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    check(
        held.token.get() >= least,
        format!("a token of at least {least}, the clock five minutes ago"),
        held.token,
    )
}
