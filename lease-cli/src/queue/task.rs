//! One item: its command, and what becomes of it.

use std::ffi::OsString;
use std::time::Duration;

use leases::queue::{Claim, SettleError};
use leases::{LostReason, StoreError};
use tokio::sync::watch;

use crate::exit::{Exit, Failure, words};
use crate::interrupt::Signals;
use crate::run::Outcome;
use crate::run::child::{Child, Ended, Given};
use crate::run::limits::Limits;
use crate::run::supervise::{Named, Supervisor};
use crate::{output, stderr};

/// How often a claim that has too little time left is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// What all commands of a worker share.
pub(super) struct Shop {
    pub(super) queue: String,
    pub(super) command: Vec<OsString>,
    /// For the commands' LEASE_STORE.
    pub(super) store: Option<String>,
    pub(super) limits: Limits,
}

/// How a claim is settled.
enum Verdict {
    Complete,
    Fail(String),
    GiveBack,
}

impl Shop {
    /// Runs the command for one item and settles it. Says with what a worker of this one
    /// item ends; a failure is the worker's, not the item's.
    pub(super) async fn work(
        &self,
        claim: Claim<Vec<u8>>,
        halt: watch::Receiver<bool>,
    ) -> Result<Exit, Failure> {
        let item = format!("item {}", claim.item());
        let lease = claim.lease();
        while lease.remaining() <= self.limits.lead() {
            if let Err(lost) = lease.check() {
                stderr::say(&format!("{item}: {lost}; its command was not run"));
                return Ok(Exit::Lost);
            }
            // Its renewal is under way.
            tokio::time::sleep(LOOK).await;
        }
        let child = match Signals::children().and_then(|signals| {
            let child = Child::spawn(self.given(&claim), None)?;
            Ok((child, signals))
        }) {
            Ok(child) => child,
            Err(failure) => {
                settle(claim, &item, Verdict::GiveBack).await;
                return Err(failure);
            }
        };
        let (child, signals) = child;
        let named = Named {
            full: format!("the claim on {item} (token {})", claim.token()),
            short: item.clone(),
        };
        let outcome = Supervisor::new(claim.lease(), &child, self.limits, None, signals, named)
            .halted_by(halt)
            .watch()
            .await;
        child.reap();
        let (verdict, exit) = match outcome {
            Outcome::Ended(Ended::Exited(0)) => (Verdict::Complete, Exit::Success),
            Outcome::Ended(ended) => (Verdict::Fail(ended.words()), ended.exit()),
            Outcome::Halted => (Verdict::GiveBack, Exit::Lost),
            Outcome::Lost => match claim.lease().check() {
                // The store's word: there is nothing to settle.
                Err(lost) if matches!(lost.reason, LostReason::Store(_)) => return Ok(Exit::Lost),
                Err(lost) => (Verdict::Fail(lost.reason.to_string()), Exit::Lost),
                Ok(_) => {
                    let why = "its renewal was not confirmed in time";
                    (Verdict::Fail(why.to_owned()), Exit::Lost)
                }
            },
            Outcome::Unkillable => {
                // Not even by being dropped: a write of theirs may yet come.
                std::mem::forget(claim);
                return Ok(Exit::Lost);
            }
        };
        match settle(claim, &item, verdict).await {
            true => Ok(exit),
            false => Ok(Exit::Lost),
        }
    }

    fn given(&self, claim: &Claim<Vec<u8>>) -> Given<'_> {
        let group = claim.group().map(|group| group.as_str().to_owned());
        let item = claim.item().to_string();
        let mut variables = vec![
            ("LEASE_QUEUE", Some(self.queue.clone())),
            // What the token is of.
            ("LEASE_KEY", Some(group.clone().unwrap_or(item.clone()))),
            ("LEASE_ITEM", Some(item)),
            // Not one that we have from whoever started us.
            ("LEASE_GROUP", group),
            ("LEASE_TOKEN", Some(claim.token().to_string())),
            ("LEASE_ATTEMPT", Some(claim.attempt().to_string())),
        ];
        if let Some(store) = &self.store {
            variables.push(("LEASE_STORE", Some(store.clone())));
        }
        Given {
            command: &self.command,
            variables,
            input: Some(claim.payload().clone()),
        }
    }
}

/// Whether it was settled; says why not.
async fn settle(mut claim: Claim<Vec<u8>>, item: &str, verdict: Verdict) -> bool {
    loop {
        let settled = match &verdict {
            Verdict::Complete => claim.complete().await,
            Verdict::Fail(why) => claim.fail(why).await,
            Verdict::GiveBack => claim.abandon().await,
        };
        let why = match settled {
            Ok(()) => return true,
            Err(SettleError::Unsettled { claim: back, error })
                if error.is_transient() && back.lease().check().is_ok() =>
            {
                claim = *back;
                continue;
            }
            Err(SettleError::Unsettled { error, .. }) => said(&error),
            Err(other) => other.to_string(),
        };
        stderr::say(&format!(
            "what came of {item} could not be told to the store ({why}); it may be worked on again"
        ));
        return false;
    }
}

/// A driver's words may hold a URL.
fn said(error: &StoreError) -> String {
    output::without_urls(&words(error))
}
