//! What is claimed to survive when the store comes back empty.

use lease_core::{AcquireOutcome, RefusedReason, Token};
use tokio::time::Instant;

use crate::client::{Client, ask};
use crate::context::{Ctx, apart, hooked, key, owner, patience, persist};
use crate::failure::{Failure, Outcome, check};

async fn lose_data(ctx: &Ctx) -> Outcome {
    match ctx.store().lose_data() {
        Some(hook) => hooked("takes the store's data away", hook.lose_data().await),
        None => Ok(()),
    }
}

pub(super) async fn exclusion_survives_the_loss_of_data(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("lost/live")?);
    client.grant(&key, owner(), ctx.long()).await?;
    let granted = Instant::now();
    lose_data(ctx).await?;
    for asking in [&client, &ctx.client().await?] {
        let request = ask(&key, owner(), ctx.long());
        let call = || asking.backend().acquire(&request);
        match persist("acquire after the loss", call).await? {
            AcquireOutcome::Held(_) => {}
            AcquireOutcome::Refused(RefusedReason::Quarantine { remaining }) => {
                let believed = ctx.long().get().saturating_sub(apart(granted.elapsed()));
                check(
                    remaining + ctx.slack(ctx.long()) >= believed,
                    format!("a quarantine that outlasts the lost grant's {believed:?}"),
                    remaining,
                )?;
            }
            other => return Err(Failure::new("Held, or Refused in quarantine", other)),
        }
    }
    Ok(())
}

pub(super) async fn tokens_survive_the_loss_of_data(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("lost/mark")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    lose_data(ctx).await?;
    let other = ctx.client().await?;
    for asking in [&client, &other] {
        let Some(token) = next_token(ctx, asking, &key).await? else {
            // A store that grants nothing breaks no promise about tokens.
            return Ok(());
        };
        check(
            token > held.token,
            format!("a token above {}, from before the loss", held.token),
            token,
        )?;
    }
    Ok(())
}

/// The next token, unless the store grants nothing for longer than a case may
/// take.
pub(super) async fn next_token(
    ctx: &Ctx,
    client: &Client,
    key: &lease_core::Key,
) -> Outcome<Option<Token>> {
    let request = ask(key, owner(), ctx.long());
    loop {
        let call = || client.backend().acquire(&request);
        match persist("acquire after it", call).await? {
            AcquireOutcome::Granted(granted) => {
                let abandon = || client.backend().abandon(key, request.owner);
                persist("abandon after it", abandon).await?;
                return Ok(Some(granted.token));
            }
            AcquireOutcome::Refused(RefusedReason::Quarantine { remaining }) => {
                if remaining > patience() {
                    return Ok(None);
                }
                tokio::time::sleep(remaining).await;
            }
            other => return Err(Failure::new("Granted, or Refused in quarantine", other)),
        }
    }
}
