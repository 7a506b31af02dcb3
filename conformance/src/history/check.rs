//! The judge of a history.

use std::collections::BTreeMap;
use std::time::Duration;

use lease_core::{DriftAllowance, Owner, Token};

use super::{Done, Record};

/// The first thing found that no store which keeps the contract could have
/// done, in words; `None` for a history without fault.
///
/// * Tokens of one key are distinct between owners, and one owner that never
///   let its grant end has one token.
/// * A grant that was asked for after another one's reply has a higher token.
/// * Two owners' validity intervals never overlap: from the reply of a
///   confirmed call to its send plus the TTL without the drift allowance, cut
///   where the owner sent its release or abandon.
/// * Nothing of an owner is granted or renewed that was sent after the reply
///   of its abandon.
pub(crate) fn violation(records: &[Record], drift: DriftAllowance) -> Option<String> {
    order_violation(records).or_else(|| {
        let keys = by_key(records);
        keys.values().find_map(|records| overlap(records, drift))
    })
}

/// As [`violation`], and two owners may hold a key at once: what is left of a
/// store that lost grants.
pub(crate) fn order_violation(records: &[Record]) -> Option<String> {
    by_key(records).values().find_map(|records| {
        repeated_token(records)
            .or_else(|| falling_token(records))
            .or_else(|| act_after_abandon(records))
    })
}

fn by_key(records: &[Record]) -> BTreeMap<usize, Vec<Record>> {
    let mut keys: BTreeMap<usize, Vec<Record>> = BTreeMap::new();
    for record in records {
        keys.entry(record.key).or_default().push(*record);
    }
    keys
}

fn grants(records: &[Record]) -> Vec<(Record, Token)> {
    let granted = records.iter().filter_map(|r| match r.done {
        Done::Granted { token, .. } | Done::Held { token, .. } => Some((*r, token)),
        _ => None,
    });
    granted.collect()
}

fn repeated_token(records: &[Record]) -> Option<String> {
    let mut owners: BTreeMap<Token, Record> = BTreeMap::new();
    for (record, token) in grants(records) {
        let first = owners.entry(token).or_insert(record);
        if first.owner != record.owner {
            return Some(format!(
                "token {token} was granted to two owners: {first:?} and {record:?}"
            ));
        }
    }
    None
}

fn falling_token(records: &[Record]) -> Option<String> {
    let grants = grants(records);
    let (mut by_send, mut by_reply) = (grants.clone(), grants);
    by_send.sort_by_key(|(r, _)| r.sent);
    by_reply.sort_by_key(|(r, _)| r.replied);
    let mut answered = by_reply.into_iter().peekable();
    let mut highest: Option<(Record, Token)> = None;
    for (record, token) in by_send {
        while let Some(before) = answered.next_if(|(r, _)| r.replied < record.sent) {
            if highest.is_none_or(|(_, high)| high < before.1) {
                highest = Some(before);
            }
        }
        if let Some((before, high)) = highest
            && (token < high || (token == high && before.owner != record.owner))
            // A retry of a live grant has the token that it had.
            && !same_grant(records, &record, token)
        {
            return Some(format!(
                "token {token} of {record:?} is not above {high} of {before:?}, which was answered before it was sent"
            ));
        }
    }
    None
}

/// Whether an earlier reply already gave this owner this token.
fn same_grant(records: &[Record], record: &Record, token: Token) -> bool {
    grants(records)
        .iter()
        .any(|(other, t)| *t == token && other.owner == record.owner && other.replied < record.sent)
}

fn act_after_abandon(records: &[Record]) -> Option<String> {
    for abandoned in records.iter().filter(|r| r.done == Done::Abandoned) {
        let late = records.iter().find(|r| {
            r.owner == abandoned.owner
                && r.sent > abandoned.replied
                && matches!(r.done, Done::Granted { .. } | Done::Renewed { .. })
        });
        if let Some(late) = late {
            return Some(format!("{late:?} came after {abandoned:?} was answered"));
        }
    }
    None
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    owner: Owner,
    from: Duration,
    until: Duration,
    record: Record,
}

