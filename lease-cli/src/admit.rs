//! `lease admit`: the fence for shell scripts.

use crate::args;
use crate::exit::{Exit, Failure};
use crate::patience::{FIRST_ANSWER, Patience};
use crate::store::Target;

use leases::{AdmitError, StaleToken};

pub(crate) async fn admit(target: Target, args: args::Admit) -> Result<Exit, Failure> {
    let patience = Patience::new(FIRST_ANSWER);
    let store = target.open(patience).await?;
    let admit = || async {
        match store.gate().admit(&args.resource, args.token).await {
            Ok(()) => Ok(Ok(())),
            // An answer, not a failure of the store's.
            Err(AdmitError::Stale(stale)) => Ok(Err::<(), StaleToken>(stale)),
            Err(AdmitError::Store(error)) => Err(error),
            Err(_) => Err(leases::StoreError::refusing(
                "its gate answered something that this program does not know; update it",
            )),
        }
    };
    patience.ask(admit).await?.map_err(AdmitError::from)?;
    Ok(Exit::Success)
}
