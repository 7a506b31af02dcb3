//! Tokens only rise: per item, per group, per key.

use lease_core::Token;
use lease_queue::Settle;

use crate::context::{key, owner};
use crate::failure::{Outcome, check};
use crate::queue::case::group;
use crate::queue::client::{back, bury};
use crate::queue::context::{Ctx, grouped, item};

group! { "tokens";
    tokens_of_an_item_rise:
        "Each claim of an item has a higher token: after a retry, an expiry, an abandon, and a burial.";
    tokens_of_a_group_rise_over_all_its_items [Groups]:
        "Each claim of a group has a higher token than all before, also when the group was empty in between.";
    tokens_of_a_reused_key_rise:
        "Each claim of a key has a higher token: after a release, an expiry and an abandon.";
}

/// Checks each against the highest so far.
struct Rising(Option<Token>);

impl Rising {
    fn next(&mut self, token: Token) -> Outcome {
        let above = self.0.is_none_or(|last| token > last);
        let expected = format!("a token above {:?}", self.0);
        self.0 = Some(token);
        check(above, expected, token)
    }
}

async fn tokens_of_an_item_rise(ctx: &Ctx) -> Outcome {
    let (client, mut rising) = (ctx.client().await?, Rising(None));
    client.add(&[item("a")]).await?;
    for _ in 0..5 {
        let claim = client.one(ctx.long()).await?.claim;
        rising.next(claim.token)?;
        client.done(&claim, back(false)).await?;
    }
    let claim = client.one(ctx.short()).await?.claim;
    rising.next(claim.token)?;
    let claim = client.until_one(owner(), ctx.long()).await?.claim;
    rising.next(claim.token)?;
    client.abandon(claim.owner).await?;
    let claim = client.one(ctx.long()).await?.claim;
    rising.next(claim.token)?;
    client.done(&claim, bury("dead")).await?;
    client.requeue(claim.item).await?;
    rising.next(client.one(ctx.long()).await?.claim.token)
}

async fn tokens_of_a_group_rise_over_all_its_items(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    let (group, mut rising) = (key("g")?, Rising(None));
    for round in 0..6 {
        let client = if round % 2 == 0 { &one } else { &two };
        client
            .add(&[grouped(&group, "a"), grouped(&group, "b")])
            .await?;
        for _ in 0..2 {
            let claim = client.one(ctx.long()).await?.claim;
            rising.next(claim.token)?;
            client.done(&claim, Settle::Complete).await?;
        }
    }
    Ok(())
}

async fn tokens_of_a_reused_key_rise(ctx: &Ctx) -> Outcome {
    let (client, key, mut rising) = (ctx.client().await?, key("k")?, Rising(None));
    for _ in 0..5 {
        let claim = client.key(&key, owner(), ctx.long()).await?.claim;
        rising.next(claim.token)?;
        client.done(&claim, back(false)).await?;
        let claim = client.key(&key, owner(), ctx.long()).await?.claim;
        rising.next(claim.token)?;
        client.abandon(claim.owner).await?;
    }
    Ok(())
}
