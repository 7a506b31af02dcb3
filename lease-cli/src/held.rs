//! `lease renew` and `lease release`: what scripts do with a grant.

use std::cell::Cell;

use leases::{DriftAllowance, ReleaseOutcome, RenewOutcome, RenewRequest};
use tokio::time::Instant;

use crate::args;
use crate::duration::{brief, millis};
use crate::exit::{Exit, Failure};
use crate::output::{self, GrantJson};
use crate::patience::{FIRST_ANSWER, Patience};
use crate::store::Target;

pub(crate) async fn renew(target: Target, args: args::Renew) -> Result<Exit, Failure> {
    let patience = Patience::new(FIRST_ANSWER);
    let store = target.open(patience).await?;
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
    let tries = Cell::new(0);
    let released = patience.ask(|| {
        tries.set(tries.get() + 1);
        store
            .backend()
            .release(&grant.key, grant.owner, grant.token)
    });
    match released.await? {
        ReleaseOutcome::Released => Ok(Exit::Success),
        // The answer to an earlier try was lost, which may have freed it.
        ReleaseOutcome::NotHeld if tries.get() > 1 => Ok(Exit::Success),
        ReleaseOutcome::NotHeld => Err(Failure::new(
            Exit::Lost,
            format!(
                "{:?} is not held by this owner with token {}; nothing was changed",
                grant.key.as_str(),
                grant.token
            ),
        )),
    }
}
