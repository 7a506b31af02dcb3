//! A look at the real servers: at the one of the connection, and at what the leader of
//! each stream says of the others.

mod keepers;

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind};
use async_nats::jetstream::stream::Info;
use lease_core::{Diagnosis, Finding, Severity, StoreError, Ttl};
use tokio::time::Instant;

use super::errors;
use super::link::Link;
use super::names::Names;
use crate::store::{Capabilities, MAX_BODY_BYTES};

/// A renewal that takes a tenth of the TTL leaves few tries.
const SLOW: u32 = 10;

/// Of the stream of the owner records, and those of the logs and of the snapshots.
pub(super) async fn diagnose(
    link: &Link,
    names: &Names,
    can: &Capabilities,
    ttl: Ttl,
) -> Result<Diagnosis, StoreError> {
    let asked = Instant::now();
    let info = info(link).await?;
    let took = asked.elapsed();
    let server = link.context.client().server_info();
    let mut findings = vec![
        Finding::new(
            Severity::Healthy,
            format!(
                "NATS {} at the server {}, stream {}",
                server.version, server.server_name, link.name
            ),
            "JetStream answers, and the stream keeps each key's last record",
        ),
        replicas(&info),
        clock(ttl),
        payloads(can),
    ];
    findings.extend(keepers::all(&info));
    findings.extend(keepers::unseen(&info, &server.server_name));
    for name in [names.logs_stream(), names.snaps_stream()] {
        match link.context.get_stream(&name).await {
            Ok(stream) => {
                findings.extend(fewer(stream.cached_info(), &info));
                findings.extend(keepers::all(stream.cached_info()));
            }
            Err(error) => findings.push(no_items(&name, &error)),
        }
    }
    findings.push(round_trip(took, ttl));
    Ok(Diagnosis { findings })
}

async fn info(link: &Link) -> Result<Info, StoreError> {
    let told = link.stream.get_info().await;
    told.map_err(|e| {
        let words = format!("JetStream did not tell about the stream {}", link.name);
        errors::unavailable(words, e)
    })
}

/// A stream of items that is not there, or cannot be looked at.
fn no_items(name: &str, error: &GetStreamError) -> Finding {
    match error.kind() {
        GetStreamErrorKind::JetStream(said) if said.error_code() == ErrorCode::STREAM_NOT_FOUND => {
            Finding::new(
                Severity::Note,
                format!("the stream {name} is not there"),
                "it is made when items are first used; keys do not need it",
            )
        }
        _ => Finding::new(
            Severity::Warning,
            format!("JetStream did not tell about the stream {name}: {error}"),
            "items cannot be used without it",
        )
        .advice("if items are used, give this user the permissions that the store's page names"),
    }
}

/// A stream of items that is on fewer servers than the other one.
fn fewer(items: &Info, keys: &Info) -> Option<Finding> {
    let (on, wanted) = (items.config.num_replicas, keys.config.num_replicas);
    (on < wanted).then(|| {
        let name = &items.config.name;
        Finding::new(
            Severity::Warning,
            format!("the stream {name} is on {on} servers, and that of the keys on {wanted}"),
            "items are refused until it is on as many",
        )
        .advice(format!("nats stream edit {name} --replicas={wanted}"))
    })
}

fn payloads(can: &Capabilities) -> Finding {
    let (body, put) = (can.max_body, can.max_put);
    let what = format!("a payload has up to {body} bytes, and those of one put {put} together");
    let why = "a put is one message, by the max_payload of the server";
    match body < MAX_BODY_BYTES {
        false => Finding::new(Severity::Healthy, what, why),
        true => Finding::new(Severity::Note, what, why)
            .advice("set max_payload to 1MB, the usual, where payloads are larger"),
    }
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
    let why = "an acquire of a key takes two, a renewal one, and what is done to an item one";
    match slow {
        false => Finding::new(Severity::Healthy, what, why),
        true => Finding::new(Severity::Warning, what, why).advice(format!(
            "use a TTL far longer than {ttl}, or nearer servers"
        )),
    }
}
