//! `lease quorum init`: opens a new quorum.

use leases::StoreError;
use leases::redis::{InitReport, InitState, NodeInit, RedlockOptions};
use serde::Serialize;

use crate::args;
use crate::exit::{Exit, Failure};
use crate::output::{self, clean, table, table_text};
use crate::store::Target;

#[derive(Serialize)]
struct ReportJson {
    done: bool,
    opened: usize,
    nodes: Vec<NodeJson>,
}

#[derive(Serialize)]
struct NodeJson {
    node: String,
    state: &'static str,
    words: String,
}

impl From<&NodeInit> for NodeJson {
    fn from(node: &NodeInit) -> Self {
        Self {
            node: node.name.clone(),
            state: match node.state {
                InitState::Opened => "opened",
                InitState::Empty => "empty",
                InitState::InUse(_) => "in_use",
                InitState::Same { .. } => "same_server",
                InitState::Changed => "changed",
                _ => "failed",
            },
            words: words(node),
        }
    }
}

/// A driver's words may hold a URL.
fn words(node: &NodeInit) -> String {
    output::without_urls(&node.state.to_string())
}

pub(crate) async fn init(target: &Target, args: args::QuorumInit) -> Result<Exit, Failure> {
    let options = options(target)?;
    let report = options
        .init()
        .await
        .map_err(|error| target.failure(error.into()))?;
    if args.form.json {
        output::print_json(&ReportJson {
            done: report.is_done(),
            opened: report.opened(),
            nodes: report.nodes.iter().map(NodeJson::from).collect(),
        })?;
    } else {
        output::print(human(&report))?;
    }
    outcome(&report)
}

fn options(target: &Target) -> Result<RedlockOptions, Failure> {
    let url = target.for_child().unwrap_or_default();
    let scheme = url.split(':').next().unwrap_or_default();
    let known = ["redlock", "redlocks"];
    if !known.iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(Failure::new(
            Exit::Usage,
            "this store is no quorum; give one as --store redlock://host,host,host",
        ));
    }
    RedlockOptions::from_url(url).map_err(|error| target.failure(error.into()))
}

fn human(report: &InitReport) -> String {
    let mut table = table(&[]);
    for node in &report.nodes {
        table.add_row([clean(&node.name), clean(&words(node))]);
    }
    table_text(&table)
}

fn outcome(report: &InitReport) -> Result<Exit, Failure> {
    if report.is_done() {
        return Ok(Exit::Success);
    }
    let transient = |error: &StoreError| error.is_transient();
    let away = report
        .nodes
        .iter()
        .any(|node| matches!(&node.state, InitState::Failed(error) if transient(error)));
    let exit = match away {
        true => Exit::Unavailable,
        false => Exit::Misconfigured,
    };
    let (opened, all) = (report.opened(), report.nodes.len());
    if opened > 0 {
        return Err(Failure::new(
            exit,
            format!(
                "{opened} of {all} nodes were opened; that is safe, and nothing needs to be done: \
                 each of the others waits out its quarantine, which begins with the first acquire"
            ),
        ));
    }
    let in_use = |node: &NodeInit| matches!(node.state, InitState::InUse(_));
    let advice = if report.nodes.iter().all(in_use) {
        "it was opened before, or is in use: nothing needs to be done"
    } else if report.nodes.iter().any(in_use) {
        "a quorum in use needs no opening: a node that is new or lost its data waits out its \
         quarantine by itself; never open some of the nodes alone"
    } else {
        "correct that, and try again"
    };
    Err(Failure::new(
        exit,
        format!("no node was opened, since not all of them are new and in reach; {advice}"),
    ))
}
