//! What the store itself has noted about the server: the birth marker.

use std::time::Duration;

use lease_core::Finding;

use super::ask::{Answer, Answers, Place, Questions, Refusal};
use super::info::Info;
use super::time::Clock;
use super::{Facts, critical, healthy, note, unknown, warning};

/// Marks of keys that were used in the last day must not be forgotten lightly.
const SHORT_RETENTION: Duration = Duration::from_secs(60 * 60);

/// The marker, as far as it can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Birth {
    /// There is none: nothing was granted here yet.
    None,
    /// `B1 life since first [length]`, times in microseconds since the Unix epoch.
    Marker {
        /// The server's life when the marker was last written, or 0: its run id
        /// and the replication id of its data in one word.
        life: String,
        /// When that life was first seen.
        since_us: i64,
        /// When the store was first used.
        first_us: i64,
        /// How long the quarantine of its clients is, in microseconds; 0 when
        /// none of them had any.
        length_us: i64,
    },
    /// Something else.
    Foreign,
}

impl Birth {
    pub(super) fn ask(questions: &mut Questions, name: String) -> Place {
        let mut command = redis::cmd("GET");
        command.arg(name);
        questions.put(command)
    }

    pub(super) fn hear(answers: &Answers, asked: Place) -> Answer<Self> {
        match answers.hear::<Option<String>>(asked) {
            Ok(None) => Ok(Self::None),
            Ok(Some(text)) => Ok(Self::parse(&text)),
            Err(Refusal::Error(code)) if code == "WRONGTYPE" => Ok(Self::Foreign),
            Err(Refusal::Odd) => Ok(Self::Foreign),
            Err(refusal) => Err(refusal),
        }
    }

    fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        let (life, since, first, length) = match words[..] {
            ["B1", life, since, first] => (life, since, first, "0"),
            ["B1", life, since, first, length] => (life, since, first, length),
            _ => return Self::Foreign,
        };
        match (since.parse(), first.parse(), length.parse()) {
            (Ok(since_us), Ok(first_us), Ok(length_us)) => Self::Marker {
                life: life.to_owned(),
                since_us,
                first_us,
                length_us,
            },
            _ => Self::Foreign,
        }
    }
}

