//! The session witness as a small model, explored exhaustively: one holder whose
//! connections are lost, whose requests and replies are late or lost and whose
//! clock may fall behind; contenders whose look and change are two steps.
//!
//! It holds with all rules, and fails with any one of them left out.
#![allow(clippy::unwrap_used)]

mod runs;
mod steps;

use stateright::{Model, Property};

/// In ticks.
const TTL: u8 = 5;
const GRACE: u8 = 3;
const DRIFT: u8 = 1;

/// The rules of the protocol; each can be left out.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// A contender shortens only a grant whose witness is gone.
    look: bool,
    /// To the grace, not to the present.
    grace: bool,
    /// Never to a later instant.
    least: bool,
    /// Only a grant that still names the session that was seen gone.
    same_session: bool,
    /// Each connection has a number of its own.
    new_number: bool,
    /// The holder believes no longer than its last sign is good for.
    bound: bool,
    /// Without what clocks may drift.
    drift: bool,
    /// A sign counts from its send.
    from_send: bool,
    /// A ping counts once a confirmed renewal has carried its session.
    carried: bool,
    /// A late request puts no earlier session back.
    order: bool,
}

impl Rules {
    const ALL: Self = Self {
        look: true,
        grace: true,
        least: true,
        same_session: true,
        new_number: true,
        bound: true,
        drift: true,
        from_send: true,
        carried: true,
        order: true,
    };
}

/// How far to go.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// The last tick.
    horizon: u8,
    contenders: usize,
    /// Connections that are lost.
    losses: u8,
    renewals: u8,
}

/// A request of the holder's, until its reply has come or is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Message {
    /// By the holder's clock.
    sent: u8,
    /// That it goes over, or carries.
    session: u8,
    /// The latest that the holder knew to stand when it was sent.
    known: u8,
    /// At the server.
    done: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    /// How far the holder's clock is behind.
    lag: u8,
    /// The lock that the server has, of the holder's connection.
    lock: Option<u8>,
    losses: u8,
    /// The holder's present session, or its last one.
    session: u8,
    /// Answered a ping.
    known: u8,
    /// A confirmed renewal carried it, or a later one.
    carried: u8,
    /// The send of its last good sign, and its deadline by the TTL.
    sign: u8,
    deadline: u8,
    ping: Option<Message>,
    renewals: Vec<Message>,
    renewals_left: u8,
    /// The row: the holder's session and its expiry.
    row_session: u8,
    expires: u8,
    /// What each contender saw gone and has not acted on.
    gone: Vec<Option<u8>>,
    taken: bool,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    /// Of every clock but the holder's.
    SlowTick,
    /// The server ends the session; the holder does not know yet.
    LoseConnection,
    Reconnect,
    Ping,
    PingAtServer,
    PingReply,
    Renew,
    RenewAtServer(usize),
    RenewReply(usize),
    Look(usize),
    Shorten(usize),
    Take,
}

struct Witness {
    rules: Rules,
    bounds: Bounds,
}

impl Model for Witness {
    type State = State;
    type Action = Step;

    /// The holder was granted the key at the first tick, over its first session.
    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            lag: 0,
            lock: Some(1),
            losses: self.bounds.losses,
            session: 1,
            known: 0,
            carried: 0,
            sign: 0,
            deadline: TTL - self.drift(),
            ping: None,
            renewals: Vec::new(),
            renewals_left: self.bounds.renewals,
            row_session: 1,
            expires: TTL,
            gone: vec![None; self.bounds.contenders],
            taken: false,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.broken.is_some() || state.taken {
            return;
        }
        if state.now < self.bounds.horizon {
            steps.push(Step::Tick);
            if state.lag < DRIFT {
                steps.push(Step::SlowTick);
            }
        }
        if state.lock.is_some() && state.losses > 0 {
            steps.push(Step::LoseConnection);
        }
        if state.lock.is_none() {
            steps.push(Step::Reconnect);
        }
        // What can tell the holder nothing new is not asked.
        let new = self.believes(state)
            && (state.sign < state.now - state.lag || state.session != state.carried);
        match state.ping {
            None if new => steps.push(Step::Ping),
            None => {}
            Some(ping) if ping.done => steps.push(Step::PingReply),
            Some(_) => steps.push(Step::PingAtServer),
        }
        if state.renewals_left > 0 && new {
            steps.push(Step::Renew);
        }
        // One that is never delivered is lost.
        for (n, renewal) in state.renewals.iter().enumerate() {
            steps.push(match renewal.done {
                false => Step::RenewAtServer(n),
                true => Step::RenewReply(n),
            });
        }
        if state.now >= state.expires {
            steps.push(Step::Take);
            return;
        }
        for (c, gone) in state.gone.iter().enumerate() {
            if gone.is_some() {
                steps.push(Step::Shorten(c));
            }
            if *gone != Some(state.row_session)
                && (!self.rules.look || state.lock != Some(state.row_session))
            {
                steps.push(Step::Look(c));
            }
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        self.take(&mut next, step);
        // The order of requests under way tells nothing.
        next.renewals.sort_unstable();
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("right", |_, state: &State| state.broken.is_none()),
            Property::sometimes("the key is taken over", |_, state: &State| state.taken),
            Property::sometimes("a lease lasts", |model: &Self, state: &State| {
                state.now == model.bounds.horizon && model.believes(state)
            }),
        ]
    }
}
