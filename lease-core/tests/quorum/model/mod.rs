//! The protocol of a quorum as a small model, explored exhaustively: three
//! nodes, two or three acquisitions, requests and replies that are reordered and
//! lost, one fence, one node that restarts empty.
//!
//! Time is a common tick; a grant lasts two of them. A message that is never
//! delivered is lost; each is delivered once at most.

mod client;
mod node;
mod runs;

use stateright::{Model, Property};

use client::{Client, Phase, Seen, majority};
use node::{Answer, Node, Rule, TTL};

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
    Start(usize),
    Decide(usize),
    GiveUp(usize),
    Retry(usize),
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
                    steps.push(Step::Start(c));
                }
                Phase::First | Phase::Second => {
                    if state.may_decide(c, self.rules) {
                        steps.push(Step::Decide(c));
                    }
                    if self.bounds.releases {
                        steps.push(Step::GiveUp(c));
                    }
                    if client.attempt < self.retries(c) {
                        steps.push(Step::Retry(c));
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
            Step::Start(c) | Step::Retry(c) => state.start(c),
            Step::Decide(c) => state.decide(c, self),
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

impl State {
    fn tick(&mut self) {
        self.now += 1;
        for place in &mut self.places {
            place.node.tick(self.now);
        }
        for c in 0..self.clients.len() {
            let client = &self.clients[c];
            if client.phase == Phase::Held && !client.believes(self.now) {
                self.end(c);
            }
        }
    }

    /// It is over for good; nobody waits for replies. What it has sent arrives
    /// all the same, but for a renewal: that could only keep others out.
    fn end(&mut self, c: usize) {
        self.clients[c] = Client::new(Phase::Done);
        for place in &mut self.places {
            place.seen[c] = Seen::default();
            place.network.retain(|message| {
                let is_renewal = matches!(message.word, Word::Renew { .. });
                usize::from(message.client) != c || message.reply.is_none() && !is_renewal
            });
        }
    }

    fn send_all(&mut self, client: u8, word: Word) {
        for place in &mut self.places {
            place.ask(client, word);
        }
    }

    fn votes(&self, c: usize) -> Vec<u8> {
        self.places.iter().map(|place| place.seen[c].vote).collect()
    }

    fn count(&self, c: usize, wanted: fn(&Seen) -> bool) -> usize {
        self.places
            .iter()
            .filter(|place| wanted(&place.seen[c]))
            .count()
    }

    fn may_decide(&self, c: usize, rules: Rules) -> bool {
        let granted = self.count(c, |seen| seen.vote > 0);
        self.clients[c].phase == Phase::First && granted >= majority(rules)
    }

    fn start(&mut self, c: usize) {
        let (now, floor) = (self.now, self.floor);
        let client = &mut self.clients[c];
        let attempt = match client.phase {
            Phase::Idle => 0,
            _ => client.attempt + 1,
        };
        *client = Client {
            attempt,
            sent: now,
            floor,
            ..Client::new(Phase::First)
        };
        for place in &mut self.places {
            place.seen[c] = Seen::default();
            place
                .network
                .retain(|m| usize::from(m.client) != c || m.reply.is_none());
        }
        self.send_all(c as u8, Word::Acquire { attempt });
    }

    fn decide(&mut self, c: usize, model: &Quorum) {
        let token = client::token(&self.votes(c));
        let client = &mut self.clients[c];
        if !model.rules.deadline {
            client.sent = self.now;
        }
        client.phase = Phase::Second;
        client.token = token;
        let attempt = client.attempt;
        for place in &mut self.places {
            let vote = place.seen[c].vote;
            if vote == token || vote > 0 && !model.rules.second_round {
                place.seen[c].there = true;
            } else if vote > 0 && vote < token {
                place.ask(c as u8, Word::Exactly { attempt, token });
            }
        }
        self.hand_out(c, model);
    }

    fn hand_out(&mut self, c: usize, model: &Quorum) {
        let there = self.count(c, |seen| seen.there);
        let client = &mut self.clients[c];
        if client.phase != Phase::Second || there < majority(model.rules) {
            return;
        }
        client.deadline = client.sent + TTL;
        if self.now >= client.deadline {
            self.end(c);
            return;
        }
        client.phase = Phase::Held;
        let (token, floor) = (client.token, client.floor);
        for place in &mut self.places {
            // One that stands above it has no part in it.
            let vote = std::mem::take(&mut place.seen[c]).vote;
            if vote > token {
                place.ask(c as u8, Word::Release { token: vote });
            }
        }
        if token <= self.highest {
            self.broken = Some("tokens do not rise");
        } else if token <= floor {
            self.broken = Some("a fence does not hold");
        }
        self.highest = token;
    }

    /// Gives back what it knows of. The same owner may ask again only with that
    /// rule left out.
    fn give_up(&mut self, c: usize, model: &Quorum) {
        for place in &mut self.places {
            let vote = place.seen[c].vote;
            if vote > 0 {
                place.ask(c as u8, Word::Release { token: vote });
            }
        }
        if model.rules.settled || self.clients[c].attempt >= model.retries(c) {
            self.end(c);
        } else {
            self.start(c);
        }
    }

    fn deliver(&mut self, n: usize, message: Message, heard: bool, model: &Quorum) {
        let now = self.now;
        let place = &mut self.places[n];
        if let Ok(at) = place.network.binary_search(&message) {
            place.network.remove(at);
        }
        if let Some(answer) = message.reply {
            self.reply(n, message, answer, model);
            return;
        }
        let (owner, node) = (message.client, &mut place.node);
        let heal = |token| match model.rules.exact {
            true => Rule::Exactly(token),
            false => Rule::Next,
        };
        let has = |has| if has { Answer::Granted(0) } else { Answer::No };
        let mut acquire = |rule| node.acquire(owner, rule, now, model.bounds.clocks);
        let answer = match message.word {
            Word::Acquire { .. } => acquire(Rule::Next),
            Word::Exactly { token, .. } => acquire(Rule::Exactly(token)),
            Word::Heal { token } => acquire(heal(token)),
            Word::Renew { token } => has(node.renew(owner, token, now)),
            Word::Release { token } => {
                node.release(owner, token);
                return;
            }
            Word::Abandon => {
                node.abandon(owner);
                return;
            }
            Word::Fence { at_least } => {
                node.fence(at_least);
                Answer::Granted(0)
            }
        };
        let waiting = self.clients.get(usize::from(owner));
        if !heard || waiting.is_some_and(|client| client.phase == Phase::Done) {
            return;
        }
        if model.bounds.late_replies {
            let reply = Some(answer);
            place.send(Message { reply, ..message });
        } else {
            self.reply(n, message, answer, model);
        }
    }

    fn reply(&mut self, n: usize, message: Message, answer: Answer, model: &Quorum) {
        if message.client == OPERATOR {
            self.places[n].fenced = true;
            let done = self.places.iter().filter(|place| place.fenced).count();
            if done >= majority(model.rules) {
                self.floor = self.fencing;
            }
            return;
        }
        let c = usize::from(message.client);
        let (client, place) = (&self.clients[c], &mut self.places[n]);
        let (token, phase) = (client.token, client.phase);
        let granted = match answer {
            Answer::Granted(token) => token,
            Answer::No => 0,
        };
        match (message.word, phase) {
            (Word::Acquire { attempt }, _) if attempt == client.attempt && granted > 0 => {
                match phase {
                    Phase::Second | Phase::Held if granted < token => {
                        place.ask(c as u8, Word::Exactly { attempt, token });
                    }
                    Phase::Held if granted > token => {
                        place.ask(c as u8, Word::Release { token: granted });
                    }
                    Phase::First | Phase::Second => {
                        place.seen[c].vote = granted;
                        place.seen[c].there |= phase == Phase::Second && granted == token;
                        self.hand_out(c, model);
                    }
                    _ => {}
                }
            }
            (Word::Exactly { attempt, .. }, Phase::Second) if attempt == client.attempt => {
                place.seen[c].there |= granted == token || granted > 0 && !model.rules.exact;
                self.hand_out(c, model);
            }
            (Word::Renew { .. }, Phase::Held) => {
                place.seen[c].renewed |= answer != Answer::No;
                place.seen[c].lost |= answer == Answer::No;
                self.renewed(c, model);
            }
            (Word::Heal { .. }, Phase::Held) => {
                let exactly = granted == token || !model.rules.exact;
                place.seen[c].renewed |= granted > 0 && exactly;
                self.renewed(c, model);
            }
            _ => {}
        }
    }

    fn renewed(&mut self, c: usize, model: &Quorum) {
        let renewed = self.count(c, |seen| seen.renewed);
        let client = &mut self.clients[c];
        let token = client.token;
        if renewed >= majority(model.rules) {
            client.confirm(self.now);
            if token < client.renewal_floor {
                self.broken = Some("a renewal counts after a fence");
            }
        }
        if renewed > 0 {
            for place in &mut self.places {
                if std::mem::take(&mut place.seen[c].lost) {
                    place.ask(c as u8, Word::Heal { token });
                }
            }
        }
    }

    fn check(&mut self) {
        let believe = self.clients.iter().filter(|c| c.believes(self.now)).count();
        if believe > 1 && self.broken.is_none() {
            self.broken = Some("two holders");
        }
    }
}
