use lease_core::{Label, ManualClock};

use super::super::place::Place;
use super::super::record::Grant;
use super::*;

const STEP: Duration = Duration::from_millis(2);

fn nonces() -> impl FnMut() -> Nonce {
    let mut last = Nonce::default();
    move || {
        last = last.next();
        last
    }
}

fn grant(stamp: Nonce) -> Grant {
    Grant {
        owner: Owner::from_bytes([9; 16]),
        token: Token::MIN,
        label: Label::EMPTY,
        stamp,
        lasts_ms: 1_000,
        standing: Standing::Granted,
    }
}

fn place(owner: u8, asked: Nonce) -> Place {
    let owner = Owner::from_bytes([owner; 16]);
    Place::new(owner, &Label::EMPTY, asked, Duration::ZERO)
}

#[test]
fn only_another_stamp_starts_a_grants_time_anew() {
    let clock = Arc::new(ManualClock::new());
    let sights = Sights::new(Arc::clone(&clock) as Arc<dyn Clock>);
    let mut nonce = nonces();
    let mut record = Record {
        grant: Some(grant(nonce())),
        nonce: nonce(),
        ..Record::default()
    };
    let first = sights.see("a", 1, 1, record.clone());
    assert!(first.is_first && first.unchanged.is_zero());
    clock.advance(STEP);
    assert_eq!(sights.see("a", 1, 1, record.clone()).unchanged, STEP);
    // Somebody waits.
    record.nonce = nonce();
    record.line.push(place(1, record.nonce));
    clock.advance(STEP);
    let view = sights.see("a", 2, 2, record.clone());
    assert!(!view.is_first && view.unchanged == STEP * 2);
    // The holder lives.
    clock.advance(STEP);
    record.nonce = nonce();
    record.grant = Some(grant(record.nonce));
    let view = sights.see("a", 3, 3, record.clone());
    assert_eq!((view.unchanged, view.age), (Duration::ZERO, STEP * 3));
    // As the same revision, once a server has lost the last one.
    clock.advance(STEP);
    record.nonce = nonce();
    record.grant = Some(grant(record.nonce));
    assert!(sights.see("a", 3, 3, record).unchanged.is_zero());
    assert_eq!(sights.last("a").unwrap().revision, 3);
    assert!(sights.last("b").is_none());
}

#[test]
fn a_grant_is_written_by_whoever_stamped_it() {
    let sights = Sights::default();
    let mut nonce = nonces();
    let mut record = Record {
        nonce: nonce(),
        ..Record::default()
    };
    record.grant = Some(grant(record.nonce));
    let sent = sights.now();
    sights.wrote("a", 1, record.clone(), sent);
    assert_eq!(sights.last("a").unwrap().written, Some(sent));
    record.nonce = nonce();
    record.line.push(place(1, record.nonce));
    sights.see("a", 2, 2, record.clone());
    assert_eq!(sights.last("a").unwrap().written, Some(sent));
    // A place in line is no renewal.
    record.nonce = nonce();
    record.line.push(place(2, record.nonce));
    sights.wrote("a", 3, record.clone(), sights.now());
    assert_eq!(sights.last("a").unwrap().written, Some(sent));
    record.nonce = nonce();
    record.grant = Some(grant(record.nonce));
    sights.see("a", 4, 4, record);
    assert_eq!(sights.last("a").unwrap().written, None);
}

#[test]
fn each_place_has_a_time_of_its_own() {
    let clock = Arc::new(ManualClock::new());
    let sights = Sights::new(Arc::clone(&clock) as Arc<dyn Clock>);
    let mut nonce = nonces();
    let mut record = Record::default();
    let mut seen = |line: &[Place], revision| {
        record.line = line.to_vec();
        record.nonce = nonce();
        clock.advance(STEP);
        let view = sights.see("a", revision, revision, record.clone());
        let ms = |seen: &Seen| (seen.unchanged.as_millis(), seen.waits.as_millis());
        view.places.iter().map(ms).collect::<Vec<_>>()
    };
    let [one, two, three] = [1, 2, 3].map(|n| place(n, Nonce::default()));
    assert_eq!(seen(&[one.clone(), two.clone()], 1), [(0, 0), (0, 0)]);
    let again = place(2, Nonce::MAX);
    let all = [one, again.clone(), three.clone()];
    assert_eq!(seen(&all, 2), [(2, 2), (0, 2), (0, 0)]);
    assert_eq!(seen(&[again, three.clone()], 3), [(2, 4), (2, 2)]);
    // One that has left and comes again.
    assert_eq!(seen(&[three, two], 4), [(4, 4), (0, 0)]);
}

#[test]
fn what_is_remembered_is_bounded() {
    let sights = Sights::default();
    for n in 0..=MOST {
        sights.see(&n.to_string(), 1, 1, Record::default());
    }
    assert!(sights.seen().len() <= MOST);
    assert!(sights.last(&MOST.to_string()).is_some());
}
