//! Fences on the lanes of items and groups.

use lease_core::{FenceWhen, LostCause, Token};
use lease_queue::{Lane, Settle};

use crate::context::{key, owner};
use crate::failure::{Failure, Outcome, check};
use crate::queue::case::group;
use crate::queue::client::every;
use crate::queue::context::{Ctx, grouped, item};

group! { "fence";
    a_fence_revokes_an_items_claim:
        "A fence above a claim's token revokes it: every settle is Lost, and with Immediately its item is ready at once.";
    a_revoked_claim_blocks_until_its_expiry:
        "Without Immediately a revoked claim's item is not given to anybody before the claim's old expiry.";
    a_groups_later_tokens_are_above_a_fence [Groups]:
        "Every token of a group is above a fence that it was given before it had any item.";
    a_fence_below_changes_nothing:
        "A fence that is not above a live claim's token leaves it as it is.";
}

fn above(token: Token, by: u64) -> Outcome<Token> {
    Token::new(token.get() + by).map_err(|e| Failure::new("a token", e))
}

async fn a_fence_revokes_an_items_claim(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    one.add(&[item("a")]).await?;
    let first = one.one(ctx.long()).await?;
    let mark = above(first.claim.token, 5_000_000)?;
    let lane = &first.claim.lane;
    let fenced = two.fence(lane, mark, FenceWhen::Immediately).await?;
    check(fenced >= mark, format!("a mark of {mark} or more"), fenced)?;
    let honest = [LostCause::Revoked, LostCause::Unknown, LostCause::TakenOver];
    for settle in every(ctx.long()) {
        one.lost(&first.claim, settle, &honest).await?;
    }
    let second = two.until_one(owner(), ctx.long()).await?;
    let token = second.claim.token;
    check(token > mark, format!("a token above {mark}"), token)?;
    two.done(&second.claim, Settle::Complete).await
}

async fn a_revoked_claim_blocks_until_its_expiry(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("a"), item("b")]).await?;
    let long = client.one(ctx.long()).await?;
    let short = client.one(ctx.short()).await?;
    for claim in [&long.claim, &short.claim] {
        let mark = above(claim.token, 1)?;
        client.fence(&claim.lane, mark, FenceWhen::AtExpiry).await?;
        let honest = [LostCause::Revoked, LostCause::Unknown, LostCause::Expired];
        let extend = Settle::Extend(ctx.long());
        client.lost(claim, extend, &honest).await?;
    }
    let freed = client.until_one(owner(), ctx.long()).await?;
    let right = freed.claim.item == short.claim.item;
    check(right, "the item whose time is over", &freed)?;
    client.nothing(ctx.long()).await.map(drop)
}

async fn a_groups_later_tokens_are_above_a_fence(ctx: &Ctx) -> Outcome {
    let (client, group) = (ctx.client().await?, key("g")?);
    let mark = Token::MAX_FENCE;
    let lane = Lane::Group(group.clone());
    client.fence(&lane, mark, FenceWhen::AtExpiry).await?;
    client.add(&[grouped(&group, "a")]).await?;
    let token = client.one(ctx.long()).await?.claim.token;
    check(token > mark, format!("a token above {mark}"), token)
}

async fn a_fence_below_changes_nothing(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("a")]).await?;
    let claim = client.one(ctx.long()).await?.claim;
    for mark in [Token::MIN, claim.token] {
        client
            .fence(&claim.lane, mark, FenceWhen::Immediately)
            .await?;
    }
    client.done(&claim, Settle::Extend(ctx.long())).await?;
    client.done(&claim, Settle::Complete).await
}
