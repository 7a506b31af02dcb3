//! What outlives a crash of the store.

use std::collections::HashSet;

use lease_core::{StoreError, Token};
use lease_queue::{Added, NewItem, Settle};

use crate::context::{hooked, key, owner, persist};
use crate::failure::{Outcome, check, check_eq};
use crate::queue::case::group;
use crate::queue::client::{Client, back, bury};
use crate::queue::context::{Ctx, grouped, item};

group! { "restart";
    items_survive_a_restart [TokensSurviveRestart]:
        "Once put has returned, the items survive what tokens survive; so do the dead, and what was completed stays gone.";
    tokens_rise_over_a_restart [TokensSurviveRestart]:
        "Tokens of an item, of a group and of a key are above all those before a restart.";
    a_live_claim_survives_a_restart [ExclusionSurvivesRestart]:
        "A claim that lives at a restart is still its owner's afterwards, and nobody else's.";
}

async fn restart(ctx: &Ctx, client: &Client) -> Outcome {
    let Some(hook) = ctx.target().restart() else {
        return Ok(());
    };
    hooked("restarts its store", hook.restart().await)?;
    let answers = || async { client.store().depth(client.queue()).await.map(drop) };
    persist("depth", answers).await?;
    // Of the connections for writes as well: this changes nothing.
    let nobody = owner();
    let abandons = || async { client.store().abandon(client.queue(), None, nobody).await };
    persist("abandon", abandons).await
}

async fn items_survive_a_restart(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("done"), item("dead")]).await?;
    let done = client.one(ctx.long()).await?;
    client.done(&done.claim, Settle::Complete).await?;
    let dead = client.one(ctx.long()).await?;
    client.done(&dead.claim, bury("dead")).await?;
    let items: Vec<NewItem> = (0..50).map(|n| item(&n.to_string())).collect();
    client.add(&items).await?;
    restart(ctx, &client).await?;
    check_eq("dead items", client.items(true).await?.len(), 1)?;
    let due: HashSet<_> = items.iter().map(|item| item.id).collect();
    let listed: HashSet<_> = client.items(false).await?.iter().map(|s| s.id).collect();
    check_eq("the items", listed, due)?;
    // A put whose answer the crash took may be repeated.
    let put: Result<Vec<Added>, StoreError> = client.store().put(client.queue(), &items).await;
    let again = put.map_err(|e| crate::failure::Failure::new("put is answered", e))?;
    check_eq("a repeated put", again, vec![Added::Added; items.len()])?;
    check_eq("ready", client.depth().await?.ready, 50)
}

async fn tokens_rise_over_a_restart(ctx: &Ctx) -> Outcome {
    let (client, key, group) = (ctx.client().await?, key("k")?, key("g")?);
    let new = item("item");
    let id = new.id;
    client.add(&[new]).await?;
    let of_item = client.one(ctx.long()).await?.claim;
    client.done(&of_item, back(false)).await?;
    let of_key = client.key(&key, owner(), ctx.long()).await?.claim;
    client.done(&of_key, back(false)).await?;
    let mut of_group = None;
    if ctx.can().groups {
        client.add(&[grouped(&group, "grouped")]).await?;
        while of_group.is_none() {
            let claim = client.one(ctx.long()).await?.claim;
            if claim.item == id {
                client.done(&claim, back(false)).await?;
            } else {
                client.done(&claim, Settle::Complete).await?;
                of_group = Some(claim.token);
            }
        }
    }
    let seen = client.state(id).await?;
    restart(ctx, &client).await?;
    check_eq(
        "the attempts",
        client.state(id).await?.attempts,
        seen.attempts,
    )?;
    let rises = |before: Token, after: Token| {
        check(after > before, format!("a token above {before}"), after)
    };
    let again = client.one(ctx.long()).await?.claim;
    rises(of_item.token, again.token)?;
    let again = client.key(&key, owner(), ctx.long()).await?.claim;
    rises(of_key.token, again.token)?;
    if let Some(before) = of_group {
        client.add(&[grouped(&group, "grouped")]).await?;
        rises(before, client.one(ctx.long()).await?.claim.token)?;
    }
    Ok(())
}

async fn a_live_claim_survives_a_restart(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("a"), item("b")]).await?;
    let mine = client.one(ctx.long()).await?;
    let settled = client.one(ctx.long()).await?;
    client.done(&settled.claim, Settle::Complete).await?;
    restart(ctx, &client).await?;
    client.nothing(ctx.long()).await?;
    client.done(&mine.claim, Settle::Extend(ctx.long())).await?;
    client.done(&mine.claim, Settle::Complete).await
}
