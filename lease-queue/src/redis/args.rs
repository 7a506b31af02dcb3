//! What the scripts are asked for: the same arguments, in the same order, as each of
//! them lists.

use std::fmt;
use std::time::Duration;

use lease_core::{FenceWhen, Key, Owner, Token, TokenRule, place_lasts};
use lease_redis::parts::Arguments;

use crate::item::{ClaimRef, NewItem};
use crate::name::Lane;
use crate::store::{ClaimRequest, Settle};

/// Arguments of one call.
#[derive(Debug, Default)]
pub(super) struct Args(Arguments);

/// A lane as scripts write it.
pub(super) struct InScript<'a>(pub(super) &'a Lane);

impl fmt::Display for InScript<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Lane::Group(group) => write!(f, "g:{group}"),
            Lane::Item(item) => write!(f, "i:{item}"),
            Lane::Key(key) => write!(f, "k:{key}"),
        }
    }
}

impl Args {
    /// Of so many requests of this kind, none of which is very large.
    pub(super) fn of_many(requests: usize) -> Self {
        Self(Arguments::with_capacity(7 * requests, 160 * requests))
    }

    pub(super) fn parts(&self) -> &Arguments {
        &self.0
    }

    pub(super) fn with(mut self, arg: impl AsRef<[u8]>) -> Self {
        self.push(arg);
        self
    }

    fn push(&mut self, arg: impl AsRef<[u8]>) {
        self.0.push(arg.as_ref());
    }

    /// As it is written.
    fn write(&mut self, arg: impl fmt::Display) {
        self.0.write(arg);
    }

    pub(super) fn put(&mut self, item: &NewItem) {
        self.write(item.id);
        self.push(&*item.body);
        self.push(item.group.as_ref().map_or("", Key::as_str));
        self.push(item.dedup.as_ref().map_or("", Key::as_str));
        self.write(item.delay.as_micros());
    }

    fn asker(&mut self, request: &ClaimRequest) {
        self.write(request.owner);
        self.write(request.ttl.as_micros());
        self.push(request.label.as_str());
    }

    pub(super) fn claim(&mut self, request: &ClaimRequest, max: usize) {
        self.asker(request);
        self.write(max);
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
        self.write(InScript(&claim.lane));
        self.write(claim.item);
        self.write(claim.owner);
        self.write(claim.token.get());
        match settle {
            Settle::Extend(ttl) => {
                self.write(ttl.as_micros());
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
                self.write(delay.as_micros());
                let counts = u8::from(*counts);
                match error {
                    Some(error) => self.write(format_args!("{counts}e{error}")),
                    None => self.write(counts),
                }
            }
            Settle::Bury { reason } => {
                self.push(reason.as_str());
                self.push("");
            }
        }
    }

    pub(super) fn abandon(key: Option<&Key>, owner: Owner) -> Self {
        let only = key.map(|key| InScript(&Lane::Key(key.clone())).to_string());
        Self::default()
            .with(owner.to_string())
            .with(only.unwrap_or_default())
    }

    pub(super) fn fence(of: &Lane, at_least: Token, when: FenceWhen) -> Self {
        Self::default()
            .with(InScript(of).to_string())
            .with(at_least.get().to_string())
            .with(u8::from(when == FenceWhen::Immediately).to_string())
    }

    pub(super) fn look(letter: &str) -> Self {
        Self::default().with(letter)
    }
}
