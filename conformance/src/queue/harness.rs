//! The suite of queues as a test binary, and as a function.

use std::fmt;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use libtest_mimic::{Arguments, Completion, Conclusion, Failed, Trial};

use crate::queue::case::{Can, Case};
use crate::queue::cases;
use crate::queue::context::Ctx;
use crate::queue::fixture::QueueFixture;
use crate::report::Report;
use crate::runner::{CaseResult, LIMIT, on_a_runtime};

/// How many cases [`check`] runs at a time: most of them wait.
const AT_A_TIME: usize = 8;

/// Runs the suite with the process's own arguments; for the `main` of a test with
/// `harness = false`.
///
/// `store` names the store in the failures' messages.
pub fn main(store: &str, fixture: impl QueueFixture) -> ExitCode {
    run(store, fixture, &Arguments::from_args()).exit_code()
}

/// As [`main`], with these arguments.
pub fn run(store: &str, fixture: impl QueueFixture, args: &Arguments) -> Conclusion {
    let fixture: Arc<dyn QueueFixture> = Arc::new(fixture);
    libtest_mimic::run(args, trials(store, "", &fixture))
}

/// Several stores in one test binary, as [`Suites`](crate::Suites) of leases: a case is
/// named `store::group::rule`.
#[derive(Default)]
#[must_use]
pub struct QueueSuites {
    fixtures: Vec<(String, Arc<dyn QueueFixture>)>,
}

impl fmt::Debug for QueueSuites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.fixtures.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

impl QueueSuites {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more store.
    pub fn with(mut self, store: &str, fixture: impl QueueFixture) -> Self {
        self.fixtures.push((store.to_owned(), Arc::new(fixture)));
        self
    }

    /// Runs them all with the process's own arguments.
    pub fn main(self) -> ExitCode {
        self.run(&Arguments::from_args()).exit_code()
    }

    /// Runs them all with these arguments.
    pub fn run(self, args: &Arguments) -> Conclusion {
        let of = |(store, fixture): &(String, Arc<dyn QueueFixture>)| {
            trials(store, &format!("{store}::"), fixture)
        };
        let trials = self.fixtures.iter().flat_map(of).collect();
        libtest_mimic::run(args, trials)
    }
}

/// The names of all cases.
#[must_use]
pub fn case_names() -> Vec<&'static str> {
    cases::all().iter().map(|case| case.name).collect()
}

/// Runs all cases. Not from within a tokio runtime: each case has its own.
#[must_use]
pub fn check(fixture: impl QueueFixture) -> Report {
    check_only(fixture, |_| true)
}

/// Runs the cases whose name `wanted` takes.
///
/// A fixture that cannot open its store fails every case.
#[must_use]
pub fn check_only(fixture: impl QueueFixture, wanted: impl Fn(&str) -> bool) -> Report {
    let fixture: Arc<dyn QueueFixture> = Arc::new(fixture);
    let all = cases::all().into_iter();
    let todo: Vec<Case> = all.filter(|case| wanted(case.name)).collect();
    let can = can(&fixture);
    let (todo, report) = (Mutex::new(todo.into_iter()), Mutex::new(Report::default()));
    let next = || todo.lock().unwrap_or_else(|e| e.into_inner()).next();
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(case) = next() {
                    let result = match &can {
                        Err(failure) => CaseResult::Failed(failure.clone()),
                        Ok(can) => can
                            .lacks(case.needs)
                            .unwrap_or_else(|| run_case(&fixture, &case)),
                    };
                    let mut report = report.lock().unwrap_or_else(|e| e.into_inner());
                    report.results.insert(case.name, result);
                }
            });
        }
    });
    report.into_inner().unwrap_or_else(|e| e.into_inner())
}

/// Looks at what the store can do.
fn can(fixture: &Arc<dyn QueueFixture>) -> Result<Can, String> {
    let fixture = Arc::clone(fixture);
    on_a_runtime(LIMIT, async move {
        let ctx = Ctx::open(fixture.as_ref()).await?;
        let can = ctx.facts();
        ctx.close().await;
        Ok(can)
    })
    .map_err(|failure| failure.to_string())
}

/// Runs a case that applies.
fn run_case(fixture: &Arc<dyn QueueFixture>, case: &Case) -> CaseResult {
    let (fixture, run) = (Arc::clone(fixture), case.run);
    let outcome = on_a_runtime(LIMIT, async move {
        let ctx = Ctx::open(fixture.as_ref()).await?;
        let outcome = run(&ctx).await;
        ctx.close().await;
        outcome
    });
    match outcome {
        Ok(()) => CaseResult::Passed,
        Err(failure) => CaseResult::Failed(format!(
            "{} is broken.\n      rule: {}\n{failure}",
            case.name, case.rule
        )),
    }
}

fn trials(store: &str, prefix: &str, fixture: &Arc<dyn QueueFixture>) -> Vec<Trial> {
    let can = can(fixture);
    let all = cases::all().into_iter();
    all.map(|case| trial(store, prefix, fixture, &can, case))
        .collect()
}

fn trial(
    store: &str,
    prefix: &str,
    fixture: &Arc<dyn QueueFixture>,
    can: &Result<Can, String>,
    case: Case,
) -> Trial {
    let name = format!("{prefix}{}", case.name);
    let lacks = can.as_ref().ok().and_then(|can| can.lacks(case.needs));
    if let Some(CaseResult::NotClaimed(reason) | CaseResult::NotShown(reason)) = lacks {
        return Trial::ignorable_test(name, move || Ok(Completion::ignored_with(reason)))
            .with_kind(reason)
            .with_ignored_flag(true);
    }
    let broken = can.as_ref().err().cloned();
    let (store, fixture) = (store.to_owned(), Arc::clone(fixture));
    Trial::test(name, move || {
        if let Some(failure) = broken {
            let message = format!("{store} cannot be tested:\n{failure}");
            return Err(Failed::from(message));
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
