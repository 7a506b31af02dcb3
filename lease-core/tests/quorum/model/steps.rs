//! What clients do.

use super::client::{self, Client, Phase, Seen, majority};
use super::node::TTL;
use super::{Quorum, Rules, State, Word};

impl State {
    pub(super) fn tick(&mut self) {
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
    pub(super) fn end(&mut self, c: usize) {
        self.clients[c] = Client::new(Phase::Done);
        for place in &mut self.places {
            place.seen[c] = Seen::default();
            place.network.retain(|message| {
                let is_renewal = matches!(message.word, Word::Renew { .. });
                usize::from(message.client) != c || message.reply.is_none() && !is_renewal
            });
        }
    }

    pub(super) fn send_all(&mut self, client: u8, word: Word) {
        for place in &mut self.places {
            place.ask(client, word);
        }
    }

    pub(super) fn votes(&self, c: usize) -> Vec<u8> {
        self.places.iter().map(|place| place.seen[c].vote).collect()
    }

    pub(super) fn count(&self, c: usize, wanted: fn(&Seen) -> bool) -> usize {
        self.places
            .iter()
            .filter(|place| wanted(&place.seen[c]))
            .count()
    }

    pub(super) fn may_decide(&self, c: usize, rules: Rules) -> bool {
        let granted = self.count(c, |seen| seen.vote > 0);
        self.clients[c].phase == Phase::First && granted >= majority(rules)
    }

    pub(super) fn start(&mut self, c: usize, aside: Option<usize>) {
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
        for (n, place) in self.places.iter_mut().enumerate() {
            if aside == Some(n) {
                place.seen[c].aside = true;
            } else {
                place.ask(c as u8, Word::Acquire { attempt });
            }
        }
    }

    pub(super) fn hedge(&mut self, c: usize) {
        let attempt = self.clients[c].attempt;
        for place in &mut self.places {
            if std::mem::take(&mut place.seen[c].aside) {
                place.ask(c as u8, Word::Acquire { attempt });
            }
        }
    }

    /// How far ahead the token may be: what a majority has stays.
    pub(super) fn slack(&self, c: usize, model: &Quorum) -> u8 {
        match client::agreed(&self.votes(c)) {
            Some(_) => 0,
            None => model.bounds.slack,
        }
    }

    pub(super) fn decide(&mut self, c: usize, ahead: u8, model: &Quorum) {
        let token = client::token(&self.votes(c)) + ahead;
        let client = &mut self.clients[c];
        if !model.rules.deadline {
            client.sent = self.now;
        }
        client.phase = Phase::Second;
        client.token = token;
        let attempt = client.attempt;
        for place in &mut self.places {
            let aside = std::mem::take(&mut place.seen[c].aside);
            let vote = place.seen[c].vote;
            if vote == token || vote > 0 && !model.rules.second_round {
                place.seen[c].there = true;
            } else if aside || vote > 0 && vote < token {
                place.ask(c as u8, Word::Exactly { attempt, token });
            }
        }
        self.hand_out(c, model);
    }

    pub(super) fn hand_out(&mut self, c: usize, model: &Quorum) {
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
    pub(super) fn give_up(&mut self, c: usize, model: &Quorum) {
        for place in &mut self.places {
            let vote = place.seen[c].vote;
            if vote > 0 {
                place.ask(c as u8, Word::Release { token: vote });
            }
        }
        if model.rules.settled || self.clients[c].attempt >= model.retries(c) {
            self.end(c);
        } else {
            self.start(c, None);
        }
    }

    pub(super) fn check(&mut self) {
        let believe = self.clients.iter().filter(|c| c.believes(self.now)).count();
        if believe > 1 && self.broken.is_none() {
            self.broken = Some("two holders");
        }
    }
}
