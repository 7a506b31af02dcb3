//! What a restart does to grants.

use lease_core::{Finding, Severity};

use super::ask::Answer;
use super::info::Info;
use super::obstacles::{Obstacle, Obstacles};
use super::settings::Settings;
use super::{Facts, LOOK, SILENT, critical, healthy, note, warning};

pub(super) fn judge(
    info: &Answer<Info>,
    settings: &Settings,
    obstacles: &Obstacles,
    facts: &Facts,
) -> Vec<Finding> {
    let mut findings = vec![on_disk(info, settings, facts)];
    findings.extend(quarantine(facts));
    let stopped = obstacles.met(Obstacle::Disk);
    findings.extend(failures(info.as_ref().ok(), settings, stopped));
    findings
}

/// What a restart or a loss of power does to grants.
#[derive(Clone, Copy, Debug)]
enum Loss {
    None,
    Some(&'static str),
    /// It may be so, or not.
    Unsure(&'static str),
}

/// What is on the disk, and so what may be lost.
fn on_the_disk_now(info: &Answer<Info>, settings: &Settings) -> (String, Loss) {
    let aof = match info {
        Ok(info) => info.flag("aof_enabled").ok_or(SILENT.to_owned()),
        Err(refusal) => Err(refusal.to_string()),
    };
    let aof = match aof {
        Ok(aof) => aof,
        Err(reason) => {
            let what = format!("persistence: could not be checked ({reason})");
            return (what, Loss::Unsure("a restart may lose grants"));
        }
    };
    let (save, fsync) = (settings.text("save"), settings.text("appendfsync"));
    let lazy = settings.yes("no-appendfsync-on-rewrite") == Some(true);
    let (how, loss) = match (aof, fsync, save) {
        (true, Some("always"), _) if lazy => (
            "an append-only file, appendfsync always, but not while it is rewritten \
             (no-appendfsync-on-rewrite)"
                .to_owned(),
            Loss::Some("a loss of power during a rewrite loses the grants since its start"),
        ),
        (true, Some("always"), _) => (
            "an append-only file, appendfsync always".to_owned(),
            Loss::None,
        ),
        (true, Some("everysec"), _) => (
            "an append-only file, appendfsync everysec".to_owned(),
            Loss::Some(
                "a loss of power loses the grants of the last one or two seconds, and so may a \
                 crash while the disk is busy",
            ),
        ),
        (true, Some(fsync), _) => (
            format!("an append-only file, appendfsync {fsync}"),
            Loss::Some("a loss of power loses the grants of half a minute or more"),
        ),
        (true, None, _) => (
            "an append-only file; how often it reaches the disk could not be checked".to_owned(),
            Loss::Unsure(
                "unless it is appendfsync always, a loss of power loses the latest grants",
            ),
        ),
        (false, _, Some("")) => (
            "none".to_owned(),
            Loss::Some("a restart loses every grant and every mark"),
        ),
        (false, _, Some(_)) => (
            "snapshots only".to_owned(),
            Loss::Some("a crash loses every grant since the last snapshot"),
        ),
        (false, _, None) => (
            "no append-only file".to_owned(),
            Loss::Some(
                "a restart loses every grant since the last snapshot, if there is one at all",
            ),
        ),
    };
    (format!("persistence: {how}"), loss)
}

fn on_disk(info: &Answer<Info>, settings: &Settings, facts: &Facts) -> Finding {
    const ALWAYS: &str = "set appendonly yes, appendfsync always and no-appendfsync-on-rewrite no";
    const QUARANTINE: &str =
        "give the store a quarantine: `?quarantine_ms=` with the longest TTL in use";
    let (what, loss) = on_the_disk_now(info, settings);
    let lost = match loss {
        Loss::None => {
            let why = "a grant is on the disk before it is answered, so it survives a restart and \
                       a loss of power";
            return healthy(what, why);
        }
        Loss::Some(lost) | Loss::Unsure(lost) => lost,
    };
    let unsure = matches!(loss, Loss::Unsure(_));
    if facts.durable && unsure {
        let why = format!("the store is told that this server is durable; {lost}");
        return warning(what, why).advice(LOOK);
    }
    if facts.durable {
        let why = format!("the store is told that this server is durable, and it is not: {lost}");
        return critical(what, why).advice(format!("{ALWAYS}, or take `durable` out of the URL"));
    }
    if let Some(quarantine) = facts.quarantine {
        let why = format!(
            "{lost}; after each restart the quarantine refuses grants for {quarantine}, until \
             every grant from before has ended"
        );
        return note(what, why);
    }
    let why = format!(
        "{lost}: a key that is still held is then granted again, and only its higher token \
         protects (tokens keep rising with the server's clock)"
    );
    let first = if unsure { LOOK } else { ALWAYS };
    warning(what, why).advice(format!("{first}; or {QUARANTINE}"))
}

fn quarantine(facts: &Facts) -> Option<Finding> {
    let quarantine = facts.quarantine?;
    let why = "it must last as long as the longest grant that a restart may have made the server \
               forget";
    let what = format!("quarantine: {quarantine}, for a TTL of {}", facts.ttl);
    Some(if facts.ttl > quarantine {
        critical(what, why).advice("make `quarantine_ms` at least the longest TTL in use")
    } else {
        healthy(what, why)
    })
}

/// Whether the last writes to the disk went well; `stopped` when the server
/// was seen to refuse writes because they did not.
fn failures(info: Option<&Info>, settings: &Settings, stopped: bool) -> Vec<Finding> {
    let mut findings = info.map_or_else(Vec::new, |info| told(info, settings));
    let seen = |finding: &Finding| finding.severity == Severity::Critical;
    if stopped && !findings.iter().any(seen) {
        let what = "disk: the server cannot save its data and refuses writes";
        let why = "no key can be acquired or renewed until it can";
        // What it says of its last saves is older than that.
        findings.retain(|finding| finding.severity != Severity::Healthy);
        findings.push(critical(what, why).advice("see the server's log and its disk"));
    }
    findings
}

/// What the server says of its last writes.
fn told(info: &Info, settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let aof = info.flag("aof_enabled") == Some(true);
    if aof && info.ok("aof_last_write_status") == Some(false) {
        findings.push(
            critical(
                "append-only file: the last write failed",
                "until one succeeds the server refuses every acquire and every renewal",
            )
            .advice("see the server's log and its disk"),
        );
    }
    if aof && info.ok("aof_last_bgrewrite_status") == Some(false) {
        findings.push(
            warning(
                "append-only file: the last rewrite failed",
                "the file grows until the disk is full, and then the server refuses writes",
            )
            .advice("see the server's log, its disk and its memory"),
        );
    }
    match info.ok("rdb_last_bgsave_status") {
        Some(false) => findings.push(failed_save(settings)),
        Some(true) if findings.is_empty() => findings.push(healthy(
            "disk: the last writes and saves went well",
            "a server that cannot save refuses writes, and with them every renewal",
        )),
        _ => {}
    }
    findings
}

fn failed_save(settings: &Settings) -> Finding {
    const ADVICE: &str = "see the server's log, its disk and its memory";
    let what = "snapshot: the last one failed";
    let by_itself = settings.text("save") != Some("");
    if by_itself && settings.yes("stop-writes-on-bgsave-error") != Some(false) {
        let why = "until one succeeds the server refuses every acquire and every renewal \
                   (stop-writes-on-bgsave-error)";
        return critical(what, why).advice(ADVICE);
    }
    let why = "after a restart the server has older data, or none";
    warning(what, why).advice(ADVICE)
}

#[cfg(test)]
mod tests {
    use lease_core::Severity;

    use super::*;
    use crate::doctor::tests::facts;

    fn judged(info: &str, settings: &[(&str, &str)], durable: bool) -> Vec<Finding> {
        let facts = Facts { durable, ..facts() };
        let (info, settings) = (Ok(Info::parse(info)), Settings::of(settings));
        judge(&info, &settings, &Obstacles::default(), &facts)
    }

    fn severities(info: &str, settings: &[(&str, &str)]) -> Vec<(Severity, String)> {
        judged(info, settings, false)
            .into_iter()
            .map(|finding| (finding.severity, finding.what))
            .collect()
    }

    #[test]
    fn what_the_server_does_not_say_is_not_guessed() {
        use Severity::{Critical, Warning};
        let found = |info, settings: &[_]| severities(info, settings)[0].0;
        assert_eq!(found("", &[]), Warning);
        assert_eq!(found("aof_enabled:maybe", &[]), Warning);
        assert_eq!(found("aof_enabled:1", &[]), Warning);
        assert_eq!(found("aof_enabled:0", &[]), Warning);
        assert_eq!(found("aof_enabled:1", &[("appendfsync", "odd")]), Warning);

        let promised = |info, settings: &[_]| judged(info, settings, true)[0].severity;
        assert_eq!(promised("", &[]), Warning);
        assert_eq!(promised("aof_enabled:1", &[]), Warning);
        assert_eq!(promised("aof_enabled:0", &[]), Critical);

        let failed = "aof_enabled:1\naof_last_write_status:err\naof_last_bgrewrite_status:err";
        let all = severities(failed, &[("appendfsync", "always")]);
        assert_eq!(all[1].0, Critical);
        assert_eq!(all[2].0, Warning);
        // Without save points a failed snapshot stops nothing.
        let failed = "aof_enabled:0\nrdb_last_bgsave_status:err";
        assert_eq!(severities(failed, &[("save", "")])[1].0, Warning);
        assert_eq!(severities(failed, &[("save", "3600 1")])[1].0, Critical);
        assert_eq!(severities(failed, &[])[1].0, Critical);
    }

    #[test]
    fn writes_that_are_refused_count_for_more_than_what_is_said() {
        let said = Info::parse("aof_enabled:0\nrdb_last_bgsave_status:ok");
        for info in [Some(&said), None] {
            let found = failures(info, &Settings::default(), true);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].severity, Severity::Critical);
        }
    }
}
