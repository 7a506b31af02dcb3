//! Tries what the store does, without doing it.
//!
//! Each probe is a request that changes nothing: the server looks at the rights
//! first, then whether it may write at all, and then it finds nothing to do or
//! turns the request down for another reason.

use lease_core::{Finding, Severity};
use redis::{Cmd, Value};

use super::Facts;
use super::ask::{Answers, Place, Questions, Refusal};
use super::obstacles::Obstacles;

/// One right.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    pub(super) command: String,
    /// When it is missing.
    pub(super) severity: Severity,
    pub(super) breaks: &'static str,
}

/// What the probes met.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub(super) missing: Vec<(Probe, Refusal)>,
    pub(super) obstacles: Obstacles,
}

/// Puts all probes among the questions.
pub(super) fn ask(questions: &mut Questions, facts: &Facts) -> Vec<(Probe, Place)> {
    let put = |(command, probe)| (probe, questions.put(command));
    probes(facts).into_iter().map(put).collect()
}

impl Tried {
    pub(super) fn hear(answers: &Answers, asked: Vec<(Probe, Place)>) -> Self {
        let (mut missing, mut codes) = (Vec::new(), Vec::new());
        for (probe, place) in asked {
            match answers.hear::<Value>(place) {
                // Met after the look at the rights.
                Err(Refusal::Error(code)) => codes.push(code),
                Ok(_) | Err(Refusal::Odd) => {}
                Err(refusal) => missing.push((probe, refusal)),
            }
        }
        Self {
            missing,
            obstacles: Obstacles::of(codes.iter().map(String::as_str)),
        }
    }
}

fn probes(facts: &Facts) -> Vec<(Cmd, Probe)> {
    use Severity::{Critical, Note, Warning};
    let (name, birth) = (facts.nobody(), facts.birth());
    let (publish, _) = facts.wake_ups();
    let no_script = "0".repeat(40);
    let nothing = "nothing can be acquired or renewed";
    let mut probes = vec![
        // With two keys, as the store's own: in a cluster they are refused.
        probe(
            &["EVAL", "return 1", "2", &name, &birth],
            Critical,
            "the server never learns the store's script, or not again after a restart, and nothing \
             can be acquired or renewed",
        ),
        probe(&["EVALSHA", &no_script, "0"], Critical, nothing),
        probe(&["TIME"], Critical, nothing),
        probe(&["GET", &name], Critical, nothing),
        // No time at all is refused, after the look at the rights.
        probe(&["PSETEX", &name, "0", ""], Critical, nothing),
        // An option that no version knows: looked at after the rights.
        probe(
            &["SET", &name, "", "NOTHING"],
            Critical,
            "a new store cannot grant its first key, a quarantine cannot begin, an attempt cannot \
             be given up and no key can be fenced",
        ),
        // Nothing at the start of nothing: makes no key.
        probe(
            &["SETRANGE", &name, "0", ""],
            Critical,
            "nothing can be released",
        ),
        probe(
            &["PTTL", &name],
            Critical,
            "an attempt cannot be given up and no held key can be fenced",
        ),
        probe(
            &[publish, &name, ""],
            Warning,
            "nobody who waits is woken up",
        ),
        probe(
            &["SCAN", "0", "MATCH", &name, "COUNT", "1"],
            Warning,
            "keys cannot be listed",
        ),
    ];
    if facts.queues {
        // What leases alone do; queues look at theirs themselves.
        let theirs = ["PSETEX", "SETRANGE", "SCAN"];
        probes.retain(|(_, probe)| !theirs.contains(&&*probe.command));
    }
    let info = match facts.quarantine {
        Some(_) => (
            Critical,
            "the quarantine cannot tell a restart, and nothing can be acquired",
        ),
        None => (Note, "the doctor sees little; the store itself works"),
    };
    probes.push(probe(&["INFO", "server"], info.0, info.1));
    if facts.slot.is_some() {
        probes.extend(of_a_cluster(nothing));
    }
    if facts.wait.is_some() {
        // For no replica: answered at once.
        let breaks = "no grant can wait for its replicas";
        probes.push(probe(&["WAIT", "0", "1"], Critical, breaks));
    }
    probes
}

fn of_a_cluster(nothing: &'static str) -> [(Cmd, Probe); 4] {
    use Severity::{Critical, Note, Warning};
    let epoch = "a node that was cut off and voted away is asked for longer than need be";
    let moving = "a key of a slot that is on its way to another node cannot be used";
    [
        probe(&["CLUSTER", "SLOTS"], Critical, nothing),
        probe(&["CLUSTER", "INFO"], Note, epoch),
        probe(&["CLUSTER", "NODES"], Warning, "keys cannot be listed"),
        probe(&["ASKING"], Warning, moving),
    ]
}

fn probe(request: &[&str], severity: Severity, breaks: &'static str) -> (Cmd, Probe) {
    let mut command = Cmd::new();
    command.arg(request);
    let name = match request {
        // A right of its own for each of its commands.
        ["CLUSTER", what] => format!("CLUSTER|{what}"),
        [name, ..] => (*name).to_owned(),
        [] => String::new(),
    };
    let probe = Probe {
        command: name,
        severity,
        breaks,
    };
    (command, probe)
}

impl Probe {
    /// Says that the right is missing.
    pub(super) fn missing(&self, refusal: &Refusal, facts: &Facts) -> Finding {
        let (command, everything) = (&self.command, facts.names.everything());
        let (what, give) = match refusal {
            Refusal::Key => (
                format!("rights: {command} is not allowed for {everything}"),
                format!("~{everything}"),
            ),
            Refusal::Channel => (
                format!("rights: {command} is not allowed for the channels {everything}"),
                format!("&{everything}"),
            ),
            Refusal::UnknownCommand => (
                format!("rights: the server does not know {command}"),
                String::new(),
            ),
            _ => (
                format!("rights: {command} is not allowed"),
                format!("+{}", command.to_lowercase()),
            ),
        };
        let advice = match give.as_str() {
            "" => format!("see whether rename-command took {command} away"),
            _ => format!("ACL SETUSER <the store's user> {give}"),
        };
        Finding::new(self.severity, what, format!("without it {}", self.breaks)).advice(advice)
    }
}
