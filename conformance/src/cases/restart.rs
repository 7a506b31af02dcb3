//! What is claimed to survive a restart of the store with its data.

use lease_core::{FenceWhen, RefusedReason};

use super::data_loss::next_token;
use super::token::token;
use crate::case::group;
use crate::client::ask;
use crate::context::{Ctx, hooked, is_connected, key, owner};
use crate::failure::{Failure, Outcome, check, check_eq};

group! { "restart";
    a_live_grant_survives_a_restart [ExclusionSurvivesRestart]:
        "Where exclusion survives a restart, a live grant still excludes others after it and may be renewed.";
    a_block_survives_a_restart [ExclusionSurvivesRestart]:
        "Where exclusion survives a restart, the key of a revoked grant stays blocked over it.";
    tokens_rise_over_a_restart [TokensSurviveRestart]:
        "Where the rise of tokens survives a restart, grants after it are above the marks from before it.";
}

async fn restart(ctx: &Ctx) -> Outcome {
    let Some(hook) = ctx.store().restart() else {
        return Ok(());
    };
    hooked("restarts the store", hook.restart().await)
}

async fn a_live_grant_survives_a_restart(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("live")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    restart(ctx).await?;
    is_connected(&client, &key).await?;
    let other = ctx.client().await?;
    match other.acquire(&ask(&key, owner(), ctx.long())).await? {
        lease_core::AcquireOutcome::Held(_) => {
            client.is_live(&held).await?;
            client.renewed(&held, ctx.long()).await?;
            client.released(&held).await
        }
        // A store that forgot its grants keeps exclusion by granting nothing.
        lease_core::AcquireOutcome::Refused(RefusedReason::Quarantine { .. }) => Ok(()),
        granted => Err(Failure::new("Held, or Refused in quarantine", granted)),
    }
}

async fn a_block_survives_a_restart(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("block")?);
    let held = client.grant(&key, owner(), ctx.long()).await?;
    client
        .fence(&key, token(held.token.get() + 1)?, FenceWhen::AtExpiry)
        .await?;
    restart(ctx).await?;
    let other = ctx.client().await?;
    match other.acquire(&ask(&key, owner(), ctx.long())).await? {
        lease_core::AcquireOutcome::Held(_)
        | lease_core::AcquireOutcome::Refused(RefusedReason::Quarantine { .. }) => Ok(()),
        granted => Err(Failure::new("Held, or Refused in quarantine", granted)),
    }
}

async fn tokens_rise_over_a_restart(ctx: &Ctx) -> Outcome {
    let (client, used, fenced) = (ctx.client().await?, key("used")?, key("fenced")?);
    let held = client.grant(&used, owner(), ctx.long()).await?;
    client.released(&held).await?;
    let mark = token(lease_core::Token::MAX_FENCE.get() - 7)?;
    client.fence(&fenced, mark, FenceWhen::AtExpiry).await?;
    restart(ctx).await?;
    let other = ctx.client().await?;
    check_eq(
        "the mark of a released key",
        other.mark(&used).await?,
        held.token,
    )?;
    for (key, before) in [(&used, held.token), (&fenced, mark)] {
        // Through a quarantine, if there is one.
        let Some(next) = next_token(ctx, &other, key).await? else {
            return Ok(());
        };
        check(
            next > before,
            format!("for {key:?} a token above {before}"),
            next,
        )?;
    }
    Ok(())
}
