//! The key space: two different keys never share anything.

use std::collections::BTreeSet;

use futures_util::{StreamExt, TryStreamExt, stream};
use lease_core::{AcquireOutcome, FenceWhen, Key, StoreErrorKind};

use super::token::token;
use crate::case::group;
use crate::client::{Held, ask};
use crate::context::{Ctx, key, owner};
use crate::failure::{Failure, Outcome, check, check_eq};

group! { "keys";
    odd_keys_are_different_keys:
        "Keys are compared byte for byte: whatever separators, braces, wildcards, spaces, letter cases or normal forms they differ in, two keys never share a grant or a mark.";
    odd_keys_are_listed_as_they_are [Listing]:
        "Keys are listed byte for byte as they were given, each under each of its prefixes.";
    every_call_takes_odd_keys:
        "Every operation takes every valid key.";
    the_longest_keys_are_taken:
        "A key may be as long as the claimed limit; two such keys that differ in the last byte are different.";
    keys_above_a_narrower_limit_are_invalid [NarrowKeys]:
        "A key above the store's own limit is InvalidInput, never cut.";
    many_keys_are_held_at_once:
        "Hundreds of keys are held at once by different owners, each with its own grant.";
}

/// Keys that some store somewhere takes for one another.
fn odd(limit: usize) -> Outcome<Vec<Key>> {
    let long = "k".repeat(limit - 1);
    let (long_a, long_b) = (format!("{long}a"), format!("{long}b"));
    let texts = [
        "a",
        "ab",
        "a/b",
        "a/",
        "/a",
        "a//b",
        "a:b",
        "a::b",
        ":",
        "::",
        "/",
        "a.b",
        "a.",
        ".a",
        ".",
        "..",
        "x.",
        "x",
        "x ",
        " x",
        " ",
        "  ",
        "{x}",
        "{}",
        "a}b{c",
        "{a}b",
        "{a}c",
        "{",
        "*",
        "a*",
        "?",
        "[ab]",
        "%",
        "a%",
        "%61",
        "_",
        "a_",
        "\\",
        "a\\b",
        "'",
        "''",
        "\"",
        "`",
        "a b",
        "a+b",
        "a%20b",
        "a,b",
        "a;b",
        "a|b",
        "a=b",
        "a>b",
        "a.>",
        ">",
        "$",
        "$1",
        "#",
        "~",
        "--",
        "; DROP TABLE leases; --",
        "A",
        "AB",
        "Ab",
        "é",
        "e\u{301}",
        "É",
        "ß",
        "SS",
        "ss",
        "ı",
        "i",
        "I",
        "İ",
        "🦀",
        "🦀🦀",
        "\u{200b}",
        "\u{feff}",
        "a\u{200d}b",
        "０",
        "0",
        "00",
        "1",
        "01",
        "1.0",
        "-1",
        "null",
        "NULL",
        "true",
        "K",
        "\u{212a}",
        "ﬁ",
        "fi",
        "q",
        "\u{fffd}",
        &long_a,
        &long_b,
        &long,
    ];
    texts
        .into_iter()
        .filter(|text| text.len() <= limit)
        .map(key)
        .collect()
}

async fn odd_keys_are_different_keys(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let keys = odd(ctx.guarantees().max_key_bytes)?;
    let mut held = Vec::new();
    for (i, key) in keys.iter().enumerate() {
        // Tokens that say which key they are of.
        let request = crate::client::ask_exactly(key, owner(), ctx.long(), token(1000 + i as u64)?);
        match client.acquire(&request).await? {
            AcquireOutcome::Granted(granted) => held.push(Held {
                key: key.clone(),
                owner: request.owner,
                token: granted.token,
            }),
            other => {
                return Err(Failure::new(
                    format!("{key:?} is granted while only other keys are held"),
                    other,
                ));
            }
        }
    }
    for held in &held {
        client.is_live(held).await?;
        check_eq("the mark", client.mark(&held.key).await?, held.token)?;
        let seen = client.held(&ask(&held.key, owner(), ctx.long())).await?;
        check_eq("the holder's token", seen.token, held.token)?;
    }
    // Freeing every second one leaves the others alone.
    for (i, held) in held.iter().enumerate() {
        if i % 2 == 0 {
            client.released(held).await?;
        }
    }
    for (i, held) in held.iter().enumerate() {
        if i % 2 == 1 {
            client.is_live(held).await?;
        } else {
            let state = client.inspect(&held.key).await?;
            check(state.holder.is_none(), "the released key is free", state)?;
        }
    }
    Ok(())
}

