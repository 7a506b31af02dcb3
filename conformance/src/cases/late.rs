//! Late and duplicated requests of one owner against another owner's grant,
//! in every order.

use futures_util::{StreamExt, TryStreamExt, stream};
use lease_core::{AcquireOutcome, Key, Owner, RefusedReason, ReleaseOutcome, RenewOutcome, Token};
use tokio::time::Instant;

use crate::case::group;
use crate::client::{Client, Held, ask};
use crate::context::{Ctx, apart, key, owner};
use crate::failure::{Failure, Outcome, check, check_eq};

group! { "late";
    every_order_of_late_requests:
        "Copies of an owner's acquire, renew, release and abandon, in whatever order they arrive, never disturb another owner's grant, never shorten a grant, and tokens only rise. A late acquire of a released owner may be refused.";
    every_order_of_late_requests_after_release_and_abandon:
        "After an acquisition was released and abandoned no late request of its owner has any effect.";
}

/// A request that arrives late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Acquire,
    Renew,
    Release,
    Abandon,
    RivalAcquires,
}

const LATE: [Message; 5] = [
    Message::Acquire,
    Message::Renew,
    Message::Release,
    Message::Abandon,
    Message::RivalAcquires,
];

/// What the contract says of one key: the oracle.
struct World {
    client: Client,
    rival: Client,
    key: Key,
    me: Owner,
    other: Owner,
    /// The token of the first grant, which late renewals and releases carry.
    first: Token,
    live: Option<(Owner, Token)>,
    /// When it was asked for.
    granted: Instant,
    /// Its release was answered: no client sends another acquire of it now, so
    /// the store may refuse a late one or not.
    released: bool,
    abandoned: bool,
    mark: Token,
}

async fn every_order_of_late_requests(ctx: &Ctx) -> Outcome {
    run_all(ctx, &[]).await
}

async fn every_order_of_late_requests_after_release_and_abandon(ctx: &Ctx) -> Outcome {
    run_all(ctx, &[Message::Release, Message::Abandon]).await
}

async fn run_all(ctx: &Ctx, before: &[Message]) -> Outcome {
    let (client, rival) = (ctx.client().await?, ctx.client().await?);
    stream::iter(orders(&LATE).into_iter().enumerate())
        .map(|(i, order)| {
            let (client, rival, before) = (client.clone(), rival.clone(), before.to_vec());
            async move {
                let key = key(&format!("late/{i}"))?;
                // Every request of the owner arrives once more at the end.
                let copies = order.iter().filter(|m| **m != Message::RivalAcquires);
                let story: Vec<_> = before.iter().chain(&order).chain(copies).copied().collect();
                let told = World::new(ctx, client, rival, key)
                    .await?
                    .tell(ctx, &story)
                    .await;
                told.map_err(|(step, failure)| {
                    Failure::says(
                        format!("step {step} of {story:?}, after a grant: {failure}"),
                        "as said there",
                    )
                })
            }
        })
        .buffer_unordered(8)
        .try_collect()
        .await
}

impl World {
    async fn new(ctx: &Ctx, client: Client, rival: Client, key: Key) -> Outcome<Self> {
        let me = owner();
        let granted = Instant::now();
        let first = client.grant(&key, me, ctx.long()).await?.token;
        Ok(Self {
            granted,
            client,
            rival,
            key,
            me,
            other: owner(),
            first,
            live: Some((me, first)),
            released: false,
            abandoned: false,
            mark: first,
        })
    }

    async fn tell(mut self, ctx: &Ctx, story: &[Message]) -> Result<(), (usize, Failure)> {
        for (step, message) in story.iter().enumerate() {
            let told = self.deliver(ctx, *message).await;
            told.map_err(|failure| (step, failure))?;
        }
        Ok(())
    }

