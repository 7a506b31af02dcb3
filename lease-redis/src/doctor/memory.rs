//! Whether the memory has an end, and what happens there.

use lease_core::Finding;

use super::info::Info;
use super::{SILENT, critical, healthy, note, unknown, warning};

const MIB: u64 = 1 << 20;

pub(super) fn judge(info: &Info) -> Vec<Finding> {
    let why = "grants and marks carry an expiry: every policy but noeviction may throw them out \
               when the memory is full, and then a held key is granted again";
    let (Some(limit), Some(policy)) = (info.number("maxmemory"), info.text("maxmemory_policy"))
    else {
        return vec![unknown("memory", why, SILENT)];
    };
    if limit == 0 {
        let what = format!("memory: no limit of its own (maxmemory 0, {policy})");
        return vec![if policy == "noeviction" {
            healthy(what, "nothing is evicted")
        } else {
            note(what, "nothing is evicted as long as maxmemory is 0")
                .advice("set maxmemory-policy noeviction before anybody sets maxmemory")
        }];
    }
    let used = info.number("used_memory");
    let what = format!(
        "memory: {} of {} used, maxmemory-policy {policy}",
        used.map_or_else(|| "an unknown part".to_owned(), size),
        size(limit)
    );
    if policy != "noeviction" {
        let evicted = info.number("evicted_keys").unwrap_or(0);
        return vec![
            critical(format!("{what}; {evicted} keys evicted so far"), why).advice(
                "set maxmemory-policy noeviction, or give leases a server without a cache on it",
            ),
        ];
    }
    let why = "a full server refuses every acquire and every renewal, so that holders lose their \
               leases";
    let advice = "raise maxmemory, or remove data";
    vec![match used {
        Some(used) if used >= limit => critical(what, why).advice(advice),
        Some(used) if used >= limit / 10 * 9 => warning(what, why).advice(advice),
        _ => healthy(what, why),
    }]
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
            ("odd", "noeviction", "5", Note),
        ] {
            let info = Info::parse(&format!(
                "maxmemory:{limit}\nmaxmemory_policy:{policy}\nused_memory:{used}"
            ));
            assert_eq!(
                judge(&info)[0].severity,
                severity,
                "{limit} {policy} {used}"
            );
        }
        assert_eq!(judge(&Info::default())[0].severity, Note);
    }
}
