//! Requests of one client for one lane take turns: they would only outdo each other
//! at the server, each with a round trip or more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::OwnedMutexGuard;

type Turn = tokio::sync::Mutex<()>;

/// Lanes that are asked for now, by their subjects.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<Lanes>);

#[derive(Debug, Default)]
struct Lanes {
    by_subject: HashMap<String, Weak<Turn>>,
    /// How many there were when those without anybody were removed.
    after_tidying: usize,
}

impl Turns {
    /// Waits until it is the caller's turn, first come, first served; it ends when
    /// what this returns is dropped.
    pub(super) async fn take(&self, subject: &str) -> OwnedMutexGuard<()> {
        self.of(subject).lock_owned().await
    }

    fn of(&self, subject: &str) -> Arc<Turn> {
        let mut lanes = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(turn) = lanes.by_subject.get(subject).and_then(Weak::upgrade) {
            return turn;
        }
        if lanes.by_subject.len() > 2 * lanes.after_tidying + 64 {
            lanes.by_subject.retain(|_, turn| turn.strong_count() > 0);
            lanes.after_tidying = lanes.by_subject.len();
        }
        let turn = Arc::new(Turn::default());
        let subject = subject.to_owned();
        lanes.by_subject.insert(subject, Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_lane_is_one_turn_and_others_do_not_wait() {
        let turns = Turns::default();
        let turn = turns.take("a").await;
        let _other = turns.take("b").await;
        assert!(turns.of("a").try_lock().is_err());
        drop(turn);
        let _next = turns.take("a").await;
    }

    #[tokio::test]
    async fn lanes_that_nobody_asks_for_are_forgotten() {
        let turns = Turns::default();
        for n in 0..10_000 {
            turns.take(&n.to_string()).await;
        }
        assert!(turns.0.lock().unwrap().by_subject.len() < 200);
    }
}
