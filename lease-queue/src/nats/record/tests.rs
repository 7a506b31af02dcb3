use super::*;

fn owner(n: u8) -> Owner {
    Owner::from_bytes([n; 16])
}

fn place(n: u8) -> Place {
    Place {
        owner: owner(n),
        label: Label::new("you \"\\ 🦀").unwrap(),
        asked: Nonce(u64::MAX - u64::from(n)),
        at_ms: n.is_multiple_of(2).then_some(-7),
        lasts_ms: 10,
        missed: n % 2 == 1,
    }
}

#[test]
fn a_record_comes_back_as_it_was_written() {
    let mut record = Record {
        mark: Some(Token::MAX),
        grant: Some(Grant {
            owner: owner(7),
            token: Token::MIN,
            label: Label::new("me \"\\ 🦀").unwrap(),
            stamp: Nonce(3),
            lasts_ms: u64::MAX,
            standing: Standing::Revoked,
        }),
        gone: Vec::new(),
        line: (3..6).map(place).collect(),
        crowd: u32::MAX,
        nonce: Nonce(u64::MAX),
        prev: 9,
    };
    record.forbid(owner(1), Why::Abandoned);
    record.forbid(owner(2), Why::Revoked);
    let bytes = record.encode().unwrap();
    assert_eq!(Record::decode(&bytes), Some(record));
}

#[test]
fn what_is_not_ours_is_no_record() {
    let good = Record::default().encode().unwrap();
    assert!(Record::decode(&good).is_some());
    for cut in 0..good.len() {
        assert_eq!(Record::decode(&good[..cut]), None);
    }
    let text = String::from_utf8(good).unwrap();
    for (from, to) in [
        ("\"leases\":1", "\"leases\":2"),
        ("\"mark\":null", "\"mark\":0"),
        ("\"gone\":[]", "\"gone\":[[\"x\",\"abandoned\",null]]"),
        ("\"line\":[]", "\"line\":[[\"x\",\"\",1,null,1,false]]"),
        ("\"nonce\":0", "\"nonce\":0,\"more\":1"),
    ] {
        let bad = text.replace(from, to);
        assert_ne!(bad, text);
        assert_eq!(Record::decode(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn gone_owners_are_bounded_and_age_by_the_servers_clock() {
    let mut record = Record::default();
    for n in 0..=u8::MAX {
        record.forbid(owner(n), Why::Abandoned);
    }
    assert_eq!(record.gone.len(), MOST_GONE);
    assert_eq!(record.is_gone(owner(0)), None);
    assert_eq!(record.is_gone(owner(255)), Some(Why::Abandoned));
    let retention = Duration::from_millis(10);
    let mut record = record.aged(1_000, retention);
    record.forbid(owner(0), Why::Revoked);
    let record = record.aged(1_010, retention);
    assert_eq!(record.gone.len(), MOST_GONE);
    let record = record.aged(1_011, retention);
    assert_eq!(record.gone.len(), 1);
    assert_eq!(record.is_gone(owner(0)), Some(Why::Revoked));
}

#[test]
fn places_age_by_the_servers_clock() {
    let record = Record {
        line: vec![place(3), place(5)],
        ..Record::default()
    };
    assert!(!record.is_stamped());
    let mut record = record.aged(1_000, Duration::MAX);
    assert!(record.is_stamped() && record.line.len() == 2);
    record.line[1].at_ms = None;
    let record = record.aged(1_010, Duration::MAX);
    assert_eq!(record.line.len(), 1);
    assert_eq!(record.line[0].owner, owner(5));
}

#[test]
fn a_request_knows_its_work_beneath_what_others_wrote() {
    let mut record = Record {
        grant: Some(Grant {
            owner: owner(7),
            token: Token::MIN,
            label: Label::EMPTY,
            stamp: Nonce(3),
            lasts_ms: 1,
            standing: Standing::Granted,
        }),
        nonce: Nonce(4),
        ..Record::default()
    };
    assert!(record.shows(Nonce(3)) && record.shows(Nonce(4)) && !record.shows(Nonce(5)));
    // It was granted, and is worth nothing.
    record.grant.as_mut().unwrap().standing = Standing::Revoked;
    assert!(!record.shows(Nonce(3)));
}
