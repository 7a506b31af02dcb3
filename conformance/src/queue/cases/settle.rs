//! Settling one's own live claim.

use std::time::Duration;

use lease_core::{LostCause, StoreErrorKind, Token};
use lease_queue::{ClaimRef, ItemId, Lane, MAX_DELAY, Settle, Settled};
use tokio::time::Instant;

use crate::context::{key, owner};
use crate::failure::{Failure, Outcome, check, check_eq};
use crate::queue::case::group;
use crate::queue::client::{back, bury};
use crate::queue::context::{Ctx, item};

group! { "settle";
    a_completed_item_is_gone:
        "A completed item leaves the queue: nobody claims it, and it is not listed.";
    a_repeated_settle_is_told_so:
        "To complete, retry or bury again answers Before and changes nothing, even when somebody else has the item by then.";
    a_repeated_release_of_a_key_is_told_so_until_it_is_claimed_again:
        "To release a key again answers Before; once another owner has claimed it, Lost as taken over, and that owner keeps it.";
    an_extension_of_what_is_settled_is_lost:
        "After it was settled, extending a claim is Lost.";
    an_extension_makes_a_claim_last:
        "An extended claim outlives its first TTL.";
    an_extension_never_shortens:
        "Extending by less than what is left leaves the deadline as it is.";
    a_batch_settles_each_alone:
        "Of a batch each claim has its own outcome, in order; one that is lost does not harm another.";
    an_unknown_claim_is_lost:
        "Settling an item that the queue never had is Lost.";
    a_token_item_is_never_completed_nor_buried:
        "To complete or to bury a key's token item is InvalidInput, and the key stays held.";
    a_delay_over_the_limit_is_invalid [Delay]:
        "To retry after too long a delay is InvalidInput, and the claim stays live.";
}

async fn a_completed_item_is_gone(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("a")]).await?;
    let claimed = client.one(ctx.long()).await?;
    client.done(&claimed.claim, Settle::Complete).await?;
    check_eq("what is next", client.nothing(ctx.long()).await?, None)?;
    for dead in [false, true] {
        let listed = client.items(dead).await?;
        check(listed.is_empty(), "an empty list", listed)?;
    }
    Ok(())
}

async fn a_repeated_settle_is_told_so(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    one.add(&[item("a")]).await?;
    let first = one.one(ctx.long()).await?;
    one.done(&first.claim, back(true)).await?;
    one.before(&first.claim, back(true)).await?;
    let second = two.one(ctx.long()).await?;
    check_eq("the attempt", second.attempt, 2)?;
    for settle in [back(true), Settle::Complete, bury("no")] {
        one.before(&first.claim, settle).await?;
    }
    let holder = two.holder(second.claim.item).await?;
    check_eq("the holder's token", holder.token, second.claim.token)?;
    two.done(&second.claim, bury("dead")).await?;
    two.before(&second.claim, bury("dead")).await?;
    check_eq("dead items", two.depth().await?.dead, 1)?;
    check(two.requeue(second.claim.item).await?, "it was dead", false)?;
    let third = two.one(ctx.long()).await?;
    two.done(&third.claim, Settle::Complete).await?;
    one.before(&third.claim, Settle::Complete).await
}

async fn a_repeated_release_of_a_key_is_told_so_until_it_is_claimed_again(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    let key = key("released")?;
    let first = one.key(&key, owner(), ctx.long()).await?.claim;
    one.done(&first, back(false)).await?;
    one.before(&first, back(false)).await?;
    for again in 0..2 {
        let second = two.key(&key, owner(), ctx.long()).await?.claim;
        one.lost(&first, back(false), &[LostCause::TakenOver])
            .await?;
        two.done(&second, Settle::Extend(ctx.long())).await?;
        if again == 0 {
            two.done(&second, back(false)).await?;
            one.lost(&first, back(false), &[LostCause::TakenOver])
                .await?;
            two.before(&second, back(false)).await?;
        }
    }
    Ok(())
}

async fn an_extension_of_what_is_settled_is_lost(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    for settle in [Settle::Complete, back(false), bury("dead")] {
        client.add(&[item("a")]).await?;
        let claimed = client.one(ctx.long()).await?;
        client.done(&claimed.claim, settle.clone()).await?;
        let honest = [LostCause::Released, LostCause::Unknown];
        let extend = Settle::Extend(ctx.long());
        client.lost(&claimed.claim, extend, &honest).await?;
        if matches!(settle, Settle::Retry { .. }) {
            let again = client.one(ctx.long()).await?;
            client.done(&again.claim, Settle::Complete).await?;
        }
    }
    client.nothing(ctx.long()).await.map(drop)
}

