//! The replica and the forms, without a server.

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::toy::{Add, Toy, add};
use crate::nats::log::message::{self, Encoded, Mark, Message, Named, Nonce, Unreadable};
use crate::nats::log::replica::{LOG_MAX, Replica, Verdict, WINDOW};

fn nonce(n: u64) -> Nonce {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    Nonce::from_bytes(bytes)
}

fn of(n: u64, after: Mark) -> Message<Add> {
    Message {
        nonce: nonce(n),
        after,
        snapshot: None,
        ops: vec![add(n)],
    }
}

/// Applies it a step further.
fn apply(replica: &mut Replica<Toy>, message: Message<Add>) -> Verdict<usize> {
    let revision = replica.last.revision + 3;
    replica.apply(revision, revision, 100, message).verdict
}

#[test]
fn a_message_comes_back_as_it_was_written() {
    let ops = [0, 1, 70_000].map(|bytes| Add {
        number: bytes as u64,
        body: vec![b'\n'; bytes].into(),
    });
    let encoded = ops.each_ref().map(|op| Encoded::of::<Toy>(op).unwrap());
    let after = Mark {
        revision: u64::MAX,
        nonce: nonce(7),
    };
    let named = Named {
        covers: u64::MAX,
        bytes: u64::MAX,
    };
    for ops in [&encoded[..], &[]] {
        let bytes: usize = ops.iter().map(Encoded::bytes).sum();
        let payload = message::encode(nonce(u64::MAX), after, Some(named), ops).unwrap();
        assert!(
            payload.len() <= bytes + message::MARGIN,
            "{}",
            payload.len()
        );
        let read = message::decode::<Toy>(&payload).unwrap();
        assert_eq!((read.nonce, read.after), (nonce(u64::MAX), after));
        assert_eq!((read.snapshot, read.ops.len()), (Some(named), ops.len()));
    }
    let payload = message::encode(nonce(1), after, None, &encoded).unwrap();
    let read = message::decode::<Toy>(&payload).unwrap();
    for (read, written) in read.ops.iter().zip(&ops) {
        assert_eq!((read.number, &read.body), (written.number, &written.body));
    }
}

#[test]
fn what_is_cut_or_longer_or_other_is_no_message() {
    let op = Encoded::of::<Toy>(&add(5)).unwrap();
    let good = message::encode(nonce(1), Mark::default(), None, &[op]).unwrap();
    for cut in 0..good.len() {
        assert!(message::decode::<Toy>(&good[..cut]).is_err(), "{cut}");
    }
    let longer = [&good[..], b"x"].concat();
    assert!(message::decode::<Toy>(&longer).is_err());
    let text = String::from_utf8(good.to_vec()).unwrap();
    for (from, to, why) in [
        ("\"leases\":1", "\"leases\":2", Unreadable::Newer),
        ("\"leases\":1", "\"leases\":0", Unreadable::Foreign),
        ("\"add\"", "\"sub\"", Unreadable::Foreign),
        ("\"ops\"", "\"more\":1,\"ops\"", Unreadable::Foreign),
        ("\"bodies\":[6]", "\"bodies\":[3,3]", Unreadable::Foreign),
        (
            "\"bodies\":[6]",
            "\"bodies\":[18446744073709551615]",
            Unreadable::Foreign,
        ),
    ] {
        let bad = text.replace(from, to);
        assert_ne!(bad, text, "{from}");
        assert_eq!(
            message::decode::<Toy>(bad.as_bytes()).unwrap_err(),
            why,
            "{bad}"
        );
    }
}

/// Copies at any distance, in any order: each operation has its effect once at most, and
/// what had none by the first copy that came never has one.
#[test]
fn copies_have_no_effect_however_late_they_come() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut replica = Replica::<Toy>::default();
        let mut sent: Vec<Message<Add>> = Vec::new();
        let mut marks = vec![Mark::default()];
        let mut verdicts = std::collections::HashMap::new();
        for n in 1..6000 {
            let copy = random.random_range(0..3) == 0 && !sent.is_empty();
            let message = if copy {
                // Most often one of the latest, or one at the edge of the memory.
                let back = match random.random_range(0..3) {
                    0 => random.random_range(0..sent.len()),
                    1 => random.random_range(0..10),
                    _ => random.random_range(WINDOW / 2..WINDOW),
                };
                sent[sent.len().saturating_sub(1 + back)].clone()
            } else {
                let back = match random.random_range(0..4) {
                    0 => random.random_range(0..WINDOW + 100),
                    _ => random.random_range(0..20),
                };
                let message = of(n, marks[marks.len().saturating_sub(1 + back)]);
                // Some are lost, and only a copy arrives.
                sent.push(message.clone());
                if random.random_range(0..5) == 0 {
                    continue;
                }
                message
            };
            let number = message.ops[0].number;
            let verdict = apply(&mut replica, message);
            marks.push(replica.last);
            match verdicts.get(&number) {
                None => {
                    verdicts.insert(number, verdict);
                }
                Some(_) => assert!(!matches!(verdict, Verdict::Applied(_)), "seed {seed}"),
            }
            // And the same from a snapshot on.
            if random.random_range(0..500) == 0 {
                let saved = replica.save().unwrap();
                let loaded = Replica::<Toy>::load(saved.clone()).unwrap();
                let text = |pieces: Vec<_>| format!("{pieces:?}");
                assert_eq!(text(loaded.save().unwrap()), text(saved));
                replica = loaded;
            }
        }
        let effects = verdicts
            .values()
            .filter(|v| matches!(v, Verdict::Applied(_)));
        assert_eq!(replica.machine.applied.len(), effects.count());
        let distinct: std::collections::HashSet<_> = replica.machine.applied.iter().collect();
        assert_eq!(distinct.len(), replica.machine.applied.len());
    }
}