fn overlap(records: &[Record], drift: DriftAllowance) -> Option<String> {
    let mut ends: BTreeMap<Owner, Duration> = BTreeMap::new();
    for record in records {
        if matches!(record.done, Done::Released | Done::Abandoned) {
            let end = ends.entry(record.owner).or_insert(record.sent);
            *end = (*end).min(record.sent);
        }
    }
    let mut intervals: Vec<Interval> = records
        .iter()
        .filter_map(|record| {
            let deadline = match record.done {
                Done::Granted { ttl, .. } | Done::Renewed { ttl, .. } => {
                    record.sent + drift.validity(ttl)
                }
                Done::Held { until, .. } => until,
                Done::Released | Done::Abandoned => return None,
            };
            let cut = ends.get(&record.owner).copied().unwrap_or(Duration::MAX);
            let interval = Interval {
                owner: record.owner,
                from: record.replied,
                until: deadline.min(cut),
                record: *record,
            };
            (interval.from < interval.until).then_some(interval)
        })
        .collect();
    intervals.sort_by_key(|i| i.from);
    // The latest end so far, and the latest of any other owner than that.
    let (mut last, mut other): (Option<Interval>, Option<Interval>) = (None, None);
    for interval in intervals {
        let rival = [last, other]
            .into_iter()
            .flatten()
            .find(|i| i.owner != interval.owner && i.until > interval.from);
        if let Some(rival) = rival {
            return Some(format!(
                "two owners held one key at {:?}: {:?} until {:?}, and {:?}",
                interval.from, rival.record, rival.until, interval.record
            ));
        }
        match last {
            Some(l) if l.owner == interval.owner => {
                if interval.until > l.until {
                    last = Some(interval);
                }
            }
            Some(l) if interval.until <= l.until => {
                if other.is_none_or(|o| o.until < interval.until) {
                    other = Some(interval);
                }
            }
            _ => {
                other = last;
                last = Some(interval);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use lease_core::Ttl;

    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn record(owner: u8, sent: u64, replied: u64, done: Done) -> Record {
        Record {
            key: 0,
            owner: Owner::from_bytes([owner; 16]),
            sent: at(sent),
            replied: at(replied),
            done,
        }
    }

    fn granted(owner: u8, sent: u64, replied: u64, token: u64, ttl: u64) -> Record {
        let (token, ttl) = (Token::new(token).unwrap(), Ttl::new(at(ttl)).unwrap());
        record(owner, sent, replied, Done::Granted { token, ttl })
    }

    fn renewed(owner: u8, sent: u64, replied: u64, token: u64, ttl: u64) -> Record {
        let (token, ttl) = (Token::new(token).unwrap(), Ttl::new(at(ttl)).unwrap());
        record(owner, sent, replied, Done::Renewed { token, ttl })
    }

    fn judge(records: &[Record]) -> Option<String> {
        violation(records, DriftAllowance::default())
    }

    #[track_caller]
    fn passes(records: &[Record]) {
        assert_eq!(judge(records), None);
    }

    #[track_caller]
    fn fails(records: &[Record], with: &str) {
        let found = judge(records).unwrap_or_default();
        assert!(found.contains(with), "{found:?} lacks {with:?}");
        // The order in which tasks noted their records says nothing.
        let mut reversed = records.to_vec();
        reversed.reverse();
        assert!(judge(&reversed).is_some());
    }

    #[test]
    fn grants_one_after_the_other_pass() {
        passes(&[]);
        passes(&[granted(1, 0, 1, 5, 100), granted(2, 100, 101, 6, 100)]);
        // Asked for early, answered once the first was over.
        passes(&[granted(1, 0, 1, 5, 100), granted(2, 50, 99, 6, 100)]);
        let released = record(1, 10, 12, Done::Released);
        passes(&[
            granted(1, 0, 1, 5, 100),
            released,
            granted(2, 10, 11, 6, 100),
        ]);
        let abandoned = record(1, 10, 12, Done::Abandoned);
        passes(&[
            granted(1, 0, 1, 5, 100),
            abandoned,
            granted(2, 11, 13, 6, 100),
        ]);
    }

    #[test]
    fn a_retry_and_a_renewal_of_one_owner_pass() {
        passes(&[
            granted(1, 0, 1, 5, 100),
            granted(1, 2, 3, 5, 100),
            renewed(1, 80, 81, 5, 100),
            granted(2, 179, 181, 6, 100),
        ]);
        // A new grant of one owner after its first had expired.
        passes(&[granted(1, 0, 1, 5, 100), granted(1, 150, 151, 6, 100)]);
    }

    #[test]
    fn tokens_of_overlapping_requests_may_be_answered_in_any_order() {
        let first = [granted(1, 0, 40, 7, 50), record(1, 3, 3, Done::Released)];
        passes(&[first[0], first[1], granted(2, 2, 30, 6, 100)]);
    }

    #[test]
    fn other_keys_do_not_matter() {
        let mut elsewhere = granted(2, 0, 1, 5, 100);
        elsewhere.key = 1;
        passes(&[granted(1, 0, 1, 5, 100), elsewhere]);
    }

    #[test]
    fn one_token_for_two_owners_fails() {
        fails(
            &[granted(1, 0, 1, 5, 100), granted(2, 200, 201, 5, 100)],
            "two owners",
        );
    }

    #[test]
    fn a_falling_token_fails() {
        fails(
            &[granted(1, 0, 1, 5, 100), granted(2, 200, 201, 4, 100)],
            "not above 5",
        );
        // Not the latest before it, but an earlier one.
        fails(
            &[
                granted(1, 0, 1, 9, 100),
                record(1, 2, 3, Done::Released),
                granted(2, 0, 250, 8, 300),
                record(2, 251, 252, Done::Released),
                granted(3, 300, 301, 7, 100),
            ],
            "not above 9",
        );
    }

    #[test]
    fn two_holders_at_once_fail() {
        fails(
            &[granted(1, 0, 1, 5, 100), granted(2, 10, 11, 6, 100)],
            "two owners held",
        );
        // One millisecond before the first holder's deadline of 97.
        fails(
            &[granted(1, 0, 1, 5, 100), granted(2, 90, 96, 6, 100)],
            "two owners held",
        );
    }

    #[test]
    fn a_renewed_grant_is_still_held() {
        fails(
            &[
                granted(1, 0, 1, 5, 100),
                renewed(1, 50, 51, 5, 100),
                granted(2, 120, 121, 6, 100),
            ],
            "two owners held",
        );
    }

    #[test]
    fn a_long_grant_is_not_hidden_by_short_ones_of_others() {
        fails(
            &[
                granted(1, 0, 1, 5, 1000),
                renewed(1, 2, 3, 5, 60),
                granted(2, 500, 501, 6, 60),
            ],
            "two owners held",
        );
    }

    #[test]
    fn an_abandoned_owner_that_is_granted_or_renewed_fails() {
        let abandoned = record(1, 10, 12, Done::Abandoned);
        let first = granted(1, 0, 1, 5, 100);
        fails(
            &[first, abandoned, granted(1, 20, 21, 6, 100)],
            "came after",
        );
        fails(
            &[first, abandoned, renewed(1, 20, 21, 5, 100)],
            "came after",
        );
        // Sent before the abandon was answered: either order is right.
        passes(&[first, abandoned, renewed(1, 11, 21, 5, 100)]);
    }
}
