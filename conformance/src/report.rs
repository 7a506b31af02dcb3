//! The suite as a function: for tests of the suite, and for tools.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::case::Case;
use crate::cases;
use crate::fixture::Fixture;
use crate::runner::{CaseResult, claims, run_case};

/// How many cases [`check`] runs at a time: most of them wait.
const AT_A_TIME: usize = 8;

/// What came of every case, by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The results.
    pub results: BTreeMap<&'static str, CaseResult>,
}

impl Report {
    /// Whether no case failed. Cases that do not apply do not count against a
    /// store; see them with [`not_claimed`](Self::not_claimed). Nor do claims
    /// that the suite cannot show: see them with [`not_shown`](Self::not_shown).
    #[must_use]
    pub fn is_green(&self) -> bool {
        self.failed().next().is_none()
    }

    /// The names of the cases that failed, with their messages.
    pub fn failed(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.results
            .iter()
            .filter_map(|(name, result)| match result {
                CaseResult::Failed(message) => Some((*name, message.as_str())),
                _ => None,
            })
    }

    /// The names of the cases that do not apply, with the reason.
    pub fn not_claimed(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.results
            .iter()
            .filter_map(|(name, result)| match result {
                CaseResult::NotClaimed(reason) => Some((*name, *reason)),
                _ => None,
            })
    }

    /// The names of the cases about what the store claims and this suite
    /// cannot show, with the reason: believe those claims on other grounds.
    pub fn not_shown(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.results
            .iter()
            .filter_map(|(name, result)| match result {
                CaseResult::NotShown(reason) => Some((*name, *reason)),
                _ => None,
            })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, result) in &self.results {
            match result {
                CaseResult::Passed => writeln!(f, "{name}: passed")?,
                CaseResult::Failed(message) => writeln!(f, "{name}: FAILED\n{message}")?,
                CaseResult::NotClaimed(reason) | CaseResult::NotShown(reason) => {
                    writeln!(f, "{name}: ignored, {reason}")?
                }
            }
        }
        Ok(())
    }
}

/// The names of all cases.
#[must_use]
pub fn case_names() -> Vec<&'static str> {
    cases::all().iter().map(|case| case.name).collect()
}

/// Runs all cases. Not from within a tokio runtime: each case has its own.
#[must_use]
pub fn check(fixture: impl Fixture) -> Report {
    check_only(fixture, |_| true)
}

/// Runs the cases whose name `wanted` takes.
///
/// A fixture that cannot open its store fails every case.
#[must_use]
pub fn check_only(fixture: impl Fixture, wanted: impl Fn(&str) -> bool) -> Report {
    let fixture: Arc<dyn Fixture> = Arc::new(fixture);
    let cases: Vec<Case> = cases::all()
        .into_iter()
        .filter(|case| wanted(case.name))
        .collect();
    let claims = match claims(&fixture) {
        Ok(claims) => claims,
        Err(failure) => {
            let failed = |case: Case| (case.name, CaseResult::Failed(failure.clone()));
            return Report {
                results: cases.into_iter().map(failed).collect(),
            };
        }
    };
    let todo = Mutex::new(cases.into_iter());
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    // Not `while let`: that would hold the lock over the case.
                    let Some(case) = lock(&todo).next() else {
                        break;
                    };
                    let result = match claims.lacks(case.needs) {
                        Some(result) => result,
                        None => run_case(&fixture, &case),
                    };
                    lock(&done).insert(case.name, result);
                }
            });
        }
    });
    Report {
        results: done.into_inner().unwrap_or_else(|e| e.into_inner()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
