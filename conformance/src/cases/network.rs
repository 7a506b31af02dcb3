//! Connections that are cut, and replies that never arrive.

use std::sync::Mutex;

use futures_util::future::try_join_all;
use lease_core::{
    AcquireOutcome, Key, ReleaseOutcome, RenewOutcome, StoreError, StoreErrorKind, Token,
};

use crate::case::group;
use crate::client::{Client, Held, ask, renewal};
use crate::context::{Ctx, hooked, is_connected, key, owner, patience, persist};
use crate::failure::{Failure, Outcome, check, check_eq};
use crate::hooks::Network;

group! { "network";
    a_lost_reply_of_acquire_is_an_unknown_outcome [Network]:
        "An acquire whose reply was lost took effect: the call says that its outcome is unknown, and a retry gets the same grant.";
    an_acquire_that_is_given_up_frees_the_key_at_once [Network]:
        "Abandoning the owner of an acquire whose reply was lost frees the key at once.";
    lost_replies_of_renew_and_release_are_unknown_outcomes [Network]:
        "A renew or a release whose reply was lost took effect: the call says that its outcome is unknown, and it may be repeated.";
    cut_connections_are_made_again_and_nothing_leaks [Network]:
        "However often connections are cut, each call is answered or fails as transient, a retry is answered, and every key is free in the end.";
}

fn network(ctx: &Ctx) -> Outcome<&dyn Network> {
    let hook = ctx.store().network();
    hook.ok_or_else(|| Failure::says("the fixture's hook, as before", "none"))
}

