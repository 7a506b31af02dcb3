//! What each step does.

use super::{DRIFT, GRACE, Message, State, Step, TTL, Witness};

impl Witness {
    pub(super) fn drift(&self) -> u8 {
        if self.rules.drift { DRIFT } else { 0 }
    }

    /// Whether the holder acts on its lease.
    pub(super) fn believes(&self, state: &State) -> bool {
        let clock = state.now - state.lag;
        let good = state.sign + GRACE - self.drift();
        clock < state.deadline && (!self.rules.bound || clock < good)
    }

    pub(super) fn take(&self, state: &mut State, step: Step) {
        let clock = state.now - state.lag;
        match step {
            Step::Tick => state.now += 1,
            Step::SlowTick => {
                state.now += 1;
                state.lag += 1;
            }
            Step::LoseConnection => {
                state.lock = None;
                state.losses -= 1;
            }
            Step::Reconnect => {
                if self.rules.new_number {
                    state.session += 1;
                }
                state.lock = Some(state.session);
            }
            Step::Ping => {
                let ping = self.message(state, clock);
                state.ping = Some(Message { known: 0, ..ping });
            }
            Step::PingAtServer => {
                // Over a connection that is gone nothing is answered.
                let answered = state.ping.filter(|ping| state.lock == Some(ping.session));
                state.ping = answered.map(|ping| Message { done: true, ..ping });
            }
            Step::PingReply => {
                if let Some(ping) = state.ping.take() {
                    state.known = state.known.max(ping.session);
                    if ping.session == state.carried || !self.rules.carried {
                        self.signed(state, ping, clock);
                    }
                }
            }
            Step::Renew => {
                state.renewals_left -= 1;
                state.renewals.push(self.message(state, clock));
            }
            Step::RenewAtServer(n) => self.renew_at_server(state, n),
            Step::RenewReply(n) => {
                let renewal = state.renewals.remove(n);
                state.carried = state.carried.max(renewal.known);
                let until = renewal.sent + TTL - self.drift();
                state.deadline = state.deadline.max(until);
                self.signed(state, renewal, clock);
            }
            Step::Look(c) => state.gone[c] = Some(state.row_session),
            Step::Shorten(c) => self.shorten(state, c),
            Step::Take => {
                state.taken = true;
                if self.believes(state) {
                    state.broken = Some("two holders");
                }
            }
        }
    }

    fn message(&self, state: &State, clock: u8) -> Message {
        Message {
            sent: clock,
            session: state.session,
            known: state.known,
            done: false,
        }
    }

    fn signed(&self, state: &mut State, message: Message, clock: u8) {
        let from = if self.rules.from_send {
            message.sent
        } else {
            clock
        };
        state.sign = state.sign.max(from);
    }

    fn renew_at_server(&self, state: &mut State, n: usize) {
        if state.now >= state.expires {
            // Not live: the holder hears nothing good.
            state.renewals.remove(n);
            return;
        }
        let renewal = &mut state.renewals[n];
        renewal.done = true;
        state.expires = state.expires.max(state.now + TTL);
        state.row_session = match self.rules.order {
            true => state.row_session.max(renewal.session),
            false => renewal.session,
        };
    }

    fn shorten(&self, state: &mut State, c: usize) {
        let gone = state.gone[c].take();
        if self.rules.same_session && gone != Some(state.row_session) {
            return;
        }
        let until = state.now + if self.rules.grace { GRACE } else { 0 };
        let before = state.expires;
        state.expires = match self.rules.least {
            true => before.min(until),
            false => until,
        };
        if state.expires > before {
            state.broken = Some("a look made the grant longer");
        }
    }
}
