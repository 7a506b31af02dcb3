//! Whether old versions of rows are cleared away: every renewal leaves one.

use lease_core::{Finding, StoreError};

use super::ask::{Answer, Asker, Refusal};
use super::server::Settings;
use super::tables::Tables;
use super::{counted, healthy, note, shown, unknown, warning};

/// Seconds after which a transaction is in the way.
const LONG: i64 = 60;
const VERY_LONG: i64 = 600;
/// Transactions that a slot or a standby may be behind.
const FAR_BEHIND: i64 = 100_000;
/// As many old versions are nothing.
const FEW_DEAD: i64 = 20_000;

/// What keeps old versions from being cleared away.
#[derive(Debug)]
pub(super) struct Vacuum {
    /// Seconds of the oldest transaction that is seen, and of the oldest that is
    /// prepared; and whether sessions of others are hidden.
    oldest: Answer<(i64, i64, bool)>,
    /// The slot that is furthest behind, in transactions.
    slot: Answer<(String, i64)>,
}

impl Vacuum {
    pub(super) async fn ask(asker: &mut Asker<'_>) -> Result<Self, StoreError> {
        let oldest = asker
            .one(
                "SELECT coalesce(max(date_part('epoch', clock_timestamp() - xact_start)) \
                    FILTER (WHERE pid <> pg_backend_pid() AND backend_xmin IS NOT NULL), 0)::bigint \
                    AS running, \
                 (SELECT coalesce(max(date_part('epoch', clock_timestamp() - prepared)), 0)::bigint \
                    FROM pg_prepared_xacts) AS prepared, \
                 coalesce(bool_or(query = '<insufficient privilege>'), false) AS hidden \
                 FROM pg_stat_activity",
            )
            .await?;
        let oldest = oldest.and_then(|line| {
            Ok((
                line.number("running")?,
                line.number("prepared")?,
                line.flag("hidden")?,
            ))
        });
        let slot = asker
            .all(
                "SELECT slot_name::text AS name, age(xmin)::bigint AS age \
                 FROM pg_replication_slots WHERE xmin IS NOT NULL ORDER BY age(xmin) DESC LIMIT 1",
            )
            .await?;
        let slot = slot.and_then(|lines| match lines.first() {
            Some(line) => Ok((line.text("name")?, line.number("age")?)),
            None => Ok((String::new(), 0)),
        });
        Ok(Self { oldest, slot })
    }
}

pub(super) fn judge(vacuum: &Vacuum, tables: &Tables, settings: &Settings) -> Vec<Finding> {
    vec![
        running(settings, tables),
        dead(tables),
        oldest(vacuum),
        slot(vacuum),
    ]
    .into_iter()
    .flatten()
    .collect()
}

const WHY: &str = "every renewal leaves an old version of its row; as they pile up, everything \
                   that touches the key becomes slower";

fn running(settings: &Settings, tables: &Tables) -> Option<Finding> {
    let on = |name| settings.get(name).map(|setting| setting.value == "on");
    let (autovacuum, counts) = match (on("autovacuum"), on("track_counts")) {
        (Ok(autovacuum), Ok(counts)) => (autovacuum, counts),
        (Err(refusal), _) | (_, Err(refusal)) => {
            return Some(unknown("autovacuum", WHY, refusal));
        }
    };
    let off: Vec<_> = tables
        .all
        .iter()
        .flatten()
        .filter(|table| table.is.as_ref().is_some_and(|is| is.autovacuum_off))
        .map(|table| table.name.as_str())
        .collect();
    Some(if !autovacuum {
        warning("autovacuum: off", WHY).advice("set autovacuum = on")
    } else if !counts {
        warning("autovacuum: blind, track_counts is off", WHY).advice("set track_counts = on")
    } else if !off.is_empty() {
        warning(format!("autovacuum: off for {}", off.join(", ")), WHY)
            .advice("ALTER TABLE … RESET (autovacuum_enabled)")
    } else {
        healthy("autovacuum: on", WHY)
    })
}

fn dead(tables: &Tables) -> Option<Finding> {
    let is = tables.table("keys")?;
    let since = match is.vacuumed {
        Some(seconds) => format!("vacuumed {} ago", shown(seconds)),
        None => "not vacuumed yet".to_owned(),
    };
    let what = format!(
        "old versions: about {} for {}, {since}",
        is.dead,
        counted(is.rows, "key")
    );
    Some(if is.dead > FEW_DEAD.max(is.rows.saturating_mul(5)) {
        warning(what, WHY).advice(
            "see what keeps VACUUM back; if nothing does, let it come more often: ALTER TABLE … SET \
             (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)",
        )
    } else {
        healthy(what, WHY)
    })
}

fn oldest(vacuum: &Vacuum) -> Option<Finding> {
    let why = "while a transaction is open nothing that was current when it began is cleared away";
    let (running, prepared, hidden) = match &vacuum.oldest {
        Ok(oldest) => *oldest,
        Err(refusal) => return Some(unknown("long transactions", why, refusal)),
    };
    let worst = running.max(prepared);
    let what = match prepared > running {
        true => format!(
            "long transactions: one was prepared {} ago",
            shown(prepared)
        ),
        false => format!("long transactions: the oldest began {} ago", shown(running)),
    };
    let advice = "end it: see xact_start in pg_stat_activity, and pg_prepared_xacts";
    Some(match worst {
        VERY_LONG.. => warning(what, why).advice(advice),
        LONG.. => note(what, why).advice(advice),
        _ if hidden => unknown("long transactions", why, Refusal::Hidden),
        _ => healthy("long transactions: none", why),
    })
}

fn slot(vacuum: &Vacuum) -> Option<Finding> {
    let why = "a replication slot keeps what its standby may still look at, also when nobody uses \
               it any more";
    let (name, age) = match &vacuum.slot {
        Ok(slot) => slot,
        Err(refusal) => return Some(unknown("replication slots", why, refusal)),
    };
    Some(if *age > FAR_BEHIND {
        warning(
            format!("replication slots: {name:?} is {age} transactions behind"),
            why,
        )
        .advice("bring its standby back, or drop it: pg_drop_replication_slot")
    } else {
        healthy("replication slots: none keeps VACUUM back", why)
    })
}

#[cfg(test)]
mod tests {
    use lease_core::Severity;

    use super::*;

    fn of(running: i64, prepared: i64, hidden: bool, behind: i64) -> Vacuum {
        Vacuum {
            oldest: Ok((running, prepared, hidden)),
            slot: Ok(("s".to_owned(), behind)),
        }
    }

    #[test]
    fn what_keeps_vacuum_back_is_told_and_what_is_hidden_is_not_called_sound() {
        let severity = |vacuum: &Vacuum| oldest(vacuum).map(|finding| finding.severity);
        assert_eq!(severity(&of(5, 0, false, 0)), Some(Severity::Healthy));
        assert_eq!(severity(&of(5, 0, true, 0)), Some(Severity::Note));
        assert_eq!(severity(&of(90, 0, true, 0)), Some(Severity::Note));
        assert_eq!(severity(&of(0, 700, true, 0)), Some(Severity::Warning));
        let words = oldest(&of(5, 90_000, false, 0)).map(|finding| finding.what);
        assert_eq!(
            words.as_deref(),
            Some("long transactions: one was prepared 25 hours ago")
        );
        let severity = |behind| slot(&of(0, 0, false, behind)).map(|finding| finding.severity);
        assert_eq!(severity(0), Some(Severity::Healthy));
        assert_eq!(severity(200_000), Some(Severity::Warning));
    }
}
