//! What a restart does to grants.

use lease_core::Finding;

use super::info::Info;
use super::settings::Settings;
use super::{Facts, SILENT, critical, healthy, note, unknown, warning};

pub(super) fn judge(info: &Info, settings: &Settings, facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![on_disk(info, settings, facts)];
    findings.extend(quarantine(facts));
    findings.extend(failures(info, settings));
    findings
}

/// What is on the disk, and so what a restart may lose; `None` for nothing.
fn lost_in_a_restart<'a>(info: &Info, settings: &'a Settings) -> Option<(String, Option<&'a str>)> {
    let aof = info.flag("aof_enabled")?;
    let (save, fsync) = (settings.text("save"), settings.text("appendfsync"));
    let lazy = settings.yes("no-appendfsync-on-rewrite") == Some(true);
    let (how, lost) = match (aof, fsync, save) {
        (true, Some("always"), _) if lazy => (
            "an append-only file, appendfsync always, but not while it is rewritten \
             (no-appendfsync-on-rewrite)"
                .to_owned(),
            Some("a loss of power during a rewrite loses the grants since its start"),
        ),
        (true, Some("always"), _) => ("an append-only file, appendfsync always".to_owned(), None),
        (true, Some("everysec"), _) => (
            "an append-only file, appendfsync everysec".to_owned(),
            Some(
                "a loss of power loses the grants of the last one or two seconds, and so may a \
                 crash while the disk is busy",
            ),
        ),
        (true, Some(fsync), _) => (
            format!("an append-only file, appendfsync {fsync}"),
            Some("a loss of power loses the grants of half a minute or more"),
        ),
        (true, None, _) => (
            "an append-only file; how often it reaches the disk is not known".to_owned(),
            Some("unless it is appendfsync always, a loss of power loses the latest grants"),
        ),
        (false, _, Some("")) => (
            "none".to_owned(),
            Some("a restart loses every grant and every mark"),
        ),
        (false, _, Some(_)) => (
            "snapshots only".to_owned(),
            Some("a crash loses every grant since the last snapshot"),
        ),
        (false, _, None) => (
            "no append-only file".to_owned(),
            Some("a restart loses every grant since the last snapshot, if there is one at all"),
        ),
    };
    Some((format!("persistence: {how}"), lost))
}

fn on_disk(info: &Info, settings: &Settings, facts: &Facts) -> Finding {
    const ALWAYS: &str = "set appendonly yes, appendfsync always and no-appendfsync-on-rewrite no";
    let Some((what, lost)) = lost_in_a_restart(info, settings) else {
        let why = "what a restart does to grants depends on it";
        return unknown("persistence", why, SILENT);
    };
    let Some(lost) = lost else {
        return healthy(
            what,
            "a grant is on the disk before it is answered, so it survives a restart and a loss \
             of power",
        );
    };
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
    warning(what, why).advice(format!(
        "{ALWAYS}, or give the store a quarantine: `?quarantine_ms=` with the longest TTL in use"
    ))
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

/// Whether the last writes to the disk went well.
fn failures(info: &Info, settings: &Settings) -> Vec<Finding> {
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

    fn severities(info: &str, settings: &[(&str, &str)]) -> Vec<(Severity, String)> {
        judge(&Info::parse(info), &Settings::of(settings), &facts())
            .into_iter()
            .map(|finding| (finding.severity, finding.what))
            .collect()
    }

    #[test]
    fn what_the_server_does_not_say_is_not_guessed() {
        use Severity::{Critical, Note, Warning};
        let found = |info, settings: &[_]| severities(info, settings)[0].0;
        assert_eq!(found("", &[]), Note);
        assert_eq!(found("aof_enabled:maybe", &[]), Note);
        assert_eq!(found("aof_enabled:1", &[]), Warning);
        assert_eq!(found("aof_enabled:0", &[]), Warning);
        assert_eq!(found("aof_enabled:1", &[("appendfsync", "odd")]), Warning);

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
}
