//! Calls that were dropped, and calls whose reply was lost.

use lease_core::StoreError;
use lease_queue::{Added, Settle, Settled};

use crate::context::{hooked, owner, persist};
use crate::dropping::dropped_after;
use crate::failure::{Failure, Outcome, check, check_eq};
use crate::queue::case::group;
use crate::queue::client::next;
use crate::queue::context::{Ctx, item};

group! { "unknown_outcome";
    a_dropped_put_repeated_adds_once:
        "A put that was dropped at any await point and is repeated adds its items once.";
    a_dropped_claim_is_freed_by_abandoning:
        "A claim that was dropped at any await point is freed by abandoning its owner, uncounted, even when it arrives after that.";
    a_dropped_settle_repeated_takes_effect_once:
        "A settle that was dropped at any await point and is repeated says Done or Before, never Lost, and takes effect once.";
    a_lost_reply_of_a_put_is_unknown [Network]:
        "A put whose reply was lost is an unknown outcome, unless the store finds out what came of it, and repeated it adds its items once.";
    a_lost_reply_of_a_settle_is_unknown [Network]:
        "A completion whose reply was lost is an unknown outcome, unless the store finds out what came of it, and repeated it says Before.";
}

/// How often a call is polled before it is dropped, one case after the other.
const POLLS: usize = 12;

async fn a_dropped_put_repeated_adds_once(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let mut puts = 0;
    for polls in 0..POLLS {
        let items = [item("a"), item("b")];
        let put = client.store().put(client.queue(), &items);
        drop(dropped_after(polls, put).await);
        client.add(&items).await?;
        puts += 2;
    }
    check_eq("the depth", client.depth().await?.ready, puts)
}

async fn a_dropped_claim_is_freed_by_abandoning(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("a")]).await?;
    for polls in 0..POLLS {
        let request = next(owner(), ctx.long(), 1);
        let claim = client.store().claim(client.queue(), &request);
        drop(dropped_after(polls, claim).await);
        client.abandon(request.owner).await?;
        let claimed = client.one(ctx.long()).await?;
        check_eq("the attempt", claimed.attempt, 1)?;
        client.abandon(claimed.claim.owner).await?;
    }
    Ok(())
}

async fn a_dropped_settle_repeated_takes_effect_once(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    for polls in 0..POLLS {
        client.add(&[item("a")]).await?;
        let claimed = client.one(ctx.long()).await?;
        let batch = [(claimed.claim.clone(), Settle::Complete)];
        let settle = client.store().settle(client.queue(), &batch);
        drop(dropped_after(polls, settle).await);
        let settled = client.settle(&claimed.claim, Settle::Complete).await?;
        let right = matches!(settled, Settled::Done | Settled::Before);
        check(right, "Done or Before", settled)?;
        client.nothing(ctx.long()).await?;
    }
    Ok(())
}

async fn a_lost_reply_of_a_put_is_unknown(ctx: &Ctx) -> Outcome {
    let Some(network) = ctx.target().network() else {
        return Ok(());
    };
    let client = ctx.client().await?;
    client.add(&[item("first")]).await?;
    let items = [item("a"), item("b")];
    let lost = hooked("prepares to lose a reply", network.lose_reply().await)?;
    match client.store().put(client.queue(), &items).await {
        Err(e) if e.is_unknown_outcome() => {}
        // A store may see for itself that it took effect.
        Ok(added) if added == [Added::Added; 2] => {}
        other => return Err(Failure::new("an unknown outcome, or Added", other)),
    }
    lost.await;
    let again = || client.store().put(client.queue(), &items);
    let added = persist("put, once more", again).await?;
    check_eq("a repeated put", added, vec![Added::Added; 2])?;
    check_eq("ready", client.depth().await?.ready, 3)
}

async fn a_lost_reply_of_a_settle_is_unknown(ctx: &Ctx) -> Outcome {
    let Some(network) = ctx.target().network() else {
        return Ok(());
    };
    let client = ctx.client().await?;
    client.add(&[item("a")]).await?;
    let claimed = client.one(ctx.long()).await?;
    let batch = [(claimed.claim, Settle::Complete)];
    let lost = hooked("prepares to lose a reply", network.lose_reply().await)?;
    let answers = client.store().settle(client.queue(), &batch).await;
    let honest = |answer: &Result<Settled, StoreError>| match answer {
        Ok(settled) => *settled == Settled::Done,
        Err(error) => error.is_unknown_outcome(),
    };
    let right = answers.len() == 1 && answers.iter().all(honest);
    check(right, "an unknown outcome, or Done", &answers)?;
    lost.await;
    let again = || async {
        let mut answers = client.store().settle(client.queue(), &batch).await;
        answers.pop().unwrap_or(Ok(Settled::Done))
    };
    let settled = persist("settle, once more", again).await?;
    check_eq("a repeated completion", settled, Settled::Before)
}
