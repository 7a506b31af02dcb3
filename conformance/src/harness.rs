//! The suite as a test binary: one named trial for each rule.

use std::fmt;
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
    libtest_mimic::run(args, trials(store, "", &fixture))
}

/// Several stores in one test binary, or one store that is set up in several
/// ways.
///
/// A case is named `store::group::rule` then, so that a filter may choose a
/// store, and the cases of all of them run beside each other.
#[derive(Default)]
#[must_use]
pub struct Suites {
    fixtures: Vec<(String, Arc<dyn Fixture>)>,
}

impl fmt::Debug for Suites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.fixtures.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

impl Suites {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more store.
    pub fn with(mut self, store: &str, fixture: impl Fixture) -> Self {
        self.fixtures.push((store.to_owned(), Arc::new(fixture)));
        self
    }

    /// Runs them all with the process's own arguments, as [`main`] does.
    pub fn main(self) -> ExitCode {
        self.run(&Arguments::from_args()).exit_code()
    }

    /// As [`main`](Self::main), with these arguments.
    pub fn run(self, args: &Arguments) -> Conclusion {
        // Each looks at a store of its own, which may take a while to open.
        let trials = std::thread::scope(|scope| {
            let looking: Vec<_> = self
                .fixtures
                .iter()
                .map(|(store, fixture)| {
                    scope.spawn(move || trials(store, &format!("{store}::"), fixture))
                })
                .collect();
            looking.into_iter().flat_map(joined).collect()
        });
        libtest_mimic::run(args, trials)
    }
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The cases of one store. A listing must not fail because a server is down; but
/// then every case does, and none is left out.
fn trials(store: &str, prefix: &str, fixture: &Arc<dyn Fixture>) -> Vec<Trial> {
    let claims = claims(fixture);
    let cases = cases::all().into_iter();
    cases
        .map(|case| trial(store, prefix, fixture, &claims, case))
        .collect()
}

fn trial(
    store: &str,
    prefix: &str,
    fixture: &Arc<dyn Fixture>,
    claims: &Result<Claims, String>,
    case: Case,
) -> Trial {
    let name = format!("{prefix}{}", case.name);
    let lacks = claims.as_ref().ok().and_then(|c| c.lacks(case.needs));
    if let Some(CaseResult::NotClaimed(reason) | CaseResult::NotShown(reason)) = lacks {
        return Trial::ignorable_test(name, move || Ok(Completion::ignored_with(reason)))
            .with_kind(reason)
            .with_ignored_flag(true);
    }
    let broken = claims.as_ref().err().cloned();
    let (store, fixture) = (store.to_owned(), Arc::clone(fixture));
    Trial::test(name, move || {
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
