//! The protocol of a quorum as a small model, explored exhaustively: three
//! nodes, two or three acquisitions, requests and replies that are reordered and
//! lost, one fence, one node that restarts empty.
//!
//! The token of the second round is any from the largest granted upwards, and a
//! node may be asked for that token only.
//!
//! Time is a common tick; a grant lasts two of them. A message that is never
//! delivered is lost; each is delivered once at most.

mod client;
mod node;
mod replies;
mod runs;
mod steps;

use stateright::{Model, Property};

use client::{Client, Phase, Seen};
use node::{Answer, Node, TTL};

const NODES: usize = 3;
const MAJORITY: usize = 2;

/// The rules of the protocol; each can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    second_round: bool,
    /// Heals and the second round count exactly the token only, and heals ask
    /// for exactly it.
    exact: bool,
    quarantine: bool,
    majority: bool,
    /// The deadline counts from before the first round.
    deadline: bool,
    /// An owner does not ask again while something of it is being given back.
    settled: bool,
}

impl Rules {
    const ALL: Self = Self {
        second_round: true,
        exact: true,
        quarantine: true,
        majority: true,
        deadline: true,
        settled: true,
    };
}

/// How far to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    clients: usize,
    /// The last tick.
    horizon: u8,
    renewals: bool,
    fences: u8,
    restarts: u8,
    /// Tokens follow the nodes' clocks; otherwise they only count up.
    clocks: bool,
    /// Attempts of the last owner after its first.
    retries: u8,
    /// Releases and what is given back.
    releases: bool,
    /// A reply is delivered on its own, not at once or never.
    late_replies: bool,
    /// How far above the largest token granted the agreed one may be.
    slack: u8,
    /// A client may leave one node out of its first round.
    aside: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Word {
    Acquire {
        attempt: u8,
    },
    Exactly {
        attempt: u8,
        token: u8,
    },
    Heal {
        token: u8,
    },
    Renew {
        token: u8,
    },
    Release {
        token: u8,
    },
    /// Abandons the owner.
    Abandon,
    Fence {
        at_least: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Message {
    client: u8,
    word: Word,
    /// The node's answer on its way back.
    reply: Option<Answer>,
}

/// A node, what the clients know of it, and what is on the way to and from it:
/// all that tells it from the others. Sorted, so that states that differ only in
/// which node is which are one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    node: Node,
    seen: Vec<Seen>,
    fenced: bool,
    network: Vec<Message>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: u8,
    places: Vec<Place>,
    clients: Vec<Client>,
    fences: u8,
    fencing: u8,
    /// The fence that is done.
    floor: u8,
    restarts: u8,
    /// The highest token that was handed out.
    highest: u8,
    broken: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Tick,
    /// Perhaps without one node.
    Start(usize, Option<usize>),
    /// Asks that node, too.
    Hedge(usize),
    /// At a token so far above the largest.
    Decide(usize, u8),
    GiveUp(usize),
    Retry(usize, Option<usize>),
    Renew(usize),
    Release(usize),
    Fence,
    Restart(usize),
    /// A request at its node (without late replies, and its reply at the client),
    /// or a reply at its client.
    Deliver(usize, Message),
    /// A request at its node; the reply is lost.
    Unheard(usize, Message),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Quorum {
    pub(crate) rules: Rules,
    pub(crate) bounds: Bounds,
}

const OPERATOR: u8 = u8::MAX;

impl Quorum {
    /// Only the last client asks again: one is enough.
    fn retries(&self, c: usize) -> u8 {
        let is_last = c + 1 == self.bounds.clients;
        self.bounds.retries * u8::from(is_last)
    }

    /// Which node a first round leaves out.
    fn rounds(&self) -> impl Iterator<Item = Option<usize>> {
        let aside = if self.bounds.aside { NODES } else { 0 };
        std::iter::once(None).chain((0..aside).map(Some))
    }
}

impl Model for Quorum {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let place = Place {
            node: Node::empty(0),
            seen: vec![Seen::default(); self.bounds.clients],
            fenced: false,
            network: Vec::new(),
        };
        vec![State {
            now: 0,
            places: vec![place; NODES],
            clients: vec![Client::new(Phase::Idle); self.bounds.clients],
            fences: self.bounds.fences,
            fencing: 0,
            floor: 0,
            restarts: self.bounds.restarts,
            highest: 0,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.broken.is_some() {
            return;
        }
        if state.now < self.bounds.horizon {
            steps.push(Step::Tick);
        }
        let mut idle = false;
        for (c, client) in state.clients.iter().enumerate() {
            match client.phase {
                // Clients are alike: they start in order.
                Phase::Idle if !idle => {
                    idle = true;
                    steps.extend(self.rounds().map(|aside| Step::Start(c, aside)));
                }
                Phase::First | Phase::Second => {
                    if state.may_decide(c, self.rules) {
                        let slack = state.slack(c, self);
                        steps.extend((0..=slack).map(|by| Step::Decide(c, by)));
                    }
                    if client.phase == Phase::First && state.count(c, |seen| seen.aside) > 0 {
                        steps.push(Step::Hedge(c));
                    }
                    if self.bounds.releases {
                        steps.push(Step::GiveUp(c));
                    }
                    if client.attempt < self.retries(c) {
                        steps.extend(self.rounds().map(|aside| Step::Retry(c, aside)));
                    }
                }
                Phase::Held if client.believes(state.now) => {
                    if self.bounds.renewals && client.renewal == 0 {
                        steps.push(Step::Renew(c));
                    }
                    if self.bounds.releases {
                        steps.push(Step::Release(c));
                    }
                }
                _ => {}
            }
        }
        if state.fences > 0 && state.highest > 0 {
            steps.push(Step::Fence);
        }
        if state.restarts > 0 {
            steps.extend((0..NODES).map(Step::Restart));
        }
        for (n, place) in state.places.iter().enumerate() {
            for message in &place.network {
                steps.push(Step::Deliver(n, *message));
                if !self.bounds.late_replies && message.wants_reply() {
                    steps.push(Step::Unheard(n, *message));
                }
            }
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Tick => state.tick(),
            Step::Start(c, aside) | Step::Retry(c, aside) => state.start(c, aside),
            Step::Hedge(c) => state.hedge(c),
            Step::Decide(c, by) => state.decide(c, by, self),
            Step::GiveUp(c) => state.give_up(c, self),
            Step::Renew(c) => {
                let client = &mut state.clients[c];
                client.renewal = state.now + 1;
                client.renewal_floor = state.floor;
                let token = client.token;
                state.send_all(c as u8, Word::Renew { token });
            }
            Step::Release(c) => {
                // Where it stands at the token a release does the same.
                state.end(c);
                state.send_all(c as u8, Word::Abandon);
            }
            Step::Fence => {
                state.fences -= 1;
                state.fencing = state.highest + 1;
                let at_least = state.fencing;
                state.send_all(OPERATOR, Word::Fence { at_least });
            }
            Step::Restart(n) => {
                state.restarts -= 1;
                let until = if self.rules.quarantine {
                    state.now + TTL
                } else {
                    0
                };
                state.places[n].node = Node::empty(until);
            }
            Step::Deliver(n, message) => state.deliver(n, message, true, self),
            Step::Unheard(n, message) => state.deliver(n, message, false, self),
        }
        state.check();
        state.places.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("right", |_, state: &State| state.broken.is_none()),
            // Or the model would be right for want of doing anything.
            Property::sometimes("the last client gets its lease", |_, state: &State| {
                state.clients.last().is_some_and(|c| c.believes(state.now))
            }),
        ]
    }
}

impl Message {
    fn wants_reply(&self) -> bool {
        !matches!(self.word, Word::Release { .. } | Word::Abandon)
    }
}

impl Place {
    fn send(&mut self, message: Message) {
        if let Err(at) = self.network.binary_search(&message) {
            self.network.insert(at, message);
        }
    }

    fn ask(&mut self, client: u8, word: Word) {
        self.send(Message {
            client,
            word,
            reply: None,
        });
    }
}
