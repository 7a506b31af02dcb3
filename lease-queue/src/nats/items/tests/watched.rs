//! Who may take over: only who has seen the grant unchanged for as long as it lasts.

use lease_core::{FenceWhen, Token};

use super::*;
use crate::nats::items::machine::{MAX_BYTES, MAX_ITEMS};
use crate::nats::items::op::{OneSettle, Seen};
use crate::store::{Answer, MAX_BATCH, MAX_BODY_BYTES, Settle, Settled};

fn extend(claim: &crate::ClaimRef, ms: u64, seen: Option<Seen>) -> Op {
    Op::Settle(vec![OneSettle {
        claim: claim.clone(),
        settle: Settle::Extend(ttl(ms)),
        seen,
    }])
}

fn is_nothing(reply: &Reply) -> bool {
    matches!(reply, Reply::Claimed(Answer::Nothing { .. }, _))
}

#[test]
fn no_stamp_ends_a_grant_however_late_it_is() {
    let clock = Arc::new(ManualClock::new());
    let mut queue = queue(&clock);
    queue.apply(now(&clock, 1), Op::Put(vec![item(1)]));
    let first = claimed(queue.apply(now(&clock, 2), claim(owner(1), ttl(100), vec![])));
    let year = 365 * 24 * 3600 * 1_000_000;
    let late = |revision| At {
        revision,
        us: EPOCH_US + year,
    };
    assert!(is_nothing(
        &queue.apply(late(3), claim(owner(2), ttl(100), vec![]))
    ));
    let done = Reply::Settled(vec![Settled::Done], 4);
    assert_eq!(queue.apply(late(4), extend(&first.claim, 100, None)), done);
}

#[test]
fn an_observation_of_what_was_extended_since_ends_nothing() {
    let clock = Arc::new(ManualClock::new());
    let mut queue = queue(&clock);
    queue.apply(now(&clock, 1), Op::Put(vec![item(1)]));
    let first = claimed(queue.apply(now(&clock, 2), claim(owner(1), ttl(100), vec![])));
    clock.advance(Duration::from_millis(100));
    let over = queue.sights.over(9);
    assert_eq!(over.len(), 1);
    // Another client did not see it as over yet, and extends it first.
    let seen = Some(Seen {
        revision: 2,
        left_us: 1,
    });
    queue.apply(now(&clock, 3), extend(&first.claim, 100, seen));
    assert!(is_nothing(
        &queue.apply(now(&clock, 4), claim(owner(2), ttl(100), over))
    ));
    clock.advance(Duration::from_millis(99));
    assert_eq!(queue.sights.over(9), []);
    clock.advance(Duration::from_millis(1));
    let over = queue.sights.over(9);
    let second = claimed(queue.apply(now(&clock, 5), claim(owner(2), ttl(100), over)));
    assert!(second.claim.token > first.claim.token);
    assert_eq!(second.attempt, 2);
}

#[test]
fn who_comes_late_watches_for_the_whole_of_it() {
    let clock = Arc::new(ManualClock::new());
    let mut early = queue(&clock);
    early.apply(now(&clock, 1), Op::Put(vec![item(1)]));
    early.apply(now(&clock, 2), claim(owner(1), ttl(100), vec![]));
    clock.advance(Duration::from_millis(90));
    let mut late = queue(&clock);
    super::super::saved::load(early.save().unwrap(), &mut late).unwrap();
    clock.advance(Duration::from_millis(99));
    assert_eq!(early.sights.over(9).len(), 1);
    assert_eq!(late.sights.over(9), []);
    assert_eq!(late.sights.next(), Some(Duration::from_millis(1)));
    assert_eq!(late.depth().in_flight, 1);
    assert_eq!(early.depth().in_flight, 0);
    clock.advance(Duration::from_millis(1));
    assert_eq!(late.sights.over(9), early.sights.over(9));
}

#[test]
fn a_holder_counts_from_when_it_asked() {
    let clock = Arc::new(ManualClock::new());
    let mut queue = queue(&clock);
    queue.apply(now(&clock, 1), Op::Put(vec![item(1)]));
    let sent = clock.now();
    clock.advance(Duration::from_millis(60));
    let first = claimed(queue.apply(now(&clock, 2), claim(owner(1), ttl(100), vec![])));
    // It cannot say how long it is over for nobody, before it knows that it asked.
    assert_eq!(queue.seen(&first.claim), None);
    queue.note_sent(&first.claim, 2, sent);
    queue.note_sent(&first.claim, 1, lease_core::Moment::START);
    let seen = queue.seen(&first.claim).unwrap();
    assert_eq!((seen.revision, seen.left_us), (2, 40_000));
    clock.advance(Duration::from_millis(40));
    let seen = queue.seen(&first.claim);
    let lost = Settled::Lost(lease_core::LostCause::Expired);
    let reply = queue.apply(now(&clock, 3), extend(&first.claim, 100, seen));
    assert_eq!(reply, Reply::Settled(vec![lost], 3));
}

