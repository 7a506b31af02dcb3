//! The end of a grant's time.

use std::time::Duration;

use lease_core::{AcquireOutcome, LostCause, RefusedReason};
use tokio::time::Instant;

use crate::case::group;
use crate::client::{Client, Held, ask};
use crate::context::{Ctx, key, owner, patience};
use crate::failure::{Failure, Outcome, check, check_eq};

group! { "expiry";
    a_grant_lasts_at_least_its_ttl:
        "A grant is live for its TTL: nobody else is granted the key before.";
    a_grant_ends_with_its_ttl [StoreClock]:
        "A grant ends once its TTL, plus the claimed resolution, is over by the store's clock.";
    an_expired_key_is_free:
        "Once a grant has expired the key has no holder and is granted with a higher token; the mark stays.";
    an_expired_grant_is_not_renewed [StoreClock]:
        "An expired grant is dead: renewing it is Lost and never brings it back, even when nobody took the key.";
    an_expired_grant_is_not_released [StoreClock]:
        "Releasing an expired grant is NotHeld and changes nothing.";
    a_taken_over_grant_is_not_renewed:
        "Renewing a grant whose key was taken over is Lost and leaves the new holder's grant as it is.";
    a_taken_over_grant_is_not_released:
        "Releasing a grant whose key was taken over is NotHeld and leaves the new holder's grant as it is.";
    the_grants_own_ttl_decides:
        "A grant lasts as long as its own TTL says, whatever TTL a contender asks with.";
    an_expired_owner_gets_a_new_token [StoreClock]:
        "An owner that asks again after its grant expired gets a new grant with a higher token, or is refused as one that ended; never the old grant.";
}

/// A grant whose time is over.
async fn expired(ctx: &Ctx, client: &Client, name: &str) -> Outcome<Held> {
    let held = client.grant(&key(name)?, owner(), ctx.short()).await?;
    ctx.until_free(client, &held.key, ctx.short()).await?;
    Ok(held)
}

async fn a_grant_lasts_at_least_its_ttl(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("least")?);
    // No whole number of the store's units, so that rounding it down shows.
    let odd = ctx.guarantees().ttl.resolution.min(Duration::from_secs(2)) * 3 / 2;
    let ttl = ctx.ttl(odd.max(Duration::from_millis(300)));
    let sent = Instant::now();
    one.grant(&key, owner(), ttl).await?;
    let slack = ttl.get() / 100 + Duration::from_millis(2);
    let give_up = sent + ttl.get() + ctx.slack(ttl) + patience();
    loop {
        let outcome = two.acquire(&ask(&key, owner(), ctx.long())).await?;
        let passed = sent.elapsed();
        match outcome {
            AcquireOutcome::Granted(_) => {
                return check(
                    passed + slack >= ttl.get(),
                    format!("no other grant within the TTL of {ttl}"),
                    format!("another grant {passed:?} after the first was asked for"),
                );
            }
            AcquireOutcome::Held(_) if Instant::now() < give_up => {
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            other => return Err(Failure::new("a grant after the first one's TTL", other)),
        }
    }
}

async fn a_grant_ends_with_its_ttl(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("most")?);
    let ttl = ctx.ttl(Duration::from_millis(300));
    one.grant(&key, owner(), ttl).await?;
    let over = Instant::now() + ttl.get() + ctx.slack(ttl);
    tokio::time::sleep_until(over).await;
    two.granted(&ask(&key, owner(), ctx.long())).await.map(drop)
}

async fn an_expired_key_is_free(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let held = expired(ctx, &client, "over").await?;
    let mark = client.mark(&held.key).await?;
    check_eq("the mark after the grant's time", mark, held.token)?;
    let next = client.grant(&held.key, owner(), ctx.long()).await?;
    check(
        next.token > held.token,
        format!("a token above {}", held.token),
        next.token,
    )
}

async fn an_expired_grant_is_not_renewed(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let held = expired(ctx, &client, "dead").await?;
    let honest = [LostCause::Expired, LostCause::Unknown];
    for _ in 0..3 {
        client.lost(&held, ctx.long(), &honest).await?;
        let state = client.inspect(&held.key).await?;
        check(
            state.holder.is_none(),
            "nobody holds the key after the renewal was Lost",
            state,
        )?;
    }
    client.grant(&held.key, owner(), ctx.long()).await.map(drop)
}

async fn an_expired_grant_is_not_released(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let held = expired(ctx, &client, "gone").await?;
    client.not_held(&held).await?;
    check_eq("the mark", client.mark(&held.key).await?, held.token)
}

async fn a_taken_over_grant_is_not_renewed(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    let old = expired(ctx, &one, "renewer").await?;
    // Where there is no clock of the store's, each judges by what it saw itself.
    ctx.until_free(&two, &old.key, ctx.short()).await?;
    let ttl = ctx.ttl(Duration::from_secs(60));
    let new = two.grant(&old.key, owner(), ttl).await?;
    let before = two.is_live(&new).await?;
    let honest = [LostCause::TakenOver, LostCause::Unknown];
    one.lost(&old, ctx.long(), &honest).await?;
    // A late copy of the request that held the old grant, with its token.
    let mixed = Held {
        owner: old.owner,
        ..new.clone()
    };
    one.lost(&mixed, ctx.long(), &honest).await?;
    let after = two.is_live(&new).await?;
    ctx.tells(
        "the new holder's remaining time, which is not changed",
        after.remaining,
        Duration::ZERO,
        before.remaining,
    )
}

async fn a_taken_over_grant_is_not_released(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    let old = expired(ctx, &one, "releaser").await?;
    ctx.until_free(&two, &old.key, ctx.short()).await?;
    let new = two.grant(&old.key, owner(), ctx.long()).await?;
    one.not_held(&old).await?;
    two.is_live(&new).await?;
    one.held(&ask(&old.key, owner(), ctx.long()))
        .await
        .map(drop)
}

async fn the_grants_own_ttl_decides(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    let (brief, lasting) = (key("brief")?, key("lasting")?);
    let live = one.grant(&lasting, owner(), ctx.long()).await?;
    two.held(&ask(&lasting, owner(), ctx.short())).await?;
    one.grant(&brief, owner(), ctx.short()).await?;
    // May already be over on a slow machine: either answer is right.
    two.acquire(&ask(&brief, owner(), ctx.short())).await?;
    ctx.until_free(&two, &brief, ctx.short()).await?;
    two.grant(&brief, owner(), ctx.long()).await?;
    // By now a contender's TTL is over, and the holder's is not.
    two.held(&ask(&lasting, owner(), ctx.short())).await?;
    one.is_live(&live).await.map(drop)
}

async fn an_expired_owner_gets_a_new_token(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let old = expired(ctx, &client, "retry").await?;
    let request = ask(&old.key, old.owner, ctx.long());
    let token = match client.acquire(&request).await? {
        AcquireOutcome::Granted(granted) if granted.token > old.token => granted.token,
        AcquireOutcome::Refused(RefusedReason::Abandoned) => return client.not_held(&old).await,
        other => {
            return Err(Failure::new(
                format!(
                    "a token above {}, since the first grant is dead, or Refused as Abandoned",
                    old.token
                ),
                other,
            ));
        }
    };
    let new = Held {
        token,
        ..old.clone()
    };
    client.not_held(&old).await?;
    client.is_live(&new).await.map(drop)
}
