//! Listing keys.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{StreamExt, TryStreamExt, stream};
use lease_core::{AcquireRequest, FenceWhen, Key, KeyState};

use super::token::token;
use crate::case::group;
use crate::client::{Client, ask};
use crate::context::{Ctx, key, label, owner};
use crate::failure::{Failure, Outcome, check, check_eq};

group! { "listing";
    held_and_free_keys_are_listed [Listing]:
        "list gives every key that has a mark, held or not, with what inspect says of it.";
    a_prefix_is_exact_bytes [Listing]:
        "list gives the keys that start with exactly the prefix's bytes: no wildcards, no folding, no separators of its own.";
    many_pages_are_listed [Listing]:
        "list gives more keys than fit into one page, each exactly once.";
    listing_ends_while_keys_are_added [Listing]:
        "list ends even while keys are being added, and gives every key that stood unchanged meanwhile exactly once.";
    nothing_is_listed_of_nothing [Listing]:
        "list of a prefix without keys ends at once with nothing.";
    a_key_without_a_mark_is_not_listed [Listing]:
        "A key that was only looked at, watched, released or abandoned has no mark and is not listed.";
}

async fn fill(client: &Client, prefix: &str, count: usize) -> Outcome {
    stream::iter(0..count)
        .map(|i| {
            let client = client.clone();
            async move {
                let key = key(&format!("{prefix}{i:05}"))?;
                client
                    .fence(&key, token(1 + i as u64)?, FenceWhen::AtExpiry)
                    .await
            }
        })
        .buffer_unordered(32)
        .try_for_each(|_| std::future::ready(Ok(())))
        .await
}

/// The listed keys, each of which must be there once.
fn by_key(states: Vec<KeyState>) -> Outcome<BTreeMap<Key, KeyState>> {
    let mut all = BTreeMap::new();
    for state in states {
        if let Some(twice) = all.insert(state.key.clone(), state) {
            return Err(Failure::new("each key is given once", twice));
        }
    }
    Ok(all)
}

async fn held_and_free_keys_are_listed(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let request = AcquireRequest {
        label: label("worker")?,
        ..ask(&key("held")?, owner(), ctx.long())
    };
    let token_held = client.granted(&request).await?.token;
    let released = client.grant(&key("released")?, owner(), ctx.long()).await?;
    client.released(&released).await?;
    let abandoned = client
        .grant(&key("abandoned")?, owner(), ctx.long())
        .await?;
    client.abandon(&abandoned.key, abandoned.owner).await?;
    client
        .fence(&key("fenced")?, token(77)?, FenceWhen::AtExpiry)
        .await?;
    let expired = client.grant(&key("expired")?, owner(), ctx.short()).await?;
    ctx.until_free(&client, &expired.key, ctx.short()).await?;

    let listed = by_key(client.list("").await?)?;
    let marks = listed
        .iter()
        .map(|(k, s)| (k.to_string(), s.high_water.map(|t| t.get())));
    let due = [
        ("abandoned", abandoned.token),
        ("expired", expired.token),
        ("fenced", token(77)?),
        ("held", token_held),
        ("released", released.token),
    ];
    let due = due.map(|(k, t)| (k.to_owned(), Some(t.get())));
    check_eq(
        "the keys with their marks",
        marks.collect::<Vec<_>>(),
        due.to_vec(),
    )?;
    for (key, state) in &listed {
        let inspected = client.inspect(key).await?;
        let words = |s: &KeyState| s.holder.as_ref().map(|h| (h.label.clone(), h.token));
        check_eq(
            &format!("the holder of {key:?}"),
            words(state),
            words(&inspected),
        )?;
    }
    let holder = listed.get(&request.key).and_then(|s| s.holder.as_ref());
    check_eq(
        "the holder of the held key",
        holder.map(|h| h.token),
        Some(token_held),
    )
}

