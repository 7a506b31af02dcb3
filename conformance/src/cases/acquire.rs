//! Acquiring: who is granted a key.

use lease_core::{AcquireRequest, LostCause};

use crate::case::group;
use crate::client::{Held, ask};
use crate::context::{Ctx, key, label, owner};
use crate::failure::{Outcome, check, check_eq};

group! { "acquire";
    a_free_key_is_granted:
        "A key that nobody holds is granted, and its mark becomes the grant's token.";
    another_owner_is_held:
        "While a grant is live, no other owner is granted the key, whichever client asks.";
    same_owner_gets_the_same_grant:
        "The same owner asking again while its grant is live gets the same grant and token.";
    one_label_is_not_one_owner:
        "Labels are for people and decide nothing: two owners with one label exclude each other.";
    a_released_key_is_granted_again:
        "A release frees the key at once, for a grant with a higher token.";
    a_takeover_names_whose_grant_had_ended:
        "The hint of whom a grant took over from is about a grant that ended without a release, or is not given.";
    keys_are_independent:
        "A grant of one key has no effect on another key.";
    owners_are_the_keys_own:
        "A grant belongs to its key: its owner and token prove nothing about another key.";
}

async fn a_free_key_is_granted(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("free")?);
    let before = client.inspect(&key).await?;
    check(
        before.holder.is_none() && before.high_water.is_none() && before.blocked_for.is_none(),
        "a key that was never granted nor fenced has no holder and no mark",
        before,
    )?;
    let held = client.grant(&key, owner(), ctx.long()).await?;
    client.is_live(&held).await?;
    check_eq("the mark", client.mark(&key).await?, held.token)
}

async fn another_owner_is_held(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("held")?);
    let held = one.grant(&key, owner(), ctx.long()).await?;
    for client in [&one, &two] {
        for _ in 0..3 {
            let holder = client.held(&ask(&key, owner(), ctx.long())).await?;
            check_eq("the holder's token", holder.token, held.token)?;
        }
    }
    one.is_live(&held).await.map(drop)
}

async fn same_owner_gets_the_same_grant(ctx: &Ctx) -> Outcome {
    let (client, key, me) = (ctx.client().await?, key("same")?, owner());
    let first = client.grant(&key, me, ctx.long()).await?;
    for _ in 0..3 {
        let again = client.grant(&key, me, ctx.long()).await?;
        check_eq("the token of the same grant", again.token, first.token)?;
    }
    check_eq("the mark", client.mark(&key).await?, first.token)?;
    client.released(&first).await
}

async fn one_label_is_not_one_owner(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("label")?);
    let request = |me| -> Outcome<AcquireRequest> {
        Ok(AcquireRequest {
            label: label("worker@host")?,
            ..ask(&key, me, ctx.long())
        })
    };
    let (first, second) = (owner(), owner());
    let token = client.granted(&request(first)?).await?.token;
    client.held(&request(second)?).await?;
    let foreign = Held {
        key: key.clone(),
        owner: second,
        token,
    };
    let honest = [LostCause::TakenOver, LostCause::Unknown];
    client.lost(&foreign, ctx.long(), &honest).await?;
    client.not_held(&foreign).await?;
    let mine = Held {
        owner: first,
        ..foreign
    };
    client.is_live(&mine).await.map(drop)
}

async fn a_released_key_is_granted_again(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("again")?);
    let first = one.grant(&key, owner(), ctx.long()).await?;
    one.released(&first).await?;
    let second = two.grant(&key, owner(), ctx.long()).await?;
    check(
        second.token > first.token,
        format!("a token above {}", first.token),
        second.token,
    )
}

async fn a_takeover_names_whose_grant_had_ended(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("takeover")?);
    let first = client
        .granted(&AcquireRequest {
            label: label("first")?,
            ..ask(&key, owner(), ctx.short())
        })
        .await?;
    check_eq("taken over on a fresh key", first.taken_over, None)?;
    ctx.until_free(&client, &key, ctx.short()).await?;
    let me = owner();
    let second = client.granted(&ask(&key, me, ctx.long())).await?;
    if let Some(from) = second.taken_over {
        check_eq("the former holder's token", from.token, first.token)?;
        check_eq("the former holder's label", from.label, label("first")?)?;
    }
    let second = Held {
        key: key.clone(),
        owner: me,
        token: second.token,
    };
    client.released(&second).await?;
    let third = client.granted(&ask(&key, owner(), ctx.long())).await?;
    check_eq("taken over after a release", third.taken_over, None)
}

async fn keys_are_independent(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let a = client.grant(&key("one")?, owner(), ctx.long()).await?;
    let b = client.grant(&key("two")?, owner(), ctx.long()).await?;
    client.released(&a).await?;
    client.is_live(&b).await?;
    client.renewed(&b, ctx.long()).await?;
    check(
        client.inspect(&a.key).await?.holder.is_none(),
        "the released key stays free",
        "it is held",
    )
}

async fn owners_are_the_keys_own(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let a = client.grant(&key("mine")?, owner(), ctx.long()).await?;
    let b = client.grant(&key("theirs")?, owner(), ctx.long()).await?;
    let crossed = Held {
        key: b.key.clone(),
        ..a.clone()
    };
    let honest = [LostCause::TakenOver, LostCause::Unknown];
    client.lost(&crossed, ctx.long(), &honest).await?;
    client.not_held(&crossed).await?;
    client.abandon(&b.key, a.owner).await?;
    client.is_live(&a).await?;
    client.is_live(&b).await.map(drop)
}
