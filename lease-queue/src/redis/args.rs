//! What the scripts are asked for: the same arguments, in the same order, as each of
//! them lists.

use std::time::Duration;

use lease_core::{FenceWhen, Key, Owner, Token, TokenRule, place_lasts};

use crate::item::{ClaimRef, NewItem};
use crate::name::Lane;
use crate::store::{ClaimRequest, Settle};

/// Arguments of one call.
#[derive(Debug, Default)]
pub(super) struct Args(Vec<Vec<u8>>);

/// A lane as scripts write it.
pub(super) fn lane(lane: &Lane) -> String {
    match lane {
        Lane::Group(group) => format!("g:{group}"),
        Lane::Item(item) => format!("i:{item}"),
        Lane::Key(key) => format!("k:{key}"),
    }
}

impl Args {
    pub(super) fn into_parts(self) -> Vec<Vec<u8>> {
        self.0
    }

    pub(super) fn with(mut self, arg: impl Into<Vec<u8>>) -> Self {
        self.push(arg);
        self
    }

    fn push(&mut self, arg: impl Into<Vec<u8>>) {
        self.0.push(arg.into());
    }

    fn number(&mut self, number: impl ToString) {
        self.push(number.to_string());
    }

    pub(super) fn put(&mut self, item: &NewItem) {
        self.push(item.id.to_string());
        self.push(&*item.body);
        self.push(item.group.as_ref().map_or("", Key::as_str));
        self.push(item.dedup.as_ref().map_or("", Key::as_str));
        self.number(item.delay.as_micros());
    }

    fn asker(&mut self, request: &ClaimRequest) {
        self.push(request.owner.to_string());
        self.number(request.ttl.as_micros());
        self.push(request.label.as_str());
    }

    pub(super) fn claim(&mut self, request: &ClaimRequest, max: usize) {
        self.asker(request);
        self.number(max);
    }

    pub(super) fn key(
        request: &ClaimRequest,
        key: &Key,
        rule: TokenRule,
        waits: Option<Duration>,
    ) -> Self {
        let lasts = waits.map_or(Duration::ZERO, place_lasts);
        let (rule, number) = match rule {
            TokenRule::Next { after } => ("n", after.map_or(0, Token::get)),
            TokenRule::Exactly(token) => ("e", token.get()),
        };
        let mut args = Self::default();
        args.asker(request);
        args.with(key.as_str())
            .with(rule)
            .with(number.to_string())
            .with(lasts.as_micros().to_string())
    }

    pub(super) fn settle(&mut self, claim: &ClaimRef, settle: &Settle) {
        let letter = match settle {
            Settle::Extend(_) => "E",
            Settle::Complete => "C",
            Settle::Retry { .. } => "R",
            Settle::Bury { .. } => "B",
        };
        self.push(letter);
        self.push(lane(&claim.lane));
        self.push(claim.item.to_string());
        self.push(claim.owner.to_string());
        self.number(claim.token.get());
        match settle {
            Settle::Extend(ttl) => {
                self.number(ttl.as_micros());
                self.push("");
            }
            Settle::Complete => {
                self.push("");
                self.push("");
            }
            Settle::Retry {
                delay,
                counts,
                error,
            } => {
                self.number(delay.as_micros());
                let counts = u8::from(*counts);
                match error {
                    Some(error) => self.push(format!("{counts}e{error}")),
                    None => self.number(counts),
                }
            }
            Settle::Bury { reason } => {
                self.push(reason.as_str());
                self.push("");
            }
        }
    }

    pub(super) fn abandon(key: Option<&Key>, owner: Owner) -> Self {
        let only = key.map(|key| lane(&Lane::Key(key.clone())));
        Self::default()
            .with(owner.to_string())
            .with(only.unwrap_or_default())
    }

    pub(super) fn fence(of: &Lane, at_least: Token, when: FenceWhen) -> Self {
        Self::default()
            .with(lane(of))
            .with(at_least.get().to_string())
            .with(u8::from(when == FenceWhen::Immediately).to_string())
    }

    pub(super) fn look(letter: &str) -> Self {
        Self::default().with(letter)
    }
}
