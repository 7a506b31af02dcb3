//! Giving an acquisition up.

use std::time::Duration;

use lease_core::{AcquireOutcome, LostCause, RefusedReason, Token};
use tokio::time::Instant;

use crate::case::group;
use crate::client::{Client, Held, ask, ask_exactly};
use crate::context::{Ctx, key, owner};
use crate::failure::{Failure, Outcome, check, check_eq};

group! { "abandon";
    a_grant_is_freed_without_its_token:
        "Abandoning frees any grant of the owner at once, and the mark stays.";
    a_grant_is_freed_whatever_its_token:
        "Abandoning frees the owner's grant whatever token it has by then.";
    an_owner_never_seen_is_refused_later:
        "Abandoning leaves a tombstone even for an owner never seen: its acquire that arrives later is refused and does not block the key.";
    each_owner_has_its_own_tombstone:
        "Every abandoned owner of a key is remembered, not only the last one.";
    a_late_acquire_after_release_and_abandon_is_refused:
        "After a release and an abandon, a late copy of the acquire is refused.";
    a_late_grant_after_expiry_is_freed [StoreClock]:
        "A retry that was granted a second token after the first grant expired is freed by abandoning, though a release with the first token is not for it.";
    abandoning_is_idempotent:
        "Abandoning twice does what abandoning once does.";
    other_owners_are_left_alone:
        "Abandoning has no effect on another owner's grant.";
    an_abandoned_grant_is_lost:
        "After an abandon, renewing is Lost and releasing is NotHeld.";
    a_tombstone_outlives_other_grants:
        "The tombstone holds while the key is granted to, and released or abandoned by, other owners.";
    a_tombstone_outlives_requests_under_way [LastingTombstones]:
        "The tombstone lasts longer than a request can be under way, not just for a moment.";
    a_tombstone_holds_for_every_token_rule:
        "An abandoned owner is refused whatever token it asks for.";
    an_abandoned_key_has_no_mark:
        "Abandoning an owner of a key that was never granted gives the key no holder and no mark.";
    a_tombstone_lasts_its_retention [TombstoneRetention]:
        "An abandoned owner is refused for as long as the store is configured to remember it.";
}

/// Checks that a late acquire of the owner is refused for being abandoned.
async fn refused(
    ctx: &Ctx,
    client: &Client,
    key: &lease_core::Key,
    late: lease_core::Owner,
) -> Outcome {
    let reason = client.refused(&ask(key, late, ctx.long())).await?;
    check_eq("the reason", reason, RefusedReason::Abandoned)
}

async fn a_grant_is_freed_without_its_token(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("freed")?);
    let held = one.grant(&key, owner(), ctx.long()).await?;
    one.abandon(&key, held.owner).await?;
    check_eq("the mark", two.mark(&key).await?, held.token)?;
    let next = two.grant(&key, owner(), ctx.long()).await?;
    check(
        next.token > held.token,
        format!("a token above {}", held.token),
        next.token,
    )
}

async fn a_grant_is_freed_whatever_its_token(ctx: &Ctx) -> Outcome {
    let (client, key, me) = (ctx.client().await?, key("raised")?, owner());
    let held = client.grant(&key, me, ctx.long()).await?;
    let raised = Token::new(held.token.get() + 1000).map_err(|e| Failure::new("a token", e))?;
    client
        .granted(&ask_exactly(&key, me, ctx.long(), raised))
        .await?;
    client.abandon(&key, me).await?;
    client.grant(&key, owner(), ctx.long()).await.map(drop)
}

async fn an_owner_never_seen_is_refused_later(ctx: &Ctx) -> Outcome {
    let (client, key, late) = (ctx.client().await?, key("unseen")?, owner());
    client.abandon(&key, late).await?;
    refused(ctx, &client, &key, late).await?;
    client.grant(&key, owner(), ctx.long()).await?;
    refused(ctx, &client, &key, late).await
}

async fn each_owner_has_its_own_tombstone(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("each")?);
    let owners: Vec<_> = (0..20).map(|_| owner()).collect();
    for (i, late) in owners.iter().enumerate() {
        let client = if i % 2 == 0 { &one } else { &two };
        client.abandon(&key, *late).await?;
    }
    for late in owners {
        refused(ctx, &one, &key, late).await?;
        refused(ctx, &two, &key, late).await?;
    }
    Ok(())
}

async fn a_late_acquire_after_release_and_abandon_is_refused(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("after")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    client.released(&held).await?;
    client.abandon(&key, held.owner).await?;
    refused(ctx, &client, &key, held.owner).await?;
    let state = client.inspect(&key).await?;
    check(state.holder.is_none(), "nobody holds the key", state)
}

