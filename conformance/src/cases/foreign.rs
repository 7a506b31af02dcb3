//! Values that are not the store's, at the place of a key.

use std::collections::BTreeSet;
use std::fmt;

use futures_util::StreamExt;
use lease_core::{FenceWhen, Key, RenewOutcome, StoreError, StoreErrorKind};

use super::token::token;
use crate::case::group;
use crate::client::{Client, Held, ask, renewal};
use crate::context::{Ctx, hooked, key, owner};
use crate::failure::{Failure, Outcome, check, check_eq};
use crate::hooks::{Spoil, Spoiling};

group! { "foreign";
    a_foreign_value_is_refused_and_left_alone [Spoiling]:
        "A foreign value in a key's place is answered with Refusing, by every operation that would read or write it, and is not touched.";
    a_grant_that_was_overwritten_is_refused [Spoiling]:
        "A holder whose grant was overwritten by a foreign value is told Refusing, and the value is not touched.";
    a_foreign_value_spoils_its_own_key_only [Spoiling]:
        "A foreign value in one key's place changes nothing for other keys, in one list with it or not.";
    a_listing_passes_foreign_values_over [SpoiledListing]:
        "A listing gives every key that has a mark, whatever foreign values stand between them.";
}

fn spoiling(ctx: &Ctx) -> Outcome<&dyn Spoiling> {
    let hook = ctx.store().spoiling();
    hook.ok_or_else(|| Failure::says("the fixture's hook, as before", "none"))
}

/// Spoils the key in each way that the store can have, one after the other.
async fn each_way<F>(ctx: &Ctx, mut then: impl FnMut(Spoil, Key) -> F) -> Outcome
where
    F: Future<Output = Outcome>,
{
    let hook = spoiling(ctx)?;
    let mut any = false;
    for how in Spoil::ALL {
        let key = key(&format!("foreign/{how:?}"))?;
        if hooked("spoils a key", hook.spoil(&key, how).await)? {
            any = true;
            then(how, key).await?;
        }
    }
    check(any, "one kind of foreign value at least", "none")
}

/// Makes every call, and looks at the foreign value after each.
async fn calls(ctx: &Ctx, client: &Client, held: &Held, how: Spoil) -> Outcome {
    let (key, store) = (&held.key, client.backend());
    let request = ask(key, held.owner, ctx.long());
    refusing("acquire", how, store.acquire(&request).await)?;
    is_intact(ctx, "acquire", key, how).await?;
    let renew = renewal(held, ctx.long());
    refusing("renew", how, store.renew(&renew).await)?;
    is_intact(ctx, "renew", key, how).await?;
    let many = store.renew_many(std::slice::from_ref(&renew)).await;
    check_eq("the outcomes of renew_many", many.len(), 1)?;
    for outcome in many {
        refusing("renew_many", how, outcome)?;
    }
    is_intact(ctx, "renew_many", key, how).await?;
    let released = store.release(key, held.owner, held.token).await;
    refusing("release", how, released)?;
    is_intact(ctx, "release", key, how).await?;
    for when in [FenceWhen::AtExpiry, FenceWhen::Immediately] {
        refusing("fence", how, store.fence(key, held.token, when).await)?;
        is_intact(ctx, "fence", key, how).await?;
    }
    refusing("inspect", how, store.inspect(key).await)?;
    // Its tombstone may be somewhere else: then there is nothing to refuse.
    match store.abandon(key, held.owner).await {
        Ok(()) => {}
        refused => refusing("abandon", how, refused)?,
    }
    is_intact(ctx, "abandon", key, how).await
}

fn refusing<T: fmt::Debug>(call: &str, how: Spoil, answer: Result<T, StoreError>) -> Outcome {
    match answer {
        Err(e) if e.kind() == StoreErrorKind::Refusing && !e.to_string().is_empty() => Ok(()),
        other => Err(Failure::new(
            format!("{call} of a key that is spoiled ({how:?}): Refusing, with words"),
            other,
        )),
    }
}

async fn is_intact(ctx: &Ctx, call: &str, key: &Key, how: Spoil) -> Outcome {
    let hook = spoiling(ctx)?;
    let looked = hook.spoiled_is_intact(key, how).await;
    check(
        hooked("looks at the foreign value", looked)?,
        format!("{call} leaves the foreign value ({how:?}) alone"),
        "it changed",
    )
}

async fn a_foreign_value_is_refused_and_left_alone(ctx: &Ctx) -> Outcome {
    let client = &ctx.client().await?;
    each_way(ctx, |how, key| async move {
        let nobody = Held {
            key,
            owner: owner(),
            token: token(9)?,
        };
        calls(ctx, client, &nobody, how).await
    })
    .await
}

async fn a_grant_that_was_overwritten_is_refused(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let hook = spoiling(ctx)?;
    for how in Spoil::ALL {
        let key = key(&format!("overwritten/{how:?}"))?;
        let held = client.grant(&key, owner(), ctx.long()).await?;
        if hooked("spoils a key", hook.spoil(&key, how).await)? {
            calls(ctx, &client, &held, how).await?;
        }
    }
    Ok(())
}

async fn a_foreign_value_spoils_its_own_key_only(ctx: &Ctx) -> Outcome {
    let client = &ctx.client().await?;
    each_way(ctx, |how, spoiled| async move {
        let well = key(&format!("well/{how:?}"))?;
        let held = client.grant(&well, owner(), ctx.long()).await?;
        let foreign = Held {
            key: spoiled,
            ..held.clone()
        };
        let (good, bad) = (renewal(&held, ctx.long()), renewal(&foreign, ctx.long()));
        let list = [good.clone(), bad, good];
        let outcomes = client.backend().renew_many(&list).await;
        match &outcomes[..] {
            [Ok(RenewOutcome::Renewed), Err(e), Ok(RenewOutcome::Renewed)]
                if e.kind() == StoreErrorKind::Refusing => {}
            _ => {
                return Err(Failure::new(
                    format!("Renewed, Refusing for the spoiled key ({how:?}), Renewed"),
                    outcomes,
                ));
            }
        }
        client.is_live(&held).await?;
        client.released(&held).await
    })
    .await
}

async fn a_listing_passes_foreign_values_over(ctx: &Ctx) -> Outcome {
    let client = &ctx.client().await?;
    let hook = spoiling(ctx)?;
    let mut due = BTreeSet::new();
    for i in 0..8 {
        let well = key(&format!("list/{i}"))?;
        client.grant(&well, owner(), ctx.long()).await?;
        due.insert(well);
        for how in Spoil::ALL {
            let spoiled = key(&format!("list/{i}/{how:?}"))?;
            hooked("spoils a key", hook.spoil(&spoiled, how).await)?;
        }
    }
    let mut listed = BTreeSet::new();
    let mut stream = client.backend().list("list/");
    while let Some(item) = stream.next().await {
        let state = item.map_err(|e| Failure::new("a listing without an error", e))?;
        if due.contains(&state.key) {
            listed.insert(state.key);
        }
    }
    check_eq("the keys in the listing", listed, due)
}