#[test]
fn an_extension_never_shortens_what_somebody_else_may_still_see() {
    let clock = Arc::new(ManualClock::new());
    let mut queue = queue(&clock);
    queue.apply(now(&clock, 1), Op::Put(vec![item(1)]));
    let first = claimed(queue.apply(now(&clock, 2), claim(owner(1), ttl(1000), vec![])));
    // It does not know of the latest grant: the longer of both lasts.
    queue.apply(now(&clock, 3), extend(&first.claim, 100, None));
    queue.note_sent(&first.claim, 3, clock.now());
    let seen = queue.seen(&first.claim).unwrap();
    assert_eq!((seen.revision, seen.left_us), (3, 1_000_000));
    // It knows that more is left.
    queue.apply(now(&clock, 4), extend(&first.claim, 100, Some(seen)));
    assert_eq!(queue.seen(&first.claim), Some(seen));
}

#[test]
fn what_is_revoked_stands_in_the_way_until_it_was_seen_to_be_over() {
    let clock = Arc::new(ManualClock::new());
    let mut queue = queue(&clock);
    queue.apply(now(&clock, 1), Op::Put(vec![item(1)]));
    let first = claimed(queue.apply(now(&clock, 2), claim(owner(1), ttl(100), vec![])));
    let fence = Op::Fence {
        lane: first.claim.lane.clone(),
        at_least: Token::MAX_FENCE,
        when: FenceWhen::AtExpiry,
        over: vec![],
    };
    clock.advance(Duration::from_millis(50));
    assert_eq!(
        queue.apply(now(&clock, 3), fence),
        Reply::Fenced(Token::MAX_FENCE)
    );
    assert!(is_nothing(
        &queue.apply(now(&clock, 4), claim(owner(2), ttl(100), vec![]))
    ));
    // The fence is no new grant: the watch goes on.
    clock.advance(Duration::from_millis(50));
    let over = queue.sights.over(9);
    let second = claimed(queue.apply(now(&clock, 5), claim(owner(2), ttl(100), over)));
    assert!(second.claim.token > Token::MAX_FENCE);
}

#[test]
fn a_full_queue_takes_nothing_new_and_knows_what_it_has() {
    let clock = Arc::new(ManualClock::new());
    let mut queue = queue(&clock);
    let large = |n: u16| NewItem {
        id: ItemId::from_bytes((1 + u128::from(n)).to_be_bytes()),
        body: Bytes::from(vec![0; MAX_BODY_BYTES]),
        ..item(0)
    };
    let fit = u16::try_from(MAX_BYTES / MAX_BODY_BYTES as u64).unwrap();
    for n in 0..fit {
        let added = queue.apply(now(&clock, 1 + u64::from(n)), Op::Put(vec![large(n)]));
        assert!(matches!(added, Reply::Added(_)), "{n}");
    }
    let at = now(&clock, 1000);
    let full = Reply::Full {
        items: usize::from(fit),
        bytes: MAX_BYTES,
    };
    // All of a batch, or nothing.
    assert_eq!(queue.apply(at, Op::Put(vec![large(0), large(fit)])), full);
    assert!(matches!(
        queue.apply(at, Op::Put(vec![large(3)])),
        Reply::Added(_)
    ));
    let first = claimed(queue.apply(at, claim(owner(1), ttl(100), vec![])));
    queue.apply(
        at,
        Op::Settle(vec![OneSettle {
            claim: first.claim,
            settle: Settle::Complete,
            seen: None,
        }]),
    );
    assert!(matches!(
        queue.apply(at, Op::Put(vec![large(fit)])),
        Reply::Added(_)
    ));
    // What was completed is known, full or not.
    assert!(matches!(
        queue.apply(at, Op::Put(vec![large(0)])),
        Reply::Added(_)
    ));
}

#[test]
fn the_number_of_items_is_bounded() {
    let clock = Arc::new(ManualClock::new());
    let mut queue = queue(&clock);
    let small = |n: usize| NewItem {
        id: ItemId::from_bytes((1 + n as u128).to_be_bytes()),
        ..item(0)
    };
    let mut put = 0;
    while put + MAX_BATCH <= MAX_ITEMS {
        let items = (put..put + MAX_BATCH).map(small).collect();
        let added = queue.apply(now(&clock, put as u64), Op::Put(items));
        assert!(matches!(added, Reply::Added(_)));
        put += MAX_BATCH;
    }
    let items = (put..put + MAX_BATCH).map(small).collect();
    let full = queue.apply(now(&clock, put as u64), Op::Put(items));
    assert_eq!(
        full,
        Reply::Full {
            items: put,
            bytes: 0
        }
    );
    // And what it holds is saved in pieces that fit a message.
    for (value, bodies) in queue.save().unwrap() {
        let size = value.get().len() + bodies.iter().map(Bytes::len).sum::<usize>();
        assert!(size <= 512 * 1024, "{size}");
    }
}
