//! Hash slots: which one a name has, and a name for each.

use std::sync::OnceLock;

/// All slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a name, as Redis counts it: by what stands between the first `{`
/// and the next `}`, if something does.
pub(crate) fn of(name: &str) -> u16 {
    let tag = name
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let tag = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty());
    crc16(tag.unwrap_or(name).as_bytes()) % SLOTS
}

/// The CRC of XMODEM, which Redis takes.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

/// The smallest number that has this slot: a tag for names that must be there.
///
/// Every program finds the same ones, so that it may stand in names that all of
/// them share.
pub(crate) fn tag(slot: u16) -> u32 {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| {
        let none = u32::MAX;
        let mut tags = vec![none; usize::from(SLOTS)];
        let mut missing = tags.len();
        // Ends at 109757, in some milliseconds.
        for number in 0..none {
            let place = usize::from(of(&number.to_string()));
            if tags[place] == none {
                tags[place] = number;
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        tags
    });
    tags.get(usize::from(slot)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_counted_as_redis_does() {
        // The example of its specification, and what CLUSTER KEYSLOT says.
        assert_eq!(of("123456789"), 0x31C3);
        assert_eq!(of("foo"), 12182);
        assert_eq!(of("{user1000}.following"), of("user1000"));
        assert_eq!(of("foo{}{bar}"), 8363);
        assert_eq!(of("foo{{bar}}zap"), of("{bar"));
        assert_eq!(of("foo{bar}{zap}"), of("bar"));
        assert_eq!(of("foo{bar"), crc16(b"foo{bar") % SLOTS);
        assert_eq!(of(""), 0);
    }

    #[test]
    fn every_slot_has_a_tag_and_it_is_as_ever() {
        for slot in 0..SLOTS {
            assert_eq!(of(&tag(slot).to_string()), slot);
        }
        // Golden: programs of different versions must share their markers.
        assert_eq!([tag(0), tag(1), tag(16_383)], [3560, 22179, 39_296]);
        let longest = (0..SLOTS).map(tag).max();
        assert_eq!(longest, Some(109_757));
    }
}
