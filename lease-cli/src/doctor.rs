//! `lease doctor`: what a look at the real store found.

use leases::{Finding, Severity};
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
    let store = target.open(patience).await?;
    let diagnosis = patience.ask(|| store.backend().diagnose(args.ttl)).await?;
    let worst = diagnosis.worst();
    if args.form.json {
        output::print_json(&DiagnosisJson {
            store: store.backend().guarantees().store.to_string(),
            worst: worst.to_string(),
            findings: diagnosis.findings.iter().map(FindingJson::from).collect(),
        })?;
    } else {
        let text: String = diagnosis.findings.iter().map(human).collect();
        output::print(text)?;
    }
    Ok(match worst {
        Severity::Healthy | Severity::Note => Exit::Success,
        Severity::Warning => Exit::No,
        _ => Exit::Critical,
    })
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
