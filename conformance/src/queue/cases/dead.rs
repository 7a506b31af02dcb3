//! Dead items: set aside, listed, put back.

use bytes::Bytes;
use lease_queue::{Phase, Settle};

use crate::context::{key, owner};
use crate::failure::{Outcome, check, check_eq};
use crate::queue::case::group;
use crate::queue::client::{back, bury};
use crate::queue::context::{Ctx, grouped, item};

group! { "dead";
    a_buried_item_is_set_aside:
        "A buried item cannot be claimed, and is listed among the dead with its reason and its attempts.";
    a_buried_head_lets_its_group_go_on [Groups]:
        "When the head of a group is buried, the next item can be claimed.";
    a_dead_item_is_put_back:
        "A dead item that is put back can be claimed, as its first attempt and with a higher token.";
    a_dead_item_goes_to_the_end_of_its_group [Groups]:
        "A dead item that is put back stands behind the items of its group.";
    only_the_dead_are_put_back:
        "What is not dead, or was put back before, is left as it is.";
}

async fn a_buried_item_is_set_aside(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("poison"), item("good")]).await?;
    let first = client.one(ctx.long()).await?;
    client.done(&first.claim, back(true)).await?;
    let mut poison = client.one(ctx.long()).await?;
    if poison.body == "good" {
        client.done(&poison.claim, Settle::Complete).await?;
        poison = client.one(ctx.long()).await?;
    }
    check_eq("the attempt", poison.attempt, 2)?;
    client.done(&poison.claim, bury("it is poison")).await?;
    let dead = client.items(true).await?;
    check_eq("dead items", dead.len(), 1)?;
    for state in dead {
        check_eq("the item", state.id, poison.claim.item)?;
        check_eq("the attempts", state.attempts, 2)?;
        check_eq("the size", state.bytes, "poison".len())?;
        check_eq("the phase", state.phase, Phase::Dead("it is poison".into()))?;
    }
    let living = client.items(false).await?;
    let listed = living.iter().any(|state| state.id == poison.claim.item);
    check(!listed, "not among the others", &living)?;
    while let Some(other) = client.try_one(ctx.long()).await? {
        check_eq("what is left", other.body, Bytes::from("good"))?;
    }
    Ok(())
}

async fn a_buried_head_lets_its_group_go_on(ctx: &Ctx) -> Outcome {
    let (client, group) = (ctx.client().await?, key("g")?);
    client
        .add(&[grouped(&group, "0"), grouped(&group, "1")])
        .await?;
    let head = client.one(ctx.long()).await?;
    client.done(&head.claim, bury("dead")).await?;
    let next = client.one(ctx.long()).await?;
    check_eq("the next", next.body, Bytes::from("1"))?;
    check(
        next.claim.token > head.claim.token,
        format!("a token above {}", head.claim.token),
        next.claim.token,
    )
}

async fn a_dead_item_is_put_back(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    one.add(&[item("a")]).await?;
    let first = one.one(ctx.long()).await?;
    one.done(&first.claim, bury("dead")).await?;
    check(two.requeue(first.claim.item).await?, "it was dead", false)?;
    check_eq("dead items", one.depth().await?.dead, 0)?;
    let second = one.one(ctx.long()).await?;
    check_eq("the item", second.claim.item, first.claim.item)?;
    check_eq("the attempt", second.attempt, 1)?;
    check(
        second.claim.token > first.claim.token,
        format!("a token above {}", first.claim.token),
        second.claim.token,
    )?;
    one.done(&second.claim, Settle::Complete).await
}

async fn a_dead_item_goes_to_the_end_of_its_group(ctx: &Ctx) -> Outcome {
    let (client, group) = (ctx.client().await?, key("g")?);
    let items = ["0", "1", "2"].map(|body| grouped(&group, body));
    client.add(&items).await?;
    let head = client.one(ctx.long()).await?;
    client.done(&head.claim, bury("dead")).await?;
    client.requeue(head.claim.item).await?;
    for due in ["1", "2", "0"] {
        let claimed = client.until_one(owner(), ctx.long()).await?;
        check_eq("the next", claimed.body, Bytes::from(due))?;
        client.done(&claimed.claim, Settle::Complete).await?;
    }
    Ok(())
}

async fn only_the_dead_are_put_back(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let (never, new) = (item("never").id, item("a"));
    check_eq("of an item never seen", client.requeue(never).await?, false)?;
    let id = new.id;
    client.add(&[new]).await?;
    check_eq("of a ready one", client.requeue(id).await?, false)?;
    let claimed = client.one(ctx.long()).await?;
    check_eq("of a claimed one", client.requeue(id).await?, false)?;
    client.done(&claimed.claim, bury("dead")).await?;
    check_eq("of a dead one", client.requeue(id).await?, true)?;
    check_eq("once more", client.requeue(id).await?, false)?;
    let again = client.one(ctx.long()).await?;
    client.done(&again.claim, Settle::Complete).await?;
    check_eq("of a completed one", client.requeue(id).await?, false)?;
    client.nothing(ctx.long()).await.map(drop)
}
