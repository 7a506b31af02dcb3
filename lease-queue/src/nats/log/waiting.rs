//! Those who wait: for the next message, and for those that are under way.

use std::collections::VecDeque;

use lease_core::StoreError;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::message::{self, Encoded, Named, Nonce};
use super::replica::{LOG_MAX, STOP, Verdict};
use super::shared::{Phase, Shared, State};
use super::{Machine, errors};

/// Operations of one message.
const MOST_OPS: usize = 1024;
/// Bytes of one message, unless one operation alone has more.
const FULL_MESSAGE: usize = 256 << 10;

/// What a user of the log waits with.
pub(super) enum What<A> {
    Op(Encoded, oneshot::Sender<Result<A, StoreError>>),
    /// Somebody who wants to see all that is acknowledged by now.
    Barrier(oneshot::Sender<Result<(), StoreError>>),
    /// A snapshot is complete.
    Named(Named),
}

impl<A> What<A> {
    fn is_awaited(&self) -> bool {
        match self {
            Self::Op(_, tell) => !tell.is_closed(),
            Self::Barrier(tell) => !tell.is_closed(),
            Self::Named(_) => true,
        }
    }

    pub(super) fn fail(self, error: &StoreError) {
        match self {
            Self::Op(_, tell) => drop(tell.send(Err(error.clone()))),
            Self::Barrier(tell) => drop(tell.send(Err(error.clone()))),
            Self::Named(_) => {}
        }
    }
}

pub(super) struct Waiting<A> {
    pub(super) number: u64,
    pub(super) what: What<A>,
}

/// Messages under way at a time. While the one travels, what came by of the other is
/// worked on; more would only make them smaller.
const FLIGHTS: usize = 2;

/// A message that is under way.
pub(super) struct Flight<A> {
    pub(super) nonce: Nonce,
    pub(super) parts: Vec<Waiting<A>>,
}

/// A message to be sent.
pub(super) struct Parcel {
    pub(super) nonce: Nonce,
    pub(super) payload: bytes::Bytes,
}

impl<M: Machine> Shared<M> {
    /// What waits, as one message, unless as many are under way as may be.
    pub(super) fn parcel(&self) -> Option<Parcel> {
        if !matches!(*self.phase.borrow(), Phase::Follows) {
            return None;
        }
        let most = self.most_bytes();
        let mut state = self.state();
        if state.flights.len() >= FLIGHTS {
            return None;
        }
        state.waiting.retain(|waiting| waiting.what.is_awaited());
        let behind = state.replica.behind();
        let (is_full, stops) = (behind > LOG_MAX, behind >= STOP);
        let mut parts = Vec::new();
        let (mut bytes, mut left) = (0, VecDeque::new());
        while let Some(waiting) = state.waiting.pop_front() {
            let needs = match &waiting.what {
                What::Op(..) if is_full => {
                    left.push_back(waiting);
                    continue;
                }
                What::Barrier(_) if stops => {
                    left.push_back(waiting);
                    continue;
                }
                What::Op(op, _) => op.bytes(),
                What::Barrier(_) | What::Named(_) => 0,
            };
            let fits = bytes + needs <= most.min(FULL_MESSAGE) && parts.len() < MOST_OPS;
            if !parts.is_empty() && !fits {
                state.waiting.push_front(waiting);
                break;
            }
            bytes += needs;
            parts.push(waiting);
        }
        left.append(&mut state.waiting);
        state.waiting = left;
        if parts.is_empty() {
            return None;
        }
        let named = parts.iter().filter_map(|part| match part.what {
            What::Named(named) => Some(named),
            _ => None,
        });
        let named = named.max_by_key(|named| named.covers);
        let ops = parts.iter().filter_map(|part| match &part.what {
            What::Op(op, _) => Some(op.clone()),
            _ => None,
        });
        let ops: Vec<_> = ops.collect();
        let made = Nonce::random().map_err(StoreError::from).and_then(|nonce| {
            let payload = message::encode(nonce, state.replica.last, named, &ops)?;
            Ok(Parcel { nonce, payload })
        });
        match made {
            Ok(parcel) => {
                let nonce = parcel.nonce;
                state.flights.push(Flight { nonce, parts });
                Some(parcel)
            }
            Err(error) => {
                parts.into_iter().for_each(|part| part.what.fail(&error));
                None
            }
        }
    }

    /// Whether this message is still waited for.
    pub(super) fn is_under_way(&self, nonce: Nonce) -> bool {
        let state = self.state();
        state.flights.iter().any(|flight| flight.nonce == nonce)
    }

    /// Whether somebody waits for an operation of this message, which is under way.
    pub(super) fn is_awaited(&self, nonce: Nonce) -> bool {
        let state = self.state();
        let flight = state.flights.iter().find(|flight| flight.nonce == nonce);
        flight.is_some_and(|f| f.parts.iter().any(|part| part.what.is_awaited()))
    }

    /// Tells those who wait for this message that it is given up.
    pub(super) fn give_up(&self, nonce: Nonce, error: &StoreError) {
        let mut state = self.state();
        if let Some(flight) = state.take_flight(nonce) {
            flight.parts.into_iter().for_each(|p| p.what.fail(error));
        }
        drop(state);
        self.work.notify_one();
    }
}

impl<M: Machine> State<M> {
    pub(super) fn enqueue(&mut self, what: What<M::Answer>) -> u64 {
        self.next += 1;
        self.used = Instant::now();
        self.waiting.push_back(Waiting {
            number: self.next,
            what,
        });
        self.next
    }

    /// Takes one away that was not sent; whether there was.
    pub(super) fn withdraw(&mut self, number: u64) -> bool {
        let place = self.waiting.iter().position(|w| w.number == number);
        place.is_some_and(|place| self.waiting.remove(place).is_some())
    }

    /// What was sent as this message, if it is still under way.
    pub(super) fn take_flight(&mut self, nonce: Nonce) -> Option<Flight<M::Answer>> {
        let place = self.flights.iter().position(|f| f.nonce == nonce)?;
        Some(self.flights.swap_remove(place))
    }

    pub(super) fn land(&mut self, flight: Flight<M::Answer>, verdict: Verdict<M::Answer>) {
        let mut answers = match verdict {
            Verdict::Applied(answers) => answers.into_iter(),
            // Its answers came by when nobody looked.
            Verdict::Again => {
                let error = errors::not_seen(None);
                flight.parts.into_iter().for_each(|p| p.what.fail(&error));
                return;
            }
            // It had no effect, and no copy of it will have one: as if it was not sent.
            Verdict::Late | Verdict::Full => {
                for part in flight.parts.into_iter().rev() {
                    match part.what {
                        What::Barrier(tell) => drop(tell.send(Ok(()))),
                        what => self.waiting.push_front(Waiting { what, ..part }),
                    }
                }
                return;
            }
        };
        for part in flight.parts {
            match part.what {
                What::Op(_, tell) => match answers.next() {
                    Some(answer) => drop(tell.send(Ok(answer))),
                    None => drop(tell.send(Err(errors::ended()))),
                },
                What::Barrier(tell) => drop(tell.send(Ok(()))),
                What::Named(_) => {}
            }
        }
    }

    pub(super) fn fail_waiting(&mut self, error: &StoreError) {
        let mut named = VecDeque::new();
        for waiting in self.waiting.drain(..) {
            match waiting.what {
                What::Named(_) => named.push_back(waiting),
                what => what.fail(error),
            }
        }
        self.waiting = named;
    }
}
