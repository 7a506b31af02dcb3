//! The suite as a test binary: one named trial for each rule.

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Conclusion, Failed, Trial};

use crate::case::{Case, Claims};
use crate::cases;
use crate::fixture::Fixture;
use crate::runner::{CaseResult, claims, run_case};

/// Runs the suite with the process's own arguments; for the `main` of a test
/// with `harness = false`.
///
/// `store` names the store in the failures' messages.
pub fn main(store: &str, fixture: impl Fixture) -> ExitCode {
    run(store, fixture, &Arguments::from_args()).exit_code()
}

/// As [`main`], with these arguments.
pub fn run(store: &str, fixture: impl Fixture, args: &Arguments) -> Conclusion {
    let fixture: Arc<dyn Fixture> = Arc::new(fixture);
    // A listing must not fail because a server is down; but then every case
    // does, and none is left out.
    let claims = claims(&fixture);
    let trials = cases::all()
        .into_iter()
        .map(|case| trial(store, &fixture, &claims, case))
        .collect();
    libtest_mimic::run(args, trials)
}

fn trial(
    store: &str,
    fixture: &Arc<dyn Fixture>,
    claims: &Result<Claims, String>,
    case: Case,
) -> Trial {
    let lacks = claims.as_ref().ok().and_then(|c| c.lacks(case.needs));
    if let Some(CaseResult::NotClaimed(reason) | CaseResult::NotShown(reason)) = lacks {
        return Trial::ignorable_test(case.name, move || Ok(Completion::ignored_with(reason)))
            .with_kind(reason)
            .with_ignored_flag(true);
    }
    let broken = claims.as_ref().err().cloned();
    let (store, fixture) = (store.to_owned(), Arc::clone(fixture));
    Trial::test(case.name, move || {
        if let Some(failure) = broken {
            return Err(Failed::from(format!(
                "{store} cannot be tested:\n{failure}"
            )));
        }
        match run_case(&fixture, &case) {
            CaseResult::Passed => Ok(()),
            CaseResult::Failed(message) => Err(Failed::from(format!("{store}: {message}"))),
            // Decided above.
            CaseResult::NotClaimed(reason) | CaseResult::NotShown(reason) => {
                Err(Failed::from(reason))
            }
        }
    })
}
