//! A look at the real server: what decides whether a lease is safe on it.

use std::time::Duration;

use lease_core::{Diagnosis, Finding, Severity, StoreError, Ttl};
use sqlx::{Row as _, query};
use tokio::time::Instant;

use crate::errors::{self, Phase};
use crate::exchange::Exchange;

const LOOK: &str = "\
    SELECT current_setting('server_version') AS version, pg_is_in_recovery() AS standby, \
        current_setting('fsync') AS fsync, \
        current_setting('synchronous_commit') AS synchronous_commit";

pub(crate) async fn diagnose(exchange: &Exchange, ttl: Ttl) -> Result<Diagnosis, StoreError> {
    // The first one may have to connect.
    exchange.rows(query(LOOK)).await.map_err(StoreError::from)?;
    let asked = Instant::now();
    let rows = exchange.rows(query(LOOK)).await.map_err(StoreError::from)?;
    let took = asked.elapsed();
    let row = rows.first().ok_or_else(errors::odd)?;
    let failed = |error| errors::classify(Phase::Unsent, "looking at the server", error);
    let text = |column: &str| row.try_get::<String, _>(column).map_err(failed);
    let standby: bool = row.try_get("standby").map_err(failed)?;
    let findings = vec![
        Finding::new(
            Severity::Healthy,
            format!("Postgres {}", text("version")?),
            "the store is made for version 12 and later",
        ),
        role(standby),
        fsync(&text("fsync")?),
        commit(&text("synchronous_commit")?),
        latency(took, ttl),
    ];
    Ok(Diagnosis { findings })
}

fn role(standby: bool) -> Finding {
    let why = "leases are granted by the primary alone";
    match standby {
        false => Finding::new(Severity::Healthy, "role: primary", why),
        true => Finding::new(Severity::Critical, "role: standby", why)
            .advice("name the primary in the URL"),
    }
}

fn fsync(setting: &str) -> Finding {
    let why = "a grant that is answered must be on the disk, or a crash gives its key to another";
    match setting {
        "on" => Finding::new(Severity::Healthy, "fsync: on", why),
        other => Finding::new(Severity::Critical, format!("fsync: {other}"), why)
            .advice("set fsync = on; without it a crash can also ruin the whole database"),
    }
}

fn commit(setting: &str) -> Finding {
    let why =
        "with off, a crash of the server loses the last grants: exclusion survives no restart";
    match setting {
        "off" => Finding::new(Severity::Warning, "synchronous_commit: off", why)
            .advice("open the store without asynchronous_commit"),
        other => Finding::new(
            Severity::Healthy,
            format!("synchronous_commit: {other}"),
            why,
        ),
    }
}

fn latency(took: Duration, ttl: Ttl) -> Finding {
    let why = "a renewal has to come through several times within a TTL";
    let what = format!("a round trip took {took:?}, for a TTL of {:?}", ttl.get());
    if took.saturating_mul(100) < ttl.get() {
        Finding::new(Severity::Healthy, what, why)
    } else if took.saturating_mul(10) < ttl.get() {
        Finding::new(Severity::Note, what, why)
    } else {
        Finding::new(Severity::Warning, what, why).advice("use a longer TTL or a nearer server")
    }
}
