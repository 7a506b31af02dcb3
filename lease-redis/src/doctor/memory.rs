//! Whether the memory has an end, and what happens there.

use lease_core::Finding;

use super::ask::Answer;
use super::info::Info;
use super::obstacles::{Obstacle, Obstacles};
use super::{SILENT, critical, healthy, note, unchecked, warning};

const MIB: u64 = 1 << 20;

pub(super) fn judge(info: &Answer<Info>, obstacles: &Obstacles) -> Finding {
    let full = obstacles.met(Obstacle::Memory);
    let (info, reason) = match info {
        Ok(info) => (Some(info), SILENT.to_owned()),
        Err(refusal) => (None, refusal.to_string()),
    };
    let limits = info.and_then(|info| {
        Some((
            info,
            info.number("maxmemory")?,
            info.text("maxmemory_policy")?,
        ))
    });
    match limits {
        Some((info, limit, policy)) => limited(info, limit, policy, full),
        None if full => critical("memory: full", FULL).advice(MORE),
        None => unchecked("memory", EVICTED, reason),
    }
}

const EVICTED: &str = "grants and marks carry an expiry: every policy but noeviction may throw \
                       them out when the memory is full, and then a held key is granted again";
const FULL: &str = "a full server refuses every acquire and every renewal, so that holders lose \
                    their leases";
const MORE: &str = "raise maxmemory, or remove data";

fn limited(info: &Info, limit: u64, policy: &str, full: bool) -> Finding {
    if limit == 0 {
        let what = format!("memory: no limit of its own (maxmemory 0, {policy})");
        return if policy == "noeviction" {
            healthy(what, "nothing is evicted")
        } else {
            note(what, "nothing is evicted as long as maxmemory is 0")
                .advice("set maxmemory-policy noeviction before anybody sets maxmemory")
        };
    }
    let used = info.number("used_memory");
    let what = format!(
        "memory: {} of {} used, maxmemory-policy {policy}",
        used.map_or_else(|| "an unknown part".to_owned(), size),
        size(limit)
    );
    if policy != "noeviction" {
        let evicted = info.number("evicted_keys").unwrap_or(0);
        return critical(format!("{what}; {evicted} keys evicted so far"), EVICTED).advice(
            "set maxmemory-policy noeviction, or give leases a server without a cache on it",
        );
    }
    match used {
        _ if full => critical(what, FULL).advice(MORE),
        Some(used) if used >= limit => critical(what, FULL).advice(MORE),
        Some(used) if used >= limit / 10 * 9 => warning(what, FULL).advice(MORE),
        _ => healthy(what, FULL),
    }
}

fn size(bytes: u64) -> String {
    if bytes < 10 * MIB {
        format!("{} KiB", bytes / 1024)
    } else {
        format!("{} MiB", bytes / MIB)
    }
}

#[cfg(test)]
mod tests {
    use lease_core::Severity;

    use super::*;

    #[test]
    fn a_limit_is_judged_by_what_happens_at_it() {
        use Severity::{Critical, Healthy, Note, Warning};
        for (limit, policy, used, severity) in [
            ("0", "noeviction", "5", Healthy),
            ("0", "allkeys-lru", "5", Note),
            ("100", "noeviction", "5", Healthy),
            ("100", "noeviction", "95", Warning),
            ("100", "noeviction", "100", Critical),
            ("100", "noeviction", "odd", Healthy),
            ("100", "volatile-ttl", "5", Critical),
            ("100", "allkeys-lfu", "5", Critical),
            ("odd", "noeviction", "5", Warning),
        ] {
            let info = Info::parse(&format!(
                "maxmemory:{limit}\nmaxmemory_policy:{policy}\nused_memory:{used}"
            ));
            let found = judge(&Ok(info), &Obstacles::default());
            assert_eq!(found.severity, severity, "{limit} {policy} {used}");
        }
        let nothing = |obstacles| judge(&Ok(Info::default()), &obstacles).severity;
        assert_eq!(nothing(Obstacles::default()), Warning);
        assert_eq!(nothing(Obstacles::of(["OOM"])), Critical);
    }
}
