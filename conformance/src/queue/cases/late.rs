//! Late workers: whoever's claim is over changes nothing any more.

use lease_core::{LostCause, Token};
use lease_queue::{ClaimRef, ItemId, Lane, Settle};

use crate::context::{key, owner};
use crate::failure::{Failure, Outcome, check, check_eq};
use crate::queue::case::group;
use crate::queue::client::{Client, SUPERSEDED, every};
use crate::queue::context::{Ctx, grouped, item};

group! { "late";
    a_zombie_harms_nobody:
        "A claims and its time runs out; B claims. A's extend, complete, retry and bury are each Lost, and B's item and deadline are as they were, to the millisecond.";
    a_zombie_of_a_group_harms_nobody [Groups]:
        "The same within a group, where the next owner may have the next item.";
    an_expired_claim_is_dead_before_anybody_takes_it:
        "A claim whose time is over is Lost in every way, even when nobody has claimed the item since.";
    an_owners_old_claim_does_not_settle_its_new_one:
        "When the same owner claims an item again, only the newer token counts.";
    another_owner_is_refused:
        "With the right token and another owner, every settle is Lost.";
    another_token_is_refused:
        "With the right owner and another token, every settle is Lost.";
    another_item_is_refused:
        "With an item or a lane that the claim is not of, every settle is Lost.";
    a_zombie_of_a_completed_item_is_lost:
        "When B has completed the item, A's settles are Lost, not Before.";
}

/// B's claim as the store tells it, to see that nothing changed.
#[derive(Debug)]
struct Standing {
    token: Token,
    /// From its grant to its expiry, whenever that is looked at.
    lasts: std::time::Duration,
    attempts: u32,
    error: Option<String>,
}

async fn standing(client: &Client, item: ItemId) -> Outcome<Standing> {
    let holder = client.holder(item).await?;
    let state = client.state(item).await?;
    Ok(Standing {
        token: holder.token,
        lasts: holder.age + holder.remaining,
        attempts: state.attempts,
        error: state.last_error,
    })
}

/// Checks that every settle of `dead` is Lost and leaves the live claim of `item` as
/// it is.
async fn harmless(
    ctx: &Ctx,
    zombie: &Client,
    looker: &Client,
    dead: &ClaimRef,
    item: ItemId,
) -> Outcome {
    let before = standing(looker, item).await?;
    for settle in every(ctx.long()) {
        zombie.lost(dead, settle.clone(), &SUPERSEDED).await?;
        let after = standing(looker, item).await?;
        let moved = before.lasts.abs_diff(after.lasts);
        let exact = ctx.exactness();
        check(
            after.token == before.token
                && after.attempts == before.attempts
                && after.error == before.error
                && exact.is_none_or(|exact| moved <= exact),
            format!("after {settle:?} of a late worker: {before:?}"),
            &after,
        )?;
    }
    Ok(())
}

async fn a_zombie_harms_nobody(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await?, ctx.client().await?);
    a.add(&[item("work")]).await?;
    let first = a.one(ctx.short()).await?;
    let second = b.until_one(owner(), ctx.ttl(ctx.long().get() / 2)).await?;
    check_eq("the item", second.claim.item, first.claim.item)?;
    harmless(ctx, &a, &b, &first.claim, second.claim.item).await?;
    b.done(&second.claim, Settle::Extend(ctx.long())).await?;
    harmless(ctx, &a, &b, &first.claim, second.claim.item).await?;
    b.done(&second.claim, Settle::Complete).await
}

async fn a_zombie_of_a_group_harms_nobody(ctx: &Ctx) -> Outcome {
    let (a, b, group) = (ctx.client().await?, ctx.client().await?, key("g")?);
    a.add(&[grouped(&group, "0"), grouped(&group, "1")]).await?;
    let first = a.one(ctx.short()).await?;
    let second = b.until_one(owner(), ctx.long()).await?;
    harmless(ctx, &a, &b, &first.claim, second.claim.item).await?;
    b.done(&second.claim, Settle::Complete).await?;
    let third = b.one(ctx.ttl(ctx.long().get() / 2)).await?;
    harmless(ctx, &a, &b, &first.claim, third.claim.item).await?;
    let forged = ClaimRef {
        item: third.claim.item,
        ..first.claim
    };
    harmless(ctx, &a, &b, &forged, third.claim.item).await?;
    b.done(&third.claim, Settle::Complete).await
}