async fn odd_keys_are_listed_as_they_are(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let keys = odd(ctx.guarantees().max_key_bytes)?;
    for key in &keys {
        client.grant(key, owner(), ctx.long()).await?;
    }
    // Every key's first character, and every key itself, as a prefix.
    let firsts = keys.iter().filter_map(|k| k.as_str().get(..first_len(k)));
    let prefixes: BTreeSet<&str> = firsts.chain(keys.iter().map(Key::as_str)).collect();
    for prefix in prefixes.into_iter().chain([""]) {
        let listed = client.list(prefix).await?;
        let mut seen: Vec<Key> = listed.into_iter().map(|state| state.key).collect();
        seen.sort();
        let mut due: Vec<Key> = keys
            .iter()
            .filter(|k| k.as_str().starts_with(prefix))
            .cloned()
            .collect();
        due.sort();
        check_eq(&format!("the keys under {prefix:?}"), seen, due)?;
    }
    Ok(())
}

fn first_len(key: &Key) -> usize {
    key.as_str().chars().next().map_or(0, char::len_utf8)
}

async fn every_call_takes_odd_keys(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    for key in odd(ctx.guarantees().max_key_bytes)? {
        let held = client.grant(&key, owner(), ctx.long()).await?;
        client.renewed(&held, ctx.long()).await?;
        client
            .renew_many(&[crate::client::renewal(&held, ctx.long())])
            .await?;
        drop(client.watch(&key).await?);
        client.released(&held).await?;
        client.abandon(&key, held.owner).await?;
        let mark = token(held.token.get() + 1)?;
        let fenced = client.fence(&key, mark, FenceWhen::AtExpiry).await?;
        check_eq("the mark", fenced, mark)?;
    }
    Ok(())
}

async fn the_longest_keys_are_taken(ctx: &Ctx) -> Outcome {
    let (client, limit) = (ctx.client().await?, ctx.guarantees().max_key_bytes);
    let mut tokens = Vec::new();
    for fill in ["k", "é", "🦀"] {
        let body = fill.repeat((limit - 1) / fill.len());
        let body = format!(
            "{body:x<width$}",
            width = body.chars().count() + (limit - 1 - body.len())
        );
        for last in ["a", "b", "A"] {
            let key = key(&format!("{body}{last}"))?;
            check_eq(
                "the suite's key is as long as the limit",
                key.as_str().len(),
                limit,
            )?;
            let held = client.grant(&key, owner(), ctx.long()).await?;
            tokens.push(held);
        }
    }
    for held in &tokens {
        client.is_live(held).await?;
    }
    Ok(())
}

async fn keys_above_a_narrower_limit_are_invalid(ctx: &Ctx) -> Outcome {
    let (client, limit) = (ctx.client().await?, ctx.guarantees().max_key_bytes);
    let key = key(&"k".repeat(limit + 1))?;
    let answer = client
        .backend()
        .acquire(&ask(&key, owner(), ctx.long()))
        .await;
    match answer {
        Err(e) if e.kind() == StoreErrorKind::InvalidInput => Ok(()),
        other => Err(Failure::new(
            format!("a key of {} bytes is InvalidInput", limit + 1),
            other,
        )),
    }
}

async fn many_keys_are_held_at_once(ctx: &Ctx) -> Outcome {
    let clients = ctx.clients(4).await?;
    let held: Vec<Held> = stream::iter(0..600)
        .map(|i| {
            let client = clients[i % 4].clone();
            async move {
                client
                    .grant(&key(&format!("{i}"))?, owner(), ctx.long())
                    .await
            }
        })
        .buffer_unordered(32)
        .try_collect()
        .await?;
    stream::iter(held.into_iter().enumerate())
        .map(|(i, held)| {
            let client = clients[(i + 1) % 4].clone();
            async move {
                client.is_live(&held).await?;
                client.held(&ask(&held.key, owner(), ctx.long())).await?;
                client.released(&held).await?;
                let state = client.inspect(&held.key).await?;
                check(state.holder.is_none(), "the released key is free", state)
            }
        })
        .buffer_unordered(32)
        .try_collect()
        .await
}
