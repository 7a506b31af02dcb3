//! Owners that this client is giving up, by lane: whoever writes for one writes for all.
//!
//! Those who wait for a moment and come again leave an owner each time. Were each a write
//! of its own, they would come faster than a record can be written where many clients do
//! so, and nobody of that client would come to anything else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use lease_core::Owner;
use tokio::sync::oneshot;

/// As many are written together, far fewer than a record remembers.
const MOST_TOGETHER: usize = 32;

type Lanes = HashMap<String, Vec<Entry>>;

#[derive(Debug)]
struct Entry {
    number: u64,
    owner: Owner,
    tell: oneshot::Sender<()>,
}

/// Those that are under way.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    lanes: Mutex<Lanes>,
    next: Mutex<u64>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Leaver {
    all: Arc<Leaving>,
    subject: String,
    number: u64,
    owner: Owner,
}

impl Leaving {
    /// Notes one more, and returns what tells when somebody else has written for it.
    pub(super) fn enter(
        self: &Arc<Self>,
        subject: &str,
        owner: Owner,
    ) -> (Leaver, oneshot::Receiver<()>) {
        let number = {
            let mut next = self.next.lock().unwrap_or_else(|e| e.into_inner());
            *next += 1;
            *next
        };
        let (tell, told) = oneshot::channel();
        let entry = Entry {
            number,
            owner,
            tell,
        };
        let mut lanes = self.lanes();
        lanes.entry(subject.to_owned()).or_default().push(entry);
        drop(lanes);
        let leaver = Leaver {
            all: Arc::clone(self),
            subject: subject.to_owned(),
            number,
            owner,
        };
        (leaver, told)
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn remove(&self, subject: &str, is_it: impl Fn(&Entry) -> bool) {
        let mut lanes = self.lanes();
        let Some(entries) = lanes.get_mut(subject) else {
            return;
        };
        for entry in entries.extract_if(.., |entry| is_it(entry)) {
            let _ = entry.tell.send(());
        }
        if entries.is_empty() {
            lanes.remove(subject);
        }
    }
}

impl Leaver {
    /// Its own owner, and others of the same lane.
    pub(super) fn together(&self) -> Vec<Owner> {
        let mut owners = vec![self.owner];
        if let Some(entries) = self.all.lanes().get(&self.subject) {
            let others = entries.iter().filter(|entry| entry.number != self.number);
            owners.extend(others.map(|entry| entry.owner).take(MOST_TOGETHER - 1));
        }
        owners
    }

    /// Tells those whose owners are in a record by now.
    pub(super) fn tell(&self, owners: &[Owner]) {
        let is_it = |entry: &Entry| owners.contains(&entry.owner);
        self.all.remove(&self.subject, is_it);
    }
}

impl Drop for Leaver {
    fn drop(&mut self) {
        let number = self.number;
        self.all
            .remove(&self.subject, |entry| entry.number == number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(n: u8) -> Owner {
        Owner::from_bytes([n; 16])
    }

    #[test]
    fn one_leaves_with_others_of_its_lane_and_tells_them() {
        let all = Arc::new(Leaving::default());
        let (first, _) = all.enter("a", owner(1));
        let (second, mut told) = all.enter("a", owner(2));
        let (_other, _) = all.enter("b", owner(3));
        assert_eq!(first.together(), [owner(1), owner(2)]);
        assert_eq!(second.together(), [owner(2), owner(1)]);
        assert!(told.try_recv().is_err());
        first.tell(&[owner(1), owner(2)]);
        assert_eq!(told.try_recv(), Ok(()));
        assert_eq!(first.together(), [owner(1)]);
    }

    #[test]
    fn who_stops_half_way_is_forgotten_and_how_many_leave_together_is_bounded() {
        let all = Arc::new(Leaving::default());
        let many: Vec<_> = (0..100).map(|n| all.enter("a", owner(n))).collect();
        assert_eq!(many[99].0.together().len(), MOST_TOGETHER);
        drop(many);
        assert!(all.lanes().is_empty());
    }
}
