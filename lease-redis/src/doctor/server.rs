//! Which server it is.

use lease_core::Finding;

use super::ask::Answer;
use super::info::Info;
use super::obstacles::{Obstacle, Obstacles};
use super::{Facts, LOOK, SILENT, critical, healthy, note, unknown, warning};

/// The first version with rights by user, and what the scripts need.
const OLDEST: u64 = 6;
/// The oldest version that the store is tested with.
const TESTED: u64 = 7;

pub(super) fn judge(info: &Answer<Info>, obstacles: &Obstacles, facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![match info {
        Ok(info) => version(info),
        Err(refusal) => unknown("server", WHY, refusal).advice(LOOK),
    }];
    match facts.slot {
        Some(_) => findings.extend(info.as_ref().ok().and_then(sharded_channels)),
        None => findings.extend(mode(info.as_ref().ok(), obstacles)),
    }
    findings
}

const WHY: &str = "the store is tested with Redis 7 and Valkey, and needs what Redis 6 has";

fn version(info: &Info) -> Finding {
    let why = WHY;
    if let Some((name, version)) = other_make(info) {
        let what = format!("server: {name} {version}");
        return match name.as_str() {
            "valkey" => healthy(what, why),
            _ => note(what, why).advice(
                "try it with the conformance suite first: other makes of server differ in \
                 scripts, in persistence and in who may write",
            ),
        };
    }
    let Some(version) = info.text("redis_version") else {
        return unknown("server", why, SILENT);
    };
    let what = format!("server: Redis {version}");
    match version
        .split('.')
        .next()
        .and_then(|n| n.parse::<u64>().ok())
    {
        None => unknown("version", why, SILENT),
        Some(0..OLDEST) => critical(what, why).advice("upgrade to Redis 7 or later, or to Valkey"),
        Some(OLDEST..TESTED) => note(what, why).advice("upgrade to Redis 7 or later, or to Valkey"),
        Some(_) => healthy(what, why),
    }
}

/// Servers that speak Redis's protocol name themselves in a field of their own.
fn other_make(info: &Info) -> Option<(String, &str)> {
    let own = info.ending("_version").into_iter();
    let own = own
        .filter_map(|(field, version)| Some((field.strip_suffix("_version")?, version)))
        .find(|(name, _)| !matches!(*name, "redis" | "gcc" | "lua" | "jemalloc"));
    if let Some((name, version)) = own {
        return Some((name.to_owned(), version));
    }
    let version = info.text("redis_version").unwrap_or("of unknown version");
    // It names itself only by its program.
    let program = info.text("executable").unwrap_or_default();
    if program.contains("keydb") {
        return Some(("keydb".to_owned(), version));
    }
    let name = info.text("server_name")?;
    (!name.is_empty() && name != "redis").then(|| (name.to_owned(), version))
}

fn mode(info: Option<&Info>, obstacles: &Obstacles) -> Option<Finding> {
    let why = "a store on one server sends all its requests to that server";
    let name = info.and_then(|info| info.text("redis_mode"));
    if name == Some("sentinel") {
        return Some(
            critical("mode: a sentinel, which holds no data", why)
                .advice("name the primary that the sentinel watches in the URL"),
        );
    }
    let cluster = info
        .and_then(|info| info.flag("cluster_enabled"))
        .or_else(|| Some(name? == "cluster"));
    match cluster {
        _ if obstacles.met(Obstacle::Cluster) => Some(part_of_a_cluster()),
        Some(true) => Some(part_of_a_cluster()),
        Some(false) => Some(healthy("mode: a server of its own", why)),
        None => None,
    }
}

/// In a cluster, wake-ups go by what Redis 7 brought.
fn sharded_channels(info: &Info) -> Option<Finding> {
    let version = info.text("redis_version")?;
    let major = version.split('.').next()?.parse::<u64>().ok()?;
    (major < TESTED).then(|| {
        let what = format!("wake-ups: none, by Redis {version}");
        let why = "it has no sharded channels, so who waits for a key waits for its timer";
        warning(what, why).advice("upgrade to Redis 7 or later, or to Valkey")
    })
}

fn part_of_a_cluster() -> Finding {
    critical(
        "mode: part of a cluster",
        "keys of other parts are refused, and the keys of this part move",
    )
    .advice("write redis+cluster:// in the URL, or use a server of its own for leases")
}

#[cfg(test)]
mod tests {
    use lease_core::Severity;

    use super::*;

    fn found(info: &str) -> (Severity, String) {
        let finding = version(&Info::parse(info));
        (finding.severity, finding.what)
    }

    #[test]
    fn makes_are_named_as_found() {
        use Severity::{Critical, Healthy, Note};
        for (info, severity, what) in [
            (
                "redis_version:7.0.15\ngcc_version:12",
                Healthy,
                "Redis 7.0.15",
            ),
            (
                "redis_version:8.0.0\nserver_name:redis",
                Healthy,
                "Redis 8.0.0",
            ),
            ("redis_version:6.2.1", Note, "Redis 6.2.1"),
            ("redis_version:5.0.7", Critical, "Redis 5.0.7"),
            (
                "redis_version:7.2.4\nserver_name:valkey\nvalkey_version:8.1.0",
                Healthy,
                "valkey 8.1.0",
            ),
            (
                "redis_version:7.4.0\ndragonfly_version:df-v1.2",
                Note,
                "dragonfly df-v1.2",
            ),
            (
                "redis_version:6.3.4\nexecutable:/usr/bin/keydb-server",
                Note,
                "keydb 6.3.4",
            ),
            ("redis_version:7.2.0\nserver_name:odd", Note, "odd 7.2.0"),
            ("redis_version:x.y", Note, "could not be found out"),
            ("", Note, "could not be found out"),
        ] {
            let (is, words) = found(info);
            assert_eq!(is, severity, "{info}");
            assert!(words.contains(what), "{words}");
        }
    }

    #[test]
    fn only_a_server_of_its_own_serves_leases() {
        let found = |info, obstacles: &_| {
            mode(Some(&Info::parse(info)), obstacles).map(|finding| finding.severity)
        };
        let severity = |info| found(info, &Obstacles::default());
        let own = severity("cluster_enabled:0\nredis_mode:standalone");
        assert_eq!(own, Some(Severity::Healthy));
        assert_eq!(severity("cluster_enabled:1"), Some(Severity::Critical));
        assert_eq!(severity("redis_mode:cluster"), Some(Severity::Critical));
        assert_eq!(severity("redis_mode:sentinel"), Some(Severity::Critical));
        assert_eq!(severity(""), None);
        // What it does counts for more than what it says.
        let met = Obstacles::of(["CROSSSLOT"]);
        assert_eq!(found("cluster_enabled:0", &met), Some(Severity::Critical));
    }
}