pub(super) fn judge(
    birth: &Answer<Birth>,
    clock: &Answer<Clock>,
    info: &Answer<Info>,
    facts: &Facts,
) -> Vec<Finding> {
    let mut findings = vec![marks(facts)];
    if facts.slot.is_some() {
        // Each slot has a marker of its own.
        findings.extend(facts.quarantine.map(|most| {
            let what = format!(
                "slots: each has a quarantine of its own, of {:?}",
                most.get()
            );
            let why = "the first use of a slot waits as long, and so does the first after each \
                       failover and each move of the slot";
            healthy(what, why)
        }));
        return findings;
    }
    if facts.queues {
        let what = "birth markers: each queue has one of its own";
        let why = "it tells how old the queue is; one that holds something else is refused";
        findings.push(healthy(what, why));
        return findings;
    }
    let why = "it tells a restart of the server and how old the store is";
    let (life, since_us, first_us, length_us) = match birth {
        Err(refusal) => {
            findings.push(unknown("birth marker", why, refusal));
            return findings;
        }
        Ok(Birth::None) => {
            findings.push(unborn(facts));
            return findings;
        }
        Ok(Birth::Foreign) => {
            let what = format!("birth marker: {:?} holds something else", facts.birth());
            let why = "the store did not write it and refuses to grant keys while it stands";
            findings.push(
                critical(what, why).advice("remove it, or give leases a prefix of their own"),
            );
            return findings;
        }
        Ok(Birth::Marker {
            life,
            since_us,
            first_us,
            length_us,
        }) => (life, *since_us, *first_us, *length_us),
    };
    let Ok(clock) = clock else { return findings };
    let now_us = clock.server_us;
    if first_us.max(since_us) > now_us {
        let what = "clock: the server's is behind what it was when the store was used before";
        let why = "it has stepped back: tokens go on above the marks that are kept, and may fall \
                   where a mark was forgotten or lost";
        findings.push(warning(what, why).advice("set the server's clock right"));
        return findings;
    }
    let ours_us = facts.quarantine.map_or(0, |ours| micros(ours.get()));
    if length_us != 0 && length_us != ours_us {
        findings.push(unlike(length_us, facts));
        return findings;
    }
    if let Some(quarantine) = facts.quarantine {
        findings.push(quarantined(life, since_us, now_us, quarantine.get(), info));
    } else {
        findings.push(healthy("birth marker: the store's own", why));
    }
    findings
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn unborn(facts: &Facts) -> Finding {
    if facts.quarantine.is_none() {
        return healthy("birth marker: none yet", "no key was used here before");
    }
    let why = "a server that knows nothing of the store is a new one, or has forgotten everything";
    note(BEGINS, why).advice(WAIT)
}

const BEGINS: &str = "quarantine: it begins with the next acquire";
const WAIT: &str = "wait for its end; nothing needs to be done";

fn unlike(length_us: i64, facts: &Facts) -> Finding {
    let theirs = Duration::from_micros(u64::try_from(length_us).unwrap_or(0));
    let ours = match facts.quarantine {
        Some(ours) => ours.to_string(),
        None => "none".to_owned(),
    };
    let what =
        format!("quarantine lengths: {ours} in this URL, and {theirs:?} among other clients");
    let why = "a grant of the longer one may outlast the shorter one: this client is granted no \
               free key";
    critical(what, why).advice(
        "give all clients the same `?quarantine_ms=`; to change it, stop them all first and \
         remove the birth marker",
    )
}

fn quarantined(
    life: &str,
    since_us: i64,
    now_us: i64,
    quarantine: Duration,
    info: &Answer<Info>,
) -> Finding {
    let why = "grants from before the server's last start, or from before it was made the primary, \
               may be forgotten";
    let info = match info {
        Ok(info) => info,
        Err(refusal) => return unknown("quarantine", why, refusal),
    };
    let (Some(run), Some(data)) = (info.text("run_id"), info.text("master_replid")) else {
        return unknown("quarantine", why, super::SILENT);
    };
    if life.strip_prefix(run) != Some(data) {
        return note(BEGINS, why).advice(WAIT);
    }
    let passed = Duration::from_micros(u64::try_from(now_us.saturating_sub(since_us)).unwrap_or(0));
    match quarantine.checked_sub(passed) {
        Some(left) if !left.is_zero() => {
            let what = format!("quarantine: grants are refused for another {left:.0?}");
            note(what, why).advice(WAIT)
        }
        _ => healthy("quarantine: it is over", why),
    }
}

fn marks(facts: &Facts) -> Finding {
    let what = format!("mark_retention: {:?}", facts.mark_retention);
    let why = "the mark of an idle key is kept for so long; after that only the server's clock \
               keeps its tokens rising, which holds unless the clock steps back by more";
    if facts.mark_retention < SHORT_RETENTION {
        note(what, why).advice("keep it for a day, unless keys are many and never used again")
    } else {
        healthy(what, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_stores_own_marker_is_read() {
        let marker = Birth::Marker {
            life: "ab0".to_owned(),
            since_us: 5,
            first_us: 3,
            length_us: 7,
        };
        assert_eq!(Birth::parse("B1 ab0 5 3 7"), marker);
        assert!(matches!(
            Birth::parse("B1 ab0 5 3"),
            Birth::Marker { length_us: 0, .. }
        ));
        for odd in [
            "",
            "B2 a 5 3",
            "B1 a 5",
            "B1 a 5 3 4 5",
            "B1 a 5 3 x",
            "B1 a x 3",
            "B1 a 5 1e400",
        ] {
            assert_eq!(Birth::parse(odd), Birth::Foreign, "{odd}");
        }
    }
}
