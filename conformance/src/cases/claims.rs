//! What a store says of itself.

use std::time::Duration;

use futures_util::StreamExt;
use lease_core::{Exclusion, StoreErrorKind, Ttl, WakeUps};

use super::data_loss::{exclusion_survives_the_loss_of_data, tokens_survive_the_loss_of_data};
use super::line::waiters_are_served_in_order;
use crate::case::{NOT_SHOWN, group};
use crate::context::Ctx;
use crate::failure::{Failure, Outcome, check, check_eq};

group! { "claims";
    the_store_has_a_name:
        "The guarantees name the store.";
    every_client_claims_the_same:
        "The guarantees are a fact about the store as configured: every client says the same, every time.";
    the_limits_are_the_contracts_or_narrower:
        "The claimed TTL range and key limit are the contract's own or narrower, and not empty.";
    exclusion_and_what_it_survives_agree:
        "A store does not claim that its exclusion survives what its reach cannot: one process or host has no failover, and a single primary's standby may lack the last grants.";
    what_survives_loss_survives_a_restart:
        "What survives a restart without the data survives one with it.";
    polling_has_a_pace:
        "A claim to poll names how often: more than zero and at most a minute.";
    listing_is_claimed_or_refused:
        "A store that cannot list says so: list gives one Refusing error and ends; one that claims listing gives none.";
    a_diagnosis_is_given:
        "diagnose answers for every TTL that the store takes, with findings that have words.";
    exclusion_reaches_beyond_one_process [ReachBeyondProcess]:
        "Exclusion reaches as far as claimed: among processes, hosts or servers.";
    exclusion_survives_the_loss_of_data [ExclusionSurvivesDataLoss]:
        "Exclusion holds when the store comes back empty or from an older backup.";
    exclusion_survives_a_failover [ExclusionSurvivesFailover]:
        "Exclusion holds when another server takes over.";
    exclusion_survives_a_step_of_the_clock [ExclusionSurvivesClockStep]:
        "Exclusion holds when the store's clock steps forward.";
    tokens_survive_the_loss_of_data [TokensSurviveDataLossItself]:
        "Tokens go on rising when the store comes back empty or from an older backup.";
    tokens_survive_a_failover [TokensSurviveFailover]:
        "Tokens go on rising when another server takes over.";
    tokens_survive_a_step_of_the_clock [TokensSurviveClockStep]:
        "Tokens go on rising when the store's clock steps forward.";
    waiters_are_served_in_order [FifoWaiters]:
        "Waiters of different clients are served first come, first served.";
    a_lost_session_frees_the_key [SessionRelease]:
        "The key of a holder whose session was lost is free after the grace, and not before.";
}

use not_shown as exclusion_reaches_beyond_one_process;
use not_shown as exclusion_survives_a_failover;
use not_shown as exclusion_survives_a_step_of_the_clock;
use not_shown as tokens_survive_a_failover;
use not_shown as tokens_survive_a_step_of_the_clock;
use not_shown as a_lost_session_frees_the_key;

/// What would show these needs hands on a server, a network or a clock: the
/// case is always left out, and never passes.
async fn not_shown(_: &Ctx) -> Outcome {
    Err(Failure::says("a case that is left out", NOT_SHOWN))
}

async fn the_store_has_a_name(ctx: &Ctx) -> Outcome {
    let name = &ctx.guarantees().store;
    check(
        !name.trim().is_empty() && !name.contains(char::is_control),
        "a name of printable text",
        name,
    )
}

async fn every_client_claims_the_same(ctx: &Ctx) -> Outcome {
    for client in ctx.clients(2).await? {
        check_eq(
            "the guarantees",
            &client.backend().guarantees(),
            ctx.guarantees(),
        )?;
        check_eq(
            "the guarantees",
            &client.backend().guarantees(),
            ctx.guarantees(),
        )?;
    }
    Ok(())
}

async fn the_limits_are_the_contracts_or_narrower(ctx: &Ctx) -> Outcome {
    let (range, bytes) = (ctx.guarantees().ttl, ctx.guarantees().max_key_bytes);
    check(
        range.min >= Ttl::MIN.get() && range.max <= Ttl::MAX.get() && range.min <= range.max,
        format!("a TTL range within {} to {}", Ttl::MIN, Ttl::MAX),
        range,
    )?;
    check(
        range.resolution <= Duration::from_secs(60),
        "a resolution of at most a minute",
        range.resolution,
    )?;
    check(
        (1..=lease_core::MAX_KEY_BYTES).contains(&bytes),
        format!("a key limit of 1 to {} bytes", lease_core::MAX_KEY_BYTES),
        bytes,
    )
}

async fn exclusion_and_what_it_survives_agree(ctx: &Ctx) -> Outcome {
    let claims = ctx.guarantees();
    let cannot_fail_over = matches!(
        claims.exclusion,
        Exclusion::Process | Exclusion::Host | Exclusion::SinglePrimary
    );
    check(
        !(cannot_fail_over && claims.exclusion_survives.failover),
        format!(
            "exclusion by {} does not survive a failover",
            claims.exclusion
        ),
        claims.exclusion_survives,
    )
}

async fn what_survives_loss_survives_a_restart(ctx: &Ctx) -> Outcome {
    let claims = ctx.guarantees();
    for (what, survives) in [
        ("exclusion", claims.exclusion_survives),
        ("the rise of tokens", claims.tokens_survive),
    ] {
        check(
            survives.restart || !survives.data_loss,
            format!("{what} that survives the loss of data survives a restart"),
            survives,
        )?;
    }
    Ok(())
}

async fn polling_has_a_pace(ctx: &Ctx) -> Outcome {
    let wake_ups = ctx.guarantees().wake_ups;
    let WakeUps::Poll { every } = wake_ups else {
        return Ok(());
    };
    check(
        !every.is_zero() && every <= Duration::from_secs(60),
        "a look every so often, at least once a minute",
        every,
    )
}

async fn listing_is_claimed_or_refused(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let answers: Vec<_> = client.backend().list("").collect().await;
    if ctx.guarantees().listing {
        return check(
            answers.is_empty(),
            "listing, as claimed: no keys and no error of an empty store",
            answers,
        );
    }
    match &answers[..] {
        [Err(e)] if e.kind() == StoreErrorKind::Refusing => Ok(()),
        _ => Err(Failure::new(
            "one Refusing error, since listing is not claimed",
            answers,
        )),
    }
}

async fn a_diagnosis_is_given(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    for ttl in [ctx.ttl(Duration::ZERO), ctx.long(), ctx.ttl(Duration::MAX)] {
        let diagnosis = client
            .backend()
            .diagnose(ttl)
            .await
            .map_err(|e| Failure::new("diagnose of a store within reach: an answer", e))?;
        for finding in diagnosis.findings {
            check(
                !finding.what.trim().is_empty() && !finding.why.trim().is_empty(),
                "a finding says what was seen and why it matters",
                finding,
            )?;
        }
    }
    Ok(())
}