async fn a_prefix_is_exact_bytes(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let keys = [
        "a", "a/", "a/b", "ab", "A", "A/b", "a%", "a%b", "a_b", "a*", "a*b", "a?b", "a[b]", "a\\b",
        "{a}", "{a}b", "é", "e\u{301}", "e", "a'b", "a.b", "a.>",
    ];
    for (i, text) in keys.iter().enumerate() {
        client
            .fence(&key(text)?, token(1 + i as u64)?, FenceWhen::AtExpiry)
            .await?;
    }
    let prefixes = [
        "", "a", "a/", "A", "a%", "a_", "a*", "a?", "a[", "a[b]", "a\\", "{", "{a}", "é", "e",
        "a'", "a.", "*", "%", "_", "?", "a/b/", "b",
    ];
    for prefix in prefixes {
        let listed = by_key(client.list(prefix).await?)?;
        let seen: Vec<&str> = listed.keys().map(Key::as_str).collect();
        let mut due: Vec<&str> = keys
            .iter()
            .copied()
            .filter(|k| k.starts_with(prefix))
            .collect();
        due.sort_unstable();
        check_eq(&format!("the keys under {prefix:?}"), seen, due)?;
    }
    Ok(())
}

async fn many_pages_are_listed(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    fill(&client, "page/", 1200).await?;
    fill(&client, "other/", 300).await?;
    let listed = by_key(client.list("page/").await?)?;
    check_eq("how many keys are under \"page/\"", listed.len(), 1200)?;
    for (i, (key, state)) in listed.iter().enumerate() {
        check_eq("the key", key.as_str(), format!("page/{i:05}").as_str())?;
        check_eq("its mark", state.high_water, Some(token(1 + i as u64)?))?;
    }
    check_eq(
        "how many keys there are",
        client.list("").await?.len(),
        1500,
    )
}

async fn listing_ends_while_keys_are_added(ctx: &Ctx) -> Outcome {
    let (client, writer) = (ctx.client().await?, ctx.client().await?);
    fill(&client, "m/", 700).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let adding = tokio::spawn({
        let stop = Arc::clone(&stop);
        async move {
            // Before, between and after the keys that stand.
            for i in 0..20_000_u64 {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let place = ["m/", "m/0", "m/00350-", "m/z"][i as usize % 4];
                let key = key(&format!("{place}+{i}"))?;
                writer.fence(&key, token(1)?, FenceWhen::AtExpiry).await?;
                tokio::task::yield_now().await;
            }
            Outcome::Ok(())
        }
    });
    let mut counts = BTreeMap::new();
    for round in 0..3 {
        let listed = client.list("m/").await?;
        counts.clear();
        for state in listed {
            if !state.key.as_str().contains('+') {
                *counts.entry(state.key).or_insert(0) += 1;
            }
        }
        check_eq(
            &format!("standing keys given in listing {round}"),
            counts.len(),
            700,
        )?;
        let twice = counts.iter().find(|(_, count)| **count != 1);
        check(twice.is_none(), "each of them exactly once", twice)?;
    }
    stop.store(true, Ordering::Relaxed);
    adding
        .await
        .map_err(|e| Failure::new("nothing panics", e))?
}

async fn nothing_is_listed_of_nothing(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    check_eq("keys of an empty store", client.list("").await?, Vec::new())?;
    client.grant(&key("some")?, owner(), ctx.long()).await?;
    check_eq(
        "keys under another prefix",
        client.list("other").await?,
        Vec::new(),
    )?;
    check_eq(
        "keys under a longer prefix",
        client.list("somewhere").await?,
        Vec::new(),
    )
}

async fn a_key_without_a_mark_is_not_listed(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("markless")?);
    client.inspect(&key).await?;
    let hints = client.watch(&key).await?;
    let never = crate::client::Held {
        key: key.clone(),
        owner: owner(),
        token: token(1)?,
    };
    client.not_held(&never).await?;
    client.renew(&never, ctx.long()).await?;
    client.abandon(&key, never.owner).await?;
    let listed = client.list("").await?;
    drop(hints);
    check_eq("the keys", listed, Vec::new())
}
