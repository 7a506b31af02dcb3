//! Renewing many grants of one client at once.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use lease_core::{LostCause, RenewOutcome, Token};
use tokio::time::Instant;

use crate::case::group;
use crate::client::{Held, renewal};
use crate::context::{Ctx, key, owner};
use crate::failure::{Failure, Outcome, check, check_eq};

group! { "renew_many";
    outcomes_come_in_order_of_the_requests:
        "renew_many gives one outcome per request, in the order of the requests, each as its own renewal would.";
    a_request_may_be_repeated_in_the_list:
        "The same grant twice in one list has an outcome for each.";
    an_empty_list_is_empty:
        "renew_many of nothing gives nothing.";
    a_thousand_grants_are_renewed:
        "renew_many takes a thousand grants and renews each.";
    a_lost_grant_leaves_the_others_alone:
        "One grant's outcome does not depend on another's, and what is not in the list stays as it is.";
    each_request_has_its_own_ttl:
        "Each renewal of a list counts with its own TTL, and none shortens a grant.";
}

/// `count` live grants of keys of their own.
async fn grants(ctx: &Ctx, count: usize) -> Outcome<Vec<Held>> {
    let client = ctx.client().await?;
    let ttl = ctx.ttl(Duration::from_secs(60));
    stream::iter(0..count)
        .map(|i| {
            let client = client.clone();
            async move {
                client
                    .grant(&key(&format!("many/{i}"))?, owner(), ttl)
                    .await
            }
        })
        .buffered(16)
        .try_collect()
        .await
}

fn wrong(held: &Held) -> Held {
    Held {
        owner: owner(),
        ..held.clone()
    }
}

async fn outcomes_come_in_order_of_the_requests(ctx: &Ctx) -> Outcome {
    let (client, held) = (ctx.client().await?, grants(ctx, 24).await?);
    let mut list = Vec::new();
    for (i, held) in held.iter().enumerate() {
        // An order that neither sorting by key nor reversing keeps.
        match i % 5 {
            0 | 3 => list.push(renewal(&wrong(held), ctx.long())),
            _ => list.push(renewal(held, ctx.long())),
        }
    }
    list.swap(0, 7);
    list.swap(3, 20);
    let outcomes = client.renew_many(&list).await?;
    for (i, (request, outcome)) in list.iter().zip(&outcomes).enumerate() {
        let live = held.iter().any(|h| h.owner == request.owner);
        check(
            live == (*outcome == RenewOutcome::Renewed),
            format!(
                "outcome {i}, of {:?}: {}",
                request.key,
                if live { "Renewed" } else { "Lost" }
            ),
            outcome,
        )?;
    }
    Ok(())
}

async fn a_request_may_be_repeated_in_the_list(ctx: &Ctx) -> Outcome {
    let (client, held) = (ctx.client().await?, grants(ctx, 2).await?);
    let [a, b] = [&held[0], &held[1]];
    let bad = wrong(a);
    let list = [a, &bad, b, a, &bad, a].map(|held| renewal(held, ctx.long()));
    let outcomes = client.renew_many(&list).await?;
    let renewed: Vec<bool> = outcomes
        .iter()
        .map(|o| *o == RenewOutcome::Renewed)
        .collect();
    check_eq(
        "which of six are renewed",
        renewed,
        vec![true, false, true, true, false, true],
    )
}

async fn an_empty_list_is_empty(ctx: &Ctx) -> Outcome {
    let outcomes = ctx.client().await?.renew_many(&[]).await?;
    check_eq("outcomes", outcomes.len(), 0)
}

async fn a_thousand_grants_are_renewed(ctx: &Ctx) -> Outcome {
    let (client, held) = (ctx.client().await?, grants(ctx, 1000).await?);
    let list: Vec<_> = held.iter().map(|h| renewal(h, ctx.long())).collect();
    let sent = Instant::now();
    let outcomes = client.renew_many(&list).await?;
    if let Some(i) = outcomes.iter().position(|o| *o != RenewOutcome::Renewed) {
        return Err(Failure::new(
            format!("grant {i} of 1000 is renewed"),
            outcomes[i],
        ));
    }
    for held in held.iter().step_by(111) {
        let remaining = client.is_live(held).await?.remaining;
        ctx.lasts(remaining, ctx.long(), sent, ctx.long())?;
    }
    Ok(())
}

async fn a_lost_grant_leaves_the_others_alone(ctx: &Ctx) -> Outcome {
    let (client, held) = (ctx.client().await?, grants(ctx, 4).await?);
    client.released(&held[0]).await?;
    let before = client.is_live(&held[3]).await?.remaining;
    let never = Held {
        key: key("many/never")?,
        owner: owner(),
        token: Token::MIN,
    };
    let stale = Held {
        token: Token::MAX,
        ..held[3].clone()
    };
    let list = [&held[0], &held[1], &never, &held[2], &stale].map(|h| renewal(h, ctx.long()));
    let outcomes = client.renew_many(&list).await?;
    let fits = matches!(
        outcomes[..],
        [
            RenewOutcome::Lost(LostCause::Released | LostCause::Unknown),
            RenewOutcome::Renewed,
            RenewOutcome::Lost(LostCause::Unknown),
            RenewOutcome::Renewed,
            RenewOutcome::Lost(LostCause::TakenOver | LostCause::Unknown),
        ]
    );
    check(
        fits,
        "released: Lost, live: Renewed, never granted: Lost, live: Renewed, wrong token: Lost",
        outcomes,
    )?;
    let after = client.is_live(&held[3]).await?.remaining;
    ctx.tells(
        "the remaining time of a grant that only a wrong token named",
        after,
        Duration::ZERO,
        before,
    )
}

async fn each_request_has_its_own_ttl(ctx: &Ctx) -> Outcome {
    let (client, held) = (ctx.client().await?, grants(ctx, 3).await?);
    // Shorter than what the grants have, and not so short that a store could give up
    // on a slow part of itself for it.
    let less = ctx.ttl(Duration::from_secs(10));
    let list = [
        renewal(&held[0], less),
        renewal(&held[1], ctx.long()),
        renewal(&held[2], less),
    ];
    let sent = Instant::now();
    client.renew_many(&list).await?;
    let kept = client.is_live(&held[0]).await?.remaining;
    let longer = client.is_live(&held[1]).await?.remaining;
    client.is_live(&held[2]).await?;
    ctx.tells(
        "the remaining time of a grant renewed with less than it has",
        kept,
        Duration::ZERO,
        ctx.ttl(Duration::from_secs(60)).get(),
    )?;
    ctx.lasts(longer, ctx.long(), sent, ctx.long())
}
