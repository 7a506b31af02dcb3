//! Primaries are killed under load, one after the other.

use std::time::Duration;

use lease_conformance::servers::redis::sentinel::SentinelTrio;
use lease_core::Ttl;
use rand::RngExt;

use crate::holder::Seen;
use crate::load::Load;
use crate::trio::{act, options, start};

const TTLS_MS: std::ops::RangeInclusive<u64> = 300..=1000;

async fn with_kills(quarantine: bool) -> Seen {
    let builder = SentinelTrio::builder().down_after(Duration::from_millis(500));
    let trio = start(builder).await;
    let option = || match quarantine {
        true => {
            let most = Duration::from_millis(*TTLS_MS.end());
            options(&trio).quarantine(Ttl::new(most).unwrap())
        }
        false => options(&trio),
    };
    let guarantees = option().guarantees();
    assert!(!guarantees.exclusion_survives.failover);
    assert_eq!(guarantees.exclusion_survives.data_loss, quarantine);
    let load = Load::start(TTLS_MS, (0..4).map(|_| option()).collect()).await;
    let mut random = load.random();
    let mut kills = 0;
    while load.goes_on() {
        let more = if quarantine { *TTLS_MS.end() } else { 0 };
        let up = Duration::from_millis(more + random.random_range(200..900));
        tokio::time::sleep(up).await;
        act(&trio, |trio| {
            let former = trio.primary()?;
            former.server().kill()?;
            trio.primary_other_than(former.address())?;
            // It comes back as a replica.
            former.server().start()?;
            trio.settle()
        })
        .await;
        kills += 1;
    }
    // The former primary answers nobody: only what a replica had not got is lost.
    let seen = load.end(quarantine).await;
    assert!(kills > 0, "{seen:?}");
    assert_eq!(seen.refused > 0, quarantine, "{seen:?}");
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise() {
    with_kills(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_quarantine_nobody_overlaps() {
    with_kills(true).await;
}
