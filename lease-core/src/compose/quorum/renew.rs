//! Renewals: a majority for each grant, and nodes that get theirs back.

mod heal;
mod tally;

use std::sync::Arc;

use futures_util::stream::StreamExt;

use super::background::{go_on, runtime};
use super::fan_out::{Answers, those_there};
use super::{Inner, Node};
use crate::backend::{RenewOutcome, RenewRequest};
use crate::error::StoreError;

use heal::Healed;
use tally::Tally;

type Answer = Vec<Result<RenewOutcome, StoreError>>;

/// Renews each; one batch to each node.
pub(super) async fn renew(
    inner: &Arc<Inner>,
    requests: &[RenewRequest],
) -> Vec<Result<RenewOutcome, StoreError>> {
    if requests.is_empty() {
        return Vec::new();
    }
    if let Err(error) = runtime() {
        return requests.iter().map(|_| Err(error.clone())).collect();
    }
    let mut renewal = Renewal::new(inner, requests);
    while renewal.tallies.iter().any(|t| !t.is_decided(inner)) && renewal.step().await {}
    let outcomes = renewal
        .tallies
        .iter()
        .map(|tally| tally.outcome(inner))
        .collect();
    renewal.finish();
    outcomes
}

/// Renewals under way.
struct Renewal {
    inner: Arc<Inner>,
    requests: Arc<[RenewRequest]>,
    tallies: Vec<Tally>,
    answers: Answers<Answer>,
    heals: Answers<(usize, Healed)>,
}

async fn ask(node: Arc<Node>, requests: Arc<[RenewRequest]>) -> Answer {
    match &*requests {
        [one] => vec![node.backend.renew(one).await],
        many => node.backend.renew_many(many).await,
    }
}

impl Renewal {
    fn new(inner: &Arc<Inner>, requests: &[RenewRequest]) -> Self {
        let requests: Arc<[RenewRequest]> = requests.into();
        let nodes = inner.nodes.len();
        Self {
            tallies: requests.iter().map(|_| Tally::new(nodes)).collect(),
            answers: inner.ask_all(|node| ask(node, Arc::clone(&requests))),
            heals: Answers::new(),
            inner: Arc::clone(inner),
            requests,
        }
    }

    /// Takes one answer; `false` when there is none left to come.
    async fn step(&mut self) -> bool {
        tokio::select! {
            biased;
            Some((i, answer)) = self.answers.next() => self.answered(i, answer),
            Some((i, (at, healed))) = self.heals.next() => {
                self.undo_if_over(i, at, &healed);
                if let Some(tally) = self.tallies.get_mut(at) {
                    tally.healed(i, healed);
                }
            }
            else => return false,
        }
        true
    }

    fn answered(&mut self, i: usize, answer: Answer) {
        let mut answer = answer.into_iter();
        for (at, tally) in self.tallies.iter_mut().enumerate() {
            let missing = || Err(StoreError::unknown_outcome("no outcome for this renewal"));
            tally.answered(i, answer.next().unwrap_or_else(missing));
            let Some(request) = self.requests.get(at) else {
                continue;
            };
            for (node, witness) in tally.take_heals(&self.inner) {
                let (inner, request) = (Arc::clone(&self.inner), request.clone());
                self.heals.extend(self.inner.ask([node], move |node| {
                    let (inner, request) = (Arc::clone(&inner), request.clone());
                    async move { (at, heal::heal(&inner, &node, witness, &request).await) }
                }));
            }
        }
    }

    /// The lease was released while a node was given it back.
    fn undo_if_over(&self, i: usize, at: usize, healed: &Healed) {
        let (Some(node), Some(request)) = (self.inner.nodes.get(i), self.requests.get(at)) else {
            return;
        };
        if !matches!(healed, Healed::Not(_)) && self.inner.handed.is_over(request.owner) {
            self.inner.abandon_on(node, &request.key, request.owner);
        }
    }

    /// Lets slow nodes and heals end without the caller.
    fn finish(mut self) {
        let mut beside = Vec::new();
        those_there(&mut self.answers, |i, answer| beside.push((i, answer)));
        for (i, answer) in beside {
            self.answered(i, answer);
        }
        if !self.answers.is_empty() || !self.heals.is_empty() {
            go_on(async move { while self.step().await {} });
        }
    }
}