async fn an_extension_makes_a_claim_last(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    one.add(&[item("a")]).await?;
    let ttl = ctx.ttl(Duration::from_secs(1));
    let sent = Instant::now();
    let claimed = one.one(ttl).await?;
    let extended = one
        .settle(&claimed.claim, Settle::Extend(ctx.long()))
        .await?;
    if extended != Settled::Done && sent.elapsed() * 102 / 100 >= ttl.get() {
        // The machine stood still for so long that this shows nothing.
        return Ok(());
    }
    check_eq("an extension in time", extended, Settled::Done)?;
    let until = Instant::now() + ctx.surely_over(ttl);
    while Instant::now() < until {
        two.nothing(ctx.long()).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    one.done(&claimed.claim, Settle::Complete).await
}

async fn an_extension_never_shortens(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("a")]).await?;
    let claimed = client.one(ctx.long()).await?;
    let before = client.holder(claimed.claim.item).await?;
    client
        .done(&claimed.claim, Settle::Extend(ctx.short()))
        .await?;
    let after = client.holder(claimed.claim.item).await?;
    let (before, after) = (before.age + before.remaining, after.age + after.remaining);
    if let Some(exact) = ctx.exactness() {
        check(
            before.abs_diff(after) <= exact,
            format!("{before:?}"),
            after,
        )?;
    }
    tokio::time::sleep(ctx.surely_over(ctx.short())).await;
    client.done(&claimed.claim, Settle::Complete).await
}

async fn a_batch_settles_each_alone(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let items: Vec<_> = (0..4).map(|n| item(&n.to_string())).collect();
    client.add(&items).await?;
    let mut claims = client.claims(ctx.long(), 4).await?.into_iter();
    let mut claim = || {
        claims
            .next()
            .map(|c| c.claim)
            .ok_or_else(|| Failure::says("4 claims", "fewer"))
    };
    let (a, b, c, d) = (claim()?, claim()?, claim()?, claim()?);
    let never = ClaimRef {
        owner: owner(),
        ..b.clone()
    };
    let batch = [
        (a, Settle::Complete),
        (never, Settle::Complete),
        (b, Settle::Extend(ctx.long())),
        (c, bury("dead")),
        (d, back(true)),
    ];
    let answers = client.store().settle(client.queue(), &batch).await;
    let lost = |answer: &Result<Settled, _>| matches!(answer, Ok(Settled::Lost(_)));
    let done = |answer: &Result<Settled, _>| matches!(answer, Ok(Settled::Done));
    let right = answers.len() == 5
        && answers
            .iter()
            .enumerate()
            .all(|(n, a)| if n == 1 { lost(a) } else { done(a) });
    check(right, "Done but for the second, which is Lost", &answers)?;
    let depth = client.depth().await?;
    let seen = (depth.ready, depth.in_flight, depth.dead);
    check_eq("ready, in flight, dead", seen, (1, 1, 1))
}

async fn an_unknown_claim_is_lost(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let item = item("never").id;
    let (one, two) = (Lane::Item(item), Lane::Group(key("g")?));
    for lane in [one, two] {
        let claim = ClaimRef {
            item,
            lane,
            owner: owner(),
            token: Token::MIN,
        };
        for settle in crate::queue::client::every(ctx.long()) {
            let honest = [LostCause::Unknown, LostCause::Expired, LostCause::Released];
            client.lost(&claim, settle, &honest).await?;
        }
    }
    Ok(())
}

async fn a_token_item_is_never_completed_nor_buried(ctx: &Ctx) -> Outcome {
    let (client, key, me) = (ctx.client().await?, key("k")?, owner());
    let claimed = client.key(&key, me, ctx.long()).await?;
    check_eq("the item", claimed.claim.item, ItemId::TOKEN)?;
    check_eq(
        "the lane",
        claimed.claim.lane.clone(),
        Lane::Key(key.clone()),
    )?;
    check(claimed.body.is_empty(), "an empty payload", &claimed)?;
    for settle in [Settle::Complete, bury("no")] {
        let batch = [(claimed.claim.clone(), settle)];
        let answers = client.store().settle(client.queue(), &batch).await;
        let invalid = |e: &lease_core::StoreError| e.kind() == StoreErrorKind::InvalidInput;
        let right = answers.len() == 1 && answers.iter().all(|a| a.as_ref().is_err_and(invalid));
        check(right, "InvalidInput", &answers)?;
    }
    client
        .done(&claimed.claim, Settle::Extend(ctx.long()))
        .await?;
    client.done(&claimed.claim, back(false)).await
}

async fn a_delay_over_the_limit_is_invalid(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    client.add(&[item("a")]).await?;
    let claimed = client.one(ctx.long()).await?;
    let settle = Settle::Retry {
        delay: MAX_DELAY + Duration::from_secs(1),
        counts: true,
        error: None,
    };
    let batch = [(claimed.claim.clone(), settle)];
    let answers = client.store().settle(client.queue(), &batch).await;
    let invalid = |e: &lease_core::StoreError| e.kind() == StoreErrorKind::InvalidInput;
    let right = answers.len() == 1 && answers.iter().all(|a| a.as_ref().is_err_and(invalid));
    check(right, "InvalidInput", &answers)?;
    client.done(&claimed.claim, Settle::Complete).await
}
