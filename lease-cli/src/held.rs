//! `lease renew` and `lease release`: what scripts do with a grant.

use std::cell::Cell;
use std::time::Duration;

use leases::{DriftAllowance, ReleaseOutcome, RenewOutcome, RenewRequest, StoreError};
use tokio::time::Instant;

use crate::acquire::outlives_us;
use crate::args;
use crate::duration::{brief, millis};
use crate::exit::{Exit, Failure};
use crate::output::{self, GrantJson};
use crate::patience::{FIRST_ANSWER, Patience};
use crate::store::Target;

/// How long a release waits for what it does beside freeing the key.
const ABANDON: Duration = Duration::from_secs(1);

pub(crate) async fn renew(target: Target, args: args::Renew) -> Result<Exit, Failure> {
    let patience = Patience::new(FIRST_ANSWER);
    let store = target.open(patience).await?;
    // It would name our session, which ends with us.
    outlives_us(&store.backend().guarantees())?;
    let grant = args.grant;
    let request = RenewRequest {
        key: grant.key.clone(),
        owner: grant.owner,
        token: grant.token,
        ttl: args.ttl,
    };
    let sent = Cell::new(Instant::now());
    let renewed = patience.ask(|| {
        // The store cannot count from earlier than this.
        sent.set(Instant::now());
        store.backend().renew(&request)
    });
    if let RenewOutcome::Lost(cause) = renewed.await? {
        return Err(Failure::new(
            Exit::Lost,
            format!(
                "the lease on {:?} (token {}) is lost: {cause}; stop writing",
                grant.key.as_str(),
                grant.token
            ),
        ));
    }
    let valid = DriftAllowance::default().validity(args.ttl);
    let remaining = valid.saturating_sub(sent.get().elapsed());
    if args.form.json {
        output::print_json(&GrantJson {
            key: grant.key.as_str().to_owned(),
            owner: grant.owner.to_string(),
            token: grant.token.get(),
            ttl_ms: args.ttl.as_millis(),
            remaining_ms: millis(remaining),
        })?;
    } else {
        output::print(format_args!("remaining  {}\n", brief(remaining)))?;
    }
    Ok(Exit::Success)
}

pub(crate) async fn release(target: Target, args: args::Release) -> Result<Exit, Failure> {
    let patience = Patience::new(FIRST_ANSWER);
    let store = target.open(patience).await?;
    let grant = args.grant;
    let release = || {
        store
            .backend()
            .release(&grant.key, grant.owner, grant.token)
    };
    if released(patience, release).await? {
        // A request of the acquisition that was never answered may still reach
        // the store, and would be granted once more. It need not succeed.
        let abandon = store.backend().abandon(&grant.key, grant.owner);
        let _ = tokio::time::timeout(ABANDON, abandon).await;
        return Ok(Exit::Success);
    }
    Err(Failure::new(
        Exit::Lost,
        format!(
            "{:?} is not held by this owner with token {}; nothing was changed",
            grant.key.as_str(),
            grant.token
        ),
    ))
}

/// Whether the grant was freed, as far as can be known.
async fn released<F>(patience: Patience, mut request: impl FnMut() -> F) -> Result<bool, Failure>
where
    F: Future<Output = Result<ReleaseOutcome, StoreError>>,
{
    let unknown = Cell::new(false);
    let outcome = patience.ask(|| {
        let request = request();
        let unknown = &unknown;
        async move {
            request.await.inspect_err(|error| {
                unknown.set(unknown.get() || error.is_unknown_outcome());
            })
        }
    });
    Ok(match outcome.await? {
        ReleaseOutcome::Released => true,
        // An earlier try, whose answer was lost, may have freed it.
        ReleaseOutcome::NotHeld => unknown.get(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn after(errors: &[fn() -> StoreError], last: ReleaseOutcome) -> bool {
        let patience = Patience::new(Duration::from_secs(5));
        let mut errors = errors.iter();
        let answer = released(patience, || {
            let answer = errors.next().map_or(Ok(last), |error| Err(error()));
            async move { answer }
        });
        answer.await.unwrap()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn only_a_try_that_may_have_freed_it_explains_that_it_is_not_held() {
        let unavailable = || StoreError::unavailable("no effect");
        let unknown = || StoreError::unknown_outcome("cut");
        assert!(after(&[], ReleaseOutcome::Released).await);
        assert!(!after(&[], ReleaseOutcome::NotHeld).await);
        assert!(!after(&[unavailable], ReleaseOutcome::NotHeld).await);
        assert!(after(&[unknown, unavailable], ReleaseOutcome::NotHeld).await);
    }
}