    async fn deliver(&mut self, ctx: &Ctx, message: Message) -> Outcome {
        let sent = Instant::now();
        let mine = Held {
            key: self.key.clone(),
            owner: self.me,
            token: self.first,
        };
        let is_first = self.live == Some((self.me, self.first));
        match message {
            Message::Acquire => {
                let request = ask(&self.key, self.me, ctx.long());
                let outcome = self.client.acquire(&request).await?;
                self.judge(self.me, self.abandoned, sent, outcome)?;
            }
            Message::RivalAcquires => {
                let request = ask(&self.key, self.other, ctx.long());
                let outcome = self.rival.acquire(&request).await?;
                self.judge(self.other, false, sent, outcome)?;
            }
            Message::Renew => {
                let renewed = self.client.renew(&mine, ctx.short()).await?;
                check(
                    is_first == (renewed == RenewOutcome::Renewed),
                    format!("renew: {}", if is_first { "Renewed" } else { "Lost" }),
                    renewed,
                )?;
            }
            Message::Release => {
                let outcome = self.client.release(&mine).await?;
                let due = if is_first {
                    self.live = None;
                    self.released = true;
                    ReleaseOutcome::Released
                } else {
                    ReleaseOutcome::NotHeld
                };
                check_eq("release", outcome, due)?;
            }
            Message::Abandon => {
                self.client.abandon(&self.key, self.me).await?;
                self.abandoned = true;
                self.live = self.live.filter(|(owner, _)| *owner != self.me);
            }
        }
        self.looks_right(ctx).await
    }

    fn judge(
        &mut self,
        who: Owner,
        abandoned: bool,
        sent: Instant,
        outcome: AcquireOutcome,
    ) -> Outcome {
        let (due, fits) = match (self.live, &outcome) {
            _ if abandoned => ("Refused", matches!(outcome, AcquireOutcome::Refused(_))),
            (Some((live, token)), AcquireOutcome::Granted(g)) if live == who => {
                ("Granted with the same token", g.token == token)
            }
            (Some((live, _)), _) if live == who => ("Granted with the same token", false),
            (Some(_), AcquireOutcome::Refused(reason)) if who == self.me && self.released => (
                "Held, or Refused as Abandoned",
                *reason == RefusedReason::Abandoned,
            ),
            (Some(_), _) => ("Held", matches!(outcome, AcquireOutcome::Held(_))),
            (None, AcquireOutcome::Granted(g)) => {
                let rises = g.token > self.mark;
                self.mark = g.token;
                self.live = Some((who, g.token));
                self.granted = sent;
                ("Granted with a token above the mark", rises)
            }
            (None, AcquireOutcome::Refused(reason)) if who == self.me && self.released => (
                "Granted, or Refused as Abandoned",
                *reason == RefusedReason::Abandoned,
            ),
            (None, _) => ("Granted, since nobody holds the key", false),
        };
        check(fits, format!("acquire: {due}"), outcome)
    }

    async fn looks_right(&self, ctx: &Ctx) -> Outcome {
        let state = self.client.inspect(&self.key).await?;
        let seen = state.holder.as_ref().map(|holder| holder.token);
        check_eq("the live token", seen, self.live.map(|(_, token)| token))?;
        check_eq("the mark", state.high_water, Some(self.mark))?;
        // Whatever arrived asked for the long TTL first, or for less.
        let long = ctx.long().get();
        let passed = apart(self.granted.elapsed());
        state.holder.map_or(Ok(()), |holder| {
            ctx.tells(
                "the remaining time of the live grant, which was not shortened",
                holder.remaining,
                // Less only where the machine is so slow.
                (long / 2).min(long.saturating_sub(passed)),
                long,
            )
        })
    }
}

/// All orders of `items`.
fn orders(items: &[Message]) -> Vec<Vec<Message>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (i, first) in items.iter().enumerate() {
        let rest: Vec<_> = [&items[..i], &items[i + 1..]].concat();
        for mut order in orders(&rest) {
            order.insert(0, *first);
            all.push(order);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_order_is_there_once() {
        let all = orders(&LATE);
        let texts: BTreeSet<String> = all.iter().map(|o| format!("{o:?}")).collect();
        assert_eq!((all.len(), texts.len()), (120, 120));
    }
}
