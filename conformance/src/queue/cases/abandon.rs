//! Giving an acquisition up.

use lease_core::{LostCause, RefusedReason};
use lease_queue::{Answer, Settle};

use crate::context::{key, owner};
use crate::failure::{Failure, Outcome, check_eq};
use crate::queue::case::group;
use crate::queue::client::{back, every, keyed, next};
use crate::queue::context::{Ctx, item};

group! { "abandon";
    all_that_an_owner_has_is_freed_uncounted:
        "Abandoning frees every item of the owner at once, and their attempts do not count.";
    a_late_claim_is_refused:
        "A claim of an owner that was abandoned is refused, even of one never seen, and takes nothing.";
    others_are_left_alone:
        "Abandoning has no effect on another owner's claims.";
    an_abandoned_claim_is_lost:
        "After an abandon every settle is Lost.";
    what_was_settled_is_left_alone:
        "Abandoning an owner whose claims were settled changes nothing of them.";
    a_key_can_be_abandoned_alone:
        "Abandoning an owner of one key frees that key.";
}

async fn all_that_an_owner_has_is_freed_uncounted(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    one.add(&[item("a"), item("b"), item("c")]).await?;
    let claims = one.claims(ctx.long(), 3).await?;
    check_eq("the claims", claims.len(), 3)?;
    for claimed in claims.iter().take(1) {
        two.abandon(claimed.claim.owner).await?;
    }
    let again = two.claims(ctx.long(), 3).await?;
    check_eq("all of them", again.len(), 3)?;
    for claimed in again {
        check_eq("the attempt", claimed.attempt, 1)?;
        two.done(&claimed.claim, Settle::Complete).await?;
    }
    Ok(())
}

async fn a_late_claim_is_refused(ctx: &Ctx) -> Outcome {
    let (client, late) = (ctx.client().await?, owner());
    client.abandon(late).await?;
    client.add(&[item("a")]).await?;
    let refused = async |request| match client.ask(&request).await? {
        Answer::Refused(reason) => check_eq("the reason", reason, RefusedReason::Abandoned),
        other => Err(Failure::new("Refused", other)),
    };
    refused(next(late, ctx.long(), 1)).await?;
    refused(keyed(&key("k")?, late, ctx.long())).await?;
    let claimed = client.one(ctx.long()).await?;
    check_eq("the attempt", claimed.attempt, 1)?;
    client.abandon(claimed.claim.owner).await?;
    refused(next(claimed.claim.owner, ctx.long(), 1)).await?;
    client.one(ctx.long()).await.map(drop)
}

async fn others_are_left_alone(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    one.add(&[item("a"), item("b")]).await?;
    let (a, b) = (one.one(ctx.long()).await?, two.one(ctx.long()).await?);
    two.abandon(owner()).await?;
    two.abandon(b.claim.owner).await?;
    one.done(&a.claim, Settle::Extend(ctx.long())).await?;
    one.done(&a.claim, Settle::Complete).await
}

async fn an_abandoned_claim_is_lost(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("a")]).await?;
    let claimed = client.one(ctx.long()).await?;
    client.abandon(claimed.claim.owner).await?;
    let honest = [
        LostCause::Released,
        LostCause::Unknown,
        LostCause::TakenOver,
    ];
    for settle in every(ctx.long()) {
        client.lost(&claimed.claim, settle, &honest).await?;
    }
    let next = client.one(ctx.long()).await?;
    for settle in every(ctx.long()) {
        client.lost(&claimed.claim, settle, &honest).await?;
    }
    client.done(&next.claim, Settle::Complete).await
}

async fn what_was_settled_is_left_alone(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    one.add(&[item("a")]).await?;
    let first = one.one(ctx.long()).await?;
    one.done(&first.claim, back(true)).await?;
    let second = two.one(ctx.long()).await?;
    one.abandon(first.claim.owner).await?;
    check_eq(
        "the attempts",
        two.state(second.claim.item).await?.attempts,
        2,
    )?;
    two.done(&second.claim, Settle::Complete).await
}

async fn a_key_can_be_abandoned_alone(ctx: &Ctx) -> Outcome {
    let (client, key, me) = (ctx.client().await?, key("k")?, owner());
    client.key(&key, me, ctx.long()).await?;
    let abandoned = client.store().abandon(client.queue(), Some(&key), me).await;
    abandoned.map_err(|e| Failure::new("abandon is answered", e))?;
    client.key(&key, owner(), ctx.long()).await.map(drop)
}