#[test]
fn what_is_based_on_another_history_has_no_effect() {
    let mut replica = Replica::<Toy>::default();
    for n in 1..10 {
        let after = replica.last;
        apply(&mut replica, of(n, after));
    }
    let (last, count) = (replica.last, replica.count);
    let other = Mark {
        nonce: nonce(99),
        ..last
    };
    let later = Mark {
        revision: last.revision + 1,
        ..last
    };
    assert_eq!(apply(&mut replica, of(20, other)), Verdict::Late);
    assert_eq!(apply(&mut replica, of(21, later)), Verdict::Late);
    assert_eq!(apply(&mut replica, of(22, last)), Verdict::Applied(vec![9]));
    assert_eq!(replica.count, count + 3);
}

#[test]
fn operations_wait_for_a_snapshot_and_nobody_else_can_undo_one() {
    let mut replica = Replica::<Toy>::default();
    let mut appointed = 0;
    for n in 1..=LOG_MAX {
        let message = of(n, replica.last);
        let revision = replica.last.revision + 1;
        let outcome = replica.apply(revision, 0, 100, message);
        assert!(matches!(outcome.verdict, Verdict::Applied(_)), "{n}");
        appointed += u32::from(outcome.appointed);
    }
    assert_eq!(appointed, 7);
    let full = of(LOG_MAX + 1, replica.last);
    assert_eq!(apply(&mut replica, full), Verdict::Full);
    let named = |covers| Message {
        snapshot: Some(Named { covers, bytes: 1 }),
        ..of(1_000_000 + covers, Mark::default())
    };
    // Of messages that are not there, of none, and in the same message as an operation.
    for (covers, is_full) in [
        (LOG_MAX + 100, true),
        (0, true),
        (4000, false),
        (3000, false),
    ] {
        let message = Message {
            after: replica.last,
            ..named(covers)
        };
        let verdict = apply(&mut replica, message);
        assert_eq!(verdict == Verdict::Full, is_full, "{covers}");
    }
    assert_eq!(replica.behind(), replica.count - 4000);
}

#[test]
fn a_spoilt_snapshot_is_none() {
    let mut replica = Replica::<Toy>::default();
    for n in 1..10 {
        let after = replica.last;
        apply(&mut replica, of(n, after));
    }
    let saved = replica.save().unwrap();
    assert!(Replica::<Toy>::load(saved.clone()).is_some());
    assert!(Replica::<Toy>::load(Vec::new()).is_none());
    assert!(Replica::<Toy>::load(saved[1..].to_vec()).is_none());
    let mut short = saved.clone();
    short[0].1[0] = short[0].1[0].slice(1..);
    assert!(Replica::<Toy>::load(short).is_none());
    let mut unordered = saved;
    let marks = unordered[0].1[0].to_vec();
    unordered[0].1[0] = Bytes::from([&marks[24..48], &marks[..24]].concat());
    assert!(Replica::<Toy>::load(unordered).is_none());
}

/// One server's clock was wrong for a moment.
#[test]
fn time_goes_on_after_a_stamp_that_is_far_ahead_and_after_a_step_back() {
    let mut replica = Replica::<Toy>::default();
    let mut seen = Vec::new();
    for (n, stamp) in (1..).zip([1_000, 2_000, 9_000_000, 3_000, 4_000, 1_500, 1_700]) {
        let message = of(n, replica.last);
        let verdict = replica.apply(n, stamp, 100, message).verdict;
        assert!(matches!(verdict, Verdict::Applied(_)), "{verdict:?}");
        seen.push(replica.machine.last.unwrap().us);
    }
    let ahead = 9_000_000;
    let after = [0, 0, 1_000, 1_000, 1_200].map(|passed| ahead + passed);
    assert_eq!(seen, [&[1_000, 2_000], &after[..]].concat());
}
