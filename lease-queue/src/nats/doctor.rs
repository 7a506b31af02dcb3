//! A look at the real servers.

use std::time::Duration;

use async_nats::jetstream::stream::Info;
use lease_core::{Diagnosis, Finding, Severity, StoreError, Ttl};
use tokio::time::Instant;

use super::errors;
use super::link::Link;

/// A renewal that takes a tenth of the TTL leaves few tries.
const SLOW: u32 = 10;

pub(super) async fn diagnose(link: &Link, ttl: Ttl) -> Result<Diagnosis, StoreError> {
    let asked = Instant::now();
    let info = link
        .stream
        .get_info()
        .await
        .map_err(|e| errors::unavailable("JetStream did not tell about the stream", e))?;
    let took = asked.elapsed();
    let server = link.context.client().server_info();
    let mut findings = vec![
        Finding::new(
            Severity::Healthy,
            format!("NATS {}, stream {}", server.version, link.name),
            "JetStream answers, and the stream keeps each key's last record",
        ),
        replicas(&info),
        clock(ttl),
    ];
    findings.extend(followers(&info));
    findings.push(round_trip(took, ttl));
    Ok(Diagnosis { findings })
}

fn replicas(info: &Info) -> Finding {
    match info.config.num_replicas {
        0..=2 => Finding::new(
            Severity::Warning,
            "the stream is on one server",
            "grants and tokens survive that server's crash, but not the loss of its disk; and \
             after a loss of power the last records may be missing, since the server syncs to \
             its disk every two minutes unless configured, and the program cannot ask for that",
        )
        .advice(
            "use three servers, or set sync_interval in the server's jetstream block (from 2.10) \
             to `always`",
        ),
        replicas => Finding::new(
            Severity::Healthy,
            format!("the stream is on {replicas} servers"),
            "a record is on a majority before it is acknowledged; one server may be lost",
        ),
    }
}

fn followers(info: &Info) -> Option<Finding> {
    let cluster = info.cluster.as_ref()?;
    let behind: Vec<_> = cluster
        .replicas
        .iter()
        .filter(|peer| peer.offline || !peer.current)
        .map(|peer| peer.name.as_str())
        .collect();
    (!behind.is_empty()).then(|| {
        Finding::new(
            Severity::Warning,
            format!("not up to date: {}", behind.join(", ")),
            "without a majority nothing is granted and nothing renewed",
        )
        .advice("look at that server and its log")
    })
}

fn clock(ttl: Ttl) -> Finding {
    Finding::new(
        Severity::Note,
        "JetStream has no clock to ask",
        format!(
            "whoever takes over has seen the key unchanged for what its grant lasts: after a \
             crash a key is free {ttl} after somebody first looks at it, so within twice that"
        ),
    )
}

fn round_trip(took: Duration, ttl: Ttl) -> Finding {
    let slow = took > ttl.get() / SLOW;
    let what = format!("one request took {took:?}");
    let why = "an acquire takes two, a renewal one";
    match slow {
        false => Finding::new(Severity::Healthy, what, why),
        true => Finding::new(Severity::Warning, what, why).advice(format!(
            "use a TTL far longer than {ttl}, or nearer servers"
        )),
    }
}
