//! What nodes do with requests, and clients with replies.

use super::client::{Phase, majority};
use super::node::{Answer, Rule};
use super::{Message, OPERATOR, Quorum, State, Word};

impl State {
    pub(super) fn deliver(&mut self, n: usize, message: Message, heard: bool, model: &Quorum) {
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

    pub(super) fn reply(&mut self, n: usize, message: Message, answer: Answer, model: &Quorum) {
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

    pub(super) fn renewed(&mut self, c: usize, model: &Quorum) {
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
}