async fn a_late_grant_after_expiry_is_freed(ctx: &Ctx) -> Outcome {
    let (client, key, me) = (ctx.client().await?, key("second")?, owner());
    let first = client.grant(&key, me, ctx.short()).await?;
    ctx.until_free(&client, &key, ctx.short()).await?;
    let second = match client.acquire(&ask(&key, me, ctx.long())).await? {
        AcquireOutcome::Granted(second) => Some(second.token),
        // A store that remembers expired owners has no such second grant.
        AcquireOutcome::Refused(RefusedReason::Abandoned) => None,
        other => return Err(Failure::new("Granted, or Refused as Abandoned", other)),
    };
    client.not_held(&first).await?;
    if let Some(token) = second {
        client.is_live(&Held { token, ..first }).await?;
    }
    client.abandon(&key, me).await?;
    client.grant(&key, owner(), ctx.long()).await?;
    refused(ctx, &client, &key, me).await
}

async fn abandoning_is_idempotent(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("twice")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    for _ in 0..3 {
        client.abandon(&key, held.owner).await?;
        refused(ctx, &client, &key, held.owner).await?;
    }
    let next = client.grant(&key, owner(), ctx.long()).await?;
    client.abandon(&key, held.owner).await?;
    client.is_live(&next).await.map(drop)
}

async fn other_owners_are_left_alone(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("others")?);
    let sent = Instant::now();
    let held = one.grant(&key, owner(), ctx.long()).await?;
    two.abandon(&key, owner()).await?;
    let after = one.is_live(&held).await?;
    ctx.lasts(after.remaining, ctx.long(), sent, ctx.long())?;
    one.renewed(&held, ctx.long()).await?;
    one.released(&held).await
}

async fn an_abandoned_grant_is_lost(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("lost")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    client.abandon(&key, held.owner).await?;
    let honest = [LostCause::Released, LostCause::Unknown];
    client.lost(&held, ctx.long(), &honest).await?;
    client.not_held(&held).await?;
    let state = client.inspect(&key).await?;
    check(state.holder.is_none(), "nobody holds the key", state)
}

async fn a_tombstone_outlives_other_grants(ctx: &Ctx) -> Outcome {
    let (client, key, late) = (ctx.client().await?, key("outlives")?, owner());
    client.abandon(&key, late).await?;
    for round in 0..5 {
        let held = client.grant(&key, owner(), ctx.long()).await?;
        if round % 2 == 0 {
            client.released(&held).await?;
        } else {
            client.abandon(&key, held.owner).await?;
        }
        refused(ctx, &client, &key, late).await?;
    }
    let other = Held {
        key,
        owner: late,
        token: Token::MIN,
    };
    client.not_held(&other).await
}

async fn a_tombstone_outlives_requests_under_way(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let (fresh, held, late) = (key("fresh")?, key("held")?, owner());
    client.abandon(&fresh, late).await?;
    let first = client.grant(&held, owner(), ctx.short()).await?;
    client.abandon(&held, first.owner).await?;
    let until = Instant::now() + Duration::from_millis(400);
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
        refused(ctx, &client, &fresh, late).await?;
        refused(ctx, &client, &held, first.owner).await?;
    }
    Ok(())
}

async fn a_tombstone_holds_for_every_token_rule(ctx: &Ctx) -> Outcome {
    let (client, key, late) = (ctx.client().await?, key("rules")?, owner());
    client.abandon(&key, late).await?;
    let exactly = ask_exactly(&key, late, ctx.long(), Token::MAX_FENCE);
    let reason = client.refused(&exactly).await?;
    check_eq("the reason", reason, RefusedReason::Abandoned)?;
    let state = client.inspect(&key).await?;
    check(state.holder.is_none(), "nobody holds the key", state)
}

async fn an_abandoned_key_has_no_mark(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("markless")?);
    client.abandon(&key, owner()).await?;
    let state = client.inspect(&key).await?;
    check(
        state.holder.is_none() && state.high_water.is_none() && state.blocked_for.is_none(),
        "no holder, no mark, nothing that blocks",
        state,
    )
}

async fn a_tombstone_lasts_its_retention(ctx: &Ctx) -> Outcome {
    let (client, key, late) = (ctx.client().await?, key("retention")?, owner());
    let Some(retention) = ctx.store().tombstone_retention() else {
        return Ok(());
    };
    let sent = Instant::now();
    client.abandon(&key, late).await?;
    loop {
        let outcome = client.acquire(&ask(&key, late, ctx.long())).await?;
        // Answered before the retention was over on any clock.
        if sent.elapsed() * 100 / 99 >= retention {
            return Ok(());
        }
        if !matches!(outcome, AcquireOutcome::Refused(_)) {
            return Err(Failure::new(
                format!("an abandoned owner is refused for {retention:?}"),
                outcome,
            ));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
