//! `lease doctor`: what a look at the real store found.

use leases::{Diagnosis, Finding, Severity};
use serde::Serialize;

use crate::args;
use crate::exit::{Exit, Failure};
use crate::output::{self, clean};
use crate::patience::{FIRST_ANSWER, Patience};
use crate::store::Target;

#[derive(Serialize)]
struct DiagnosisJson {
    store: String,
    worst: String,
    findings: Vec<FindingJson>,
}

#[derive(Serialize)]
struct FindingJson {
    severity: String,
    what: String,
    why: String,
    advice: Option<String>,
}

impl From<&Finding> for FindingJson {
    fn from(finding: &Finding) -> Self {
        Self {
            severity: finding.severity.to_string(),
            what: finding.what.clone(),
            why: finding.why.clone(),
            advice: finding.advice.clone(),
        }
    }
}

pub(crate) async fn doctor(target: Target, args: args::Doctor) -> Result<Exit, Failure> {
    let patience = Patience::new(FIRST_ANSWER);
    let store = target.open_lazily().await?;
    let look = || store.backend().diagnose(args.ttl);
    let diagnosis = patience
        .ask(look)
        .await
        .map_err(|error| target.failure(error))?;
    let worst = diagnosis.worst();
    if args.form.json {
        output::print_json(&DiagnosisJson {
            store: store.backend().guarantees().store.to_string(),
            worst: worst.to_string(),
            findings: diagnosis.findings.iter().map(FindingJson::from).collect(),
        })?;
    } else {
        output::print(text(&diagnosis))?;
    }
    Ok(match worst {
        Severity::Healthy | Severity::Note => Exit::Success,
        Severity::Warning => Exit::No,
        _ => Exit::Critical,
    })
}

/// The worst comes last: next to the prompt, where it is not scrolled away.
fn text(diagnosis: &Diagnosis) -> String {
    let mut findings: Vec<_> = diagnosis.findings.iter().collect();
    findings.sort_by_key(|finding| finding.severity);
    let mut text: String = findings.into_iter().map(human).collect();
    text.push_str(&summary(diagnosis));
    text
}

/// How many findings there are of each severity, the worst first.
fn summary(diagnosis: &Diagnosis) -> String {
    let count = |severity| {
        let all = diagnosis.findings.iter();
        all.filter(|finding| finding.severity == severity).count()
    };
    let parts: Vec<_> = [
        (Severity::Critical, "critical"),
        (Severity::Warning, "warning"),
        (Severity::Note, "note"),
    ]
    .into_iter()
    .filter_map(|(severity, name)| match count(severity) {
        0 => None,
        1 => Some(format!("1 {name}")),
        // What is critical is counted without a plural.
        n if severity == Severity::Critical => Some(format!("{n} {name}")),
        n => Some(format!("{n} {name}s")),
    })
    .collect();
    if parts.is_empty() {
        return "all ok\n".to_owned();
    }
    format!("{}\n", parts.join(", "))
}

fn human(finding: &Finding) -> String {
    let severity = finding.severity.to_string();
    let (what, why) = (clean(&finding.what), clean(&finding.why));
    let mut text = format!("{severity:<9} {what}\n          {why}\n");
    if let Some(advice) = &finding.advice {
        text.push_str(&format!("          -> {}\n", clean(advice)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(severities: &[Severity]) -> Diagnosis {
        let finding = |s: &Severity| Finding::new(*s, format!("a {s} thing"), "because");
        Diagnosis {
            findings: severities.iter().map(finding).collect(),
        }
    }

    #[test]
    fn the_worst_is_next_to_the_prompt() {
        use Severity::{Critical, Healthy, Note, Warning};
        let text = text(&of(&[Critical, Healthy, Note, Warning, Healthy, Note]));
        let firsts: Vec<_> = text.lines().filter(|l| !l.starts_with(' ')).collect();
        let words: Vec<_> = firsts.iter().map(|l| l.split(' ').next()).collect();
        let order = ["ok", "ok", "note", "note", "warning", "critical", "1"];
        assert_eq!(words, order.map(Some));
        assert_eq!(firsts[6], "1 critical, 1 warning, 2 notes");
        assert_eq!(summary(&of(&[Critical, Critical])), "2 critical\n");
        assert_eq!(summary(&of(&[Healthy])), "all ok\n");
    }
}
