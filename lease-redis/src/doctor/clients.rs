//! Whom the server lets in, and whom it throws out.

use std::time::Duration;

use lease_core::Finding;

use super::info::Info;
use super::settings::Settings;
use super::{Facts, healthy, note, warning};

/// Less than this many bytes may be too few for a burst of hints.
const SMALL_BUFFER: u64 = 1 << 20;

pub(super) fn judge(info: Option<&Info>, settings: &Settings, facts: &Facts) -> Vec<Finding> {
    [
        idle(settings, facts),
        room(info, settings),
        subscribers(settings),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn idle(settings: &Settings, facts: &Facts) -> Option<Finding> {
    let seconds = settings.number("timeout")?;
    if seconds == 0 {
        let why = "the server closes no idle connection";
        return Some(healthy("timeout: 0", why));
    }
    let what = format!("timeout: idle connections are closed after {seconds} s");
    // A lease is renewed after a third of its TTL.
    Some(if Duration::from_secs(seconds) <= facts.ttl.get() / 3 {
        let why = format!(
            "a lease of {} is renewed less often than that: each renewal finds the connection \
             closed and has to open another",
            facts.ttl
        );
        warning(what, why).advice("set timeout 0, or longer than a third of the TTL")
    } else {
        note(what, "the store opens another one when it needs it")
    })
}

fn room(info: Option<&Info>, settings: &Settings) -> Option<Finding> {
    let info = info?;
    let most = info
        .number("maxclients")
        .or_else(|| settings.number("maxclients"))?;
    let now = info.number("connected_clients")?;
    let turned_away = info.number("rejected_connections").unwrap_or(0);
    let what = format!("connections: {now} of {most} (maxclients)");
    let why = "when all are taken, a client that lost its connection cannot renew";
    let advice = "raise maxclients, or look for programs that leave connections open";
    Some(if now >= most / 10 * 9 {
        warning(what, why).advice(advice)
    } else if turned_away > 0 {
        let what = format!("{what}, and {turned_away} were turned away since the server's start");
        note(what, why).advice(advice)
    } else {
        healthy(what, why)
    })
}

/// `client-output-buffer-limit normal 0 0 0 slave … pubsub <hard> <soft> <s>`.
fn subscribers(settings: &Settings) -> Option<Finding> {
    let limits = settings.text("client-output-buffer-limit")?;
    let mut words = limits
        .split_whitespace()
        .skip_while(|w| *w != "pubsub")
        .skip(1);
    let hard: u64 = words.next()?.parse().ok()?;
    let soft: u64 = words.next()?.parse().ok()?;
    let what = format!("client-output-buffer-limit pubsub: {hard} and {soft} bytes");
    let small = |limit| limit != 0 && limit < SMALL_BUFFER;
    Some(if small(hard) || small(soft) {
        let why = "a waiting client that reads slowly is disconnected and misses wake-ups; it \
                   then waits for its timer";
        note(what, why).advice("set it back to 32mb 8mb 60")
    } else {
        let why = "the server keeps what it tells waiting clients until they read it";
        healthy(what, why)
    })
}