/// Makes a call whose reply is lost.
async fn without_reply<T>(
    ctx: &Ctx,
    what: &str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Outcome {
    let lost = hooked("loses a reply", network(ctx)?.lose_reply().await)?;
    let limit = patience();
    let answer = tokio::time::timeout(limit, call).await.map_err(|_| {
        Failure::says(
            format!("{what} ends within {limit:?} when its connection is cut"),
            "it still ran then: the client hangs",
        )
    })?;
    tokio::time::timeout(limit, lost)
        .await
        .map_err(|_| Failure::says("the fixture loses the reply", "no reply was lost"))?;
    match answer {
        Err(e) if e.kind() != StoreErrorKind::UnknownOutcome => Err(Failure::new(
            format!("{what} whose reply was lost: UnknownOutcome, for it took effect"),
            e,
        )),
        // A client may have asked once more by itself, where that is safe.
        _ => Ok(()),
    }
}

async fn a_lost_reply_of_acquire_is_an_unknown_outcome(ctx: &Ctx) -> Outcome {
    let (client, other) = (ctx.client().await?, ctx.client().await?);
    for round in 0..3 {
        let (key, me) = (key(&format!("lost/acquire/{round}"))?, owner());
        let request = ask(&key, me, ctx.long());
        // The next thing that it sends is a request, and no greeting.
        is_connected(&client, &key).await?;
        without_reply(ctx, "acquire", client.backend().acquire(&request)).await?;
        let seen = persist("inspect", || other.backend().inspect(&key)).await?;
        let Some(holder) = seen.holder else {
            return Err(Failure::new("a store that did what it was asked", seen));
        };
        let retry = persist("the retry", || client.backend().acquire(&request)).await?;
        let AcquireOutcome::Granted(granted) = retry else {
            return Err(Failure::new("Granted, to the same owner again", retry));
        };
        check_eq("the token of the same grant", granted.token, holder.token)?;
        let held = held(key, me, granted.token);
        client.renewed(&held, ctx.long()).await?;
        client.released(&held).await?;
        is_free(ctx, &other, &held.key).await?;
    }
    Ok(())
}

async fn an_acquire_that_is_given_up_frees_the_key_at_once(ctx: &Ctx) -> Outcome {
    let (client, other) = (ctx.client().await?, ctx.client().await?);
    let (key, me) = (key("lost/given-up")?, owner());
    let request = ask(&key, me, ctx.long());
    is_connected(&client, &key).await?;
    without_reply(ctx, "acquire", client.backend().acquire(&request)).await?;
    persist("abandon", || client.backend().abandon(&key, me)).await?;
    persist("inspect", || other.backend().inspect(&key)).await?;
    is_free(ctx, &other, &key).await?;
    client.refused(&request).await.map(drop)
}

async fn lost_replies_of_renew_and_release_are_unknown_outcomes(ctx: &Ctx) -> Outcome {
    let (client, other) = (ctx.client().await?, ctx.client().await?);
    let held = client
        .grant(&key("lost/renew")?, owner(), ctx.long())
        .await?;
    let renew = renewal(&held, ctx.long());
    without_reply(ctx, "renew", client.backend().renew(&renew)).await?;
    let again = persist("renew", || client.backend().renew(&renew)).await?;
    check_eq("the repeated renew", again, RenewOutcome::Renewed)?;
    let release = || client.backend().release(&held.key, held.owner, held.token);
    // A release may go by another connection than renewals, and that one be gone.
    is_connected(&client, &held.key).await?;
    without_reply(ctx, "release", release()).await?;
    persist("inspect", || other.backend().inspect(&held.key)).await?;
    is_free(ctx, &other, &held.key).await?;
    let again = persist("release", release).await?;
    check_eq("the repeated release", again, ReleaseOutcome::NotHeld)
}

async fn cut_connections_are_made_again_and_nothing_leaks(ctx: &Ctx) -> Outcome {
    const WORKERS: usize = 6;
    const ROUNDS: usize = 8;
    let cuts = Cuts::new(WORKERS);
    let clients = ctx.clients(3).await?;
    let workers = (0..WORKERS).map(|worker| {
        let (client, cuts) = (clients[worker % clients.len()].clone(), &cuts);
        async move {
            let key = key(&format!("cut/{worker}"))?;
            let mut last: Option<Token> = None;
            for _ in 0..ROUNDS {
                let cut = || cuts.cut(ctx, worker);
                let token = one_life(ctx, &client, &key, cut).await?;
                check(
                    last.is_none_or(|last| token > last),
                    format!("a token above {last:?}"),
                    token,
                )?;
                last = Some(token);
            }
            Ok(())
        }
    });
    try_join_all(workers).await?;
    let other = ctx.client().await?;
    for worker in 0..WORKERS {
        is_free(ctx, &other, &key(&format!("cut/{worker}"))?).await?;
    }
    Ok(())
}

/// Cuts of all connections, of which each call meets a few at most: on a busy machine
/// they would come faster than any client can connect, and no retry could be answered.
struct Cuts(Mutex<CutsState>);

struct CutsState {
    calls: usize,
    owed: usize,
    /// How many the call of each worker has met.
    met: Vec<usize>,
}

impl Cuts {
    /// One of so many calls is under way while its connection is cut.
    const EVERY: usize = 5;
    /// The most that one call has to get over.
    const MOST: usize = 4;

    fn new(workers: usize) -> Self {
        Self(Mutex::new(CutsState {
            calls: 0,
            owed: 0,
            met: vec![0; workers],
        }))
    }

    /// Another call of this worker begins. A cut that would be too much for another
    /// worker's call comes with the next one.
    async fn cut(&self, ctx: &Ctx, worker: usize) -> Outcome {
        let now = {
            let mut state = self.0.lock().unwrap_or_else(|e| e.into_inner());
            state.met[worker] = 0;
            state.owed += usize::from(state.calls.is_multiple_of(Self::EVERY));
            state.calls += 1;
            let now = state.owed > 0 && state.met.iter().all(|met| *met < Self::MOST);
            if now {
                state.owed -= 1;
                state.met.iter_mut().for_each(|met| *met += 1);
            }
            now
        };
        match now {
            true => hooked("cuts connections", network(ctx)?.cut().await),
            false => Ok(()),
        }
    }
}

/// Acquires, renews and releases with retries, while connections are cut.
async fn one_life<F>(
    ctx: &Ctx,
    client: &Client,
    key: &Key,
    mut cut: impl FnMut() -> F,
) -> Outcome<Token>
where
    F: Future<Output = Outcome>,
{
    let me = owner();
    let request = ask(key, me, ctx.long());
    let call = persist("acquire", || client.backend().acquire(&request));
    let (answer, ()) = futures_util::future::try_join(call, cut()).await?;
    let AcquireOutcome::Granted(granted) = answer else {
        return Err(Failure::new("Granted: nobody else wants the key", answer));
    };
    let renew = renewal(&held(key.clone(), me, granted.token), ctx.long());
    let call = persist("renew", || client.backend().renew(&renew));
    let (answer, ()) = futures_util::future::try_join(call, cut()).await?;
    check_eq("renew of the live grant", answer, RenewOutcome::Renewed)?;
    // NotHeld after a try whose reply was lost.
    let call = persist("release", || {
        client.backend().release(key, me, granted.token)
    });
    futures_util::future::try_join(call, cut()).await?;
    Ok(granted.token)
}

fn held(key: Key, owner: lease_core::Owner, token: Token) -> Held {
    Held { key, owner, token }
}

async fn is_free(ctx: &Ctx, client: &Client, key: &Key) -> Outcome {
    let request = ask(key, owner(), ctx.long());
    let answer = persist("acquire", || client.backend().acquire(&request)).await?;
    let AcquireOutcome::Granted(granted) = answer else {
        return Err(Failure::new(format!("{key:?} is free at once"), answer));
    };
    client
        .released(&held(key.clone(), request.owner, granted.token))
        .await
}
