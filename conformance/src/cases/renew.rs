//! Renewing one grant.

use std::time::Duration;

use lease_core::{LostCause, RenewOutcome, Token, Ttl};
use tokio::time::Instant;

use crate::case::group;
use crate::client::{Client, Held, ask};
use crate::context::{Ctx, key, label, owner};
use crate::failure::{Failure, Outcome, check, check_eq};

group! { "renew";
    a_live_grant_lasts_longer:
        "Renewing a live grant makes it last the TTL from now on; token and label stay.";
    a_renewal_never_shortens:
        "Renewing with a shorter TTL never moves a live grant's expiry back.";
    a_late_acquire_never_shortens:
        "A late copy of an earlier acquire never moves the expiry of a grant that was renewed meanwhile back.";
    renewals_do_not_add_up:
        "A renewal counts from now, not from the old expiry: after many of them no more than the TTL is left.";
    a_kept_grant_outlives_its_ttl:
        "A grant that is renewed in time is live beyond its first TTL.";
    a_wrong_owner_is_lost:
        "A renewal with another owner is Lost and changes nothing, even with the live grant's token.";
    a_wrong_token_is_lost:
        "A renewal with another token is Lost and changes nothing, even by the live grant's owner.";
    an_unknown_key_is_lost:
        "A renewal of a key that was never granted is Lost and leaves no trace.";
    a_released_grant_is_lost:
        "Renewing a released grant is Lost and does not bring it back.";
    any_client_may_renew:
        "Owner and token prove ownership, whichever client sends them.";
}

fn minute(ctx: &Ctx) -> Ttl {
    ctx.ttl(Duration::from_secs(60))
}

/// Checks that the grant lasts `ttl` from `sent` on, as `what` must see to.
async fn lasts(ctx: &Ctx, client: &Client, held: &Held, sent: Instant, ttl: Ttl) -> Outcome {
    let remaining = client.is_live(held).await?.remaining;
    ctx.lasts(remaining, ttl, sent, ttl)
}

async fn a_live_grant_lasts_longer(ctx: &Ctx) -> Outcome {
    let (client, key, me) = (ctx.client().await?, key("longer")?, owner());
    let mut request = ask(&key, me, minute(ctx));
    request.label = label("keeper")?;
    let token = client.granted(&request).await?.token;
    let held = Held {
        key,
        owner: me,
        token,
    };
    let sent = Instant::now();
    client.renewed(&held, ctx.long()).await?;
    lasts(ctx, &client, &held, sent, ctx.long()).await?;
    let holder = client.is_live(&held).await?;
    check_eq("the label", holder.label, request.label)?;
    check_eq("the mark", client.mark(&held.key).await?, token)
}

async fn a_renewal_never_shortens(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("shorter")?);
    let sent = Instant::now();
    let held = client.grant(&key, owner(), ctx.long()).await?;
    client.renewed(&held, ctx.short()).await?;
    client.renewed(&held, minute(ctx)).await?;
    lasts(ctx, &client, &held, sent, ctx.long()).await
}

async fn a_late_acquire_never_shortens(ctx: &Ctx) -> Outcome {
    let (client, key, me) = (ctx.client().await?, key("copy")?, owner());
    let held = client.grant(&key, me, minute(ctx)).await?;
    let sent = Instant::now();
    client.renewed(&held, ctx.long()).await?;
    let copy = client.grant(&key, me, minute(ctx)).await?;
    check_eq("the token of the same grant", copy.token, held.token)?;
    lasts(ctx, &client, &held, sent, ctx.long()).await
}

async fn renewals_do_not_add_up(ctx: &Ctx) -> Outcome {
    let (client, key, ttl) = (ctx.client().await?, key("sum")?, minute(ctx));
    let held = client.grant(&key, owner(), ttl).await?;
    let mut sent = Instant::now();
    for _ in 0..50 {
        sent = Instant::now();
        client.renewed(&held, ttl).await?;
    }
    lasts(ctx, &client, &held, sent, ttl).await
}

async fn a_kept_grant_outlives_its_ttl(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("kept")?);
    let mut ttl = ctx.ttl(Duration::from_millis(300));
    // A busy machine may stop for longer than a TTL, and then nothing was
    // shown: once more, with a longer one.
    for _ in 0..6 {
        let held = client.grant(&key, owner(), ttl).await?;
        if kept(&client, &held, ttl).await? {
            return Ok(());
        }
        client.abandon(&key, held.owner).await?;
        ttl = ctx.ttl(ttl.get() * 2);
    }
    Err(Failure::says(
        format!("a machine that runs this case without a stop longer than {ttl}"),
        "a stop in each of six runs",
    ))
}

/// Whether the machine was fast enough to keep the grant for three TTLs.
async fn kept(client: &Client, held: &Held, ttl: Ttl) -> Outcome<bool> {
    let start = Instant::now();
    let mut confirmed = start;
    while start.elapsed() < ttl.get() * 3 {
        tokio::time::sleep(ttl.get() / 8).await;
        let sent = Instant::now();
        let outcome = client.renew(held, ttl).await?;
        // 2 % for clocks that run at different speeds.
        let in_time = confirmed.elapsed() < ttl.get() * 98 / 100;
        match outcome {
            RenewOutcome::Renewed => confirmed = sent,
            RenewOutcome::Lost(_) if !in_time => return Ok(false),
            lost @ RenewOutcome::Lost(_) => {
                return Err(Failure::new("a renewal in time: Renewed", lost));
            }
        }
    }
    Ok(true)
}

async fn a_wrong_owner_is_lost(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("owner")?);
    let held = client.grant(&key, owner(), minute(ctx)).await?;
    let foreign = Held {
        owner: owner(),
        ..held.clone()
    };
    unchanged_by(ctx, &client, &held, &foreign).await
}

async fn a_wrong_token_is_lost(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("token")?);
    let held = client.grant(&key, owner(), minute(ctx)).await?;
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
            unchanged_by(ctx, &client, &held, &other).await?;
        }
    }
    Ok(())
}

/// A renewal that must be lost, and not make the live grant last longer.
async fn unchanged_by(ctx: &Ctx, client: &Client, live: &Held, wrong: &Held) -> Outcome {
    let before = client.is_live(live).await?;
    let honest = [LostCause::TakenOver, LostCause::Unknown];
    client.lost(wrong, ctx.long(), &honest).await?;
    let after = client.is_live(live).await?;
    ctx.tells(
        "the remaining time of the live grant, which is left alone",
        after.remaining,
        Duration::ZERO,
        before.remaining,
    )
}

async fn an_unknown_key_is_lost(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let never = Held {
        key: key("never")?,
        owner: owner(),
        token: Token::MIN,
    };
    client
        .lost(&never, ctx.long(), &[LostCause::Unknown])
        .await?;
    let state = client.inspect(&never.key).await?;
    check(
        state.holder.is_none() && state.high_water.is_none(),
        "a renewal leaves no trace of a key that was never granted",
        state,
    )
}

async fn a_released_grant_is_lost(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("released")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    client.released(&held).await?;
    let honest = [LostCause::Released, LostCause::Unknown];
    client.lost(&held, ctx.long(), &honest).await?;
    let state = client.inspect(&key).await?;
    check(state.holder.is_none(), "nobody holds the key", state)
}

async fn any_client_may_renew(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("any")?);
    let held = one.grant(&key, owner(), minute(ctx)).await?;
    two.renewed(&held, ctx.long()).await?;
    one.renewed(&held, ctx.long()).await?;
    two.released(&held).await?;
    one.not_held(&held).await
}
