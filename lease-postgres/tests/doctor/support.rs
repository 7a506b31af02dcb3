//! Servers, and what was found.

use std::time::Duration;

use lease_conformance::servers::postgres::{PostgresBuilder, PostgresServer, PostgresUrl};
use lease_core::{Diagnosis, Finding, LeaseBackend, Severity, Ttl};
use lease_postgres::PostgresOptions;

pub(crate) fn server() -> PostgresServer {
    quick().start().unwrap()
}

/// As a server that is kept well, but for its `fsync`.
pub(crate) fn quick() -> PostgresBuilder {
    PostgresServer::builder()
        .fsync(false)
        .role("app", "secret", "")
}

pub(crate) fn options(url: PostgresUrl) -> PostgresOptions {
    PostgresOptions::from_url(&url.to_string()).unwrap()
}

pub(crate) async fn look(options: PostgresOptions) -> Diagnosis {
    let ttl = Ttl::new(Duration::from_secs(30)).unwrap();
    let store = options.open_lazily().unwrap();
    store.diagnose(ttl).await.unwrap()
}

/// The one finding about something.
#[track_caller]
pub(crate) fn about<'f>(found: &'f Diagnosis, subject: &str) -> &'f Finding {
    let mut of = found.findings.iter().filter(|finding| {
        let rest = finding.what.strip_prefix(subject);
        rest.is_some_and(|rest| rest.starts_with(':'))
    });
    let one = of.next();
    assert!(of.next().is_none(), "{subject} twice: {found:?}");
    one.unwrap_or_else(|| panic!("{subject} is missing: {found:?}"))
}

#[track_caller]
pub(crate) fn is(found: &Diagnosis, subject: &str, severity: Severity, part: &str) {
    let one = about(found, subject);
    assert_eq!(one.severity, severity, "{one:?}");
    assert!(one.what.contains(part), "{one:?}");
    assert!(!one.why.is_empty());
    let tells = one.advice.is_some() || severity <= Severity::Note;
    assert!(tells, "{one:?}");
}
