//! Calls that are dropped half-way: their outcome is unknown, and nothing else
//! is harmed.

use lease_core::{Key, ReleaseOutcome};

use super::token::token;
use crate::case::group;
use crate::client::{Client, ask, renewal};
use crate::context::{Ctx, key, owner};
use crate::dropping::dropped_after;
use crate::failure::{Failure, Outcome, check};

group! { "unknown_outcome";
    a_dropped_acquire_is_cleaned_up_by_abandon:
        "An acquire dropped at any await point may take effect or not; abandoning its owner frees the key, now and when the request arrives later.";
    a_dropped_abandon_may_be_repeated:
        "An abandon dropped at any await point may be repeated until it is answered.";
    a_dropped_renew_may_be_repeated:
        "A renew dropped at any await point may take effect or not; the grant stays live and may be renewed again.";
    a_dropped_release_may_be_repeated:
        "A release dropped at any await point may take effect or not; repeating it frees the key.";
    a_dropped_fence_may_be_repeated:
        "A fence dropped at any await point may be repeated.";
    dropped_reads_harm_nothing:
        "An inspect, a list or a watch dropped at any await point harms nothing.";
    many_dropped_calls_leave_the_client_usable:
        "However many calls were dropped, the client goes on answering: none takes a connection or a lock with it.";
}

/// No call is polled more often than this.
const MOST_POLLS: usize = 200;

/// Which poll to drop at, one after the other: more and more coarsely.
fn polls() -> impl Iterator<Item = usize> {
    (0..MOST_POLLS).filter(|k| *k < 12 || k % 16 == 0)
}

async fn is_free(ctx: &Ctx, client: &Client, key: &Key) -> Outcome {
    let next = client.grant(key, owner(), ctx.long()).await?;
    client.released(&next).await
}

async fn a_dropped_acquire_is_cleaned_up_by_abandon(ctx: &Ctx) -> Outcome {
    let (client, other) = (ctx.client().await?, ctx.client().await?);
    for k in polls() {
        let (key, me) = (key(&format!("acquire/{k}"))?, owner());
        let request = ask(&key, me, ctx.long());
        let done = dropped_after(k, client.backend().acquire(&request)).await;
        client.inspect(&key).await?;
        client.abandon(&key, me).await?;
        is_free(ctx, &other, &key).await?;
        is_free(ctx, &client, &key).await?;
        client.refused(&request).await?;
        if done.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

async fn a_dropped_abandon_may_be_repeated(ctx: &Ctx) -> Outcome {
    let (client, other) = (ctx.client().await?, ctx.client().await?);
    for k in polls() {
        let key = key(&format!("abandon/{k}"))?;
        let held = client.grant(&key, owner(), ctx.long()).await?;
        let done = dropped_after(k, client.backend().abandon(&key, held.owner)).await;
        client.abandon(&key, held.owner).await?;
        is_free(ctx, &other, &key).await?;
        client.refused(&ask(&key, held.owner, ctx.long())).await?;
        if done.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

async fn a_dropped_renew_may_be_repeated(ctx: &Ctx) -> Outcome {
    let (client, other) = (ctx.client().await?, ctx.client().await?);
    for k in polls() {
        let key = key(&format!("renew/{k}"))?;
        let held = client.grant(&key, owner(), ctx.long()).await?;
        let request = renewal(&held, ctx.long());
        let one = dropped_after(k, client.backend().renew(&request)).await;
        let list = [request.clone(), request];
        let many = dropped_after(k, client.backend().renew_many(&list)).await;
        other.is_live(&held).await?;
        client.renewed(&held, ctx.long()).await?;
        client.released(&held).await?;
        is_free(ctx, &other, &key).await?;
        if one.is_some() && many.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

async fn a_dropped_release_may_be_repeated(ctx: &Ctx) -> Outcome {
    let (client, other) = (ctx.client().await?, ctx.client().await?);
    for k in polls() {
        let key = key(&format!("release/{k}"))?;
        let held = client.grant(&key, owner(), ctx.long()).await?;
        let call = client.backend().release(&key, held.owner, held.token);
        let done = dropped_after(k, call).await;
        let again = client.release(&held).await?;
        check(
            k > 0 || again == ReleaseOutcome::Released,
            "a release that was never polled had no effect: Released",
            again,
        )?;
        is_free(ctx, &other, &key).await?;
        client.not_held(&held).await?;
        if done.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

async fn a_dropped_fence_may_be_repeated(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    for k in polls() {
        let key = key(&format!("fence/{k}"))?;
        let held = client.grant(&key, owner(), ctx.long()).await?;
        let mark = token(held.token.get() + 1)?;
        let when = lease_core::FenceWhen::Immediately;
        let done = dropped_after(k, client.backend().fence(&key, mark, when)).await;
        let after = client.fence(&key, mark, when).await?;
        check(after == mark, format!("a mark of {mark}"), after)?;
        is_free(ctx, &client, &key).await?;
        if done.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

async fn dropped_reads_harm_nothing(ctx: &Ctx) -> Outcome {
    use futures_util::StreamExt;
    let (client, key) = (ctx.client().await?, key("reads")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    for k in polls() {
        let inspected = dropped_after(k, client.backend().inspect(&key)).await;
        let watched = dropped_after(k, client.backend().watch(&key)).await;
        let mut list = client.backend().list("");
        let listed = dropped_after(k, list.next()).await;
        drop((list, watched));
        client.is_live(&held).await?;
        if inspected.is_some() && listed.is_some() {
            break;
        }
    }
    client.renewed(&held, ctx.long()).await?;
    client.released(&held).await
}

async fn many_dropped_calls_leave_the_client_usable(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("usable")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    for round in 0..100 {
        let k = 1 + round % 3;
        let request = ask(&key, owner(), ctx.long());
        let foreign = request.owner;
        let calls = async {
            dropped_after(k, client.backend().acquire(&request)).await;
            dropped_after(k, client.backend().renew(&renewal(&held, ctx.long()))).await;
            dropped_after(k, client.backend().release(&key, foreign, held.token)).await;
        };
        answered(&format!("round {round} of dropped calls"), calls).await?;
    }
    answered("inspect after them", client.is_live(&held)).await??;
    answered("release after them", client.released(&held)).await?
}

async fn answered<T>(what: &str, call: impl Future<Output = T>) -> Outcome<T> {
    let limit = crate::context::patience();
    tokio::time::timeout(limit, call).await.map_err(|_| {
        Failure::says(
            format!("{what}: an answer within {limit:?}"),
            "none: the client hangs",
        )
    })
}
