//! A store that stands still, as its holders see it.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{Clock, Error, Lease, Leases, LostReason, SystemClock, Ttl};
use tokio::time::{Instant, timeout};

use crate::case::group;
use crate::client::Held;
use crate::context::{Ctx, hooked, key, owner, patience};
use crate::failure::{Failure, Outcome, check};
use crate::hooks::Pause;

group! { "pause";
    a_lease_survives_a_pause_shorter_than_its_ttl [Pause]:
        "A store that stands still for less than the TTL costs no holder its lease.";
    a_holder_learns_of_a_long_pause_by_its_deadline [Pause]:
        "A holder whose store stands still is told of the loss at its deadline, without any answer; when the store goes on, the key is free.";
    requests_in_a_pause_are_answered_after_it [Pause]:
        "What was asked during a pause is answered after it, or fails as transient and may be asked again.";
}

/// A pause of this part of it is over in time, even on a busy machine.
const LONG_TTL: Duration = Duration::from_secs(6);
const SHORT_TTL: Duration = Duration::from_secs(1);
/// How late a busy machine may wake a task.
const LATE: Duration = Duration::from_secs(2);
/// Rounds in which the machine itself stood still for too long show nothing.
const ROUNDS: usize = 3;

fn pausing(ctx: &Ctx) -> Outcome<&dyn Pause> {
    let hook = ctx.store().pause();
    hook.ok_or_else(|| Failure::says("the fixture's hook, as before", "none"))
}

async fn lease(leases: &Leases, name: &str) -> Outcome<Lease> {
    let acquired = leases.lease(key(name)?).acquire().await;
    acquired.map_err(|e: Error| Failure::says("a free key is acquired", e.to_string()))
}

fn held(lease: &Lease) -> Held {
    Held {
        key: lease.key().clone(),
        owner: lease.owner(),
        token: lease.token(),
    }
}

async fn a_lease_survives_a_pause_shorter_than_its_ttl(ctx: &Ctx) -> Outcome {
    let (hook, other, ttl) = (pausing(ctx)?, ctx.client().await?, ctx.ttl(LONG_TTL));
    let leases = Leases::builder(ctx.client().await?.shared())
        .ttl(ttl)
        .build();
    for round in 1..=ROUNDS {
        let lease = lease(&leases, &format!("pause/short/{round}")).await?;
        let begin = Instant::now();
        hooked("pauses the store", hook.pause().await)?;
        tokio::time::sleep(ttl.get() / 4).await;
        hooked("resumes the store", hook.resume().await)?;
        let paused = begin.elapsed();
        // So long that only renewals from after the pause can have kept it.
        match timeout(ttl.get() * 5 / 4, lease.lost()).await {
            Err(_) => {
                other.is_live(&held(&lease)).await?;
                let released = lease.release().await;
                released.map_err(|e| Failure::says("a release", e.to_string()))?;
                leases.shutdown(patience()).await;
                return Ok(());
            }
            Ok(_) if paused > ttl.get() / 2 => {}
            Ok(lost) => {
                return Err(Failure::new(
                    format!("a lease of {ttl} that outlives a pause of {paused:?}"),
                    lost,
                ));
            }
        }
    }
    Err(Failure::says(
        format!("a pause that is over within half of {ttl}"),
        format!("none in {ROUNDS} rounds; the fixture or the machine is too slow"),
    ))
}

async fn a_holder_learns_of_a_long_pause_by_its_deadline(ctx: &Ctx) -> Outcome {
    let (hook, other, ttl) = (pausing(ctx)?, ctx.client().await?, ctx.ttl(SHORT_TTL));
    let clock = Arc::new(SystemClock::new());
    let leases = Leases::builder(ctx.client().await?.shared())
        .ttl(ttl)
        .clock(Arc::clone(&clock) as Arc<dyn Clock>)
        .build();
    let lease = lease(&leases, "pause/long").await?;
    hooked("pauses the store", hook.pause().await)?;
    let lost = timeout(ttl.get() + patience(), lease.lost()).await;
    let late = clock.now().since(lease.deadline());
    // Before anything can fail: the case's clients end at the store.
    hooked("resumes the store", hook.resume().await)?;
    match lost {
        Ok(lost) if matches!(lost.reason, LostReason::Unconfirmed { .. }) => {}
        other => {
            return Err(Failure::new(
                format!("a loss without an answer, at the deadline of a TTL of {ttl}"),
                other,
            ));
        }
    }
    check(
        late <= LATE,
        format!("the loss at its deadline, and {LATE:?} later at most"),
        late,
    )?;
    check(
        lease.check().is_err(),
        "a lost lease stays lost when the store goes on",
        lease.check(),
    )?;
    let old = held(&lease);
    drop(lease);
    leases.shutdown(patience()).await;
    ctx.until_free(&other, &old.key, ttl).await?;
    let next = other.grant(&old.key, owner(), ctx.long()).await?;
    check(
        next.token > old.token,
        format!("a token above {}", old.token),
        next.token,
    )
}

async fn requests_in_a_pause_are_answered_after_it(ctx: &Ctx) -> Outcome {
    let (hook, client) = (pausing(ctx)?, ctx.client().await?);
    let live = client
        .grant(&key("pause/live")?, owner(), ctx.long())
        .await?;
    hooked("pauses the store", hook.pause().await)?;
    let asked = {
        let (client, live, ttl) = (client.clone(), live.clone(), ctx.long());
        tokio::spawn(async move { renewed_through(&client, &live, ttl).await })
    };
    // Until it was sent, and then some.
    tokio::time::sleep(ctx.short().get()).await;
    let early = asked.is_finished();
    hooked("resumes the store", hook.resume().await)?;
    let answer = timeout(patience(), asked)
        .await
        .map_err(|_| Failure::says("an answer after the pause", "none: the client hangs"))?;
    answer.map_err(|e| Failure::says("nothing panics", e.to_string()))??;
    check(!early, "no answer from a store that stands still", early)?;
    client.is_live(&live).await?;
    client.released(&live).await
}

async fn renewed_through(client: &crate::client::Client, live: &Held, ttl: Ttl) -> Outcome {
    let request = crate::client::renewal(live, ttl);
    let call = || client.backend().renew(&request);
    match crate::context::persist("renew over a pause", call).await? {
        lease_core::RenewOutcome::Renewed => Ok(()),
        lost => Err(Failure::new("Renewed: the grant is live", lost)),
    }
}
