//! A place in the line of those who wait for a key, as its record holds it.

use std::time::Duration;

use lease_core::{Label, Owner, WAITER_TURN, place_lasts};
use serde::{Deserialize, Serialize};

use super::record::Nonce;

/// What all places of a record may take, far below what any server takes in one message:
/// two hundred of them, or more.
const MOST_BYTES: usize = 32 << 10;

/// What one takes beside its label.
const BYTES: usize = 120;

/// One who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) owner: Owner,
    pub(super) label: Label,
    /// The request that took it or made it last longer: whoever has seen it unchanged
    /// for as long as it lasts knows that it is over.
    pub(super) asked: Nonce,
    /// When that was stored, by the clock of the server that did, in milliseconds since
    /// the Unix epoch; `None` until a record with it was read.
    pub(super) at_ms: Option<i64>,
    pub(super) lasts_ms: u64,
    /// Somebody behind it was granted the key since it last asked.
    pub(super) missed: bool,
}

/// How long a waiter takes until it asks again, as far as that counts.
fn pace(waits: Duration) -> Duration {
    place_lasts(waits).saturating_sub(WAITER_TURN) / 2
}

impl Place {
    /// Of somebody who asks again within this time. It lasts for one and a half times as
    /// much longer than it must, so that not every look of a waiter writes a record.
    pub(super) fn new(owner: Owner, label: &Label, asked: Nonce, waits: Duration) -> Self {
        let lasts = place_lasts(waits) + pace(waits) * 3 / 2;
        Self {
            owner,
            label: label.clone(),
            asked,
            at_ms: None,
            lasts_ms: u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX),
            missed: false,
        }
    }

    pub(super) fn lasts(&self) -> Duration {
        Duration::from_millis(self.lasts_ms)
    }

    /// Whether it must be taken anew, when its owner asks and has seen it for so long:
    /// it is to last for as long as one that were taken now must. What a request of its
    /// owner took until it was seen is less than a quarter of the time between two.
    pub(super) fn is_due(&self, seen: Duration, waits: Duration) -> bool {
        let until = seen + place_lasts(waits) + pace(waits) / 4;
        self.missed || until > self.lasts()
    }

    /// Stamps it with the time of its message, if it has no time yet; whether it lasts by
    /// the same server's clock. What is of a later time is of one that was set back.
    pub(super) fn ages(&mut self, stored_ms: i64) -> bool {
        let at_ms = self.at_ms.map_or(stored_ms, |at_ms| at_ms.min(stored_ms));
        self.at_ms = Some(at_ms);
        let lasts_ms = i64::try_from(self.lasts_ms).unwrap_or(i64::MAX);
        stored_ms.saturating_sub(at_ms) < lasts_ms
    }

    fn bytes(&self) -> usize {
        let label = self.label.as_str();
        BYTES + label.len() + label.matches(['"', '\\']).count()
    }
}

/// Whether there is room for one more, where the server takes messages of so many bytes.
pub(super) fn has_room(line: &[Place], more: &Place, max_payload: usize) -> bool {
    let all: usize = line.iter().chain([more]).map(Place::bytes).sum();
    all <= MOST_BYTES.min(max_payload / 8)
}

/// As it is written: owner, label, request, its time, how long it lasts, whether it has
/// missed its turn.
#[derive(Serialize, Deserialize)]
pub(super) struct WirePlace(String, String, Nonce, Option<i64>, u64, bool);

impl WirePlace {
    pub(super) fn of(place: &Place) -> Self {
        Self(
            place.owner.to_string(),
            place.label.as_str().to_owned(),
            place.asked,
            place.at_ms,
            place.lasts_ms,
            place.missed,
        )
    }

    pub(super) fn read(self) -> Option<Place> {
        let Self(owner, label, asked, at_ms, lasts_ms, missed) = self;
        Some(Place {
            owner: owner.parse().ok()?,
            label: Label::new(&label).ok()?,
            asked,
            at_ms,
            lasts_ms,
            missed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_secs(5);

    fn place(waits: Duration) -> Place {
        let owner = Owner::from_bytes([1; 16]);
        Place::new(owner, &Label::EMPTY, Nonce::default(), waits)
    }

    #[test]
    fn a_waiter_writes_at_each_second_look_and_its_place_never_lasts_too_short() {
        let place = place(LOOK);
        let hair = Duration::from_millis(300);
        assert!(!place.is_due(Duration::ZERO, LOOK));
        assert!(!place.is_due(LOOK + hair, LOOK));
        assert!(place.is_due(LOOK * 2, LOOK));
        for seen in 0..20_000 {
            let seen = Duration::from_millis(seen);
            assert!(place.is_due(seen, LOOK) || seen + place_lasts(LOOK) < place.lasts());
        }
    }

    #[test]
    fn who_asks_more_seldom_than_before_makes_its_place_last_longer() {
        assert!(place(Duration::ZERO).is_due(Duration::ZERO, LOOK));
        assert!(!place(LOOK).is_due(Duration::ZERO, Duration::ZERO));
        let missed = Place {
            missed: true,
            ..place(LOOK)
        };
        assert!(missed.is_due(Duration::ZERO, LOOK));
    }

    #[test]
    fn a_place_ages_by_the_servers_clock_and_bears_a_step_of_it() {
        let mut place = place(Duration::ZERO);
        assert!(place.ages(5_000));
        assert!(place.ages(5_999));
        assert!(!place.ages(6_000));
        // Set back: it begins anew.
        assert!(place.ages(1_000));
        assert!(!place.ages(2_000));
    }

    #[test]
    fn what_a_line_takes_is_bounded() {
        let of = |label: &str| Place {
            label: Label::new(label).unwrap(),
            asked: Nonce::MAX,
            at_ms: Some(i64::MIN),
            lasts_ms: u64::MAX / 1_000_000,
            ..place(LOOK)
        };
        for label in ["", "host/1234", &"\"".repeat(256), &"🦀".repeat(64)] {
            let one = of(label);
            let wire = serde_json::to_string(&WirePlace::of(&one)).unwrap();
            assert!(wire.len() < one.bytes(), "{wire}");
            let mut line = Vec::new();
            while has_room(&line, &one, 1 << 20) {
                line.push(one.clone());
            }
            assert!(line.len() >= 50 && line.len() <= 300, "{}", line.len());
            assert!(!has_room(&[], &one, 512));
        }
    }
}
