//! One direction of one connection: what was read and is not yet written.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use tokio::sync::watch;

use super::fault::{ConnectionId, Then, Waiting};
use super::socket::Socket;

/// From here on nothing is read until something was written.
const MOST_QUEUED: usize = 4 << 20;

#[derive(Debug, Default)]
pub(super) struct Flow {
    /// What is to be done, in order, and not before its time: delayed bytes wait
    /// side by side, so that a delay costs no throughput.
    queue: VecDeque<(Instant, Step)>,
    queued: usize,
    /// The sink took no more when it was last written to.
    blocked: bool,
    /// Nothing more will be read.
    pub(super) ended: bool,
    /// Bytes written.
    pub(super) passed: u64,
    /// The greatest hop of those that were written.
    hop: u64,
    pub(super) waiting: Option<Waiting>,
    /// A fault is in the queue: what comes after it goes nowhere.
    doomed: bool,
}

#[derive(Debug)]
enum Step {
    Bytes {
        data: Vec<u8>,
        written: usize,
        hop: u64,
    },
    End,
    Break,
    Fault(Then, watch::Sender<Option<ConnectionId>>),
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Lives,
    Hangs,
    Closes,
    Breaks,
}

impl Flow {
    /// Takes bytes in, which are this hop; tells how many of them a fault swallowed.
    pub(super) fn push(&mut self, bytes: &[u8], due: Instant, hop: u64) -> usize {
        if self.doomed {
            return bytes.len();
        }
        let count = bytes.len() as u64;
        let fires = self.waiting.take_if(|waiting| waiting.after <= count);
        let passes = match (&fires, &mut self.waiting) {
            (Some(fault), _) => usize::try_from(fault.after).unwrap_or(bytes.len()),
            (None, Some(waiting)) => {
                waiting.after -= count;
                bytes.len()
            }
            (None, None) => bytes.len(),
        };
        if passes > 0 {
            let data = bytes[..passes].to_vec();
            self.queued += passes;
            let written = 0;
            let step = Step::Bytes { data, written, hop };
            self.queue.push_back((due, step));
        }
        if let Some(fault) = fires {
            self.doomed = true;
            let step = Step::Fault(fault.then, fault.happened);
            self.queue.push_back((due, step));
        }
        bytes.len() - passes
    }

    /// The source said that it will send no more.
    pub(super) fn push_end(&mut self, due: Instant) {
        self.queue.push_back((due, Step::End));
    }

    /// The source failed.
    pub(super) fn push_break(&mut self, due: Instant) {
        self.queue.push_back((due, Step::Break));
    }

    /// Does what is due.
    pub(super) fn pump(&mut self, id: ConnectionId, sink: &Socket, now: Instant) -> Fate {
        self.blocked = false;
        while let Some((due, step)) = self.queue.front_mut() {
            if *due > now {
                break;
            }
            match step {
                Step::Bytes { data, written, hop } => match sink.write(&data[*written..]) {
                    Ok(count) => {
                        self.hop = self.hop.max(*hop);
                        *written += count;
                        self.queued -= count;
                        self.passed += count as u64;
                        if *written < data.len() {
                            continue;
                        }
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        self.blocked = true;
                        break;
                    }
                    Err(_) => return Fate::Breaks,
                },
                Step::End => sink.end(),
                Step::Break => return Fate::Breaks,
                Step::Fault(then, happened) => {
                    happened.send_replace(Some(id));
                    return match then {
                        Then::Cut => Fate::Closes,
                        Then::Hang => Fate::Hangs,
                    };
                }
            }
            self.queue.pop_front();
        }
        Fate::Lives
    }

    /// Forgets what is on its way; tells how many bytes that were.
    pub(super) fn clear(&mut self) -> usize {
        self.queue.clear();
        std::mem::take(&mut self.queued)
    }

    /// Everything on its way is due now, and no fault waits any more.
    pub(super) fn heal(&mut self, now: Instant) {
        self.waiting = None;
        self.queue
            .retain(|(_, step)| !matches!(step, Step::Fault(..)));
        for (due, _) in &mut self.queue {
            *due = now;
        }
    }

    /// The latest hop of what was passed on.
    pub(super) fn hop(&self) -> u64 {
        self.hop
    }

    /// What is on its way belongs to what was before.
    pub(super) fn count_hops_anew(&mut self) {
        self.hop = 0;
        for (_, step) in &mut self.queue {
            if let Step::Bytes { hop, .. } = step {
                *hop = 0;
            }
        }
    }

    /// A fault in the queue has swallowed bytes already.
    pub(super) fn is_doomed(&self) -> bool {
        self.doomed
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn wants_to_read(&self) -> bool {
        !self.ended && self.queued < MOST_QUEUED
    }

    pub(super) fn wants_to_write(&self) -> bool {
        self.blocked
    }

    /// When there is something to do that waits for its time.
    pub(super) fn due(&self) -> Option<Instant> {
        let (due, _) = self.queue.front()?;
        (!self.blocked).then_some(*due)
    }
}