async fn an_expired_claim_is_dead_before_anybody_takes_it(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("work")]).await?;
    let first = client.one(ctx.short()).await?;
    tokio::time::sleep(ctx.surely_over(ctx.short())).await;
    for settle in every(ctx.long()) {
        let honest = [LostCause::Expired, LostCause::Unknown];
        client.lost(&first.claim, settle, &honest).await?;
    }
    let second = client.until_one(owner(), ctx.long()).await?;
    check_eq("the item", second.claim.item, first.claim.item)?;
    check_eq("the attempt", second.attempt, 2)?;
    check_eq(
        "what went wrong",
        client.state(second.claim.item).await?.last_error,
        None,
    )
}

async fn an_owners_old_claim_does_not_settle_its_new_one(ctx: &Ctx) -> Outcome {
    let (client, me) = (ctx.client().await?, owner());
    client.add(&[item("work")]).await?;
    let first = client.until_one(me, ctx.short()).await?;
    let second = client.until_one(me, ctx.long()).await?;
    check_eq("the item", second.claim.item, first.claim.item)?;
    check(
        second.claim.token > first.claim.token,
        format!("a token above {}", first.claim.token),
        &second,
    )?;
    harmless(ctx, &client, &client, &first.claim, second.claim.item).await?;
    client.done(&second.claim, Settle::Complete).await
}

/// Checks that a forged claim settles nothing of the live one.
async fn forged(ctx: &Ctx, change: impl Fn(&mut ClaimRef) -> Outcome) -> Outcome {
    let (client, thief) = (ctx.client().await?, ctx.client().await?);
    client.add(&[item("work")]).await?;
    let claimed = client.one(ctx.long()).await?;
    let mut forged = claimed.claim.clone();
    change(&mut forged)?;
    let before = standing(&client, claimed.claim.item).await?;
    for settle in every(ctx.long()) {
        let any = [
            LostCause::Unknown,
            LostCause::TakenOver,
            LostCause::Expired,
            LostCause::Released,
        ];
        thief.lost(&forged, settle, &any).await?;
    }
    let after = standing(&client, claimed.claim.item).await?;
    check_eq("the token", after.token, before.token)?;
    client.done(&claimed.claim, Settle::Complete).await
}

async fn another_owner_is_refused(ctx: &Ctx) -> Outcome {
    forged(ctx, |claim| {
        claim.owner = owner();
        Ok(())
    })
    .await
}

async fn another_token_is_refused(ctx: &Ctx) -> Outcome {
    let beside = |by: i64| {
        move |claim: &mut ClaimRef| {
            let token = claim.token.get().saturating_add_signed(by);
            claim.token = Token::new(token).map_err(|e| Failure::new("a token", e))?;
            Ok(())
        }
    };
    forged(ctx, beside(1)).await?;
    forged(ctx, beside(-1)).await
}

async fn another_item_is_refused(ctx: &Ctx) -> Outcome {
    let other = item("other").id;
    forged(ctx, move |claim| {
        claim.item = other;
        claim.lane = Lane::Item(other);
        Ok(())
    })
    .await
}

async fn a_zombie_of_a_completed_item_is_lost(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await?, ctx.client().await?);
    a.add(&[item("work")]).await?;
    let first = a.one(ctx.short()).await?;
    let second = b.until_one(owner(), ctx.long()).await?;
    b.done(&second.claim, Settle::Complete).await?;
    for settle in every(ctx.long()) {
        a.lost(&first.claim, settle, &SUPERSEDED).await?;
    }
    b.before(&second.claim, Settle::Complete).await
}
