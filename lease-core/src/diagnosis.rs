//! What a look at the real store found, and what to do about it.

use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Healthy,
    /// Worth knowing.
    Note,
    /// A promise is weaker than it could be.
    Warning,
    /// A promise does not hold.
    Critical,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Critical => "critical",
        })
    }
}

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was looked at and what it is.
    pub what: String,
    /// Why it matters for a lease.
    pub why: String,
    /// What to set, if anything.
    pub advice: Option<String>,
}

impl Finding {
    /// A finding without advice.
    #[must_use]
    pub fn new(severity: Severity, what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            severity,
            what: what.into(),
            why: why.into(),
            advice: None,
        }
    }

    /// Says what to set.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// Everything found, in the order in which it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// The worst severity among the findings.
    #[must_use]
    pub fn worst(&self) -> Severity {
        self.findings
            .iter()
            .map(|f| f.severity)
            .max()
            .unwrap_or(Severity::Healthy)
    }
}
