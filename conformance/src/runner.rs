//! Runs one case: on its own runtime, with a time limit, and with a panic
//! taken for a failure.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::case::{Case, Claims};
use crate::context::Ctx;
use crate::failure::{Failure, Outcome};
use crate::fixture::Fixture;

/// After this a case hangs. A case takes seconds at most.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// How one case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaseResult {
    /// The rule holds.
    Passed,
    /// The rule is broken; the message says which, what was expected and what
    /// was seen.
    Failed(String),
    /// The store does not claim, or the fixture does not offer, what the case
    /// needs.
    NotClaimed(&'static str),
    /// The store claims what the case is about, and this suite cannot show it:
    /// the claim stands unproven.
    NotShown(&'static str),
}

/// Looks at what the store claims.
pub(crate) fn claims(fixture: &Arc<dyn Fixture>) -> Result<Claims, String> {
    let fixture = Arc::clone(fixture);
    on_a_runtime(LIMIT, async move {
        let ctx = Ctx::open(fixture.as_ref()).await?;
        let claims = Claims::of(ctx.guarantees().clone(), ctx.store());
        ctx.close().await;
        Ok(claims)
    })
    .map_err(|failure| failure.to_string())
}

/// Runs a case that applies.
pub(crate) fn run_case(fixture: &Arc<dyn Fixture>, case: &Case) -> CaseResult {
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

pub(crate) fn on_a_runtime<T, F>(limit: Duration, work: F) -> Outcome<T>
where
    T: Send + 'static,
    F: Future<Output = Outcome<T>> + Send + 'static,
{
    let runtime = runtime()?;
    // On a worker of its own, so that even work that blocks its thread is
    // given up at the limit.
    let task = runtime.spawn(work);
    let ended = runtime.block_on(async { tokio::time::timeout(limit, task).await });
    runtime.shutdown_background();
    match ended {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(join)) => Err(Failure::says(
            "nothing panics",
            panic_message(join.into_panic().as_ref()),
        )),
        Err(_) => Err(Failure::says(
            format!("every call returns; the case ends within {limit:?}"),
            "it still ran then: some call hangs",
        )),
    }
}

fn runtime() -> Outcome<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("lease-conformance")
        .enable_all()
        .build()
        .map_err(|e| Failure::says("the machine has threads for a runtime", e.to_string()))
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    format!(
        "a panic: {}",
        text.unwrap_or_else(|| "without words".into())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(50);

    fn message(outcome: Outcome) -> String {
        outcome.map_or_else(|failure| failure.to_string(), |()| "passed".into())
    }

    #[test]
    fn work_that_hangs_is_given_up_even_when_it_blocks_its_thread() {
        let hangs = on_a_runtime(SOON, std::future::pending());
        assert!(message(hangs).contains("some call hangs"));
        let (keep, never) = std::sync::mpsc::channel::<()>();
        let blocks = on_a_runtime(SOON, async move {
            let _ = never.recv();
            Ok(())
        });
        assert!(message(blocks).contains("some call hangs"));
        drop(keep);
    }

    #[test]
    fn a_panic_is_a_failure_with_its_words() {
        let plain = on_a_runtime(LIMIT, async { panic!("plain words") });
        assert!(message(plain).contains("plain words"));
        let made = on_a_runtime(LIMIT, async { panic!("words of {}", 2) });
        assert!(message(made).contains("words of 2"));
        assert_eq!(message(on_a_runtime(LIMIT, async { Ok(()) })), "passed");
    }
}
