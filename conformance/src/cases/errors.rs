//! Nothing panics and nothing is half done, whatever is asked for.

use lease_core::{FenceWhen, Key, Owner, StoreError, StoreErrorKind, Token, Ttl};

use super::token::token;
use crate::case::group;
use crate::client::{Client, Held, ask, ask_exactly, renewal};
use crate::context::{Ctx, key, owner};
use crate::failure::{Failure, Outcome, check};

group! { "errors";
    every_call_of_a_fresh_key_is_answered:
        "Every operation on a key that the store has never seen is answered, in any order.";
    odd_owners_and_tokens_are_answered:
        "Owners of all zeros or ones and the lowest and highest tokens are taken as they are.";
    invalid_input_is_typed_and_harmless:
        "What a store's own limits do not allow is answered with InvalidInput, and the key is as before.";
    two_calls_of_one_client_do_not_wait_for_one_another:
        "One client takes many calls at a time, and each has its own answer.";
}

async fn every_call_of_a_fresh_key_is_answered(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    for first in 0..7 {
        let fresh = Held {
            key: key(&format!("fresh/{first}"))?,
            owner: owner(),
            token: token(9)?,
        };
        for step in 0..7 {
            call(ctx, &client, &fresh, (first + step) % 7).await?;
        }
    }
    Ok(())
}

async fn call(ctx: &Ctx, client: &Client, held: &Held, which: usize) -> Outcome {
    match which {
        0 => client.inspect(&held.key).await.map(drop),
        1 => client.renew(held, ctx.long()).await.map(drop),
        2 => client.release(held).await.map(drop),
        3 => client
            .fence(&held.key, held.token, FenceWhen::Immediately)
            .await
            .map(drop),
        4 => client
            .acquire(&ask(&held.key, held.owner, ctx.long()))
            .await
            .map(drop),
        5 => client.abandon(&held.key, held.owner).await,
        _ => client
            .renew_many(&[renewal(held, ctx.long())])
            .await
            .map(drop),
    }
}

async fn odd_owners_and_tokens_are_answered(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let owners = [
        [0; 16],
        [0xff; 16],
        *b"'; DROP TABLE --",
        [b'\n'; 16],
        [0x80; 16],
    ];
    for (i, bytes) in owners.into_iter().enumerate() {
        let (key, me) = (key(&format!("odd/{i}"))?, Owner::from_bytes(bytes));
        let held = client.grant(&key, me, ctx.long()).await?;
        for other in [Token::MIN, Token::MAX] {
            // A store that counts grants the lowest one first.
            if other != held.token {
                client
                    .not_held(&Held {
                        token: other,
                        ..held.clone()
                    })
                    .await?;
            }
        }
        client.renewed(&held, ctx.long()).await?;
        client.is_live(&held).await?;
        client.held(&ask(&key, owner(), ctx.long())).await?;
        client
            .granted(&ask_exactly(&key, me, ctx.long(), Token::MAX))
            .await?;
        let highest = Held {
            token: Token::MAX,
            ..held
        };
        client.released(&highest).await?;
        client.abandon(&key, me).await?;
        client.refused(&ask(&key, me, ctx.long())).await?;
    }
    Ok(())
}

async fn invalid_input_is_typed_and_harmless(ctx: &Ctx) -> Outcome {
    let (client, range) = (ctx.client().await?, ctx.guarantees().ttl);
    let held = client.grant(&key("harmless")?, owner(), ctx.long()).await?;
    let too_high = client
        .backend()
        .fence(&held.key, Token::MAX, FenceWhen::Immediately);
    invalid("a fence above 2^52", too_high.await)?;
    for ttl in [Ttl::MIN, Ttl::MAX] {
        if ttl.get() < range.min || ttl.get() > range.max {
            let fresh: Key = key("harmless/fresh")?;
            let answer = client.backend().acquire(&ask(&fresh, owner(), ttl)).await;
            invalid("an acquire outside the store's TTL range", answer)?;
            let state = client.inspect(&fresh).await?;
            check(
                state.high_water.is_none(),
                "a key as before: without a mark",
                state,
            )?;
        }
    }
    client.is_live(&held).await?;
    client.released(&held).await
}

fn invalid<T: std::fmt::Debug>(what: &str, answer: Result<T, StoreError>) -> Outcome {
    match answer {
        Err(e) if e.kind() == StoreErrorKind::InvalidInput && !e.to_string().is_empty() => Ok(()),
        other => Err(Failure::new(
            format!("{what}: InvalidInput with words"),
            other,
        )),
    }
}

async fn two_calls_of_one_client_do_not_wait_for_one_another(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let hints = client.watch(&key("together/0")?).await?;
    let calls = (0..64).map(|i| {
        let client = client.clone();
        async move {
            let held = client
                .grant(&key(&format!("together/{}", i))?, owner(), ctx.long())
                .await?;
            client.renewed(&held, ctx.long()).await?;
            client.is_live(&held).await?;
            client.released(&held).await
        }
    });
    futures_util::future::try_join_all(calls).await?;
    drop(hints);
    Ok(())
}
